"""Readings made of other readings: forecasts, stalls, what is missing of a card, memory of workloads.

The rules know plain limits only, so whatever is relative is a metric here. Pure: no clock, no input or output. An
input that is missing, failed or unsupported makes a reading that is missing, failed or unsupported, never a 0 (S3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Callable, Optional

from gpuwatch.model.container import ContainerReport, workload_of
from gpuwatch.model.gpu import Attribution, DriverState, GpuReport, GpuSample, Owner
from gpuwatch.model.host import HostReport, SubjectReadings, UnitReadings, WorkloadReport
from gpuwatch.model.incident import Subject
from gpuwatch.model.instant import Instant
from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import UNSUPPORTED, Reading, failed, value
from gpuwatch.model.settings import Settings, Workload
from gpuwatch.sources.card_facts import CardFacts
from gpuwatch.sources.fabric import FabricManager
from gpuwatch.sources.forecast import Forecasts, difference

WORKLOAD = "workload"  # a kind of Subject; also the scope of its metrics
LEAST_GAP_S = 5.0  # a shorter pause is none: a slow card's sample may be 3 s old
MOST_PERIODS = 3
HOT_MARGIN_C, HOT_C = 5.0, 85.0
LISTED_S = 15.0  # processes are listed every 5 s; an older list says nothing about now
_NOT_READ = failed("not read")
# States in which nobody expects the driver to answer, each told by other means
_EXCUSED = (DriverState.ABSENT, DriverState.RELEASED, DriverState.MISMATCH)
_JOINED, _RUNS = 3.0, ("active", "reloading")

WorkloadOfUnit = Callable[[str, Settings], Optional[Workload]]


@dataclass(frozen=True)
class Sight:
    """What the sources said in one cycle. `journal_problem`: why the journal could not be read now, "" if it was."""

    now: Instant
    report: GpuReport
    host: HostReport
    units: WorkloadReport
    attributions: tuple[Attribution, ...] = ()
    containers: Optional[ContainerReport] = None
    fabric: Optional[FabricManager] = None
    journal_problem: str = ""


@dataclass(frozen=True)
class Enriched:
    """The same reports with the derived readings in them; `workloads` are subjects of kind "workload"."""

    report: GpuReport
    host: HostReport
    units: WorkloadReport
    workloads: tuple[SubjectReadings, ...] = ()


SCARCE = 0.1  # memory is scarce with less than this share of it left


class Derived:
    """Remembers the last minutes. `state` is what should outlive the process: NVLinks that each card once had."""

    def __init__(self, workload_of_unit: WorkloadOfUnit) -> None:
        self._workload_of_unit = workload_of_unit
        self._cards = CardFacts()
        self._card_memory, self._host_memory, self._unit_memory = Forecasts(), Forecasts(), Forecasts()
        self._excused: Optional[Instant] = None
        self._journal_read: Optional[Instant] = None

    def observe(self, sight: Sight, settings: Settings) -> Enriched:
        """Call it once a cycle, in the order of time."""
        report = self._with_card_facts(sight, settings.interval_s)
        return Enriched(
            report,
            replace(sight.host, readings={**sight.host.readings, **self._of_host(sight, settings.interval_s)}),
            self._with_forecasts(sight.units, settings.interval_s),
            tuple(_of_workloads(sight, settings, self._workload_of_unit)),
        )

    def state(self) -> dict[str, float]:
        """JSON-able."""
        return self._cards.state()

    def restore(self, document: Any) -> None:
        """What `state` gave to an earlier process; anything else is left out."""
        self._cards.restore(document)

    def forget(self, uuid: str) -> None:
        """Somebody has settled this card anew (`gpu accept`, `gpu forget`): learn it from now on."""
        self._cards.forget(uuid)

    # cards

    def _with_card_facts(self, sight: Sight, interval_s: float) -> GpuReport:
        in_use = {each.uuid: None if each.unknown else bool(each.owners) for each in sight.attributions}
        if sight.report.state is DriverState.OK:
            there = {sample.uuid for sample in sight.report.samples if sample.lost is None}
            self._cards.keep(there)
            self._card_memory.keep(there)
        samples = []
        for sample in sight.report.samples:
            taken = sight.report.taken_of(sample)
            if sample.readings and taken is not None:  # neither lost nor waited for
                sample = self._with_facts(sample, taken, in_use.get(sample.uuid), interval_s)
            samples.append(sample)
        return replace(sight.report, samples=tuple(samples))

    def _with_facts(self, sample: GpuSample, taken: Instant, in_use: Optional[bool], interval_s: float) -> GpuSample:
        gap_s = _gap_s("gpu.memory_full_in", interval_s)
        readings = {**sample.readings, **self._cards.quick(sample, taken, in_use, gap_s)}
        used = sample.readings.get("gpu.memory_used", _NOT_READ)
        full_in = self._card_memory.full_in(sample.uuid, taken, used, difference(_room(sample), used), gap_s)
        if full_in is not None:
            readings["gpu.memory_full_in"] = full_in
        return replace(sample, readings=readings, slow={**sample.slow, **self._cards.slow(sample)})

    # the host and its units

    def _of_host(self, sight: Sight, interval_s: float) -> dict[str, Reading]:
        available = sight.host.readings.get("host.memory_available", _NOT_READ)
        gap_s = _gap_s("host.memory_full_in", interval_s)
        found = {
            "host.memory_full_in": self._host_memory.full_in(
                "", sight.host.taken, difference(value(0.0), available), available, gap_s
            ),
            "host.gpu_sample_age": self._sample_age(sight.report, sight.now),
            "host.journal_behind": self._journal_behind(sight),
            "host.fabric_manager_down": _fabric_manager_down(sight.fabric, sight.report),
            "host.gpus_hot": _gpus_hot(sight.report),
            "host.memory_thrashing": _thrashing(
                sight.host.readings.get("host.memory_pressure_full", _NOT_READ),
                difference(value(SCARCE), sight.host.readings.get("host.memory_available_ratio", _NOT_READ)),
            ),
        }
        return {name: reading for name, reading in found.items() if reading is not None}

    def _sample_age(self, report: GpuReport, now: Instant) -> Optional[Reading]:
        """Counted from the end of an excuse at the earliest: after a repair nobody is late at once."""
        if report.state in _EXCUSED:
            self._excused = now
            return None
        since = [each for each in (report.taken, self._excused) if each is not None]
        ages = [age for age in map(now.since, since) if age is not None]
        return value(max(0.0, min(ages))) if report.taken is not None and ages else None

    def _journal_behind(self, sight: Sight) -> Reading:
        if not sight.journal_problem or self._journal_read is None:
            self._journal_read = sight.now
        return value(max(0.0, sight.now.since(self._journal_read) or 0.0))

    def _with_forecasts(self, units: WorkloadReport, interval_s: float) -> WorkloadReport:
        self._unit_memory.keep(each.unit for each in units.units)
        gap_s = _gap_s("unit.memory_full_in", interval_s)
        return replace(units, units=tuple(self._with_forecast(each, units.taken, gap_s) for each in units.units))

    def _with_forecast(self, unit: UnitReadings, taken: Instant, gap_s: float) -> UnitReadings:
        used = unit.readings.get("unit.memory_used", _NOT_READ)
        left = difference(unit.readings.get("unit.memory_max", _NOT_READ), used)
        full_in = self._unit_memory.full_in(unit.unit, taken, used, left, gap_s)
        found = {} if full_in is None else {"unit.memory_full_in": full_in}
        found["unit.memory_thrashing"] = _thrashing(
            unit.readings.get("unit.memory_pressure_full", _NOT_READ),
            difference(unit.readings.get("unit.memory_used_ratio", _NOT_READ), value(1.0 - SCARCE)),
        )
        return replace(unit, readings={**unit.readings, **found})


def _gap_s(metric: str, interval_s: float) -> float:
    return max(LEAST_GAP_S, MOST_PERIODS * max(interval_s, METRICS[metric].every_s))


def _thrashing(pressure: Reading, scarcity: Reading) -> Reading:
    """The pressure where memory is scarce (`scarcity` above 0), else 0: pressure alone is also that of a cold cache."""
    if scarcity.value is None:
        return scarcity
    return pressure if scarcity.value > 0 else value(0.0)


def _room(sample: GpuSample) -> Reading:
    """What programs can have: where reserved memory is not told, it is part of what is used."""
    total = sample.readings.get("gpu.memory_total", _NOT_READ)
    reserved = sample.readings.get("gpu.memory_reserved", UNSUPPORTED)
    return total if reserved.unsupported else difference(total, reserved)


def _fabric_manager_down(fabric: Optional[FabricManager], report: GpuReport) -> Optional[Reading]:
    """None where no fabric manager is wanted here, or nobody has asked yet."""
    if fabric is None or not (fabric.state or fabric.problem):
        return None
    if not fabric.state:
        return failed(fabric.problem)
    if fabric.state == "missing" and _all_joined(report):
        return None  # another machine manages the fabric (a virtual machine's host, the switch trays of a rack)
    # "activating" is down: a service that fails and is started again and again is seen so most of the time.
    return value(0.0 if fabric.state in _RUNS else 1.0)


def _all_joined(report: GpuReport) -> bool:
    states = [sample.reading("gpu.fabric_state") for sample in report.samples if sample.lost is None]
    told = [state for state in states if state is not None and not state.unsupported]
    return bool(told) and all(state.value == _JOINED for state in told)


def _gpus_hot(report: GpuReport) -> Optional[Reading]:
    """How many at least; failed where none is and one can't be read."""
    if report.state is not DriverState.OK:
        return None
    heats = [_hot(sample) for sample in report.samples if sample.lost is None]
    hot = sum(1 for heat in heats if heat.value)
    if not hot and any(heat.failed for heat in heats):
        return next(heat for heat in heats if heat.failed)
    return value(hot) if any(heat.value is not None for heat in heats) else None


