"""Units' cgroups as the cycle sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from gpuwatch.model.incident import Subject
from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import Reading, value
from gpuwatch.simulation.host_readings import SimulatedUnitFiles
from gpuwatch.sources.workloads import WorkloadSource
from tests.fakes.clock import FakeClock

A, B = "train@a.service", "train@b.service"
GROUPS = {A: f"/system.slice/{A}", B: f"/system.slice/{B}"}
GIB = 1024.0**3


class CountingFiles(SimulatedUnitFiles):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def readings(self, control_group: str) -> Optional[Mapping[str, Reading]]:
        self.asked.append(control_group)
        return super().readings(control_group)


def test_units_with_a_cgroup() -> None:
    files, clock = CountingFiles(), FakeClock()
    files.put(GROUPS[A], used=6 * GIB, limit=8 * GIB, oom_kills=2)
    report = WorkloadSource(files).observe({**GROUPS, "gone.service": ""}, clock.now())
    assert [each.unit for each in report.units] == [A]
    readings = report.units[0].readings
    assert readings["unit.memory_used_ratio"] == value(0.75)
    assert readings["unit.oom_kills"] == value(2)
    assert set(readings) == {name for name, metric in METRICS.items() if metric.scope == "unit" and not metric.derived}
    (subject,) = report.subjects()
    assert (subject.subject, subject.label, subject.taken) == (Subject("unit", A), A, clock.now())


def test_they_are_read_each_five_seconds_and_when_one_is_new() -> None:
    files, clock = CountingFiles(), FakeClock()
    for group in GROUPS.values():
        files.put(group, used=GIB)
    source = WorkloadSource(files)
    first = source.observe({A: GROUPS[A]}, clock.now())
    clock.advance(1.0)
    assert source.observe({A: GROUPS[A]}, clock.now()) is first
    both = source.observe(GROUPS, clock.now())
    assert [each.unit for each in both.units] == [A, B]
    clock.advance(1.0)
    fewer = source.observe({B: GROUPS[B]}, clock.now())
    assert [each.unit for each in fewer.units] == [B], "one that ended is not told any more"
    clock.advance(5.0)
    source.observe(GROUPS, clock.now())
    assert files.asked.count(GROUPS[A]) == 3
    assert source.observe({}, clock.now()).units == ()
