"""Changes on their way to the driver and back, on the daemon's side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuwatch.model.gpu_change import GpuChange, GpuChanged
from gpuwatch.model.instant import Instant
from gpuwatch.system.nvml.patience import Asked
from gpuwatch.system.nvml.wire import change_to_wire

_MOST = 256  # sent and not answered: the child says nothing of those that it gives up


class PendingChanges:
    """What waits to be sent, what waits for an answer, and answers that wait to be told."""

    def __init__(self) -> None:
        self._waiting: list[GpuChange] = []
        self._sent: dict[int, tuple[GpuChange, Instant]] = {}
        self._number = 0  # of our own, since callers may ask again under the same id
        self._answers: list[GpuChanged] = []

    def add(self, change: GpuChange) -> None:
        """Queue it."""
        self._waiting.append(change)

    def drop(self) -> None:
        """Send none of those that wait."""
        self._waiting.clear()

    def hand_over(self, asked: Asked, for_s: float) -> list[Any]:
        """All that wait, for the child, that may begin to write them for so long."""
        messages = []
        for change in self._waiting:
            self._number += 1
            self._sent[self._number] = change, asked.at
            messages.append(change_to_wire(self._number, change, asked.monotonic + for_s))
        self._waiting.clear()
        for number in list(self._sent)[:-_MOST]:
            del self._sent[number]
        return messages

    def take(self, answer: Sequence[Any]) -> None:
        """The child's. Raises TypeError or ValueError on nonsense."""
        number, problem, detail, *limits = answer
        limit, least, most, default = (None if each is None else float(each) for each in limits)
        change, at = self._sent.pop(int(number), (None, None))
        if change is not None and at is not None:
            told = GpuChanged(change.id, change.uuid, at, str(problem), str(detail), limit, least, most, default)
            self._answers.append(told)

    def forget(self) -> None:
        """The child has ended: nobody knows what became of what it was told."""
        self._sent.clear()

    def told(self) -> tuple[GpuChanged, ...]:
        """The answers, once."""
        answers, self._answers = tuple(self._answers), []
        return answers
