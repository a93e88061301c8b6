"""One look at a container engine, made in a worker: it may take seconds, and may fail in the middle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Callable, Optional

from gpuwatch.model.container import Container, EngineError, EngineState
from gpuwatch.model.instant import Instant
from gpuwatch.sources.container_ledger import MOST_CONTAINERS, looked_at_again
from gpuwatch.system.protocols import ContainerEngine, EngineEvent, EngineFacts

MOST_INSPECTIONS = 50  # in one look; the rest follows with the next
LOOK_S = 15.0  # no inspection is begun later than this


@dataclass(frozen=True)
class Question:
    """What to ask.

    `known`: the containers known, with their status; `heard`: keys of events that were taken in before; `wanted`: whose
    facts may have changed.
    """

    asked: Instant
    since_ns: int
    until_ns: int
    introduce: bool
    listing: bool
    known: Mapping[str, str]
    heard: frozenset[str] = frozenset()
    wanted: tuple[str, ...] = ()


@dataclass
class Answer:
    """What came back.

    `events`, `listed` None: not read. `owed`: containers that are still to be looked at. `problem`: it went wrong
    from some point on; the rest is good all the same. `remark`: about a single container.
    """

    question: Question
    facts: Optional[EngineFacts] = None
    events: Optional[tuple[EngineEvent, ...]] = None
    listed: Optional[frozenset[str]] = None
    looked: list[Container] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    owed: tuple[str, ...] = ()
    left_out: int = 0
    problem: Optional[EngineError] = None
    remark: str = ""


def read(engine: ContainerEngine, question: Question, monotonic: Callable[[], float]) -> Answer:
    """Ask an engine. Raises nothing that the adapter's contract doesn't name."""
    answer = Answer(question)
    owed = dict.fromkeys(question.wanted)
    until = monotonic() + LOOK_S
    try:
        if question.introduce:
            answer.facts = engine.facts()
        answer.events = engine.events(question.since_ns, question.until_ns)
        new = (event for event in answer.events if event.key not in question.heard)
        owed.update(dict.fromkeys(looked_at_again(new)))
        if question.listing:
            owed.update(dict.fromkeys(_list(engine, question, answer)))
        _inspect(engine, owed, answer, lambda: monotonic() > until)
    except EngineError as error:
        answer.problem = error
    answer.owed = tuple(owed)
    return answer


def _list(engine: ContainerEngine, question: Question, answer: Answer) -> list[str]:
    """Those that are new, or not as they were known."""
    found = engine.containers()
    answer.listed = frozenset(each.id for each in found)
    answer.left_out = max(0, len(found) - MOST_CONTAINERS)
    answer.missing += [each for each in question.known if each not in answer.listed]
    return [each.id for each in found[:MOST_CONTAINERS] if question.known.get(each.id) != each.status]


def _inspect(engine: ContainerEngine, owed: dict[str, None], answer: Answer, late: Callable[[], bool]) -> None:
    """Takes out of `owed` what was looked at. One container that can't be read keeps the others from nothing."""
    for container_id in list(owed)[:MOST_INSPECTIONS]:
        if late():
            break
        del owed[container_id]
        try:
            container = engine.inspect(container_id)
        except EngineError as error:
            if error.state is not EngineState.FAILED:
                owed[container_id] = None  # behind the others
                raise
            answer.remark = f"container {container_id[:12]} can't be looked at: {error}"
            continue
        if container is None:
            answer.missing.append(container_id)
        else:
            answer.looked.append(container)
