"""What is done now and then, by the machine's own clock."""

from __future__ import annotations

from typing import Optional

from gpuwatch.model.instant import Instant

_EARLY_S = 0.2  # cycles don't begin to the millisecond; without it each second tick would be missed


class Every:
    """Due at once, then each so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last: Optional[Instant] = None

    def due(self, now: Instant) -> bool:
        """True when it is time; the next time counts from here."""
        age = None if self._last is None else now.since(self._last)
        if age is not None and 0 <= age < self._seconds - _EARLY_S:
            return False
        self._last = now
        return True
