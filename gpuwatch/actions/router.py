"""Sends what is asked of a target to whoever runs it: systemd, or the engine of a container.

model/target.py says how a container is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gpuwatch.catalog import cgroup
from gpuwatch.model.container import Container, EngineError, EngineState
from gpuwatch.model.errors import ActionError, SourceError
from gpuwatch.model.target import container_of, is_container
from gpuwatch.system.protocols import ContainerEngine, EngineFacts, Processes, Systemd, Task, UnitFacts, Worker

DEFAULT_STOP_S = 10.0  # an engine's grace where neither the container nor anybody else says another
_ACTIVE = {
    "running": "active",
    "paused": "active",
    "restarting": "activating",  # between two runs; a stop ends that too
    "stopping": "deactivating",
    "removing": "deactivating",
}


class Containers:
    """What can be asked of systemd about a unit, asked of engines about a container. Each call may take as long as
    the engine's own deadlines: make it in a Worker only. Calls about several containers may run side by side."""

    def __init__(self, engines: Sequence[ContainerEngine], processes: Processes) -> None:
        self._engines, self._processes = engines, processes
        self._kinds: dict[str, EngineFacts] = {}  # by ContainerEngine.identity()
        self._stopping: dict[str, str] = {}  # targets that an engine was told to stop, with the run that was meant

    def facts(self, target: str) -> UnitFacts:
        """As Systemd.unit. Raises SourceError."""
        _, found = self._find(target)
        if found is None:
            return UnitFacts(target, "not-found", "inactive", "dead", "", 0, "", None)
        state, invocation = _ACTIVE.get(found.status, "inactive"), run_of(found)
        if state == "inactive" or self._stopping.get(target) != invocation:
            self._stopping.pop(target, None)
        elif state == "active":
            state = "deactivating"  # docker does not show it
        return UnitFacts(
            name=target,
            load_state="loaded",
            active_state=state,
            sub_state=found.status,
            invocation=invocation,
            main_pid=found.pid,
            control_group=self._control_group(found),
            stop_timeout_s=DEFAULT_STOP_S if found.stop_timeout_s is None else found.stop_timeout_s,
            container=found,
        )

    def stop(self, target: str, invocation: str, grace_s: float) -> None:
        """Stop that run: a paused one is thawed first, since it hears no signal. Raises ActionError."""
        engine = self._to_act(target, invocation)
        self._stopping[target] = invocation
        try:
            engine.stop(container_of(target)[1], grace_s)
        except ActionError as error:
            if not error.unknown:
                self._stopping.pop(target, None)
            raise

    def kill(self, target: str, invocation: str, signal: int) -> None:
        """A signal to that run's first process. Raises ActionError."""
        self._to_act(target, invocation).kill(container_of(target)[1], signal)

    def _to_act(self, target: str, invocation: str) -> ContainerEngine:
        """Whom to tell. The container hears signals when this returns."""
        try:
            engine, found = self._find(target)
            if engine is None or found is None:
                raise ActionError("the container is gone")
            if run_of(found) != invocation:
                raise ActionError(f"container {found.name} was started anew meanwhile")
            if found.status == "paused":
                engine.unpause(found.id)
                after = engine.inspect(found.id)
                if after is not None and after.status == "paused":
                    raise ActionError(f"container {found.name} is paused and stays so")
        except SourceError as error:
            raise ActionError(str(error), unknown=True) from error  # nothing was done; it is worth another try
        return engine

    def _find(self, target: str) -> tuple[Optional[ContainerEngine], Optional[Container]]:
        """A target and its engine; None where all that may know it have said that they don't. podman-docker answers
        at docker's socket, so an engine's kind is what it says. Raises EngineError where one does not answer."""
        kind, container_id = container_of(target)
        problem: Optional[EngineError] = None
        there = False
        for engine in self._engines:
            identity = engine.identity()
            if not identity:
                continue
            try:
                if identity not in self._kinds:
                    self._kinds[identity] = engine.facts()
                if self._kinds[identity].kind != kind:
                    continue
                there = True
                found = engine.inspect(container_id)
                if found is not None:
                    return engine, found
            except EngineError as error:
                problem = error
        if problem is not None:
            raise problem
        if not there:
            raise EngineError(f"no {kind} engine answers", EngineState.DOWN)
        return None, None

    def _control_group(self, container: Container) -> str:
        """Where its processes are, "" where it has none (any more). Raises SourceError."""
        process = self._processes.look(container.pid) if container.pid else None
        inside = process is not None and cgroup.parse(process.cgroup).container == container.id
        return process.cgroup if process is not None and inside else ""


def run_of(container: Container) -> str:
    """What tells a run of a container from its next one."""
    return f"{container.id}@{container.started_ns or 0}"


class Router:
    """Asks systemd in the worker `hands`; engines in `errands`, where one that hangs delays no unit's stop (S7)."""

    def __init__(
        self,
        systemd: Systemd,
        hands: Worker,
        containers: Optional[Containers] = None,
        errands: Optional[Worker] = None,
    ) -> None:
        self._systemd, self._hands = systemd, hands
        self._containers, self._errands = containers, errands or hands

    def look(self, target: str) -> Task[UnitFacts]:
        """The facts of a target. The task raises SourceError."""
        containers = self._containers_of(target)
        if containers is not None:
            return self._errands.submit(lambda: containers.facts(target))
        return self._hands.submit(lambda: self._systemd.unit(target))

    def wait(self, target: str, task: Task[UnitFacts], timeout_s: float) -> bool:
        """True when a look at it is done within that time."""
        return (self._errands if is_container(target) else self._hands).wait(task, timeout_s)

    def stop(self, target: str, invocation: str, grace_s: float) -> Task[None]:
        """The target's own stop. The grace is for a container: systemd knows that of a unit. The task raises
        ActionError."""
        containers = self._containers_of(target)
        if containers is not None:
            return self._errands.submit(lambda: containers.stop(target, invocation, grace_s))
        return self._hands.submit(lambda: self._systemd.stop_unit(target))

    def kill(self, target: str, invocation: str, signal: int, main: bool = False) -> Task[None]:
        """A signal to all of it, or to its main process alone; of a container always to that one, with which the others
        end. The task raises ActionError."""
        containers = self._containers_of(target)
        if containers is not None:
            return self._errands.submit(lambda: containers.kill(target, invocation, signal))
        return self._hands.submit(lambda: self._systemd.kill_unit(target, signal, main))

    def _containers_of(self, target: str) -> Optional[Containers]:
        return self._containers if is_container(target) else None
