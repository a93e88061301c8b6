"""The NVML child on a real driver; run it with -s to see which call answered what. Skipped where no driver is loaded.

python -m pytest tests/gpu -s

Nothing is changed, but with GPUWATCH_SET_LIMIT=1: then each card's power limit is set to what it is already.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.model.gpu import DriverState, GpuReport, GpuSample
from gpuwatch.model.gpu_change import GpuChange, GpuChanged
from gpuwatch.model.metric import METRICS
from gpuwatch.model.pci import canonical
from gpuwatch.system.clock import SystemClock
from gpuwatch.system.nvml.client import DRIVER_PATH, NvmlClient
from gpuwatch.system.nvml.information import read_information
from tests.fakes.nvml.bench import sample_until

DRIVER = os.environ.get("GPUWATCH_DRIVER_PATH", DRIVER_PATH)
pytestmark = pytest.mark.skipif(not os.path.exists(DRIVER), reason=f"no NVIDIA driver is loaded here ({DRIVER})")
# A card may lack any of these, but where it has one, reading it must not fail.
ALWAYS = ("gpu.temperature", "gpu.power", "gpu.utilisation", "gpu.sm_clock", "gpu.pstate")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NvmlClient]:
    client = NvmlClient(SystemClock(), str(tmp_path_factory.mktemp("nvml") / "lock"), DRIVER)
    yield client
    client.close(5.0)


@pytest.fixture(scope="module")
def report(client: NvmlClient) -> GpuReport:
    return sample_until(client, ok, 60.0, with_processes=True)


def ok(report: GpuReport) -> bool:
    return report.state is DriverState.OK and bool(report.samples) and not report.reason


def show(sample: GpuSample, report: GpuReport) -> str:
    """One line a reading."""
    lines = [f"\nGPU {sample.index} {sample.name} {sample.uuid} {sample.pci}{' LOST' if sample.lost else ''}"]
    for name in sorted({*sample.readings, *sample.slow}):
        reading = sample.reading(name)
        assert reading is not None
        said = reading.problem if reading.value is None else f"{reading.value:g} {METRICS[name].unit}"
        via = f"  ({sample.sources[name]})" if name in sample.sources else ""
        lines.append(f"  {name:34} {said}{via}")
    listed = sample.processes
    lines.append(f"  processes: {'not read' if listed is None else listed.problem or len(listed.processes)}")
    lines += [f"  MIG {each.gpu_instance}/{each.compute_instance} {each.uuid} {each.name}" for each in sample.instances]
    return "\n".join(lines)


def test_which_call_answers_what(report: GpuReport) -> None:
    print(f"\ndriver {report.driver_version}, {report.library_path}, {report.binding}")
    for sample in report.samples:
        print(show(sample, report))
    for sample in report.samples:
        assert sample.lost is None
        failed = {name: each.problem for name in METRICS if (each := sample.reading(name)) is not None and each.failed}
        assert failed == {}
        assert all(name in sample.readings for name in ALWAYS)


def test_every_reading_is_told_or_said_to_be_missing(report: GpuReport) -> None:
    wanted = {name for name, metric in METRICS.items() if metric.scope == "gpu"} - {"gpu.lost"}
    for sample in report.samples:
        assert {*sample.readings, *sample.slow} == wanted
        assert set(report.capabilities[sample.uuid]) >= wanted


def test_identities_are_those_of_the_kernel_module(report: GpuReport) -> None:
    listed = {each.pci: each.uuid for each in read_information(DRIVER)}
    for sample in report.samples:
        assert sample.pci == canonical(sample.pci)
        if listed.get(sample.pci):
            assert listed[sample.pci] == sample.uuid


def test_margins_and_points_agree(report: GpuReport) -> None:
    for sample in report.samples:
        temperature = sample.reading("gpu.temperature")
        for kind in ("slowdown", "shutdown", "operating"):
            margin, point = sample.reading(f"gpu.{kind}_margin"), sample.reading(f"gpu.{kind}_point")
            assert temperature is not None and margin is not None and point is not None
            if None not in (temperature.value, margin.value, point.value):
                assert abs((point.value or 0) - (temperature.value or 0) - (margin.value or 0)) <= 3


def test_samples_are_new_and_cheap(client: NvmlClient, report: GpuReport) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    before, taken = _cpu(report.child_pid), report.taken
    for _ in range(20):
        later = sample_until(client, lambda later, taken=taken: ok(later) and later.taken != taken)  # type: ignore[misc]
        taken = later.taken
    spent = (_cpu(report.child_pid) - before) / ticks / 20
    fds = len(os.listdir(f"/proc/{report.child_pid}/fd"))
    print(f"\n{len(later.samples)} GPUs: {spent * 1000:.1f} ms of CPU a pass, {fds} descriptors in the child")
    assert later.child_pid == report.child_pid


def answer_to(client: NvmlClient, change: GpuChange) -> GpuChanged:
    client.change(change)
    began = time.monotonic()
    (answer,) = sample_until(client, lambda report: bool(report.changed)).changed
    print(f"\n{answer} after {time.monotonic() - began:.2f} s")
    return answer


def test_a_question_tells_the_limits_that_are_read(client: NvmlClient, report: GpuReport) -> None:
    for sample in report.samples:
        answer = answer_to(client, GpuChange("q", sample.uuid, sample.pci))
        limit = sample.readings["gpu.power_limit_set"]
        assert answer.problem == ("unsupported" if limit.unsupported else "")
        assert answer.power_limit_w == limit.value
        slow = (sample.slow[f"gpu.power_limit_{name}"].value for name in ("min", "max", "default"))
        assert (answer.power_limit_min_w, answer.power_limit_max_w, answer.power_limit_default_w) == tuple(slow)


def test_n17_a_card_at_another_address_is_refused(client: NvmlClient, report: GpuReport) -> None:
    for sample in report.samples:
        assert answer_to(client, GpuChange("q", sample.uuid, "ffff:ff:1f.0")).problem == "gone"
    assert answer_to(client, GpuChange("q", "GPU-00000000-0000-0000-0000-000000000000", "")).problem == "gone"


@pytest.mark.skipif(os.environ.get("GPUWATCH_SET_LIMIT") != "1", reason="only with GPUWATCH_SET_LIMIT=1")
def test_the_present_limit_can_be_set(client: NvmlClient, report: GpuReport) -> None:
    for sample in report.samples:
        limit_w = answer_to(client, GpuChange("q", sample.uuid, sample.pci)).power_limit_w
        if limit_w is None or limit_w != round(limit_w):
            pytest.skip(f"GPU {sample.index} has no limit of whole watts to set: {limit_w}")
        answer = answer_to(client, GpuChange("s", sample.uuid, sample.pci, limit_w))
        assert (answer.problem, answer.power_limit_w) == ("", limit_w), answer.detail


def test_s14_release_lets_go_of_the_device(client: NvmlClient, report: GpuReport) -> None:
    pid = client.sample(False, False, 1.0).child_pid
    client.release(3600)
    began = time.monotonic()
    sample_until(client, lambda report: report.child_pid == 0)
    print(f"\nreleased after {time.monotonic() - began:.2f} s")
    assert not Path(f"/proc/{pid}").exists()
    client.resume()
    assert sample_until(client, ok, 60.0).child_pid != pid


def _cpu(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
