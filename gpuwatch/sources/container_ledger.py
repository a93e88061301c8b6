"""What is known of the containers of one engine: facts of those there are, and how runs ended.

Engines forget: docker keeps 256 events in memory, `--rm` and compose delete a container with its exit code a
moment after it died. What was seen stays here, bounded, and is written down by the daemon.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Optional

from gpuwatch.catalog.text import clean
from gpuwatch.model.codec import decode, encode
from gpuwatch.model.container import Container, Exit
from gpuwatch.model.event import Event, Scalar
from gpuwatch.model.instant import Instant
from gpuwatch.system.protocols import EngineEvent

MOST_CONTAINERS = 500
MOST_EXITS = 300
EXITS_A_CONTAINER = 5  # one that starts and dies all the time does not push the others out
SAME_END_NS = 5 * 10**9  # an engine's event and its record of the end are this close together

# Of docker's events, those that are told on: what happened to a container as a whole
_TOLD = {
    "start": "container_start",
    "die": "container_die",
    "oom": "container_oom",
    "kill": "container_kill",
    "pause": "container_pause",
    "unpause": "container_unpause",
    "destroy": "container_remove",
    "health_status": "container_health",
}
_LOOK_AGAIN = frozenset({"create", "start", "die", "oom", "pause", "unpause", "restart", "rename", "update", "stop"})


@dataclass
class _Run:
    """What was heard of the run under way."""

    oom: bool = False
    killed_with: Optional[int] = None


@dataclass(frozen=True)
class _Draft:
    """An event to be told when all that came with it is known. `key`: the exit that it tells of."""

    kind: str
    container: Container
    at_ns: int
    facts: Mapping[str, Scalar]
    key: str = ""


class Ledger:
    """One engine's containers. `kind` is docker or podman, once it is known."""

    def __init__(self, prefix: str, stored: Mapping[str, Any]) -> None:
        """`stored`: documents by key, those that begin with `prefix` are ours; what can't be read is left out."""
        self.kind = ""
        self._known_key, self._exit_key = f"{prefix}known.", f"{prefix}exit."
        self.known: dict[str, Container] = {}
        self._exits: dict[str, Exit] = {}
        self._runs: dict[str, _Run] = {}
        self._heard: set[str] = set()  # exits whose event has come
        self._documents: dict[str, Any] = {}
        self._dirty: set[str] = set()
        for key, document in stored.items():
            try:
                if key.startswith(self._known_key):
                    found = decode(Container, document)
                    self.known[found.id] = found
                elif key.startswith(self._exit_key):
                    self._exits[key] = decode(Exit, document)
                else:
                    continue
            except (TypeError, KeyError, ValueError):
                self._dirty.add(key)  # of another version, or damaged: removed with the next write
                continue
            self._documents[key] = document
        self._exits = dict(sorted(self._exits.items(), key=lambda item: item[1].finished_ns))

    @property
    def exits(self) -> tuple[Exit, ...]:
        """Oldest first."""
        return tuple(self._exits.values())

    # What came in

    def take(
        self, heard: Iterable[EngineEvent], looked: Iterable[Container], missing: Iterable[str], now: Instant
    ) -> tuple[Event, ...]:
        """Take in what happened, then how things are now, then what is gone. Gives what is to be told on."""
        drafts = [self._hear(event) for event in heard]
        drafts += [self._look(container) for container in looked]
        drafts += [self._miss(container_id, int(now.utc_s * 10**9)) for container_id in missing]
        return tuple(self._event(draft, now) for draft in drafts if draft is not None)

    def _hear(self, event: EngineEvent) -> Optional[_Draft]:
        run = self._runs.setdefault(event.container, _Run())
        key = ""
        container = self._facts_of(event)
        if event.action == "start":
            self._runs[event.container] = _Run()
        elif event.action == "oom":
            run.oom = True
        elif event.action == "kill":
            run.killed_with = event.signal
        elif event.action == "die":
            key = self._died(event, container, run)
            if event.container in self.known:  # it may be gone before it can be looked at
                self._know(replace(self.known[event.container], status="exited", pid=0, exit_code=event.exit_code))
        elif event.action == "destroy":
            self._removed(event.container, event.at_ns)
        kind = _TOLD.get(event.action)
        facts: dict[str, Scalar] = {"signal": event.signal} if event.action == "kill" else {}
        facts.update({"health": event.health} if event.action == "health_status" else {})
        return None if kind is None else _Draft(kind, container, event.at_ns, facts, key)

    def _look(self, container: Container) -> Optional[_Draft]:
        """An end that nobody told of is told of now, if it was alive when last looked at."""
        before = self.known.get(container.id)
        self._know(container)
        ended = container.finished_ns
        if ended is None:
            return None
        over = container.status not in ("running", "paused")  # else its facts are those of the next run
        same, heard = self._ends_near(container.id, ended)
        if same or (heard and not over):
            return None
        if heard:
            one = replace(self._exits[heard], container=container, finished_ns=ended, known_by="inspect")
            self._put(heard, replace(one, exit_code=container.exit_code))
            return None
        run = self._runs.get(container.id, _Run()) if over else _Run()
        code = container.exit_code if over else None
        key = self._new_key(container.id, ended)
        whose = container if over else before or container
        self._put(key, Exit(whose, ended, code, "inspect", run.oom, run.killed_with))
        alive = before is not None and (before.live or before.started_ns != container.started_ns)
        return _Draft("container_die", container, ended, {}, key) if alive else None

    def _miss(self, container_id: str, now_ns: int) -> Optional[_Draft]:
        """One that was alive when last looked at must have ended."""
        before = self.known.get(container_id)
        if before is None:
            return None
        draft = None
        if before.live:
            run = self._runs.get(container_id, _Run())
            key = self._new_key(container_id, now_ns)
            self._put(key, Exit(before, now_ns, None, "absence", run.oom, run.killed_with))
            draft = _Draft("container_die", before, now_ns, {}, key)
        self._removed(container_id, now_ns)
        return draft

    # What goes out

    def documents(self) -> dict[str, Any]:
        """Everything, to be stored by key."""
        self._encode()
        return dict(self._documents)

    def changes(self) -> dict[str, Optional[Any]]:
        """The documents that are new since the last call; None: remove it."""
        self._bound()
        dirty = sorted(self._dirty)
        self._encode()
        return {key: self._documents.get(key) for key in dirty}

    def _encode(self) -> None:
        for key in self._dirty:
            ours = key.startswith(self._exit_key)
            thing = self._exits.get(key) if ours else self.known.get(key[len(self._known_key) :])
            if thing is None:
                self._documents.pop(key, None)
            else:
                self._documents[key] = encode(thing)
        self._dirty.clear()

    # Its parts

    def _died(self, event: EngineEvent, container: Container, run: _Run) -> str:
        """The key of the entry. The engine's record of the same end may have been read before its event."""
        for key, one in self._exits.items():
            open_one = one.container.id == event.container and one.known_by == "inspect" and key not in self._heard
            if open_one and abs(one.finished_ns - event.at_ns) <= SAME_END_NS:
                self._heard.add(key)
                self._put(key, replace(one, oom_event=run.oom, killed_with=run.killed_with))
                return key
        key = self._new_key(event.container, event.at_ns)
        self._heard.add(key)
        self._put(key, Exit(container, event.at_ns, event.exit_code, "event", run.oom, run.killed_with))
        return key

    def _know(self, container: Container) -> None:
        if self.known.get(container.id) != container:
            self.known[container.id] = container
            self._dirty.add(self._known_key + container.id)

    def _removed(self, container_id: str, at_ns: int) -> None:
        for key, one in list(self._exits.items()):
            if one.container.id == container_id and one.removed_ns is None:
                self._put(key, replace(one, removed_ns=at_ns))
        self._runs.pop(container_id, None)
        if self.known.pop(container_id, None) is not None:
            self._dirty.add(self._known_key + container_id)

    def _facts_of(self, event: EngineEvent) -> Container:
        """What is known, or what its events say of it."""
        known = self.known.get(event.container)
        if known is not None:
            return known
        labels = event.labels
        return Container(
            self.kind, event.container, event.name, "", event.image,
            compose_project=labels.get("com.docker.compose.project", ""),
            compose_service=labels.get("com.docker.compose.service", ""),
            labels=labels,
        )  # fmt: skip

    def _ends_near(self, container_id: str, ended: int) -> tuple[bool, str]:
        """Whether this end is in the ledger already, and else the nearest one that only an event told of."""
        mine = [(key, one) for key, one in self._exits.items() if one.container.id == container_id]
        if any(one.finished_ns == ended for _, one in mine):
            return True, ""
        distance = {key: abs(one.finished_ns - ended) for key, one in mine if one.known_by == "event"}
        near = min(distance, key=lambda key: distance[key], default="")
        return False, near if near and distance[near] <= SAME_END_NS else ""

    def _new_key(self, container_id: str, finished_ns: int) -> str:
        return f"{self._exit_key}{container_id[:16]}.{finished_ns}"

    def _put(self, key: str, one: Exit) -> None:
        if self._exits.get(key) != one:
            self._exits[key] = one
            self._dirty.add(key)

    def _bound(self) -> None:
        surplus = _surplus(self._exits)
        for key in surplus:
            del self._exits[key]
        self._heard &= self._exits.keys()
        for container_id in list(self._runs)[: max(0, len(self._runs) - 2 * MOST_CONTAINERS)]:
            del self._runs[container_id]
        for container_id in list(self.known)[: max(0, len(self.known) - MOST_CONTAINERS)]:
            del self.known[container_id]
            self._dirty.add(self._known_key + container_id)
        self._dirty.update(surplus)

    def _event(self, draft: _Draft, now: Instant) -> Event:
        container = draft.container
        end = self._exits.get(draft.key)
        facts = {**draft.facts, **({} if end is None else _exit_facts(end))}
        fields: dict[str, Scalar] = {
            "engine": self.kind,
            "container": container.id,
            "name": clean(container.name, 100),
            "image": clean(container.image, 200),
            "compose": clean(container.compose, 200) or None,
            **facts,
        }
        text = f"{self.kind} container {fields['name'] or container.id[:12]}: {draft.kind[len('container_') :]}"
        said = ", ".join(f"{name} {value}" for name, value in facts.items() if value not in (None, False, ""))
        text = clean(f"{text} ({said})" if said else text)
        return Event(draft.kind, moment(draft.at_ns, now), now, "containers", fields, text=text)


