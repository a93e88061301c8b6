"""The ring: the last minutes, compact, in order, with gaps as gaps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuwatch.model.reading import failed, value
from gpuwatch.sources.ring import Ring
from tests.fakes.story import at, gpu, report, uuid


def test_rows_are_in_order_and_old_ones_go() -> None:
    ring = Ring(1.0, window_s=5)
    for second in range(8):
        ring.add(report(at(second), gpu(0, 40 + second)))
    rows = ring.rows(at(8))
    assert rows["gpus"][uuid(0)]["gpu.temperature"] == [43, 44, 45, 46, 47]
    assert rows["utc_s"] == sorted(rows["utc_s"])


def test_a_value_that_was_not_read_is_none_never_zero() -> None:
    ring = Ring(1.0, window_s=5)
    ring.add(report(at(0), gpu(0)))
    ring.add(report(at(1), gpu(0, temperature=50, power=failed("no"))))
    assert ring.rows(at(1))["gpus"][uuid(0)]["gpu.power"] == [650.0, None]


def test_the_same_report_counts_once() -> None:
    ring = Ring(1.0, window_s=5)
    same = report(at(0), gpu(0))
    ring.add(same)
    ring.add(replace(same, reason="again"))
    assert len(ring.rows(at(1))["utc_s"]) == 1


def test_change_over_a_time_and_none_while_nobody_can_say() -> None:
    ring = Ring(1.0, window_s=30)
    for second in range(8):
        ring.add(report(at(second), gpu(0, 40 + 2 * second)))
    assert ring.change(uuid(0), "gpu.temperature", 10) is None
    assert ring.change(uuid(0), "gpu.temperature", 5) == 10
    assert ring.change(uuid(1), "gpu.temperature", 5) is None
    ring.add(report(at(8), gpu(0, temperature=50).__class__(uuid(0), 0, "", "")))
    assert ring.change(uuid(0), "gpu.temperature", 5) is None


def test_what_never_changes_takes_no_room_and_is_there_all_the_same() -> None:
    ring = Ring(1.0, window_s=5)
    for second in range(4):
        ring.add(report(at(second), gpu(0, 40 + second)))
    total = ring.rows(at(4))["gpus"][uuid(0)]["gpu.memory_total"]
    assert total == [80e9] * 4
    assert ring._columns[(uuid(0), "gpu.memory_total")]._values is None
    assert ring._columns[(uuid(0), "gpu.temperature")]._values is not None


@pytest.mark.parametrize("break_at", range(1, 9))
@pytest.mark.parametrize("missing", [True, False])
def test_a_value_that_stays_and_then_does_not(break_at: int, missing: bool) -> None:
    """Against the plain list of the last five."""
    ring, told = Ring(1.0, window_s=5), []
    for second in range(12):
        odd = second == break_at
        power = failed("no") if odd and missing else 7.0 if odd else 650.0
        ring.add(report(at(second), gpu(0, 40, power=power)))
        told.append(None if odd and missing else power)
        assert ring.rows(at(second))["gpus"][uuid(0)]["gpu.power"] == told[-5:]


def test_a_card_that_comes_later_and_one_that_goes() -> None:
    ring = Ring(1.0, window_s=5)
    for second in range(20):
        cards = [gpu(0), gpu(1)] if second < 3 else [gpu(0)] if second < 6 else [gpu(0), gpu(2)]
        ring.add(report(at(second), *cards))
        if second == 4:
            assert ring.rows(at(4))["gpus"][uuid(1)]["gpu.temperature"] == [60, 60, 60, None, None]
        if second == 7:
            assert ring.rows(at(7))["gpus"][uuid(2)]["gpu.temperature"] == [None, None, None, 60, 60]
    assert set(ring.rows(at(20))["gpus"]) == {uuid(0), uuid(2)}


def test_the_host_is_kept_while_the_driver_says_nothing() -> None:
    ring = Ring(1.0, window_s=5)
    same = report(at(0), gpu(0))
    for second in range(3):
        ring.add(same, {"host.load_1m": value(second)}, at(second))
    rows = ring.rows(at(3))
    assert rows["host"] == {"host.load_1m": [0, 1, 2]}
    assert rows["gpus"][uuid(0)]["gpu.temperature"] == [60, None, None]


def test_what_is_read_once_a_minute_is_there_as_it_changed() -> None:
    ring = Ring(1.0, window_s=5)
    for second, errors in enumerate((0, 0, 3, 3)):
        ring.add(report(at(second), replace(gpu(0), slow={"gpu.ecc_uncorrected": value(errors)})))
    rows = ring.rows(at(4))
    assert rows["slow"] == {uuid(0): {"gpu.ecc_uncorrected": [[at(0).utc_s, 0], [at(2).utc_s, 3]]}}
    assert "gpu.ecc_uncorrected" not in rows["gpus"][uuid(0)]


def test_a_change_is_measured_by_the_machines_own_clock() -> None:
    ring = Ring(1.0, window_s=30)
    for second in range(12):
        moment = at(second)
        moment = replace(moment, utc_s=moment.utc_s - (3600 if second > 5 else 0))
        ring.add(report(moment, gpu(0, 40 + second)))
    assert ring.change(uuid(0), "gpu.temperature", 8) == 8


def test_a_value_that_is_missing_once_is_not_the_one_of_a_round_before() -> None:
    ring = Ring(1.0, window_s=5)
    for second in range(9):
        ring.add(report(at(second), gpu(0, 40 + second)))
    ring.add(report(at(9), replace(gpu(0), readings={"gpu.power": value(1)})))
    assert ring.rows(at(9))["gpus"][uuid(0)]["gpu.temperature"] == [45, 46, 47, 48, None]
