"""history.db as it is written: opened, migrated, put aside when broken, one batch after another, kept small.

Everything here runs in a Worker's thread. The file is synchronous NORMAL: a power cut may cost the last seconds,
never its integrity; all of it may be lost without harm. After any failure the connection is dropped, and the next
batch begins with what the file itself says.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Optional, Union

from gpuwatch.model.errors import StoreError
from gpuwatch.model.event import Event
from gpuwatch.store import history_schema as schema
from gpuwatch.store.history_retention import Slice, give_back, tidy
from gpuwatch.store.history_rows import (
    CLOCK_SET,
    GPUWATCH_DOWN,
    HOST_DOWN,
    NOT_LOOKING,
    NOT_WRITTEN,
    PUT_ASIDE,
    Batch,
    GpuRow,
    Keep,
    NotedEvent,
    Tick,
    Values,
)

MISSED_TICKS = 3  # more time than this many periods between two ticks is a gap
CLOCK_STEP_MS = 2000  # a clock that is only slewed moves 2.5 ms in 5 s
SLOW_EVERY_MS = 3_600_000
TIDY_EVERY_MS = 60_000
TIDY_AGAIN = 60  # batches after a failure
MOST_FIELDS = 8000  # characters of an event's fields
_MOST_INTEGER = (1 << 63) - 1
_UNIT_FIELDS = ("unit", "user_unit", "container_name", "container")


@dataclass
class _Tail:
    """The end of the file, as far as the next tick needs it. `slow`: what a card's slow row said, and at which `up`."""

    last: Optional[tuple[int, int, int]] = None  # boot, up, ts
    boots: dict[str, int] = field(default_factory=dict)
    gpus: dict[str, tuple[int, int, str, str]] = field(default_factory=dict)
    driver_gap: Optional[tuple[int, str]] = None
    slow: dict[int, tuple[Values, int]] = field(default_factory=dict)
    tidied: Optional[int] = None


