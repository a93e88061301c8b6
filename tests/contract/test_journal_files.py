"""The journal adapter on real files: gaps, damage, rotation, silence, and what journal fields may hold."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest

from gpuwatch.system.journal import SystemJournal
from gpuwatch.system.journal_tape import open_reader
from gpuwatch.system.protocols import Interest
from tests.conftest import refuse
from tests.contract.journal_worlds import (
    BOOT,
    KERNEL,
    HandClock,
    RealWorld,
    collect,
    kernel,
    prints,
    texts,
)
from tests.lab.journal_files import LiveJournal, entry, why_no_journal_remote


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealWorld]:
    refuse(why_no_journal_remote())
    world = RealWorld(tmp_path)
    try:
        yield world
    finally:
        world.close()


def test_gap_names_its_bounds(real: RealWorld) -> None:  # J2
    journal = real.reader()
    journal.read(10, 1.0)
    kernel(real, "read")
    cursor = collect(journal, "read").cursor
    real.vacuum()
    real.clock.tick(3600.0)
    kernel(real, "later")
    real.files.close()
    gap = collect(real.reader(cursor), "later").gap
    assert "from 2025-11-30 10:53:20 UTC to 2025-11-30 11:53:20 UTC" in gap


def test_gap_with_nothing_left(real: RealWorld) -> None:
    journal = real.reader()
    journal.read(10, 1.0)
    kernel(real, "read")
    cursor = collect(journal, "read").cursor
    real.vacuum()
    journal = real.reader(cursor)
    assert "after 2025-11-30 10:53:20 UTC" in journal.read(10, 1.0).gap
    kernel(real, "later")
    assert texts(collect(journal, "later").entries) == ["later"]


def test_unreadable_cursor_goes_to_the_tail_with_a_gap(real: RealWorld) -> None:
    kernel(real, "old")
    real.files.close()
    journal = SystemJournal("no cursor", real.clock, path=real.files.directory)
    batch = journal.read(10, 1.0)
    assert batch.entries == () and "can't be read" in batch.gap and batch.problem == "" and batch.cursor
    journal.close()


def test_bytes_lists_and_long_fields(real: RealWorld) -> None:  # J9
    journal = real.reader()
    journal.read(10, 1.0)
    kernel(real, "x", MESSAGE=b"bad \xff\x00 bytes")
    kernel(real, "x", MESSAGE="y" * 200_000)
    kernel(real, "two", PRIORITY=["3", "4"], UNUSED="1")
    kernel(real, "two\nlines")
    bad, long, repeated, lines = collect(journal, "two\nlines").entries
    assert bad.fields["MESSAGE"] == "bad \ufffd\x00 bytes"
    assert 10_000 < len(long.fields["MESSAGE"]) <= 16_384
    assert repeated.fields["PRIORITY"] == "3" and "UNUSED" not in repeated.fields
    assert lines.fields["MESSAGE"] == "two\nlines"


@pytest.mark.parametrize("damage", ["empty", "truncated", "no header", "zeros"])
def test_damaged_file_does_not_stop_the_others(real: RealWorld, damage: str) -> None:  # J8
    journal = real.reader()
    first = journal.read(10, 1.0)
    kernel(real, "in the damaged file")
    collect(real.reader(first.cursor), "in the damaged file")
    journal.close()
    archive = real.files.rotate()
    data = Path(archive).read_bytes()
    Path(archive).write_bytes(
        {
            "empty": b"",
            "truncated": data[:100_000],
            "no header": b"\xff" * 300 + data[300:],
            "zeros": data[:300] + bytes(len(data) - 300),
        }[damage]
    )
    kernel(real, "in the good file")
    batch = collect(real.reader(first.cursor), "in the good file")
    assert texts(batch.entries)[-1] == "in the good file"
    assert "missing" in batch.gap


def test_named_files_with_a_damaged_one(real: RealWorld, tmp_path: Path) -> None:  # J8
    kernel(real, "good")
    real.files.close()
    bad = tmp_path / "bad.journal"
    bad.write_bytes(b"no journal")
    journal = SystemJournal("", real.clock, files=[str(bad), real.files.active])
    batch = journal.read(10, 1.0)
    assert batch.problem == "" and batch.cursor and journal.skipped == 2  # by each of the two handles
    journal.close()


def test_failures_are_told_and_tried_again_with_back_off(tmp_path: Path) -> None:  # J7, J8
    refuse(why_no_journal_remote())
    clock = HandClock()
    missing = tmp_path / "not there yet"
    journal = SystemJournal("", clock, path=str(missing))
    assert journal.fds() == ()
    assert "No such file" in journal.read(10, 1.0).problem
    clock.tick(0.5)
    assert journal.read(10, 1.0).problem  # not tried again, and not forgotten
    missing.mkdir()
    files = LiveJournal(missing)
    for text in ("before the journal came", "after it came"):
        clock.tick(2.0)
        now = clock.now()
        files.append(entry({**KERNEL, "MESSAGE": text}, round(now.utc_s * 1e6), round(now.boottime_s * 1e6), BOOT))
    files.close()
    # What was logged since this reader was made is news, though it was not there at first.
    assert texts(collect(journal, "after it came").entries) == ["before the journal came", "after it came"]
    assert journal.fds() != ()
    journal.close()


class Sick:
    """A real reader with something wrong."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.deaf = False  # its files are no longer those of the journal
        self.broken = False  # every step fails
        self.bad_entries = 0  # so many entries can't be read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def process(self) -> int:
        return 0

    def _next(self) -> bool:
        if self.broken:
            raise OSError(errno.EBADMSG, "Bad message")
        return not self.deaf and bool(self._reader._next())

    def _get_all(self) -> Any:
        if self.bad_entries:
            self.bad_entries -= 1
            raise OSError(errno.EBADMSG, "Bad message")
        return self._reader._get_all()


