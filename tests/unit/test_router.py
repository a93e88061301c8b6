"""What is asked of a target reaches systemd or the right engine, in systemd's words (A5, A6, S7)."""

from __future__ import annotations

from typing import Optional

import pytest

from gpuwatch.actions.router import DEFAULT_STOP_S, Containers, Router
from gpuwatch.model.container import EngineState
from gpuwatch.model.errors import ActionError, SourceError
from gpuwatch.model.target import container_of, is_container, of_container
from gpuwatch.simulation.containers import Done, Manner, SimulatedEngine
from gpuwatch.simulation.gpus import SimulatedProcesses
from gpuwatch.simulation.systemd import SimulatedSystemd, SimulatedUnit
from gpuwatch.system.protocols import UnitFacts
from gpuwatch.system.worker import InlineWorker
from tests.fakes.clock import FakeClock
from tests.unit.container_bench import HeldWorker

UNIT = "train@llama.service"
NEVER_THERE = f"docker:{'0' * 64}"


class Yard:
    """docker and podman side by side, one container in docker."""

    def __init__(self, manner: Optional[Manner] = None, stop_timeout_s: Optional[float] = None) -> None:
        self.clock = FakeClock()
        self.docker = SimulatedEngine(self.clock, "docker", "/run/docker.sock")
        self.podman = SimulatedEngine(self.clock, "podman", "/run/podman/podman.sock")
        self.processes = SimulatedProcesses()
        self.containers = Containers([self.docker, self.podman], self.processes)
        self.id = self.docker.create("trainer", manner=manner or Manner(), stop_timeout_s=stop_timeout_s)
        self.docker.start(self.id, 4242)
        self.target = f"docker:{self.id}"

    def facts(self) -> UnitFacts:
        return self.containers.facts(self.target)

    @property
    def verbs(self) -> list[str]:
        return [each.verb for each in self.docker.done]


def test_a_target_names_its_container_and_no_unit_looks_like_one() -> None:
    yard = Yard()
    (container,) = yard.docker.all()
    assert of_container(container) == yard.target
    assert container_of(yard.target) == ("docker", yard.id)
    for name in (UNIT, "docker.service", f"docker-{yard.id}.scope", "docker:short", f"lxc:{yard.id}", ""):
        assert not is_container(name) and container_of(name) == ("", "")


def test_a_running_container_in_the_words_of_a_unit() -> None:
    yard = Yard()
    yard.processes.put(4242, cgroup=f"/system.slice/docker-{yard.id}.scope/inner")
    facts = yard.facts()
    assert (facts.name, facts.load_state, facts.active_state, facts.sub_state) == (
        yard.target, "loaded", "active", "running",
    )  # fmt: skip
    assert (facts.main_pid, facts.stop_timeout_s, facts.paused) == (4242, DEFAULT_STOP_S, False)
    assert facts.control_group == f"/system.slice/docker-{yard.id}.scope/inner"
    assert facts.running and facts.container is not None and facts.container.name == "trainer"


def test_a_pid_that_is_somebody_elses_by_now_gives_no_cgroup() -> None:
    yard = Yard()
    yard.processes.put(4242, cgroup="/system.slice/nginx.service")
    assert yard.facts().control_group == ""
    yard.processes.hide(4242)
    with pytest.raises(SourceError):
        yard.facts()


@pytest.mark.parametrize(
    ("status", "active"),
    [
        ("running", "active"), ("paused", "active"), ("restarting", "activating"), ("stopping", "deactivating"),
        ("removing", "deactivating"), ("exited", "inactive"), ("created", "inactive"), ("dead", "inactive"),
        ("anything", "inactive"),
    ],
)  # fmt: skip
def test_every_status_has_its_word(status: str, active: str) -> None:
    yard = Yard()
    yard.docker.become(yard.id, status)
    assert (yard.facts().active_state, yard.facts().paused) == (active, status == "paused")


def test_a_new_run_of_the_same_container_is_another_invocation() -> None:
    yard = Yard(stop_timeout_s=45.0)
    first = yard.facts()
    yard.clock.advance(1)
    yard.docker.end(yard.id)
    assert yard.facts().invocation == first.invocation
    yard.docker.start(yard.id)
    assert yard.facts().invocation != first.invocation
    assert first.stop_timeout_s == 45.0


def test_what_every_engine_of_its_kind_denies_is_gone_and_what_none_can_say_is_unknown() -> None:
    yard = Yard()
    assert (yard.containers.facts(NEVER_THERE).load_state, yard.containers.facts(NEVER_THERE).running) == (
        "not-found", False,
    )  # fmt: skip
    yard.docker.fail(EngineState.SLOW)
    with pytest.raises(SourceError, match="told to fail"):
        yard.facts()
    yard.docker.fail(None)
    yard.docker.vanish()
    with pytest.raises(SourceError, match="no docker engine answers"):
        yard.facts()


