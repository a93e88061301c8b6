"""The store: one transaction a cycle, and going on while the disk does not (S7, S8)."""

from __future__ import annotations

import errno
import json
import os
import resource
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Optional

import pytest

from gpuwatch.cli.main import main
from gpuwatch.daemon.app import _open_store
from gpuwatch.model.errors import StoreError
from gpuwatch.store import database as store_database
from gpuwatch.store.database import DamagedError, Database, Transaction, Write, read_documents
from gpuwatch.store.memory import Snapshot, decode_state
from gpuwatch.store.waiting import COMPACT_BYTES, MOST_BYTES, WaitingFile, read_waiting, write_all
from gpuwatch.store.writer import COMMIT_S, FIRST_RETRY_S, LAST_RETRY_S, Writer
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
    for worker in REFUSING:
        worker.error = ""
    for store in WRITERS:
        store.close()
    for database in DATABASES:
        database.close()
    DATABASES.clear()
    GATES.clear()
    WRITERS.clear()
    REFUSING.clear()


GATES: list[Gate] = []
WRITERS: list[Writer] = []
REFUSING: list[Refusing] = []
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
    done = store.commit([Write("state", "a", "x" * MOST_BYTES)])
    gate.open.set()
    assert not done.durable


def test_a_full_disk_is_an_error_that_ends(tmp_path: Path) -> None:
    clock = FakeClock()
    store = writer(tmp_path, clock=clock)
    store.open()
    limit = sqlite3.connect(tmp_path / "state.db")
    limit.execute("BEGIN IMMEDIATE")  # somebody holds the database: commits fail until they let go
    assert store.commit([Write("state", "a", 1)]).degraded
    assert "locked" in store.problem
    limit.rollback()
    limit.close()
    clock.advance(FIRST_RETRY_S)
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


# Trouble from the start


