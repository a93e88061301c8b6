"""A container engine that exists only in memory, with containers that are started and ended by hand."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Optional

from gpuwatch.model.container import COMPOSE_PROJECT, COMPOSE_SERVICE, Container, EngineError, EngineState, GpuRequest
from gpuwatch.system.protocols import Clock, EngineEvent, EngineFacts, ListedContainer

KEPT_EVENTS = 256  # as docker keeps
SIGKILL, SIGTERM = 9, 15


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
        self.asked: list[str] = []  # the calls that were made

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

    def _answer(self, call: str) -> None:
        self.asked.append(call)
        if self._failure is not None:
            raise self._failure

    # the hand of the test, or of the demo

    def create(
        self,
        name: str,
        image: str = "train:1",
        labels: Optional[dict[str, str]] = None,
        gpus: Optional[GpuRequest] = None,
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
            restart_policy="no",
            log_driver="json-file",
            gpus=gpus,
            compose_project=tags.get(COMPOSE_PROJECT, ""),
            compose_service=tags.get(COMPOSE_SERVICE, ""),
            labels=tags,
        )
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
        self._put(
            replace(before, status="exited", pid=0, finished_ns=self._ns(), exit_code=exit_code, oom_killed=known)
        )
        if not silent:
            if oom:
                self._tell(container_id, "oom")
            self._tell(container_id, "die", exit_code=exit_code)

    def kill(self, container_id: str, signal: int = SIGKILL) -> None:
        """A signal through the engine, of which it dies."""
        self._tell(container_id, "kill", signal=signal)
        self.end(container_id, 128 + signal)

    def pause(self, container_id: str, paused: bool = True) -> None:
        """Freeze or thaw it."""
        self._put(replace(self._containers[container_id], status="paused" if paused else "running"))
        self._tell(container_id, "pause" if paused else "unpause")

    def remove(self, container_id: str, silent: bool = False) -> None:
        """Delete it, with all the engine knows of it."""
        if not silent:
            self._tell(container_id, "destroy")
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
