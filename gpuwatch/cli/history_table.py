"""A range of the history as a table of 80 columns, with what is missing in its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Optional, Union

from gpuwatch.cli.history_words import WHY, cell, label
from gpuwatch.cli.moments import Column, shown
from gpuwatch.cli.output import paint, safe, table
from gpuwatch.model.metric import METRICS
from gpuwatch.store.history_retention import fold_values
from gpuwatch.store.history_rows import CLOCK_SET, Gap, KnownGpu, Row
from gpuwatch.store.history_schema import GPU_COLUMNS, HOST_COLUMNS, SLOW_COLUMNS

MAIN = ("gpu.temperature", "gpu.slowdown_margin", "gpu.power", "gpu.utilisation", "gpu.memory_used", "gpu.sm_clock")
LINES = 60  # at most about that many
NEAR_S = 0.002  # times are kept in ms
_STEPS = {
    10: "10 seconds", 30: "30 seconds", 60: "a minute", 300: "5 minutes", 600: "10 minutes", 1800: "half an hour",
    3600: "an hour", 10_800: "3 hours", 21_600: "6 hours", 86_400: "a day", 604_800: "a week",
}  # fmt: skip
_HEADERS = dict(zip(MAIN, ("TEMP", "TO LIMIT", "POWER", "UTIL", "MEMORY", "CLOCK")))
_FOLDS = {column.metric: column.fold for column in (*GPU_COLUMNS, *SLOW_COLUMNS, *HOST_COLUMNS)}
_READ = ("read", "unreadable")


@dataclass(frozen=True)
class Range:
    """What was asked for, and who looks at it."""

    since_utc_s: float
    until_utc_s: float
    now_utc_s: float
    zone: tzinfo

    @property
    def step_s(self) -> int:
        """The smallest step of a table that keeps it on a screen or two; 0: every row."""
        wanted = (self.until_utc_s - self.since_utc_s) / LINES
        return 0 if wanted <= 6 else next((step for step in _STEPS if step >= wanted), max(_STEPS))


@dataclass(frozen=True)
class _Columns:
    """Headers, under which key a row has each value, and whose metric that is."""

    headers: Sequence[str]
    keys: Sequence[str]
    metrics: Sequence[str]


@dataclass
class _Line:
    """The rows of one step."""

    step: int
    rows: list[Row] = field(default_factory=list)


@dataclass
class _Note:
    """A time of which there are no values, and why."""

    from_utc_s: float
    until_utc_s: Optional[float]
    words: str
    state: str = ""


_Item = Union[_Line, _Note]


def one_card(gpu: KnownGpu, rows: Iterable[Row], gaps: Sequence[Gap], asked: Range, metrics: Sequence[str]) -> str:
    """Metrics of one card."""
    headers = [_HEADERS.get(metric, label(metric).upper()) for metric in metrics]
    title = safe(f"GPU {gpu.index}  {gpu.name}  {gpu.uuid}")
    return _draw(title, _items(rows, gaps, asked.step_s), asked, _Columns(headers, metrics, metrics))


def all_cards(series: Mapping[KnownGpu, Iterable[Row]], gaps: Sequence[Gap], asked: Range, metric: str) -> str:
    """One metric of all cards side by side. Each series has a row for the same ticks."""
    cards = list(series)
    items = _items((_joined(cards, rows, metric) for rows in zip(*series.values())), gaps, asked.step_s)
    seen = {uuid for item in items if isinstance(item, _Line) for row in item.rows for uuid in row.values}
    cards = [card for card in cards if card.uuid in seen]
    columns = _Columns([f"GPU {gpu.index}" for gpu in cards], [gpu.uuid for gpu in cards], [metric] * len(cards))
    return _draw(f"{metric}: {METRICS[metric].text}", items, asked, columns)


def host(rows: Iterable[Row], gaps: Sequence[Gap], asked: Range, metrics: Sequence[str]) -> str:
    """Metrics of the host; they are there while the driver is not."""
    items = _items((Row(row.at, "read", row.values) for row in rows), gaps, asked.step_s)
    return _draw("", items, asked, _Columns([label(metric).upper() for metric in metrics], metrics, metrics))


def _joined(cards: Sequence[KnownGpu], rows: Sequence[Row], metric: str) -> Row:
    """One tick: a value for each card that the driver listed, by UUID."""
    there = {card.uuid: row.values.get(metric) for card, row in zip(cards, rows) if row.state in _READ}
    first = rows[0]
    if there:
        return Row(first.at, "read", there)
    silent = next((row.state for row in rows if row.state not in ("lost", "not_listed")), "not_listed")
    return Row(first.at, silent)


def _items(rows: Iterable[Row], gaps: Sequence[Gap], step_s: int) -> list[_Item]:
    """Rows by step, and between them what is missing, in the order in which it was recorded."""
    items: list[_Item] = []
    waiting = [gap for gap in gaps if not gap.reason.startswith("driver_")]  # the rows say those themselves
    before: Optional[Row] = None
    for row in rows:
        for gap in [gap for gap in waiting if _between(gap, before, row)]:
            waiting.remove(gap)
            items.append(_gap_note(gap))
        _add(items, row, step_s)
        before = row
    return items + [_gap_note(gap) for gap in waiting if _behind(gap, before)]


def _add(items: list[_Item], row: Row, step_s: int) -> None:
    last = items[-1] if items else None
    if row.state not in _READ:
        if isinstance(last, _Note) and last.state == row.state:
            last.until_utc_s = row.at.utc_s
        else:
            items.append(_Note(row.at.utc_s, row.at.utc_s, _state_words(row.state), row.state))
        return
    step = int(row.at.utc_s // step_s) if step_s else 0
    if isinstance(last, _Line) and step_s and step == last.step:
        last.rows.append(row)
    else:
        items.append(_Line(step, [row]))


def _between(gap: Gap, before: Optional[Row], row: Row) -> bool:
    """A gap begins at the row before it, or where the clock would have been had nobody set it."""
    if before is None:
        return gap.reason != CLOCK_SET and gap.until_utc_s is not None and gap.until_utc_s <= row.at.utc_s + NEAR_S
    elapsed = row.at.since(before.at) or 0.0
    began = before.at.utc_s + (elapsed if gap.reason == CLOCK_SET else 0.0)
    return abs(gap.from_utc_s - began) <= NEAR_S


def _behind(gap: Gap, last: Optional[Row]) -> bool:
    return gap.reason != CLOCK_SET and (last is None or gap.from_utc_s >= last.at.utc_s - NEAR_S)


def _gap_note(gap: Gap) -> _Note:
    if gap.reason == CLOCK_SET:
        return _Note(gap.from_utc_s, gap.until_utc_s, f"the clock was set ({gap.detail})")
    words = WHY.get(gap.reason, gap.reason) + (f": {gap.detail}" if gap.detail else "")
    return _Note(gap.from_utc_s, gap.until_utc_s, words)


def _state_words(state: str) -> str:
    if state == "lost":
        return "lost: the driver can't reach it"
    if state == "not_listed":
        return "not there: the driver does not list it"
    return WHY.get(f"driver_{state}", state)


def _draw(title: str, items: Sequence[_Item], asked: Range, columns: _Columns) -> str:
    """Values in columns; a note is a line of its own across them."""
    lines = [title] if title else []
    if not items:
        bounds = [shown(moment, asked.zone, asked.now_utc_s) for moment in (asked.since_utc_s, asked.until_utc_s)]
        return "\n".join([*lines, f"nothing is recorded from {bounds[0]} to {bounds[1]}"])
    moments = _moments(items, asked.step_s)
    ends = [item.until_utc_s for item in items if isinstance(item, _Note) and item.until_utc_s is not None]
    clock = Column([*moments, *ends], asked.zone, asked.now_utc_s)
    cells = [[clock.cell(moment), *_values(item, columns)] for moment, item in zip(moments, items)]
    right = tuple(range(1, len(columns.keys) + 1))
    drawn = table((clock.header, *columns.headers), cells, right=right).split("\n")
    for place, item in enumerate(items, start=1):
        if isinstance(item, _Note):
            drawn[place] = paint(safe(_note(item, clock)), "yellow")
    if any(isinstance(item, _Line) and len(item.rows) > 1 for item in items):
        words = "last" if all(_FOLDS[metric] == "last" for metric in columns.metrics) else "worst"
        mean = " (utilisation: the mean)" if any("utilisation" in metric for metric in columns.metrics) else ""
        lines.append(f"one line: {_STEPS[asked.step_s]}, the {words} of it{mean}")
    return "\n".join([*lines, *drawn])


def _moments(items: Sequence[_Item], step_s: int) -> list[float]:
    """When each line begins: at a round time where the step is not the first one and follows its like."""
    moments: list[float] = []
    before: Optional[_Item] = None
    for item in items:
        if isinstance(item, _Note):
            moments.append(item.from_utc_s)
        elif step_s and isinstance(before, _Line) and before.step < item.step:
            moments.append(float(item.step * step_s))
        else:
            moments.append(item.rows[0].at.utc_s)
        before = item
    return moments


def _values(item: _Item, columns: _Columns) -> list[str]:
    if isinstance(item, _Note):
        return [""] * len(columns.keys)
    return [
        cell(metric, fold_values([row.values.get(key) for row in item.rows], _FOLDS[metric]))
        for key, metric in zip(columns.keys, columns.metrics)
    ]


def _note(note: _Note, clock: Column) -> str:
    until = "" if note.until_utc_s in (None, note.from_utc_s) else f" to {clock.cell(note.until_utc_s or 0.0)}"
    return f"{clock.cell(note.from_utc_s)}{until}  {note.words}"
