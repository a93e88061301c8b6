"""Questions to the history: was the card there, what was it like between two moments, what happened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Optional

from gpuwatch.store.history_read import HistoryReader, open_history
from gpuwatch.store.history_rows import EventFilter, Known, KnownGpu, NotedEvent, Row

WINDOW_S = 180.0  # around a moment; rows are at most a minute apart where nothing is missing
FRESH_S = 15.0  # the newest row speaks for so long while no later one has come
IN_GAP_S = 5.0  # and so long into a gap that begins at it
CLOCK_STEP_S = 2.0
_THERE = {"read": True, "lost": False, "not_listed": False, "unreadable": None}


def read_history(
    path: str, gpu: str, since_utc_s: float, until_utc_s: float, metrics: Optional[Sequence[str]] = None
) -> tuple[Row, ...]:
    """Rows of one GPU (index, UUID or the beginning of one, PCI address). Raises StoreError."""
    with open_history(path) as reader:
        return tuple(reader.rows(reader.gpu(gpu, until_utc_s), since_utc_s, until_utc_s, metrics))


def at(path: str, gpu: str, utc_s: float) -> Known:
    """What was known about one GPU at a moment. Raises StoreError."""
    with open_history(path) as reader:
        return known_at(reader, reader.gpu(gpu, utc_s), utc_s)


def read_events(path: str, wanted: EventFilter) -> tuple[NotedEvent, ...]:
    """Events, oldest first. Raises StoreError."""
    with open_history(path) as reader:
        return reader.events(wanted)


def known_at(reader: HistoryReader, gpu: KnownGpu, utc_s: float) -> Known:
    """The same as `at` over an open history. Raises StoreError."""
    gap = reader.gap_at(utc_s)
    silent = gap is not None and gap.reason.startswith("driver_")  # then there are rows, and they say so
    rows = reader.rows(gpu, utc_s - WINDOW_S, utc_s + WINDOW_S)
    answers = [row for run in _passes(rows) if (row := _answer(run, utc_s, gap is None or silent)) is not None]
    if not answers:
        return _nobody_knows(reader, gpu, utc_s)
    row = answers[-1]
    there = _THERE.get(row.state)
    known = Known(
        gpu,
        utc_s,
        there,
        row.state if row.state in _THERE else f"driver_{row.state}",
        replace(row, values={**reader.slow(gpu, row.at.utc_s), **row.values}),
        max(0.0, utc_s - row.at.utc_s),
        twice=len(answers) > 1,
    )
    if there:
        return known
    return replace(
        known,
        gap=gap if there is None else None,
        before=reader.last_read(gpu, utc_s),
        after=reader.next_read(gpu, utc_s),
    )


def _answer(rows: Sequence[Row], utc_s: float, recorded: bool) -> Optional[Row]:
    """A row covers the time since the one before it. Where none follows, the last one speaks for some seconds more."""
    before = next((row for row in reversed(rows) if row.at.utc_s <= utc_s), None)
    if before is None:
        return None
    after = next((row for row in rows if row.at.utc_s >= utc_s), None)
    if recorded and after is not None:
        woke_up = before.state not in _THERE and after.state in _THERE
        return before if woke_up else after
    return before if utc_s - before.at.utc_s <= (FRESH_S if recorded else IN_GAP_S) else None


def _nobody_knows(reader: HistoryReader, gpu: KnownGpu, utc_s: float) -> Known:
    gap, span = reader.gap_at(utc_s), reader.span()
    if span is None or utc_s < span[0]:
        why = "before_history"
    elif utc_s > span[1]:
        why = "after_history"
    else:
        why = "not_recorded" if gap is None else gap.reason
    before, after = reader.last_read(gpu, utc_s), reader.next_read(gpu, utc_s)
    if before is None and after is None:
        why = "never_seen"
    return Known(gpu, utc_s, None, why, gap=gap, before=before, after=after)


def _passes(rows: Iterable[Row]) -> list[list[Row]]:
    """Runs of rows in which the wall clock went on evenly; each may show the same time of day."""
    passes: list[list[Row]] = []
    for row in rows:
        last = passes[-1][-1] if passes else None
        elapsed = None if last is None else row.at.since(last.at)
        if last is None or elapsed is None or abs(row.at.utc_s - last.at.utc_s - elapsed) > CLOCK_STEP_S:
            passes.append([])
        passes[-1].append(row)
    return passes
