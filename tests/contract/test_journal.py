"""Journal: what callers may rely on, of the stand-in and of real journal files both ways."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional, Protocol

import pytest

from gpuwatch.model.instant import Instant
from gpuwatch.simulation.journal import SimulatedJournal
from gpuwatch.sources.journal import JournalSource
from gpuwatch.system.journal import SystemJournal, open_reader
from gpuwatch.system.protocols import Journal, JournalBatch, JournalEntry
from tests.conftest import refuse
from tests.lab.journal_files import LiveJournal, Value, entry, why_no_journal_remote

BOOT, NEXT_BOOT = "b" * 32, "c" * 32
XID = "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."
KERNEL = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel", "PRIORITY": "3"}


class HandClock:
    """Moves when told."""

    def __init__(self) -> None:
        self.boot, self.boottime_s, self.utc_s = BOOT, 1000.0, 1_764_500_000.0

    def now(self) -> Instant:
        return Instant(self.boot, self.boottime_s, self.utc_s)

    def monotonic(self) -> float:
        return self.boottime_s

    def tick(self, seconds: float = 1.0) -> None:
        self.boottime_s += seconds
        self.utc_s += seconds

    def reboot(self) -> None:
        self.boot, self.boottime_s = NEXT_BOOT, 5.0
        self.utc_s += 60.0


class World(Protocol):
    """A host that logs."""

    clock: HandClock

    def write(self, fields: dict[str, Value]) -> None: ...
    def vacuum(self) -> None: ...
    def rotate(self) -> None: ...
    def journal(self, cursor: str = "") -> Journal: ...


class SimulatedWorld:
    def __init__(self) -> None:
        self.clock = HandClock()
        self._host = SimulatedJournal(self.clock)

    def write(self, fields: dict[str, Value]) -> None:
        self.clock.tick(0.001)
        self._host.write({name: str(value) for name, value in fields.items()})

    def vacuum(self) -> None:
        self._host.vacuum()

    def rotate(self) -> None:
        pass

    def journal(self, cursor: str = "") -> Journal:
        return SimulatedJournal(self.clock, cursor, self._host.world)


class RealWorld:
    def __init__(self, directory: Path) -> None:
        self.clock = HandClock()
        self.files = LiveJournal(directory)
        self._journals: list[SystemJournal] = []
        # A host's journal is never empty: the manager and journald speak first.
        self.write({"MESSAGE": "Journal started", "_TRANSPORT": "driver"})

    def write(self, fields: dict[str, Value]) -> None:
        self.clock.tick(0.001)
        now = self.clock.now()
        self.files.append(entry(fields, round(now.utc_s * 1e6), round(now.boottime_s * 1e6), now.boot_id))

    def vacuum(self) -> None:
        self.files.vacuum()

    def rotate(self) -> None:
        self.files.rotate()

    def journal(self, cursor: str = "") -> SystemJournal:
        if not cursor:
            self.files.close()  # what was written before must be in the file before its tail is looked for
        journal = SystemJournal(cursor, self.clock, path=self.files.directory)
        self._journals.append(journal)
        return journal

    def close(self) -> None:
        for journal in self._journals:
            journal.close()
        self.files.close()


@pytest.fixture(params=["simulated", "real"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "simulated":
        yield SimulatedWorld()
        return
    refuse(why_no_journal_remote())
    real = RealWorld(tmp_path)
    try:
        yield real
    finally:
        real.close()


def kernel(world: World, text: str, **fields: Value) -> None:
    world.write({**KERNEL, "MESSAGE": text, **fields})


def collect(journal: Journal, last: str, limit: int = 100) -> JournalBatch:
    """Everything up to the entry with this text, as one batch; a file is written some time after it was asked for."""
    entries: list[JournalEntry] = []
    gap, deadline = "", time.monotonic() + 10.0
    while not any(entry.fields.get("MESSAGE") == last for entry in entries):
        assert time.monotonic() < deadline, f"{last!r} did not come; read {texts(entries)}"
        batch = journal.read(limit, 1.0)
        assert batch.problem == ""
        entries += batch.entries
        gap = gap or batch.gap
        if not batch.entries:
            time.sleep(0.005)
    return JournalBatch(tuple(entries), batch.cursor, batch.more, gap)


def texts(entries: object) -> list[Optional[str]]:
    assert isinstance(entries, (list, tuple))
    return [entry.fields.get("MESSAGE") for entry in entries]


def test_without_a_cursor_reading_starts_at_the_tail(world: World) -> None:  # J1, J3
    kernel(world, "old")
    journal = world.journal()
    first = journal.read(100, 1.0)
    assert (first.entries, first.gap, first.problem, first.more) == ((), "", "", False)
    assert first.cursor  # kept even though nothing was read
    kernel(world, "new")
    batch = collect(journal, "new")
    assert texts(batch.entries) == ["new"]
    assert batch.cursor == batch.entries[-1].cursor != first.cursor


def test_the_tail_cursor_is_a_place_to_resume_at(world: World) -> None:
    kernel(world, "old")
    cursor = world.journal().read(100, 1.0).cursor
    kernel(world, "while away 1")
    kernel(world, "while away 2")
    batch = collect(world.journal(cursor), "while away 2")
    assert texts(batch.entries) == ["while away 1", "while away 2"]
    assert batch.gap == ""


def test_a_tail_that_no_match_selects_is_no_gap(world: World) -> None:
    world.write({"MESSAGE": "chatter", "_TRANSPORT": "stdout", "_PID": "77"})
    cursor = world.journal().read(100, 1.0).cursor
    kernel(world, "news")
    batch = collect(world.journal(cursor), "news")
    assert (texts(batch.entries), batch.gap) == (["news"], "")


def test_resume_gives_each_entry_once(world: World) -> None:
    cursor = world.journal().read(100, 1.0).cursor
    for number in range(7):
        kernel(world, f"line {number}")
    read: list[Optional[str]] = []
    journal = world.journal(cursor)
    read += texts(collect(journal, "line 2", limit=3).entries)
    for _ in range(4):  # each read by a new reader, as after kill -9
        batch = collect(world.journal(cursor), "line 0", limit=1)
        assert texts(batch.entries) == ["line 0"]
    cursor = journal.read(0, 1.0).cursor
    read += texts(collect(world.journal(cursor), "line 6", limit=2).entries)
    assert read == [f"line {number}" for number in range(7)]


def test_limit_says_that_there_is_more(world: World) -> None:
    cursor = world.journal().read(100, 1.0).cursor
    for number in range(5):
        kernel(world, f"line {number}")
    collect(world.journal(cursor), "line 4")
    journal = world.journal(cursor)
    batch = journal.read(3, 1.0)
    assert (texts(batch.entries), batch.more) == (["line 0", "line 1", "line 2"], True)
    batch = journal.read(3, 1.0)
    assert (texts(batch.entries), batch.more) == (["line 3", "line 4"], False)


def test_times_and_boot_belong_to_the_entry(world: World) -> None:
    journal = world.journal()
    journal.read(100, 1.0)
    kernel(world, "first boot")
    before = world.clock.now()
    world.clock.reboot()
    kernel(world, "second boot")
    one, two = collect(journal, "second boot").entries
    assert (one.boot_id, two.boot_id) == (BOOT, NEXT_BOOT)
    assert one.realtime_us == pytest.approx(before.utc_s * 1e6, abs=1)
    assert one.monotonic_us == pytest.approx(before.boottime_s * 1e6, abs=1)
    assert two.monotonic_us < one.monotonic_us


def test_vacuumed_cursor_is_a_gap_told_once(world: World) -> None:  # J2
    journal = world.journal()
    journal.read(100, 1.0)
    kernel(world, "read")
    cursor = collect(journal, "read").cursor
    kernel(world, "never read")
    world.vacuum()
    kernel(world, "after the gap")
    journal = world.journal(cursor)
    batch = collect(journal, "after the gap")
    assert texts(batch.entries) == ["after the gap"]
    assert "missing" in batch.gap
    assert journal.read(100, 1.0).gap == ""


def test_rotation_while_reading_loses_nothing(world: World) -> None:  # J4, J5
    journal = world.journal()
    journal.read(100, 1.0)
    read: list[Optional[str]] = []
    expected = []
    for number in range(4):
        for part in "ab":
            expected.append(f"line {number}{part}")
            kernel(world, expected[-1])
        if number != 2:  # one rotation passes unread
            read += texts(collect(journal, expected[-1]).entries)
        world.rotate()
        world.clock.tick(2.0)
    kernel(world, "the end")
    read += texts(collect(journal, "the end").entries)
    assert read == [*expected, "the end"]


def test_only_trusted_sources_are_read(world: World) -> None:  # S10
    journal = world.journal()
    journal.read(100, 1.0)
    world.write({"MESSAGE": XID, "_TRANSPORT": "syslog", "SYSLOG_IDENTIFIER": "kernel", "SYSLOG_FACILITY": "0"})
    world.write({"MESSAGE": XID, "_TRANSPORT": "journal", "SYSLOG_IDENTIFIER": "kernel", "_PID": "4711"})
    world.write({"MESSAGE": "a.service: Failed with result 'oom-kill'.", "_TRANSPORT": "journal", "_PID": "1"})
    world.write({"MESSAGE": "Suppressed 5 messages from a.service", "_TRANSPORT": "driver"})
    kernel(world, "the end")
    entries = collect(journal, "the end").entries
    assert [entry.fields["_TRANSPORT"] for entry in entries] == ["journal", "driver", "kernel"]


def test_what_users_write_to_the_kernel_log_is_no_kernel_fact(world: World) -> None:  # S10
    journal = world.journal()
    journal.read(100, 1.0)
    kernel(world, XID, SYSLOG_FACILITY="1", SYSLOG_IDENTIFIER="unknown")
    kernel(world, XID, SYSLOG_FACILITY="1")
    kernel(world, XID, SYSLOG_IDENTIFIER="me")
    kernel(world, XID.replace("79", "62"))
    kernel(world, "the end")
    events = JournalSource().events(collect(journal, "the end"), world.clock.now())
    assert [event.fields.get("xid") for event in events] == [62]


def test_source_gives_the_same_events_of_both(world: World) -> None:
    journal = world.journal()
    journal.read(100, 1.0)
    kernel(world, XID)
    world.clock.tick(3.0)
    kernel(world, "the end")
    (event,) = JournalSource().events(collect(journal, "the end"), world.clock.now())
    assert (event.kind, event.fields["xid"], event.fields["pci"], event.fields["class"]) == (
        "xid",
        79,
        "0000:5e:00.0",
        "host_restart",
    )
    assert event.seen.since(event.at) == pytest.approx(3.001, abs=1e-3)
    assert event.source == "journal" and event.text == XID and event.cursor


def test_closed_and_read_again(world: World) -> None:
    journal = world.journal()
    journal.read(100, 1.0)
    kernel(world, "one")
    collect(journal, "one")
    journal.close()
    kernel(world, "two")
    assert texts(collect(journal, "two").entries) == ["two"]


# -- only of real files ----------------------------------------------------------


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealWorld]:
    refuse(why_no_journal_remote())
    world = RealWorld(tmp_path)
    try:
        yield world
    finally:
        world.close()


def test_gap_names_its_bounds(real: RealWorld) -> None:  # J2
    journal = real.journal()
    journal.read(10, 1.0)
    kernel(real, "read")
    cursor = collect(journal, "read").cursor
    real.vacuum()
    real.clock.tick(3600.0)
    kernel(real, "later")
    real.files.close()
    gap = collect(real.journal(cursor), "later").gap
    assert "from 2025-11-30 10:53:20 UTC to 2025-11-30 11:53:20 UTC" in gap


def test_gap_with_nothing_left(real: RealWorld) -> None:
    journal = real.journal()
    journal.read(10, 1.0)
    kernel(real, "read")
    cursor = collect(journal, "read").cursor
    real.vacuum()
    journal = real.journal(cursor)
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
    journal = real.journal()
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
    journal = real.journal()
    first = journal.read(10, 1.0)
    kernel(real, "in the damaged file")
    collect(real.journal(first.cursor), "in the damaged file")
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
    batch = collect(real.journal(first.cursor), "in the good file")
    assert texts(batch.entries)[-1] == "in the good file"
    assert "missing" in batch.gap


def test_named_files_with_a_damaged_one(real: RealWorld, tmp_path: Path) -> None:  # J8
    kernel(real, "good")
    real.files.close()
    bad = tmp_path / "bad.journal"
    bad.write_bytes(b"no journal")
    journal = SystemJournal("", real.clock, files=[str(bad), real.files.active])
    batch = journal.read(10, 1.0)
    assert batch.problem == "" and batch.cursor and journal.skipped == 1
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
    assert len(made) == 2
    journal.close()


def test_reader_that_fails_is_told_and_opened_anew_with_back_off(real: RealWorld) -> None:  # J7, J8
    journal, made = sick_journal(real)
    kernel(real, "news")
    real.files.close()
    made[0].broken = True
    assert "Bad message" in journal.read(10, 1.0).problem
    assert journal.fds() == ()  # nothing left that could wake the loop without end
    for _ in range(5):
        assert "Bad message" in journal.read(10, 1.0).problem
    assert len(made) == 1
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
    journal = real.journal()
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
    import select

    journal = real.journal()
    journal.read(10, 1.0)
    (fd,) = journal.fds()
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while poll.poll(0):
        journal.read(10, 1.0)
    kernel(real, "news")
    assert poll.poll(5000)
    assert texts(collect(journal, "news").entries) == ["news"]


def test_deadline_bounds_a_read(real: RealWorld) -> None:
    journal = real.journal()
    cursor = journal.read(10, 1.0).cursor
    for number in range(5):
        kernel(real, f"line {number}")
    collect(real.journal(cursor), "line 4")

    class Racing(HandClock):
        def monotonic(self) -> float:
            self.boottime_s += 0.3
            return self.boottime_s

    hurried = SystemJournal(cursor, Racing(), path=real.files.directory)
    batch = hurried.read(100, 1.0)
    assert batch.more and 0 < len(batch.entries) < 5
    hurried.close()
