"""One handle on the journal that is kept behind the last entry it has handled, whatever happens to the files.

The C class below systemd.journal.Reader is used directly: it gives raw bytes, five times as fast
as the converting Reader, and costs 4 ms and 1 MiB instead of 30 ms and 4 MiB. It is the same in
systemd-python 234 (EL 9) and 235.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Sequence
from typing import Any, Callable, Optional

from gpuwatch.system.protocols import Clock, JournalEntry

LOCAL_ONLY, SYSTEM_ONLY = 1, 4  # sd_journal_open(3)
INVALIDATE = 2  # sd_journal_process(3): files came or went
FIELD_BYTES = 16384  # of one field; longer ones are cut
BATCH_BYTES = 4 << 20  # of one read, so that a storm of long lines can't fill the memory
BACK_OFF_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
SILENCE_S = 60.0  # after this long without an entry the journal is opened anew
CLOCK_EVERY = 16  # entries that are passed over between two looks at the clock

Opener = Callable[[Optional[str], Optional[Sequence[str]]], Any]


def open_reader(path: Optional[str], files: Optional[Sequence[str]]) -> Any:
    """A systemd._reader._Reader on a directory, on files, or on this host's journal. Raises ImportError, OSError."""
    # Imported here, so that a host without python3-systemd gets a problem, not a crash.
    _reader: Any = importlib.import_module("systemd._reader")
    if path is not None or files is not None:
        return _reader._Reader(0, path, None if files is None else list(files))
    return _reader._Reader(LOCAL_ONLY | SYSTEM_ONLY)