class HistoryFile:
    """One writer's view of the file. Every method raises StoreError and may be called again after it."""

    def __init__(self, path: str, period_s: float, keep: Keep) -> None:
        self._path = path
        self._period_ms = round(period_s * 1000)
        self._keep = keep
        self._connection: Optional[sqlite3.Connection] = None
        self._inode = 0
        self._tail = _Tail()
        self._resumed = False  # True once this process has written a tick
        self._aside = ""  # where a broken predecessor went, until that is written down
        self._trouble, self._untidy = "", 0  # why removal failed, and for how many batches it rests

    def write(self, batch: Batch) -> str:
        """All of the batch or nothing; a tick or an event that is there already stays one. Gives "", or why
        what is old could not be removed: that costs no new row."""
        self._leave_space()
        self._guarded(lambda connection: self._write(connection, batch))
        self._resumed = self._resumed or bool(batch.ticks)
        self._aside = ""
        self._untidy = max(0, self._untidy - 1)
        if not batch.ticks or self._untidy:
            return self._trouble
        try:
            self._guarded(self._tidy)
            self._trouble = ""
        except StoreError as error:
            self._trouble, self._untidy = str(error), TIDY_AGAIN
        return self._trouble

    def close(self) -> None:
        """Let go; the last connection folds the write-ahead log into the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error as error:
                raise StoreError(f"{self._path}: {error}") from error

    def __del__(self) -> None:
        """Whoever forgets the history instead of closing it leaves no connection behind."""
        if self._connection is not None:
            self._connection.close()

    # Opening

    def _guarded(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """What fails leaves nothing behind, in the file or in memory."""
        try:
            work(self._open())
        except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
            self._drop()
            if type(error) is sqlite3.DatabaseError:  # no subclass of it: malformed, or no database at all
                self._put_aside(str(error))
            raise StoreError(f"{self._path}: {error}") from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and self._is_ours():
            return self._connection
        self._drop()
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        connection = sqlite3.connect(self._path, timeout=1.0, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection)
            self._tail = _read_tail(connection)
        except (sqlite3.Error, OSError):
            connection.close()
            raise
        self._inode = os.stat(self._path).st_ino
        self._connection = connection
        return connection

    def _is_ours(self) -> bool:
        """False once somebody has removed or replaced the file: writing on into nowhere would look well."""
        try:
            return os.stat(self._path).st_ino == self._inode
        except FileNotFoundError:
            return False

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._tail = _Tail()
        if connection is None:
            return
        try:
            connection.close()  # an open transaction is rolled back
        except sqlite3.Error:
            pass  # it is beyond use, which is why it is dropped

    def _put_aside(self, why: str) -> None:
        """Make room for a new file; one broken predecessor is kept for whoever wants to look."""
        aside = self._path + ".broken"
        try:
            for suffix in ("-wal", "-shm"):
                if os.path.exists(self._path + suffix):
                    os.replace(self._path + suffix, aside + suffix)
            os.replace(self._path, aside)
        except OSError as error:
            raise StoreError(f"{self._path}: {why}; and it can't be put aside: {error.strerror}") from error
        self._aside = f"{aside} ({why})"

    def _leave_space(self) -> None:
        try:
            disk = os.statvfs(os.path.dirname(self._path) or ".")
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror}") from error
        if disk.f_bavail * disk.f_frsize < self._keep.free_bytes:
            least = self._keep.free_bytes >> 20
            raise StoreError(f"{self._path}: less than {least} MiB are free; that is left to state and evidence")

    # Writing

    def _write(self, connection: sqlite3.Connection, batch: Batch) -> None:
        connection.execute("BEGIN IMMEDIATE")
        for tick in batch.ticks:
            self._put_tick(connection, tick, batch)
        for noted in batch.events:
            connection.execute(schema.INSERT_EVENT, _event_row(noted))
        connection.execute("COMMIT")

    def _put_tick(self, connection: sqlite3.Connection, tick: Tick, batch: Batch) -> None:
        boot, up = self._boot(connection, tick.at.boot_id), round(tick.at.boottime_s * 1000)
        ts = _free_ts(connection, round(tick.at.utc_s * 1000), boot, up)
        self._note_gaps(connection, (boot, up, ts), batch)
        self._note_driver(connection, tick, ts)
        connection.execute(schema.INSERT_TICK, (ts, boot, up, tick.driver or None, *tick.host))
        for row in tick.gpus:
            number = self._gpu(connection, row)
            connection.execute(schema.INSERT_SAMPLE, (ts, number, row.index, row.state, *row.values))
            self._put_slow(connection, row, number, ts, up)
        self._tail.last = (boot, up, ts)

    def _put_slow(self, connection: sqlite3.Connection, row: GpuRow, number: int, ts: int, up: int) -> None:
        known = self._tail.slow.get(number)
        if row.slow and (known is None or known[0] != row.slow or not 0 <= up - known[1] < SLOW_EVERY_MS):
            connection.execute(schema.INSERT_SLOW, (ts, number, *row.slow))
            self._tail.slow[number] = (row.slow, up)

    def _boot(self, connection: sqlite3.Connection, boot_id: str) -> int:
        if boot_id not in self._tail.boots:
            cursor = connection.execute("INSERT INTO boots (boot_id) VALUES (?)", (boot_id,))
            self._tail.boots[boot_id] = int(cursor.lastrowid or 0)
        return self._tail.boots[boot_id]

    def _gpu(self, connection: sqlite3.Connection, row: GpuRow) -> int:
        known, told = self._tail.gpus.get(row.uuid), (row.index, _text(row.name), row.pci)
        if known is not None and known[1:] == told:
            return known[0]
        if known is None:
            cursor = connection.execute(
                "INSERT INTO gpus (uuid, idx, name, pci) VALUES (?, ?, ?, ?)", (row.uuid, *told)
            )
            number = int(cursor.lastrowid or 0)
        else:
            number = known[0]
            connection.execute("UPDATE gpus SET idx = ?, name = ?, pci = ? WHERE number = ?", (*told, number))
        self._tail.gpus[row.uuid] = (number, *told)
        return number

    # Gaps

    def _note_gaps(self, connection: sqlite3.Connection, here: tuple[int, int, int], batch: Batch) -> None:
        """What lies between the last tick and this one, where it is more than a period."""
        boot, up, ts = here
        if self._tail.last is None:
            if self._aside:
                _put_gap(connection, ts, ts, PUT_ASIDE, self._aside)
            return
        last_boot, last_up, last_ts = self._tail.last
        if boot != last_boot:
            _put_gap(connection, last_ts, max(last_ts, ts), HOST_DOWN, "")
            return
        elapsed = up - last_up
        step = (ts - last_ts) - elapsed
        stepped = abs(step) > CLOCK_STEP_MS
        if elapsed > MISSED_TICKS * self._period_ms:
            reason, detail = NOT_LOOKING if self._resumed else GPUWATCH_DOWN, ""
            if batch.lost:
                reason, detail = NOT_WRITTEN, batch.why_lost
            _put_gap(connection, last_ts, last_ts + elapsed if stepped else ts, reason, detail)
        if stepped:
            _put_gap(connection, last_ts + elapsed, ts, CLOCK_SET, f"{step / 1000:+.0f} s")

    def _note_driver(self, connection: sqlite3.Connection, tick: Tick, ts: int) -> None:
        """A gap lasts for as long as the driver is in one state in which it tells nothing."""
        reason = f"driver_{tick.driver}" if tick.driver else ""
        known = self._tail.driver_gap
        if (known[1] if known else "") == reason:
            return
        if known is not None:
            connection.execute("UPDATE gaps SET until_at = ? WHERE number = ?", (ts, known[0]))
        self._tail.driver_gap = (_put_gap(connection, ts, None, reason, tick.detail), reason) if reason else None

    def _tidy(self, connection: sqlite3.Connection) -> None:
        """Retention, a slice a minute, or a slice a batch while there is more to do."""
        assert self._tail.last is not None
        up = self._tail.last[1]
        if self._tail.tidied is not None and 0 <= up - self._tail.tidied < TIDY_EVERY_MS:
            return
        connection.execute("BEGIN IMMEDIATE")
        done = tidy(connection, self._tail.last[2], self._keep)
        connection.execute("COMMIT")
        give_back(connection)
        self._tail.tidied = None if done is Slice.MORE else up


def _prepare(connection: sqlite3.Connection) -> None:
    run = connection.execute
    version = run("PRAGMA user_version").fetchone()[0]
    if version > schema.SCHEMA:
        # As for a broken one: it is put aside and a new one begun.
        raise sqlite3.DatabaseError(f"written by a newer gpuwatch (schema {version}, this one knows {schema.SCHEMA})")
    run("PRAGMA auto_vacuum=INCREMENTAL")  # of a new file; later it changes nothing
    run("PRAGMA journal_mode=WAL")
    run("PRAGMA synchronous=NORMAL")
    run("PRAGMA journal_size_limit=4194304")
    run("PRAGMA cache_size=-512")  # KiB: this memory is the daemon's for life
    if version == schema.SCHEMA:
        return
    run("BEGIN IMMEDIATE")
    for statements in schema.MIGRATIONS[version:]:
        for statement in statements:
            run(statement)
    run(schema.SET_SCHEMA[schema.SCHEMA])
    run("COMMIT")


def _read_tail(connection: sqlite3.Connection) -> _Tail:
    """Where an earlier process stopped. A driver's gap that it left open ends where its ticks end."""
    run = connection.execute
    last = run("SELECT boot, up, ts FROM ticks ORDER BY boot DESC, up DESC LIMIT 1").fetchone()
    tail = _Tail(
        last=None if last is None else tuple(last),
        boots=dict(run("SELECT boot_id, number FROM boots")),
        gpus={row[1]: (row[0], row[2], row[3], row[4]) for row in run("SELECT number, uuid, idx, name, pci FROM gpus")},
    )
    if last is not None:
        run("UPDATE gaps SET until_at = max(from_at, ?) WHERE until_at IS NULL", (last[2],))
    return tail


