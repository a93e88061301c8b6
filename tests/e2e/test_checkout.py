"""`make run` from a checkout on a machine with nothing to watch: a simulated host that leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import TREE
from tests.lab.waiting import wait_for

NOTHING_TO_WATCH = not os.path.exists("/proc/driver/nvidia") and not os.path.exists("/run/systemd/journal/socket")


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory near the root: the path of a socket may have 107 bytes only."""
    with tempfile.TemporaryDirectory(prefix="gw", dir="/tmp") as place:
        yield Path(place)


@pytest.mark.skipif(not NOTHING_TO_WATCH, reason="optional: this machine has a driver or a journald to watch")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_simulated_where_there_is_nothing_to_watch(short: Path, ending: signal.Signals) -> None:
    said = short / "said"
    with said.open("w") as output:
        process = subprocess.Popen(
            ["bash", str(TREE / ".ci" / "watch-here")],
            env={**os.environ, "TMPDIR": str(short)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_for(lambda: "SIMULATED" in said.read_text(), 20, "it runs and says that it is simulated")
        assert "no NVIDIA driver" in said.read_text().splitlines()[0]
        (place,) = short.glob("gpuwatch-simulated.*")
        wait_for((place / "state" / "state.db").exists, 10)
        process.send_signal(ending)
        assert process.wait(15) == 128 + ending
    finally:
        process.kill()
        process.wait()
    assert list(short.glob("gpuwatch-simulated.*")) == []
