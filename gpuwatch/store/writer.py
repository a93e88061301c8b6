"""The one writer: a commit a cycle, with a deadline, and a way to go on when the disk does not (S7).

While the database can't be written, transactions are kept in memory and appended to a file in /run
(which survives kill -9, not a reboot); they are merged back in order, each exactly once by its
number, as soon as the disk answers again, or by the next start.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from gpuwatch.model.errors import StoreError
from gpuwatch.store.database import Database, Documents, Transaction, Write
from gpuwatch.system.protocols import Clock, Task, Worker

COMMIT_S = 2.0  # the cycle waits this long for the disk, once
OPEN_S = 10.0
MOST_FALLBACK_BYTES = 32 << 20


@dataclass(frozen=True)
class Committed:
    """What became of a commit. `durable` False: nothing destructive may follow."""

    durable: bool
    degraded: bool = False  # it is in /run, not on disk
    problem: str = ""


class Writer:
    """`directory` holds state.db, `fallback` is the file in /run. One instance a host (the lock sees to it)."""

    def __init__(self, directory: str, fallback: str, worker: Worker, clock: Clock) -> None:
        self._path = os.path.join(directory, "state.db")
        self._fallback = fallback
        self._worker = worker
        self._clock = clock
        self._database: Optional[Database] = None
        self._number = 0
        self._backlog: list[Transaction] = []
        self._task: Optional[Task[int]] = None
        self._failing_since: Optional[float] = None
        self.problem = ""

    def open(self) -> Documents:
        """Everything stored, with what waits in /run merged. Raises StoreError when it can't be read."""
        task = self._worker.submit(self._open)
        if not self._worker.wait(task, OPEN_S):
            raise StoreError(f"{self._path}: the disk does not answer")
        return task.result()

    def commit(self, writes: Sequence[Write]) -> Committed:
        """Write all or nothing and wait for it, at most COMMIT_S and only while the disk is healthy."""
        self._number += 1
        transaction = Transaction(self._number, tuple(writes))
        self._backlog.append(transaction)
        healthy = self._failing_since is None
        if self._task is None or self._task.done():
            self._settle()
            self._task = self._submit(tuple(self._backlog))
        if self._worker.wait(self._task, COMMIT_S if healthy else 0.0):
            self._settle()
        else:
            self.problem = f"{self._path}: the disk does not answer"
        if not self._backlog:
            self._recovered()
            return Committed(durable=True)
        if self._failing_since is None:
            self._failing_since = self._clock.monotonic()
        return self._fall_back(transaction, everything=healthy)

    def failing_s(self) -> float:
        """How long the database could not be written; 0 while all is well."""
        return 0.0 if self._failing_since is None else self._clock.monotonic() - self._failing_since

    def close(self) -> None:
        """Let go of the database; a disk that does not answer is left behind."""
        if self._database is not None:
            closing = self._worker.submit(self._database.close)
            self._worker.wait(closing, COMMIT_S if self._failing_since is None else 0.0)

    def _open(self) -> Documents:
        self._database = Database(self._path)
        waiting = _read_fallback(self._fallback)
        if waiting:
            self._database.apply(waiting)
            _remove(self._fallback)
        self._number = self._database.number()
        return self._database.read()

    def _apply(self, transactions: tuple[Transaction, ...]) -> int:
        if self._database is None:
            self._database = Database(self._path)
        self._database.apply(transactions)
        return transactions[-1].number

    def _submit(self, transactions: tuple[Transaction, ...]) -> Task[int]:
        return self._worker.submit(lambda: self._apply(transactions))

    def _settle(self) -> None:
        """Take the finished commit's result into account."""
        if self._task is None or not self._task.done():
            return
        task, self._task = self._task, None
        try:
            written = task.result()
        except StoreError as error:
            self.problem = str(error)
            return
        self._backlog = [transaction for transaction in self._backlog if transaction.number > written]

    def _recovered(self) -> None:
        if self._failing_since is not None:
            self._failing_since = None
            self.problem = ""
            _remove(self._fallback)

    def _fall_back(self, transaction: Transaction, everything: bool) -> Committed:
        try:
            _append_fallback(self._fallback, self._backlog if everything else [transaction])
        except OSError as error:
            return Committed(durable=False, problem=f"{self.problem}; {self._fallback}: {error.strerror}")
        return Committed(durable=True, degraded=True, problem=self.problem)


def _append_fallback(path: str, transactions: Sequence[Transaction]) -> None:
    """Add lines to the file in /run. Raises OSError (full, or over its cap)."""
    lines = b"".join(
        json.dumps(
            {"number": each.number, "writes": [[write.table, write.key, write.document] for write in each.writes]},
            ensure_ascii=False,
        ).encode()
        + b"\n"
        for each in transactions
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size + len(lines) > MOST_FALLBACK_BYTES:
            raise OSError(27, "the waiting transactions have reached their cap")
        os.write(descriptor, lines)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_fallback(path: str) -> list[Transaction]:
    """What waits in /run; a last line that was cut off by a crash was never promised to anybody."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    return [_parse(path, line) for line in lines[:-1]]


def _parse(path: str, line: str) -> Transaction:
    try:
        data: dict[str, Any] = json.loads(line)
        return Transaction(data["number"], tuple(Write(*write) for write in data["writes"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: not a transaction of gpuwatch: {error}") from error


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