def sick_journal(real: RealWorld) -> tuple[SystemJournal, list[Sick]]:
    kernel(real, "old")
    real.files.close()
    made: list[Sick] = []

    def opener(path: Optional[str], files: object) -> Sick:
        made.append(Sick(open_reader(path, None)))
        return made[-1]

    journal = SystemJournal("", real.clock, path=real.files.directory, opener=opener)
    journal.read(10, 1.0)
    return journal, made


def test_reader_that_went_deaf_is_replaced(real: RealWorld) -> None:  # J5
    journal, made = sick_journal(real)
    made[0].deaf = True
    kernel(real, "unheard")
    real.files.close()
    assert journal.read(10, 1.0).entries == ()
    real.clock.tick(61.0)
    assert texts(collect(journal, "unheard").entries) == ["unheard"]
    assert len(made) == 4  # both handles
    journal.close()


def test_reader_that_fails_is_told_and_opened_anew_with_back_off(real: RealWorld) -> None:  # J7, J8
    journal, made = sick_journal(real)
    kernel(real, "news")
    real.files.close()
    for reader in made:
        reader.broken = True
    assert "Bad message" in journal.read(10, 1.0).problem
    assert journal.fds() == ()  # nothing left that could wake the loop without end
    for _ in range(5):
        assert "Bad message" in journal.read(10, 1.0).problem
    assert len(made) == 2
    real.clock.tick(1.1)
    assert texts(collect(journal, "news").entries) == ["news"]
    journal.close()


def test_entry_that_can_not_be_read_is_skipped_and_counted(real: RealWorld) -> None:  # J8
    journal, made = sick_journal(real)
    for text in ("damaged", "whole"):
        kernel(real, text)
    real.files.close()
    made[0].bad_entries = 1
    assert texts(collect(journal, "whole").entries) == ["whole"]
    assert journal.skipped == 1
    journal.close()


def test_deleted_files_are_let_go(real: RealWorld) -> None:  # J4
    journal = real.reader()
    journal.read(10, 1.0)
    kernel(real, "one")
    collect(journal, "one")
    real.vacuum()
    real.clock.tick(2.0)
    kernel(real, "two")
    collect(journal, "two")
    # A mapped file has no descriptor any more, so the maps tell.
    held = {line.split(None, 5)[-1].strip() for line in Path("/proc/self/maps").read_text().splitlines()}
    held |= {os.readlink(entry) for entry in os.scandir("/proc/self/fd") if os.path.islink(entry)}
    assert [path for path in held if path.endswith("(deleted)") and ".journal" in path] == []
    journal.close()


def test_fd_becomes_readable(real: RealWorld) -> None:  # J6
    journal = real.reader()
    journal.read(10, 1.0)
    poll = select.poll()
    for fd in journal.fds():
        poll.register(fd, select.POLLIN)
    while poll.poll(0):
        journal.read(10, 1.0)
    kernel(real, "news")
    assert poll.poll(5000)
    assert texts(collect(journal, "news").entries) == ["news"]


def test_deadline_bounds_a_read(real: RealWorld) -> None:
    journal = real.reader()
    cursor = journal.read(10, 1.0).cursor
    for number in range(5):
        kernel(real, f"line {number}")
    collect(real.reader(cursor), "line 4")

    class Racing(HandClock):
        def monotonic(self) -> float:
            self.boottime_s += 0.3
            return self.boottime_s

    hurried = SystemJournal(cursor, Racing(), path=real.files.directory)
    batch = hurried.read(100, 1.0)
    assert batch.more and 0 < len(batch.entries) < 5
    hurried.close()


