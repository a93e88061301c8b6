"""S3: a reading that no metal can make, or that stands still under load, lifts no protection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuwatch.model.settings import Mode, Settings
from gpuwatch.model.trace import Trace, TracePoint
from gpuwatch.policy.state import Inputs
from tests.fakes.story import HOT, NO_GRACE, TRAINING, Story, at, attribution, gpu, owner, report, uuid


def watched(temperatures: list[float], **more: Any) -> Story:
    """Seconds with a trace of all that came before."""
    story = Story(Settings(mode=Mode.ENFORCE, workloads=(TRAINING,), rules=(HOT,), grace=NO_GRACE))
    points: tuple[TracePoint, ...] = ()
    for second, degrees in enumerate(temperatures):
        now = at(1000 + second)
        power = more.get("power", 600.0 + second % 7)
        points = (
            *points,
            TracePoint(now, degrees, power=power, energy=second * power, sm_clock=1700.0, utilisation=98),
        )
        card = gpu(0, degrees, power=power, utilisation=98, sm_clock=1700)
        given = Inputs(now, report(now, card), (attribution(now, owner()),))
        story.step(replace(given, traces={uuid(0): Trace(points[-120:])}))
    return story


def test_a_fall_that_nothing_can_cause_clears_nothing() -> None:
    story = watched([94.0] * 10 + [30.0] * 80)
    assert f"gpu-critical|gpu|{uuid(0)}" in story.state.alerts


def test_a_fall_as_metal_cools_clears_it() -> None:
    story = watched([94.0] * 10 + [94 - 1.5 * each for each in range(30)] + [49.0] * 70)
    assert story.state.alerts == {}
