"""The store: one transaction a cycle, and going on while the disk does not (S7, S8)."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from gpuwatch.model.errors import StoreError
from gpuwatch.store.database import Database, Transaction, Write, read_documents
from gpuwatch.store.writer import MOST_FALLBACK_BYTES, Writer
from gpuwatch.system.worker import InlineWorker, ThreadWorker
from tests.fakes.clock import FakeClock


class Gate:
    """A worker whose jobs wait at a gate, as on a disk that hangs."""

    def __init__(self) -> None:
        self._worker = ThreadWorker("gate")
        GATES.append(self)
        self.open = threading.Event()
        self.open.set()

    def submit(self, job: Callable[[], Any]) -> Any:
        def held() -> Any:
            self.open.wait(20)
            return job()

        return self._worker.submit(held)

    def wait(self, task: Any, timeout_s: float) -> bool:
        return self._worker.wait(task, min(timeout_s, 0.2) if not self.open.is_set() else max(timeout_s, 2.0))


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    for gate in GATES:
        gate.open.set()
    for store in WRITERS:
        store.close()
    for database in DATABASES:
        database.close()
    DATABASES.clear()
    GATES.clear()
    WRITERS.clear()


GATES: list[Gate] = []
WRITERS: list[Writer] = []
DATABASES: list[Database] = []


def writer(folder: Path, worker: Any = None, clock: Optional[FakeClock] = None) -> Writer:
    store = Writer(str(folder), str(folder / "waiting.jsonl"), worker or InlineWorker(), clock or FakeClock())
    WRITERS.append(store)
    return store


def _database(folder: Path) -> Database:
    database = Database(str(folder / "state.db"))
    DATABASES.append(database)
    return database


def test_what_is_committed_is_there_after_a_restart(tmp_path: Path) -> None:
    first = writer(tmp_path)
    first.open()
    assert first.commit([Write("state", "cursor", "c1"), Write("incidents", "1", {"a": 1})]).durable
    first.commit([Write("incidents", "1", None)])
    again = writer(tmp_path).open()
    assert again["state"]["cursor"] == "c1"
    assert again["incidents"] == {}


def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    database = _database(tmp_path)
    good = Write("state", "cursor", "c1")
    with pytest.raises(StoreError):
        database.apply([Transaction(1, (good, Write("no_such_table", "x", 1)))])
    assert database.number() == 0
    assert "cursor" not in database.read()["state"]


def test_a_repeated_number_is_not_applied_again(tmp_path: Path) -> None:
    database = _database(tmp_path)
    database.apply([Transaction(1, (Write("state", "x", "first"),))])
    database.apply([Transaction(1, (Write("state", "x", "again"),)), Transaction(2, (Write("state", "y", 2),))])
    assert database.read()["state"]["x"] == "first"
    assert database.number() == 2


def test_the_file_is_for_root_alone(tmp_path: Path) -> None:
    writer(tmp_path).open()
    assert (tmp_path / "state.db").stat().st_mode & 0o777 == 0o600


def test_s7_a_disk_that_hangs_costs_one_wait_and_nothing_is_lost(tmp_path: Path) -> None:
    gate, clock = Gate(), FakeClock()
    store = writer(tmp_path, gate, clock)
    store.open()
    gate.open.clear()
    first = store.commit([Write("state", "a", 1)])
    assert (first.durable, first.degraded) == (True, True)
    clock.advance(7)
    assert store.failing_s() == 7
    for number in range(5):
        assert store.commit([Write("state", "b", number)]).degraded
    gate.open.set()
    for number in range(5, 10):
        last = store.commit([Write("state", "b", number)])
    assert (last.durable, last.degraded, store.failing_s()) == (True, False, 0.0)
    documents = read_documents(str(tmp_path / "state.db"))["state"]
    assert (documents["a"], documents["b"]) == (1, 9)
    assert not (tmp_path / "waiting.jsonl").exists()


def test_s8_killed_while_the_disk_hangs_the_next_start_merges_what_waits(tmp_path: Path) -> None:
    gate = Gate()
    store = writer(tmp_path, gate)
    store.open()
    store.commit([Write("state", "a", 0)])
    gate.open.clear()
    for number in range(3):
        store.commit([Write("state", "a", number)])
    documents = writer(tmp_path).open()  # the old process is gone, its disk writes never happened
    assert documents["state"]["a"] == 2
    assert not (tmp_path / "waiting.jsonl").exists()


def test_s8_what_was_written_after_all_is_not_applied_twice(tmp_path: Path) -> None:
    gate = Gate()
    store = writer(tmp_path, gate)
    store.open()
    gate.open.clear()
    store.commit([Write("state", "a", 1)])
    waiting = (tmp_path / "waiting.jsonl").read_bytes()
    gate.open.set()
    while store.commit([Write("state", "a", 2)]).degraded:
        pass
    (tmp_path / "waiting.jsonl").write_bytes(waiting)  # killed before it could be removed
    assert writer(tmp_path).open()["state"]["a"] == 2


def test_a_cut_off_last_line_is_left_out(tmp_path: Path) -> None:
    writer(tmp_path).open()
    (tmp_path / "waiting.jsonl").write_text('{"number": 1, "writes": [["state", "a", 1]]}\n{"number": 2, "wri')
    assert writer(tmp_path).open()["state"]["a"] == 1


def test_s1_with_neither_disk_nor_run_nothing_is_durable(tmp_path: Path) -> None:
    gate = Gate()
    store = Writer(str(tmp_path), str(tmp_path / "no" / "such" / "folder"), gate, FakeClock())
    WRITERS.append(store)
    store.open()
    gate.open.clear()
    done = store.commit([Write("state", "a", 1)])
    gate.open.set()
    assert not done.durable
    assert "does not answer" in done.problem


def test_the_file_in_run_has_a_cap(tmp_path: Path) -> None:
    gate = Gate()
    store = writer(tmp_path, gate)
    store.open()
    gate.open.clear()
    done = store.commit([Write("state", "a", "x" * MOST_FALLBACK_BYTES)])
    gate.open.set()
    assert not done.durable


def test_a_full_disk_is_an_error_that_ends(tmp_path: Path) -> None:
    store = writer(tmp_path)
    store.open()
    limit = sqlite3.connect(tmp_path / "state.db")
    limit.execute("BEGIN IMMEDIATE")  # somebody holds the database: commits fail until they let go
    assert store.commit([Write("state", "a", 1)]).degraded
    assert "locked" in store.problem
    limit.rollback()
    limit.close()
    assert not store.commit([Write("state", "a", 2)]).degraded
    assert read_documents(str(tmp_path / "state.db"))["state"]["a"] == 2


@pytest.mark.parametrize("content", [b"", b"not a database at all, but long enough to be looked at" * 50])
def test_a_broken_file_is_an_error_with_its_path(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.db").write_bytes(content)
    if content:
        with pytest.raises(StoreError, match=r"state\.db"):
            writer(tmp_path).open()
    else:
        assert writer(tmp_path).open()["state"] == {}


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    writer(tmp_path).open()
    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StoreError, match="newer gpuwatch"):
        writer(tmp_path).open()


def test_another_process_can_read_while_the_daemon_writes(tmp_path: Path) -> None:
    store = writer(tmp_path)
    store.open()
    store.commit([Write("incidents", "1", {"number": 1})])
    child = os.fork()
    if child == 0:
        found = read_documents(str(tmp_path / "state.db"), ("incidents",))
        os._exit(0 if found["incidents"] == {"1": {"number": 1}} else 1)
    assert os.waitpid(child, 0)[1] == 0