class Lines:
    """Implements protocols.Log."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, level: int, text: str, **fields: str) -> None:
        """See protocols.Log."""
        self.lines.append(text)


def start(store: Writer, clock: Optional[FakeClock] = None) -> tuple[Snapshot, list[str]]:
    """As the daemon starts."""
    log = Lines()
    world: Any = SimpleNamespace(clock=clock or FakeClock(), log=log)
    return _open_store(store, world), log.lines


def aside(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("state.db.broken-*"))


def waiting(folder: Path) -> list[Transaction]:
    return read_waiting(str(folder / "waiting.jsonl"))[0]


def filled(folder: Path) -> None:
    """An earlier run that was closed in order."""
    store = writer(folder)
    store.open()
    store.commit([Write("state", "cursor", "old"), Write("state", "kept", 1)])
    store.close()


@contextmanager
def no_room(most_bytes: int = 4096) -> Iterator[None]:
    """No file can grow beyond that: SQLite can't write, a short line in /run can be."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Somebody else has the whole database, readers excluded."""
    other = sqlite3.connect(folder / "state.db", isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    other.execute("REPLACE INTO state VALUES ('other', '1')")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@pytest.mark.parametrize("trouble", ["full", "locked"])
def test_a_start_while_nothing_can_be_written_goes_on_with_what_can_be_read(tmp_path: Path, trouble: str) -> None:
    filled(tmp_path)
    clock = FakeClock()
    store = writer(tmp_path, clock=clock)
    with no_room() if trouble == "full" else locked(tmp_path):
        stored, log = start(store, clock)
        assert (stored.state["cursor"], stored.state["kept"]) == ("old", 1)
        assert "state.db" in store.problem
        assert store.problem in log[0]
        clock.advance(6)
        assert store.failing_s() == 6
        done = store.commit([Write("state", "cursor", "new")])
        assert (done.durable, done.degraded) == (True, True)
        again, _ = start(writer(tmp_path, clock=clock), clock)  # killed, and started while it lasts
        assert (again.state["cursor"], again.state["kept"]) == ("new", 1)
    clock.advance(LAST_RETRY_S)
    assert not store.commit([]).degraded
    assert (store.failing_s(), store.problem) == (0.0, "")
    assert read_documents(str(tmp_path / "state.db"))["state"]["cursor"] == "new"
    assert aside(tmp_path) == []
    assert not (tmp_path / "waiting.jsonl").exists()


def test_a_database_that_opens_and_takes_nothing_is_known_from_the_start(tmp_path: Path) -> None:
    filled(tmp_path)
    other = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store, clock = writer(tmp_path), FakeClock()
    stored, log = start(store, clock)
    assert stored.state["kept"] == 1
    assert store.failing
    assert "locked" in log[0]
    other.rollback()
    other.close()


def test_a_first_start_without_room_ends_neither(tmp_path: Path) -> None:
    store, clock = writer(tmp_path), FakeClock()
    with no_room(0):
        stored, _ = start(store, clock)
    assert "policy" not in stored.state  # nothing is stored whose numbers could be taken
    assert store.failing


def test_a_disk_that_does_not_answer_ends_no_start_and_loses_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    for number in range(3):
        _database(tmp_path).apply([Transaction(10**15 + number, (Write("incidents", "1", {"old": True}),))])
    gate, clock = Gate(), FakeClock()
    store = writer(tmp_path, gate, clock)
    gate.open.clear()
    stored, log = start(store, clock)
    assert "does not answer" in log[0]
    assert stored.state["policy"]["next_incident"] > 1_000_000  # incident 1 of before is not overwritten
    assert store.commit([Write("incidents", "2", {"new": True})]).degraded
    assert "does not answer" in store.problem
    gate.open.set()
    while store.commit([Write("state", "cursor", "new")]).degraded:
        clock.advance(1)
    store.commit([Write("state", "cursor", "newer")])
    stored_now = read_documents(str(tmp_path / "state.db"))  # though its number was far ahead of the clock's
    assert stored_now["incidents"] == {"1": {"old": True}, "2": {"new": True}}
    assert (stored_now["state"]["kept"], stored_now["state"]["cursor"]) == (1, "newer")
    assert aside(tmp_path) == []


def test_what_waits_and_is_older_than_the_database_does_not_overwrite_it(tmp_path: Path) -> None:
    filled(tmp_path)
    line = '{"number": 1, "writes": [["state", "cursor", "older"]]}\n'
    (tmp_path / "waiting.jsonl").write_text(line)
    gate, clock = Gate(), FakeClock()
    store = writer(tmp_path, gate, clock)
    gate.open.clear()
    store.open()
    store.commit([Write("state", "x", 1)])
    gate.open.set()
    while store.commit([]).degraded:
        clock.advance(1)
    assert read_documents(str(tmp_path / "state.db"))["state"]["cursor"] == "old"


def test_opening_what_is_there_writes_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    with sqlite3.connect(tmp_path / "state.db") as holder:
        holder.execute("BEGIN IMMEDIATE")
        assert _database(tmp_path).read()["state"]["kept"] == 1
        holder.rollback()
    holder.close()


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE state SET document = '{no json' WHERE key = 'kept'",
        "UPDATE state SET document = '\"x\"' WHERE key = 'transaction'",
        "INSERT INTO incidents VALUES ('1', '[]')",
        "INSERT INTO state VALUES ('inventory', '[1]')",
    ],
)
def test_documents_that_cant_be_decoded_are_put_aside_with_their_log(tmp_path: Path, spoil: str) -> None:
    filled(tmp_path)
    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.executescript(spoil)
    connection.close()
    store = writer(tmp_path)
    stored, log = start(store)
    assert dict(stored.state).get("cursor") is None
    assert len(aside(tmp_path)) == 1
    assert "put aside" in log[0]
    assert store.commit([Write("state", "a", 1)]).durable
    assert not store.failing


