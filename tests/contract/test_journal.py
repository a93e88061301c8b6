"""Journal: what callers may rely on, of the stand-in and of real journal files both ways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Optional

import pytest

from gpuwatch.sources.journal import JournalSource
from gpuwatch.system.protocols import Interest, Journal, JournalBatch
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
    prints,
    texts,
)
from tests.lab.journal_files import why_no_journal_remote


@pytest.fixture(params=["simulated", "real", "behind a child"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "simulated":
        yield SimulatedWorld()
        return
    refuse(why_no_journal_remote())
    real = RealWorld(tmp_path, behind=request.param == "behind a child")
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
    assert batch.cursor != first.cursor
    assert world.journal(batch.cursor).read(100, 1.0).entries == ()


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


def watching(world: World, *units: str, containers: tuple[str, ...] = (), cursor: str = "") -> Journal:
    journal = world.journal(cursor)
    journal.watch(Interest(units, containers))
    journal.read(100, 1.0)
    return journal


def read_all(world: World, journal: Journal) -> JournalBatch:
    kernel(world, "the end")
    return collect(journal, "the end")


def said(batch: JournalBatch) -> list[Optional[str]]:
    """What was printed, without the end mark; handles on the files need not agree on the order between sources."""
    return [text for text in texts(batch.entries) if text != "the end"]


def test_output_of_units_that_are_of_interest_is_read(world: World) -> None:
    journal = watching(world, "train@*.service")
    prints(world, "train@a.service", "CUDA out of memory", _UID="1001")
    prints(world, "web.service", "chatter")
    prints(world, "train@b.service", "NCCL", _TRANSPORT="journal")
    world.write({"MESSAGE": "of no unit", "_TRANSPORT": "stdout", "_PID": "7"})
    batch = read_all(world, journal)
    assert said(batch) == ["CUDA out of memory", "NCCL"]
    entry = next(entry for entry in batch.entries if entry.fields["MESSAGE"] == "CUDA out of memory")
    assert entry.fields["_SYSTEMD_UNIT"] == "train@a.service" and entry.cursor and entry.boot_id == BOOT


def test_what_is_of_interest_may_change(world: World) -> None:
    journal = watching(world, "train@*.service")
    prints(world, "web.service", "unheard")
    assert said(read_all(world, journal)) == []
    journal.watch(Interest(("web.service",)))
    read_all(world, journal)  # it counts from the next read on
    prints(world, "web.service", "heard")
    prints(world, "train@a.service", "unheard")
    kernel(world, "the very end")
    assert sorted(str(text) for text in texts(collect(journal, "the very end").entries)) == ["heard", "the very end"]


def test_output_is_no_fact_of_kernel_or_manager(world: World) -> None:  # S10
    journal = watching(world, "*.service", "init.scope")
    prints(world, "train@a.service", XID, SYSLOG_IDENTIFIER="kernel", SYSLOG_FACILITY="0")
    prints(world, "train@a.service", "a.service: Failed with result 'oom-kill'.", SYSLOG_IDENTIFIER="systemd")
    batch = read_all(world, journal)
    assert len(said(batch)) == 2
    kinds = {event.kind for event in JournalSource().events(batch, world.clock.now())}
    assert not kinds & {"xid", "unit_failed", "unit_oom"}


def test_each_entry_comes_once_though_two_could_give_it(world: World) -> None:
    journal = watching(world, "*")
    world.write({"MESSAGE": "manager", "_TRANSPORT": "journal", "_PID": "1", "_SYSTEMD_UNIT": "init.scope"})
    world.write({"MESSAGE": "journald", "_TRANSPORT": "driver", "_SYSTEMD_UNIT": "systemd-journald.service"})
    assert sorted(str(text) for text in said(read_all(world, journal))) == ["journald", "manager"]


def test_container_runtimes_own_lines_are_read(world: World) -> None:
    journal = watching(world)
    prints(world, "docker.service", "Daemon has completed initialization")
    prints(world, "docker.service", "a line of a container", CONTAINER_NAME="trainer-1", CONTAINER_ID="0123456789ab")
    prints(world, "containerd.service", "containerd successfully booted")
    texts = ["Daemon has completed initialization", "containerd successfully booted"]
    assert said(read_all(world, journal)) == texts


def test_lines_of_containers_that_are_of_interest_are_read(world: World) -> None:
    journal = watching(world, containers=("trainer-*",))
    prints(world, "docker.service", "yes", CONTAINER_NAME="trainer-1", CONTAINER_ID="0123456789ab")
    prints(world, "docker.service", "no", CONTAINER_NAME="web", CONTAINER_ID="ba9876543210")
    prints(world, "libpod-conmon-0123.scope", "yes too", CONTAINER_NAME="trainer-2", CONTAINER_ID_FULL="0" * 64)
    prints(world, "trainer-3.service", "a quadlet", CONTAINER_NAME="trainer-3")
    prints(world, "trainer-3.service", "its unit is not")
    assert said(read_all(world, journal)) == ["yes", "yes too", "a quadlet"]


def test_parts_of_a_line_are_joined(world: World) -> None:  # J12
    journal = watching(world, containers=("*",))
    part = {"CONTAINER_NAME": "a", "CONTAINER_ID_FULL": "a" * 64, "CONTAINER_PARTIAL_ID": "9f"}
    for ordinal, text in enumerate(("RuntimeError: CUDA out ", "of mem")):
        prints(
            world, "docker.service", text, **part, CONTAINER_PARTIAL_MESSAGE="true", CONTAINER_PARTIAL_ORDINAL=ordinal
        )
    prints(world, "docker.service", "of another", CONTAINER_NAME="b", CONTAINER_ID_FULL="b" * 64)
    first = read_all(world, journal)
    assert said(first) == ["of another"]
    prints(world, "docker.service", "ory", **part, CONTAINER_PARTIAL_ORDINAL="3", CONTAINER_PARTIAL_LAST="true")
    kernel(world, "the very end")
    (line,) = [
        entry
        for entry in collect(journal, "RuntimeError: CUDA out of memory").entries
        if "_SYSTEMD_UNIT" in entry.fields
    ]
    assert not [name for name in line.fields if "PARTIAL" in name] and line.fields["CONTAINER_NAME"] == "a"


def test_a_resumed_reader_gives_output_once(world: World) -> None:
    journal = watching(world, "train@*.service")
    prints(world, "train@a.service", "one")
    cursor = read_all(world, journal).cursor
    prints(world, "train@a.service", "two")
    resumed = world.journal(cursor)
    resumed.watch(Interest(("train@*.service",)))
    assert texts(collect(resumed, "two").entries) == ["two"]


def test_a_cursor_of_one_position_is_taken(world: World) -> None:
    kernel(world, "old")
    journal = watching(world)
    kernel(world, "marked")
    (entry,) = collect(journal, "marked").entries
    prints(world, "docker.service", "printed")
    kernel(world, "later")
    read = texts(collect(world.journal(entry.cursor), "later").entries)
    assert sorted(str(text) for text in read) == ["later", "printed"]


def test_clock_set_back_an_hour_hides_nothing(world: World) -> None:  # J13
    journal = watching(world, "train@*.service")
    kernel(world, "before")
    cursor = collect(journal, "before").cursor
    world.clock.utc_s -= 3600.0
    kernel(world, "after")
    prints(world, "train@a.service", "printed after")
    read = said(read_all(world, journal))
    assert sorted(str(text) for text in read) == ["after", "printed after"]
    again = world.journal(cursor)
    again.watch(Interest(("train@*.service",)))
    assert sorted(str(text) for text in said(collect(again, "printed after"))) == ["after", "printed after"]


def test_two_boots_with_the_clock_behind_after_the_second(world: World) -> None:  # J1, J13
    journal = watching(world)
    kernel(world, "first boot")
    cursor = collect(journal, "first boot").cursor
    kernel(world, "first boot, unread")
    world.clock.reboot()
    world.clock.utc_s -= 7200.0  # no battery: right only when NTP comes
    kernel(world, XID)
    kernel(world, "second boot")
    batch = collect(world.journal(cursor), "second boot")
    assert [entry.boot_id for entry in batch.entries] == [BOOT, NEXT_BOOT, NEXT_BOOT]
    assert batch.gap == ""
    (event,) = JournalSource().events(batch, world.clock.now())
    assert event.at.boot_id == NEXT_BOOT and 0.0 <= (event.seen.since(event.at) or -1.0) < 1.0


def test_old_records_keep_their_time(world: World) -> None:  # J13, S9
    cursor = world.journal().read(100, 1.0).cursor
    kernel(world, XID)
    world.clock.tick(600.0)
    kernel(world, "the end")
    (event,) = JournalSource().events(collect(world.journal(cursor), "the end"), world.clock.now())
    assert (event.seen.since(event.at) or 0.0) >= 600.0


def test_suppressed_lines_are_a_gap(world: World) -> None:  # J11
    journal = watching(world)
    world.write({"MESSAGE": "Suppressed 812 messages from train@a.service", "_TRANSPORT": "driver"})
    (event,) = JournalSource().events(read_all(world, journal), world.clock.now())
    assert (event.kind, event.fields["unit"], event.fields["count"]) == ("log_gap", "train@a.service", 812)
