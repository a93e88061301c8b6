"""Fixtures for every tier. A test that this machine can't run is skipped with the reason, or fails where
GPUWATCH_TESTS_MUST_RUN is set (.ci/run sets it: root on Debian can run everything)."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Optional

import pytest

from tests.lab.nspawn import Container
from tests.lab.refusal import why_no_booted_systemd, why_no_command
from tests.lab.roots import ready_root

TREE = Path(__file__).resolve().parents[1]
TEST_LIMIT_S = 120  # of one test; the slowest takes a quarter of it


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that never ends fails with the place where it is."""

    def give_up(number: int, frame: Optional[FrameType]) -> None:
        pytest.fail(f"did not end within {TEST_LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, TEST_LIMIT_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def refuse(why: str) -> None:
    """Skip (or fail, see above) when there is a reason."""
    if not why:
        return
    if os.environ.get("GPUWATCH_TESTS_MUST_RUN"):
        pytest.fail(f"must run here, but: {why}", pytrace=False)
    pytest.skip(why)


@pytest.fixture(scope="session")
def booted() -> Iterator[Container]:
    """A plain Debian with a booted systemd, one boot a session; gpuwatch is not installed in it.

    Tests share it: use unit names of your own and leave nothing running.
    """
    refuse(why_no_booted_systemd())
    with Container(ready_root()) as container:
        yield container


@pytest.fixture(scope="session")
def deb() -> Path:
    """gpuwatch's Debian package, built from this tree (or from earlier, when nothing has changed)."""
    refuse(why_no_command("dpkg-buildpackage", "dh", "dh_python3"))
    (TREE / "build").mkdir(exist_ok=True)
    with (TREE / "build" / "deb.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(["bash", str(TREE / "packaging" / "build-deb")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (TREE / "dist").glob("gpuwatch_*_all.deb")
    return built