def test_what_is_put_aside_takes_its_log_along(tmp_path: Path) -> None:
    filled(tmp_path)
    other = sqlite3.connect(tmp_path / "state.db", isolation_level=None)  # keeps the log from being folded in
    other.execute("UPDATE state SET document = '{' WHERE key = 'kept'")
    store, clock = writer(tmp_path), FakeClock()
    start(store, clock)
    name = f"state.db.broken-{int(clock.utc_s)}"
    assert aside(tmp_path) == [name, f"{name}-shm", f"{name}-wal"]
    other.close()
    assert store.commit([Write("state", "a", 1)]).durable


def test_a_spoiled_file_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"not a database, for long enough" * 100)
    store = writer(tmp_path)
    start(store)
    assert len(aside(tmp_path)) == 1
    assert store.commit([Write("state", "a", 1)]).durable


def test_spoiled_documents_that_wait_in_run_end_no_start(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "waiting.jsonl").write_text('{"number": 99, "writes": [["incidents", "1", [1]]]}\n')
    store = writer(tmp_path)
    with locked(tmp_path):
        stored, _ = start(store)
        assert dict(stored.incidents) == {}
        assert store.commit([Write("state", "a", 1)]).degraded
    assert aside(tmp_path) == []  # it was not the database's


def test_a_policy_that_cant_be_decoded_is_a_damaged_store() -> None:
    with pytest.raises(DamagedError, match="Transaction"):
        decode_state(Transaction, [1])


@pytest.mark.parametrize(
    "error, spoiled",
    [
        (sqlite3.DatabaseError("database disk image is malformed"), True),
        (sqlite3.DatabaseError("file is not a database"), True),
        (sqlite3.OperationalError("database or disk is full"), False),
        (sqlite3.OperationalError("database is locked"), False),
        (sqlite3.OperationalError("disk I/O error"), False),
        (sqlite3.OperationalError("attempt to write a readonly database"), False),
        (OSError(errno.EROFS, "Read-only file system"), False),
    ],
)
def test_only_a_spoiled_file_is_damaged_also_without_error_codes(error: Exception, spoiled: bool) -> None:
    assert store_database._is_spoiled(error) is spoiled


# The backlog


class Refusing:
    """A worker whose jobs fail as long as `error` is set; counts them."""

    def __init__(self) -> None:
        self.inner, self.error, self.jobs = InlineWorker(), "", 0
        REFUSING.append(self)

    def submit(self, job: Callable[[], Any]) -> Any:
        def run() -> Any:
            self.jobs += 1
            if self.error:
                raise StoreError(self.error)
            return job()

        return self.inner.submit(run)

    def wait(self, task: Any, timeout_s: float) -> bool:
        return True


def failing(folder: Path) -> tuple[Writer, Refusing, FakeClock]:
    worker, clock = Refusing(), FakeClock()
    store = writer(folder, worker, clock)
    store.open()
    worker.error, worker.jobs = "state.db: database or disk is full", 0
    return store, worker, clock


def test_the_disk_is_tried_again_with_growing_pauses_and_keeps_its_error(tmp_path: Path) -> None:
    store, worker, clock = failing(tmp_path)
    for number in range(120):
        assert store.commit([Write("state", "a", number)]).problem == worker.error
        clock.advance(1)
    assert worker.jobs == 8  # at 0, 1, 3, 7, 15, 31, 61 and 91 s
    worker.error = ""
    clock.advance(LAST_RETRY_S)
    assert not store.commit([]).degraded


def test_the_backlog_holds_each_document_once(tmp_path: Path) -> None:
    store, _, clock = failing(tmp_path)
    for number in range(500):
        store.commit([Write("state", "a", number), Write("state", f"key {number % 3}", number)])
        store.commit([])
        clock.advance(1)
    assert sum(len(each.writes) for each in store._transactions()) == 4
    assert len(waiting(tmp_path)) == 500  # one line a transaction, none for an empty one
    assert writer(tmp_path).open()["state"]["a"] == 499


