"""Reading history.db while another process writes it, or after that one is gone. Read-only, any older schema."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Optional, Union

from gpuwatch.model.errors import StoreError
from gpuwatch.model.event import Event
from gpuwatch.model.instant import Instant
from gpuwatch.model.pci import canonical
from gpuwatch.store import history_schema as schema
from gpuwatch.store.history_rows import CLOCK_SET, STATES, EventFilter, Gap, KnownGpu, NotedEvent, Row

AROUND_MS = 3_600_000  # how far from a moment an index is looked for
_GPU_NAMES = {column.name: column.metric for column in schema.GPU_COLUMNS}
_SLOW_NAMES = {column.name: column.metric for column in schema.SLOW_COLUMNS}
_HOST_NAMES = {column.name: column.metric for column in schema.HOST_COLUMNS}
METRICS_KEPT = (*_GPU_NAMES.values(), *_SLOW_NAMES.values(), *_HOST_NAMES.values())

_TICKS = "SELECT * FROM ticks WHERE ts >= ? AND ts <= ? ORDER BY boot, up"
_OF_GPU = """SELECT t.*, s.idx, s.state, s.* FROM ticks t LEFT JOIN samples s ON s.ts = t.ts AND s.gpu = ?
    WHERE t.ts >= ? AND t.ts <= ? ORDER BY t.boot, t.up"""
_LAST_READ = """SELECT t.*, s.idx, s.state, s.* FROM samples s JOIN ticks t ON t.ts = s.ts
    WHERE s.gpu = ? AND s.ts <= ? AND s.state = 0 ORDER BY s.ts DESC LIMIT 1"""
_NEXT_READ = """SELECT t.*, s.idx, s.state, s.* FROM samples s JOIN ticks t ON t.ts = s.ts
    WHERE s.gpu = ? AND s.ts > ? AND s.state = 0 ORDER BY s.ts LIMIT 1"""
_INDEX_BEFORE = "SELECT gpu FROM samples WHERE ts <= ? AND ts > ? AND idx = ? ORDER BY ts DESC LIMIT 1"
_INDEX_AFTER = "SELECT gpu FROM samples WHERE ts > ? AND ts < ? AND idx = ? ORDER BY ts LIMIT 1"
_EVENTS = """SELECT at, up, boot_id, seen_at, kind, source, uuid, count, text, fields, incident FROM events
    WHERE (?1 IS NULL OR at >= ?1) AND (?2 IS NULL OR at <= ?2)
    AND (?3 IS NULL OR instr(?3, ',' || kind || ',') > 0)
    AND ((?4 IS NULL AND ?5 IS NULL) OR uuid = ?4 OR pci = ?5)
    AND (?6 IS NULL OR unit GLOB ?6) AND (?7 IS NULL OR incident = ?7)
    ORDER BY at DESC, up DESC LIMIT ?8"""


@dataclass(frozen=True)
class Moment:
    """One tick: the host's values by metric, and each known card's row by UUID."""

    at: Instant
    host: Mapping[str, Optional[float]]
    gpus: Mapping[str, Row]


class HistoryReader:
    """An open history.db. Every method raises StoreError."""

    def __init__(self, path: str) -> None:
        self._path = path
        if not os.path.exists(path):
            raise StoreError(_missing(path))
        try:
            self._connection = _connect(path)
        except sqlite3.Error as error:
            raise StoreError(f"{path}: {error}") from error
        try:
            self._boots = self._checked()
        except StoreError:
            self._connection.close()
            raise

    def _checked(self) -> dict[int, str]:
        version = self._query("PRAGMA user_version")[0][0]
        if version > schema.SCHEMA:
            known = schema.SCHEMA
            raise StoreError(f"{self._path}: written by a newer gpuwatch (schema {version}, this one knows {known})")
        return {number: str(boot_id) for number, boot_id in self._query("SELECT number, boot_id FROM boots")}

    def close(self) -> None:
        """Let go."""
        self._connection.close()

    def gpus(self) -> tuple[KnownGpu, ...]:
        """Every GPU that was ever seen, by its newest index."""
        return tuple(KnownGpu(*row) for row in self._query("SELECT uuid, idx, name, pci FROM gpus ORDER BY idx, uuid"))

    def gpu(self, text: str, utc_s: Optional[float] = None) -> KnownGpu:
        """The GPU that people mean by an index, the beginning of a UUID, or a PCI address.

        An index is that of the moment `utc_s`, since a card that is lost can change those of the others.
        """
        known = self.gpus()
        if text.isdecimal():
            number = None if utc_s is None or len(text) > 4 else self._by_index(int(text), round(utc_s * 1000))
            found = self._numbered(number) if number is not None else tuple(g for g in known if g.index == int(text))
        else:
            pci, word = canonical(text), text.lower()
            begins = (word, f"gpu-{word}") if len(word) > 3 else ()
            found = tuple(gpu for gpu in known if gpu.pci == pci or gpu.uuid.lower().startswith(begins))
        if len(found) == 1:
            return found[0]
        listed = ", ".join(f"{gpu.index} ({gpu.uuid[:12]})" for gpu in known) or "none"
        raise StoreError(f"{text[:60]!r} is {'more than one' if found else 'no'} GPU of this history; known: {listed}")

    def span(self) -> Optional[tuple[float, float]]:
        """When the first and the last tick were, in UTC seconds; None while there is none."""
        first, last = self._query("SELECT min(ts), max(ts) FROM ticks")[0]
        return None if first is None else (first / 1000, last / 1000)

    def rows(
        self,
        gpu: Optional[KnownGpu],
        since_utc_s: float,
        until_utc_s: float,
        metrics: Optional[Sequence[str]] = None,
    ) -> Iterator[Row]:
        """In the order in which they were recorded (a clock that was set back comes to an hour twice).

        Values of the metrics that are asked for, by default all of the GPU that each tick has; those of the
        host too where they are named, and without a GPU. What changes seldom is as it was last known.
        """
        bounds = (round(since_utc_s * 1000), round(until_utc_s * 1000))
        if gpu is None:
            yield from self._rows(_TICKS, bounds, metrics)
            return
        number = self._number(gpu)
        rows = self._rows(_OF_GPU, (number, *bounds), metrics)
        seldom = [metric for metric in metrics or () if metric in _SLOW_NAMES.values()]
        yield from self._with_slow(rows, number, bounds[1], seldom) if seldom else rows

    def moments(self, since_utc_s: float, until_utc_s: float, metrics: Sequence[str]) -> Iterator[Moment]:
        """Every tick with all cards and the host, in the order in which they were recorded. `metrics` of the cards.
        What is written meanwhile is not in it."""
        gpus, host = self.gpus(), tuple(_HOST_NAMES.values())
        self._execute("BEGIN")
        try:
            cards = [self.rows(gpu, since_utc_s, until_utc_s, metrics) for gpu in gpus]
            for rows in zip(self.rows(None, since_utc_s, until_utc_s, host), *cards):
                of_gpus = {gpu.uuid: row for gpu, row in zip(gpus, rows[1:])}
                yield Moment(rows[0].at, rows[0].values, of_gpus)
        finally:
            self._execute("ROLLBACK")

    def slow(self, gpu: KnownGpu, utc_s: float) -> dict[str, Optional[float]]:
        """What changes seldom, as it was last known at a moment."""
        asked = (self._number(gpu), round(utc_s * 1000))
        cursor = self._execute("SELECT * FROM slow WHERE gpu = ? AND ts <= ? ORDER BY ts DESC LIMIT 1", asked)
        row = cursor.fetchone()
        if row is None:
            return {}
        named = zip((column[0] for column in cursor.description), row)
        return {_SLOW_NAMES[name]: value for name, value in named if name in _SLOW_NAMES}

    def last_read(self, gpu: KnownGpu, utc_s: float) -> Optional[Row]:
        """The newest row at or before a moment in which the card was read."""
        return next(self._rows(_LAST_READ, (self._number(gpu), round(utc_s * 1000)), None), None)

    def next_read(self, gpu: KnownGpu, utc_s: float) -> Optional[Row]:
        """The first row after a moment in which the card was read."""
        return next(self._rows(_NEXT_READ, (self._number(gpu), round(utc_s * 1000)), None), None)

    def gaps(self, since_utc_s: float, until_utc_s: float) -> tuple[Gap, ...]:
        """All gaps that touch a range, clocks set included, in the order in which they began."""
        rows = self._query(
            """SELECT from_at, until_at, reason, detail FROM gaps
            WHERE min(from_at, coalesce(until_at, from_at)) <= ? AND (until_at IS NULL OR max(from_at, until_at) >= ?)
            ORDER BY number""",
            (round(until_utc_s * 1000), round(since_utc_s * 1000)),
        )
        return tuple(
            Gap(from_at / 1000, None if until_at is None else until_at / 1000, reason, detail)
            for from_at, until_at, reason, detail in rows
        )

    def gap_at(self, utc_s: float) -> Optional[Gap]:
        """The newest gap that a moment lies in."""
        inside = [
            gap
            for gap in self.gaps(utc_s, utc_s)
            if gap.reason != CLOCK_SET and gap.from_utc_s < utc_s < (gap.until_utc_s or utc_s + 1)
        ]
        return inside[-1] if inside else None

    def events(self, wanted: EventFilter) -> tuple[NotedEvent, ...]:
        """Oldest first. Within a boot the machine's own clock decides the order, across boots the wall clock."""
        rows = self._query(
            _EVENTS,
            (
                None if wanted.since_utc_s is None else round(wanted.since_utc_s * 1000),
                None if wanted.until_utc_s is None else round(wanted.until_utc_s * 1000),
                f",{','.join(wanted.kinds)}," if wanted.kinds else None,
                wanted.uuid,
                wanted.pci,
                wanted.unit,
                wanted.incident,
                wanted.most,
            ),
        )
        began: dict[str, float] = {}
        found = [_event(row) for row in rows]
        for noted in found:
            at = noted.event.at
            began[at.boot_id] = min(began.get(at.boot_id, at.utc_s), at.utc_s)
        return tuple(
            sorted(
                found,
                key=lambda noted: (began[noted.event.at.boot_id], noted.event.at.boot_id, noted.event.at.boottime_s),
            )
        )

    def kinds(self) -> tuple[str, ...]:
        """Every kind of event that there is."""
        return tuple(row[0] for row in self._query("SELECT DISTINCT kind FROM events ORDER BY kind"))

    # Inside

    def _with_slow(self, rows: Iterator[Row], number: int, until: int, metrics: Sequence[str]) -> Iterator[Row]:
        cursor = self._execute("SELECT * FROM slow WHERE gpu = ? AND ts <= ? ORDER BY ts", (number, until))
        places = [(_SLOW_NAMES[column[0]], place) for place, column in enumerate(cursor.description[2:], start=2)]
        changes = [
            (record[0] / 1000, {metric: record[place] for metric, place in places if metric in metrics})
            for record in cursor.fetchall()
        ]
        known: dict[str, Optional[float]] = dict.fromkeys(metrics)
        for row in rows:
            while changes and changes[0][0] <= row.at.utc_s:
                known = changes.pop(0)[1]
            yield replace(row, values={**row.values, **known})

    def _by_index(self, index: int, ts: int) -> Optional[int]:
        for statement, bounds in ((_INDEX_BEFORE, (ts, ts - AROUND_MS)), (_INDEX_AFTER, (ts, ts + AROUND_MS))):
            row = self._query(statement, (*bounds, index))
            if row:
                return int(row[0][0])
        return None

    def _number(self, gpu: KnownGpu) -> int:
        rows = self._query("SELECT number FROM gpus WHERE uuid = ?", (gpu.uuid,))
        if not rows:
            raise StoreError(f"{self._path}: no GPU {gpu.uuid}")
        return int(rows[0][0])

    def _numbered(self, number: int) -> tuple[KnownGpu, ...]:
        rows = self._query("SELECT uuid, idx, name, pci FROM gpus WHERE number = ?", (number,))
        return tuple(KnownGpu(*row) for row in rows)

    def _rows(self, sql: str, values: Sequence[Any], metrics: Optional[Sequence[str]]) -> Iterator[Row]:
        cursor = self._execute(sql, values)
        picked, of_gpu = _places([column[0] for column in cursor.description], metrics)
        try:
            for record in cursor:
                state, index = _state(record, of_gpu)
                at = Instant(self._boots.get(record[1], ""), record[2] / 1000, record[0] / 1000)
                yield Row(at, state, {metric: record[place] for metric, place in picked}, index)
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}") from error

    def _execute(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        try:
            return self._connection.execute(sql, values)
        except (sqlite3.Error, OverflowError) as error:
            raise StoreError(f"{self._path}: {error}") from error

    def _query(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            return self._execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}") from error


@contextmanager
def open_history(path: str) -> Iterator[HistoryReader]:
    """A reader for a while. Raises StoreError."""
    reader = HistoryReader(path)
    try:
        yield reader
    finally:
        reader.close()


def _connect(path: str) -> sqlite3.Connection:
    """A write-ahead log can't be read where its index can't be made; on a read-only disk the file alone is read."""
    connection = sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, timeout=1.0)
    try:
        connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        return sqlite3.connect(f"file:{_quoted(path)}?mode=ro&immutable=1", uri=True, timeout=1.0)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _quoted(path: str) -> str:
    """A path inside a URI: only what means something there is escaped."""
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _missing(path: str) -> str:
    folder = os.path.dirname(path) or "."
    if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK):
        return f"{folder}: can't be read (only root may)"
    return f"{path}: nothing there; has gpuwatch run on this host?"


