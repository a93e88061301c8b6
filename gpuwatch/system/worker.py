"""A thread that runs what may hang, so that the cycle does not (S7)."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, Callable, Generic, Optional, TypeVar, cast

T = TypeVar("T")


class ThreadTask(Generic[T]):
    """A job on its way; see protocols.Task."""

    def __init__(self, job: Callable[[], T]) -> None:
        self._job = job
        self._finished = threading.Event()
        self._value: Optional[T] = None
        self._error: Optional[BaseException] = None
        self._submitted = time.monotonic()

    def run(self) -> None:
        """Called by the worker's thread."""
        try:
            self._value = self._job()
        except BaseException as error:  # handed to whoever asks for the result
            self._error = error
        self._finished.set()

    def done(self) -> bool:
        return self._finished.is_set()

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def age_s(self) -> float:
        return time.monotonic() - self._submitted

    def wait(self, timeout_s: float) -> bool:
        """True when done within `timeout_s`."""
        return self._finished.wait(max(0.0, timeout_s))


class ThreadWorker:
    """One daemon thread and a queue. `wake` is called after each job, from that thread."""

    def __init__(self, name: str, wake: Optional[Callable[[], None]] = None) -> None:
        self._queue: queue.SimpleQueue[ThreadTask[Any]] = queue.SimpleQueue()
        self._wake = wake
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> ThreadTask[T]:
        task: ThreadTask[T] = ThreadTask(job)
        self._queue.put(task)
        return task

    def wait(self, task: Any, timeout_s: float) -> bool:
        return bool(task.wait(timeout_s))

    def _work(self) -> None:
        while True:
            self._queue.get().run()
            if self._wake is not None:
                self._wake()


class InlineTask(Generic[T]):
    """A job that ran when it was submitted."""

    def __init__(self, job: Callable[[], T]) -> None:
        self._value: Optional[T] = None
        self._error: Optional[Exception] = None
        try:
            self._value = job()
        except Exception as error:  # handed to whoever asks for the result
            self._error = error

    def done(self) -> bool:
        return True

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def age_s(self) -> float:
        return 0.0


class InlineWorker:
    """Runs each job at once: for `run --once`, the demo and tests, where nothing is to be left behind."""

    def submit(self, job: Callable[[], T]) -> InlineTask[T]:
        return InlineTask(job)

    def wait(self, task: Any, timeout_s: float) -> bool:
        return True
