"""protocols.GpuDriver: the simulated driver and the real client over a C library keep the same promises."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Callable, Optional, Union

import pytest

from gpuwatch.model.gpu import DriverState, GpuIdentity, GpuProcess, GpuReport, MigInstance, ProcessList
from gpuwatch.model.gpu_change import GpuChange, GpuChanged
from gpuwatch.model.instant import Instant
from gpuwatch.model.metric import METRICS
from gpuwatch.model.pci import canonical
from gpuwatch.model.reading import value
from gpuwatch.simulation.gpus import SimulatedGpus
from gpuwatch.system.protocols import GpuDriver
from tests.conftest import refuse
from tests.fakes.nvml.bench import NvmlBench, alive, why_no_library
from tests.fakes.nvml.scenario import pci, uuid

GIB = 1024**3


class HandClock:
    """Moves when told to."""

    def __init__(self) -> None:
        self.second = 1000.0

    def now(self) -> Instant:
        return Instant("b" * 32, self.second, 1_800_000_000 + self.second)

    def monotonic(self) -> float:
        return self.second


class SimulatedWorld:
    """The driver of simulation/."""

    name = "simulated"

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.gpus = SimulatedGpus(self.clock)
        self.driver: GpuDriver = self.gpus

    def wait(self, second: float) -> None:
        self.clock.second += second

    def heat(self, index: int, celsius: int) -> None:
        self.gpus.heat(index, celsius)

    def processes(self, index: int, of: list[GpuProcess]) -> None:
        self.gpus.set_processes(index, of)

    def lose(self, index: int) -> None:
        self.gpus.lose(index)

    def find(self, index: int) -> None:
        self.gpus.find(index)

    def unlist_last(self) -> None:
        self.gpus.unlist(7)

    def without_margins(self, index: int) -> None:
        self.gpus.without_margins(index)

    def divide(self, index: int, parts: int, process: GpuProcess) -> None:
        instances = []
        for part in range(parts):
            there = process.instance == 7 + part
            used = value((process.used_bytes or 0) if there else 0)
            readings = {f"gpu.memory_{name}": used for name in ("total", "reserved", "used", "used_ratio")}
            listed = ProcessList((process,) if there else ())
            instances.append(MigInstance(f"MIG-{part}", 7 + part, 0, "1g.10gb", readings, listed))
        self.gpus.divide(index, instances)

    def unify_memory(self, index: int) -> None:
        self.gpus.unify_memory(index)

    def silence(self, silent: bool) -> None:
        self.gpus.silence(silent)

    def fail(self, state: DriverState) -> None:
        self.gpus.fail(state, "" if state is DriverState.OK else "as told")

    def identity(self, index: int) -> tuple[str, str]:
        return self.gpus.uuid(index), self.gpus.pci(index)

    def refuse_changes(self, index: int, problem: str) -> None:
        self.gpus.refuse_changes(index, problem)

    def revert_changes(self, index: int) -> None:
        self.gpus.revert_changes(index)

    def limit_by_hand(self, index: int, watts: int) -> None:
        self.gpus.limit_by_hand(index, watts)

    def writes(self) -> int:
        return len(self.gpus.writes)

    def still_there(self) -> bool:
        return not self.gpus.closed

    def close(self) -> None:
        """Nothing to end."""


class NvmlWorld:
    """The child, pynvml and the C library."""

    name = "nvml"

    def __init__(self, folder: Path) -> None:
        refuse(why_no_library())
        self.bench = NvmlBench(folder)
        self.driver: GpuDriver = self.bench.client()

    def wait(self, second: float) -> None:
        time.sleep(min(second, 0.05))

    def heat(self, index: int, celsius: int) -> None:
        self.bench.scenario.heat(index, celsius)

    def processes(self, index: int, of: list[GpuProcess]) -> None:
        for kind in ("compute", "graphics", "mps"):
            listed = [(process.pid, process.used_bytes) for process in of if process.kind == kind]
            self.bench.scenario.processes(index, listed, kind)

    def lose(self, index: int) -> None:
        self.bench.scenario.lose(index)

    def find(self, index: int) -> None:
        self.bench.scenario.error(None, index=index)

    def unlist_last(self) -> None:
        self.bench.scenario.set("count", 7)

    def without_margins(self, index: int) -> None:
        for name in ("margin", "tlimits"):
            self.bench.scenario.set(f"*.{name}", None)
            self.bench.scenario.set(f"{index}.{name}", None)

    def divide(self, index: int, parts: int, process: GpuProcess) -> None:
        self.bench.scenario.divide(index, parts)
        self.bench.scenario.processes(
            index, [(process.pid, process.used_bytes)], f"mig{(process.instance or 0) - 7}.compute"
        )

    def unify_memory(self, index: int) -> None:
        self.bench.scenario.set(f"{index}.memory", "")

    def silence(self, silent: bool) -> None:
        self.bench.scenario.hang(60 if silent else None, "nvmlDeviceGetPowerUsage")

    def fail(self, state: DriverState) -> None:
        if state is DriverState.ABSENT:
            shutil.rmtree(self.bench.driver)
        self.bench.scenario.error(18 if state is DriverState.MISMATCH else None, "nvmlInit")
        # A driver that runs does not change; what the next start finds is asked of a fresh client.
        self.driver.close(5.0)
        self.driver = self.bench.client()

    def identity(self, index: int) -> tuple[str, str]:
        return uuid(index), canonical(pci(index)) or ""

    def refuse_changes(self, index: int, problem: str) -> None:
        code = {"unsupported": 3, "no_permission": 4, "failed": 999}[problem]
        for call in ("nvmlDeviceSetPowerManagementLimit", "nvmlDeviceSetGpuLockedClocks"):
            self.bench.scenario.error(code, call, index)

    def revert_changes(self, index: int) -> None:
        self.bench.scenario.set(f"{index}.limit_reverts", 1)

    def limit_by_hand(self, index: int, watts: int) -> None:
        self.bench.scenario.limit_by_hand(index, watts)

    def writes(self) -> int:
        return len(self.bench.calls("nvmlDeviceSetPowerManagementLimit"))

    def still_there(self) -> bool:
        return any(alive(pid) for pid in self.bench.pids)

    def close(self) -> None:
        self.bench.close()


World = Union[SimulatedWorld, NvmlWorld]


@pytest.fixture(params=[SimulatedWorld, NvmlWorld], ids=lambda kind: kind.name)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    world: World = request.param(tmp_path)
    yield world
    world.close()


def ask(world: World, wanted: Callable[[GpuReport], bool], with_processes: bool = False) -> GpuReport:
    """Sample until a report is as wanted."""
    deadline = time.monotonic() + 20
    while True:
        report = world.driver.sample(with_processes, False, 0.3)
        if wanted(report):
            return report
        assert time.monotonic() < deadline, f"never so: {report}"
        world.wait(0.5)


def ok(report: GpuReport) -> bool:
    return report.state is DriverState.OK and report.taken is not None


def reading(report: GpuReport, index: int, metric: str) -> Optional[float]:
    return report.samples[index].readings[metric].value


def test_a_healthy_host(world: World) -> None:
    report = ask(world, ok)
    assert [sample.index for sample in report.samples] == list(range(8))
    assert len({sample.uuid for sample in report.samples}) == 8
    assert report.driver_version == "580.65.06"
    assert (report.reason, report.stuck_since, report.stuck_pids) == ("", None, ())
    for sample in report.samples:
        assert sample.uuid.startswith("GPU-")
        assert sample.pci == canonical(sample.pci)
        assert sample.name == "NVIDIA H100 80GB HBM3"
        assert (sample.lost, sample.processes) == (None, None)
        assert sample.sources["gpu.memory_used"] == "v2"
        assert sample.readings["gpu.fan"].unsupported
        of_gpus = {name: metric for name, metric in METRICS.items() if metric.scope == "gpu" and not metric.derived}
        assert set(sample.readings) == {name for name, metric in of_gpus.items() if metric.every_s == 1}
        assert set(sample.slow) == {name for name, metric in of_gpus.items() if metric.every_s == 60}
        assert [name for name in of_gpus if (each := sample.reading(name)) is not None and each.failed] == []
        assert (sample.taken, sample.unified_memory, sample.instances) == (None, False, ())


def test_what_a_healthy_card_says_once_a_minute(world: World) -> None:
    report = ask(world, ok)
    for sample in report.samples:
        told = {name: each.value for name, each in sample.slow.items()}
        assert (told["gpu.slowdown_point"], told["gpu.shutdown_point"], told["gpu.operating_point"]) == (89, 95, 87)
        assert (told["gpu.power_limit_min"], told["gpu.power_limit_max"], told["gpu.power_limit_default"]) == (
            200,
            700,
            700,
        )
        assert (told["gpu.pcie_generation"], told["gpu.pcie_width_max"], told["gpu.pcie_replays"]) == (5, 16, 0)
        assert (told["gpu.nvlinks_up"], told["gpu.nvlinks_down"], told["gpu.nvlink_replays"]) == (18, 0, 0)
        assert (told["gpu.fabric_state"], told["gpu.fabric_status"], told["gpu.fabric_degraded"]) == (3, 0, 0)
        assert (told["gpu.recovery_action"], told["gpu.persistence_mode"], told["gpu.mig_mode"]) == (0, 1, 0)
        assert (told["gpu.row_remap_pending"], told["gpu.pages_retired_correctable"]) == (0, None)
        taken = report.taken_of(sample, "gpu.recovery_action")
        assert taken is not None
        assert report.taken is not None
        assert (report.taken.since(taken) or 0) >= 0


def test_n12_what_each_gpu_offers_is_found_and_told(world: World) -> None:
    report = ask(world, ok, with_processes=True)
    assert set(report.capabilities) == {sample.uuid for sample in report.samples}
    for table in report.capabilities.values():
        assert table["gpu.temperature"] == table["processes"] == table["mig"] == "supported"
        assert table["gpu.fan"] == table["gpu.pages_retired_correctable"] == "unsupported"
        assert "failed" not in table.values()


def test_n10_a_gpu_that_is_remembered_and_not_there_and_one_that_is_new(world: World) -> None:
    there = ask(world, ok).samples
    gone = GpuIdentity("GPU-gone", 8, "NVIDIA H100 80GB HBM3", "0000:a8:00.0")
    known = [GpuIdentity(each.uuid, each.index, each.name, each.pci) for each in there]
    world.driver.expect([*known[:7], gone])
    world.wait(1.0)
    report = ask(world, lambda report: ok(report) and bool(report.missing))
    assert (report.missing, report.new) == (("GPU-gone",), (there[7].uuid,))
    (lost,) = [sample for sample in report.samples if sample.lost is not None]
    assert (lost.uuid, lost.pci, lost.name) == (gone.uuid, gone.pci, gone.name)
    world.driver.expect(known)
    world.wait(1.0)
    report = ask(world, lambda report: ok(report) and not report.missing)
    assert (report.new, len(report.samples)) == ((), 8)


def test_n8_instances_have_memory_and_processes_and_the_parent_the_temperature(world: World) -> None:
    world.divide(2, 2, GpuProcess(41872, "compute", 2 * GIB, 8))
    report = ask(world, lambda report: ok(report) and bool(report.samples[2].instances), with_processes=True)
    first, second = report.samples[2].instances
    assert (first.gpu_instance, second.gpu_instance) == (7, 8)
    assert first.uuid.startswith("MIG-")
    assert second.readings["gpu.memory_used"].value == 2 * GIB
    assert second.processes is not None
    assert [(each.pid, each.instance) for each in second.processes.processes] == [(41872, 8)]
    assert set(first.readings) == {f"gpu.memory_{name}" for name in ("total", "reserved", "used", "used_ratio")}
    assert reading(report, 2, "gpu.temperature") is not None
    assert report.samples[1].instances == ()


def test_n6_a_card_without_memory_of_its_own(world: World) -> None:
    world.unify_memory(0)
    report = ask(world, lambda report: ok(report) and report.samples[0].unified_memory)
    assert all(report.samples[0].readings[f"gpu.memory_{name}"].unsupported for name in ("total", "used", "used_ratio"))
    assert not report.samples[1].unified_memory


def test_a_paused_driver_says_so_and_can_be_resumed(world: World) -> None:
    before = ask(world, ok)
    world.driver.pause("after an Xid 119")
    paused = world.driver.sample(False, False, 0.3)
    assert (paused.state, len(paused.samples)) == (DriverState.PAUSED, 8)
    assert "after an Xid 119" in paused.reason
    assert paused.resumes is not None
    assert before.taken is not None
    assert 29 < (paused.resumes.since(before.taken) or 0) < 60
    world.driver.resume()
    assert ask(world, ok).state is DriverState.OK


def test_s14_a_released_driver_is_let_go(world: World) -> None:
    ask(world, ok)
    world.driver.release(3600)
    report = ask(world, lambda report: report.state is DriverState.RELEASED and report.child_pid == 0)
    assert report.resumes is not None
    world.driver.resume()
    assert ask(world, ok).state is DriverState.OK


def test_margins_follow_the_temperature(world: World) -> None:
    world.heat(3, 91)
    report = ask(world, lambda report: ok(report) and reading(report, 3, "gpu.temperature") == 91)
    assert reading(report, 3, "gpu.slowdown_margin") == -2
    assert reading(report, 3, "gpu.shutdown_margin") == 4
    assert (reading(report, 2, "gpu.slowdown_margin") or 0) > 20


def test_each_sample_is_newer(world: World) -> None:
    first = ask(world, ok)
    world.wait(1.0)
    second = ask(world, ok)
    assert first.taken is not None
    assert second.taken is not None
    assert (second.taken.since(first.taken) or 0) > 0


def test_processes_come_when_asked_for(world: World) -> None:
    listed = [GpuProcess(41872, "compute", 60 * GIB), GpuProcess(77, "graphics", None), GpuProcess(88, "mps", GIB)]
    world.processes(2, listed)
    report = ask(world, ok, with_processes=True)
    processes = report.samples[2].processes
    assert processes is not None
    assert list(processes.processes) == listed
    assert report.samples[1].processes is not None
    assert report.samples[1].processes.processes == ()
    world.wait(1.0)
    assert ask(world, ok).samples[2].processes is None


def test_a_lost_gpu_does_not_disturb_the_others(world: World) -> None:
    """N10."""
    before = ask(world, ok)
    world.lose(5)
    report = ask(world, lambda report: ok(report) and report.samples[5].lost is not None)
    lost = report.samples[5]
    assert (lost.uuid, lost.index, lost.readings) == (before.samples[5].uuid, 5, {})
    assert "15" in (lost.lost or "")
    assert all(sample.readings["gpu.temperature"].value for sample in report.samples if sample is not lost)
    world.find(5)
    ask(world, lambda report: ok(report) and report.samples[5].lost is None)


def test_a_gpu_that_is_listed_no_longer_is_lost(world: World) -> None:
    """N10: a UUID that is gone."""
    before = ask(world, ok)
    world.unlist_last()
    report = ask(world, lambda report: ok(report) and report.samples[-1].lost is not None)
    assert report.samples[-1].uuid == before.samples[7].uuid
    assert "not listed" in (report.samples[-1].lost or "")
    assert [sample.lost for sample in report.samples[:7]] == [None] * 7


def test_a_card_without_points_of_its_own(world: World) -> None:
    world.without_margins(0)
    report = ask(world, lambda report: ok(report) and report.samples[0].readings["gpu.slowdown_margin"].unsupported)
    assert report.samples[0].readings["gpu.shutdown_margin"].unsupported
    assert reading(report, 0, "gpu.temperature") is not None


def test_a_silent_driver_is_noticed_and_its_return_too(world: World) -> None:
    """N13: no call takes long, old samples keep their age, nothing is invented."""
    before = ask(world, ok)
    world.silence(True)
    silent = ask(world, lambda report: report.state is DriverState.SILENT)
    assert silent.stuck_since is not None
    assert silent.stuck_pids == (silent.child_pid,)
    assert silent.reason
    assert silent.taken is not None
    assert silent.taken.boottime_s <= silent.stuck_since.boottime_s
    began = time.monotonic()
    again = world.driver.sample(False, False, 5.0)
    assert time.monotonic() - began < 1.0
    assert (again.state, again.stuck_since, again.taken) == (silent.state, silent.stuck_since, silent.taken)
    assert [sample.uuid for sample in again.samples] == [sample.uuid for sample in before.samples]
    world.silence(False)
    # The first answers may still lack a GPU or two.
    back = ask(world, lambda report: ok(report) and report.stuck_since is None)
    assert back.taken is not None
    assert (back.taken.since(silent.taken) or 0) > 0
    assert (back.stuck_since, back.stuck_pids, back.reason) == (None, (), "")


@pytest.mark.parametrize("state", [DriverState.ABSENT, DriverState.MISMATCH])
def test_a_driver_that_can_not_be_used(world: World, state: DriverState) -> None:
    world.fail(state)
    report = ask(world, lambda report: report.state is state)
    assert report.reason
    assert report.taken is None
    assert report.samples == ()


def test_close_leaves_nothing(world: World) -> None:
    ask(world, ok)
    world.driver.close(5.0)
    assert not world.still_there()


def change_of(
    report: GpuReport, index: int, watts: Optional[float] = None, lock: Optional[tuple[int, int]] = None
) -> GpuChange:
    """For that card; a question without anything else."""
    sample = report.samples[index]
    return GpuChange(f"a17-{index}", sample.uuid, sample.pci, watts, lock)


def make(world: World, change: GpuChange) -> GpuChanged:
    """Ask for it, and again when no answer comes; the answer."""
    deadline, again = time.monotonic() + 20, 0.0
    while time.monotonic() < deadline:
        if time.monotonic() > again:
            world.driver.change(change)
            again = time.monotonic() + 3
        for answer in world.driver.sample(False, False, 0.3).changed:
            assert (answer.id, answer.uuid) == (change.id, change.uuid)
            return answer
        world.wait(0.5)
    raise AssertionError(f"no answer to {change}")


def test_a_power_limit_is_set_and_read_back_and_seen_with_the_next_samples(world: World) -> None:
    before = ask(world, ok)
    world.wait(1.0)
    answer = make(world, change_of(before, 2, 300))
    assert (answer.problem, answer.detail, answer.power_limit_w) == ("", "", 300)
    assert (answer.power_limit_min_w, answer.power_limit_max_w, answer.power_limit_default_w) == (200, 700, 700)
    assert before.taken is not None
    assert (answer.at.since(before.taken) or 0) > 0
    world.wait(1.0)
    report = ask(world, lambda report: ok(report) and reading(report, 2, "gpu.power_limit_set") == 300)
    assert reading(report, 2, "gpu.power_limit") == 300
    assert reading(report, 1, "gpu.power_limit_set") == 700
    assert report.changed == ()
    assert world.driver.sample(False, False, 0.3).changed == ()  # each answer once


@pytest.mark.parametrize("asked, got", [(50, 200), (199.4, 200), (300.6, 300.6), (9000, 700)])
def test_a15_a_power_limit_is_kept_within_the_card_s_range_and_otherwise_exact(
    world: World, asked: float, got: float
) -> None:
    answer = make(world, change_of(ask(world, ok), 0, asked))
    assert (answer.problem, answer.power_limit_w) == ("", got)


def test_a_question_changes_nothing(world: World) -> None:
    report = ask(world, ok)
    world.limit_by_hand(1, 450)
    answer = make(world, change_of(report, 1))
    assert (answer.problem, answer.power_limit_w, answer.power_limit_default_w) == ("", 450, 700)
    assert world.writes() == 0


def test_a_limit_that_somebody_else_sets_is_seen_with_the_next_samples(world: World) -> None:
    make(world, change_of(ask(world, ok), 1, 300))
    world.limit_by_hand(1, 650)
    world.wait(1.0)
    ask(world, lambda report: ok(report) and reading(report, 1, "gpu.power_limit_set") == 650)


def test_a15_a_limit_that_reverts_is_seen_with_the_next_samples(world: World) -> None:
    report = ask(world, ok)
    world.revert_changes(1)
    assert make(world, change_of(report, 1, 300)).power_limit_w == 300
    world.wait(1.0)
    ask(world, lambda report: ok(report) and reading(report, 1, "gpu.power_limit_set") == 700)


def test_clocks_are_locked_and_unlocked(world: World) -> None:
    report = ask(world, ok)
    answer = make(world, change_of(report, 3, lock=(1000, 1200)))
    assert (answer.problem, answer.power_limit_w) == ("", 700)
    world.wait(1.0)
    ask(world, lambda report: ok(report) and reading(report, 3, "gpu.graphics_clock") == 1000)
    sample = report.samples[3]
    assert make(world, GpuChange("u", sample.uuid, sample.pci, unlock_clocks=True)).problem == ""
    world.wait(1.0)
    ask(world, lambda report: ok(report) and reading(report, 3, "gpu.graphics_clock") == 345)


@pytest.mark.parametrize("problem", ["unsupported", "no_permission", "failed"])
def test_a16_a_card_that_refuses_leaves_the_others(world: World, problem: str) -> None:
    report = ask(world, ok)
    world.refuse_changes(4, problem)
    answer = make(world, change_of(report, 4, 300))
    assert (answer.problem, answer.power_limit_w) == (problem, 700)
    assert answer.detail
    assert make(world, change_of(report, 4, lock=(210, 1200))).problem == problem
    assert make(world, change_of(report, 5, 300)).problem == ""
    world.wait(1.0)
    report = ask(world, ok)
    assert [reading(report, index, "gpu.power_limit_set") for index in (4, 5)] == [700, 300]


def test_n17_nothing_is_set_on_a_card_that_is_not_where_it_was_or_is_gone(world: World) -> None:
    report = ask(world, ok)
    right, other = change_of(report, 0, 300), report.samples[1]
    moved = make(world, replace(right, pci=other.pci))
    assert (moved.problem, moved.power_limit_w) == ("gone", None)
    assert right.pci in moved.detail and other.pci in moved.detail
    assert make(world, replace(right, uuid="GPU-gone")).problem == "gone"
    world.lose(0)
    lost = make(world, right)
    assert (lost.problem, "15" in lost.detail) == ("gone", True)
    assert world.writes() == 0
    world.wait(1.0)
    assert ask(world, ok).samples[1].lost is None


def test_nothing_is_sent_before_the_first_answer_of_the_driver(world: World) -> None:
    world.driver.change(GpuChange("early", *world.identity(0), 300))
    report = ask(world, ok)
    assert (report.samples[0].uuid, report.samples[0].pci) == world.identity(0)
    for _ in range(10):
        world.wait(0.5)
        assert world.driver.sample(False, False, 0.3).changed == ()
    assert world.writes() == 0


@pytest.mark.parametrize("trouble", ["silent", "paused", "released"])
def test_s7_what_is_asked_of_a_driver_in_trouble_is_dropped_and_never_made_up_for(world: World, trouble: str) -> None:
    report = ask(world, ok)
    if trouble == "silent":
        world.silence(True)
        ask(world, lambda report: report.state is DriverState.SILENT)
    elif trouble == "paused":
        world.driver.pause("after an Xid 119")
    else:
        world.driver.release(3600)
    world.driver.change(change_of(report, 0, 300))
    world.driver.sample(False, False, 0.3)
    world.silence(False)
    world.driver.resume()
    ask(world, lambda report: ok(report) and report.stuck_since is None)
    for _ in range(10):
        world.wait(0.5)
        assert world.driver.sample(False, False, 0.3).changed == ()
    assert world.writes() == 0
