"""The reader of the journal as a process: a disk that hangs, files that break, a child that is killed (S7, S8)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Optional

import pytest

from gpuwatch.system.child import JsonChild
from gpuwatch.system.journal_client import JournalClient, start_child
from gpuwatch.system.protocols import Interest, JournalBatch
from tests.conftest import refuse
from tests.contract.journal_worlds import KERNEL, HandClock, texts
from tests.lab.journal_files import Value, entry, why_no_journal_remote, write_journal
from tests.lab.slow_disk import SlowDisk, why_no_slow_disk
from tests.lab.waiting import wait_for

BOOT = "b" * 32
START_US = 1_764_500_000_000_000


def lines(count: int, since: int = 0, text: str = "line") -> list[dict[str, Value]]:
    return [
        entry({**KERNEL, "MESSAGE": f"{text} {number}"}, START_US + number, 1_000_000 + number, BOOT)
        for number in range(since, since + count)
    ]


def is_gone(pid: int) -> bool:
    """No such process, or a zombie that a test left to the kernel."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class Host:
    """A directory with a journal, and a client that is at its beginning."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "system.journal"
        self.clock = HandClock()
        self.started: list[JsonChild] = []
        self.clients: list[JournalClient] = []
        write_journal(self.file, lines(1))
        first = JournalClient("", self.clock, path=str(folder))
        self.cursor = first.read(10, 1.0).cursor
        first.close()
        self.client = self.client_of(folder)

    def client_of(self, folder: Path) -> JournalClient:
        def start() -> JsonChild:
            self.started.append(start_child())
            return self.started[-1]

        self.clients.append(JournalClient(self.cursor, self.clock, path=str(folder), start=start))
        return self.clients[-1]

    def write(self, count: int, since: int = 1, text: str = "line") -> None:
        write_journal(self.file, lines(count, since, text))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    refuse(why_no_journal_remote())
    folder = tmp_path / "journal"
    folder.mkdir()
    host = Host(folder)
    yield host
    for client in host.clients:
        client.close()
    for child in host.started:
        wait_for(partial(is_gone, child.pid), what="no child is left behind")


def collect(client: JournalClient, count: int) -> list[Optional[str]]:
    """Reads until that many have come."""
    read: list[Optional[str]] = []

    def enough() -> bool:
        batch = client.read(100, 1.0)
        read.extend(texts(batch.entries))
        return len(read) >= count

    wait_for(enough, what=f"{count} entries")
    return read


def test_a_disk_that_hangs_stops_nothing_but_the_child(host: Host, tmp_path: Path) -> None:
    refuse(why_no_slow_disk())
    host.write(3)
    with SlowDisk(host.folder, tmp_path / "mount") as disk:
        disk.say("hang")
        client = host.client_of(disk.mount)
        began = time.monotonic()
        assert client.read(100, 0.1) == JournalBatch(cursor=host.cursor)
        assert time.monotonic() - began < 5.0
        for _ in range(5):  # what is not answered is not waited for again
            began = time.monotonic()
            client.read(100, 5.0)
            assert time.monotonic() - began < 1.0
            host.clock.tick(1.0)
        assert client.read(100, 0.1).problem == "the journal has not answered for 5 s; its disk may hang"
        disk.say("go")
        assert collect(client, 3) == ["line 1", "line 2", "line 3"]
        assert client.read(100, 1.0).problem == ""
        assert len(host.started) == 1
        client.close()


def test_a_child_that_hangs_for_long_is_replaced_once_it_is_gone(host: Host, tmp_path: Path) -> None:
    refuse(why_no_slow_disk())
    host.write(3)
    with SlowDisk(host.folder, tmp_path / "mount") as disk:
        disk.say("hang")
        client = host.client_of(disk.mount)
        client.read(100, 0.1)
        host.clock.tick(61.0)
        for _ in range(3):  # it gets SIGKILL, but can't die in the kernel
            assert "has not answered for 61 s" in client.read(100, 0.1).problem
        assert host.started[0].alive() and len(host.started) == 1
        disk.say("go")
        wait_for(lambda: "signal 9" in client.read(100, 0.1).problem)
        host.clock.tick(1.1)
        assert collect(client, 3) == ["line 1", "line 2", "line 3"]
        assert len(host.started) == 2
        client.close()


def test_closing_does_not_wait_for_a_disk_that_hangs(host: Host, tmp_path: Path) -> None:
    refuse(why_no_slow_disk())
    with SlowDisk(host.folder, tmp_path / "mount") as disk:
        disk.say("hang")
        client = host.client_of(disk.mount)
        client.read(100, 0.1)
        began = time.monotonic()
        client.close()
        assert time.monotonic() - began < 5.0
        assert os.path.exists(f"/proc/{host.started[0].pid}"), "what can't die is left behind"
        disk.say("go")


def test_a_file_that_is_cut_off_under_the_reader_costs_the_child_only(host: Host) -> None:
    """Touching a mapped page beyond the end of a file, or on a disk with errors, is SIGBUS."""
    for number in range(40):
        write_journal(host.file, lines(10, 1 + 10 * number, os.urandom(3000).hex()))
    assert len(host.client.read(1, 1.0).entries) == 1
    os.truncate(host.file, 200_000)
    wait_for(lambda: "signal 7" in host.client.read(1000, 1.0).problem)
    assert host.client.fds() == ()
    for _ in range(5):
        assert host.client.read(1000, 1.0).problem
    assert len(host.started) == 1, "it is started again after a pause"
    host.file.unlink()
    write_journal(host.file, lines(3, 5000))
    host.clock.tick(1.1)
    batch = wait_for(lambda: [batch for batch in [host.client.read(100, 1.0)] if batch.entries])[0]
    assert "missing" in batch.gap and texts(batch.entries) == ["line 5000", "line 5001", "line 5002"]


def test_a_killed_child_costs_no_entry_and_brings_none_twice(host: Host) -> None:
    host.write(5)
    read = texts(host.client.read(2, 1.0).entries)
    for _ in range(3):
        assert host.client.pid is not None
        os.kill(host.client.pid, signal.SIGKILL)
        wait_for(lambda: "signal 9" in host.client.read(1, 0.2).problem)
        host.clock.tick(61.0)
        read += texts(host.client.read(1, 1.0).entries)
    assert read == [f"line {number}" for number in range(1, 6)]


def test_only_what_is_of_interest_wakes(host: Host) -> None:
    host.client.watch(Interest(("train@*.service",)))
    host.client.read(10, 1.0)
    assert host.started[0].wait_readable(0.3) is False
    chatter = {"MESSAGE": "GET /", "_TRANSPORT": "stdout", "_SYSTEMD_UNIT": "web.service"}
    write_journal(host.file, [entry(chatter, START_US + 50, 2_000_000, BOOT)] * 20)
    assert host.started[0].wait_readable(0.5) is False
    host.write(1, 100)
    assert host.started[0].wait_readable(5.0) is True
    assert texts(host.client.read(10, 1.0).entries) == ["line 100"]


def test_a_large_batch_comes_whole(host: Host) -> None:
    host.write(9000)
    assert collect(host.client, 9000) == [f"line {number}" for number in range(1, 9001)]


def test_what_must_be_escaped_does_not_swell_beyond_bounds(host: Host) -> None:
    """A control character takes six bytes in JSON, and a user may print nothing else."""
    host.write(900, text="\x01" * 15_000)
    assert len(collect(host.client, 900)) == 900
    assert len(host.started) == 1


def test_an_answer_that_never_ended_is_forgotten(host: Host) -> None:
    children = iter(["tests.fakes.half_journal", "gpuwatch.system.journal_child"])
    host.write(2)
    client = JournalClient(host.cursor, host.clock, path=str(host.folder), start=lambda: JsonChild(next(children)))
    host.clients.append(client)
    wait_for(lambda: "ended" in client.read(100, 0.2).problem)
    host.clock.tick(1.1)
    assert collect(client, 2) == ["line 1", "line 2"]


def test_a_child_that_can_not_be_started_is_told(host: Host) -> None:
    def broken() -> JsonChild:
        raise OSError(12, "Cannot allocate memory")

    client = JournalClient("", host.clock, start=broken)
    assert "can't be started: Cannot allocate memory" in client.read(10, 1.0).problem
    assert client.fds() == ()
    client.close()
