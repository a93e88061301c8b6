"""The NVML child on odd libraries, bindings and cards: each reading alone, nothing guessed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable

import pytest

from gpuwatch.model.gpu import DriverState, GpuReport
from gpuwatch.model.reading import Reading
from tests.fakes.nvml.bench import NvmlBench, number, sample_until
from tests.fakes.nvml.scenario import uuid

GIB = 1024**3


def ok(report: GpuReport) -> bool:
    return report.state is DriverState.OK and report.taken is not None


def one(bench: NvmlBench, index: int, metric: str) -> Reading:
    return sample_until(bench.client(), ok).samples[index].readings[metric]


def use_binding(bench: NvmlBench, folder: Path, source: str) -> None:
    """Let the child find another module of the name pynvml first."""
    folder.mkdir()
    (folder / "pynvml.py").write_text(source)
    bench.environment["PYTHONPATH"] = str(folder)


def test_n1_the_binding_is_named_with_path_and_version(bench: NvmlBench) -> None:
    report = sample_until(bench.client(), ok)
    name, version, _, path = report.binding.split()
    assert name == "pynvml"
    assert version[0].isdigit()
    assert path.endswith("pynvml.py")
    assert report.library_path == os.path.join(bench.environment["LD_LIBRARY_PATH"], "libnvidia-ml.so.1")


def test_n1_a_module_of_that_name_that_is_something_else(bench: NvmlBench, tmp_path: Path) -> None:
    use_binding(bench, tmp_path / "stale", "smi = None\n")
    report = sample_until(bench.client(), lambda report: report.state is DriverState.FAILED)
    assert str(tmp_path / "stale" / "pynvml.py") in report.reason


def test_n1_bytes_instead_of_text(bench: NvmlBench, tmp_path: Path) -> None:
    """Bindings before 11.5 gave bytes, and lacked what came later."""
    binding = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("newer", PATH)
newer = sys.modules["newer"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(newer)
globals().update({name: thing for name, thing in vars(newer).items() if not name.startswith("__")})
for name in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetMarginTemperature", "nvmlMemory_v2"):
    del globals()[name]
nvmlDeviceGetName = lambda handle: newer.nvmlDeviceGetName(handle).encode()
nvmlDeviceGetUUID = lambda handle: newer.nvmlDeviceGetUUID(handle).encode()
nvmlSystemGetDriverVersion = lambda: newer.nvmlSystemGetDriverVersion().encode()
nvmlDeviceGetMemoryInfo = lambda handle: newer.nvmlDeviceGetMemoryInfo(handle)
__version__ = "8.0.4"
"""
    import pynvml

    use_binding(bench, tmp_path / "old", binding.replace("PATH", repr(pynvml.__file__)))
    report = sample_until(bench.client(), ok)
    assert report.binding.startswith("pynvml 8.0.4 from ")
    assert report.driver_version == "580.65.06"
    sample = report.samples[0]
    assert (sample.uuid, sample.name) == (uuid(0), "NVIDIA H100 80GB HBM3")
    assert sample.readings["gpu.temperature"].value == 41
    assert sample.sources["gpu.memory_used"] == "v1"


def test_n2_a_name_that_is_no_text(bench: NvmlBench) -> None:
    bench.scenario.set("2.name", "NVIDIA \udcff\udcfe")
    report = sample_until(bench.client(), ok)
    assert [sample.name for sample in report.samples[1:4]] == [
        "NVIDIA H100 80GB HBM3",
        "unknown",
        "NVIDIA H100 80GB HBM3",
    ]
    assert report.samples[2].readings["gpu.temperature"].value == 41


def test_n3_lists_are_passed_on_as_they_are(bench: NvmlBench) -> None:
    bench.scenario.processes(0, [(0, 5), (2**32 - 1, 2**63)])
    processes = sample_until(bench.client(), ok, with_processes=True).samples[0].processes
    assert processes is not None
    assert [(each.pid, each.used_bytes) for each in processes.processes] == [(0, 5), (2**32 - 1, 2**63)]


@pytest.mark.parametrize(
    "call, metric",
    [
        ("nvmlDeviceGetUtilizationRates", "gpu.utilisation"),
        ("nvmlDeviceGetPowerUsage", "gpu.power"),
        ("nvmlDeviceGetClockInfo", "gpu.sm_clock"),
    ],
)
def test_n4_a_function_that_the_library_lacks(bench: NvmlBench, call: str, metric: str) -> None:
    bench.scenario.error(13, call)
    client = bench.client()
    report = sample_until(client, ok)
    assert all(sample.readings[metric].unsupported for sample in report.samples)
    before = len(bench.calls(call))
    assert before >= 1
    sample_until(client, lambda later: later.taken != report.taken)
    assert len(bench.calls(call)) == before  # remembered