def test_time_alone_does_not_fill_the_file(tmp_path: Path) -> None:
    store, _, clock = failing(tmp_path)
    for number in range(40):
        done = store.commit([Write("state", "policy", f"{number}" + "x" * (COMPACT_BYTES // 4))])
        assert (done.durable, done.degraded) == (True, True)
        assert (tmp_path / "waiting.jsonl").stat().st_size <= COMPACT_BYTES
        clock.advance(1)
    assert writer(tmp_path).open()["state"]["policy"].startswith("39x")
    assert not (tmp_path / "waiting.jsonl.new").exists()


def test_half_of_the_room_is_told(tmp_path: Path) -> None:
    store, worker, _ = failing(tmp_path)
    done = store.commit([Write("state", "a", "x" * (MOST_BYTES // 2))])
    assert done.durable
    assert done.problem.startswith(worker.error)
    assert "50 % of its room" in done.problem


def test_what_the_file_could_not_take_is_in_it_as_soon_as_it_can(tmp_path: Path) -> None:
    store, _, _ = failing(tmp_path)
    assert store.commit([Write("state", "a", 1)]).durable
    with no_room(100):
        done = store.commit([Write("state", "b", "y" * 200)])
        assert not done.durable
        assert "waiting.jsonl" in done.problem
        assert (tmp_path / "waiting.jsonl").read_bytes().endswith(b"]}\n")  # cut back to what was whole
        assert [each.writes[0].key for each in waiting(tmp_path)] == ["a"]
    assert store.commit([]).durable
    assert store.commit([Write("state", "c", 3)]).durable
    stored = writer(tmp_path).open()["state"]
    assert (stored["a"], stored["b"], stored["c"]) == (1, "y" * 200, 3)


def test_a_file_that_somebody_changed_is_written_anew(tmp_path: Path) -> None:
    store, _, _ = failing(tmp_path)
    store.commit([Write("state", "a", 1)])
    with open(tmp_path / "waiting.jsonl", "ab") as file:
        file.write(b"{")
    store.commit([Write("state", "b", 2)])
    (tmp_path / "waiting.jsonl").rename(tmp_path / "moved")
    assert read_waiting(str(tmp_path / "moved"))[1] == ""
    assert store.commit([Write("state", "c", 3)]).durable
    assert {write.key for each in waiting(tmp_path) for write in each.writes} == {"a", "b", "c"}


class Slow:
    """A worker whose task is as old as it is told, and never done."""

    def __init__(self) -> None:
        self.age = 0.0

    def submit(self, job: Callable[[], Any]) -> Any:
        return SimpleNamespace(done=lambda: False, age_s=lambda: self.age)

    def wait(self, task: Any, timeout_s: float) -> bool:
        return bool(task.done())


def test_only_a_task_older_than_the_wait_is_a_disk_that_does_not_answer(tmp_path: Path) -> None:
    store, worker, clock = failing(tmp_path)
    store.commit([Write("state", "a", 1)])
    clock.advance(FIRST_RETRY_S)
    slow = Slow()
    store._worker = slow
    assert store.commit([]).problem == worker.error
    slow.age = COMMIT_S
    assert "does not answer" in store.commit([]).problem
    store._worker, store._task = worker, None


def test_a_write_in_parts_is_gone_on_with(tmp_path: Path) -> None:
    written: list[bytes] = []

    def few(_: int, data: bytes) -> int:
        written.append(data[:3])
        return len(data[:3])

    write_all(1, b"0123456789", few)
    assert b"".join(written) == b"0123456789"
    with pytest.raises(OSError, match="No space"):
        write_all(1, b"x", lambda _, data: 0)


def test_room_that_was_kept_aside_is_given_when_run_is_full(tmp_path: Path) -> None:
    file = WaitingFile(str(tmp_path / "waiting.jsonl"))
    file.reserve()
    room = tmp_path / "waiting.jsonl.room"
    assert room.stat().st_blocks * 512 >= 1 << 20
    rewrite, tries = file._rewrite, []

    def full_once(transactions: Any) -> None:
        tries.append(room.exists())
        if room.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        rewrite(transactions)

    file._rewrite = full_once  # type: ignore[method-assign]  # /run can't be filled in a unit test
    file.keep([Transaction(1, (Write("state", "a", 1),))])
    assert tries == [True, False]
    assert len(waiting(tmp_path)) == 1


@pytest.mark.parametrize(
    "bad", [b"{}", b"\xff\xfe", b"[" * 100_000, b'{"number": 2, "writes": [["none", "a", 1]]}', b'{"number": "2"}', b""]
)
def test_a_bad_line_is_told_and_passed_over(tmp_path: Path, bad: bytes) -> None:
    filled(tmp_path)
    lines = [
        b'{"number": 2, "writes": [["state", "a", 1]]}',
        bad,
        b'{"number": 4, "writes": [["state", "b", 2]]}',
        b"",
    ]
    (tmp_path / "waiting.jsonl").write_bytes(b"\n".join(lines))
    store = writer(tmp_path)
    stored, log = start(store)
    assert (stored.state["a"], stored.state["b"]) == (1, 2)
    assert "line 2" in log[0]
    assert not store.failing
    assert (tmp_path / "waiting.jsonl.broken").read_bytes().split(b"\n")[1] == bad
    assert not (tmp_path / "waiting.jsonl").exists()


def test_nothing_is_appended_to_a_line_that_was_cut_off(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "waiting.jsonl").write_text('{"number": 2, "writes": [["state", "a", 1]]}\n{"number": 3, "wri')
    with locked(tmp_path):
        store = writer(tmp_path)
        store.open()
        assert store.commit([Write("state", "b", 2)]).durable
    stored = writer(tmp_path).open()["state"]
    assert (stored["a"], stored["b"]) == (1, 2)


# What can't be encoded


def test_a_lone_surrogate_is_stored(tmp_path: Path) -> None:
    store = writer(tmp_path)
    store.open()
    assert store.commit([Write("state", "a", "b\udcffc")]).durable
    assert writer(tmp_path).open()["state"]["a"] == "b\udcffc"


@pytest.mark.parametrize("write", [Write("state", "a", {1, 2}), Write("state", "\udcff", 1), Write("none", "a", 1)])
def test_a_transaction_that_cant_be_encoded_is_left_out_and_told(tmp_path: Path, write: Write) -> None:
    store = writer(tmp_path)
    store.open()
    done = store.commit([Write("state", "same", 1), write])
    assert not done.durable
    assert "left out" in done.problem
    assert store.commit([Write("state", "b", 2)]).durable
    stored = read_documents(str(tmp_path / "state.db"))["state"]
    assert stored["b"] == 2
    assert "same" not in stored


def test_apply_rolls_back_whatever_it_was(tmp_path: Path) -> None:
    database = _database(tmp_path)
    broken: Any = (Write("state", "a", 1), None)
    with pytest.raises(StoreError):
        database.apply([Transaction(1, broken)])
    database.apply([Transaction(1, (Write("state", "b", 1),))])
    assert "a" not in database.read()["state"]


# What people see


def test_the_verbs_show_what_waits_in_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path)
    entry = {
        "key": "h#9/ops",
        "channel": "ops",
        "message": {"title": "GPU is hot", "lines": [], "severity": "critical", "tone": "firing"},
        "created_utc_s": 1.0,
    }
    lines = [{"number": 1, "writes": [["spool", "old", None]]}, {"number": 9, "writes": [["spool", "h#9/ops", entry]]}]
    (tmp_path / "waiting.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = sorted(path.name for path in tmp_path.iterdir())
    where = ["--state-dir", str(tmp_path), "--run-dir", str(tmp_path)]
    assert main(["alert", "queue", *where]) == 0
    assert "GPU is hot" in capsys.readouterr().out
    assert main(["incident", "list", *where]) == 0
    assert before == [name for name in sorted(os.listdir(tmp_path)) if not name.endswith(("-wal", "-shm"))]
