"""The last minutes of samples at full rate, in memory: four bytes a value, next to nothing for one that stays."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from math import isnan, nan
from typing import Any, Optional

from gpuwatch.model.gpu import GpuReport
from gpuwatch.model.instant import Instant
from gpuwatch.model.reading import Reading

WINDOW_S = 900.0
MOST_CHANGES = 30  # of what is read once a minute; the newest
HOST = ""  # in place of a UUID


class _Column:
    """One metric of one GPU. Much of it never changes: only then is there room for a value each time."""

    __slots__ = ("_since", "_size", "_value", "_values", "seen")

    def __init__(self, size: int, turn: int, value: float) -> None:
        self._size, self._since, self._value = size, turn, value
        self._values: Optional[array[float]] = None
        self.seen = turn  # the newest turn with a value

    def put(self, turn: int, value: float) -> None:
        """The value of this turn."""
        if self._values is None and (value != self._value or turn != self.seen + 1):
            self.spread(turn)
        if self._values is not None:
            self._values[turn % self._size] = value
        self.seen = turn

    def spread(self, turn: int) -> None:
        """From now on a value each turn; those before `turn` are kept."""
        values = array("f", [nan]) * self._size
        for earlier in range(max(self._since, turn - self._size + 1), self.seen + 1):
            values[earlier % self._size] = self._value
        self._values = values

    def clear(self, turn: int) -> None:
        """No value in this turn, unless one is put."""
        if self._values is not None:
            self._values[turn % self._size] = nan

    def list(self, oldest: int, newest: int) -> list[Optional[float]]:
        """The values of these turns, at most as many as there is room for, to 0.001; None where there is none."""
        if self._values is not None:
            start, end = oldest % self._size, newest % self._size + 1
            values = self._values[start:end] if start < end else self._values[start:] + self._values[:end]
            return [None if isnan(value) else round(value, 3) for value in values]
        before, there = max(0, self._since - oldest), max(0, self.seen - max(self._since, oldest) + 1)
        known: list[Optional[float]] = [None if isnan(self._value) else round(self._value, 3)]
        nothing: list[Optional[float]] = [None]
        return nothing * before + known * there + nothing * (newest - oldest + 1 - before - there)

    def get(self, turn: int) -> float:
        """The value of one of the last turns; NaN where there is none."""
        if self._values is not None:
            return self._values[turn % self._size]
        return self._value if self._since <= turn <= self.seen else nan


class Ring:
    """Columns over a shared column of times; each report takes a turn. NaN: no value."""

    def __init__(self, interval_s: float, window_s: float = WINDOW_S) -> None:
        self._size = max(2, int(window_s / interval_s))
        self._utc = array("d", [nan]) * self._size
        self._up = array("d", [nan]) * self._size
        self._columns: dict[tuple[str, str], _Column] = {}
        self._changes: dict[tuple[str, str], deque[tuple[float, Optional[float]]]] = {}
        self._turn = -1
        self._last: Optional[Instant] = None

    def add(
        self, report: GpuReport, host: Optional[Mapping[str, Reading]] = None, now: Optional[Instant] = None
    ) -> None:
        """Take in a report; one that was taken in before is left out.

        With `host` and `now` the host's own readings are kept too, also while the driver says nothing.
        """
        new = report.taken is not None and report.taken != self._last
        at = report.taken if new else now
        if at is None or (not new and not host):
            return
        self._turn += 1
        turn, slot = self._turn, self._turn % self._size
        self._utc[slot], self._up[slot] = at.utc_s, at.boottime_s
        for column in self._columns.values():
            column.clear(turn)
        if new:
            self._last = report.taken
            for sample in report.samples:
                self._note(sample.uuid, sample.slow, at.utc_s)
                self._put(sample.uuid, sample.readings)
        self._put(HOST, host or {})
        if slot == 0:
            self._forget()

    def change(self, uuid: str, metric: str, seconds: float) -> Optional[float]:
        """How much a metric has changed over about that time until now; None while nobody can say."""
        column = self._columns.get((uuid, metric))
        if column is None:
            return None
        since = self._up[self._turn % self._size] - seconds
        for turn in self._turns(newest_first=True):
            if self._up[turn % self._size] <= since:
                change = column.get(self._turn) - column.get(turn)
                return None if isnan(change) else change
        return None

    def rows(self, now: Instant) -> Mapping[str, Any]:
        """Oldest first: {"utc_s": [...], "gpus": {uuid: {metric: [value or None, ...]}}, "host": {metric: [...]},
        "slow": {uuid: {metric: [[utc_s, value], ...]}}}. `slow` has what is read once a minute, as it changed."""
        turns = list(self._turns())
        gpus: dict[str, dict[str, Any]] = {}
        for (uuid, metric), column in self._columns.items():
            gpus.setdefault(uuid, {})[metric] = column.list(turns[0], turns[-1])
        slow: dict[str, dict[str, Any]] = {}
        for (uuid, metric), changes in self._changes.items():
            slow.setdefault(uuid, {})[metric] = [[round(utc_s, 3), value] for utc_s, value in changes]
        host = gpus.pop(HOST, {})
        times = [round(self._utc[turn % self._size], 3) for turn in turns]
        return {"until_utc_s": now.utc_s, "utc_s": times, "gpus": gpus, "host": host, "slow": slow}

    def _turns(self, newest_first: bool = False) -> Iterator[int]:
        oldest = max(0, self._turn - self._size + 1)
        return iter(range(self._turn, oldest - 1, -1) if newest_first else range(oldest, self._turn + 1))

    def _put(self, uuid: str, readings: Mapping[str, Reading]) -> None:
        for metric, reading in readings.items():
            if reading.value is None:
                continue
            column = self._columns.get((uuid, metric))
            if column is None:
                self._columns[(uuid, metric)] = _Column(self._size, self._turn, reading.value)
            else:
                column.put(self._turn, reading.value)

    def _note(self, uuid: str, readings: Mapping[str, Reading], utc_s: float) -> None:
        """What changes seldom: when it did."""
        for metric, reading in readings.items():
            changes = self._changes.setdefault((uuid, metric), deque(maxlen=MOST_CHANGES))
            if not changes or changes[-1][1] != reading.value:
                changes.append((utc_s, reading.value))

    def _forget(self) -> None:
        """Columns of which nothing is left: a GPU that is gone costs nothing."""
        oldest = self._turn - self._size
        self._columns = {key: column for key, column in self._columns.items() if column.seen > oldest}
        there = {uuid for uuid, _ in self._columns}
        self._changes = {key: changes for key, changes in self._changes.items() if key[0] in there}