@pytest.mark.parametrize("code, fails", [(3, False), (999, True), (4, True)])
def test_one_reading_that_fails_leaves_the_others(bench: NvmlBench, code: int, fails: bool) -> None:
    bench.scenario.error(code, "nvmlDeviceGetPowerUsage", 1)
    sample = sample_until(bench.client(), ok).samples[1]
    broken = {name for name, reading in sample.readings.items() if reading.failed}
    assert broken == ({"gpu.power", "gpu.power_ratio"} if fails else set())
    assert sample.readings["gpu.power"].unsupported is not fails
    assert sample.readings["gpu.temperature"].value == 41


def test_n5_memory_prefers_the_second_version(bench: NvmlBench) -> None:
    bench.scenario.set("*.memory", f"{80 * GIB} {1 * GIB} {20 * GIB}")
    bench.scenario.error(13, "nvmlDeviceGetMemoryInfo_v2", 1)
    # One GPU without it is enough to know that the library lacks it, so ask of two hosts.
    report = sample_until(bench.client(), ok)
    old = report.samples[1]
    assert (old.sources["gpu.memory_used"], old.readings["gpu.memory_used"].value) == ("v1", 21 * GIB)
    assert old.readings["gpu.memory_reserved"].unsupported


def test_n5_the_second_version_keeps_reserved_memory_apart(bench: NvmlBench) -> None:
    bench.scenario.set("*.memory", f"{80 * GIB} {1 * GIB} {20 * GIB}")
    report = sample_until(bench.client(), ok)
    assert report.samples[0].sources["gpu.memory_used"] == "v2"
    assert number(report, 0, "gpu.memory_used") == 20 * GIB
    assert number(report, 0, "gpu.memory_reserved") == 1 * GIB
    assert number(report, 0, "gpu.memory_used_ratio") == pytest.approx(0.25)


def test_n6_no_memory_of_its_own(bench: NvmlBench) -> None:
    bench.scenario.set("*.memory", None)
    sample = sample_until(bench.client(), ok).samples[0]
    for metric in ("gpu.memory_total", "gpu.memory_used", "gpu.memory_used_ratio"):
        assert sample.readings[metric].unsupported


@pytest.mark.parametrize(
    "key, text, metric, says",
    [
        ("temperature", "0", "gpu.temperature", "0 C"),
        ("temperature", "255", "gpu.temperature", "255 C"),
        ("temperature", "-256", "gpu.temperature", "-256 C"),
        ("temperature", "126", "gpu.temperature", "126 C"),
        ("memory_temperature", "0", "gpu.memory_temperature", "0 C"),
        ("margin", "32767", "gpu.slowdown_margin", "C"),
        ("margin", "-32768", "gpu.shutdown_margin", "C"),
        ("utilisation", "101 0", "gpu.utilisation", "101 %"),
        ("power", "4294967295", "gpu.power", "W"),
        ("memory", "0 0 0", "gpu.memory_total", "0 bytes"),
    ],
)
def test_n9_implausible_values_are_failed_readings(
    bench: NvmlBench, key: str, text: str, metric: str, says: str
) -> None:
    bench.scenario.set(f"0.{key}", text)
    reading = one(bench, 0, metric)
    assert reading.failed
    assert "implausible" in (reading.problem or "")
    assert says in (reading.problem or "")


@pytest.mark.parametrize("celsius", [1, 125])
def test_n9_the_ends_of_the_range_are_plausible(bench: NvmlBench, celsius: int) -> None:
    bench.scenario.set("0.temperature", celsius)
    assert one(bench, 0, "gpu.temperature").value == celsius


