"""ContainerSource over a simulated engine, for tests: a process that can be killed, a worker that hangs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic, Optional, TypeVar

from gpuwatch.model.container import ContainerReport
from gpuwatch.model.event import Event
from gpuwatch.simulation.containers import SimulatedEngine
from gpuwatch.sources.containers import EVENTS_S, ContainerSource
from gpuwatch.system.worker import InlineWorker
from tests.fakes.clock import FakeClock

T = TypeVar("T")


class HeldTask(Generic[T]):
    """A job that runs when the test says so."""

    def __init__(self, job: Callable[[], T], clock: FakeClock) -> None:
        self._job, self._clock, self._began = job, clock, clock.monotonic()
        self._result: Optional[T] = None
        self._done = False

    def finish(self) -> None:
        self._result, self._done = self._job(), True

    def done(self) -> bool:
        return self._done

    def result(self) -> T:
        assert self._result is not None
        return self._result

    def age_s(self) -> float:
        return self._clock.monotonic() - self._began


class HeldWorker:
    """A worker whose thread hangs until finish()."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.tasks: list[HeldTask[Any]] = []

    def submit(self, job: Callable[[], T]) -> HeldTask[T]:
        task = HeldTask(job, self._clock)
        self.tasks.append(task)
        return task

    def wait(self, task: Any, timeout_s: float) -> bool:
        return bool(task.done())


class Bench:
    """An engine, a clock, and the source, which can be killed and started again."""

    def __init__(self, kind: str = "docker") -> None:
        self.clock = FakeClock()
        self.engine = SimulatedEngine(self.clock, kind)
        self.stored: dict[str, Any] = {}
        self.events: list[Event] = []
        self.start()

    def start(self) -> None:
        """A new process over what was stored, as JSON."""
        stored = json.loads(json.dumps({"cursor": "s=1", **self.stored}))
        self.source = ContainerSource([self.engine], InlineWorker(), self.clock, stored)

    def see(self, after_s: float = EVENTS_S) -> ContainerReport:
        """Time goes by, then a cycle whose writes are committed."""
        self.clock.advance(after_s)
        report = self.source.observe(self.clock.now())
        for key, document in self.source.writes().items():
            if document is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = document
        self.events += report.events
        return report

    def told(self) -> list[str]:
        """The kinds told since the last call."""
        kinds, self.events = [event.kind for event in self.events], []
        return kinds
