"""Systemd: what callers may rely on, of the stand-in and of a booted systemd both ways."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from gpuwatch.model.errors import ActionError, SourceError
from tests.contract.systemd_worlds import (
    STUBBORN_STOP_TIMEOUT_S,
    RealWorld,
    SimulatedWorld,
    World,
    bus_of,
    systemctl_of,
)
from tests.lab.nspawn import Container


@pytest.fixture(params=["simulated", "bus", "systemctl"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "simulated":
        yield SimulatedWorld()
        return
    container: Container = request.getfixturevalue("booted")
    real = RealWorld(container, bus_of(container) if request.param == "bus" else systemctl_of(container))
    try:
        yield real
    finally:
        real.clear()
        real.systemd.close()


def test_facts_of_a_running_unit(world: World) -> None:
    name = world.make("plain")
    facts = world.systemd.unit(name)
    assert (facts.name, facts.load_state, facts.active_state, facts.sub_state) == (name, "loaded", "active", "running")
    assert facts.running
    assert len(facts.invocation) == 32 and int(facts.invocation, 16)
    assert facts.main_pid > 0
    assert facts.control_group == f"/system.slice/{name}"
    assert facts.stop_timeout_s == 90.0
    assert (facts.result, facts.job, facts.refuse_manual_stop) == ("success", 0, False)
    assert (facts.takes_along, facts.containers, facts.inner_units) == ((), (), ())


def test_a_unit_that_does_not_exist(world: World) -> None:
    facts = world.systemd.unit("contract-no-such.service")
    assert (facts.load_state, facts.active_state, facts.running) == ("not-found", "inactive", False)
    assert (facts.invocation, facts.main_pid) == ("", 0)
    with pytest.raises(ActionError) as caught:
        world.systemd.stop_unit("contract-no-such.service")
    assert not caught.value.unknown


@pytest.mark.parametrize(
    "name", ["", "plain", "a b.service", "*.service", "train@.service", "../x.service", "-H.service"]
)
def test_a_name_that_is_no_unit_is_never_sent(world: World, name: str) -> None:
    with pytest.raises(SourceError):
        world.systemd.unit(name)
    with pytest.raises(ActionError):
        world.systemd.stop_unit(name)
    with pytest.raises(ActionError):
        world.systemd.kill_unit(name, signal.SIGKILL)


def test_stop_ends_the_invocation(world: World) -> None:
    name = world.make("plain")
    world.systemd.stop_unit(name)
    world.until(name, "inactive")
    after = world.systemd.unit(name)
    assert not after.running and after.main_pid == 0 and after.result == "success"
    assert after.control_group == ""
    assert after.invocation == ""  # nothing refers to it, so systemd has forgotten it


def test_stopping_what_is_stopped_is_no_error(world: World) -> None:
    name = world.make("plain")
    world.systemd.stop_unit(name)
    world.until(name, "inactive")
    world.systemd.stop_unit(name)
    assert not world.systemd.unit(name).running


def test_a_unit_that_ignores_sigterm_is_killed_after_its_own_time_out(world: World) -> None:
    name = world.make("stubborn")
    assert world.systemd.unit(name).stop_timeout_s == STUBBORN_STOP_TIMEOUT_S
    world.systemd.stop_unit(name)
    stopping = world.systemd.unit(name)
    assert stopping.active_state == "deactivating" and stopping.running and stopping.job > 0
    world.until(name, "failed")
    failed = world.systemd.unit(name)
    assert failed.result == "timeout"
    assert failed.invocation == stopping.invocation  # a failed unit is remembered


def test_a_unit_that_ignores_sigterm_can_be_killed(world: World) -> None:
    name = world.make("stubborn")
    world.systemd.stop_unit(name)
    world.systemd.kill_unit(name, signal.SIGKILL)
    world.until(name, "failed")
    assert world.systemd.unit(name).result == "signal"


def test_a_unit_that_always_restarts_stays_stopped_by_a_stop_job(world: World) -> None:
    name = world.make("always")
    world.systemd.stop_unit(name)
    world.until(name, "inactive")


def test_a_unit_that_always_restarts_comes_back_from_a_kill_as_another_invocation(world: World) -> None:
    name = world.make("always")
    before = world.systemd.unit(name).invocation
    world.systemd.kill_unit(name, signal.SIGKILL)
    world.until(name, "active", other_than=before)


def test_killing_what_does_not_run_is_a_failure(world: World) -> None:
    name = world.make("plain")
    world.systemd.stop_unit(name)
    world.until(name, "inactive")
    with pytest.raises(ActionError) as caught:
        world.systemd.kill_unit(name, signal.SIGKILL)
    assert not caught.value.unknown


def test_a_unit_that_refuses_to_be_stopped(world: World) -> None:
    name = world.make("no_manual_stop")
    assert world.systemd.unit(name).refuse_manual_stop
    with pytest.raises(ActionError) as caught:
        world.systemd.stop_unit(name)
    assert not caught.value.unknown
    assert world.systemd.unit(name).active_state == "active"


def test_a_unit_that_another_requires_takes_it_along(world: World) -> None:
    name = world.make("required")
    assert world.systemd.unit(name).takes_along == (world.dependent(name),)
    world.systemd.stop_unit(name)
    world.until(world.dependent(name), "inactive")
    world.until(name, "inactive")
    assert world.systemd.unit(name).takes_along == ()
