"""What the child reads once a minute, and cards that are special: MIG, virtual, unified memory, nonsense in T.Limit."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Optional

import pytest

from gpuwatch.model.gpu import DriverState, GpuIdentity, GpuReport
from gpuwatch.model.metric import METRICS
from gpuwatch.system.nvml.patience import Patience
from tests.fakes.nvml.bench import QUICK, NvmlBench, number, sample_until
from tests.fakes.nvml.scenario import pci, uuid

GIB = 1024**3


def ok(report: GpuReport) -> bool:
    return report.state is DriverState.OK and report.taken is not None and not report.reason


@pytest.mark.parametrize(
    "key, text, told",
    [
        ("ecc", "3 1 70 2", {"ecc_corrected": 3, "ecc_uncorrected": 1, "ecc_corrected_ever": 70}),
        ("ecc", "0 0 0 2", {"ecc_uncorrected": 0, "ecc_uncorrected_ever": 2}),
        ("ecc_mode", "0", {"ecc_enabled": 0}),
        ("rows", "1 2 1 0", {"rows_remapped_correctable": 1, "rows_remapped_uncorrectable": 2, "row_remap_pending": 1}),
        ("rows", "0 8 0 1", {"row_remap_failed": 1, "row_remap_pending": 0}),
        ("pages", "5 6 1", {"pages_retired_correctable": 5, "pages_retired_uncorrectable": 6}),
        ("pages", "5 6 1", {"page_retirement_pending": 1}),
        ("pcie", "1 8 5 16 42", {"pcie_generation": 1, "pcie_width": 8, "pcie_generation_max": 5, "pcie_replays": 42}),
        ("nvlinks", "1 0 1 1", {"nvlinks_up": 3, "nvlinks_down": 1}),
        ("nvlink_errors", "1 2 3 4", {"nvlink_replays": 1, "nvlink_recoveries": 2, "nvlink_flit_errors": 3}),
        ("nvlink5_errors", "2 1", {"nvlink_effective_errors": 36, "nvlink_failed_recoveries": 18}),
        ("fabric", "2 0 0", {"fabric_state": 2, "fabric_degraded": None}),
        ("fabric", "3 999 1", {"fabric_status": 999, "fabric_degraded": 1}),
        ("fabric", "0 0 0", {"fabric_state": None, "fabric_status": None}),
        ("persistence", "0", {"persistence_mode": 0}),
        (
            "limits",
            "100000 400000 350000",
            {"power_limit_min": 100, "power_limit_max": 400, "power_limit_default": 350},
        ),
        ("max_clocks", "2100 2100 9501 1950", {"max_sm_clock": 2100, "max_memory_clock": 9501}),
    ],
)
def test_each_of_them(bench: NvmlBench, key: str, text: str, told: dict[str, Optional[float]]) -> None:
    bench.scenario.set(f"*.{key}", text)
    report = sample_until(bench.client(), ok)
    assert {name: number(report, 0, f"gpu.{name}") for name in told} == told
    assert [name for name, each in report.samples[0].slow.items() if each.failed] == []


def test_k9_the_recovery_action_is_known_with_the_first_report(bench: NvmlBench) -> None:
    bench.scenario.set("4.recovery", 2)
    report = sample_until(bench.client(), ok)
    assert [number(report, index, "gpu.recovery_action") for index in (3, 4)] == [0, 2]


def test_an_old_driver_without_field_values_has_calls(bench: NvmlBench) -> None:
    bench.scenario.set("*.no_fields", 1)
    bench.scenario.set("*.ecc", "3 1 70 2")
    bench.scenario.set("*.nvlink_errors", "1 2 3 4")
    bench.scenario.set("*.pcie", "4 16 4 16 7")
    report = sample_until(bench.client(), ok)
    names = ("ecc_corrected", "ecc_uncorrected_ever", "ecc_enabled", "nvlink_replays", "nvlink_data_errors")
    assert [number(report, 0, f"gpu.{name}") for name in (*names, "pcie_replays")] == [3, 2, 1, 1, 4, 7]
    assert number(report, 0, "gpu.recovery_action") is None


@pytest.mark.parametrize(
    "call, broken",
    [
        ("nvmlDeviceGetRemappedRows", 4),
        ("nvmlDeviceGetNvLinkState", 8),
        ("nvmlDeviceGetPowerManagementLimitConstraints", 2),
        ("nvmlDeviceGetMigMode", 1),
    ],
)
def test_a_call_that_fails_fails_alone(bench: NvmlBench, call: str, broken: int) -> None:
    bench.scenario.error(999, call, 1)
    report = sample_until(bench.client(), ok)
    slow = report.samples[1].slow
    assert sum(each.failed for each in slow.values()) == broken
    assert not any(each.failed for each in report.samples[0].slow.values())
    assert report.samples[1].readings["gpu.temperature"].value == 41


def test_it_is_asked_once_a_minute_and_the_calls_of_each_second_are_few(bench: NvmlBench) -> None:
    client = bench.client(Patience(gpu_s=2.0, prompt_s=1.0))
    report = sample_until(client, ok)
    assert len(bench.calls("nvmlDeviceGetRemappedRows")) == 8
    for _ in range(5):
        sample_until(client, lambda later, before=report: later.taken != before.taken)  # type: ignore[misc]
    assert len(bench.calls("nvmlDeviceGetRemappedRows")) == 8
    before = len(bench.calls())
    seen = client.sample(False, False, 1.0)
    assert ok(seen)
    assert len(bench.calls()) - before <= 1 + 8 * 20


def test_it_is_read_again_when_a_minute_is_over(bench: NvmlBench) -> None:
    client = bench.client(Patience(gpu_s=2.0, prompt_s=1.0, minute_s=0.5))
    first = sample_until(client, ok).samples[0].slow_taken
    bench.scenario.set("*.rows", "0 1 1 0")
    later = sample_until(client, lambda later: number(later, 0, "gpu.row_remap_pending") == 1)
    assert later.samples[0].slow_taken is not None
    assert first is not None
    assert (later.samples[0].slow_taken.since(first) or 0) >= 0.5


def test_slow_calls_of_a_minute_do_not_hold_up_the_readings_of_a_second(bench: NvmlBench) -> None:
    client = bench.client(Patience(gpu_s=5.0, prompt_s=0.2, minute_s=0.5))
    first = sample_until(client, ok)
    bench.scenario.hang(1.0, "nvmlDeviceGetRemappedRows", 6)
    began = time.monotonic()
    taken = set()
    while time.monotonic() - began < 3.0:
        report = client.sample(False, False, 0.3)
        assert report.state is DriverState.OK
        assert report.samples[6].readings["gpu.temperature"].value == 41
        taken.add(report.taken)
        time.sleep(0.1)
    assert len(taken) >= 8
    assert report.samples[6].slow_taken != first.samples[6].slow_taken


def test_a_slow_gpu_does_not_delay_the_others(bench: NvmlBench) -> None:
    client = bench.client(Patience(gpu_s=2.0, prompt_s=0.1, silent_s=3.0))
    sample_until(client, ok)
    bench.scenario.hang(0.6, "nvmlDeviceGetPowerUsage", 6)
    ages = []
    for step in range(12):
        bench.scenario.heat(0, 50 + step)
        asked = time.monotonic()
        report = sample_until(client, lambda report, step=step: number(report, 0, "gpu.temperature") == 50 + step)  # type: ignore[misc]
        assert time.monotonic() - asked < 1.0
        assert report.stuck_since is None
        slow = report.samples[6]
        assert slow.readings["gpu.temperature"].value == 41
        taken = report.taken_of(slow)
        assert taken is not None
        assert report.taken is not None
        ages.append(report.taken.since(taken) or 0.0)
        time.sleep(0.15)
    assert 0.1 < max(ages) < 3.0


def test_one_pass_over_eight_gpus_needs_no_process_and_no_thread(bench: NvmlBench) -> None:
    client = bench.client()
    pid = sample_until(client, ok).child_pid
    threads = sorted(os.listdir(f"/proc/{pid}/task"))
    own = threading.active_count()
    for _ in range(10):
        client.sample(True, False, 1.0)
    assert sorted(os.listdir(f"/proc/{pid}/task")) == threads
    assert all(Path(f"/proc/{pid}/task/{task}/children").read_text() == "" for task in threads)
    assert (bench.pids, threading.active_count()) == ([pid], own)


class TestReasons:
    @pytest.mark.parametrize(
        "mask, said",
        [
            (0x1, {"idle"}),
            (0x2, {"application_clocks"}),
            (0x4, {"sw_power_cap"}),
            (0x8, {"hw_slowdown"}),
            (0x10, {"sync_boost"}),
            (0x20, {"sw_thermal_slowdown"}),
            (0x48, {"hw_slowdown", "hw_thermal_slowdown"}),
            (0x88, {"hw_slowdown", "hw_power_brake"}),
            (0, set()),
        ],
    )
    def test_a18_each_by_itself(self, bench: NvmlBench, mask: int, said: set[str]) -> None:
        bench.scenario.set("0.reasons", hex(mask))
        sample = sample_until(bench.client(), ok).samples[0]
        names = {"idle", "application_clocks", "sw_power_cap", "hw_slowdown", "sync_boost"}
        names |= {"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake"}
        assert {name for name in names if sample.readings[f"gpu.{name}"].value == 1} == said
        assert all(sample.readings[f"gpu.{name}"].value == 0 for name in names - said)

    def test_what_a_card_can_not_tell_is_unsupported(self, bench: NvmlBench) -> None:
        bench.scenario.set("0.supported_reasons", "0x7")
        readings = sample_until(bench.client(), ok).samples[0].readings
        assert readings["gpu.hw_power_brake"].unsupported
        assert readings["gpu.sw_power_cap"].value == 0

    def test_a_card_that_does_not_say_what_it_can_tell(self, bench: NvmlBench) -> None:
        bench.scenario.set("*.supported_reasons", None)
        assert number(sample_until(bench.client(), ok), 0, "gpu.hw_power_brake") == 0


class TestNonsenseInTheMargin:
    def test_a_constant_on_a_cold_card_is_no_alarm_also_when_it_is_warm(self, bench: NvmlBench) -> None:
        bench.scenario.heat(0, 35)
        bench.scenario.set("0.margin", 0)
        client = bench.client()
        report = sample_until(client, ok)
        for _ in range(3):
            report = sample_until(client, lambda later, before=report: later.taken != before.taken)  # type: ignore[misc]
        bench.scenario.set("0.temperature", 88)
        report = sample_until(client, lambda report: number(report, 0, "gpu.temperature") == 88)
        sample = report.samples[0]
        for name in ("slowdown", "shutdown", "operating"):
            assert sample.readings[f"gpu.{name}_margin"].unsupported
            assert sample.sources[f"gpu.{name}_margin"] == "nonsense"
        assert report.capabilities[sample.uuid]["gpu.slowdown_margin"] == "unsupported"
        assert number(report, 1, "gpu.slowdown_margin") == 48

    def test_points_in_degrees_serve_in_its_place(self, bench: NvmlBench) -> None:
        bench.scenario.heat(0, 35)
        bench.scenario.set("0.margin", 0)
        bench.scenario.set("0.thresholds", "95 90 - 85")
        sample = sample_until(bench.client(), ok).samples[0]
        assert sample.readings["gpu.slowdown_margin"].value == 55
        assert sample.sources["gpu.slowdown_margin"] == "threshold"

    def test_an_offset_that_is_none(self, bench: NvmlBench) -> None:
        bench.scenario.set("*.tlimits", "-8 120 0 0")
        sample = sample_until(bench.client(), ok).samples[0]
        assert sample.readings["gpu.slowdown_margin"].failed
        assert sample.readings["gpu.shutdown_margin"].value == 54


class TestMig:
    def test_n8_memory_and_processes_of_instances(self, bench: NvmlBench) -> None:
        bench.scenario.divide(3, 2)
        bench.scenario.set("3.mig1.compute", f"4242:{GIB}")
        bench.scenario.set("3.compute", f"4242:{GIB}:8")
        report = sample_until(bench.client(), ok, with_processes=True)
        sample = report.samples[3]
        assert [each.gpu_instance for each in sample.instances] == [7, 8]
        assert [each.readings["gpu.memory_used"].value for each in sample.instances] == [GIB, 2 * GIB]
        assert sample.instances[0].name.endswith("1g.10gb")
        for processes in (sample.instances[1].processes, sample.processes):
            assert processes is not None
            assert [(each.pid, each.instance) for each in processes.processes] == [(4242, 8)]
        assert (number(report, 3, "gpu.temperature"), number(report, 3, "gpu.mig_mode")) == (41, 1)
        assert sample.readings["gpu.utilisation"].unsupported  # N7
        assert report.capabilities[sample.uuid]["mig"] == "supported"

    def test_n8_where_the_parent_lists_nobody_its_instances_do(self, bench: NvmlBench) -> None:
        bench.scenario.divide(3, 2)
        bench.scenario.set("3.mig1.compute", f"4242:{GIB}")
        # The call is refused for the parent only: its handle is the one without an instance.
        bench.scenario.set("3.parent_lists", "no")
        processes = sample_until(bench.client(), ok, with_processes=True).samples[3].processes
        assert processes is not None
        assert [(each.pid, each.instance) for each in processes.processes] == [(4242, 8)]

    def test_instances_come_and_go(self, bench: NvmlBench) -> None:
        client = bench.client()
        assert sample_until(client, ok, with_processes=True).samples[3].instances == ()
        bench.scenario.divide(3, 3)
        sample_until(client, lambda report: len(report.samples[3].instances) == 3, with_processes=True)
        bench.scenario.set("3.mig1.ids", None)
        report = sample_until(client, lambda report: len(report.samples[3].instances) == 2, with_processes=True)
        assert [each.gpu_instance for each in report.samples[3].instances] == [7, 9]


def test_n6_unified_memory(bench: NvmlBench) -> None:
    bench.scenario.bare("temperature", "utilisation", "power", "clocks", "reasons", "pstate")
    report = sample_until(bench.client(), ok, with_processes=True)
    sample = report.samples[0]
    assert sample.unified_memory
    assert sample.readings["gpu.memory_used_ratio"].unsupported
    assert [name for name, each in {**sample.readings, **sample.slow}.items() if each.failed] == []
    assert number(report, 0, "gpu.temperature") == 41


def test_a_virtual_gpu_offers_little_and_fails_in_nothing(bench: NvmlBench) -> None:
    bench.scenario.bare("memory", "utilisation")
    report = sample_until(bench.client(), ok, with_processes=True)
    sample = report.samples[0]
    offered = {name for name, word in report.capabilities[sample.uuid].items() if word == "supported"}
    memory = {f"gpu.memory_{name}" for name in ("total", "reserved", "used", "used_ratio", "utilisation")}
    assert offered == {"gpu.utilisation", "processes"} | memory
    unsupported = {name for name, metric in METRICS.items() if metric.scope == "gpu" and not metric.derived} - offered
    assert all(reading.unsupported for name in unsupported if (reading := sample.reading(name)) is not None)
    assert not sample.unified_memory


class TestInventory:
    def test_n10_a_gpu_that_is_gone_since_the_last_run(self, bench: NvmlBench) -> None:
        bench.scenario.set("count", 7)
        client = bench.client()
        client.expect([GpuIdentity(uuid(index), index, "NVIDIA H100 80GB HBM3", "") for index in range(8)])
        report = sample_until(client, ok)
        assert report.missing == (uuid(7),)
        assert [sample.uuid for sample in report.samples if sample.lost] == [uuid(7)]

    def test_a_card_that_was_lost_before_the_start_is_named_by_the_kernel_module(self, bench: NvmlBench) -> None:
        for index in range(8):
            folder = bench.driver / "gpus" / pci(index).lower()[4:]
            folder.mkdir(parents=True)
            (folder / "information").write_text(f"Model: \t NVIDIA H100\nGPU UUID: \t {uuid(index)}\n")
        bench.scenario.lose(5)
        report = sample_until(bench.client(), ok)
        lost = report.samples[5]
        assert (lost.uuid, lost.pci) == (uuid(5), "0000:68:00.0")
        assert "15" in (lost.lost or "")
        assert (report.missing, report.new) == ((), ())


def test_after_a_pause_the_driver_is_probed_and_sampled_again(bench: NvmlBench) -> None:
    client = bench.client(Patience(gpu_s=2.0, prompt_s=0.5, probe_s=1.0))
    sample_until(client, ok)
    bench.scenario.heat(0, 70)
    client.pause("after an Xid 119")
    before = len(bench.calls())
    while client.sample(False, False, 0.05).resumes is not None and len(bench.calls()) == before:
        time.sleep(0.02)
    report = sample_until(client, lambda report: number(report, 0, "gpu.temperature") == 70)
    assert bench.calls()[before].split()[1] == "nvmlDeviceGetCount_v2"
    assert report.state is DriverState.OK


def test_s14_release_ends_the_child_and_resume_starts_one(bench: NvmlBench) -> None:
    client = bench.client(QUICK)
    pid = sample_until(client, ok).child_pid
    client.release(3600)
    report = sample_until(client, lambda report: report.child_pid == 0)
    assert report.state is DriverState.RELEASED
    assert not Path(f"/proc/{pid}").exists()
    calls = len(bench.calls())
    for _ in range(10):
        assert client.sample(True, False, 0.05).state is DriverState.RELEASED
    assert len(bench.calls()) == calls
    client.resume()
    assert sample_until(client, ok).child_pid not in (0, pid)
