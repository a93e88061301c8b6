"""When something happened: order and durations by the machine's own clock, UTC for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Instant:
    """One moment on one host.

    `boottime_s` is CLOCK_BOOTTIME in seconds (runs on over suspend, never steps); it means
    something only together with `boot_id` (32 hex digits, as the journal's _BOOT_ID).
    `utc_s` is seconds since the epoch; it may step and is never used for durations.
    """

    boot_id: str
    boottime_s: float
    utc_s: float

    def since(self, earlier: Instant) -> Optional[float]:
        """Seconds from `earlier` to here, or None when the two belong to different boots."""
        if self.boot_id != earlier.boot_id:
            return None
        return self.boottime_s - earlier.boottime_s
