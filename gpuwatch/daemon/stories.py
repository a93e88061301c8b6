"""Plays a written story to the rules: a host in memory, every source that reads it, policy and executor, a clock that
moves when it is told to. The same story is the same account, always."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Callable, Optional

from gpuwatch.catalog.entry import service_units
from gpuwatch.catalog.user_patterns import compiled
from gpuwatch.daemon.orders import Standing, current, obey
from gpuwatch.daemon.rehearsal import Kept, Rehearsal, Shown
from gpuwatch.daemon.told import Entry
from gpuwatch.model.event import Event
from gpuwatch.model.gpu import DriverState, GpuReport
from gpuwatch.model.instant import Instant
from gpuwatch.model.orders import Orders
from gpuwatch.model.reading import Reading, value
from gpuwatch.model.settings import Settings
from gpuwatch.policy.victims import workload_of
from gpuwatch.simulation.scenario import REFUSES, Happening, Scenario
from gpuwatch.simulation.stage import REBOOT_S, Stage
from gpuwatch.sources.clockwatch import ClockWatch
from gpuwatch.sources.derived import Derived, Enriched, Sight
from gpuwatch.sources.gpu import GpuSource
from gpuwatch.sources.journal import JournalSource
from gpuwatch.sources.trace import Traces
from gpuwatch.sources.workloads import WorkloadSource
from gpuwatch.system.protocols import Interest

HURRY_S = 0.25  # while seconds count, as the loop hurries
MOST_HURRIED = 4
PROCESSES_EVERY = 5
MOST_ENTRIES = 20_000


@dataclass(frozen=True)
class Account:
    """Everything that was seen of gpuwatch, in the order of time."""

    entries: tuple[Entry, ...]
    cycles: int


def play(
    scenario: Scenario,
    settings: Settings,
    killed_every: int = 0,
    after_each: Callable[[Kept], None] = lambda kept: None,
) -> Account:
    """The account of a story. `killed_every` so many cycles policy and executor forget all that is not stored.
    `after_each` cycle is given what is stored then."""
    return _Play(scenario, settings, killed_every, after_each).run()


class _Sources:
    """What one process of the daemon remembers beside what it stores."""

    def __init__(self, stage: Stage, settings: Settings, clock: Optional[Mapping[str, object]], cursor: str) -> None:
        self.gpu, self.traces, self.derived = GpuSource(stage.processes), Traces(), Derived(workload_of)
        self.units = WorkloadSource(stage.unit_files)
        self.clock_watch = ClockWatch(clock)
        self.lines = JournalSource()
        self.journal = stage.open_journal(cursor)
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """Whose lines are read; as Cycle._listen_to_workloads."""
        interest = Interest(tuple(glob for workload in settings.workloads for glob in workload.units))
        self.lines.configure(interest, compiled(settings), settings.class_overrides())
        own = tuple(glob for pattern in settings.patterns for glob in pattern.units)
        self.journal.watch(Interest((*interest.units, *own, *sorted(service_units()))))


class _Play:
    """One story being played."""

    def __init__(
        self, scenario: Scenario, settings: Settings, killed_every: int, after_each: Callable[[Kept], None]
    ) -> None:
        self.stage = Stage(scenario)
        self.settings, self._killed_every, self._after_each = settings, killed_every, after_each
        self._orders = Orders()
        self._told: list[Event] = []
        self._cursor = self.stage.open_journal("").read(1, 0.0).cursor
        self._sources = _Sources(self.stage, settings, None, self._cursor)
        self._silent_until_s = 0.0
        self._cycles = 0
        self._entries: list[Entry] = []
        now = self.stage.clock.now()
        up_s = scenario.up_s
        self._started = replace(now, boottime_s=now.boottime_s - up_s, utc_s=now.utc_s - up_s)
        self.rehearsal = self._process(Kept())

    def run(self) -> Account:
        """From the first moment to the last."""
        clock, until_s = self.stage.clock, self.stage.scenario.until_s
        due_s, hurried = 0.0, 0
        while clock.elapsed_s <= until_s:
            self._take_in(self.stage.play())
            if clock.elapsed_s >= self._silent_until_s:
                self._cycle()
            while due_s <= clock.elapsed_s:
                due_s += self.settings.interval_s
            hurried = hurried + 1 if self.rehearsal.hurries() and clock.elapsed_s >= self._silent_until_s else 0
            soon_s = clock.elapsed_s + HURRY_S
            clock.advance_to(min(due_s, soon_s) if 0 < hurried <= MOST_HURRIED else due_s)
        return Account(tuple(self._entries), self._cycles)

    def _process(self, kept: Kept) -> Rehearsal:
        stage = self.stage
        stage.gpus.begin_anew()
        return Rehearsal(self.settings, stage.clock, stage.gpus, stage.manager, stage.holds, kept)

    # What the story does to gpuwatch itself

    def _take_in(self, happenings: tuple[Happening, ...]) -> None:
        for what in happenings:
            if what.event:
                self._told += self._events(what)
            if what.settings is not None:
                self.settings = self.rehearsal.settings = what.settings
                self._sources.configure(what.settings)
            if what.order:
                self._obey(what.order)
            if what.reboot:
                self._reboot(what.gap_s or REBOOT_S)
            elif what.restart:
                self._stop_for(what.gap_s)
                self._restart()
            elif what.gap_s:
                self._stop_for(what.gap_s)

    def _stop_for(self, seconds: float) -> None:
        self._silent_until_s = self.stage.clock.elapsed_s + seconds

    def _reboot(self, away_s: float) -> None:
        clock = self.stage.clock
        clock.advance_to(clock.elapsed_s + away_s)
        self.stage.reboot()
        self._restart()
        self._take_in(self.stage.play())

    def _restart(self) -> None:
        """Another process finds what was stored, and has seen nothing yet."""
        note, nvlinks = dict(self._sources.clock_watch.state()), self._sources.derived.state()
        self._sources = _Sources(self.stage, self.settings, note, self._cursor)
        self._sources.derived.restore(nvlinks)
        now = self.stage.clock.now()
        left_s = max(0.0, self._silent_until_s - self.stage.clock.elapsed_s)
        self._started = replace(now, boottime_s=now.boottime_s + left_s, utc_s=now.utc_s + left_s)
        self.rehearsal = self._process(self.rehearsal.kept.through_the_store())

    def _events(self, what: Happening) -> list[Event]:
        now = self.stage.clock.now()
        at = replace(now, boottime_s=now.boottime_s - what.age_s, utc_s=now.utc_s - what.age_s)
        fields = {name: each for name, each in what.event.items() if name != "kind"}
        uuids: list[Optional[str]] = [self.stage.cards[index].uuid for index in what.gpus]
        return [Event(str(what.event["kind"]), at, now, "gpuwatch", fields, uuid) for uuid in uuids or [None]]

    def _obey(self, arguments: Mapping[str, object]) -> None:
        kept, now = self.rehearsal.kept, self.stage.clock.now()
        rules = tuple(rule.name for rule in self.settings.rules)
        obeyed = obey(arguments, "root", Standing(now, self._orders, kept.policy, kept.intents, rules))
        self._orders, kept.policy = obeyed.orders, obeyed.policy
        if "error" in obeyed.answer:
            what, why = str(arguments["what"]), str(obeyed.answer["error"])
            self._entries.append(Entry(self.stage.clock.elapsed_s, REFUSES, what, "host", reason=why))
        if obeyed.release_s is not None:
            self.stage.gpus.release(obeyed.release_s)
        if obeyed.resume:
            self.stage.gpus.resume()

    # A cycle, in the order of daemon/cycle.py

    def _cycle(self) -> None:
        if self._killed_every and self._cycles % self._killed_every == 0:
            self.rehearsal = self._process(self.rehearsal.kept.through_the_store())
        shown = self._look()
        self._entries += self.rehearsal.step(self.stage.clock.elapsed_s, shown)
        self._cycles += 1
        self._after_each(self.rehearsal.kept)

    def _look(self) -> Shown:
        sources, stage = self._sources, self.stage
        listed = self.rehearsal.watches() or self._cycles % PROCESSES_EVERY == 0 or self._cycles < 2
        report = stage.gpus.sample(listed, False, 0.0)
        now = stage.clock.now()
        attributions = sources.gpu.observe(report, now)
        host = stage.host()
        host = replace(host, readings={**_own_readings(report, now), **host.readings})
        groups = {name: group for name, group in stage.groups().items() if workload_of(name, self.settings)}
        units = sources.units.observe(groups, now)
        batch = sources.journal.read(MOST_ENTRIES, 0.0)
        self._cursor = batch.cursor or self._cursor
        events = (*sources.lines.events(batch, now), *sources.clock_watch.observe(now), *self._told)
        self._told = []
        for event in events:
            if event.kind == "xid" and event.fields.get("xid") in (119, 120) and event.at.boot_id == now.boot_id:
                stage.gpus.pause(f"after an Xid {event.fields['xid']}")
        sight = Sight(now, report, host, units, attributions)
        rich = _as_told(sight, sources.derived.observe(sight, self.settings))
        sources.traces.add(rich.report)
        kept = self.rehearsal.kept
        self._orders = current(self._orders, now, kept.intents, kept.policy)
        return Shown(
            now,
            rich.report,
            attributions,
            events,
            rich.host.readings,
            (*rich.host.subjects(), *rich.units.subjects(), *rich.workloads),
            sources.traces.of(),
            groups,
            self._orders,
            self._started,
        )


def _as_told(sight: Sight, rich: Enriched) -> Enriched:
    """What the story says of a derived metric holds, too: nothing that was read is replaced by what was derived."""
    samples = tuple(
        replace(after, readings={**after.readings, **before.readings})
        for before, after in zip(sight.report.samples, rich.report.samples)
    )
    units = tuple(
        replace(after, readings={**after.readings, **before.readings})
        for before, after in zip(sight.units.units, rich.units.units)
    )
    host = replace(rich.host, readings={**rich.host.readings, **sight.host.readings})
    return Enriched(replace(rich.report, samples=samples), host, replace(rich.units, units=units), rich.workloads)


def _own_readings(report: GpuReport, now: Instant) -> dict[str, Reading]:
    """As Cycle._own_readings; the store of a story never fails."""
    silent_s = 0.0 if report.stuck_since is None else max(0.0, now.since(report.stuck_since) or 0.0)
    return {
        "host.driver_silent": value(silent_s),
        "host.driver_mismatch": value(1.0 if report.state is DriverState.MISMATCH else 0.0),
        "host.store_failing": value(0.0),
    }