class Tape:
    """Reads on from a cursor. Opens nothing before the first read; a failure closes it and is tried again later."""

    def __init__(
        self,
        cursor: str,
        clock: Clock,
        fields: frozenset[str],
        matches: Sequence[Sequence[str]] = (),
        wanted: Optional[Callable[[Any], bool]] = None,
        path: Optional[str] = None,
        files: Optional[Sequence[str]] = None,
        opener: Opener = open_reader,
    ) -> None:
        """`matches`: groups that are or-ed, as add_match takes them. `wanted`: asked with the reader on an entry;
        what it leaves is passed over, at a third of the cost of reading it. `fields`: what an entry is reduced to."""
        self.at = cursor  # the entry that was handled or passed over last
        self._clock, self._fields, self._matches, self._wanted = clock, fields, matches, wanted
        self._path, self._files, self._opener = path, files, opener
        self._reader: Any = None
        self._last_boot: tuple[Any, str] = (None, "")
        self._skip = ""  # the entry at the cursor, when the next step lands on it
        self._failures = 0
        self._retry_at = 0.0
        self._quiet_since = 0.0
        self._opened_at = 0.0
        # Where there is no journal yet, what comes is read from this moment on, not from a later tail.
        self._since_utc_us: Optional[int] = None
        self.gap = ""  # told once: entries behind the cursor may be missing
        self.problem = ""
        self.skipped = 0  # entries or files that could not be read
        self.passed = 0  # entries that were not wanted

    def fds(self) -> tuple[int, ...]:
        """Readable when files have changed."""
        return () if self._reader is None else (self._reader.fileno(),)

    def close(self) -> None:
        """Let the files go."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def read(self, entries: list[JournalEntry], limit: int, deadline_s: float) -> bool:
        """Append entries to the list until it holds `limit`; True when there may be more to read now. Never raises."""
        started = self._clock.monotonic()
        if self._reader is None and started < self._retry_at:
            return False
        more, before = False, self.at
        try:
            self._refresh(started)
            more = self._take(entries, limit, started + deadline_s)
        except (OSError, ValueError, ImportError) as error:
            self._fail(error)
        else:
            self._failures, self.problem = 0, ""
        if self.at != before:
            self._quiet_since = self._clock.monotonic()
        return more

    def take_gap(self) -> str:
        """The gap, once."""
        gap, self.gap = self.gap, ""
        return gap

    # -- opening ------------------------------------------------------------------

    def _refresh(self, now: float) -> None:
        """Open what is not open; take notice of changed files; open anew after a rotation or a long silence."""
        if self._reader is not None:
            changed = self._reader.process() == INVALIDATE and now - self._opened_at >= 1.0
            deaf = now - max(self._quiet_since, self._opened_at) >= SILENCE_S
            if changed or deaf:
                self.close()
        if self._reader is None:
            self._open()
            self._opened_at = now

    def _open(self) -> None:
        if self._since_utc_us is None:
            self._since_utc_us = int(self._clock.now().utc_s * 1e6)
        reader = self._open_files()
        try:
            reader.data_threshold = FIELD_BYTES
            self._position(reader)
            reader.fileno()
            reader.process()  # the first call always says INVALIDATE
        except BaseException:
            reader.close()
            raise
        self._reader = reader

    def _open_files(self) -> Any:
        if self._files is None:
            return self._opener(self._path, None)
        good = []
        for name in self._files:  # one bad file must not take the others along (J8)
            try:
                self._opener(None, [name]).close()
            except OSError:
                self.skipped += 1
            else:
                good.append(name)
        if not good:
            raise OSError("none of the journal files can be read")
        return self._opener(None, good)

    def _position(self, reader: Any) -> None:
        """Go behind the entry of the cursor, or behind the last one there is."""
        if not self.at:
            self._position_at_tail(reader)
        elif _CURSOR.search(self.at) is None:
            self.gap = "the saved position in the journal can't be read; reading goes on at its end"
            self.at = ""
            self._position_at_tail(reader)
        else:
            # Looked for without matches: then the entry itself must be there, else it was vacuumed (J2).
            reader.seek_cursor(self.at)
            here = reader._get_cursor() if reader._next() else ""
            if not same_entry(here, self.at):
                self.gap = _gap_text(self.at, reader._get_realtime() if here else None)
        for number, group in enumerate(self._matches):
            if number:
                reader.add_disjunction()
            for match in group:
                reader.add_match(match)
        self._skip = self.at
        if self.at:
            reader.seek_cursor(self.at)
        elif self._since_utc_us is not None:
            reader.seek_realtime(self._since_utc_us)

    def _position_at_tail(self, reader: Any) -> None:
        reader.seek_tail()
        if reader._previous():  # seek to the tail, then one back: next() alone gives nothing or old ones (J3)
            if self._failures == 0:
                self.at = reader._get_cursor()
            return
        if self._path is None and self._files is None:
            raise OSError("this host has no journal that can be read")

    # -- reading ------------------------------------------------------------------

    def _take(self, entries: list[JournalEntry], limit: int, end: float) -> bool:
        step, wanted, monotonic = self._reader._next, self._wanted, self._clock.monotonic
        stepped, size = 0, 0
        while len(entries) < limit:
            if not step():
                self._note_position(stepped > 0)
                return False
            stepped += 1
            if self._skip:
                here, self._skip = same_entry(self._reader._get_cursor(), self._skip), ""
                if here:
                    continue
            if wanted is None or self._is_wanted(wanted):
                size += self._read_entry(entries)
                if size > BATCH_BYTES or monotonic() >= end:
                    return True
            else:
                self.passed += 1
                if not stepped % CLOCK_EVERY and monotonic() >= end:
                    self._note_position(True)
                    return True
        return True

    def _is_wanted(self, wanted: Callable[[Any], bool]) -> bool:
        try:
            return wanted(self._reader)
        except OSError:
            self.skipped += 1  # damaged: left like one that can't be read (J8)
            return False

    def _read_entry(self, entries: list[JournalEntry]) -> int:
        """Take the entry that the reader is on; about how many bytes it has."""
        reader, wanted, size = self._reader, self._fields, 0
        cursor = reader._get_cursor()
        try:
            monotonic_us, boot = reader._get_monotonic()
            fields: dict[str, str] = {}
            for name, value in reader._get_all().items():
                if name in wanted:
                    first = value if value.__class__ is bytes else value[0]  # J9: of a field that repeats, the first
                    size += len(first)
                    fields[name] = first[:FIELD_BYTES].decode("utf-8", "replace")
            entries.append(JournalEntry(cursor, reader._get_realtime(), monotonic_us, self._boot(boot), fields))
        except OSError:
            self.skipped += 1  # this one is damaged; the next may not be (J8)
        self.at = cursor
        return size

    def _boot(self, boot: Any) -> str:
        if boot != self._last_boot[0]:
            self._last_boot = boot, boot.hex() if isinstance(boot, bytes) else boot.hex
        return self._last_boot[1]

    def _note_position(self, moved: bool) -> None:
        """Where reading goes on, when the last entries were passed over."""
        if moved and self._wanted is not None:
            self.at = self._reader._get_cursor()

    def _fail(self, error: Exception) -> None:
        self.close()
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        self.problem = f"the journal can't be read: {text}"
        self._retry_at = self._clock.monotonic() + BACK_OFF_S[min(self._failures, len(BACK_OFF_S) - 1)]
        self._failures += 1


_CURSOR = re.compile(r"(?:^|;)b=([0-9a-f]{32});m=([0-9a-f]+);t=([0-9a-f]+);x=([0-9a-f]+)")


def same_entry(one: str, other: str) -> bool:
    """True when two cursors mean the same entry. The file's own numbering (s=, i=) does not count: it
    changes when journald moves entries from /run to /var."""
    first, second = _CURSOR.search(one), _CURSOR.search(other)
    return first is not None and second is not None and first.groups() == second.groups()


def _gap_text(cursor: str, next_us: Optional[int]) -> str:
    match = _CURSOR.search(cursor)
    assert match is not None
    first, why = _utc(int(match[3], 16)), "they were removed before they were read"
    if next_us is None:
        return f"journal entries after {first} are missing: {why}"
    return f"journal entries from {first} to {_utc(next_us)} may be missing: {why}"


def _utc(realtime_us: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(realtime_us / 1e6))
