"""The simulated service manager beyond what the contract says: a world on disk, units that come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.model.errors import ActionError, SourceError
from gpuwatch.simulation.systemd import SimulatedSystemd, SimulatedUnit
from gpuwatch.system.protocols import CpuLimit
from tests.fakes.clock import FakeClock

NAME = "train@a.service"


def test_a_world_on_disk_outlives_the_process(tmp_path: Path) -> None:
    path, clock = str(tmp_path / "world.json"), FakeClock()
    first = SimulatedSystemd(clock, [SimulatedUnit(NAME, stops_in_s=2.0)], path)
    invocation = first.unit(NAME).invocation
    first.stop_unit(NAME)
    second = SimulatedSystemd(clock, [SimulatedUnit("ignored.service")], path)
    assert second.unit("ignored.service").load_state == "not-found"  # the world is there already
    assert second.unit(NAME).active_state == "deactivating"
    assert second.unit(NAME).invocation == invocation
    clock.advance(2.0)
    assert second.unit(NAME).active_state == "inactive"
    assert [(call.verb, call.unit, call.invocation) for call in second.calls] == [("stop", NAME, invocation)]
    second.start(NAME)
    assert first.unit(NAME).invocation not in ("", invocation)


def test_a_stop_takes_its_time() -> None:
    clock = FakeClock()
    systemd = SimulatedSystemd(clock, [SimulatedUnit(NAME, stops_in_s=11.0)])
    systemd.stop_unit(NAME)
    clock.advance(10.9)
    assert systemd.unit(NAME).active_state == "deactivating"
    clock.advance(0.2)
    assert systemd.unit(NAME).active_state == "inactive"


def test_a_second_stop_does_not_prolong_the_first() -> None:
    clock = FakeClock()
    systemd = SimulatedSystemd(clock, [SimulatedUnit(NAME, stops_in_s=5.0)])
    systemd.stop_unit(NAME)
    clock.advance(4.0)
    systemd.stop_unit(NAME)
    clock.advance(1.0)
    assert not systemd.unit(NAME).running
    assert len(systemd.calls) == 2


def test_a_unit_that_somebody_starts_again() -> None:
    clock = FakeClock()
    systemd = SimulatedSystemd(clock, [SimulatedUnit(NAME, comes_back_after_s=3.0)])
    before = systemd.unit(NAME)
    systemd.stop_unit(NAME)
    clock.advance(1.0)
    assert not systemd.unit(NAME).running
    clock.advance(3.0)
    after = systemd.unit(NAME)
    assert after.active_state == "active" and after.invocation != before.invocation
    assert after.main_pid != before.main_pid


def test_a_lost_answer_is_unknown_and_the_stop_happens() -> None:
    clock = FakeClock()
    systemd = SimulatedSystemd(clock, [SimulatedUnit(NAME, loses_answer=True)])
    with pytest.raises(ActionError) as caught:
        systemd.stop_unit(NAME)
    assert caught.value.unknown
    clock.advance(1.0)
    assert not systemd.unit(NAME).running


def test_a_refused_stop_changes_nothing() -> None:
    systemd = SimulatedSystemd(FakeClock(), [SimulatedUnit(NAME, refuses_stop="Access denied")])
    with pytest.raises(ActionError, match="Access denied") as caught:
        systemd.stop_unit(NAME)
    assert not caught.value.unknown
    assert systemd.unit(NAME).active_state == "active"


def test_one_that_survives_sigkill_stays() -> None:
    clock = FakeClock()
    systemd = SimulatedSystemd(clock, [SimulatedUnit(NAME, survives_sigkill=True)])
    systemd.stop_unit(NAME)
    systemd.kill_unit(NAME, 9)
    clock.advance(10_000)
    assert systemd.unit(NAME).active_state == "deactivating"


def test_a_silent_systemd() -> None:
    systemd = SimulatedSystemd(FakeClock(), [SimulatedUnit(NAME)])
    systemd.silence(True)
    with pytest.raises(SourceError):
        systemd.unit(NAME)
    with pytest.raises(ActionError) as caught:
        systemd.stop_unit(NAME)
    assert caught.value.unknown
    systemd.silence(False)
    assert systemd.unit(NAME).running and systemd.calls == ()


def test_a_stop_of_a_frozen_unit_is_taken_and_lost() -> None:
    """As in systemd 257; older ones thaw it. A caller that thaws first is right with both."""
    clock = FakeClock()
    systemd = SimulatedSystemd(clock, [SimulatedUnit(NAME, stops_in_s=1.0)])
    systemd.freeze_unit(NAME)
    systemd.stop_unit(NAME)
    clock.advance(100.0)
    facts = systemd.unit(NAME)
    assert (facts.active_state, facts.freezer, facts.job) == ("active", "frozen", 0)
    systemd.thaw_unit(NAME)
    systemd.stop_unit(NAME)
    clock.advance(1.0)
    assert not systemd.unit(NAME).running


def test_time_stands_still_for_a_frozen_unit() -> None:
    clock = FakeClock()
    systemd = SimulatedSystemd(clock, [SimulatedUnit(NAME, stops_in_s=5.0)])
    systemd.kill_unit(NAME, 15)
    clock.advance(2.0)
    systemd.freeze_unit(NAME)
    clock.advance(100.0)
    assert systemd.unit(NAME).active_state == "active"
    systemd.thaw_unit(NAME)
    clock.advance(2.9)
    assert systemd.unit(NAME).active_state == "active"
    clock.advance(0.2)
    assert not systemd.unit(NAME).running


def test_one_in_state_d_is_never_quite_frozen() -> None:
    clock = FakeClock()
    systemd = SimulatedSystemd(clock, [SimulatedUnit(NAME, never_freezes=True)])
    with pytest.raises(ActionError) as caught:
        systemd.freeze_unit(NAME)
    assert caught.value.unknown
    assert systemd.unit(NAME).freezer == "freezing"
    systemd.thaw_unit(NAME)
    assert systemd.unit(NAME).freezer == "running"


def test_what_was_set_outlives_the_process_and_a_restart_of_the_unit(tmp_path: Path) -> None:
    path, clock = str(tmp_path / "world.json"), FakeClock()
    own = CpuLimit(800_000)
    first = SimulatedSystemd(clock, [SimulatedUnit(NAME, cpu_limit=own)], path)
    first.set_cpu_limit(NAME, CpuLimit(200_000, 0))
    first.freeze_unit(NAME)
    second = SimulatedSystemd(clock, path=path)
    assert second.cpu_limit(NAME) == CpuLimit(200_000, 0) and second.unit(NAME).freezer == "frozen"
    second.kill_unit(NAME, 9)
    second.start(NAME)
    assert second.cpu_limit(NAME) == CpuLimit(200_000, 0) and second.unit(NAME).freezer == "running"
    second.set_cpu_limit(NAME, own)
    assert [(call.verb, call.cpu_limit) for call in second.calls if call.cpu_limit] == [
        ("limit", CpuLimit(200_000, 0)),
        ("limit", own),
    ]


def test_a_silent_systemd_lists_freezes_and_limits_nothing() -> None:
    systemd = SimulatedSystemd(FakeClock(), [SimulatedUnit(NAME)])
    systemd.silence(True)
    with pytest.raises(SourceError):
        systemd.units((NAME,))
    with pytest.raises(ActionError) as caught:
        systemd.set_cpu_limit(NAME, CpuLimit(500_000))
    assert not caught.value.unknown  # it was to be read first
    with pytest.raises(ActionError) as caught:
        systemd.freeze_unit(NAME)
    assert caught.value.unknown
    assert systemd.calls == ()