def _hot(sample: GpuSample) -> Reading:
    margin = _plausible(sample, "gpu.slowdown_margin")
    if margin.value is not None:
        return value(1.0 if margin.value <= HOT_MARGIN_C else 0.0)
    celsius = _plausible(sample, "gpu.temperature")
    if margin.unsupported and celsius.value is not None:
        return value(1.0 if celsius.value >= HOT_C else 0.0)
    return celsius if margin.unsupported else margin


def _plausible(sample: GpuSample, metric: str) -> Reading:
    """As read; failed outside the range that any card could have."""
    reading = sample.readings.get(metric, _NOT_READ)
    return reading if reading.value is None or METRICS[metric].plausible(reading.value) else failed("implausible")


# workloads


def _of_workloads(sight: Sight, settings: Settings, workload_of_unit: WorkloadOfUnit) -> Iterator[SubjectReadings]:
    """Their memory on GPUs. Nothing while a card has not said yet who uses it; 0 is a look that found none."""
    cards = [sample for sample in sight.report.samples if sample.lost is None and _tells(sample, sight.report)]
    lists = {each.uuid: each for each in sight.attributions}
    if sight.report.state is not DriverState.OK or not cards or not lists.keys() >= {card.uuid for card in cards}:
        return
    taken = max((lists[card.uuid].taken for card in cards), key=lambda each: each.boottime_s)
    problem = next(filter(None, (_problem(lists[card.uuid], card, sight.now) for card in cards)), "")
    owned: dict[str, list[_Owned]] = {}
    for card in cards:
        for owner in lists[card.uuid].owners:
            name = _workload_name(owner, sight.containers, settings, workload_of_unit)
            owned.setdefault(name, []).append(_Owned(card.uuid, owner, owner.pid in lists[card.uuid].confirmed))
    for workload in settings.workloads:
        memory = failed(problem) if problem else _most(owned.get(workload.name, []))
        if memory is not None:
            readings = {"workload.gpu_memory": memory}
            if workload.gpu_memory_limit:
                readings["workload.gpu_memory_ratio"] = _share(memory, workload.gpu_memory_limit)
            yield SubjectReadings(Subject(WORKLOAD, workload.name), workload.name, taken, readings)


