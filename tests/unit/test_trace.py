"""The last two minutes of each card: in order, each sample once, anew where the past means nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.model.gpu import DriverState, GpuReport
from gpuwatch.model.trace import Trace, TracePoint
from gpuwatch.sources.trace import MOST_POINTS, Traces
from tests.fakes.story import BROKEN, NEXT_BOOT, at, gpu, report, uuid


def degrees(traces: Traces, index: int = 0) -> list[object]:
    return [point.temperature for point in traces.of().get(uuid(index), Trace()).points]


def test_a_point_is_what_the_witnesses_say() -> None:
    traces = Traces()
    readings: dict[str, Any] = {
        "memory_temperature": 80,
        "energy": 5e6,
        "sm_clock": 1980,
        "memory_clock": 2619,
        "utilisation": 98,
    }
    traces.add(report(at(1), gpu(0, 70, fan=BROKEN, **readings)))
    assert traces.of()[uuid(0)].points == (TracePoint(at(1), 70, 80, 650, 5e6, 1980, 2619, 98, None),)


def test_points_are_in_order_for_two_minutes() -> None:
    traces = Traces()
    for second in range(200):
        traces.add(report(at(second), gpu(0, 50 + second / 10)))
    points = traces.of()[uuid(0)].points
    assert [point.taken.boottime_s for point in points] == list(range(79, 200))


def test_no_more_points_than_fit() -> None:
    traces = Traces()
    for turn in range(400):
        traces.add(report(at(turn / 4), gpu(0)))
    assert len(traces.of()[uuid(0)].points) == MOST_POINTS


def test_a_sample_counts_once_however_often_it_comes() -> None:
    traces = Traces()
    for second in (1, 2, 2, 3):
        traces.add(report(at(second), gpu(0, 60 + second), replace(gpu(1), taken=at(1))))
    traces.add(report(at(3), gpu(0, 99), state=DriverState.SILENT))
    assert degrees(traces) == [61, 62, 63]
    assert degrees(traces, 1) == [60]


def test_a_pause_leaves_what_is_young_enough() -> None:
    traces = Traces()
    traces.add(report(at(1), gpu(0, 61)))
    traces.add(GpuReport(DriverState.STARTING))  # a new child asks the same driver
    traces.add(report(at(60), gpu(0, 62)))
    assert degrees(traces) == [61, 62]
    traces.add(report(at(170), gpu(0, 63)))
    assert degrees(traces) == [62, 63]


@pytest.mark.parametrize("between", [report(at(2), gpu(0, lost="gone"), gpu(1)), report(at(2), gpu(1))])
def test_a_card_that_was_lost_or_not_listed_starts_anew(between: GpuReport) -> None:
    traces = Traces()
    traces.add(report(at(1), gpu(0, 61), gpu(1)))
    traces.add(between)
    assert uuid(0) not in traces.of()
    traces.add(report(at(3), gpu(0, 63), gpu(1)))
    assert degrees(traces) == [63]
    assert len(degrees(traces, 1)) == 3


@pytest.mark.parametrize(
    "after",
    [
        replace(report(at(3), gpu(0, 63, energy=9)), driver_version="590.1"),
        report(at(3), gpu(0, 63, energy=1)),  # it counts from 0 again
        report(at(3, NEXT_BOOT), gpu(0, 63, energy=9)),
    ],
)
def test_another_driver_or_boot_starts_anew(after: GpuReport) -> None:
    traces = Traces()
    traces.add(report(at(1), gpu(0, 61, energy=5)))
    traces.add(after)
    assert degrees(traces) == [63]


@pytest.mark.parametrize(
    "state",
    [DriverState.ABSENT, DriverState.MISMATCH, DriverState.RELEASED, DriverState.FAILED, DriverState.NO_LIBRARY],
)
def test_a_driver_that_was_not_there_starts_anew(state: DriverState) -> None:
    traces = Traces()
    traces.add(report(at(1), gpu(0, 61)))
    traces.add(report(at(1), gpu(0, 61), state=state))
    assert traces.of() == {}