def _places(names: Sequence[str], metrics: Optional[Sequence[str]]) -> tuple[list[tuple[str, int]], Optional[int]]:
    """Where in a record each metric is, and where the GPU's index is: the tick's columns come first."""
    of_gpu = names.index("idx") if "idx" in names else None
    found: dict[str, int] = {}
    for place, name in enumerate(names):
        host = of_gpu is None or place < of_gpu
        metric = _HOST_NAMES.get(name) if host else _GPU_NAMES.get(name)
        if metric is not None:
            found.setdefault(metric, place)
    if metrics is None:
        chosen = [metric for metric in found if of_gpu is None or metric.startswith("gpu.")]
    else:
        chosen = [metric for metric in metrics if metric in found]
    return [(metric, found[metric]) for metric in chosen], of_gpu


def _state(record: Sequence[Any], of_gpu: Optional[int]) -> tuple[str, Optional[int]]:
    if of_gpu is None:
        return record[3] or "", None
    if record[of_gpu] is None:
        return record[3] or "not_listed", None
    return STATES[record[of_gpu + 1]], int(record[of_gpu])


def _event(row: Sequence[Any]) -> NotedEvent:
    at, up, boot_id, seen_at, kind, source, uuid, count, text, fields, incident = row
    try:
        known: dict[str, Union[str, int, float, bool, None]] = json.loads(fields)
    except ValueError:
        known = {}
    seen = Instant(boot_id, up / 1e6 + max(0.0, (seen_at - at) / 1000), seen_at / 1000)
    return NotedEvent(
        Event(kind, Instant(boot_id, up / 1e6, at / 1000), seen, source, known, uuid, text, count=count), incident
    )
