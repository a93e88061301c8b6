"""Recorded history, shown to a policy: what would have fired, been throttled or stopped, when and why.

History keeps the worst of each 5 s (of each minute, after a week) and not who was on a card. So everything is played
in observe mode, with somebody unknown on every card: what it would have done *first* in each incident can be told,
how the card would have answered can not. `Played.caveats` says what else can't be told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from gpuwatch.daemon.past import PastClock, PastGpus
from gpuwatch.daemon.quiet import Quiet
from gpuwatch.daemon.rehearsal import Rehearsal, Shown
from gpuwatch.daemon.told import Entry
from gpuwatch.model.event import Event
from gpuwatch.model.gpu import Attribution, DriverState, GpuReport, GpuSample, Owner
from gpuwatch.model.host import HostReport, WorkloadReport
from gpuwatch.model.instant import Instant
from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import UNSUPPORTED, Reading, value
from gpuwatch.model.rule import DESTRUCTIVE, Rule
from gpuwatch.model.settings import Mode, Settings, Workload
from gpuwatch.policy.victims import workload_of
from gpuwatch.simulation.stage import StageHolds, StageSystemd
from gpuwatch.simulation.systemd import SimulatedSystemd, SimulatedUnit
from gpuwatch.sources.derived import Derived, Sight
from gpuwatch.sources.trace import Traces
from gpuwatch.store.history_read import METRICS_KEPT, HistoryReader, Moment
from gpuwatch.store.history_rows import EventFilter, KnownGpu

WHOEVER = "whoever-was-there@gpu{}.service"
SOMEBODY = Workload("whoever was there", units=("whoever-was-there@*.service",))
FULL_ROWS_S = 15.0  # rows farther apart are of the thinned part of the history, or a gap is between
MOST_EVENTS = 100_000
LOOKED_AT = 12
SILENT = ("silent", "late")  # as history names the driver's state
_STATES = {each.value: each for each in DriverState}
_GPU = tuple(name for name in METRICS_KEPT if name.startswith("gpu."))
_SLOW = frozenset(name for name in _GPU if METRICS[name].every_s > 1)


@dataclass(frozen=True)
class Played:
    """`entries` with `at_s` in UTC seconds, one tuple for each policy, in the order given; `caveats` in words."""

    entries: tuple[tuple[Entry, ...], ...]
    moments: int = 0
    first_utc_s: float = 0.0
    last_utc_s: float = 0.0
    caveats: tuple[str, ...] = ()


def replay(reader: HistoryReader, policies: Sequence[Settings], since_utc_s: float, until_utc_s: float) -> Played:
    """Drive the policies through a recorded time. Raises StoreError."""
    return _Replay(reader, policies, since_utc_s, until_utc_s).run()


@dataclass
class _Player:
    """One policy on its way through the past."""

    rehearsal: Rehearsal
    gpus: PastGpus
    quiet: Quiet
    fed: Optional[Instant] = None
    entries: list[Entry] = field(default_factory=list)

    def at_rest(self) -> bool:
        """Nothing is pending, open or under way."""
        kept = self.rehearsal.kept
        return not (kept.policy.alerts or kept.policy.incidents or any(each.open for each in kept.intents))


class _Replay:
    def __init__(
        self, reader: HistoryReader, policies: Sequence[Settings], since_utc_s: float, until_utc_s: float
    ) -> None:
        self._reader, self._since, self._until = reader, since_utc_s, until_utc_s
        self._clock = PastClock()
        self._known = reader.gpus()
        self._policies = policies
        units = tuple(SimulatedUnit(WHOEVER.format(gpu.index), pid=1000 + gpu.index) for gpu in self._known)
        self._systemd = SimulatedSystemd(self._clock, units)
        self._players = [self._player(settings) for settings in policies]
        self._traces, self._derived = Traces(), Derived(workload_of)
        self._offers: dict[str, frozenset[str]] = {}
        self._widest_s, self._rows = 0.0, 0
        self._silent_since: Optional[Instant] = None

    def _player(self, settings: Settings) -> _Player:
        gpus = PastGpus(self._clock)
        manager = StageSystemd(self._systemd, [WHOEVER.format(gpu.index) for gpu in self._known])
        rehearsal = Rehearsal(_observing(settings), self._clock, gpus, manager, StageHolds())
        return _Player(rehearsal, gpus, Quiet(settings))

    def run(self) -> Played:
        """Moment by moment."""
        events = self._events()
        self._offers = {gpu.uuid: self._offered(gpu) for gpu in self._known}
        first: Optional[float] = None
        before: Optional[Instant] = None
        for moment in self._reader.moments(self._since, self._until, (*_GPU,)):
            first = moment.at.utc_s if first is None else first
            step_s = None if before is None else moment.at.since(before)
            period_s = 5.0 if step_s is None or step_s <= FULL_ROWS_S else min(step_s, 60.0)
            self._widest_s = max(self._widest_s, period_s)
            due = []
            while events and events[0].seen.utc_s <= moment.at.utc_s:
                due.append(events.popleft())
            self._show(moment, tuple(due), period_s)
            before = moment.at
            self._rows += 1
        return Played(
            tuple(tuple(player.entries) for player in self._players),
            self._rows,
            first or self._since,
            self._until if before is None else before.utc_s,
            tuple(self._caveats()),
        )

    def _events(self) -> deque[Event]:
        wanted = EventFilter(self._since, self._until, most=MOST_EVENTS)
        found = (noted.event for noted in self._reader.events(wanted))
        return deque(sorted(found, key=lambda event: event.seen.utc_s))

    def _offered(self, gpu: KnownGpu) -> frozenset[str]:
        """What the card told at some moments of the time: what it never tells it does not offer."""
        found: set[str] = set()
        for number in range(LOOKED_AT + 1):
            utc_s = self._since + (self._until - self._since) * number / LOOKED_AT
            row = self._reader.last_read(gpu, utc_s) or self._reader.next_read(gpu, utc_s)
            if row is not None:
                told = {**self._reader.slow(gpu, row.at.utc_s), **row.values}
                found.update(name for name, each in told.items() if each is not None)
        return frozenset(found)

    def _show(self, moment: Moment, events: tuple[Event, ...], period_s: float) -> None:
        now = self._clock.at = moment.at
        report = self._report(moment)
        host = {name: value(number) for name, number in moment.host.items() if number is not None}
        silent_s = 0.0 if self._silent_since is None else max(0.0, now.since(self._silent_since) or 0.0)
        host["host.driver_silent"] = value(silent_s)
        host["host.driver_mismatch"] = value(1.0 if report.state is DriverState.MISMATCH else 0.0)
        settings = replace(self._policies[0], interval_s=period_s, workloads=())
        sight = Sight(now, report, HostReport(now, host), WorkloadReport(now))
        rich = self._derived.observe(sight, settings)
        if period_s <= FULL_ROWS_S:
            self._traces.add(rich.report)
        attributions = tuple(self._somebody(sample, now) for sample in report.samples)
        for player in self._players:
            quiet = player.quiet.passes(rich.report, rich.host.readings, player.fed, now)
            if events or not quiet or not player.at_rest():
                player.fed = now
                shown = Shown(
                    now,
                    replace(rich.report, changed=player.gpus.answers()),
                    attributions,
                    events,
                    rich.host.readings,
                    traces=self._traces.of() if period_s <= FULL_ROWS_S else {},
                    groups={WHOEVER.format(sample.index): "" for sample in report.samples},
                    period_s=period_s,
                )
                player.gpus.limits.update(_limits(report))
                player.entries += player.rehearsal.step(now.utc_s, shown)

    def _report(self, moment: Moment) -> GpuReport:
        samples = tuple(
            self._sample(gpu, moment)
            for gpu in self._known
            if moment.gpus[gpu.uuid].state in ("read", "lost", "unreadable")
        )
        if samples:
            self._silent_since = None
            return GpuReport(DriverState.OK, taken=moment.at, samples=samples)
        state = next((row.state for row in moment.gpus.values()), "")
        if state not in SILENT:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = moment.at
        driver = DriverState.SILENT if state in SILENT else _STATES.get(state, DriverState.OK)
        return GpuReport(driver, reason=f"recorded: {state}", stuck_since=self._silent_since)

    def _sample(self, gpu: KnownGpu, moment: Moment) -> GpuSample:
        row, offered = moment.gpus[gpu.uuid], self._offers[gpu.uuid]
        index = gpu.index if row.index is None else row.index
        if row.state == "lost":
            return GpuSample(gpu.uuid, index, gpu.name, gpu.pci, lost="as recorded")
        readings: dict[str, Reading] = {}
        slow: dict[str, Reading] = {}
        for name, number in row.values.items():
            if number is not None or name not in offered:
                kept = slow if name in _SLOW else readings
                kept[name] = UNSUPPORTED if number is None else value(number)
        return GpuSample(gpu.uuid, index, gpu.name, gpu.pci, readings, slow=slow, slow_taken=moment.at)

    def _somebody(self, sample: GpuSample, now: Instant) -> Attribution:
        unit = WHOEVER.format(sample.index)
        used = sample.readings.get("gpu.memory_used")
        memory = 0 if used is None or used.value is None else int(used.value)
        owner = Owner(1000 + sample.index, 1, 1.0, "unknown", 0, "unknown", "unit", unit, None, f"/{unit}", memory)
        return Attribution(sample.uuid, now, (owner,), (owner.pid,))

    def _caveats(self) -> Iterator[str]:
        settings = self._policies[0]
        yield (
            "history keeps the worst of each 5 s and, after a week, of each minute: what dipped in between looks as if"
            " it had lasted, and a moment may be told so much too late"
        )
        short = sorted(
            rule.name for rule in settings.rules if rule.enabled and rule.metric and 0 < rule.for_s < self._widest_s
        )
        if short:
            yield f"shorter than the {self._widest_s:.0f} s between two rows is `for` of: {', '.join(short)}"
        unknown = sorted(
            {rule.metric for rule in settings.rules if rule.enabled and rule.metric and not _recorded(rule)}
        )
        if unknown:
            yield f"not recorded, so rules about it can't be judged: {', '.join(unknown)}"
        if any(DESTRUCTIVE & set(step.do) for rule in settings.rules for step in rule.ladder):
            yield (
                'who was on a card is not recorded: "whoever was there" stands for a unit of a workload of this policy,'
                " if one was there at all"
            )
        yield "only the first step of each incident can be told: nobody knows how the card would have answered to it"


_DERIVED_FROM_RECORDED = frozenset(
    {
        "gpu.lost",
        "gpu.memory_full_in",
        "gpu.fan_stopped",
        "gpu.pcie_lanes_missing",
        "gpu.pcie_generations_missing",
        "gpu.nvlinks_missing",
        "host.memory_full_in",
        "host.gpus_hot",
        "host.driver_silent",
        "host.driver_mismatch",
        "host.acting_stopped",
    }
)


def _recorded(rule: Rule) -> bool:
    return rule.metric in METRICS_KEPT or rule.metric in _DERIVED_FROM_RECORDED


def _limits(report: GpuReport) -> dict[str, float]:
    """The power limit of each card at that moment."""
    found = {}
    for sample in report.samples:
        for metric in ("gpu.power_limit_set", "gpu.power_limit", "gpu.power_limit_default"):
            reading = sample.reading(metric)
            if reading is not None and reading.value is not None:
                found[sample.uuid] = reading.value
                break
    return found


def _observing(settings: Settings) -> Settings:
    """The same rules over somebody unknown on each card, who may be acted on if any workload may."""
    allowed = {action for workload in settings.workloads for action in workload.allow or ("throttle", "hold", "stop")}
    somebody = replace(SOMEBODY, allow=tuple(sorted(allowed)))
    return replace(settings, mode=Mode.OBSERVE, workloads=(somebody,) if settings.workloads else (), protect=())
