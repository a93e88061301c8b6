"""Entries a second of the journal path, beside `journalctl -o cat` on the same files."""

from __future__ import annotations

import random
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Union

from gpuwatch.system.clock import SystemClock
from gpuwatch.system.journal import MATCHES, TRUSTED_FIELDS, SystemJournal
from gpuwatch.system.journal_client import JournalClient
from gpuwatch.system.journal_tape import Tape, open_reader
from gpuwatch.system.protocols import Interest, JournalEntry
from tests.bench.table import Row, seconds
from tests.lab.journal_files import Value, entry, write_journal

ENTRIES = 200_000
BOOT = "b" * 32
START_US = 1_764_500_000_000_000
CYCLE_ENTRIES, CYCLE_S = 20_000, 0.2
Reading = Union[SystemJournal, JournalClient]


def run() -> Sequence[Row]:
    """Both kinds of files."""
    with tempfile.TemporaryDirectory(prefix="gpuwatch-bench-") as place:
        mixed, flood = Path(place) / "mixed", Path(place) / "flood"
        for folder, share in ((mixed, 0.05), (flood, 0.0)):
            folder.mkdir()
            write_journal(folder / "system.journal", lines(share))
        return [*of_mixed(str(mixed)), *of_flood(str(flood))]


def lines(kernel_share: float) -> Iterator[dict[str, Value]]:
    """What a host with a chatty service logs, with a share of kernel lines."""
    chance = random.Random(1)
    for number in range(ENTRIES):
        if chance.random() < kernel_share:
            fields: dict[str, Value] = {
                "_TRANSPORT": "kernel",
                "SYSLOG_FACILITY": "0",
                "SYSLOG_IDENTIFIER": "kernel",
                "PRIORITY": "6",
                "MESSAGE": f"usb 1-{number % 9}: new high-speed USB device number {number}",
                "_SOURCE_MONOTONIC_TIMESTAMP": 1_000_000 + number,
            }
        else:
            unit = f"web@{number % 7}.service"
            fields = {
                "_TRANSPORT": "stdout",
                "PRIORITY": "6",
                "SYSLOG_FACILITY": "3",
                "SYSLOG_IDENTIFIER": "web",
                "MESSAGE": f"GET /api/v1/items/{number}?q={chance.random()} 200 {number % 977} ms",
                "_PID": 1000 + number % 7,
                "_UID": "1000",
                "_GID": "1000",
                "_COMM": "python3",
                "_EXE": "/usr/bin/python3.11",
                "_CMDLINE": "/usr/bin/python3 -m web",
                "_CAP_EFFECTIVE": "0",
                "_SYSTEMD_CGROUP": f"/system.slice/{unit}",
                "_SYSTEMD_UNIT": unit,
                "_SYSTEMD_SLICE": "system.slice",
                "_SYSTEMD_INVOCATION_ID": "d" * 32,
            }
        yield entry(fields, START_US + number * 1000, 1_000_000 + number * 1000, BOOT)


def of_mixed(folder: str) -> list[Row]:
    """Where each twentieth entry is the kernel's."""
    matches = [*MATCHES[0], "+", *MATCHES[1]]
    kernel = seconds(lambda: drain_tape(folder))
    whole = seconds(lambda: drain(SystemJournal(head(folder), SystemClock(), path=folder)))
    child = seconds(lambda: drain(JournalClient(head(folder), SystemClock(), path=folder)), times=2)
    cat_kernel, cat = seconds(lambda: journalctl(folder, matches)), seconds(lambda: journalctl(folder))
    return [
        Row("5 % kernel: kernel lines in hand", kernel, "s", cat_kernel, "journalctl -o cat, same matches"),
        Row("5 % kernel: all gone through", whole, "s", cat, "journalctl -o cat"),
        Row(
            "5 % kernel: the same behind the child",
            child,
            "s",
            cat,
            "journalctl -o cat (starts in 5 ms, the child in 150)",
        ),
    ]


def of_flood(folder: str) -> list[Row]:
    """Where nothing is the kernel's."""
    clock = SystemClock()
    some = Interest(("train@*.service",))
    boxes = Interest(("train@*.service",), ("trainer-*",))
    every = Interest(("*",))
    passed = seconds(lambda: drain(SystemJournal(head(folder), clock, some, path=folder)))
    looked = seconds(lambda: drain(SystemJournal(head(folder), clock, boxes, path=folder)))
    taken = seconds(lambda: drain(SystemJournal(head(folder), clock, every, path=folder)), times=2)
    cat = seconds(lambda: journalctl(folder))
    cycles = drain(SystemJournal(head(folder), clock, some, path=folder))
    beside = "journalctl -o cat"
    return [
        Row("flood: passed over", ENTRIES / passed, "entries/s", ENTRIES / cat, beside),
        Row("flood: passed over, containers configured", ENTRIES / looked, "entries/s", ENTRIES / cat, beside),
        Row("flood: all of it wanted", ENTRIES / taken, "entries/s", ENTRIES / cat, beside),
        Row("flood: cycles to catch up", cycles, "cycles", None, f"of {CYCLE_S} s each for {ENTRIES:,} entries"),
    ]


def head(folder: str) -> str:
    """The cursor of the first entry."""
    reader = open_reader(folder, None)
    reader.seek_head()
    assert reader._next()
    cursor = str(reader._get_cursor())
    reader.close()
    return cursor


def drain(journal: Reading) -> int:
    """Read to the end as the cycle does; how many reads it took."""
    count, more = 0, True
    while more:
        count += 1
        more = journal.read(CYCLE_ENTRIES, CYCLE_S).more or (isinstance(journal, JournalClient) and not journal.idle)
    journal.close()
    return count


def drain_tape(folder: str) -> int:
    """Only what the kernel and the manager said."""
    tape = Tape(head(folder), SystemClock(), TRUSTED_FIELDS, MATCHES, path=folder)
    entries: list[JournalEntry] = []
    while tape.read(entries, len(entries) + CYCLE_ENTRIES, 10.0):
        pass
    tape.close()
    return len(entries)


def journalctl(folder: str, matches: Sequence[str] = ()) -> None:
    """Print the messages to nowhere."""
    argv = ["journalctl", "-D", folder, "-o", "cat", "-q", "--no-pager", *matches]
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
