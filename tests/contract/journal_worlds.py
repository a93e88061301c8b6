"""Hosts that log: one in memory, one with real journal files. What the tests of Journal have in common."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Optional, Protocol, Union

from gpuwatch.model.instant import Instant
from gpuwatch.simulation.journal import SimulatedJournal
from gpuwatch.system.clock import SystemClock
from gpuwatch.system.journal import SystemJournal
from gpuwatch.system.journal_client import JournalClient
from gpuwatch.system.protocols import Journal, JournalBatch, JournalEntry
from tests.lab.journal_files import LiveJournal, Value, entry

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
    """Real files. `behind`: read by the child, as the daemon does, instead of in this process."""

    def __init__(self, directory: Path, behind: bool = False) -> None:
        self.clock = HandClock()
        self._behind = behind
        self.files = LiveJournal(directory)
        self._journals: list[Union[SystemJournal, JournalClient]] = []
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

    def journal(self, cursor: str = "") -> Union[SystemJournal, JournalClient]:
        if not cursor:
            self.files.close()  # what was written before must be in the file before its tail is looked for
        journal: Union[SystemJournal, JournalClient]
        if self._behind:
            journal = JournalClient(cursor, SystemClock(), path=self.files.directory)
        else:
            journal = SystemJournal(cursor, self.clock, path=self.files.directory)
        self._journals.append(journal)
        return journal

    def reader(self, cursor: str = "") -> SystemJournal:
        """One in this process, whatever the others are."""
        if not cursor:
            self.files.close()
        journal = SystemJournal(cursor, self.clock, path=self.files.directory)
        self._journals.append(journal)
        return journal

    def close(self) -> None:
        for journal in self._journals:
            journal.close()
        self.files.close()


def prints(world: World, unit: str, text: str, **fields: Value) -> None:
    """A unit prints a line."""
    own = {"_TRANSPORT": "stdout", "_SYSTEMD_UNIT": unit, "_PID": "4712", "PRIORITY": "6"}
    world.write({**own, "MESSAGE": text, **fields})


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
