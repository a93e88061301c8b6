"""Systemd: what callers may rely on, of the stand-in and of a booted systemd both ways."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.model.errors import ActionError, SourceError
from gpuwatch.system.protocols import CpuLimit, ListedUnit
from tests.contract.systemd_worlds import (
    STUBBORN_STOP_TIMEOUT_S,
    WATCHDOG_S,
    CpuTree,
    RealWorld,
    SimulatedWorld,
    World,
    bus_of,
    systemctl_of,
)
from tests.lab.nspawn import Container


@pytest.fixture(params=["simulated", "bus", "systemctl"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "simulated":
        yield SimulatedWorld()
        return
    container: Container = request.getfixturevalue("booted")
    tree = CpuTree(tmp_path, container)
    way = bus_of(container, tree) if request.param == "bus" else systemctl_of(container, tree)
    real = RealWorld(container, way, tree)
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
    assert (facts.freezer, facts.watchdog_s) == ("running", None)
    assert world.systemd.unit(world.make("watched")).watchdog_s == WATCHDOG_S


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
    with pytest.raises(SourceError):
        world.systemd.cpu_limit(name)
    for act in (world.systemd.freeze_unit, world.systemd.thaw_unit):
        with pytest.raises(ActionError):
            act(name)
    with pytest.raises(ActionError) as caught:
        world.systemd.set_cpu_limit(name, CpuLimit(500_000))
    assert not caught.value.unknown


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


def test_running_units_are_listed_by_name_and_cgroup(world: World) -> None:
    first, second, other, ended = world.make("plain"), world.make("plain"), world.make("polite"), world.make("plain")
    world.systemd.stop_unit(ended)
    world.until(ended, "inactive")
    globs = ("contract-plain-*.service", "contract-plain-*.socket", "no-such.service")
    expected = tuple(ListedUnit(name, "active", f"/system.slice/{name}") for name in sorted((first, second)))
    assert world.systemd.units(globs) == expected
    assert world.systemd.units((other,)) == (ListedUnit(other, "active", f"/system.slice/{other}"),)
    assert world.systemd.units((other.replace("polite", "[a-p]olite"), first)) != ()
    assert world.systemd.units(()) == ()


def test_a_unit_is_listed_while_it_stops_and_again_when_it_is_back(world: World) -> None:
    name = world.make("stubborn")
    assert [unit.active_state for unit in world.systemd.units((name,))] == ["active"]
    world.systemd.stop_unit(name)
    world.until(name, "deactivating")
    assert [unit.active_state for unit in world.systemd.units((name,))] == ["deactivating"]
    world.until(name, "failed")
    assert world.systemd.units((name,)) == ()
    world.start(name)
    assert world.systemd.units((name,)) == (ListedUnit(name, "active", f"/system.slice/{name}"),)


@pytest.mark.parametrize(
    "limit",
    [CpuLimit(500_000), CpuLimit(2_500_000, 20), CpuLimit(None, 1), CpuLimit(10_000, 10_000), CpuLimit(333_300)],
)
def test_a_cpu_limit_holds_and_can_be_put_back(world: World, limit: CpuLimit) -> None:
    name = world.make("plain")
    before, facts = world.systemd.cpu_limit(name), world.systemd.unit(name)
    assert before == CpuLimit()
    world.systemd.set_cpu_limit(name, limit)
    assert world.systemd.cpu_limit(name) == limit
    world.systemd.set_cpu_limit(name, limit)
    world.systemd.set_cpu_limit(name, before)
    assert world.systemd.cpu_limit(name) == before
    assert world.systemd.unit(name) == facts


@pytest.mark.parametrize("limit", [CpuLimit(9_999), CpuLimit(0), CpuLimit(None, 10_001), CpuLimit(None, -1)])
def test_a_senseless_cpu_limit_is_refused(world: World, limit: CpuLimit) -> None:
    name = world.make("plain")
    with pytest.raises(ActionError, match="not changed: a CPU") as caught:
        world.systemd.set_cpu_limit(name, limit)
    assert not caught.value.unknown
    assert world.systemd.cpu_limit(name) == CpuLimit()


def test_no_cpu_limit_for_what_does_not_run(world: World) -> None:
    name = world.make("plain")
    world.systemd.stop_unit(name)
    world.until(name, "inactive")
    for unit in (name, "contract-no-such.service"):
        with pytest.raises(ActionError, match="does not run") as caught:
            world.systemd.set_cpu_limit(unit, CpuLimit(500_000))
        assert not caught.value.unknown


def test_no_cpu_limit_where_containers_could_lose_their_gpus(world: World) -> None:
    """S13."""
    crowded, beside = world.make("crowded"), world.make("plain")
    world.put_container_beside(beside)
    for name in (crowded, beside):
        with pytest.raises(ActionError, match="containers") as caught:
            world.systemd.set_cpu_limit(name, CpuLimit(500_000))
        assert not caught.value.unknown
        assert world.systemd.cpu_limit(name) == CpuLimit()
        world.systemd.set_cpu_limit(name, CpuLimit())  # nothing to change, nothing to refuse


def test_a_frozen_unit_is_the_same_when_it_is_thawed(world: World) -> None:
    name = world.make("plain")
    before = world.systemd.unit(name)
    world.systemd.freeze_unit(name)
    frozen = world.systemd.unit(name)
    assert (frozen.freezer, frozen.active_state) == ("frozen", "active")
    world.systemd.freeze_unit(name)
    world.systemd.thaw_unit(name)
    world.systemd.thaw_unit(name)
    assert world.systemd.unit(name) == before


def test_a_frozen_unit_hears_sigterm_when_it_is_thawed(world: World) -> None:
    name = world.make("polite")
    world.systemd.freeze_unit(name)
    world.systemd.kill_unit(name, signal.SIGTERM)
    assert world.systemd.unit(name).freezer == "frozen"
    try:
        world.systemd.thaw_unit(name)
    except ActionError as error:  # it was gone before systemd saw it thawed, and such a thaw is not answered
        if not error.unknown:
            raise
    world.until(name, "inactive")


def test_a_thawed_unit_stops(world: World) -> None:
    name = world.make("polite")
    world.systemd.freeze_unit(name)
    world.systemd.thaw_unit(name)
    world.systemd.stop_unit(name)
    world.until(name, "inactive")
    assert world.systemd.unit(name).freezer == ""


def test_a_frozen_unit_can_be_killed(world: World) -> None:
    name = world.make("polite")
    world.systemd.freeze_unit(name)
    world.systemd.kill_unit(name, signal.SIGKILL)
    world.until(name, "failed")
    assert world.systemd.unit(name).freezer == ""


def test_what_stops_or_has_stopped_is_neither_frozen_nor_thawed(world: World) -> None:
    name = world.make("stubborn")
    world.systemd.stop_unit(name)
    for unit in (name, "contract-no-such.service"):
        for act in (world.systemd.freeze_unit, world.systemd.thaw_unit):
            with pytest.raises(ActionError) as caught:
                act(unit)
            assert not caught.value.unknown
    world.until(name, "failed")
    with pytest.raises(ActionError, match=r"inactive|not active"):
        world.systemd.freeze_unit(name)
