"""A clock that moves when it is told to."""

from __future__ import annotations

from gpuwatch.model.instant import Instant
from tests.fakes.story import BOOT, START_UTC_S


class FakeClock:
    """Implements protocols.Clock. Starts 1,000 s after boot."""

    def __init__(self, boot_id: str = BOOT, boottime_s: float = 1000.0) -> None:
        self.boot_id, self.boottime_s = boot_id, boottime_s
        self.utc_s = START_UTC_S + boottime_s

    def now(self) -> Instant:
        """See protocols.Clock."""
        return Instant(self.boot_id, self.boottime_s, self.utc_s)

    def monotonic(self) -> float:
        """See protocols.Clock."""
        return self.boottime_s

    def advance(self, seconds: float) -> None:
        """Time goes by."""
        self.boottime_s += seconds
        self.utc_s += seconds

    def step_utc(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self.utc_s += seconds

    def reboot(self, boot_id: str) -> None:
        """Another boot, a minute later."""
        self.boot_id, self.boottime_s = boot_id, 30.0
        self.utc_s += 60.0
