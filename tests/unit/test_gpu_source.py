"""S11: who uses a GPU, and of whom that is certain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

import pytest

from gpuwatch.model.gpu import Attribution, DriverState, GpuProcess, GpuReport, GpuSample, ProcessList
from gpuwatch.model.instant import Instant
from gpuwatch.model.reading import value
from gpuwatch.simulation.gpus import SimulatedProcesses
from gpuwatch.sources.gpu import GpuSource

GIB = 1024**3
UNIT = "/system.slice/system-train.slice/train@llama.service"


def at(second: float, boot: str = "b") -> Instant:
    return Instant(boot, second, 1_800_000_000 + second)


def report(
    second: float,
    processes: Optional[Sequence[GpuProcess]] = (),
    problem: Optional[str] = None,
    lost: Optional[str] = None,
    boot: str = "b",
) -> GpuReport:
    listed = None if processes is None else ProcessList(tuple(processes) if problem is None else (), problem)
    readings = {} if lost else {"gpu.memory_total": value(80 * GIB)}
    sample = GpuSample("GPU-1", 0, "H100", "0000:18:00.0", readings, None if lost else listed, lost)
    return GpuReport(DriverState.OK, taken=at(second, boot), samples=(sample,))


def compute(pid: int, used: Optional[int] = GIB) -> GpuProcess:
    return GpuProcess(pid, "compute", used)


class Bench:
    """A source over processes that the test puts in."""

    def __init__(self) -> None:
        self.processes = SimulatedProcesses()
        self.source = GpuSource(self.processes)
        self.processes.put(100, UNIT, started_boottime_s=10)

    def see(self, seen: GpuReport, now: Optional[Instant] = None) -> Attribution:
        assert seen.taken is not None
        (attribution,) = self.source.observe(seen, now or seen.taken)
        return attribution


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_process_is_confirmed_by_the_second_reading(bench: Bench) -> None:
    first = bench.see(report(100, [compute(100)]))
    assert [owner.pid for owner in first.owners] == [100]
    assert first.confirmed == ()
    second = bench.see(report(105, [compute(100, 3 * GIB)]))
    assert second.confirmed == (100,)
    (owner,) = second.owners
    assert (owner.unit, owner.kind, owner.user, owner.used_bytes) == ("train@llama.service", "unit", "ml-team", 3 * GIB)
    assert second.unknown is None


def test_the_same_reading_twice_confirms_nothing(bench: Bench) -> None:
    seen = report(100, [compute(100)])
    bench.see(seen)
    assert bench.see(seen, at(101)).confirmed == ()


def test_a_slow_gpu_s_list_that_comes_twice_confirms_nothing(bench: Bench) -> None:
    """Its sample is older than the report, and may be in two reports."""
    for second in (101, 102):
        (sample,) = report(100, [compute(100)]).samples
        seen = GpuReport(DriverState.OK, taken=at(second), samples=(replace(sample, taken=at(100)),))
        attribution = bench.see(seen)
        assert (attribution.taken, attribution.confirmed) == (at(100), ())


def test_a_process_on_a_mig_instance_says_which(bench: Bench) -> None:
    (owner,) = bench.see(report(100, [GpuProcess(100, "compute", GIB, 8)])).owners
    assert owner.instance == 8


def test_between_readings_the_last_word_stands_with_its_age(bench: Bench) -> None:
    bench.see(report(100, [compute(100)]))
    bench.see(report(105, [compute(100)]))
    later = bench.see(report(107, processes=None))
    assert (later.taken, later.confirmed) == (at(105), (100,))


def test_nothing_is_said_of_a_gpu_whose_list_was_never_read(bench: Bench) -> None:
    assert bench.source.observe(report(100, processes=None), at(100)) == ()


def test_answers_of_a_silent_driver_are_not_taken_as_new(bench: Bench) -> None:
    bench.see(report(100, [compute(100)]))
    bench.processes.end(100)
    stale = replace(report(105, [compute(100)]), state=DriverState.SILENT)
    assert bench.see(stale).taken == at(100)


@pytest.mark.parametrize(
    "change",
    ["another start time", "another cgroup", "started after the first reading", "too long ago", "another boot"],
)
def test_readings_that_do_not_agree_confirm_nothing(bench: Bench, change: str) -> None:
    if change == "started after the first reading":
        bench.processes.put(100, UNIT, started_boottime_s=100.5)
    bench.see(report(100, [compute(100)]))
    second, boot = 105.0, "b"
    if change == "another start time":
        bench.processes.put(100, UNIT, started_boottime_s=11)
    elif change == "another cgroup":
        bench.processes.put(100, "/system.slice/other.service", started_boottime_s=10)
    elif change == "too long ago":
        second = 161.0
    elif change == "another boot":
        boot = "c"
    assert bench.see(report(second, [compute(100)], boot=boot)).confirmed == ()


@pytest.mark.parametrize(
    "processes, problem, reason",
    [
        ([compute(100), compute(0)], None, "pid 0"),
        ([compute(100), compute(2**32 - 1)], None, "pid 4294967295"),
        ([compute(100, 81 * GIB)], None, "bytes"),
        ([compute(100, 41 * GIB), compute(101, 41 * GIB)], None, "bytes"),
        ([compute(900), compute(901)], None, "exists"),
        ([], "nvmlDeviceGetComputeRunningProcesses_v3: Unknown Error (NVML error 999)", "NVML error 999"),
        ([], "unsupported", "does not tell"),
        ([compute(100), compute(666)], None, "Permission denied"),
    ],
)
def test_a_list_that_is_not_to_be_believed_names_nobody(
    bench: Bench, processes: list[GpuProcess], problem: Optional[str], reason: str
) -> None:
    """N3: the whole list is discarded, and what was read before can't confirm anything after it."""
    bench.processes.put(101, UNIT)
    bench.processes.hide(666)
    bench.see(report(100, [compute(100)]))
    doubtful = bench.see(report(101, processes, problem))
    assert reason in (doubtful.unknown or "")
    assert (doubtful.owners, doubtful.confirmed) == ((), ())
    assert bench.see(report(102, [compute(100)])).confirmed == ()
    assert bench.see(report(103, [compute(100)])).confirmed == (100,)


