"""A history that is written as the daemon writes it, second by second, over a clock that is moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Optional

from gpuwatch.model.event import Event
from gpuwatch.model.gpu import DriverState, GpuReport, GpuSample
from gpuwatch.model.reading import Reading
from gpuwatch.store.history import History
from gpuwatch.store.history_query import at
from gpuwatch.store.history_rows import Keep, Known
from gpuwatch.system.worker import InlineWorker
from tests.fakes.clock import FakeClock
from tests.fakes.story import gpu, report

ROOMY = Keep(free_bytes=0)  # the disk of a test machine may be nearly full


class Recorder:
    """Two cards by default; `path` is the file."""

    def __init__(
        self,
        folder: Path,
        clock: Optional[FakeClock] = None,
        worker: Any = None,
        keep: Keep = ROOMY,
        period_s: float = 5.0,
    ) -> None:
        self.path = str(folder / "history.db")
        self.clock = clock or FakeClock()
        self._worker, self._keep, self._period_s = worker, keep, period_s
        self.start()

    def start(self) -> None:
        """A new process over what is on disk; what an earlier one had not written is lost."""
        self.history = History(self.path, self._worker or InlineWorker(), self.clock, self._period_s, self._keep)

    def cycle(
        self,
        *samples: GpuSample,
        events: Iterable[Event] = (),
        host: Optional[Mapping[str, Reading]] = None,
        given: Optional[GpuReport] = None,
    ) -> None:
        """One cycle, and a second goes by."""
        now = self.clock.now()
        said = given or report(now, *(samples or (gpu(0, 60), gpu(1, 61))))
        self.history.record(said, host or {}, events, now)
        self.clock.advance(1)

    def run(self, seconds: int, *samples: GpuSample, step_s: int = 1) -> None:
        """Cycles alike for so long."""
        for _ in range(seconds // step_s):
            self.cycle(*samples)
            self.clock.advance(step_s - 1)

    def silent(self, seconds: int, state: DriverState = DriverState.SILENT, reason: str = "no answer") -> None:
        """The driver says nothing for a while."""
        taken = self.clock.now()
        for _ in range(seconds):
            self.cycle(given=GpuReport(state, reason, taken=taken, samples=(gpu(0, 60),)))

    def at(self, seconds_ago: float, card: str = "0") -> Known:
        """What was known so long ago."""
        return at(self.path, card, self.clock.now().utc_s - seconds_ago)
