"""A thread a job: what hangs holds up nobody but itself (S7)."""

from __future__ import annotations

import threading
from typing import Any, Callable, TypeVar

from gpuwatch.system.worker import ThreadTask

T = TypeVar("T")


class Errands:
    """Implements protocols.Worker for calls that take minutes by themselves, such as a container's stop with its
    grace. Who submits bounds how many there are at a time; a thread ends with its job, or with the process."""

    def submit(self, job: Callable[[], T]) -> ThreadTask[T]:
        """See protocols.Worker."""
        task: ThreadTask[T] = ThreadTask(job)
        threading.Thread(target=task.run, name="errand", daemon=True).start()
        return task

    def wait(self, task: Any, timeout_s: float) -> bool:
        """See protocols.Worker."""
        return bool(task.wait(timeout_s))
