"""The last minutes of samples at full rate, in memory: four bytes a value."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from math import isnan, nan
from typing import Any, Optional

from gpuwatch.model.gpu import GpuReport
from gpuwatch.model.instant import Instant

WINDOW_S = 900.0


class Ring:
    """Columns of floats, one a GPU and metric, over a shared column of times. NaN: no value."""

    def __init__(self, interval_s: float, window_s: float = WINDOW_S) -> None:
        self._size = max(2, int(window_s / interval_s))
        self._utc = array("d", [nan]) * self._size
        self._columns: dict[tuple[str, str], array[float]] = {}
        self._next = 0
        self._last = -1.0

    def add(self, report: GpuReport) -> None:
        """Take in a report; one that was taken in before is left out."""
        if report.taken is None or report.taken.boottime_s == self._last:
            return
        self._last = report.taken.boottime_s
        slot = self._next
        self._next = (slot + 1) % self._size
        self._utc[slot] = report.taken.utc_s
        for column in self._columns.values():
            column[slot] = nan
        for sample in report.samples:
            for metric, reading in sample.readings.items():
                if reading.value is not None:
                    key = (sample.uuid, metric)
                    if key not in self._columns:
                        self._columns[key] = array("f", [nan]) * self._size
                    self._columns[key][slot] = reading.value

    def change(self, uuid: str, metric: str, seconds: float) -> Optional[float]:
        """How much a metric has changed over about that time until now; None while nobody can say."""
        column = self._columns.get((uuid, metric))
        if column is None:
            return None
        newest = (self._next - 1) % self._size
        since = self._utc[newest] - seconds
        for offset in range(2, self._size):
            slot = (newest - offset + 1) % self._size
            if isnan(self._utc[slot]):
                return None
            if self._utc[slot] <= since:
                change = column[newest] - column[slot]
                return None if isnan(change) else change
        return None

    def rows(self, now: Instant) -> Mapping[str, Any]:
        """Oldest first: {"utc_s": [...], "gpus": {uuid: {metric: [value or None, ...]}}}."""
        order = [(self._next + offset) % self._size for offset in range(self._size)]
        order = [slot for slot in order if not isnan(self._utc[slot])]
        gpus: dict[str, dict[str, list[Any]]] = {}
        for (uuid, metric), column in self._columns.items():
            gpus.setdefault(uuid, {})[metric] = [
                None if isnan(column[slot]) else round(column[slot], 3) for slot in order
            ]
        return {"until_utc_s": now.utc_s, "utc_s": [round(self._utc[slot], 3) for slot in order], "gpus": gpus}
