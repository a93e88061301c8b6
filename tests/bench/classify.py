"""Lines a second that the journal source turns into events, or finds to be none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpuwatch.model.instant import Instant
from gpuwatch.sources.journal import JournalSource
from gpuwatch.system.protocols import JournalBatch, JournalEntry
from tests.bench.table import Row, seconds

LINES = 50_000
BOOT = "b" * 32
PATTERNS = [
    re.compile(rf"(?:kernel: )?[A-Z]{{2,8}}{number}: .* (?P<what>[0-9a-f:.]+) (?:failed|fell off)")
    for number in range(30)
]
NOW = Instant(BOOT, 2_000_000.0, 1_764_500_000.0)
KERNEL = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel", "PRIORITY": "6"}
MANAGER = {"_TRANSPORT": "journal", "_PID": "1", "_SYSTEMD_UNIT": "init.scope", "SYSLOG_IDENTIFIER": "systemd"}
OUTPUT = {"_TRANSPORT": "stdout", "_PID": "4711", "_SYSTEMD_UNIT": "train@a.service", "PRIORITY": "6"}
UNIT = {"UNIT": "web.service", "MESSAGE_ID": "39f53479d3a045ac8e11786248231fbf"}


def run() -> Sequence[Row]:
    """Each kind of line by itself, beside the plain way on the same text."""
    kinds: dict[str, tuple[Mapping[str, str], str]] = {
        "kernel, nothing to it": (KERNEL, "usb 1-2: new high-speed USB device number {}"),
        "kernel, a storm of one Xid": (KERNEL, "NVRM: Xid (PCI:0000:5e:00): 13, pid=7, name=python3, Graphics {}"),
        "manager, nothing to it": ({**MANAGER, **UNIT}, "Started web.service - number {}."),
        "output, nothing to it": (OUTPUT, "step {} loss 2.31 lr 3e-4 tokens/s 41234"),
        "output, CUDA out of memory": (OUTPUT, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {} MiB."),
    }
    return [row(name, fields, text) for name, (fields, text) in kinds.items()]


def row(name: str, fields: Mapping[str, str], text: str) -> Row:
    """One kind."""
    lines = [text.format(number) for number in range(LINES)]
    entries = tuple(
        JournalEntry(f"c{number}", 1_764_000_000_000_000, number * 1000, BOOT, {**fields, "MESSAGE": line})
        for number, line in enumerate(lines)
    )
    took = seconds(lambda: JournalSource().events(JournalBatch(entries, "c"), NOW))
    one_by_one = seconds(lambda: search(lines), times=1)
    return Row(name, LINES / took, "lines/s", LINES / one_by_one, "30 patterns searched one by one")


def search(lines: Sequence[str]) -> int:
    """As programs do that try each pattern on each line."""
    return sum(any(pattern.search(line) for pattern in PATTERNS) for line in lines)
