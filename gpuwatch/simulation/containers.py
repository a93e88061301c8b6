"""A container engine that exists only in memory, with containers that are started and ended by hand."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Optional

from gpuwatch.model.container import COMPOSE_PROJECT, COMPOSE_SERVICE, Container, EngineError, EngineState, GpuRequest
from gpuwatch.model.errors import ActionError
from gpuwatch.system.protocols import Clock, EngineEvent, EngineFacts, ListedContainer

KEPT_EVENTS = 256  # as docker keeps
SIGKILL, SIGTERM = 9, 15
_DEADLY = (1, 2, 3, 6, SIGKILL, SIGTERM)
_STOP_S = 10.0  # an engine's grace where nobody says another


@dataclass(frozen=True)
class Manner:
    """How a container takes being stopped. Times in seconds."""

    stops_in_s: float = 0.0  # from SIGTERM to gone
    ignores_sigterm: bool = False
    never_killed: bool = False  # the engine's own SIGKILL after the grace does not come
    loses_answer: bool = False  # a stop works, but its answer is lost
    refuses_stop: str = ""  # a stop is answered with this error
    stays_paused: bool = False  # an unpause is answered and does nothing
    starts_again_in_s: Optional[float] = None  # after a stop, by somebody else


PLAIN = Manner()


@dataclass(frozen=True)
class Done:
    """A request that was made: verb stop, kill or unpause."""

    verb: str
    container: str
    grace_s: float = 0.0
    signal: int = 0


class SimulatedEngine:
    """Implements protocols.ContainerEngine. Answers at once, or fails as it is told."""

    def __init__(self, clock: Clock, kind: str = "docker", socket: str = "/run/docker.sock") -> None:
        self.socket = socket
        self._clock, self._kind = clock, kind
        self._containers: dict[str, Container] = {}
        self._events: list[EngineEvent] = []
        self._there = True
        self._failure: Optional[EngineError] = None
        self.version = {"docker": "28.5.1"}.get(kind, "5.4.2")
        self.asked: list[str] = []  # the questions that were put
        self.done: list[Done] = []
        self._manners: dict[str, Manner] = {}
        self._ends: dict[str, tuple[int, int]] = {}  # when the end under way comes, and its exit code
        self._starts: dict[str, int] = {}

    # protocols.ContainerEngine

    def identity(self) -> str:
        """See protocols.ContainerEngine."""
        return f"simulated {self.socket}" if self._there else ""

    def facts(self) -> EngineFacts:
        """See protocols.ContainerEngine."""
        self._answer("facts")
        return EngineFacts(self._kind, self.version)

    def containers(self) -> tuple[ListedContainer, ...]:
        """See protocols.ContainerEngine."""
        self._answer("containers")
        return tuple(ListedContainer(each.id, each.status) for each in self._containers.values())

    def inspect(self, container_id: str) -> Optional[Container]:
        """See protocols.ContainerEngine."""
        self._answer("inspect")
        return self._containers.get(container_id)

    def events(self, since_ns: int, until_ns: int) -> tuple[EngineEvent, ...]:
        """See protocols.ContainerEngine."""
        self._answer("events")
        return tuple(event for event in self._events if since_ns <= event.at_ns <= until_ns)

    def stop(self, container_id: str, grace_s: float) -> None:
        """See protocols.ContainerEngine. Returns at once."""
        before, manner = self._act(Done("stop", container_id, grace_s=grace_s))
        if manner.refuses_stop:
            raise ActionError(f"stop of container {container_id[:12]}: {self.socket} says: {manner.refuses_stop}")
        if before.status == "paused":  # it hears nothing
            raise ActionError(f"stop of container {container_id[:12]}: {self.socket} says: it is paused", unknown=True)
        if before.live and container_id not in self._ends:
            self._tell(container_id, "kill", signal=SIGTERM)
            slow = manner.ignores_sigterm or manner.stops_in_s > grace_s
            after_s = grace_s if slow else manner.stops_in_s
            if not (slow and manner.never_killed):
                self._ends[container_id] = (self._in_ns(after_s), 128 + (SIGKILL if slow else SIGTERM))
            if self._kind == "podman":
                self._put(replace(before, status="stopping"))
            self._live()
        if manner.loses_answer:
            raise ActionError(f"stop of container {container_id[:12]}: {self.socket} does not answer", unknown=True)

    def kill(self, container_id: str, signal: int = SIGKILL) -> None:
        """See protocols.ContainerEngine. The processes that are there die of what ends most."""
        before, manner = self._act(Done("kill", container_id, signal=signal))
        if not before.live:
            raise ActionError(f"kill of container {container_id[:12]}: {self.socket} says: it is not running")
        self._tell(container_id, "kill", signal=signal)
        if signal == SIGKILL or (signal in _DEADLY and not manner.ignores_sigterm and before.status != "paused"):
            after_s = 0.0 if signal == SIGKILL else manner.stops_in_s
            self._ends[container_id] = (self._in_ns(after_s), 128 + signal)
            self._live()

    def unpause(self, container_id: str) -> None:
        """See protocols.ContainerEngine."""
        before, manner = self._act(Done("unpause", container_id))
        if before.status != "paused":
            raise ActionError(f"unpause of container {container_id[:12]}: {self.socket} says: it is not paused")
        if not manner.stays_paused:
            self.pause(container_id, False)

    def _act(self, request: Done) -> tuple[Container, Manner]:
        self._live()
        self.done.append(request)
        asked = f"{request.verb} of container {request.container[:12]}"
        if self._failure is not None:
            slow = self._failure.state is EngineState.SLOW
            raise ActionError(f"{asked}: {self._failure}", unknown=slow) from self._failure
        before = self._containers.get(request.container)
        if before is None:
            raise ActionError(f"{asked}: {self.socket} says: no such container")
        return before, self._manners.get(request.container, PLAIN)

    def _answer(self, call: str) -> None:
        self.asked.append(call)
        if self._failure is not None:
            raise self._failure
        self._live()

    def _live(self) -> None:
        """What has come by now."""
        now_ns = self._ns()
        for container_id, (at_ns, exit_code) in list(self._ends.items()):
            if at_ns <= now_ns:
                self.end(container_id, exit_code)
                again_s = self._manners.get(container_id, PLAIN).starts_again_in_s
                if again_s is not None:
                    self._starts[container_id] = self._in_ns(again_s)
        for container_id, at_ns in list(self._starts.items()):
            if at_ns <= now_ns:
                del self._starts[container_id]
                self.start(container_id)

    def _in_ns(self, seconds: float) -> int:
        return self._ns() + int(seconds * 10**9)

    # the hand of the test, or of the demo

    def create(
        self,
        name: str,
        image: str = "train:1",
        labels: Optional[dict[str, str]] = None,
        gpus: Optional[GpuRequest] = None,
        stop_timeout_s: Optional[float] = None,
        restart_policy: str = "no",
        manner: Manner = PLAIN,
    ) -> str:
        """A container that does not run yet; its id."""
        container_id = hashlib.sha256(f"{name} {len(self._events)} {self._ns()}".encode()).hexdigest()
        tags = labels or {}
        self._containers[container_id] = Container(
            engine=self._kind,
            id=container_id,
            name=name,
            status="created",
            image=image,
            image_id="sha256:" + "0" * 64,
            created_ns=self._ns(),
            restart_policy=restart_policy,
            stop_timeout_s=stop_timeout_s or (_STOP_S if self._kind == "podman" else None),
            log_driver="json-file",
            gpus=gpus,
            unit=tags.get("PODMAN_SYSTEMD_UNIT", ""),
            compose_project=tags.get(COMPOSE_PROJECT, ""),
            compose_service=tags.get(COMPOSE_SERVICE, ""),
            labels=tags,
        )
        self._manners[container_id] = manner
        self._tell(container_id, "create")
        return container_id

    def start(self, container_id: str, pid: int = 4242) -> None:
        """It runs."""
        before = self._containers[container_id]
        finished = None if self._kind == "podman" else before.finished_ns
        self._put(
            replace(before, status="running", pid=pid, started_ns=self._ns(), finished_ns=finished, exit_code=None)
        )
        self._tell(container_id, "start")

    def run(self, name: str, pid: int = 4242, labels: Optional[dict[str, str]] = None) -> str:
        """A container that runs; its id."""
        container_id = self.create(name, labels=labels)
        self.start(container_id, pid)
        return container_id

    def end(self, container_id: str, exit_code: int = 0, oom: bool = False, silent: bool = False) -> None:
        """Its first process is gone. `silent`: no event of it is kept."""
        known = True if oom else None if self._kind == "podman" else False
        before = self._containers[container_id]
        self._ends.pop(container_id, None)
        self._put(
            replace(before, status="exited", pid=0, finished_ns=self._ns(), exit_code=exit_code, oom_killed=known)
        )
        if not silent:
            if oom:
                self._tell(container_id, "oom")
            self._tell(container_id, "die", exit_code=exit_code)

    def pause(self, container_id: str, paused: bool = True) -> None:
        """Freeze or thaw it."""
        self._put(replace(self._containers[container_id], status="paused" if paused else "running"))
        self._tell(container_id, "pause" if paused else "unpause")

    def become(self, container_id: str, status: str) -> None:
        """Whatever else an engine may say of it."""
        self._put(replace(self._containers[container_id], status=status))

    def remove(self, container_id: str, silent: bool = False) -> None:
        """Delete it, with all the engine knows of it."""
        if not silent:
            self._tell(container_id, "destroy")
        self._ends.pop(container_id, None)
        del self._containers[container_id]

    def fail(self, state: Optional[EngineState], text: str = "the engine is told to fail") -> None:
        """Answer nothing but this from now on; None ends that."""
        self._failure = None if state is None else EngineError(f"{self.socket}: {text}", state)

    def vanish(self, gone: bool = True) -> None:
        """Take the socket away, or put it back."""
        self._there = not gone

    def forget(self) -> None:
        """Lose all events, as docker does when it is restarted."""
        self._events.clear()

    def all(self) -> tuple[Container, ...]:
        """As they are now, whatever it is told to answer."""
        self._live()
        return tuple(self._containers.values())

    def _put(self, container: Container) -> None:
        self._containers[container.id] = container

    def _tell(
        self, container_id: str, action: str, exit_code: Optional[int] = None, signal: Optional[int] = None
    ) -> None:
        container = self._containers[container_id]
        # Two things never happen in the same nanosecond.
        at_ns = max(self._ns(), self._events[-1].at_ns + 1 if self._events else 0)
        self._events.append(
            EngineEvent(at_ns, container_id, action, container.name, container.image, exit_code, signal,
                        labels=container.labels)
        )  # fmt: skip
        del self._events[:-KEPT_EVENTS]

    def _ns(self) -> int:
        return int(self._clock.now().utc_s * 10**9)