@dataclass(frozen=True)
class _Owned:
    uuid: str
    owner: Owner
    confirmed: bool


def _tells(card: GpuSample, report: GpuReport) -> bool:
    """False for a card that never says who uses it."""
    return report.capabilities.get(card.uuid, {}).get("processes") != "unsupported"


def _problem(attribution: Attribution, card: GpuSample, now: Instant) -> str:
    """Why a card's list says nothing about now; "" where it does."""
    if attribution.unknown:
        return f"GPU {card.index}: {attribution.unknown}"
    age = now.since(attribution.taken)
    return "" if age is not None and age <= LISTED_S else f"GPU {card.index}: its list of processes is too old"


def _most(owned: list[_Owned]) -> Optional[Reading]:
    """The most on any one card, of confirmed processes (S11); None while there are others only."""
    sums: dict[str, int] = {}
    for each in owned:
        if each.confirmed:
            if each.owner.used_bytes is None:
                return UNSUPPORTED
            sums[each.uuid] = sums.get(each.uuid, 0) + each.owner.used_bytes
    return None if owned and not sums else value(max(sums.values(), default=0))


def _share(memory: Reading, limit: int) -> Reading:
    return memory if memory.value is None else value(memory.value / limit)


def _workload_name(
    owner: Owner, containers: Optional[ContainerReport], settings: Settings, workload_of_unit: WorkloadOfUnit
) -> str:
    """ "" for processes of nobody's workload, and of containers that no engine has named yet."""
    found: Optional[Workload] = None
    unit = owner.unit if owner.kind == "unit" else None
    if owner.container is not None and containers is not None and owner.kind in ("docker", "podman"):
        container = containers.of(owner.container)
        if container is not None:
            found, unit = workload_of(container, settings.workloads), container.unit
    if found is None and unit:
        found = workload_of_unit(unit, settings)
    return "" if found is None else found.name