def test_an_engine_of_the_other_kind_is_not_waited_for() -> None:
    yard = Yard()
    yard.containers.facts(f"podman:{'0' * 64}")
    yard.podman.fail(EngineState.SLOW)
    assert yard.facts().running


def test_podman_behind_dockers_socket_is_podman() -> None:
    clock = FakeClock()
    engine = SimulatedEngine(clock, "podman", "/run/docker.sock")
    found = engine.run("trainer")
    containers = Containers([engine], SimulatedProcesses())
    assert containers.facts(f"podman:{found}").running
    with pytest.raises(SourceError):
        containers.facts(f"docker:{found}")


def test_a_stop_carries_the_grace_and_shows_until_it_is_over() -> None:
    yard = Yard(Manner(stops_in_s=3.0))
    run = yard.facts().invocation
    yard.containers.stop(yard.target, run, 30.0)
    assert yard.docker.done == [Done("stop", yard.id, grace_s=30.0)]
    assert yard.facts().active_state == "deactivating"
    yard.clock.advance(4)
    assert yard.facts().active_state == "inactive"
    yard.docker.start(yard.id)
    assert yard.facts().active_state == "active"


def test_a5_a_paused_container_is_thawed_before_a_stop_and_before_a_kill() -> None:
    for act in ("stop", "kill"):
        yard = Yard()
        run = yard.facts().invocation
        yard.docker.pause(yard.id)
        if act == "stop":
            yard.containers.stop(yard.target, run, 5.0)
        else:
            yard.containers.kill(yard.target, run, 9)
        assert yard.verbs == ["unpause", act]
        assert not yard.facts().running


def test_a_container_that_stays_paused_is_not_stopped() -> None:
    yard = Yard(Manner(stays_paused=True))
    run = yard.facts().invocation
    yard.docker.pause(yard.id)
    with pytest.raises(ActionError, match="is paused and stays so") as error:
        yard.containers.stop(yard.target, run, 5.0)
    assert not error.value.unknown and yard.verbs == ["unpause"]


def test_another_run_than_the_one_that_was_meant_is_left_alone() -> None:
    yard = Yard()
    run = yard.facts().invocation
    yard.clock.advance(1)
    yard.docker.end(yard.id)
    yard.docker.start(yard.id)
    with pytest.raises(ActionError, match="started anew") as stop:
        yard.containers.stop(yard.target, run, 5.0)
    with pytest.raises(ActionError, match="started anew") as kill:
        yard.containers.kill(yard.target, run, 9)
    assert not stop.value.unknown and not kill.value.unknown
    assert yard.verbs == []


def test_what_is_gone_can_not_be_stopped() -> None:
    yard = Yard()
    run = yard.facts().invocation
    yard.docker.remove(yard.id)
    with pytest.raises(ActionError, match="gone") as error:
        yard.containers.stop(yard.target, run, 5.0)
    assert not error.value.unknown


def test_a_refused_stop_is_an_error_and_a_lost_answer_an_unknown_one() -> None:
    for manner, unknown, after in (
        (Manner(refuses_stop="plugin error"), False, "active"),
        (Manner(loses_answer=True, stops_in_s=5.0), True, "deactivating"),
    ):
        yard = Yard(manner)
        with pytest.raises(ActionError) as error:
            yard.containers.stop(yard.target, yard.facts().invocation, 10.0)
        assert error.value.unknown is unknown
        assert yard.facts().active_state == after


def test_an_engine_that_can_not_be_asked_before_a_stop_is_unknown() -> None:
    yard = Yard()
    run = yard.facts().invocation
    yard.docker.fail(EngineState.SLOW)
    with pytest.raises(ActionError) as error:
        yard.containers.stop(yard.target, run, 5.0)
    assert error.value.unknown


def test_s7_an_engine_that_hangs_delays_no_unit() -> None:
    yard = Yard(Manner(ignores_sigterm=True))
    systemd = SimulatedSystemd(yard.clock, (SimulatedUnit(UNIT),))
    errands = HeldWorker(yard.clock)
    router = Router(systemd, InlineWorker(), yard.containers, errands)
    run = yard.facts().invocation
    asked, stop = router.look(yard.target), router.stop(yard.target, run, 10.0)
    kill = router.kill(yard.target, run, 9)
    assert not (asked.done() or stop.done() or kill.done()) and not router.wait(yard.target, asked, 0.0)
    assert router.look(UNIT).result().running
    router.stop(UNIT, "f" * 32, 10.0).result()
    router.kill(UNIT, "f" * 32, 10, main=True).result()
    assert [(call.verb, call.unit) for call in systemd.calls] == [("stop", UNIT), ("kill", UNIT)]
    for task in errands.tasks:
        task.finish()
    assert router.wait(yard.target, asked, 0.0) and asked.result().invocation == run
    assert yard.verbs == ["stop", "kill"] and not yard.facts().running


def test_without_engines_a_container_is_nothing_that_can_be_asked() -> None:
    router = Router(SimulatedSystemd(FakeClock()), InlineWorker())
    with pytest.raises(SourceError):
        router.look(NEVER_THERE).result()
