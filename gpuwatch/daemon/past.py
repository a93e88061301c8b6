"""The edges of a host of the past: a clock that stands where it is put, a driver that tells and sets nothing."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.model.gpu import DriverState, GpuIdentity, GpuReport
from gpuwatch.model.gpu_change import GpuChange, GpuChanged
from gpuwatch.model.instant import Instant

SOME_LIMIT_W = 500.0  # where none is recorded; only that there is one matters


class PastClock:
    """Implements protocols.Clock: the moment that is looked at."""

    def __init__(self) -> None:
        self.at = Instant("", 0.0, 0.0)

    def now(self) -> Instant:
        """See protocols.Clock."""
        return self.at

    def monotonic(self) -> float:
        """See protocols.Clock."""
        return self.at.boottime_s


class PastGpus:
    """Implements protocols.GpuDriver as far as actions need it: tells the recorded power limit, sets nothing."""

    def __init__(self, clock: PastClock) -> None:
        self._clock = clock
        self._answers: list[GpuChanged] = []
        self.limits: dict[str, float] = {}

    def answers(self) -> tuple[GpuChanged, ...]:
        """Those that are due."""
        answers, self._answers = tuple(self._answers), []
        return answers

    def change(self, change: GpuChange) -> None:
        """See protocols.GpuDriver."""
        limit_w = self.limits.get(change.uuid, SOME_LIMIT_W)
        self._answers.append(GpuChanged(change.id, change.uuid, self._clock.now(), "", "", limit_w, 0.0))

    def sample(self, with_processes: bool, spare_child: bool, wait_s: float) -> GpuReport:
        """See protocols.GpuDriver."""
        return GpuReport(DriverState.STARTING)

    def fds(self) -> tuple[int, ...]:
        """See protocols.GpuDriver."""
        return ()

    def expect(self, gpus: Sequence[GpuIdentity]) -> None:
        """See protocols.GpuDriver."""

    def pause(self, why: str) -> None:
        """See protocols.GpuDriver."""

    def release(self, for_s: float) -> None:
        """See protocols.GpuDriver."""

    def resume(self) -> None:
        """See protocols.GpuDriver."""

    def close(self, wait_s: float) -> None:
        """See protocols.GpuDriver."""
