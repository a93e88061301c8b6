"""Keeping history.db small, a slice at a time: the oldest goes, old rows are thinned to one a minute.

Age is not measured from the wall clock, which may be wrong by years for an hour, but from the tick an hour of ticks
before the newest: a clock that jumps ahead for less than that deletes nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from enum import Enum
from typing import Any, Optional

from gpuwatch.store import history_schema as schema
from gpuwatch.store.history_rows import LOST, Keep

STEADY_TICKS = 720  # an hour of them, at 5 s
MOST_THINNED = 120  # ticks that one slice looks at; ten minutes
MOST_TICKS = 360  # that one slice deletes
MOST_EVENTS = 1000
PAGES = 256  # given back to the file system in one slice
MINUTE_MS = 60_000
_TICK_FIXED, _SAMPLE_FIXED = 4, 4  # columns before those of metrics

_Record = Sequence[Any]


class Slice(Enum):
    """Whether there is more to do right now."""

    DONE = "done"
    MORE = "more"


def tidy(connection: sqlite3.Connection, newest_ts: int, keep: Keep) -> Slice:
    """One slice, inside the caller's transaction; give_back comes after it. Raises sqlite3.Error."""
    reference = _reference(connection, newest_ts)
    more = False
    if _bytes(connection) > keep.most_bytes:
        more = _drop_oldest(connection, newest_ts + 1)
    if reference is not None:
        more = _drop_oldest(connection, reference - round(keep.all_s * 1000)) or more
        more = _thin(connection, reference - round(keep.full_s * 1000)) or more
    return Slice.MORE if more else Slice.DONE


def _reference(connection: sqlite3.Connection, newest_ts: int) -> Optional[int]:
    row = connection.execute("SELECT ts FROM ticks ORDER BY ts DESC LIMIT 1 OFFSET ?", (STEADY_TICKS,)).fetchone()
    return None if row is None else min(newest_ts, int(row[0]))


def _bytes(connection: sqlite3.Connection) -> int:
    """What is in use; free pages are filled before the file grows."""
    pages, free, size = (
        int(connection.execute(question).fetchone()[0])
        for question in ("PRAGMA page_count", "PRAGMA freelist_count", "PRAGMA page_size")
    )
    return (pages - free) * size


def _drop_oldest(connection: sqlite3.Connection, before_ts: int) -> bool:
    """The oldest ticks and events before a moment, with what belongs to their time; True when there may be more."""
    run = connection.execute
    tick = run("SELECT ts FROM ticks WHERE ts < ? ORDER BY ts LIMIT 1 OFFSET ?", (before_ts, MOST_TICKS - 1)).fetchone()
    event = run(
        "SELECT at FROM events WHERE at < ? ORDER BY at LIMIT 1 OFFSET ?", (before_ts, MOST_EVENTS - 1)
    ).fetchone()
    bound = min([before_ts, *(int(row[0]) + 1 for row in (tick, event) if row is not None)])
    run("DELETE FROM samples WHERE ts < ?", (bound,))
    run("DELETE FROM slow WHERE ts < ?", (bound,))
    run("DELETE FROM ticks WHERE ts < ?", (bound,))
    run("DELETE FROM gaps WHERE from_at < ? AND until_at < ?", (bound, bound))
    run("DELETE FROM events WHERE at < ?", (bound,))
    return bound < before_ts


def _thin(connection: sqlite3.Connection, before_ts: int) -> bool:
    """Fold the minutes that have become old into one row each, as far as one slice goes."""
    run = connection.execute
    mark = run("SELECT value FROM marks WHERE name = 'thinned'").fetchone()
    since = -(1 << 62) if mark is None else int(mark[0])
    ticks = run(
        "SELECT * FROM ticks WHERE ts >= ? AND ts < ? ORDER BY ts LIMIT ?", (since, before_ts, MOST_THINNED)
    ).fetchall()
    minutes: dict[tuple[int, int], list[_Record]] = {}
    for tick in ticks:
        minutes.setdefault(_minute(tick), []).append(tick)
    mark_at = since
    for minute in minutes.values():
        if minute[0][0] > ticks[-1][0] - MINUTE_MS:
            break  # this one and those after it may go on behind this slice
        mark_at = max(mark_at, minute[-1][0] + 1)
        if len(minute) > 1:
            _fold_minute(connection, minute)
    if mark_at == since:
        return False
    run("REPLACE INTO marks (name, value) VALUES ('thinned', ?)", (mark_at,))
    return len(ticks) == MOST_THINNED


def _minute(tick: _Record) -> tuple[int, int]:
    """By the machine's own clock: an hour that the wall clock showed twice is two hours here."""
    return int(tick[1]), int(tick[2]) // MINUTE_MS


def _fold_minute(connection: sqlite3.Connection, ticks: Sequence[_Record]) -> None:
    """One tick and one row a GPU in place of all, at the time of the last."""
    run = connection.execute
    last = ticks[-1]
    driver = next((tick[3] for tick in ticks if tick[3] is not None), None)
    samples: dict[int, list[_Record]] = {}
    for tick in ticks:
        for sample in run("SELECT * FROM samples WHERE ts = ?", (tick[0],)):
            samples.setdefault(sample[1], []).append(sample)
    for tick in ticks:
        run("DELETE FROM samples WHERE ts = ?", (tick[0],))
        if tick is not last:
            run("DELETE FROM ticks WHERE ts = ?", (tick[0],))
    host = fold([tick[_TICK_FIXED:] for tick in ticks], schema.HOST_COLUMNS)
    run(schema.INSERT_TICK, (*last[:3], driver, *host))
    answered = sum(tick[3] is None for tick in ticks)
    for number, rows in samples.items():
        state = max(row[3] for row in rows)
        if len(rows) < answered:
            state = max(state, LOST)  # not listed for a part of the minute
        values = fold([row[_SAMPLE_FIXED:] for row in rows], schema.GPU_COLUMNS)
        run(schema.INSERT_SAMPLE, (last[0], number, rows[-1][2], state, *values))


def fold(rows: Sequence[_Record], columns: Sequence[schema.Column]) -> list[Optional[float]]:
    """Column by column what is kept of several rows; what was not read does not count."""
    return [fold_values([row[place] for row in rows], column.fold) for place, column in enumerate(columns)]


def fold_values(values: Sequence[Optional[float]], how: str) -> Optional[float]:
    """What is kept of several values, None of none."""
    known = [value for value in values if value is not None]
    return fold_known(known, how) if known else None


def fold_known(values: Sequence[float], how: str) -> float:
    """The highest, the lowest, the mean (to 0.001) or the last of at least one value."""
    if how == schema.HIGHEST:
        return max(values)
    if how == schema.LOWEST:
        return min(values)
    return round(sum(values) / len(values), 3) if how == schema.MEAN else values[-1]


def give_back(connection: sqlite3.Connection) -> None:
    """Free pages back to the file system, but for as many as the next hours will need; outside a transaction."""
    free = int(connection.execute("PRAGMA freelist_count").fetchone()[0])
    if free > 4 * PAGES:
        # The pragma gives a row of no columns for each page, of which execute() takes the first alone.
        connection.executescript(f"PRAGMA incremental_vacuum({PAGES})")