def chatter(real: RealWorld, count: int) -> None:
    for number in range(count):
        prints(real, "web.service", f"GET /{number}")


def test_chatter_does_not_move_what_is_stored(real: RealWorld) -> None:
    """Each move of the cursor is a write to the disk, and a host may log without pause."""
    journal = real.reader()
    cursor = journal.read(10, 1.0).cursor
    chatter(real, 50)
    real.files.close()
    batch = journal.read(10, 1.0)
    assert (batch.entries, batch.more, batch.cursor) == ((), False, cursor) and journal.passed == 50
    real.clock.tick(61.0)
    assert journal.read(10, 1.0).cursor != cursor


def test_a_quiet_kernel_under_a_chatty_host_is_no_gap(real: RealWorld) -> None:  # J2
    journal = real.reader()
    journal.read(10, 1.0)
    kernel(real, "the last word for weeks")
    collect(journal, "the last word for weeks")
    real.files.rotate()
    chatter(real, 5)
    real.files.close()
    real.clock.tick(61.0)
    for _ in range(3):
        cursor = journal.read(10, 1.0).cursor
        real.clock.tick(61.0)
    for name in os.listdir(real.files.directory):
        if "@" in name:
            os.unlink(os.path.join(real.files.directory, name))
    batch = SystemJournal(cursor, real.clock, path=real.files.directory).read(10, 1.0)
    assert (batch.gap, batch.entries) == ("", ())


def test_kernel_lines_do_not_wait_behind_a_backlog_of_output(real: RealWorld) -> None:
    journal = real.reader()
    cursor = journal.read(10, 1.0).cursor
    chatter(real, 2000)
    kernel(real, "news")
    chatter(real, 100)
    prints(real, "train@a.service", "printed")
    real.files.close()

    class Racing(HandClock):
        def monotonic(self) -> float:
            self.boottime_s += 0.05  # a machine on which sixteen entries take this long
            return self.boottime_s

    late = SystemJournal(cursor, Racing(), Interest(("train@*.service",)), path=real.files.directory)
    batch = late.read(100, 0.4)
    assert texts(batch.entries) == ["news"] and batch.more and 0 < late.passed < 200
    read = [batch]
    while read[-1].more:
        read.append(late.read(100, 0.4))
    assert [text for batch in read for text in texts(batch.entries)] == ["news", "printed"]
    assert late.passed == 2101  # the kernel's line is passed over as well: the other handle has it
    late.close()


def test_a_storm_of_long_lines_is_bounded_in_bytes(real: RealWorld) -> None:
    journal = real.reader()
    cursor = journal.read(10, 1.0).cursor
    for number in range(700):
        kernel(real, f"{number} " + "y" * 15_000)
    real.files.close()
    resumed = SystemJournal(cursor, real.clock, path=real.files.directory)
    batch = resumed.read(20_000, 10.0)
    assert batch.more and 200 < len(batch.entries) < 350
    count = len(batch.entries)
    while batch.more:
        batch = resumed.read(20_000, 10.0)
        count += len(batch.entries)
    assert count == 700
    resumed.close()


def test_parts_that_stay_alone_come_after_a_while(real: RealWorld) -> None:  # J12
    journal = real.reader()
    journal.watch(Interest(containers=("*",)))
    journal.read(10, 1.0)
    prints(real, "docker.service", "only half", CONTAINER_NAME="a", CONTAINER_PARTIAL_MESSAGE="true")
    real.files.close()
    assert journal.read(10, 1.0).entries == ()
    real.clock.tick(5.1)
    assert texts(journal.read(10, 1.0).entries) == ["only half"]


def test_many_parts_are_bounded(real: RealWorld) -> None:  # J12
    journal = real.reader()
    journal.watch(Interest(containers=("*",)))
    journal.read(10, 1.0)
    part = {"CONTAINER_NAME": "a", "CONTAINER_PARTIAL_ID": "1"}
    for _ in range(20):
        prints(real, "docker.service", "y" * 16_000, **part, CONTAINER_PARTIAL_MESSAGE="true")
    prints(real, "docker.service", "", **part, CONTAINER_PARTIAL_LAST="true")
    for number in range(70):
        more = {"CONTAINER_NAME": "a", "CONTAINER_PARTIAL_ID": f"n{number}", "CONTAINER_PARTIAL_MESSAGE": "true"}
        prints(real, "docker.service", f"lonely {number}", **more)
    real.files.close()
    long, *lonely = journal.read(1000, 1.0).entries
    assert len(long.fields["MESSAGE"]) == 65_536
    assert texts(lonely) == [f"lonely {number}" for number in range(6)]  # sixty-four are waited for
