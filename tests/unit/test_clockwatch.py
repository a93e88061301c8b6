"""Jumps of the clock and restarts of the host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Optional

import pytest

from gpuwatch.model.event import Event
from gpuwatch.sources.clockwatch import ClockWatch
from tests.fakes.clock import FakeClock

NEXT = "2" * 32


def observe(watch: ClockWatch, clock: FakeClock, *steps: float) -> list[Event]:
    """A cycle a second; before each one the wall clock is set by so many seconds."""
    events: list[Event] = []
    for step in steps:
        clock.advance(1.0)
        clock.step_utc(step)
        events += watch.observe(clock.now())
    return events


def stored(watch: ClockWatch) -> Any:
    """What a store gives back."""
    return json.loads(json.dumps(watch.state()))


@pytest.mark.parametrize(
    "step, seconds, direction",
    [(3600.0, 3600.0, "forward"), (-3600.0, 3600.0, "back"), (1.5, 1.5, "forward"), (-1.1, 1.1, "back")],
)
def test_a_jump_is_told_once(step: float, seconds: float, direction: str) -> None:
    clock, watch = FakeClock(), ClockWatch()
    assert observe(watch, clock, 0, 0) == []
    (event,) = observe(watch, clock, step, 0, 0, 0)
    assert (event.kind, event.source) == ("time_jump", "host")
    assert event.fields == {"seconds": pytest.approx(seconds, abs=0.01), "direction": direction}
    assert event.seen.since(event.at) == 1.0 and direction in event.text


@pytest.mark.parametrize("steps", [(0.9, -0.9), (0.5,) * 20, (-0.001,) * 50])
def test_slewing_is_no_jump(steps: tuple[float, ...]) -> None:
    clock, watch = FakeClock(), ClockWatch()
    assert observe(watch, clock, 0, *steps, 0) == []


def test_a_pause_between_the_two_reads_is_no_jump() -> None:
    """UTC is read after CLOCK_BOOTTIME; a machine that stood still in between makes it late, once."""
    clock, watch = FakeClock(), ClockWatch()
    assert observe(watch, clock, 0, 7.0, -7.0, 0, 0) == []
    assert observe(watch, clock, 7.0, -4.0, -3.0, 0, 0) == []


def test_a_jump_is_noticed_across_a_restart_of_the_daemon() -> None:
    clock, watch = FakeClock(), ClockWatch()
    observe(watch, clock, 0, 0)
    later = ClockWatch(stored(watch))
    clock.advance(500.0)
    assert [event.kind for event in observe(later, clock, -3600.0, 0, 0)] == ["time_jump"]


def test_a_jump_that_was_seen_once_before_the_stop_is_told_after_it() -> None:
    clock, watch = FakeClock(), ClockWatch()
    assert observe(watch, clock, 0, 0, -60.0) == []
    again = ClockWatch(json.loads(json.dumps(watch.stop(clock.now()))))
    assert [event.kind for event in observe(again, clock, 0, 0)] == ["time_jump"]


def test_single_passes_notice_a_jump_together() -> None:
    clock, watch = FakeClock(), ClockWatch(resident=False)
    observe(watch, clock, 0)
    kinds = []
    for step in (-60.0, 0.0, 0.0):
        watch = ClockWatch(stored(watch), resident=False)
        kinds.append([event.kind for event in observe(watch, clock, step)])
    assert kinds == [[], ["time_jump"], []]


def test_passes_a_minute_apart_notice_a_jump_together() -> None:
    clock, kinds = FakeClock(), []
    state: dict[str, Any] = {}
    for step in (0.0, -3600.0, 0.0, 0.0):
        clock.advance(59.5)
        watch = ClockWatch(state, resident=False)
        kinds.append([event.kind for event in observe(watch, clock, step)])
        state = stored(watch)
    assert kinds == [[], [], ["time_jump"], []]


def reboot(state: Mapping[str, Any], clock: FakeClock, away_s: float = 60.0, resident: bool = True) -> list[Event]:
    clock.utc_s += away_s - 60.0
    clock.reboot(NEXT)
    watch = ClockWatch(state, resident)
    events = list(watch.observe(clock.now()))
    assert observe(watch, clock, 0, 0) == []
    return events


@pytest.mark.parametrize(
    "phase, away_s, clean",
    [
        ("stopped", 60.0, True),
        ("stopped", 7200.0, None),  # what happened after the stop, nobody saw
        ("running", 60.0, False),
        ("running", 7200.0, False),
        ("between", 60.0, None),
    ],
)
def test_a_restart_of_the_host(phase: str, away_s: float, clean: Optional[bool]) -> None:
    clock, resident = FakeClock(), phase != "between"
    watch = ClockWatch(resident=resident)
    observe(watch, clock, 0, 0)
    state = watch.stop(clock.now()) if phase == "stopped" else stored(watch)
    (event,) = reboot(state, clock, away_s, resident)
    assert (event.kind, event.fields["clean"]) == ("reboot", clean)
    assert (event.at.boot_id, event.at.boottime_s) == (NEXT, 0.0)
    assert event.fields["uptime_s"] == 30.0 and 0 <= float(str(event.fields["away_s"])) <= away_s
    assert event.text


def test_a_restart_with_the_clock_behind() -> None:
    clock, watch = FakeClock(), ClockWatch()
    observe(watch, clock, 0)
    (event,) = reboot(stored(watch), clock, -7200.0)
    assert event.fields["away_s"] is None and event.fields["clean"] is False


def test_a_daemon_that_starts_again_in_the_same_boot_is_no_restart_of_the_host() -> None:
    clock, watch = FakeClock(), ClockWatch()
    observe(watch, clock, 0)
    again = ClockWatch(watch.stop(clock.now()))
    assert observe(again, clock, 0) == []
    (event,) = reboot(stored(again), clock)
    assert event.fields["clean"] is False, "the mark of the earlier stop is gone"


def test_what_is_stored_changes_once_a_minute() -> None:
    clock, watch = FakeClock(), ClockWatch()
    states = set()
    for number in range(180):
        observe(watch, clock, 1e-5 * (number % 7))
        states.add(json.dumps(watch.state()))
    assert len(states) == 3


@pytest.mark.parametrize(
    "nonsense",
    [
        {},
        {"boot_id": 7},
        {"boot_id": "x", "boottime_s": "1", "utc_s": None},
        {"boot_id": "1" * 32, "boottime_s": float("nan"), "utc_s": 1.0},
        {"boot_id": "1" * 32, "boottime_s": True, "utc_s": 1.0, "phase": ["running"]},
    ],
)
def test_nonsense_in_the_store_counts_as_nothing(nonsense: dict[str, Any]) -> None:
    watch = ClockWatch(nonsense)
    assert observe(watch, FakeClock(), 0, 0) == []
    assert watch.state()
