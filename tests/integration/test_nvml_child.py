"""The NVML child's life: driver states, back-off, hangs, orphans (S7, S14, N11-N14)."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuwatch.model.gpu import DriverState, GpuReport
from gpuwatch.system.lock import HostLock
from gpuwatch.system.nvml.patience import Patience
from tests.conftest import refuse
from tests.fakes.nvml.bench import QUICK, NvmlBench, alive, number, sample_until
from tests.lab.waiting import wait_for

ROOT = Path(__file__).parents[2]
IMPATIENT = Patience(start_s=10.0, silent_s=0.3, end_s=0.6, kill_s=0.6, gpu_s=0.2, pause_s=0.2)


def ok(report: GpuReport) -> bool:
    return report.state is DriverState.OK and report.taken is not None and not report.reason


def silent(report: GpuReport) -> bool:
    return report.state is DriverState.SILENT


def test_s14_without_a_driver_nothing_is_started_and_it_is_found_when_it_comes(bench: NvmlBench) -> None:
    """N12."""
    bench.driver.rmdir()
    client = bench.client()
    report = client.sample(True, False, 1.0)
    assert (report.state, report.samples) == (DriverState.ABSENT, ())
    assert bench.pids == []
    assert bench.calls() == []
    bench.driver.mkdir()
    assert len(sample_until(client, ok).samples) == 8


def test_s14_the_child_looks_itself_before_it_initialises(bench: NvmlBench) -> None:
    client = bench.client()
    spawn = client._spawn

    def spawn_late(arguments: object) -> object:
        bench.driver.rmdir()  # unloaded between the client's look and the child's
        return spawn(arguments)  # type: ignore[arg-type]  # the same type, whatever it is

    client._spawn = spawn_late  # type: ignore[assignment]
    report = sample_until(client, lambda report: report.state is DriverState.ABSENT)
    assert "no NVIDIA driver" in report.reason
    assert bench.calls() == []


def test_n12_capabilities_belong_to_one_start_of_the_driver(bench: NvmlBench) -> None:
    bench.scenario.error(13, "nvmlDeviceGetPowerUsage")
    client = bench.client()
    first = sample_until(client, ok)
    assert first.samples[0].readings["gpu.power"].unsupported
    bench.scenario.error(None, "nvmlDeviceGetPowerUsage")
    os.kill(first.child_pid, signal.SIGKILL)
    again = sample_until(client, lambda report: ok(report) and report.child_pid not in (0, first.child_pid))
    assert again.samples[0].readings["gpu.power"].value == 71


@pytest.mark.parametrize(
    "code, state, says",
    [
        (18, DriverState.MISMATCH, "different versions"),
        (12, DriverState.NO_LIBRARY, "libnvidia-ml.so.1"),
        (9, DriverState.FAILED, "NVML error 9"),
        (999, DriverState.FAILED, "NVML error 999"),
    ],
)
def test_n11_a_driver_that_can_not_be_used_is_a_state_and_is_tried_again(
    bench: NvmlBench, code: int, state: DriverState, says: str
) -> None:
    bench.scenario.error(code, "nvmlInit")
    client = bench.client()
    report = sample_until(client, lambda report: report.state is state)
    assert says in report.reason
    # The state stays while it is tried again, so that there is one alert.
    states = set()
    deadline = time.monotonic() + 20
    while len(bench.pids) < 3 and time.monotonic() < deadline:
        states.add(client.sample(False, False, 0.05).state)
    assert (states, len(bench.pids)) == ({state}, 3)
    bench.scenario.error(None, "nvmlInit")
    sample_until(client, ok)


def test_n11_no_library(bench: NvmlBench, tmp_path: Path) -> None:
    bench.environment["LD_LIBRARY_PATH"] = str(tmp_path)
    report = sample_until(bench.client(), lambda report: report.state is DriverState.NO_LIBRARY)
    assert "libnvidia-ml.so.1" in report.reason


def test_n14_the_library_is_initialised_once_and_descriptors_stay(bench: NvmlBench) -> None:
    client = bench.client()
    pid = sample_until(client, ok).child_pid
    before = len(os.listdir(f"/proc/{pid}/fd"))
    for _ in range(20):
        client.sample(True, False, 1.0)
    assert len(bench.calls("nvmlInit")) == 1
    assert len(os.listdir(f"/proc/{pid}/fd")) == before


def test_a_child_that_dies_is_a_failed_driver_until_the_next_one_answers(bench: NvmlBench) -> None:
    client = bench.client()
    before = sample_until(client, ok)
    os.kill(before.child_pid, signal.SIGSEGV)
    report = sample_until(client, lambda report: report.state is DriverState.FAILED)
    assert "signal 11" in report.reason
    assert report.taken is not None  # the samples are still there, with their age
    assert sample_until(client, ok).child_pid != before.child_pid


def test_one_gpu_that_hangs_does_not_hold_up_the_others(bench: NvmlBench) -> None:
    client = bench.client()
    sample_until(client, ok)
    bench.scenario.hang(60, "nvmlDeviceGetPowerUsage", 6)
    bench.scenario.heat(3, 90)
    report = sample_until(
        client, lambda report: report.stuck_since is not None and number(report, 3, "gpu.temperature") == 90
    )
    assert report.state is DriverState.OK
    assert report.reason == "GPU 6 does not answer"
    assert report.samples[3].readings["gpu.temperature"].value == 90
    assert all(not reading.value for reading in report.samples[6].readings.values())
    bench.scenario.heat(3, 80)
    later = sample_until(client, lambda report: report.samples[3].readings["gpu.temperature"].value == 80)
    assert later.stuck_since == report.stuck_since
    bench.scenario.hang(None, "nvmlDeviceGetPowerUsage", 6)
    back = sample_until(client, ok)
    assert back.samples[6].readings["gpu.temperature"].value is not None
    assert back.child_pid == report.child_pid


def test_one_gpu_that_hangs_for_long_leaves_the_child_alone(bench: NvmlBench) -> None:
    client = bench.client(IMPATIENT)
    pid = sample_until(client, ok).child_pid
    bench.scenario.hang(60, index=6)
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        client.sample(False, False, 0.1)
    assert alive(pid)


def test_n13_a_slow_driver_is_not_silent(bench: NvmlBench) -> None:
    bench.scenario.hang(0.02, "nvmlDeviceGetPowerUsage")
    client = bench.client()
    report = sample_until(client, ok)
    assert len(report.samples) == 8


def test_n13_readings_from_before_a_hang_are_not_taken_as_new(bench: NvmlBench) -> None:
    client = bench.client()
    before = sample_until(client, ok)
    bench.scenario.hang(60, "nvmlDeviceGetCount_v2")
    sample_until(client, silent)
    bench.scenario.heat(0, 88)
    bench.scenario.hang(None, "nvmlDeviceGetCount_v2")
    seen = sample_until(client, lambda report: report.taken != before.taken)
    assert seen.samples[0].readings["gpu.temperature"].value == 88
    assert seen.taken is not None
    assert before.taken is not None
    assert (seen.taken.since(before.taken) or 0) > QUICK.silent_s


def test_s7_a_silent_child_is_asked_to_end_and_then_killed(bench: NvmlBench) -> None:
    client = bench.client(IMPATIENT)
    bench.scenario.hang(60, "nvmlInit")
    stuck = sample_until(client, silent)
    began = time.monotonic()
    wait_for(lambda: client.sample(False, False, 0.05) and not alive(bench.pids[0]), what="the end of the first child")
    assert time.monotonic() - began > IMPATIENT.kill_s  # it was asked first: SIGTERM does not end a call
    # Whatever comes after it: the driver is still silent, and the story has one beginning.
    report = client.sample(False, False, 0.05)
    assert (report.state, report.stuck_since) == (DriverState.SILENT, stuck.stuck_since)
    wait_for(lambda: client.sample(False, False, 0.05) and len(bench.pids) > 1, what="another child")
    bench.scenario.hang(None, "nvmlInit")
    sample_until(client, ok)


def test_s7_a_child_is_spared_in_the_wake_of_an_xid_119(bench: NvmlBench) -> None:
    client = bench.client(IMPATIENT)
    bench.scenario.hang(60, "nvmlInit")
    sample_until(client, silent)
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        client.sample(False, True, 0.1)
    assert alive(bench.pids[0])
    wait_for(lambda: client.sample(False, False, 0.05) and not alive(bench.pids[0]), what="the end of the child")


def test_close_leaves_a_stuck_child_behind_in_time(bench: NvmlBench) -> None:
    client = bench.client()
    bench.scenario.hang(60, "nvmlInit")
    sample_until(client, silent)
    began = time.monotonic()
    client.close(0.3)
    assert time.monotonic() - began < 2.0
    assert alive(bench.pids[0])


class TestOrphan:
    """A child that hangs when gpuwatch is killed outlives it, and is the only one on the host (S7, N13)."""

    @pytest.fixture
    def orphan(self, bench: NvmlBench) -> int:
        bench.scenario.hang(60, "nvmlInit")
        parent = subprocess.Popen(
            [sys.executable, "-c", _PARENT, str(bench.lock), str(bench.driver)],
            env={**bench.environment, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        )
        assert parent.stdout is not None
        try:
            pid = int(parent.stdout.readline())
            bench.pids.append(pid)
            wait_for(lambda: HostLock(str(bench.lock)).holder(), what="the child's lock")
            wait_for(lambda: bench.calls("nvmlInit"), what="the hanging call")
        finally:
            parent.kill()
            parent.wait()
            parent.stdout.close()
        return pid

    def test_no_second_child_by_any_later_start(self, bench: NvmlBench, orphan: int) -> None:
        for _ in range(2):
            client = bench.client()
            report = sample_until(client, silent)
            assert report.stuck_pids == (orphan,)
            assert "earlier process" in report.reason
            client.close(0.0)
        assert bench.pids == [orphan]
        assert alive(orphan)

    def test_it_ends_with_the_call_and_the_next_child_takes_over(self, bench: NvmlBench, orphan: int) -> None:
        client = bench.client()
        sample_until(client, silent)
        bench.scenario.hang(None, "nvmlInit")
        report = sample_until(client, ok)
        assert report.child_pid not in (0, orphan)
        assert not alive(orphan)

    def test_it_is_asked_to_end_and_killed_last(self, bench: NvmlBench, orphan: int) -> None:
        client = bench.client(IMPATIENT)
        sample_until(client, silent)
        assert alive(orphan)
        wait_for(lambda: client.sample(False, False, 0.05) and not alive(orphan), what="the orphan's end")
        bench.scenario.hang(None, "nvmlInit")
        sample_until(client, ok)

    def test_someone_else_with_the_lock_is_never_killed(self, bench: NvmlBench) -> None:
        other = subprocess.Popen(
            [sys.executable, "-c", _OTHER_HOLDER, str(bench.lock)],
            env={"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
        )
        assert other.stdout is not None
        assert other.stdin is not None
        try:
            assert other.stdout.readline() == b"True\n"
            client = bench.client(IMPATIENT)
            deadline = time.monotonic() + 2.5
            while time.monotonic() < deadline:
                report = client.sample(False, False, 0.1)
            assert report.state is DriverState.SILENT
            assert bench.pids == []
            assert other.poll() is None
        finally:
            other.communicate(b"")


def test_the_device_node_is_opened_as_the_library_does(bench: NvmlBench, tmp_path: Path) -> None:
    """What the unit's sandbox must allow: ENXIO (no such device) is fine, a missing node is not."""
    node = tmp_path / "nvidiactl"
    bench.scenario.set("device", str(node))
    client = bench.client()
    assert "NVML error 9" in sample_until(client, lambda report: report.state is DriverState.FAILED).reason
    try:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(195, 255))
        os.close(os.open(node, os.O_RDWR))
    except PermissionError:
        refuse("may not make or open device nodes here")
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
    sample_until(client, ok)


_PARENT = """
import sys, time
from gpuwatch.system.clock import SystemClock
from gpuwatch.system.nvml.client import NvmlClient
client = NvmlClient(SystemClock(), sys.argv[1], sys.argv[2])
print(client.sample(False, False, 0.0).child_pid, flush=True)
time.sleep(60)
"""

_OTHER_HOLDER = """
import sys
from gpuwatch.system.lock import HostLock
lock = HostLock(sys.argv[1])
print(lock.acquire("driver", 0.0), flush=True)
sys.stdin.read()
"""
