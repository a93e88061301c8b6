"""When something will be full if it goes on as in the last minute.

The window is cut into four parts, each stands for its median, and the rate is the median of the three rates between
neighbours. It counts as growth only if every part is above the one before and all of it is well above the noise:
so one big allocation, a sawtooth or a flicker is no growth, a leak or a steady fill is. What grows in steps further
apart than a quarter of the window is missed; rules about what is left serve there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median
from typing import Optional

from gpuwatch.model.instant import Instant
from gpuwatch.model.metric import NOT_GROWING_S
from gpuwatch.model.reading import Reading, value

WINDOW_S, LEAST_S, LEAST_POINTS = 60.0, 20.0, 5
PARTS = 4
NOISES = 4.0  # growth over the window must be so many times what two neighbouring points differ by


class Forecasts:
    """A window for each thing that fills, by any name. Amounts in one unit of the caller's choice."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def full_in(self, name: str, taken: Instant, filled: Reading, left: Reading, gap_s: float) -> Optional[Reading]:
        """Seconds until nothing is left, at most NOT_GROWING_S; None while too little is known.

        `filled` is what grows. A sample that was given before gives the same answer again. A longer pause than
        `gap_s`, or another boot, starts anew. What can't be read, or has no limit, is answered as it is.
        """
        if filled.value is None or left.value is None:
            return filled if filled.value is None else left
        window = self._windows.get(name)
        if window is None:
            window = self._windows[name] = _Window()
        if window.take(taken, filled.value, gap_s):
            window.answer = _full_in(window.rate(), left.value)
        return window.answer

    def keep(self, names: Iterable[str]) -> None:
        """Forget all but these."""
        names = set(names)
        self._windows = {name: window for name, window in self._windows.items() if name in names}


def difference(whole: Reading, part: Reading) -> Reading:
    """Whole minus part, or why there is none."""
    if whole.value is None or part.value is None:
        return whole if whole.value is None else part
    return value(whole.value - part.value)


class _Window:
    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque()
        self._last: Optional[Instant] = None
        self.answer: Optional[Reading] = None

    def take(self, taken: Instant, filled: float, gap_s: float) -> bool:
        """False when this sample is no news."""
        if taken == self._last:
            return False
        age = None if self._last is None else taken.since(self._last)
        if age is None or not 0 < age <= gap_s:
            self._points.clear()
        self._last = taken
        self._points.append((taken.boottime_s, filled))
        while self._points[0][0] < taken.boottime_s - WINDOW_S:
            self._points.popleft()
        return True

    def rate(self) -> Optional[float]:
        """Growth a second; 0 for none that can be told from noise, None while nobody can say."""
        points = self._points
        (begin, first), (end, last) = points[0], points[-1]
        if end - begin < LEAST_S or len(points) < LEAST_POINTS:
            return None
        if last <= first:
            return 0.0
        parts: list[list[tuple[float, float]]] = [[] for _ in range(PARTS)]
        for at, filled in points:
            parts[min(PARTS - 1, int(PARTS * (at - begin) / (end - begin)))].append((at, filled))
        if not all(parts):
            return None
        middles = [(sum(at for at, _ in part) / len(part), median(filled for _, filled in part)) for part in parts]
        rates = [(high - low) / (later - earlier) for (earlier, low), (later, high) in zip(middles, middles[1:])]
        if min(rates) <= 0 or middles[-1][1] - middles[0][1] <= NOISES * self._noise():
            return 0.0
        return median(rates)

    def _noise(self) -> float:
        amounts = [filled for _, filled in self._points]
        steps = [after - before for before, after in zip(amounts, amounts[1:])]
        usual = median(steps)
        return median(abs(step - usual) for step in steps)


def _full_in(rate: Optional[float], left: float) -> Optional[Reading]:
    if rate is None:
        return None
    return value(NOT_GROWING_S if rate <= 0 else min(NOT_GROWING_S, max(0.0, left) / rate))
