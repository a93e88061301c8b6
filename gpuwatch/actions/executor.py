"""Carries intents through their states: asks their targets, has evidence written, makes the calls. Never blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from signal import SIGKILL, Signals
from typing import Callable, Optional

from gpuwatch.actions import reversible
from gpuwatch.actions.changes import Change
from gpuwatch.actions.effect import Effect
from gpuwatch.actions.machine import RETRY_S, Refused, View, advance
from gpuwatch.actions.router import Router
from gpuwatch.actions.targets import refusal
from gpuwatch.model import reason
from gpuwatch.model.errors import ActionError, EvidenceError, SourceError
from gpuwatch.model.gpu import GpuReport
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.orders import Orders
from gpuwatch.model.settings import Settings
from gpuwatch.model.wish import Wish
from gpuwatch.system.protocols import Clock, Task, UnitFacts, Worker

ANSWER_S = 0.1  # systemd answers in milliseconds; what is later counts in the next cycle
KEEP_ENDED_S = 3600.0  # ended intents are kept this long for the budget and the messages

# Takes the scene of an intent at once and gives the job that writes its bundle. The job returns when the
# bundle became durable, or raises EvidenceError.
Preserve = Callable[[Intent, Optional[UnitFacts]], Callable[[], Instant]]


@dataclass
class _Memory:
    """What this process knows about an intent beside what is written down."""

    target: str = ""
    question: Optional[Task[UnitFacts]] = None
    asked: Optional[Instant] = None
    unit: Optional[UnitFacts] = None
    seen: Optional[Instant] = None
    evidence: Optional[Task[Instant]] = None
    preserved: Optional[Instant] = None
    bundle_problem: str = ""
    bundle_failed: Optional[Instant] = None
    checkpoint: int = 0  # the signal of the workload's checkpoint
    call: Optional[Task[None]] = None
    called: bool = False
    call_problem: str = ""
    call_unknown: bool = False
    held: Optional[reversible.Held] = None
    told: Optional[Instant] = None  # when the change was last asked for


@dataclass
class Executor:
    """`router` asks and tells targets, `scribe` writes evidence; `is_durable(bundle_id)` tells whether a bundle
    is on disk already (after a crash between the write and its note). `changes`: what can be put back, by action.
    `announce` tells people who are logged in what comes; it may take seconds and never raises."""

    clock: Clock
    router: Router
    scribe: Worker
    preserve: Preserve
    is_durable: Callable[[str], bool]
    bundle_id: Callable[[Instant, str, str], str]
    own_units: tuple[str, ...] = ()
    changes: Mapping[str, Change] = field(default_factory=dict)
    announce: Callable[[Intent], None] = lambda intent: None
    _memory: dict[str, _Memory] = field(default_factory=dict)

    def observe(self, report: GpuReport) -> None:
        """What the driver said in this cycle: its answers to changes, and what is in force."""
        for change in self.changes.values():
            change.observe(report)

    def plan(self, wishes: Sequence[Wish], intents: Sequence[Intent], now: Instant) -> tuple[Intent, ...]:
        """New intents for the wishes that no open or settled intent serves."""
        served = {intent.rung for intent in intents if intent.open}
        planned: list[Intent] = []
        for wish in wishes:
            if wish.rung in served:
                continue
            number = 1 + sum(intent.incident == wish.incident for intent in (*intents, *planned))
            planned.append(
                Intent(
                    id=f"a{wish.incident}-{number}",
                    incident=wish.incident,
                    rule=wish.rule,
                    step=wish.step,
                    action=wish.action,
                    target=wish.target,
                    workload=wish.workload,
                    label=wish.label,
                    gpu=wish.gpu,
                    state=IntentState.PLANNED,
                    created=now,
                    changed=now,
                    reason=reason.PLANNED,
                    bundle=""
                    if wish.action in self.changes
                    else self.bundle_id(now, wish.rule, wish.gpu or wish.target or "host"),
                    level=wish.level,
                    due_s=wish.stop.warn_before_s if wish.action == "stop" else 0.0,
                    because=dict(wish.because),
                    observe=wish.observe,
                    heat=wish.heat,
                    users=wish.users,
                    used_bytes=wish.used_bytes,
                )
            )
            served.add(wish.rung)
        return tuple(planned)

    def advance(
        self,
        intents: Sequence[Intent],
        wishes: Sequence[Wish],
        settings: Settings,
        now: Instant,
        orders: Orders,
    ) -> tuple[tuple[Intent, ...], tuple[tuple[Intent, Effect], ...]]:
        """Every intent after one look, and the effects to carry out once that is committed."""
        wanted = {wish.rung: wish for wish in wishes}
        self._ask(intents, now)
        self._hear()
        after: list[Intent] = []
        effects: list[tuple[Intent, Effect]] = []
        for intent in intents:
            if not intent.open:
                self._memory.pop(intent.id, None)
                after.append(intent)
                continue
            turn = self._turn(intent, wanted.get(intent.rung), settings, now, orders)
            moved, effect = turn(intent)
            while effect is None and moved.open and moved.state is not intent.state:
                intent = moved
                moved, effect = turn(intent)
            after.append(moved)
            if effect is not None:
                effects.append((moved, effect))
        return tuple(after), tuple(effects)

    def carry_out(self, effects: Sequence[tuple[Intent, Effect]]) -> None:
        """Start the effects. Call only after the intents were committed."""
        for intent, effect in effects:
            memory = self._memory.setdefault(intent.id, _Memory())
            if intent.action in self.changes:
                self._change(intent, effect, memory)
            elif effect is Effect.PRESERVE:
                memory.evidence = self.scribe.submit(self.preserve(intent, memory.unit))
            elif effect is Effect.WARN:
                self.scribe.submit(_bind_announce(self.announce, intent))
            elif effect is Effect.CHECKPOINT:
                self.router.kill(intent.target, intent.invocation, memory.checkpoint, main=True)
            elif effect is Effect.STOP:
                memory.called, memory.call_problem, memory.call_unknown = True, "", False
                memory.call = self.router.stop(intent.target, intent.invocation, intent.grace_s)
            else:
                memory.call = self.router.kill(intent.target, intent.invocation, int(SIGKILL))

    def retained(self, intents: Sequence[Intent], open_incidents: frozenset[int], now: Instant) -> tuple[Intent, ...]:
        """Those that later cycles still need: open ones, those of open incidents, and recent ones."""
        kept = []
        for intent in intents:
            age = now.since(intent.changed)
            if intent.open or intent.incident in open_incidents or (age is not None and age < KEEP_ENDED_S):
                kept.append(intent)
        return tuple(kept)

    def _ask(self, intents: Sequence[Intent], now: Instant) -> None:
        """One question a target at a time; an unanswered one is not asked again (S7)."""
        for intent in intents:
            if not intent.open or intent.action in ("snapshot", "throttle"):
                continue
            memory = self._memory.setdefault(intent.id, _Memory())
            if memory.question is None:
                memory.question, memory.asked = self.router.look(intent.target), now
                memory.target = intent.target
        for memory in self._memory.values():
            if memory.question is not None and self.router.wait(memory.target, memory.question, ANSWER_S):
                question, memory.question = memory.question, None
                try:
                    memory.unit, memory.seen = question.result(), memory.asked
                except SourceError:
                    memory.unit, memory.seen = None, None

    def _hear(self) -> None:
        for change in self.changes.values():
            for name, held in change.answers().items():
                self._memory.setdefault(name, _Memory()).held = held

    def _change(self, intent: Intent, effect: Effect, memory: _Memory) -> None:
        change = self.changes[intent.action]
        memory.told = self.clock.now()
        value = {Effect.SET: intent.value, Effect.RESTORE: intent.before}.get(effect)
        if value is None:
            change.ask(intent, memory.unit)
        else:
            change.set(intent, value)

    def _turn(
        self, intent: Intent, wish: Optional[Wish], settings: Settings, now: Instant, orders: Orders
    ) -> Callable[[Intent], tuple[Intent, Optional[Effect]]]:
        """The machine of this kind of action, over what is known now."""
        if intent.action not in self.changes:
            view = self._view(intent, wish, settings, now, orders)
            return lambda each: advance(each, view)
        standing = self._standing(intent, wish, settings, now)
        return lambda each: reversible.advance(each, standing)

    def _standing(self, intent: Intent, wish: Optional[Wish], settings: Settings, now: Instant) -> reversible.Standing:
        change, memory = self.changes[intent.action], self._memory.setdefault(intent.id, _Memory())
        before = intent.before
        if before is None and memory.held is not None:
            before = memory.held.value
        age = None if memory.told is None else now.since(memory.told)
        return reversible.Standing(
            now=now,
            wish=wish,
            held=memory.held,
            seen=change.seen(intent) if intent.state is IntentState.APPLIED else None,
            target=None if before is None or wish is None else change.target(before, wish.level, settings.throttle),
            waiting=age is not None and age < reversible.RETRY_S and not _answered(memory),
        )

    def _view(self, intent: Intent, wish: Optional[Wish], settings: Settings, now: Instant, orders: Orders) -> View:
        memory = self._memory.setdefault(intent.id, _Memory())
        if wish is not None and wish.stop.checkpoint is not None:
            memory.checkpoint = int(Signals[wish.stop.checkpoint.signal])
        self._collect(intent, memory, now)
        workload = next((each for each in settings.workloads if each.name == intent.workload), None)
        units, containers = ((), ()) if workload is None else (workload.units, workload.containers)

        def forbidden(unit: UnitFacts) -> Optional[Refused]:
            found = refusal(unit, units, settings.protect, self.own_units, containers)
            return None if found is None else Refused(found.code, found.text)

        return View(
            now=now,
            wish=wish,
            refusal=forbidden,
            unit=memory.unit,
            unit_seen=memory.seen,
            preserved=memory.preserved,
            bundle_problem=memory.bundle_problem,
            preserving=memory.evidence is not None or _just_failed(memory.bundle_failed, now),
            called=memory.called,
            call_problem=memory.call_problem,
            call_unknown=memory.call_unknown,
            ended=reason.VETOED if orders.forbids(intent.incident, intent.id) else reason.CONDITION_ENDED,
        )

    def _collect(self, intent: Intent, memory: _Memory, now: Instant) -> None:
        """Note what has come back from the workers."""
        unwritten = intent.state is IntentState.PLANNED and memory.preserved is None and memory.evidence is None
        if unwritten and self.is_durable(intent.bundle):
            memory.preserved = now
        if memory.evidence is not None and memory.evidence.done():
            evidence, memory.evidence = memory.evidence, None
            try:
                memory.preserved, memory.bundle_problem = evidence.result(), ""
            except EvidenceError as error:
                memory.bundle_problem, memory.bundle_failed = str(error), now
        if memory.call is not None and memory.call.done():
            call, memory.call = memory.call, None
            try:
                call.result()
            except ActionError as error:
                memory.call_problem, memory.call_unknown = str(error), error.unknown


def _answered(memory: _Memory) -> bool:
    """True when an answer has come since it was last asked."""
    if memory.held is None or memory.told is None:
        return False
    later = memory.held.at.since(memory.told)
    return later is not None and later >= 0


def _just_failed(failed: Optional[Instant], now: Instant) -> bool:
    """Evidence that could not be written is tried again after a pause: the disk has trouble enough."""
    age = None if failed is None else now.since(failed)
    return age is not None and age < RETRY_S


def _bind_announce(announce: Callable[[Intent], None], intent: Intent) -> Callable[[], None]:
    return lambda: announce(intent)
