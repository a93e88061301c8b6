"""S7 with a driver call in real, unkillable D state: a file system that is frozen while the library writes to it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.model.gpu import DriverState, GpuReport
from gpuwatch.system.nvml.patience import Patience
from tests.conftest import refuse
from tests.fakes.nvml.bench import NvmlBench, sample_until, why_no_library
from tests.lab.refusal import why_no_command, why_no_root
from tests.lab.waiting import wait_for

IMPATIENT = Patience(start_s=10.0, silent_s=0.6, end_s=1.0, kill_s=0.5, gpu_s=0.5, prompt_s=0.3, pause_s=0.2)


class FrozenDisk:
    """A small file system on a loop device that can be frozen: who writes to it then waits in the kernel."""

    def __init__(self, folder: Path) -> None:
        self.mount, self._image = folder / "disk", folder / "disk.img"
        self._frozen = False
        self._image.write_bytes(b"")
        os.truncate(self._image, 16 << 20)
        _tool("mke2fs", "-q", str(self._image))
        self.mount.mkdir()
        _tool("mount", "-o", "loop", str(self._image), str(self.mount))

    def freeze(self) -> None:
        _tool("fsfreeze", "-f", str(self.mount))
        self._frozen = True

    def thaw(self) -> None:
        if self._frozen:
            _tool("fsfreeze", "-u", str(self.mount))
            self._frozen = False

    def close(self) -> None:
        self.thaw()
        wait_for(lambda: _ran("umount", str(self.mount)), what="umount")


def _tool(*argv: str) -> None:
    path = "/usr/sbin:/sbin:/usr/bin:/bin"
    done = subprocess.run(argv, capture_output=True, text=True, env={"PATH": path, "LANG": "C.UTF-8"}, timeout=30)
    if done.returncode != 0:
        raise OSError(f"{' '.join(argv)}: {done.stderr.strip()}")


def _ran(*argv: str) -> bool:
    try:
        _tool(*argv)
    except OSError:
        return False
    return True


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FrozenDisk]:
    refuse(why_no_root() or why_no_command("mke2fs", "mount", "umount", "fsfreeze"))
    folder = tmp_path / "lab"
    folder.mkdir()
    try:
        disk = FrozenDisk(folder)
    except OSError as error:
        refuse(f"may not mount a loop device here ({error})")
        raise
    yield disk
    disk.close()


@pytest.fixture
def bench(tmp_path: Path, disk: FrozenDisk) -> Iterator[NvmlBench]:
    refuse(why_no_library())
    bench = NvmlBench(tmp_path)
    yield bench
    disk.thaw()  # or the child could not be ended
    bench.close()


def ok(report: GpuReport) -> bool:
    return report.state is DriverState.OK and report.taken is not None and not report.reason


def silent(report: GpuReport) -> bool:
    return report.state is DriverState.SILENT


def states(pid: int) -> str:
    """One letter a thread: after SIGKILL the first may be a zombie while another is still in a call."""
    found = ""
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            found += task.read_text("utf-8", "replace").rpartition(")")[2].split()[0]
        except OSError:
            pass  # it has ended
    return found


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount_v2", "nvmlDeviceGetPowerUsage"])
def test_s7_a_child_in_d_state_is_the_only_one_and_the_driver_is_found_again_after_it(
    bench: NvmlBench, disk: FrozenDisk, call: str
) -> None:
    disk.freeze()
    bench.scenario.write_away(str(disk.mount / "file"), call)
    first = bench.client(IMPATIENT)
    report = sample_until(first, silent)
    (stuck,) = bench.pids
    assert report.stuck_pids == (stuck,)
    wait_for(lambda: "D" in states(stuck), what="D state")
    # SIGTERM and SIGKILL come, and change nothing.
    deadline = time.monotonic() + IMPATIENT.end_s + IMPATIENT.kill_s + 1.0
    while time.monotonic() < deadline:
        began = time.monotonic()
        assert first.sample(True, False, 0.1).state is DriverState.SILENT
        assert time.monotonic() - began < 1.0
    assert "D" in states(stuck)
    # The restart of gpuwatch: its client finds the lock taken, starts nothing, and says who it is.
    first.close(0.1)
    second = bench.client(IMPATIENT)
    report = sample_until(second, silent)
    assert report.stuck_pids == (stuck,)
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        assert second.sample(True, False, 0.1).state is DriverState.SILENT
    assert bench.pids == [stuck]
    # The hardware answers after all.
    bench.scenario.write_away(None, call)
    disk.thaw()
    report = sample_until(second, ok)
    assert report.child_pid not in (0, stuck)
    assert "D" not in states(stuck)


def test_one_gpu_in_d_state_leaves_the_others_and_comes_back(bench: NvmlBench, disk: FrozenDisk) -> None:
    client = bench.client(IMPATIENT)
    pid = sample_until(client, ok).child_pid
    disk.freeze()
    bench.scenario.write_away(str(disk.mount / "file"), "nvmlDeviceGetPowerUsage", 6)
    report = sample_until(client, lambda report: report.stuck_since is not None)
    assert (report.state, report.reason) == (DriverState.OK, "GPU 6 does not answer")
    assert "D" in states(pid)
    bench.scenario.heat(0, 77)
    sample_until(client, lambda report: report.samples[0].readings["gpu.temperature"].value == 77)
    bench.scenario.write_away(None, "nvmlDeviceGetPowerUsage", 6)
    disk.thaw()
    report = sample_until(client, ok)
    assert report.child_pid == pid
    assert report.samples[6].readings["gpu.temperature"].value is not None


def test_s14_a_child_in_d_state_can_not_be_released_and_that_is_said(bench: NvmlBench, disk: FrozenDisk) -> None:
    client = bench.client(IMPATIENT)
    pid = sample_until(client, ok).child_pid
    disk.freeze()
    bench.scenario.write_away(str(disk.mount / "file"), "nvmlDeviceGetPowerUsage")
    sample_until(client, silent)
    client.release(3600)
    os.kill(pid, signal.SIGKILL)
    report = sample_until(client, silent)
    assert report.stuck_pids == (pid,)
    bench.scenario.write_away(None, "nvmlDeviceGetPowerUsage")
    disk.thaw()
    report = sample_until(client, lambda report: report.child_pid == 0)
    assert report.state is DriverState.RELEASED
    assert bench.pids == [pid]
