"""What a message gives as "now": only what can be read now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuwatch.daemon.current import current_facts
from gpuwatch.model.event import Scalar
from gpuwatch.model.gpu import DriverState, GpuReport, GpuSample
from gpuwatch.model.host import SubjectReadings
from gpuwatch.model.incident import Subject
from gpuwatch.model.reading import Reading, value
from gpuwatch.sources.ring import Ring
from tests.unit.alert_cases import HEAT, UUID, about, at, incident, reading

NOW = at("13:47:12")


def card(index: int, uuid: str, **readings: float) -> GpuSample:
    named = {f"gpu.{name}": value(number) for name, number in readings.items()}
    return GpuSample(uuid, index, "H100", f"0000:5{index}:00.0", readings=named)


def report(state: DriverState = DriverState.OK) -> GpuReport:
    samples = (card(3, UUID, temperature=79.0, shutdown_margin=15.0), card(4, "GPU-4", temperature=61.0))
    return GpuReport(state, taken=NOW, samples=samples)


def test_a_card_beside_the_others() -> None:
    assert current_facts(incident(HEAT), report(), Ring(1.0)) == {
        "value": 15.0,
        "temperature": 79.0,
        "others_low": 61.0,
        "others_high": 61.0,
        "others_count": 1,
    }


def test_a_value_that_is_read_once_a_minute() -> None:
    opened = incident(reading("gpu.pcie_width", 8.0, 16.0, below=True))
    sample = replace(card(3, UUID), slow={"gpu.pcie_width": value(16.0)})
    assert current_facts(opened, replace(report(), samples=(sample,)), Ring(1.0)) == {"value": 16.0}


def test_nothing_of_a_card_while_the_driver_is_silent() -> None:
    assert current_facts(incident(HEAT), report(DriverState.SILENT), Ring(1.0)) == {}


def test_a_change_over_time_is_not_told_as_a_value() -> None:
    facts = reading("gpu.temperature", 5.0, 3.0, change_over_s=60.0)
    assert "value" not in current_facts(incident(facts), report(), Ring(1.0))


MEMORY = reading("host.memory_available_ratio", 0.04, 0.05, below=True)
UNIT = reading("unit.memory_used_ratio", 0.97, 0.95)


@pytest.mark.parametrize(
    "number, expected", [(value(0.62), {"value": 0.62}), (Reading(problem="unsupported"), {}), (value(-3.0), {})]
)
def test_the_host(number: Reading, expected: dict[str, Scalar]) -> None:
    host = {"host.memory_available_ratio": number}
    assert current_facts(incident(MEMORY, gpu=None), report(), Ring(1.0), host) == expected


@pytest.mark.parametrize("name, expected", [("train@a.service", {"value": 0.5}), ("other.service", {})])
def test_a_unit_is_told_by_its_own_readings(name: str, expected: dict[str, Scalar]) -> None:
    told = incident(UNIT, **about("unit", "train@a.service"))
    known = SubjectReadings(Subject("unit", name), name, NOW, {"unit.memory_used_ratio": value(0.5)})
    assert current_facts(told, report(), Ring(1.0), {}, [known]) == expected
