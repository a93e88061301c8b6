"""Entries to events: trust, times, storms, gaps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Optional

import pytest

from gpuwatch.catalog.reader import EntryReader
from gpuwatch.catalog.user_patterns import UserPatterns, Written, compile_user
from gpuwatch.model.event import Event
from gpuwatch.model.instant import Instant
from gpuwatch.sources.journal import JournalSource
from gpuwatch.system.protocols import JournalBatch, JournalEntry

REAL = Path(__file__).resolve().parent.parent / "corpus" / "real_oom.jsonl"
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
    assert (event.fields["class"], event.fields["alert_severity"]) == ("host_restart", "critical")
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
    assert (event.fields["class"], event.fields["alert_severity"]) == (klass, severity)


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


# Units of interest, workloads, floods -----------------------------------------------------------

MANAGER = {"_TRANSPORT": "journal", "_PID": "1"}
STARTED = "39f53479d3a045ac8e11786248231fbf"
PRINTED = {"_TRANSPORT": "stdout", "_PID": "41872", "_SYSTEMD_UNIT": "train.service", "_UID": "1001"}
BLOCK = """\
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-30_13:46:04
  host      : gpu-07
  rank      : 2 (local_rank: 2)
  exitcode  : 1 (pid: 41871)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_13:46:02
  host      : gpu-07
  rank      : 5 (local_rank: 1)
  exitcode  : -6 (pid: 41870)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 41870
