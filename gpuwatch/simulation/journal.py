"""A journal and a kernel doorbell in memory, behind the protocols of the real ones."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from gpuwatch.system.journal_parts import Parts
from gpuwatch.system.protocols import NOBODY, Clock, Interest, JournalBatch, JournalEntry

FIRST_BOOT = "b" * 32
RUNTIMES = ("docker.service", "containerd.service", "podman.service", "crio.service", "kubelet.service")


@dataclass
class JournalWorld:
    """What the simulated host has logged. It outlives the daemon: hand the same one to each SimulatedJournal."""

    entries: list[JournalEntry] = field(default_factory=list)
    number: int = 0
    bells: int = 0  # records that the kernel has written
    problem: str = ""  # set it and reading fails


class SimulatedJournal:
    """See protocols.Journal. Entries are written with `kernel` and `user` and read back by cursor."""

    def __init__(self, clock: Clock, cursor: str = "", world: Optional[JournalWorld] = None) -> None:
        self._clock = clock
        self.world = JournalWorld() if world is None else world
        self._cursor = cursor
        self._open = False
        self._gap = ""
        self._interest = NOBODY
        self._parts = Parts(clock)
        if not self.world.entries:  # journald speaks first on every host, so there is always a tail
            self.write({"_TRANSPORT": "driver", "SYSLOG_IDENTIFIER": "systemd-journald", "MESSAGE": "Journal started"})

    # -- what happens on the host ------------------------------------------------

    def kernel(self, text: str, age_s: float = 0.0, boot_id: Optional[str] = None) -> JournalEntry:
        """The kernel says something, now or `age_s` seconds ago; it rings the bell."""
        self.world.bells += 1
        fields = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel", "PRIORITY": "3"}
        return self.write({**fields, "MESSAGE": text}, age_s, boot_id)

    def output(self, unit: str, text: str, **fields: str) -> JournalEntry:
        """A unit prints a line; of a container (CONTAINER_NAME=...) it comes through the unit of its runtime."""
        own = {"_TRANSPORT": "stdout", "_SYSTEMD_UNIT": unit, "_PID": "4712", "PRIORITY": "6"}
        return self.write({**own, "MESSAGE": text, **fields})

    def user(self, text: str, identifier: str = "kernel") -> JournalEntry:
        """A user's `logger -t identifier`. Not of a trusted source, so no reader ever gets it."""
        fields = {"_TRANSPORT": "syslog", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": identifier, "_PID": "4711"}
        return self.write({**fields, "MESSAGE": text})

    def user_kmsg(self, text: str) -> JournalEntry:
        """A user's write to /dev/kmsg: kernel transport, but not the kernel's facility."""
        self.world.bells += 1
        fields = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "1", "SYSLOG_IDENTIFIER": "unknown", "PRIORITY": "3"}
        return self.write({**fields, "MESSAGE": text})

    def manager(self, text: str, **fields: str) -> JournalEntry:
        """PID 1 says something."""
        own = {"_TRANSPORT": "journal", "_PID": "1", "SYSLOG_IDENTIFIER": "systemd", "PRIORITY": "4"}
        return self.write({**own, "MESSAGE": text, **fields})

    def write(self, fields: Mapping[str, str], age_s: float = 0.0, boot_id: Optional[str] = None) -> JournalEntry:
        """Any entry. Entries of another boot are written before those of this one, as they would be."""
        now = self._clock.now()
        self.world.number += 1
        boot = now.boot_id if boot_id is None else boot_id
        monotonic_us = max(0, round((now.boottime_s - age_s) * 1e6))
        realtime_us = round((now.utc_s - age_s) * 1e6)
        digest = hashlib.sha256(repr(sorted(fields.items())).encode()).hexdigest()[:16]
        cursor = f"s={'5' * 32};i={self.world.number:x};b={boot};m={monotonic_us:x};t={realtime_us:x};x={digest}"
        entry = JournalEntry(cursor, realtime_us, monotonic_us, boot, dict(fields))
        self.world.entries.append(entry)
        return entry

    def vacuum(self, keep: int = 0) -> None:
        """Old entries are removed, all but the last `keep`."""
        del self.world.entries[: max(0, len(self.world.entries) - keep)]

    # -- protocols.Journal -------------------------------------------------------

    def read(self, limit: int, deadline_s: float) -> JournalBatch:
        del deadline_s
        if self.world.problem:
            self._open = False
            return JournalBatch(cursor=self._cursor, problem=self.world.problem)
        if not self._open:
            self._start()
        last = _number(self._cursor)
        waiting = [entry for entry in self.world.entries if _number(entry.cursor) > last and self._wanted(entry.fields)]
        taken = waiting[:limit]
        if taken:
            self._cursor = taken[-1].cursor
        gap, self._gap = self._gap, ""
        return JournalBatch(tuple(self._parts.join(taken)), self._cursor, len(waiting) > limit, gap)

    def watch(self, interest: Interest) -> None:
        self._interest = interest

    def _wanted(self, fields: Mapping[str, str]) -> bool:
        """As the real reader decides."""
        if fields.get("_TRANSPORT") in ("kernel", "driver") or fields.get("_PID") == "1":
            return True
        unit, container = fields.get("_SYSTEMD_UNIT", ""), fields.get("CONTAINER_NAME")
        if not unit:
            return False
        if self._interest(unit) or (container is not None and self._interest(f"container:{container}")):
            return True
        return container is None and unit in RUNTIMES

    def fds(self) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        self._open = False

    def _start(self) -> None:
        self._open = True
        cursors = [entry.cursor for entry in self.world.entries]
        if not self._cursor:
            self._cursor = cursors[-1] if cursors else ""
        elif self._cursor not in cursors:
            self._gap = "journal entries may be missing: they were removed before they were read"


class SimulatedDoorbell:
    """See protocols.Doorbell."""

    def __init__(self, world: JournalWorld) -> None:
        self._world = world
        self._heard = world.bells

    def fds(self) -> tuple[int, ...]:
        return ()

    def rang(self) -> bool:
        rang = self._world.bells > self._heard
        self._heard = self._world.bells
        return rang

    def close(self) -> None:
        return None


_NUMBER = re.compile(r"i=([0-9a-f]+)")


def _number(cursor: str) -> int:
    match = _NUMBER.search(cursor)
    return int(match[1], 16) if match else 0
