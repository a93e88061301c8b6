"""History and a process that is killed, and a disk that is really full."""

from __future__ import annotations

import ctypes
import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from gpuwatch.store.history_query import at, read_events, read_history
from gpuwatch.store.history_read import open_history
from gpuwatch.store.history_rows import EventFilter, Keep
from gpuwatch.system.worker import ThreadWorker
from tests.conftest import refuse
from tests.fakes.clock import FakeClock
from tests.fakes.recorder import Recorder
from tests.fakes.story import gpu, xid
from tests.lab.refusal import why_no_namespaces

EVER = (0.0, 9e9)
CARDS = [gpu(index, 60 + index) for index in range(8)]
CLONE_NEWNS, MS_PRIVATE_EVERYWHERE, MS_RDONLY, MS_REMOUNT = 0x00020000, (1 << 18) | (1 << 14), 1, 32


def _record_for_ever(folder: Path, clock: FakeClock) -> None:
    recorder = Recorder(
        folder, clock, worker=ThreadWorker("historian"), keep=Keep(full_s=300, all_s=3600, free_bytes=0)
    )
    while True:
        recorder.cycle(*CARDS, events=[xid(13, clock.now())])
        time.sleep(0.0002)


@pytest.mark.parametrize("after_ms", [60, 90, 130, 180, 250, 400])
def test_kill_9_while_writing_leaves_whole_ticks_and_the_next_start_goes_on(tmp_path: Path, after_ms: int) -> None:
    clock = FakeClock()
    child = os.fork()
    if child == 0:
        _record_for_ever(tmp_path, clock)
    try:
        deadline = time.monotonic() + 20
        while not (tmp_path / "history.db-wal").exists() and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(after_ms / 1000)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    connection = sqlite3.connect(tmp_path / "history.db")
    assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    whole = "SELECT count(*) FROM samples GROUP BY ts"
    assert {row[0] for row in connection.execute(whole)} <= {8}  # a tick is all of its cards, or not there
    newest = connection.execute("SELECT max(up) FROM ticks").fetchone()[0]
    connection.close()
    assert newest is not None
    clock.advance(newest / 1000 - clock.boottime_s + 120)
    recorder = Recorder(tmp_path, clock)
    recorder.run(30, *CARDS)
    assert recorder.history.problem == ""
    with open_history(recorder.path) as reader:
        assert [gap.reason for gap in reader.gaps(*EVER)] == ["gpuwatch_down"]
    assert recorder.at(1).there is True and recorder.at(90).why == "gpuwatch_down"


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A file system of 3 MiB, in a mount namespace of this process's child alone."""
    refuse(why_no_namespaces())
    place = tmp_path / "disk"
    place.mkdir()
    return place


def _mount(place: Path, bytes_: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_PRIVATE_EVERYWHERE, None):
        raise OSError(ctypes.get_errno(), "no mount namespace")
    if libc.mount(b"tmpfs", str(place).encode(), b"tmpfs", 0, f"size={bytes_}".encode()):
        raise OSError(ctypes.get_errno(), "no tmpfs")


@pytest.mark.namespaces
def test_a_disk_that_is_really_full_costs_history_and_nothing_else(small_disk: Path) -> None:
    child = os.fork()
    if child == 0:
        try:
            _fill_and_free(small_disk)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def _fill_and_free(place: Path) -> None:
    _mount(place, 3 << 20)
    recorder = Recorder(place)
    recorder.run(60, *CARDS)
    ballast = place / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass
    recorder.run(3600, *CARDS, step_s=5)
    assert "full" in recorder.history.problem or "I/O" in recorder.history.problem, recorder.history.problem
    assert at(recorder.path, "3", FakeClock().utc_s + 30).there is True  # what was there can still be read
    ballast.unlink()
    recorder.run(120, *CARDS, step_s=5)
    assert recorder.history.problem == "", recorder.history.problem
    with open_history(recorder.path) as reader:
        (gap,) = reader.gaps(*EVER)
    assert gap.reason == "not_written" and ("full" in gap.detail or "I/O" in gap.detail), gap
    assert recorder.at(1, "3").there is True
    assert recorder.at(2400, "3").why == "not_written"


def test_a_reader_that_stays_does_not_hold_the_writer_up(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(300, *CARDS)
    with open_history(recorder.path) as reader:
        slow = reader.rows(reader.gpu("3"), *EVER)
        next(slow)
        recorder.run(3000, *CARDS, step_s=5)
        assert recorder.history.problem == ""
        assert len(list(slow)) == 59  # as it was when reading began
    assert len(read_history(recorder.path, "3", *EVER)) == 660
    assert read_events(recorder.path, EventFilter()) == ()


@pytest.mark.namespaces
def test_a_disk_that_went_read_only_can_still_be_read(small_disk: Path) -> None:
    child = os.fork()
    if child == 0:
        _mount(small_disk, 8 << 20)
        recorder = Recorder(small_disk)
        recorder.run(60, *CARDS)
        recorder.history.close()
        if ctypes.CDLL(None).mount(b"none", str(small_disk).encode(), None, MS_RDONLY | MS_REMOUNT, None):
            os._exit(2)
        os._exit(0 if len(read_history(recorder.path, "3", *EVER)) == 12 else 1)
    assert os.waitpid(child, 0)[1] == 0
