"""The cycle: what was seen, what it means, what is done about it, and in which order that becomes durable.

    sources -> samples + events -> policy -> decisions -> intents -> [commit] -> evidence, actions, messages

Everything a cycle decides is one transaction, with the journal cursor as its last statement. Effects
start only after that commit; what became of them is seen by a later cycle. So whatever instant the
process is killed at, the next start finds either the decision (and carries it on) or neither the
decision nor its consequences, and reads the same journal entries again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Optional

from gpuwatch.actions.executor import Executor
from gpuwatch.alerts.desk import Desk
from gpuwatch.catalog.entry import service_units
from gpuwatch.catalog.user_patterns import compiled
from gpuwatch.daemon.account import log_decisions, log_intents
from gpuwatch.daemon.at_work import control_groups, incident_of, owners_at_work, pids, units_on_cards
from gpuwatch.daemon.current import current_facts
from gpuwatch.daemon.ledger import Ledger, restore_intents, restore_policy
from gpuwatch.daemon.notes import identity_of, inventory_of, released_until
from gpuwatch.daemon.orders import Obeyed, Standing, current, log_ended, obey, orders_of
from gpuwatch.model.codec import encode
from gpuwatch.model.container import ContainerReport
from gpuwatch.model.event import Event, Scalar
from gpuwatch.model.gpu import Attribution, DriverState, GpuReport, Owner
from gpuwatch.model.host import HostReport, SubjectReadings, WorkloadReport
from gpuwatch.model.incident import Incident
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.notification import SpoolEntry
from gpuwatch.model.orders import Orders
from gpuwatch.model.reading import Reading, value
from gpuwatch.model.reason import ATTRIBUTION_UNKNOWN, NOT_CONFIRMED
from gpuwatch.model.settings import Settings
from gpuwatch.policy.by_hand import ByHand, forget_gpu, with_by_hand
from gpuwatch.policy.state import Inputs, Outcome, PolicyState
from gpuwatch.policy.step import step
from gpuwatch.policy.victims import workload_of
from gpuwatch.sources.clockwatch import ClockWatch
from gpuwatch.sources.containers import ContainerSource
from gpuwatch.sources.derived import Derived, Sight
from gpuwatch.sources.fabric import FabricManager, FabricSource
from gpuwatch.sources.gpu import GpuSource
from gpuwatch.sources.host import HostSource
from gpuwatch.sources.journal import JournalSource
from gpuwatch.sources.owner_names import OwnerNames, container_ids
from gpuwatch.sources.ring import Ring
from gpuwatch.sources.trace import Traces
from gpuwatch.sources.unit_groups import UnitGroups
from gpuwatch.sources.workloads import WorkloadSource
from gpuwatch.store.database import Write
from gpuwatch.store.history import History
from gpuwatch.store.memory import Snapshot, remove
from gpuwatch.store.writer import Committed, Writer
from gpuwatch.system.protocols import Clock, Courier, GpuDriver, Interest, Journal, JournalBatch, Log, Processes

PLANNED, PRESERVED, SENT = IntentState.PLANNED, IntentState.PRESERVED, IntentState.SENT

SAMPLE_S = 0.4  # the cycle waits this long for the driver's answers, and not at all while it is silent
JOURNAL_S = 0.2
MOST_ENTRIES = 20_000
PROCESSES_EVERY = 5  # cycles; each cycle while something is pending or firing
SPARE_CHILD_S = 600.0  # no driver client is killed in the wake of an Xid 119 or 120 (S7)
MOST_EVENTS = 500  # kept for evidence
KEEP_DELIVERED_S = 7 * 86400.0


@dataclass
class Ports:
    """The outside, injected by app.py; simulated or real."""

    clock: Clock
    gpus: GpuDriver
    journal: Journal
    processes: Processes
    writer: Writer
    executor: Executor
    courier: Courier
    desk: Desk
    log: Log
    host: HostSource
    units: WorkloadSource
    unit_groups: UnitGroups
    containers: ContainerSource
    owner_names: OwnerNames
    fabric: FabricSource
    working_directory: Callable[[int], Optional[str]]
    history: History
    own_directories: tuple[str, ...] = ()


@dataclass(frozen=True)
class Seen:
    """What the daemon knows after a cycle: for status, evidence and the control socket. Never changed."""

    now: Instant
    report: GpuReport
    attributions: tuple[Attribution, ...] = ()
    host: Optional[HostReport] = None
    units: Optional[WorkloadReport] = None
    containers: Optional[ContainerReport] = None
    fabric: Optional[FabricManager] = None
    policy: PolicyState = field(default_factory=PolicyState)
    intents: tuple[Intent, ...] = ()
    orders: Orders = field(default_factory=Orders)
    committed: Committed = field(default_factory=lambda: Committed(durable=True))
    journal_read: Optional[Instant] = None
    journal_problem: str = ""
    history_problem: str = ""
    queued: int = 0
    refused: str = ""  # the newest permanent refusal of a message, in words
    undelivered: Mapping[str, tuple[float, str]] = field(default_factory=dict)  # channel: since UTC seconds, why
    cycles: int = 0


@dataclass(frozen=True)
class Look:
    """What the sources said in one cycle."""

    now: Instant
    report: GpuReport
    attributions: tuple[Attribution, ...]
    events: tuple[Event, ...]
    host: HostReport
    units: WorkloadReport
    containers: ContainerReport
    fabric: Optional[FabricManager]
    batches: list[JournalBatch]
    workloads: tuple[SubjectReadings, ...] = ()


class Cycle:
    """The flow above over injected ports. Not thread-safe; `seen` may be read from anywhere."""

    def __init__(
        self,
        ports: Ports,
        settings: Settings,
        stored: Snapshot,
        host_name: str,
        period_s: float,
        host_wait_s: float = 0.0,
        resident: bool = True,
    ) -> None:
        self.ports, self.settings = ports, settings
        self._host_name, self._period_s, self._host_wait_s = host_name, period_s, host_wait_s
        self._gpu_source = GpuSource(ports.processes)
        self._journal_source = JournalSource()
        self._listen_to_workloads()
        self.ring = Ring(settings.interval_s)
        self.events: list[Event] = []
        self.user_events: list[Event] = []
        self._policy = restore_policy(stored, ports.log)
        self._intents: tuple[Intent, ...] = restore_intents(stored)
        self.ledger = Ledger(stored)
        self._heard: list[JournalBatch] = []
        self._failed_with: Optional[JournalBatch] = None  # the first batch of a cycle that failed
        self._resident = resident
        self._started = ports.clock.now() if resident else None
        self._derived, self._traces = Derived(workload_of), Traces()
        self._derived.restore(stored.state.get("nvlinks"))
        self._orders = orders_of(stored.state, ports.clock.now())
        self._by_hand: tuple[ByHand, ...] = ()  # since the last cycle
        self._clock_watch = ClockWatch(stored.state.get("clock"), resident)
        self._inventory = inventory_of(stored.state)
        if self._inventory:
            ports.gpus.expect(self._inventory)
        self._released: Optional[Instant] = released_until(stored.state)
        if self._released is not None:
            left = self._released.since(ports.clock.now())
            if left is not None and left > 0:
                ports.gpus.release(left)
        self._spare_until = 0.0
        self._at_work: set[int] = set()  # pids of workloads on GPUs
        ports.desk.restore(stored.spool, stored.state.get("muted"))
        self.seen = Seen(ports.clock.now(), GpuReport(DriverState.STARTING), policy=self._policy, intents=self._intents)

    # The cycle

    def run(self) -> Seen:
        """One cycle. When it fails, what was heard and what was due come again, once: an entry that fails two
        cycles would fail them all."""
        look = self._look()
        due: tuple[SpoolEntry, ...] = ()
        done = False
        try:
            ports, now = self.ports, look.now
            self._end_orders(now)
            outcome = with_by_hand(self._judge(look), self._by_hand)
            planned = ports.executor.plan(outcome.wishes, self._intents, now)
            intents, effects = ports.executor.advance(
                (*self._intents, *planned), outcome.wishes, self.settings, now, self._orders
            )
            ports.desk.collect(now)
            ports.desk.spool(
                outcome.transitions,
                intents,
                self.settings,
                now,
                self._facts_of(look),
                outcome.state.incidents.values(),
                self._orders,
            )
            due = ports.desk.due(self.settings, now)
            committed = self._commit(outcome, intents, look.batches, now)
            done = committed.durable
            log_decisions(ports.log, outcome.decisions, outcome.state.incidents.values())
            log_intents(ports.log, self._intents, intents, units_on_cards(look.attributions))
            self._policy, self._by_hand = outcome.state, ()
            kept = frozenset(incident.number for incident in outcome.state.incidents.values())
            self._intents = ports.executor.retained(intents, kept, now)
            self.seen = self._view(look, committed)
            ports.history.record(look.report, look.host.readings, look.events, now, incident_of(outcome.state))
            if committed.durable:
                ports.executor.carry_out(effects)
                ports.desk.hand_over(due, self.settings, now)
            look = replace(look, batches=[])  # they are in the transaction, or wait with it
        finally:
            if not done:
                self.ports.desk.take_back(due)
                first = look.batches[0] if look.batches else None
                if first is not self._failed_with:
                    self._heard = [*look.batches, *self._heard]
                self._failed_with = first
        return self.seen

    def _look(self) -> Look:
        """Everything that the sources say now."""
        ports = self.ports
        report = ports.gpus.sample(self._processes_wanted(), ports.clock.monotonic() < self._spare_until, SAMPLE_S)
        self._take_inventory(report)
        ports.executor.observe(report)
        now = ports.clock.now()
        attributions = self._gpu_source.observe(report, now)
        ports.containers.want(container_ids(attributions))
        containers = ports.containers.observe(now)
        attributions = ports.owner_names.name(attributions, containers)
        host = ports.host.observe(now, self._host_wait_s, report.stuck_since is not None, pids(attributions))
        host = replace(host, readings={**host.readings, **self._own_readings(report, now)})
        at_work = owners_at_work(attributions, self.settings)
        groups = ports.unit_groups.observe(self._workload_units(), now)
        units = ports.units.observe({**control_groups(at_work), **groups}, now)  # those on GPUs come first
        self._watch_directories(at_work)
        fabric = ports.fabric.observe(report, now)
        if self._classes != self.settings.class_overrides(now.utc_s):  # one has ended
            self._listen_to_workloads()
        self.listen()
        batches, self._heard = self._heard, []
        events = tuple(event for batch in batches for event in self._journal_source.events(batch, now))
        events += (*containers.events, *self._clock_watch.observe(now))
        self._note(events)
        problem = batches[-1].problem  # of the batch that was read just now
        sight = Sight(now, report, host, units, attributions, containers, fabric, problem)
        rich = self._derived.observe(sight, self.settings)
        self.ring.add(rich.report, rich.host.readings, now)
        self._traces.add(rich.report)
        return Look(
            now, rich.report, attributions, events, rich.host, rich.units, containers, fabric, batches, rich.workloads
        )

    def _watch_directories(self, at_work: list[Owner]) -> None:
        """A job writes its checkpoints where it works: that file system must have room, too."""
        owners = {owner.pid for owner in at_work}
        if owners == self._at_work:
            return
        self._at_work = owners
        places = sorted(filter(None, map(self.ports.working_directory, sorted(owners))))
        self.ports.host.watch((*self.ports.own_directories, *places))

    def _facts_of(self, look: Look) -> Callable[[Incident], Mapping[str, Scalar]]:
        subjects = (*look.host.subjects(), *look.units.subjects(), *look.workloads)
        return lambda incident: current_facts(incident, look.report, self.ring, look.host.readings, subjects)

    def listen(self) -> bool:
        """Read the journal ahead of the cycle; True when there was something."""
        batch = self.ports.journal.read(MOST_ENTRIES, JOURNAL_S)
        self._heard.append(batch)
        return bool(batch.entries or batch.gap)

    def hurries(self) -> bool:
        """True while seconds count: an alert waits for the second reading of who is there, or an action for its
        next step. Nothing of it costs more than a look."""
        alerts = self._policy.alerts.values()
        unsure = any(each.phase == "firing" and each.reason in (NOT_CONFIRMED, ATTRIBUTION_UNKNOWN) for each in alerts)
        return unsure or any(each.state in (PLANNED, PRESERVED, SENT) for each in self._intents)

    def reload(self, settings: Settings) -> None:
        """Go on with other settings; the next step closes what only the old ones wanted."""
        if self._resident and settings.interval_s != self.settings.interval_s:
            self._period_s = settings.interval_s
            self.ring = Ring(settings.interval_s)
        self.settings = settings
        self._listen_to_workloads()

    def stop(self) -> None:
        """The daemon ends in order: what comes after a stop without this was a crash or a power cut."""
        stopped = dict(self._clock_watch.stop(self.ports.clock.now()))
        self.ports.writer.commit([Write("state", "clock", stopped)])

    def release(self, seconds: float) -> float:
        """Let go of the GPUs for so long, also over a restart (S14). When it ends, in UTC seconds."""
        now = self.ports.clock.now()
        self._released = replace(now, boottime_s=now.boottime_s + seconds, utc_s=now.utc_s + seconds)
        self.ports.gpus.release(seconds)
        return self._released.utc_s

    def resume(self) -> None:
        """The end of a release, before its time."""
        self._released = None
        self.ports.gpus.resume()

    def order(self, arguments: Mapping[str, Any], by: str) -> Obeyed:
        """What somebody wants done or left alone, in force from the next cycle on; see orders.obey."""
        rules = tuple(rule.name for rule in self.settings.rules)
        now = self.ports.clock.now()
        obeyed = obey(arguments, by, Standing(now, self._orders, self._policy, self._intents, rules))
        self._orders, self._policy = obeyed.orders, obeyed.policy
        if obeyed.done is not None:
            self._by_hand = (*self._by_hand, obeyed.done)
        if obeyed.release_s is not None:
            self.release(obeyed.release_s)
        elif obeyed.resume and self._released is not None and self.seen.report.state is not DriverState.PAUSED:
            self.resume()
        return obeyed

    def _end_orders(self, now: Instant) -> None:
        """What has come to its end by itself."""
        orders = current(self._orders, now, self._intents, self._policy)
        log_ended(self.ports.log, self._orders, orders)
        self._orders = orders

    def settle_inventory(self, what: str, uuid: str) -> str:
        """accept a GPU that is new, forget one that is gone; why not, "" when done."""
        if what == "accept":
            found = next((sample for sample in self.seen.report.samples if sample.uuid == uuid), None)
            if found is None:
                return f"the driver lists no GPU {uuid}"
            self._inventory = (*(each for each in self._inventory if each.uuid != uuid), identity_of(found))
        elif what == "forget":
            if not any(each.uuid == uuid for each in self._inventory):
                return f"GPU {uuid} is not in the inventory"
            self._inventory = tuple(each for each in self._inventory if each.uuid != uuid)
            self._policy = forget_gpu(self._policy, uuid, self.ports.clock.now())
        else:
            return f"expected accept or forget, not {what[:40]!r}"
        self.ports.gpus.expect(self._inventory)
        self._derived.forget(uuid)
        return ""

    # Its parts

    def _listen_to_workloads(self) -> None:
        """Whose output is read beside what the kernel, systemd and the container engines say."""
        units = self._workload_units()
        containers = tuple(
            name for workload in self.settings.workloads for name in workload.containers if ":" not in name
        )
        own = tuple(glob for pattern in self.settings.patterns for glob in pattern.units)
        self._classes = self.settings.class_overrides(self.ports.clock.now().utc_s)
        self._journal_source.configure(Interest(units), compiled(self.settings), self._classes)
        self.ports.journal.watch(Interest((*units, *own, *sorted(service_units())), containers))

    def _workload_units(self) -> tuple[str, ...]:
        return tuple(glob for workload in self.settings.workloads for glob in workload.units)

    def _take_inventory(self, report: GpuReport) -> None:
        """The GPUs of the first good look belong into this host; later ones are new until somebody accepts them."""
        if not self._inventory and report.state is DriverState.OK and report.samples:
            self._inventory = tuple(identity_of(sample) for sample in report.samples if not sample.lost)
            self.ports.gpus.expect(self._inventory)

    def _processes_wanted(self) -> bool:
        return bool(self._policy.alerts) or self.seen.cycles % PROCESSES_EVERY == 0 or self.seen.cycles < 2

    def _own_readings(self, report: GpuReport, now: Instant) -> dict[str, Reading]:
        """Host metrics about what gpuwatch itself depends on."""
        return {
            "host.driver_silent": value(_silent_s(report, now)),
            "host.driver_mismatch": value(1.0 if report.state is DriverState.MISMATCH else 0.0),
            "host.store_failing": value(self.ports.writer.failing_s()),
        }

    def _judge(self, look: Look) -> Outcome:
        now, report = look.now, look.report
        problems = {"host.store_failing": self.ports.writer.problem, "host.driver_silent": report.reason}
        inputs = Inputs(
            now=now,
            report=report,
            attributions=look.attributions,
            events=look.events,
            intents=self._intents,
            host=look.host.readings,
            subjects=(*look.host.subjects(), *look.units.subjects(), *look.workloads),
            traces=self._traces.of(),
            problems=problems,
            stuck_pids=tuple(sorted({*report.stuck_pids, *(thread.pid for thread in look.host.stuck)})),
            period_s=self._period_s,
            host_name=self._host_name,
            orders=self._orders,
            started=self._started,
            containers=look.containers.containers,
            silent_engines=look.containers.silent_kinds,
        )
        return step(self._policy, inputs, self.settings)

    def _commit(
        self, outcome: Outcome, intents: tuple[Intent, ...], batches: list[JournalBatch], now: Instant
    ) -> Committed:
        desk = self.ports.desk
        more = [*desk.writes(), *remove("spool", desk.expire(now, KEEP_DELIVERED_S))]
        more += [Write("state", name, each) for name, each in self.ports.containers.writes().items()]
        notes = {
            "inventory": encode(self._inventory),
            "released": encode(self._released),
            "nvlinks": self._derived.state(),
            "orders": None if self._orders == Orders() else encode(self._orders),
            "clock": dict(self._clock_watch.state()),
        }
        return self.ledger.commit(self.ports.writer, outcome, self._intents, intents, notes, more, batches)

    def _note(self, events: tuple[Event, ...]) -> None:
        trusted = [event for event in events if event.fields.get("source_trust") != "user"]
        told = [event for event in events if event.fields.get("source_trust") == "user"]
        # A flood of a workload's output must not push out what the kernel said.
        self.events = (self.events + trusted)[-MOST_EVENTS:]
        self.user_events = (self.user_events + told)[-MOST_EVENTS:]
        for event in events:
            if event.kind == "xid" and event.fields.get("xid") in (119, 120) and event.at.boot_id == event.seen.boot_id:
                self._spare_until = self.ports.clock.monotonic() + SPARE_CHILD_S
                self.ports.gpus.pause(f"after an Xid {event.fields['xid']}")

    def _view(self, look: Look, committed: Committed) -> Seen:
        now, batches = look.now, look.batches
        problem = next((batch.problem for batch in reversed(batches) if batch.problem), "")
        return Seen(
            now=now,
            report=look.report,
            attributions=look.attributions,
            host=look.host,
            units=look.units,
            containers=look.containers,
            fabric=look.fabric,
            policy=self._policy,
            intents=self._intents,
            orders=self._orders,
            committed=committed,
            journal_read=self.seen.journal_read if problem else now,
            journal_problem=problem,
            history_problem=self.ports.history.problem,
            queued=self.ports.desk.queued(),
            refused=self.ports.desk.refused(),
            undelivered=self.ports.desk.failing(),
            cycles=self.seen.cycles + 1,
        )


def _silent_s(report: GpuReport, now: Instant) -> float:
    """How long the driver, or one GPU of many, has not answered."""
    if report.stuck_since is None:
        return 0.0
    return max(0.0, now.since(report.stuck_since) or 0.0)