def _put_gap(connection: sqlite3.Connection, from_at: int, until_at: Optional[int], reason: str, detail: str) -> int:
    cursor = connection.execute(
        "INSERT INTO gaps (from_at, until_at, reason, detail) VALUES (?, ?, ?, ?)",
        (from_at, until_at, reason, detail[:500]),
    )
    return int(cursor.lastrowid or 0)


def _free_ts(connection: sqlite3.Connection, ts: int, boot: int, up: int) -> int:
    """A clock that was set back comes to the same millisecond again: the later tick takes the next free one."""
    while True:
        there = connection.execute("SELECT boot, up FROM ticks WHERE ts = ?", (ts,)).fetchone()
        if there is None or tuple(there) == (boot, up):
            return ts
        ts += 1


def _event_row(noted: NotedEvent) -> tuple[Union[str, int, None], ...]:
    event = noted.event
    fields = json.dumps(dict(event.fields), ensure_ascii=False, separators=(",", ":"))
    units = (event.fields.get(name) for name in _UNIT_FIELDS)
    unit = next((unit for unit in units if isinstance(unit, str) and unit), None)
    pci = event.fields.get("pci")
    return (
        _key(event),
        _whole(1000 * event.at.utc_s),
        _whole(1_000_000 * event.at.boottime_s),
        _text(event.at.boot_id),
        _whole(1000 * event.seen.utc_s),
        _text(event.kind),
        _text(event.source),
        None if event.uuid is None else _text(event.uuid),
        _text(pci) if isinstance(pci, str) else None,
        None if unit is None else _text(unit),
        noted.incident,
        _whole(event.count),
        _text(event.text),
        _text(fields) if len(fields) <= MOST_FIELDS else '{"cut":true}',
    )


def _key(event: Event) -> int:
    """The same event read again after a crash gets the same key."""
    parts = (event.at.boot_id, f"{event.at.boottime_s:.6f}", event.kind, event.source, event.uuid or "", event.text)
    digest = hashlib.blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _text(text: str) -> str:
    """Without what SQLite's text can't hold: one such event must not keep all others from being written."""
    return text[:MOST_FIELDS].encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def _whole(number: float) -> int:
    """For the same reason: within what SQLite's integers can hold."""
    return max(-_MOST_INTEGER, min(_MOST_INTEGER, round(number))) if math.isfinite(number) else 0
