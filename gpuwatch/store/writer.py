"""The one writer: a commit a cycle, with a deadline, and a way to go on when the disk does not (S7).

While the database can't be written, what it lacks is kept in memory and in a file in /run (waiting.py), each
document once, with the number of the transaction that wrote it last; all of it is merged in one commit as soon as
the disk answers again, or by the next start. What the database has seen already is known by its number.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from gpuwatch.model.errors import StoreError
from gpuwatch.store.database import (
    DamagedError,
    Database,
    Documents,
    Encoded,
    NewerError,
    Transaction,
    Write,
    encode_write,
    overlay,
    read_numbered,
)
from gpuwatch.store.waiting import MOST_BYTES, TELL_BYTES, WaitingFile, read_waiting
from gpuwatch.system.protocols import Clock, Task, Worker

COMMIT_S = 2.0  # the cycle waits this long for the disk, once
OPEN_S = 10.0
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 30.0


@dataclass(frozen=True)
class Committed:
    """What became of a commit. `durable` False: nothing destructive may follow."""

    durable: bool
    degraded: bool = False  # it is in /run, not on disk
    problem: str = ""


@dataclass(frozen=True)
class _Opened:
    """`number` None: not known, and `documents` may be old or missing."""

    number: Optional[int]
    documents: Documents
    problem: str = ""  # why it can't be written


class Writer:
    """`directory` holds state.db, `fallback` is the file in /run. One instance a host (the lock sees to it).

    `problem` is "" or what is wrong, in words. `blind`: the start could not read the database; what is written
    must not take the names of what is stored there.
    """

    def __init__(self, directory: str, fallback: str, worker: Worker, clock: Clock) -> None:
        self._path = os.path.join(directory, "state.db")
        self._waiting = WaitingFile(fallback)
        self._worker = worker
        self._clock = clock
        self._database: Optional[Database] = None  # touched by the worker's jobs alone
        self._reset()

    def _reset(self) -> None:
        self._number = 0
        self._new_above: Optional[int] = None  # see Database.apply
        self._backlog: dict[tuple[str, str], tuple[int, Encoded]] = {}
        self._task: Optional[Task[int]] = None
        self._opening: Optional[Task[_Opened]] = None
        self._sent = 0  # the newest number in the task's hands
        self._error = ""  # the disk's last real one
        self._bad_lines = False
        self._failing_since: Optional[float] = None
        self._retry_at, self._retry_s = 0.0, FIRST_RETRY_S
        self.blind = False
        self.problem = ""

    # The start

    def open(self) -> Documents:
        """Everything stored, with what waits in /run merged.

        A database that can't be written now (full, locked, read-only, silent) ends no start: what can be read is
        read, and failing_s() counts from here. Raises DamagedError when it is spoiled, and StoreError when a newer
        gpuwatch wrote it.
        """
        self._reset()
        transactions = self._take_waiting()
        task = self._worker.submit(self._open)
        if self._worker.wait(task, OPEN_S):
            opened = task.result()
        else:
            self._opening = task
            opened = _Opened(None, {}, f"{self._path}: the disk does not answer")
        return self._start(opened, transactions)

    def open_without(self, problem: str) -> Documents:
        """Start with an empty memory where a damaged database can't be put aside either; go on in /run."""
        self._reset()
        self._take_waiting()
        self._waiting.remove(keep_copy=True)
        self._backlog = {}
        self._start(_Opened(None, {}, problem), [])
        return {}

    def put_aside(self, mark: str) -> str:
        """Give a damaged database another name, with what belongs to it. The name. Raises StoreError."""
        task = self._worker.submit(lambda: self._put_aside(mark))
        if not self._worker.wait(task, OPEN_S):
            raise StoreError(f"{self._path}: the disk does not answer")
        return task.result()

    def _take_waiting(self) -> list[Transaction]:
        self._waiting.reserve()
        transactions, problem = read_waiting(self._waiting.path)
        self._bad_lines, self.problem = bool(problem), problem
        for transaction in transactions:
            self._put(transaction.number, [encode_write(write) for write in transaction.writes])
            self._number = max(self._number, transaction.number)
        return transactions

    def _start(self, opened: _Opened, transactions: list[Transaction]) -> Documents:
        if opened.number is None:
            # Numbers that are surely higher than the database's, which counts once a cycle.
            self._number = max(self._number, int(self._clock.now().utc_s * 1000))
            self._new_above = self._number
            self.blind = not opened.documents
        else:
            self._drop(opened.number)
            self._number = max(self._number, opened.number)
        documents = overlay(opened.documents, transactions, opened.number or 0)
        if opened.problem:
            self._failed(opened.problem)
            self._tell(opened.problem)
        else:
            self._merge()  # also when nothing waits: a disk that only reads is known from the start
        return documents

    def _merge(self) -> None:
        problem = self.problem
        self._task = self._submit()
        if self._worker.wait(self._task, OPEN_S):
            self._settle()
            reason = self._error
        else:
            reason = self._error = f"{self._path}: the disk does not answer"
            self._failing_since = self._clock.monotonic()
        self.problem = problem
        if self._failing_since is not None:
            self._tell(reason)
        else:
            self._waiting.remove(keep_copy=self._bad_lines)

    def _open(self) -> _Opened:
        self._close()
        try:
            self._database = Database(self._path)
            return _Opened(self._database.number(), self._database.read())
        except (DamagedError, NewerError):
            self._close()
            raise
        except StoreError as error:
            self._close()
            return self._read_only(str(error))

    def _read_only(self, problem: str) -> _Opened:
        try:
            if not os.path.exists(self._path) or os.path.getsize(self._path) == 0:
                return _Opened(0, {}, problem)
            number, documents = read_numbered(self._path)
            return _Opened(number, documents, problem)
        except (StoreError, OSError):
            pass  # the last resort follows
        try:
            number, documents = read_numbered(self._path, immutable=True)
            log = self._path + "-wal"  # is left out: where it holds something, the number may be behind
            behind = os.path.exists(log) and os.path.getsize(log) > 0
            return _Opened(None if behind else number, documents, problem)
        except (StoreError, OSError):
            return _Opened(None, {}, problem)

    def _put_aside(self, mark: str) -> str:
        try:
            self._close()
        except StoreError:
            pass  # it is damaged: that is why
        aside, copy = f"{self._path}.broken-{mark}", 1
        while os.path.exists(aside):
            copy += 1
            aside = f"{self._path}.broken-{mark}-{copy}"
        try:
            # The database last: a new one must never find the log of the old one.
            for ending in ("-wal", "-shm", ""):
                if os.path.exists(self._path + ending):
                    os.rename(self._path + ending, aside + ending)
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror}") from error
        return aside

    # The commits

    def commit(self, writes: Sequence[Write]) -> Committed:
        """Write all or nothing and wait for it, at most COMMIT_S and only while the disk is healthy."""
        refused = ""
        try:
            encoded = [encode_write(write) for write in writes]
        except StoreError as error:
            refused = f"a transaction was left out: {error}"  # in the backlog it would block all later ones
        else:
            if encoded:
                self._number += 1
                self._put(self._number, encoded)
        done = self._advance()
        if not refused:
            return done
        self.problem = f"{done.problem}; {refused}" if done.problem else refused
        return Committed(durable=False, degraded=done.degraded, problem=self.problem)

    def failing_s(self) -> float:
        """How long the database could not be written; 0 while all is well."""
        return 0.0 if self._failing_since is None else self._clock.monotonic() - self._failing_since

    @property
    def failing(self) -> bool:
        """True while the database can't be written."""
        return self._failing_since is not None

    def close(self) -> None:
        """Let go of the database; a disk that does not answer is left behind."""
        closing = self._worker.submit(self._close)
        self._worker.wait(closing, COMMIT_S if self._failing_since is None else 0.0)

    def _put(self, number: int, writes: Sequence[Encoded]) -> None:
        for write in writes:
            self._backlog.pop((write.table, write.key), None)
            self._backlog[write.table, write.key] = (number, write)

    def _drop(self, number: int) -> None:
        self._backlog = {key: each for key, each in self._backlog.items() if each[0] > number}

    def _transactions(self) -> list[Transaction]:
        """The backlog: each document once, by ascending number."""
        by_number: dict[int, list[Encoded]] = {}
        for number, write in self._backlog.values():
            by_number.setdefault(number, []).append(write)
        return [Transaction(number, tuple(by_number[number])) for number in sorted(by_number)]

    def _advance(self) -> Committed:
        answered = self._settle()
        patient = answered or self._failing_since is None
        if self._task is None and self._due(patient):
            self._task = self._submit()
        reason = self._error
        if self._task is not None:
            if self._worker.wait(self._task, COMMIT_S if patient else 0.0):
                self._settle()
                reason = self._error
            elif patient or self._task.age_s() >= COMMIT_S:
                reason = f"{self._path}: the disk does not answer"
                self._error = self._error or reason
                if self._failing_since is None:
                    self._failing_since = self._clock.monotonic()
        elif self._opening is not None:
            reason = f"{self._path}: the disk does not answer"
        if self._failing_since is None:
            self.problem = ""
            return Committed(durable=True)
        return self._fall_back(reason)

    def _due(self, patient: bool) -> bool:
        if self._opening is not None:
            if not self._opening.done():
                return False
            self._opening = None  # what it found comes too late; that it has returned is enough
            return True
        if patient:
            return bool(self._backlog)
        return self._clock.monotonic() >= self._retry_at

    def _submit(self) -> Task[int]:
        transactions, new_above, self._sent = self._transactions(), self._new_above, self._number
        return self._worker.submit(lambda: self._apply(transactions, new_above))

    def _apply(self, transactions: list[Transaction], new_above: Optional[int]) -> int:
        try:
            if self._database is None:
                self._database = Database(self._path)
            return self._database.apply(transactions, new_above)
        except StoreError:
            # Opened anew at the next attempt: a connection made on a read-only file system stays read-only.
            self._close()
            raise

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            try:
                database.close()
            except StoreError:
                pass  # what was committed is durable; the rest waits

    def _settle(self) -> bool:
        """Take the finished attempt into account; True when the disk took what it was given."""
        if self._task is None or not self._task.done():
            return False
        task, self._task = self._task, None
        try:
            stored = task.result()
        except StoreError as error:
            self._failed(str(error))
            return False
        self._drop(self._sent)
        self._catch_up(stored)
        self._new_above, self._error = None, ""
        self._retry_s = FIRST_RETRY_S
        if not self._backlog:
            self._recovered()
        return True

    def _catch_up(self, stored: int) -> None:
        """After a start without its number, the database may be ahead all the same (a clock that was set back)."""
        ahead = stored - self._sent
        if ahead <= 0:
            return
        self._number += ahead
        self._backlog = {key: (number + ahead, write) for key, (number, write) in self._backlog.items()}
        self._waiting.complete_to = None

    def _failed(self, error: str) -> None:
        now = self._clock.monotonic()
        self._error = error
        if self._failing_since is None:
            self._failing_since = now
        self._retry_at = now + self._retry_s
        self._retry_s = min(LAST_RETRY_S, 2 * self._retry_s)

    def _recovered(self) -> None:
        if self._failing_since is not None:
            self._failing_since = None
            self.problem = ""
            self._waiting.remove(keep_copy=self._bad_lines)
            self._waiting.reserve()
            self._bad_lines = False

    def _fall_back(self, reason: str) -> Committed:
        try:
            self._waiting.keep(self._transactions())
        except OSError as error:
            self.problem = f"{reason}; {self._waiting.path}: {error.strerror}"
            return Committed(durable=False, problem=self.problem)
        self.problem = reason
        if self._waiting.size >= TELL_BYTES:
            share = 100 * self._waiting.size // MOST_BYTES
            self._tell(f"{self._waiting.path}: {share} % of its room is taken")
        return Committed(durable=True, degraded=True, problem=self.problem)

    def _tell(self, more: str) -> None:
        self.problem = f"{self.problem}; {more}" if self.problem else more
