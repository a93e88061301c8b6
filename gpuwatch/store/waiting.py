"""The file in /run for state that the disk does not take: one transaction a line.

It survives kill -9, not a reboot. What it has room for is known beforehand: a piece of /run is kept aside, and the
file is written anew, each document once, before mere time fills it.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, Callable, Optional

from gpuwatch.model.errors import StoreError
from gpuwatch.store.database import (
    TABLES,
    DamagedError,
    Documents,
    Transaction,
    Write,
    encode_write,
    overlay,
    read_numbered,
)

MOST_BYTES = 32 << 20
TELL_BYTES = MOST_BYTES // 2
COMPACT_BYTES = 4 << 20
ROOM_BYTES = 1 << 20


class WaitingFile:
    """`complete_to`: all that waits up to this number is in the file; None: it has to be written anew."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.complete_to: Optional[int] = None
        self.size = 0
        self._compact_at = COMPACT_BYTES

    def keep(self, transactions: Sequence[Transaction]) -> None:
        """All that waits, by ascending number. Raises OSError when not all of it is in the file after this."""
        try:
            self._keep(transactions)
        except OSError as error:
            if error.errno != errno.ENOSPC or not self._give_room():
                raise
            self._keep(transactions)

    def reserve(self) -> None:
        """Keep a piece of /run aside, for the day on which it is full as well."""
        try:
            descriptor = os.open(self._room, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return  # there is none to be had
        try:
            if os.fstat(descriptor).st_size < ROOM_BYTES:
                os.posix_fallocate(descriptor, 0, ROOM_BYTES)
        except OSError:
            self._give_room()  # less than that is better left to others
        finally:
            os.close(descriptor)

    def remove(self, keep_copy: bool = False) -> None:
        """Everything is on disk. A file that can't be removed does no harm: its numbers are known."""
        self.complete_to, self.size, self._compact_at = None, 0, COMPACT_BYTES
        try:
            if keep_copy:
                os.replace(self.path, self.path + ".broken")
            else:
                os.unlink(self.path)
        except OSError:
            pass  # see above

    @property
    def _room(self) -> str:
        return self.path + ".room"

    def _give_room(self) -> bool:
        try:
            os.unlink(self._room)
        except OSError:
            return False
        return True

    def _keep(self, transactions: Sequence[Transaction]) -> None:
        complete_to = self.complete_to
        if complete_to is None:
            self._rewrite(transactions)
            return
        new = [each for each in transactions if each.number > complete_to]
        if not new:
            return
        # One line, whatever was missed before: a kill in the middle leaves it or not.
        line = _lines([Transaction(new[-1].number, tuple(write for each in new for write in each.writes))])
        if self.size + len(line) > self._compact_at:
            try:
                self._rewrite(transactions)
                return
            except OSError:
                self._compact_at += COMPACT_BYTES
                if self.size + len(line) > MOST_BYTES:
                    raise  # otherwise there is room for the line, though none for a second file
        if self._append(line):
            self.complete_to = new[-1].number
        else:
            self._rewrite(transactions)

    def _append(self, line: bytes) -> bool:
        """False when the file is not the one that was written before."""
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            if os.fstat(descriptor).st_size != self.size:
                return False
            try:
                write_all(descriptor, line)
                os.fsync(descriptor)
            except OSError:
                known, self.complete_to = self.complete_to, None
                os.ftruncate(descriptor, self.size)
                self.complete_to = known
                raise
            self.size += len(line)
            return True
        finally:
            os.close(descriptor)

    def _rewrite(self, transactions: Sequence[Transaction]) -> None:
        lines = _lines(transactions)
        if len(lines) > MOST_BYTES:
            raise OSError(errno.EFBIG, "what waits for the disk has reached its cap")
        new = self.path + ".new"
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                write_all(descriptor, lines)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(new, self.path)
        except OSError:
            _unlink(new)
            raise
        self.complete_to = transactions[-1].number if transactions else 0
        self.size, self._compact_at = len(lines), max(COMPACT_BYTES, 2 * len(lines))


def write_all(descriptor: int, data: bytes, write: Callable[[int, bytes], int] = os.write) -> None:
    """A file system that is nearly full takes a part, and only the next call says why. Raises OSError."""
    rest = data
    while rest:
        written = write(descriptor, rest)
        if written <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[written:]


def read_waiting(path: str) -> tuple[list[Transaction], str]:
    """What waits, and what is wrong with it ("" when nothing is). Never raises.

    A line that is no transaction is passed over; a last line that was cut off was never promised to anybody.
    """
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return [], ""
    except OSError as error:
        return [], f"{path}: {error.strerror}"
    found, bad = [], []
    for number, line in enumerate(lines[:-1], 1):
        try:
            found.append(_parse(line))
        except (StoreError, ValueError, KeyError, TypeError, RecursionError) as error:
            bad.append(f"line {number}: {error}")
    return found, f"{path}: {len(bad)} unreadable, passed over ({bad[0]})" if bad else ""


def read_stored(path: str, waiting: str, tables: Iterable[str] = TABLES) -> tuple[Documents, str]:
    """What is stored together with what waits in /run, and what is wrong with the latter; nothing is written.

    Without a database, what waits is all there is. Raises StoreError.
    """
    # What waits first: when it reaches the database in between, it is seen twice, not lost.
    transactions, problem = read_waiting(waiting)
    wanted = tuple(tables)
    number = 0
    documents: Documents = {}
    if os.path.exists(path) or not transactions:
        try:
            number, documents = _read_either(path, wanted)
        except StoreError as error:
            if not transactions:
                raise
            problem = "; ".join(filter(None, (problem, f"{error}; shown is what waits in {waiting} alone")))
    merged = overlay(documents, transactions, number)
    return {table: merged.get(table, {}) for table in wanted}, problem


def _read_either(path: str, tables: tuple[str, ...]) -> tuple[int, Documents]:
    try:
        return read_numbered(path, tables)
    except DamagedError:
        raise
    except StoreError as error:
        try:
            return read_numbered(path, tables, immutable=True)
        except StoreError:
            raise error from None


def _lines(transactions: Iterable[Transaction]) -> bytes:
    """The documents are JSON already, in ASCII."""
    return "".join(
        '{{"number": {}, "writes": [{}]}}\n'.format(
            transaction.number,
            ", ".join(
                f"[{json.dumps(write.table)}, {json.dumps(write.key)}, {'null' if write.text is None else write.text}]"
                for write in map(encode_write, transaction.writes)
            ),
        )
        for transaction in transactions
    ).encode("ascii")


def _parse(line: bytes) -> Transaction:
    data: dict[str, Any] = json.loads(line)
    number, writes = data["number"], data["writes"]
    if not isinstance(number, int) or isinstance(number, bool) or not isinstance(writes, list):
        raise ValueError("not a transaction of gpuwatch")
    return Transaction(number, tuple(encode_write(Write(*write)) for write in writes))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # it was never made