def looked_at_again(events: Iterable[EngineEvent]) -> tuple[str, ...]:
    """The containers whose facts these events change, each once."""
    return tuple(dict.fromkeys(event.container for event in events if event.action in _LOOK_AGAIN))


def moment(utc_ns: int, now: Instant) -> Instant:
    """The instant of a time by the wall clock: of this boot if it can be, else of none that is known."""
    age_s = now.utc_s - utc_ns / 10**9
    boottime_s = now.boottime_s - age_s
    return Instant(now.boot_id if boottime_s >= 0 else "", max(0.0, boottime_s), utc_ns / 10**9)


def _exit_facts(one: Exit) -> dict[str, Scalar]:
    return {
        "exit_code": one.exit_code,
        "oom_killed": True if one.oom_event else one.container.oom_killed if one.known_by == "inspect" else None,
        "killed_with": one.killed_with,
        "known_by": one.known_by,
    }


def _surplus(exits: Mapping[str, Exit]) -> list[str]:
    """The keys beyond the bounds, oldest first."""
    by_age = sorted(exits, key=lambda key: exits[key].finished_ns, reverse=True)
    kept: dict[str, int] = {}
    surplus = []
    for number, key in enumerate(by_age):
        container_id = exits[key].container.id
        kept[container_id] = kept.get(container_id, 0) + 1
        if kept[container_id] > EXITS_A_CONTAINER or number >= MOST_EXITS:
            surplus.append(key)
    return surplus
