"""The journal adapter on the files of a running journald, which belong to a booted systemd."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gpuwatch.model.event import Event
from gpuwatch.sources.journal import JournalSource
from gpuwatch.system.clock import SystemClock
from gpuwatch.system.journal import SystemJournal
from gpuwatch.system.journal_client import JournalClient
from gpuwatch.system.protocols import Interest
from tests.lab.nspawn import Container
from tests.lab.waiting import wait_for

LOST = "NVRM: GPU 0000:5e:00.0: GPU has fallen off the bus."


class Follower:
    """Reads on from the tail and keeps the events."""

    def __init__(self, container: Container, cursor: str = "") -> None:
        places = (f"{container.root}/var/log/journal", f"{container.root}/run/log/journal")
        self.clock = SystemClock()
        self.journal = SystemJournal(cursor, self.clock, path=next(place for place in places if os.path.isdir(place)))
        self.cursor = cursor
        self.events: list[Event] = []
        self.read()

    def read(self) -> None:
        batch = self.journal.read(1000, 1.0)
        assert batch.problem == ""
        self.cursor = batch.cursor
        self.events += JournalSource().events(batch, self.clock.now())

    def find(self, kind: str, **fields: object) -> Event:
        """The first event like this; waits for it."""

        def look() -> list[Event]:
            self.read()
            return [event for event in self.events if event.kind == kind and fields.items() <= event.fields.items()]

        return wait_for(look, what=f"{kind} {fields}")[0]


@pytest.fixture
def follower(booted: Container) -> Iterator[Follower]:
    follower = Follower(booted)
    yield follower
    follower.journal.close()


def test_a_driver_line_becomes_an_event_of_this_boot(booted: Container, follower: Follower) -> None:
    booted.kmsg.write(
        "NVRM: Xid (PCI:0000:5e:00): 62, pid=7, name=x, 1 2 3", device="+pci:0000:5e:00.0", subsystem="pci"
    )
    event = follower.find("xid", xid=62, pci="0000:5e:00.0")
    now = follower.clock.now()
    # The container has the host's clocks but a boot id of its own.
    assert event.at.boot_id == booted.sh("cat /proc/sys/kernel/random/boot_id").stdout.strip().replace("-", "")
    assert -0.1 < now.boottime_s - event.at.boottime_s < 10
    assert abs(now.utc_s - event.at.utc_s) < 10


def test_what_users_write_is_no_kernel_fact(booted: Container, follower: Follower) -> None:  # S10
    booted.run("logger", "-t", "kernel", "-p", "kern.err", LOST)
    booted.run("systemd-cat", "-t", "kernel", "sh", "-c", f"echo '{LOST}'")
    booted.kmsg.write(LOST, facility=1)
    booted.kmsg.write("kernel: " + LOST, facility=1)
    booted.run("logger", "-t", "systemd", "forged.service: Failed with result 'oom-kill'.")
    booted.kmsg.write("NVRM: Xid (PCI:0000:5e:00): 61, the end")
    follower.find("xid", xid=61)
    wrong = [
        event for event in follower.events if event.kind == "gpu_lost" or event.fields.get("unit") == "forged.service"
    ]
    assert wrong == []


def test_the_manager_tells_how_a_unit_failed(booted: Container, follower: Follower) -> None:
    booted.run("systemd-run", "--quiet", "--unit=journald-test-fails", "sh", "-c", "exit 3")
    event = follower.find("unit_failed", unit="journald-test-fails.service")
    assert event.fields["result"] == "exit-code"
    booted.run("systemctl", "reset-failed", "journald-test-fails.service", check=False)


def test_the_child_reads_what_units_print(booted: Container) -> None:
    places = (f"{booted.root}/var/log/journal", f"{booted.root}/run/log/journal")
    path = next(place for place in places if os.path.isdir(place))
    client = JournalClient("", SystemClock(), Interest(("journald-prints@*.service",)), path=path)
    client.read(1000, 1.0)
    for unit, text in (("other", "not of interest"), ("journald-prints@a", "CUDA out of memory")):
        booted.run("systemd-run", "--quiet", "--wait", f"--unit={unit}", "echo", text)
    read: list[str] = []

    def printed() -> list[str]:
        batch = client.read(1000, 0.2)
        read.extend(entry.fields["MESSAGE"] for entry in batch.entries if "_SYSTEMD_UNIT" in entry.fields)
        return read

    assert wait_for(printed) == ["CUDA out of memory"]
    client.close()


def test_rotation_and_vacuum_by_journald(booted: Container, follower: Follower) -> None:  # J2, J4, J5
    for round_number in range(3):
        booted.kmsg.write(f"NVRM: Xid (PCI:0000:5e:00): {600 + round_number}, before")
        follower.find("xid", xid=600 + round_number)
        booted.run("journalctl", "--rotate")
        booted.kmsg.write(f"NVRM: Xid (PCI:0000:5e:00): {700 + round_number}, after")
        follower.find("xid", xid=700 + round_number)
    assert [event for event in follower.events if event.kind == "log_gap"] == []
    away = follower.cursor
    booted.run("journalctl", "--rotate")
    booted.kmsg.write("NVRM: Xid (PCI:0000:5e:00): 800, in the new file")
    follower.find("xid", xid=800)
    booted.run("journalctl", "--vacuum-files=1")
    late = Follower(booted, away)
    late.find("xid", xid=800)
    assert [event.kind for event in late.events if event.kind in ("log_gap", "xid")] == ["log_gap", "xid"]
    late.journal.close()
