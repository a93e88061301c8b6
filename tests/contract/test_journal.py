"""Journal: what callers may rely on, of the stand-in and of real journal files both ways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Optional

import pytest

from gpuwatch.sources.journal import JournalSource
from tests.conftest import refuse
from tests.contract.journal_worlds import (
    BOOT,
    NEXT_BOOT,
    XID,
    RealWorld,
    SimulatedWorld,
    World,
    collect,
    kernel,
    texts,
)
from tests.lab.journal_files import why_no_journal_remote


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