def test_memory_that_the_driver_does_not_tell_is_not_implausible(bench: Bench) -> None:
    bench.see(report(100, [compute(100, None)]))
    second = bench.see(report(101, [compute(100, None)]))
    assert (second.confirmed, second.owners[0].used_bytes) == ((100,), None)


def test_an_ended_process_and_a_zombie_are_dropped(bench: Bench) -> None:
    bench.processes.put(102, UNIT, state="Z")
    seen = bench.see(report(100, [compute(100), compute(101), compute(102)]))
    assert [owner.pid for owner in seen.owners] == [100]
    assert seen.unknown is None


def test_an_empty_list_is_an_answer(bench: Bench) -> None:
    seen = bench.see(report(100, []))
    assert (seen.owners, seen.unknown) == ((), None)


def test_a_process_in_two_lists_counts_once(bench: Bench) -> None:
    both = [GpuProcess(100, "graphics", 50 * GIB), GpuProcess(100, "compute", 50 * GIB)]
    (owner,) = bench.see(report(100, both)).owners
    assert (owner.process_kind, owner.used_bytes) == ("compute", 50 * GIB)


def test_an_mps_server_is_never_confirmed(bench: Bench) -> None:
    bench.processes.put(200, "/system.slice/mps.service", name="nvidia-cuda-mps")
    lists = [compute(100), GpuProcess(200, "compute", GIB)]
    bench.see(report(100, lists))
    second = bench.see(report(105, lists))
    assert {owner.pid for owner in second.owners} == {100, 200}
    assert second.confirmed == (100,)


class TestLost:
    def test_the_last_good_list_is_looked_up_again_and_marked(self, bench: Bench) -> None:
        bench.processes.put(101, UNIT)
        bench.see(report(100, [compute(100), compute(101)]))
        bench.see(report(105, [compute(100), compute(101)]))
        bench.processes.end(101)
        seen = bench.see(report(125, lost="GPU is lost"))
        assert [owner.pid for owner in seen.owners] == [100]
        assert (seen.confirmed, seen.taken, seen.stale_s) == ((100,), at(105), 20.0)

    def test_a_pid_that_is_another_process_now_is_dropped(self, bench: Bench) -> None:
        bench.see(report(100, [compute(100)]))
        bench.see(report(105, [compute(100)]))
        bench.processes.put(100, UNIT, started_boottime_s=110)
        seen = bench.see(report(125, lost="GPU is lost"))
        assert (seen.owners, seen.confirmed) == ((), ())

    def test_after_a_minute_nobody_knows(self, bench: Bench) -> None:
        bench.see(report(100, [compute(100)]))
        bench.see(report(105, [compute(100)]))
        seen = bench.see(report(165.5, lost="GPU is lost"))
        assert seen.owners == ()
        assert "too old" in (seen.unknown or "")

    def test_a_card_that_comes_back_starts_anew(self, bench: Bench) -> None:
        bench.see(report(100, [compute(100)]))
        bench.see(report(105, [compute(100)]))
        bench.see(report(110, lost="GPU is lost"))
        assert bench.see(report(115, [compute(100)])).confirmed == ()
        assert bench.see(report(116, [compute(100)])).confirmed == (100,)
