"""Control groups of the units that workloads name, whether or not they use a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpuwatch.simulation.systemd import SimulatedSystemd, SimulatedUnit
from gpuwatch.sources.unit_groups import UnitGroups
from gpuwatch.system.protocols import ListedUnit
from gpuwatch.system.worker import InlineWorker
from tests.fakes.clock import FakeClock
from tests.unit.container_bench import HeldWorker

A, B, WEB = "train@a.service", "train@b.service", "web.service"
TRAIN, ALL = ("train@*.service",), ("train@*.service", "web.service")


def groups(*names: str) -> dict[str, str]:
    return {name: f"/system.slice/{name}" for name in names}


class Bench:
    """Three units, asked on a worker that answers when it is told to."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.systemd = SimulatedSystemd(self.clock, [SimulatedUnit(name) for name in (A, B, WEB)])
        self.worker = HeldWorker(self.clock)
        self.source = UnitGroups(self.systemd, self.worker)

    def see(self, globs: tuple[str, ...] = TRAIN, after_s: float = 0.0) -> dict[str, str]:
        self.clock.advance(after_s)
        return dict(self.source.observe(globs, self.clock.now()))

    def answer(self) -> None:
        self.worker.tasks[-1].finish()


def test_a_cycle_never_waits_for_systemd_and_asks_one_question_at_a_time() -> None:
    bench = Bench()
    assert bench.see() == {}
    assert bench.see(after_s=60.0) == {}
    assert len(bench.worker.tasks) == 1
    bench.answer()
    assert len(bench.worker.tasks) == 1


def test_it_is_asked_each_ten_seconds() -> None:
    bench = Bench()
    bench.see()
    bench.answer()
    for _ in range(9):
        assert bench.see(after_s=1.0) == groups(A, B)
    assert len(bench.worker.tasks) == 1
    bench.systemd.end(B)
    assert bench.see(after_s=1.0) == groups(A, B)
    bench.answer()
    assert bench.see() == groups(A)


def test_other_globs_are_asked_for_within_two_seconds() -> None:
    bench = Bench()
    bench.see()
    bench.answer()
    assert bench.see(ALL, after_s=1.0) == groups(A, B)
    assert len(bench.worker.tasks) == 1
    assert bench.see(ALL, after_s=1.0) == groups(A, B)
    bench.answer()
    assert bench.see(ALL) == groups(A, B, WEB)
    assert bench.see(("web.service",)) == groups(WEB), "what no workload names any more is gone at once"


def test_an_answer_is_trusted_for_thirty_seconds_from_its_question() -> None:
    bench = Bench()
    bench.see()
    bench.clock.advance(5.0)
    bench.answer()
    assert bench.see(after_s=25.0) == groups(A, B)
    assert len(bench.worker.tasks) == 2  # unanswered
    assert bench.see(after_s=1.0) == {}
    bench.answer()
    assert bench.see() == groups(A, B)
    bench.clock.reboot("b" * 32)
    assert bench.see() == {}


def test_a_systemd_that_cannot_be_asked_leaves_what_was_known() -> None:
    clock = FakeClock()
    systemd = SimulatedSystemd(clock, [SimulatedUnit(A)])
    source = UnitGroups(systemd, InlineWorker())
    assert source.observe(TRAIN, clock.now()) == groups(A), "an answer at once is told at once (run --once)"
    systemd.silence(True)
    clock.advance(10.0)
    assert source.observe(TRAIN, clock.now()) == groups(A)
    assert source.problem == "systemd does not answer"
    clock.advance(10.0)
    systemd.silence(False)
    assert source.observe(TRAIN, clock.now()) == groups(A)
    assert source.problem == ""


@pytest.mark.parametrize("name", ["systemd-oomd.service", "docker.service", "gpuwatch.service", "session-4.scope"])
def test_units_that_can_be_no_workload_are_left_out(name: str) -> None:
    clock = FakeClock()
    source = UnitGroups(SimulatedSystemd(clock, [SimulatedUnit(name), SimulatedUnit(A)]), InlineWorker())
    assert source.observe(("*.service", "*.scope"), clock.now()) == groups(A)


class Starting(SimulatedSystemd):
    """Its units have no processes yet."""

    def units(self, globs: Sequence[str]) -> tuple[ListedUnit, ...]:
        return tuple(ListedUnit(each.name, "activating", "") for each in super().units(globs))


def test_a_unit_without_a_cgroup_yet_is_left_out() -> None:
    clock = FakeClock()
    source = UnitGroups(Starting(clock, [SimulatedUnit(A)]), InlineWorker())
    assert source.observe(TRAIN, clock.now()) == {}
    assert source.problem == ""


def test_nobody_is_asked_without_globs() -> None:
    bench = Bench()
    assert bench.see(()) == {}
    assert bench.worker.tasks == []
