"""The host-wide lock between real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.model.errors import SourceError
from gpuwatch.system.lock import HostLock
from tests.lab.waiting import wait_for

HOLD = """
import sys, time
from gpuwatch.system.lock import HostLock
lock = HostLock(sys.argv[1])
print(lock.acquire("daemon", 1.5), flush=True)
time.sleep(60)
"""


def _hold(path: str) -> subprocess.Popen[str]:
    # -E -s would hide an editable install: the child finds gpuwatch as this process does.
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    process = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None and process.stdout.readline() == "True\n"
    return process


def test_one_acts_the_others_are_told_who(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    process = _hold(path)
    lock = HostLock(path)
    try:
        assert lock.acquire("once", 2.0) is False and not lock.held
        holder = lock.holder()
        assert holder is not None
        assert (holder.pid, holder.kind, holder.since_utc_s) == (process.pid, "daemon", 1.5)
        with open(f"/proc/{process.pid}/stat", "rb") as stat:
            assert holder.started_ticks == int(stat.read().rpartition(b")")[2].split()[19])
        assert str(holder) == f"the gpuwatch daemon (pid {process.pid})"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    # What the file still says is of no weight: nobody holds it.
    assert "daemon" in Path(path).read_text()
    assert lock.holder() is None
    assert lock.acquire("once", 3.0)
    lock.release()


def test_asking_never_keeps_another_from_taking_it(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    for _ in range(200):
        asking, taking = HostLock(path), HostLock(path)
        assert asking.holder() is None
        assert taking.acquire("daemon", 1.0)
        assert asking.holder() is not None
        taking.release()


def test_own_lock(tmp_path: Path) -> None:
    lock = HostLock(str(tmp_path / "lock"))
    assert lock.acquire("cli", 1.0) and lock.held
    assert lock.acquire("cli", 1.0)  # twice is once
    assert HostLock(lock.path).acquire("cli", 1.0) is False
    holder = lock.holder()
    assert holder is not None and holder.pid == os.getpid()
    lock.release()
    assert not lock.held and lock.holder() is None
    lock.release()


def test_a_child_does_not_inherit_it(tmp_path: Path) -> None:
    lock = HostLock(str(tmp_path / "lock"))
    assert lock.acquire("daemon", 1.0)
    child = subprocess.Popen(["/bin/sleep", "60"], close_fds=False)
    try:
        lock.release()
        wait_for(lambda: lock.holder() is None)
    finally:
        child.kill()
        child.wait()


def test_a_file_full_of_nonsense(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"\xff" * 100_000)
    assert HostLock(str(path)).holder() is None
    lock = HostLock(str(path))
    assert lock.acquire("daemon", 1.0)
    assert path.stat().st_size < 200
    lock.release()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "target")
    with pytest.raises(SourceError, match="can't open the lock"):
        HostLock(str(tmp_path / "lock")).acquire("daemon", 1.0)
    assert (tmp_path / "target").read_text() == "precious"
    with pytest.raises(SourceError):
        HostLock(str(tmp_path / "no" / "lock")).acquire("daemon", 1.0)
