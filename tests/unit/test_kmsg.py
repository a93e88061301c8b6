"""The doorbell, on a FIFO in the place of /dev/kmsg."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuwatch.model.instant import Instant
from gpuwatch.simulation.journal import JournalWorld, SimulatedDoorbell, SimulatedJournal
from gpuwatch.system.kmsg import KmsgDoorbell


class StillClock:
    def now(self) -> Instant:
        return Instant("b" * 32, 1000.0, 1_764_500_000.0)

    def monotonic(self) -> float:
        return 1000.0


def test_rings_once_for_what_is_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kmsg")
    writer = os.open(tmp_path / "kmsg", os.O_RDWR)
    bell = KmsgDoorbell(str(tmp_path / "kmsg"))
    assert len(bell.fds()) == 1 and not bell.rang()
    os.write(writer, b"6,1,1,-;one\n")
    os.write(writer, b"6,2,2,-;two\n")
    assert bell.rang()
    assert not bell.rang()
    bell.close()
    assert bell.fds() == () and not bell.rang()
    os.close(writer)


def test_a_fifo_whose_writer_went_does_not_ring_for_ever(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kmsg")
    bell = KmsgDoorbell(str(tmp_path / "kmsg"))
    assert not bell.rang()
    assert bell.fds() == ()
    bell.close()


@pytest.mark.parametrize("name", ["absent", "."])
def test_without_a_device_there_is_no_bell(tmp_path: Path, name: str) -> None:
    bell = KmsgDoorbell(str(tmp_path / name))
    assert not bell.rang()
    assert bell.fds() == () and bell.problem
    bell.close()


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK | os.W_OK), reason="/dev/kmsg may not be used here")
def test_the_real_device_rings() -> None:
    bell = KmsgDoorbell()
    if bell.problem:
        pytest.skip(bell.problem)
    bell.rang()
    with open("/dev/kmsg", "wb", buffering=0) as kmsg:
        kmsg.write(b"<15>doorbell test\n")
    assert bell.rang()
    assert not bell.rang()
    bell.close()


def test_simulated_bell() -> None:
    world = JournalWorld()
    journal, bell = SimulatedJournal(StillClock(), world=world), SimulatedDoorbell(world)
    assert not bell.rang()
    journal.kernel("news")
    journal.user("no bell for this")
    assert bell.rang()
    assert not bell.rang()