class TestMargins:
    @pytest.mark.parametrize("margin, slowdown, shutdown", [(54, 56, 62), (0, 2, 8), (-3, -1, 5), (-8, -6, 0)])
    def test_tlimit_and_its_offsets(self, bench: NvmlBench, margin: int, slowdown: int, shutdown: int) -> None:
        bench.scenario.heat(0, 87 - margin)
        sample = sample_until(bench.client(), ok).samples[0]
        assert sample.readings["gpu.slowdown_margin"].value == slowdown
        assert sample.readings["gpu.shutdown_margin"].value == shutdown
        assert sample.sources["gpu.slowdown_margin"] == "tlimit"

    def test_absolute_points_of_an_older_card(self, bench: NvmlBench) -> None:
        bench.scenario.without_margins("*", "95 90 - 85")
        bench.scenario.set("0.temperature", 83)
        sample = sample_until(bench.client(), ok).samples[0]
        assert sample.readings["gpu.slowdown_margin"].value == 7
        assert sample.readings["gpu.shutdown_margin"].value == 12
        assert sample.sources["gpu.shutdown_margin"] == "threshold"

    def test_no_points_at_all(self, bench: NvmlBench) -> None:
        bench.scenario.without_margins("*", None)
        assert one(bench, 0, "gpu.slowdown_margin").unsupported

    def test_a_point_of_zero_degrees_is_none(self, bench: NvmlBench) -> None:
        bench.scenario.without_margins("*", "0 0 0 0")
        assert one(bench, 0, "gpu.slowdown_margin").failed

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda scenario: scenario.error(999, "nvmlDeviceGetMarginTemperature", 0),
            lambda scenario: scenario.error(999, "nvmlDeviceGetFieldValues", 0),
        ],
        ids=["margin", "offsets"],
    )
    def test_a_failure_is_not_hidden_behind_the_other_interface(
        self, bench: NvmlBench, spoil: Callable[[object], None]
    ) -> None:
        bench.scenario.set("*.thresholds", "95 90 - 85")
        spoil(bench.scenario)
        assert one(bench, 0, "gpu.slowdown_margin").failed

    def test_without_a_temperature_there_is_no_margin_to_absolute_points(self, bench: NvmlBench) -> None:
        bench.scenario.without_margins("*", "95 90 - 85")
        bench.scenario.set("0.temperature", 255)
        assert one(bench, 0, "gpu.shutdown_margin").failed


@pytest.mark.parametrize("reasons, slowed", [("0x40", 1), ("0x48", 1), ("0x4", 0), ("0x20", 0), ("0x8", 0)])
def test_only_the_thermal_bit_is_thermal_slowdown(bench: NvmlBench, reasons: str, slowed: int) -> None:
    """A18: a power cap is no fault."""
    bench.scenario.set("0.reasons", reasons)
    assert one(bench, 0, "gpu.hw_thermal_slowdown").value == slowed


def test_lost_cards_say_which_kind(bench: NvmlBench) -> None:
    bench.scenario.lose(0, 15)
    bench.scenario.lose(1, 16)
    client = bench.client()
    bench.scenario.error(None, index=0)
    bench.scenario.error(None, index=1)
    sample_until(client, ok)
    bench.scenario.lose(0, 15)
    bench.scenario.lose(1, 16)
    report = sample_until(client, lambda report: report.samples[0].lost is not None)
    assert "lost" in (report.samples[0].lost or "")
    assert "reset" in (report.samples[1].lost or "")


def test_a_card_that_was_lost_before_the_start_has_a_name_all_the_same(bench: NvmlBench) -> None:
    bench.scenario.lose(5)
    report = sample_until(bench.client(), ok)
    assert len(report.samples) == 8
    lost = report.samples[5]
    assert (lost.index, lost.uuid) == (5, "unidentified-5")
    assert lost.lost is not None


@pytest.mark.parametrize("code, problem", [(3, "unsupported"), (999, "NVML error 999")])
def test_a_list_of_processes_that_can_not_be_read(bench: NvmlBench, code: int, problem: str) -> None:
    bench.scenario.error(code, "nvmlDeviceGetComputeRunningProcesses_v3")
    bench.scenario.error(13, "nvmlDeviceGetComputeRunningProcesses_v2")
    processes = sample_until(bench.client(), ok, with_processes=True).samples[0].processes
    assert processes is not None
    assert processes.processes == ()
    assert problem in (processes.problem or "")


def test_a_driver_without_mps_lists_has_the_others(bench: NvmlBench) -> None:
    bench.scenario.processes(0, [(100, GIB)])
    bench.scenario.error(3, "nvmlDeviceGetMPSComputeRunningProcesses_v3")
    processes = sample_until(bench.client(), ok, with_processes=True).samples[0].processes
    assert processes is not None
    assert [each.pid for each in processes.processes] == [100]