============================================================"""


def started(unit: str) -> JournalEntry:
    return entry(f"Started {unit}.", fields={**MANAGER, "UNIT": unit, "MESSAGE_ID": STARTED, "JOB_RESULT": "done"})


def test_the_life_of_other_units_is_left_out() -> None:
    batch = JournalBatch((started("cron.service"), started("train@1.service"), started("nvidia-persistenced.service")))
    plain = JournalSource().events(batch, NOW)
    assert [event.fields["unit"] for event in plain] == ["nvidia-persistenced.service"]
    interested = JournalSource(interest=lambda unit: unit.startswith("train@")).events(batch, NOW)
    assert [event.fields["unit"] for event in interested] == ["train@1.service", "nvidia-persistenced.service"]


def test_what_a_workload_prints_is_marked() -> None:  # S10
    (event,) = events(entry("RuntimeError: CUDA error: an illegal memory access was encountered", fields=PRINTED))
    assert (event.kind, event.uuid) == ("cuda_error", None)
    expected = {"source_trust": "user", "unit": "train.service", "pid": 41872, "uid": 1001, "class": "application"}
    assert {name: event.fields[name] for name in expected} == expected


def test_a_uuid_that_a_workload_prints_names_no_card() -> None:
    own = user_patterns(r"my card is (?P<uuid>GPU-[0-9a-f-]{36})", "my card is ")
    message = "my card is GPU-3d9a7c10-52be-4f08-91a6-0c7be2d4158f"
    (event,) = JournalSource(own=own).events(JournalBatch((entry(message, fields=PRINTED),)), NOW)
    assert (event.kind, event.uuid, event.fields["source_trust"]) == ("log_match", None, "user")


def user_patterns(pattern: str, literal: str) -> UserPatterns:
    row = {"name": "own", "literal": literal, "pattern": pattern}
    own, problems = compile_user([{key: Written(value, "c.yaml", 1, 1) for key, value in row.items()}])
    assert problems == ()
    return own


@pytest.mark.parametrize("cut", [0, 3, 13, 17, 19])
def test_a_block_of_lines_is_one_event(cut: int) -> None:
    """torchrun prints its summary line by line; a batch may end in the middle of it."""
    lines = [entry(text, 900 + number / 1e3, fields=PRINTED) for number, text in enumerate(BLOCK.split("\n"))]
    other = [entry("step 1", 900.0005, fields={**PRINTED, "_SYSTEMD_UNIT": "other.service"})]
    source = JournalSource()
    found = [
        *source.events(JournalBatch((*lines[:cut], *other)), NOW),
        *source.events(JournalBatch(tuple(lines[cut:])), NOW),
    ]
    (event,) = found
    assert event.kind == "first_failure" and event.text == "Root Cause (first observed failure):"
    assert event.at.boottime_s == pytest.approx(900.011)
    expected = {
        "rank": 5,
        "local_rank": 1,
        "exit_status": -6,
        "child_pid": 41870,
        "host": "gpu-07",
        "signal": "SIGABRT",
    }
    assert {name: event.fields[name] for name in expected} == expected


def test_a_block_as_one_message() -> None:
    (event,) = events(entry(BLOCK, fields=PRINTED))
    assert (event.kind, event.fields["rank"], event.fields["unit"]) == ("first_failure", 5, "train.service")


def test_a_block_that_never_ends_is_forgotten() -> None:
    head = entry("Root Cause (first observed failure):", fields=PRINTED)
    assert events(
        head, *(entry("blah", fields=PRINTED) for _ in range(100)), entry("CUDA out of memory", fields=PRINTED)
    )
    heads = [entry("Root Cause (first observed failure):", fields={**PRINTED, "_PID": str(n)}) for n in range(10_000)]
    source = JournalSource()
    source.events(JournalBatch(tuple(heads)), NOW)
    assert len(source._reader._blocks._open) <= 64


def test_a_traceback_in_several_entries_is_one_event() -> None:
    found = events(
        *(
            entry(text, fields=PRINTED)
            for text in (
                "Traceback (most recent call last):",
                '  File "/srv/train.py", line 12, in step',
                "    loss.backward()",
                "RuntimeError: CUDA error: device-side assert triggered",
                "CUDA kernel errors might be asynchronously reported at some other API call.",
                "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
                "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
            )
        )
    )
    assert [event.kind for event in found] == ["cuda_error"]


def test_a_flood_of_a_workload_is_bounded_and_hides_nothing_of_the_kernel() -> None:
    def kinds(number: int) -> str:
        return ("CUDA_ERROR_" if number % 2 else "CUDNN_STATUS_") + "".join(chr(65 + int(d)) for d in str(number))

    flood = [entry(f"{kinds(number)} x", 990, fields=PRINTED) for number in range(3_000)]
    found = events(*flood, entry(XID, 990))
    assert len(found) < 150 and sum(event.count for event in found) == 3_001
    assert found[-1].fields.get("xid") == 79


def test_a_flood_of_crashes_hides_no_xid() -> None:
    flood = [
        entry(
            f"x[{n}]: segfault at 0 ip 1 sp 2 error 4 in libcuda{'abcdefghij'[n % 10] * (n // 10 % 50 + 1)}.so[1+2]",
            990,
        )
        for n in range(5_000)
    ]
    xids = [entry(XID.replace("5e", bus), 990) for bus in ("5e", "5f")]
    found = events(*flood, *xids)
    assert [(event.fields["pci"], event.fields.get("reason")) for event in found[-2:]] == [
        ("0000:5e:00.0", None),
        ("0000:5f:00.0", None),
    ]
    assert len(found) < 250


def test_slow_patterns_of_a_site_get_a_bounded_time() -> None:
    own = user_patterns("stall of .*", "stall of ")
    source = JournalSource(own=own, own_s=0.0)
    found = source.events(JournalBatch((entry("stall of x", fields=PRINTED), entry(XID))), NOW)
    assert [(event.kind, event.fields.get("reason")) for event in found] == [
        ("log_gap", "slow_patterns"),
        ("xid", None),
    ]


def test_settings_change_without_a_new_source() -> None:
    source = JournalSource()
    batch = JournalBatch((entry("stall of x", fields=PRINTED), started("train.service")))
    assert source.events(batch, NOW) == ()
    source.configure(lambda unit: unit == "train.service", user_patterns("stall of .*", "stall of "))
    assert [event.kind for event in source.events(batch, NOW)] == ["log_match", "unit_started"]


def test_a_real_oom_of_a_unit() -> None:
    """Entries of a real kernel and a real systemd, as journalctl -o json prints them."""
    rows = [json.loads(line) for line in REAL.read_text(encoding="utf-8").splitlines()]
    found = [facts["kind"] for row in rows for facts, _ in EntryReader().read(row)]
    assert found == [
        "boot_finished",
        "unit_started",
        "oom_invoked",
        "oom_kill",
        "oom_kill",
        "unit_oom",
        "unit_process_exit",
        "unit_failed",
        "unit_started",
        "unit_stopping",
    ]
