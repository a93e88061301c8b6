"""History at scale: a million rows, what a tick costs, what questions cost, what retention costs a slice."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from gpuwatch.store.history import History
from gpuwatch.store.history_file import HistoryFile
from gpuwatch.store.history_query import at, read_events, read_history
from gpuwatch.store.history_retention import Slice, give_back, tidy
from gpuwatch.store.history_rows import EventFilter, Keep
from gpuwatch.system.worker import InlineWorker
from tests.bench.table import Row, median
from tests.fakes.clock import FakeClock
from tests.fakes.story import gpu, report

TICKS = 125_000  # a week and a bit, a million rows of eight cards
KEEP = Keep(free_bytes=0)
# Shaped as the real ones are: whole degrees and MHz, tenths of watts, flags.
FILL_TICKS = """INSERT INTO ticks (ts, boot, up, driver, memory_available, load_1m, memory_pressure_some)
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 - 1)
    SELECT ?2 - (?1 - i) * 5000, 1, 1000000 + i * 5000, NULL, 500000000000 + i * 4096, 7.25 + i % 9, 0.0 FROM n"""
FILL_SAMPLES = """INSERT INTO samples
    WITH RECURSIVE g(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM g WHERE k < 8)
    SELECT ts, k, k - 1, 0, 60 + (ts / 5000 + k) % 12, 70 + (ts / 5000) % 9, 27 - (ts / 5000 + k) % 12,
    33 - (ts / 5000 + k) % 12, NULL, 650.1 + (ts / 5000 + k) % 40, 700, ts / 1000, 98, 45, 64000000000 + k * 65536,
    1755 + (ts / 5000) % 5 * 15, 2619, 0, NULL, 1, 0, 0, 0, 0 FROM ticks, g"""


def run() -> list[Row]:
    """Figures of this machine; nothing is asserted."""
    with tempfile.TemporaryDirectory(prefix="gpuwatch-bench-") as place:
        path = os.path.join(place, "history.db")
        clock = FakeClock()
        rows = _ticks(path, clock)
        began = time.perf_counter()
        _fill(path, clock)
        rows.append(Row("a million rows, written by SQL", time.perf_counter() - began, "s"))
        size = os.path.getsize(path)
        rows.append(Row("size a day at 5 s, 8 cards", size / TICKS * 17_280 / (1 << 20), "MiB", 16.0, "the prototype"))
        return rows + _questions(path, clock) + _retention(path, clock)


def _ticks(path: str, clock: FakeClock) -> list[Row]:
    """One tick of eight cards, and a second in which there is none; in the daemon the first has a thread of its own."""
    history = History(path, InlineWorker(), clock, keep=KEEP)
    cards = [gpu(index, 60 + index, utilisation=98, sm_clock=1755, power_limit=700) for index in range(8)]
    with_tick: list[float] = []
    without: list[float] = []
    for second in range(2000):
        now = clock.now()
        given = report(now, *cards)
        began = time.perf_counter()
        history.record(given, {}, (), now)
        (with_tick if second % 5 == 0 else without).append(time.perf_counter() - began)
        clock.advance(1)
    history.close()
    return [
        Row("a tick, written", 1e6 * median(with_tick), "us", 75.0, "the prototype"),
        Row("a second without a tick", 1e6 * median(without), "us"),
    ]


def _fill(path: str, clock: FakeClock) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("DELETE FROM samples")
        connection.execute("DELETE FROM ticks")
        connection.execute(FILL_TICKS, (TICKS, round(clock.utc_s * 1000)))
        connection.execute(FILL_SAMPLES)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _questions(path: str, clock: FakeClock) -> list[Row]:
    now = clock.utc_s

    def start() -> None:
        file = HistoryFile(path, 5.0, KEEP)
        file._open()
        file.close()

    return [
        Row("ten minutes of one card", _ms(lambda: read_history(path, "3", now - 3600, now - 3000)), "ms", 0.7, "SQL"),
        Row("was it there ten minutes ago", _ms(lambda: at(path, "3", now - 600)), "ms"),
        Row("a day of one card", _ms(lambda: read_history(path, "3", now - 86_400, now, ("gpu.power",))), "ms"),
        Row("the newest events", _ms(lambda: read_events(path, EventFilter(most=200))), "ms"),
        Row("opening the file at a start", _ms(start), "ms"),
    ]


def _retention(path: str, clock: FakeClock) -> list[Row]:
    """All but a day is thinned, then all but half of that goes, a slice at a time."""
    newest = round(clock.utc_s * 1000)
    rows = []
    for name, keep in (
        ("a slice of thinning", Keep(full_s=86_400, all_s=1e9)),
        ("a slice of deleting", Keep(full_s=86_400, all_s=4 * 86_400)),
    ):
        slices: list[float] = []
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=NORMAL")
            done = Slice.MORE
            while done is Slice.MORE:
                began = time.perf_counter()
                connection.execute("BEGIN IMMEDIATE")
                done = tidy(connection, newest, keep)
                connection.execute("COMMIT")
                give_back(connection)
                slices.append(1e3 * (time.perf_counter() - began))
        rows += [
            Row(f"{name}, middle of {len(slices)}", median(slices), "ms"),
            Row(f"{name}, the longest", max(slices), "ms"),
        ]
    rows.append(Row("the file afterwards", Path(path).stat().st_size / (1 << 20), "MiB"))
    return rows


def _ms(work: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - began))
    return median(times)
