"""Containers: what docker and podman know, asked in a worker, and told to the cycle as a report (S7).

An engine is asked for its events every few seconds, for the facts of those containers that the events are about, and
once in a while for its whole list, which finds what no event told. Whatever it does, the cycle only ever takes what
has arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from gpuwatch.model.container import ContainerReport, Engine, EngineError, EngineState
from gpuwatch.model.event import Event
from gpuwatch.model.instant import Instant
from gpuwatch.sources.container_ledger import Ledger
from gpuwatch.sources.container_reading import MOST_INSPECTIONS, Answer, Question, read
from gpuwatch.system.protocols import Clock, ContainerEngine, EngineEvent, Task, Worker

EVENTS_S = 4.0  # podman's socket-activated API ends after 5 s without a question: starting it anew costs more
# podman without a live container is left alone for longer: its API need not run for us. See want().
IDLE_PODMAN_S = 300.0
LIST_S = 60.0
FIRST_BACKOFF_S, LAST_BACKOFF_S = 5.0, 300.0
LATE_S = 60.0  # a look that takes longer than its own deadlines allow
OVERLAP_NS = 2 * 10**9  # podman counts in whole seconds; events are told from each other by their key
MOST_RECENT = 2000
STRANGER_S = 300.0  # an id that the engine does not know (a rootless one's, say) is asked for again after this
PREFIX = "containers:"  # of the keys of all documents, with the socket and a dot behind it
MOST_STRANGERS = 1000


@dataclass
class _Channel:
    """One engine and where we are with it. Times are of the monotonic clock."""

    engine: ContainerEngine
    ledger: Ledger
    status: Engine
    since_ns: int = 0  # events up to here were read
    read_at: Optional[float] = None  # when they were
    recent: dict[str, int] = field(default_factory=dict)  # keys of the newest events, with their time
    task: Optional[Task[Answer]] = None
    asked_at: float = 0.0
    identity: str = ""
    introduced: bool = False
    due: float = 0.0
    list_due: float = 0.0
    backoff_s: float = 0.0
    owed: dict[str, None] = field(default_factory=dict)
    strangers: dict[str, float] = field(default_factory=dict)  # ids that it does not know, with when to ask again
    stored: Any = None


class ContainerSource:
    """Keeps a ledger for each engine. Never raises for what an engine does; not thread-safe."""

    def __init__(
        self, engines: Iterable[ContainerEngine], worker: Worker, clock: Clock, stored: Mapping[str, Any]
    ) -> None:
        """`stored`: the documents of state() or writes() of before, by key; others among them are passed over."""
        self._worker, self._clock = worker, clock
        self._channels = [_channel(engine, stored) for engine in engines]
        self._pending: dict[str, Optional[Any]] = {}
        self._report = ContainerReport()
        self._fresh = True

    def observe(self, now: Instant) -> ContainerReport:
        """Take what has arrived, ask anew where it is time. Costs next to nothing in between."""
        events: list[Event] = []
        for channel in self._channels:
            events += self._collect(channel, now)
            self._ask(channel, now)
            events += self._collect(channel, now)  # a worker that works at once (one pass) has its answer by now
        if self._fresh:
            self._fresh = False
            self._report = ContainerReport(
                engines=tuple(channel.status for channel in self._channels),
                containers=tuple(each for channel in self._channels for each in channel.ledger.known.values()),
                exits=tuple(
                    sorted(
                        (one for channel in self._channels for one in channel.ledger.exits),
                        key=lambda one: one.finished_ns,
                    )
                ),
            )
        return replace(self._report, events=tuple(events)) if events else self._report

    def want(self, container_ids: Iterable[str]) -> None:
        """Containers that a process was seen in: those that are not known are asked for at the next observe()."""
        here = self._clock.monotonic()
        unknown = [each for each in container_ids if not any(each in one.ledger.known for one in self._channels)]
        for channel in self._channels if unknown else ():
            strange = [each for each in unknown if channel.strangers.get(each, 0.0) <= here]
            if strange and channel.status.state in (EngineState.OK, EngineState.STARTING):
                channel.owed.update(dict.fromkeys(strange[:MOST_INSPECTIONS]))
                channel.due = min(channel.due, here)

    def writes(self) -> dict[str, Optional[Any]]:
        """Documents that are new since the last call, by key; None: it is to be removed."""
        pending, self._pending = self._pending, {}
        return pending

    def state(self) -> dict[str, Any]:
        """Everything to be kept over a restart, by key."""
        documents: dict[str, Any] = {}
        for channel in self._channels:
            documents.update(channel.ledger.documents())
            if channel.stored is not None:
                documents[_prefix(channel.engine) + "engine"] = channel.stored
        return documents

    # Asking

    def _ask(self, channel: _Channel, now: Instant) -> None:
        here = self._clock.monotonic()
        if channel.task is not None or here < channel.due:
            return
        identity = channel.engine.identity()
        if not identity:
            self._absent(channel, here)
            return
        before = self._channels[: self._channels.index(channel)]
        twin = next((each.engine for each in before if each.engine.identity() == identity), None)
        if twin is not None:
            channel.due = here + LIST_S
            self._say(channel, EngineState.ABSENT, f"{channel.engine.socket} is the same as {twin.socket}")
            return
        if identity != channel.identity:
            channel.identity, channel.introduced = identity, False
        if channel.status.state is EngineState.ABSENT:
            self._say(channel, EngineState.STARTING, "")
        now_ns = int(now.utc_s * 10**9)
        question = Question(
            asked=now,
            since_ns=_since_ns(channel, now_ns, here),
            until_ns=now_ns,
            introduce=not channel.introduced,
            listing=not channel.introduced or here >= channel.list_due,
            known={each.id: each.status for each in channel.ledger.known.values()},
            heard=frozenset(channel.recent),
            wanted=tuple(channel.owed),
        )
        channel.owed = {}
        engine, monotonic = channel.engine, self._clock.monotonic
        channel.asked_at = here
        channel.task = self._worker.submit(lambda: read(engine, question, monotonic))

    def _absent(self, channel: _Channel, here: float) -> None:
        channel.due = here + FIRST_BACKOFF_S
        channel.identity, channel.introduced = "", False
        if channel.status.taken is None:
            self._say(channel, EngineState.ABSENT, "")
        else:
            self._say(channel, EngineState.DOWN, f"{channel.engine.socket}: the socket is gone")

    # Collecting

    def _collect(self, channel: _Channel, now: Instant) -> tuple[Event, ...]:
        task = channel.task
        if task is None:
            return ()
        if not task.done():
            if task.age_s() > LATE_S:
                self._say(channel, EngineState.SLOW, f"{channel.engine.socket}: no answer for {task.age_s():.0f} s")
            return ()
        channel.task = None
        answer = task.result()
        here = self._clock.monotonic()
        if answer.facts is not None:
            channel.introduced = True
            channel.ledger.kind = answer.facts.kind
            channel.status = replace(channel.status, kind=answer.facts.kind, version=answer.facts.version)
        heard = self._new_events(channel, answer)
        events = channel.ledger.take(heard, answer.looked, answer.missing, now)
        self._remember(channel, answer, here)
        if answer.listed is not None:
            channel.list_due = here + LIST_S
            channel.status = replace(channel.status, taken=answer.question.asked, left_out=answer.left_out)
            self._fresh = True
        if answer.looked or answer.missing or heard:
            self._fresh = True
        self._after(channel, answer.problem, answer.remark, here)
        self._pending.update(channel.ledger.changes())
        return events

    def _new_events(self, channel: _Channel, answer: Answer) -> tuple[EngineEvent, ...]:
        """Those that were not taken in before. The first look at an engine ever begins with now."""
        if answer.events is None:
            return ()
        first = channel.since_ns == 0
        start = answer.question.until_ns if first else 0
        new = tuple(each for each in answer.events if each.key not in channel.recent and each.at_ns >= start)
        channel.recent.update({each.key: each.at_ns for each in answer.events})
        channel.since_ns, channel.read_at = answer.question.until_ns, channel.asked_at
        oldest = channel.since_ns - 2 * OVERLAP_NS
        if len(channel.recent) > MOST_RECENT or new:
            kept = {key: at_ns for key, at_ns in channel.recent.items() if at_ns >= oldest}
            channel.recent = dict(list(kept.items())[-MOST_RECENT:])
        if new or first:
            channel.stored = {"since_ns": channel.since_ns, "recent": dict(channel.recent), "kind": channel.ledger.kind}
            self._pending[_prefix(channel.engine) + "engine"] = channel.stored
        return new

    def _remember(self, channel: _Channel, answer: Answer, here: float) -> None:
        channel.owed = {**dict.fromkeys(answer.owed), **channel.owed}
        for container_id in answer.missing:
            channel.strangers[container_id] = here + STRANGER_S
        if len(channel.strangers) > MOST_STRANGERS:
            channel.strangers = {each: when for each, when in channel.strangers.items() if when > here}
            channel.strangers = dict(list(channel.strangers.items())[-MOST_STRANGERS:])

    def _after(self, channel: _Channel, problem: Optional[EngineError], remark: str, here: float) -> None:
        if problem is not None:
            channel.backoff_s = min(LAST_BACKOFF_S, 2 * channel.backoff_s or FIRST_BACKOFF_S)
            channel.due = here + channel.backoff_s
            channel.introduced = False  # what answers next may be another version, with other containers
            self._say(channel, problem.state, str(problem))
            return
        channel.backoff_s = 0.0
        idle = channel.ledger.kind == "podman" and not any(each.live for each in channel.ledger.known.values())
        channel.due = here if channel.owed else here + (IDLE_PODMAN_S if idle else EVENTS_S)
        self._say(channel, EngineState.OK, remark)

    def _say(self, channel: _Channel, state: EngineState, problem: str) -> None:
        said = replace(channel.status, state=state, problem=problem)
        if said != channel.status:
            channel.status = said
            self._fresh = True


def _since_ns(channel: _Channel, now_ns: int, here: float) -> int:
    """From where on events are asked for: what may have been told before is told from it by its key.

    After a clock that was set back the time of the last look lies in the future; then its age counts.
    """
    age_ns = 0 if channel.read_at is None else int((here - channel.read_at) * 10**9)
    return max(0, min(channel.since_ns or now_ns, now_ns - age_ns) - OVERLAP_NS)


def _prefix(engine: ContainerEngine) -> str:
    return f"{PREFIX}{engine.socket}."


def _channel(engine: ContainerEngine, stored: Mapping[str, Any]) -> _Channel:
    prefix = _prefix(engine)
    channel = _Channel(engine, Ledger(prefix, stored), Engine(engine.socket, EngineState.STARTING))
    document = stored.get(prefix + "engine")
    if isinstance(document, dict):
        since, recent, kind = document.get("since_ns"), document.get("recent"), document.get("kind")
        channel.since_ns = since if isinstance(since, int) else 0
        channel.recent = {k: v for k, v in recent.items() if isinstance(v, int)} if isinstance(recent, dict) else {}
        channel.ledger.kind = kind if isinstance(kind, str) else ""
        channel.stored = document
    return channel
