"""Entries to events: trust, times, storms, gaps."""

from __future__ import annotations

from typing import Optional

import pytest

from gpuwatch.model.event import Event
from gpuwatch.model.instant import Instant
from gpuwatch.sources.journal import JournalSource
from gpuwatch.system.protocols import JournalBatch, JournalEntry

BOOT = "b" * 32
NOW = Instant(BOOT, 1000.0, 1_764_500_000.0)
KERNEL = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel"}
RECOVERY = "NVRM: Xid (PCI:0000:5e:00): 154, GPU recovery action changed from "
XID = "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."


def entry(message: str, at_s: float = 999.0, boot: str = BOOT, fields: Optional[dict[str, str]] = None) -> JournalEntry:
    utc_us = round((NOW.utc_s - NOW.boottime_s + at_s) * 1e6)
    own = {**(KERNEL if fields is None else fields), "MESSAGE": message}
    return JournalEntry(f"cursor {at_s}", utc_us, round(at_s * 1e6), boot, own)


def events(*entries: JournalEntry, gap: str = "") -> tuple[Event, ...]:
    return JournalSource().events(JournalBatch(entries, "last", gap=gap), NOW)


def test_event_of_an_xid() -> None:
    (event,) = events(entry(XID, 940.5))
    assert (event.kind, event.source, event.count, event.uuid, event.cursor) == (
        "xid",
        "journal",
        1,
        None,
        "cursor 940.5",
    )
    assert event.at == Instant(BOOT, 940.5, NOW.utc_s - 59.5) and event.seen == NOW
    assert (event.fields["class"], event.fields["severity"]) == ("host_restart", "critical")
    assert event.text == XID


def test_identity_line_carries_both_names() -> None:
    (event,) = events(entry("NVRM: GPU at PCI:0000:5e:00: GPU-3D9A7C10-52be-4f08-91a6-0c7be2d4158f"))
    assert (event.uuid, event.fields["pci"]) == ("GPU-3d9a7c10-52be-4f08-91a6-0c7be2d4158f", "0000:5e:00.0")


@pytest.mark.parametrize(
    "message, klass, severity",
    [
        ("NVRM: Xid (PCI:0000:5e:00): 999, what is this", "unknown", "warning"),
        (RECOVERY + "0x0 (None) to 0x2 (x)", "host_restart", "critical"),
        (RECOVERY + "0x2 (x) to 0x0 (None)", "informational", "info"),
        (RECOVERY + "0x0 (None) to 0x9 (x)", "unknown", "warning"),
        ("NVRM: Xid (PCI:0000:5e:00): 145, RLW Nonfatal XC0 i0 Link 11 (0x0)", "link", "warning"),  # K7
        ("NVRM: Xid (PCI:0000:5e:00): 145, RLW Fatal XC0 i0 Link 11 (0x0)", "link", "critical"),
        ("NVRM: Xid (PCI:0000:5e:00): 45, pid=7, name=modprobe, Ch 1", "application", "info"),  # K6
    ],
)
def test_class_and_severity(message: str, klass: str, severity: str) -> None:
    (event,) = events(entry(message))
    assert (event.fields["class"], event.fields["severity"]) == (klass, severity)


@pytest.mark.parametrize(
    "fields",
    [
        {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "1", "SYSLOG_IDENTIFIER": "kernel"},
        {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "me"},
        {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"},
        {"_TRANSPORT": "syslog", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel"},
        {"_TRANSPORT": "stdout", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel"},
        {"_TRANSPORT": "journal", "_PID": "1", "SYSLOG_IDENTIFIER": "systemd"},
        {"_TRANSPORT": "driver", "SYSLOG_IDENTIFIER": "systemd-journald"},
    ],
)
def test_a_kernel_fact_needs_all_three_fields(fields: dict[str, str]) -> None:  # S10
    assert events(entry(XID, fields=fields)) == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"_TRANSPORT": "journal", "_PID": "2"},
        {"_TRANSPORT": "syslog", "_PID": "1"},
        {"_TRANSPORT": "stdout", "_PID": "1"},
        {"_TRANSPORT": "journal", "_PID": "1", "UNIT": "b.service"},
        KERNEL,
    ],
)
def test_a_manager_fact_needs_pid_1(fields: dict[str, str]) -> None:  # S10
    assert events(entry("a.service: Failed with result 'oom-kill'.", fields=fields)) == ()


def test_storm_is_one_event_with_a_count() -> None:  # K5
    tail = "Uncontained: LTC TAG"
    storm = [
        entry(
            f"NVRM: Xid (PCI:0000:{bus}:00): 95, pid={number}, name=p{number}, {tail} (0x{number:x},0x1)",
            990 + number / 1e3,
        )
        for number in range(5_000)
        for bus in ("5e", "5f")
    ]
    found = events(*storm)
    assert [(event.fields["pci"], event.count) for event in found] == [("0000:5e:00.0", 5_000), ("0000:5f:00.0", 5_000)]
    assert found[0].at.boottime_s == 990 and found[0].cursor == storm[-2].cursor


def test_storm_does_not_swallow_what_differs() -> None:
    found = events(
        entry(XID, 950.0),
        entry(XID, 955.0),
        entry(XID, 970.0),  # too long after the first: how old a fresh one is must stay visible (S9)
        entry(XID, 971.0, boot="c" * 32),
        entry(XID.replace("79", "62"), 972.0),
        entry("NVRM: Xid (PCI:0000:5e:00): 154, GPU recovery action changed from 0x0 (a) to 0x1 (b)", 973.0),
        entry("NVRM: Xid (PCI:0000:5e:00): 154, GPU recovery action changed from 0x1 (a) to 0x2 (b)", 973.0),
        entry("Out of memory: Killed process 10 (a) total-vm:1kB", 974.0),
        entry("Out of memory: Killed process 11 (a) total-vm:1kB", 974.0),
    )
    assert [event.count for event in found] == [2, 1, 1, 1, 1, 1, 1, 1]


def test_gap_is_an_event() -> None:  # J2
    gap, xid = events(entry(XID), gap="journal entries from A to B may be missing")
    assert (gap.kind, gap.text, gap.at) == ("log_gap", "journal entries from A to B may be missing", NOW)
    assert xid.kind == "xid"


def test_suppressed_lines_are_a_gap() -> None:  # J11
    (event,) = events(entry("Suppressed 4499 messages from a.service", fields={"_TRANSPORT": "driver"}))
    assert (event.kind, event.fields["count"], event.fields["unit"]) == ("log_gap", 4499, "a.service")


def test_lost_gpu_is_told_beside_its_xid() -> None:  # K1
    found = events(entry(XID + "\nNVRM: GPU 0000:5e:00.0: GPU has fallen off the bus."))
    assert [(event.kind, event.fields["pci"]) for event in found] == [
        ("xid", "0000:5e:00.0"),
        ("gpu_lost", "0000:5e:00.0"),
    ]


def test_entries_without_text_are_nothing() -> None:
    assert events(JournalEntry("c", 1, 1, BOOT, {**KERNEL}), entry("")) == ()
