"""protocols.ContainerEngine: simulated, and DockerApi against real podman and, where it is installed, real docker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuwatch.catalog import cgroup
from gpuwatch.model.container import EngineError, EngineState
from gpuwatch.model.errors import ActionError
from gpuwatch.system.containers import DockerApi
from gpuwatch.system.procfs import ProcFs
from tests.conftest import refuse
from tests.contract.engine_worlds import RealWorld, SimulatedWorld, World
from tests.lab.engines import Docker, Podman, why_no_docker, why_no_podman

SECOND_NS = 10**9


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    refuse(why_no_podman())
    with Podman() as podman:
        yield podman


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    if why_no_docker():
        pytest.skip(f"optional: {why_no_docker()}")
    with Docker() as docker:
        yield docker


@pytest.fixture(params=["docker, simulated", "podman, simulated", "podman", "docker"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param in ("podman", "docker"):
        return RealWorld(request.param, request.getfixturevalue(request.param))
    return SimulatedWorld(request.param.split(",")[0])


def actions(world: World, container_id: str, since_ns: int) -> list[str]:
    """What is told of a container, without podman's own additions."""
    found = world.engine.events(since_ns - 2 * SECOND_NS, world.now_ns())
    mine = [event for event in found if event.container == container_id]
    assert mine == sorted(mine, key=lambda event: event.at_ns)
    return [event.action for event in mine if event.action not in ("init", "cleanup", "sync", "attach")]


def test_it_says_who_it_is(world: World) -> None:
    facts = world.engine.facts()
    assert facts.kind == world.kind
    assert facts.version[0].isdigit()
    assert world.engine.identity() == world.engine.identity() != ""


def test_the_life_of_a_container(world: World) -> None:
    began = world.now_ns()
    container_id = world.create({"com.docker.compose.project": "llama", "com.docker.compose.service": "trainer"})
    created = world.engine.inspect(container_id)
    assert created is not None
    assert (created.status, created.live, created.started_ns, created.finished_ns) == ("created", False, None, None)
    assert (created.exit_code, created.pid, created.compose) == (None, 0, "llama/trainer")
    assert created.engine == world.kind
    assert created.log_driver

    world.start(container_id)
    running = world.engine.inspect(container_id)
    assert running is not None and running.started_ns is not None
    assert (running.status, running.live, running.exit_code) == ("running", True, None)
    assert running.pid > 0
    assert running.started_ns > began
    listed = {each.id: each.status for each in world.engine.containers()}
    assert listed[container_id] == "running"

    world.end(container_id, 7)
    ended = world.engine.inspect(container_id)
    assert ended is not None and ended.finished_ns is not None
    assert (ended.status, ended.exit_code, ended.pid, ended.live) == ("exited", 7, 0, False)
    assert ended.finished_ns > running.started_ns == ended.started_ns
    assert ended.oom_killed is (None if world.kind == "podman" else False)

    world.remove(container_id)
    assert world.engine.inspect(container_id) is None
    assert container_id not in {each.id for each in world.engine.containers()}
    assert actions(world, container_id, began) == ["create", "start", "die", "destroy"]


def test_the_event_of_a_death_tells_code_name_and_labels(world: World) -> None:
    began = world.now_ns()
    container_id = world.create({"team": "ml"})
    world.start(container_id)
    world.end(container_id, 3)
    (death,) = (
        event
        for event in world.engine.events(began - 2 * SECOND_NS, world.now_ns())
        if event.container == container_id and event.action == "die"
    )
    found = world.engine.inspect(container_id)
    assert found is not None
    assert (death.exit_code, death.name, death.image) == (3, found.name, found.image)
    assert death.labels == {"team": "ml"}
    world.remove(container_id)


def test_events_can_be_read_again_from_a_moment(world: World) -> None:
    began = world.now_ns()
    first, second = world.create(), world.create()
    every = world.engine.events(began - 2 * SECOND_NS, world.now_ns())
    again = world.engine.events(began - 2 * SECOND_NS, world.now_ns())
    assert {event.key for event in every} <= {event.key for event in again}
    assert {first, second} <= {event.container for event in every}
    assert len({event.key for event in every}) == len(every)
    for container_id in (first, second):
        world.remove(container_id)


def test_a_kill_through_the_engine(world: World) -> None:
    began = world.now_ns()
    container_id = world.create()
    world.start(container_id)
    world.kill(container_id)
    found = world.engine.inspect(container_id)
    assert found is not None
    assert (found.status, found.exit_code) == ("exited", 137)
    assert actions(world, container_id, began)[:4] == ["create", "start", "kill", "die"]
    world.remove(container_id)


def test_a_second_run(world: World) -> None:
    container_id = world.create()
    world.start(container_id)
    first = world.engine.inspect(container_id)
    world.end(container_id, 5)
    if isinstance(world, RealWorld):
        world.api.call("POST", f"/containers/{container_id}/start")  # its file says that it ends at once
        wanted = None
    else:
        world.start(container_id)
        wanted = "running"
    second = world.engine.inspect(container_id)
    assert first is not None and first.started_ns is not None
    assert second is not None and second.started_ns is not None
    assert second.started_ns > first.started_ns
    if wanted:
        assert (second.status, second.exit_code) == (wanted, None)
    world.remove(container_id)


def test_a_paused_one_is_alive(world: World) -> None:
    container_id = world.create()
    world.start(container_id)
    world.pause(container_id, True)
    found = world.engine.inspect(container_id)
    assert found is not None
    assert (found.status, found.live) == ("paused", True)
    world.pause(container_id, False)
    world.kill(container_id)
    world.remove(container_id)


def run_of(world: World, container_id: str) -> tuple[str, object, object]:
    """Status, start and exit code."""
    found = world.engine.inspect(container_id)
    assert found is not None
    return found.status, found.started_ns, found.exit_code


def test_a_stop_ends_it_by_its_signal_and_its_restart_policy_does_not_start_it_again(world: World) -> None:
    began = world.now_ns()
    container_id = world.job()
    _, started, _ = run_of(world, container_id)
    world.engine.stop(container_id, 10.0)
    world.until(container_id, "exited")
    world.now_ns()
    assert run_of(world, container_id) == ("exited", started, 143)
    assert actions(world, container_id, began)[:2] == ["create", "start"]
    assert "die" in actions(world, container_id, began)
    world.engine.stop(container_id, 10.0)  # it does not run: no error
    world.remove(container_id)


def test_one_that_is_deaf_is_killed_by_the_engine_after_the_grace(world: World) -> None:
    container_id = world.job(deaf=True)
    _, started, _ = run_of(world, container_id)
    world.engine.stop(container_id, 1.0)
    world.until(container_id, "exited")
    assert run_of(world, container_id) == ("exited", started, 137)
    world.remove(container_id)


def test_sigkill_ends_one_that_is_deaf_and_is_not_followed_by_a_start(world: World) -> None:
    container_id = world.job(deaf=True)
    _, started, _ = run_of(world, container_id)
    world.engine.kill(container_id, 15)
    assert run_of(world, container_id) == ("running", started, None)
    world.engine.kill(container_id, 9)
    world.until(container_id, "exited")
    assert run_of(world, container_id) == ("exited", started, 137)
    with pytest.raises(ActionError):
        world.engine.kill(container_id, 9)
    world.remove(container_id)


def test_a5_a_paused_one_does_not_stop_before_it_is_thawed(world: World) -> None:
    container_id = world.job()
    world.pause(container_id, True)
    if world.kind == "podman":
        with pytest.raises(ActionError) as error:
            world.engine.stop(container_id, 1.0)
        assert error.value.unknown
        assert run_of(world, container_id)[0] == "paused"
    world.engine.unpause(container_id)
    assert run_of(world, container_id)[0] == "running"
    with pytest.raises(ActionError):
        world.engine.unpause(container_id)
    world.engine.stop(container_id, 10.0)
    world.until(container_id, "exited")
    world.remove(container_id)


def test_what_was_removed_can_neither_be_stopped_nor_killed(world: World) -> None:
    container_id = world.job()
    world.remove(container_id)
    with pytest.raises(ActionError, match=r"(?i)no such container") as stop:
        world.engine.stop(container_id, 1.0)
    with pytest.raises(ActionError, match=r"(?i)no such container") as kill:
        world.engine.kill(container_id, 9)
    assert not stop.value.unknown and not kill.value.unknown


def test_what_was_never_there_is_none(world: World) -> None:
    assert world.engine.inspect("0" * 64) is None


def test_nobody_answers(podman: Podman) -> None:
    gone = DockerApi(podman.socket + ".not")
    assert gone.identity() == ""
    with pytest.raises(EngineError, match="no such file") as error:
        gone.containers()
    assert error.value.state is EngineState.DOWN
    with pytest.raises(ActionError, match="no such file") as failed:
        gone.stop("0" * 64, 1.0)
    assert not failed.value.unknown


def test_a_process_in_it_is_found_by_its_cgroup(podman: Podman) -> None:
    """From a pid of the host to the container and to the pid in there."""
    world = RealWorld("podman", podman)
    container_id = world.create()
    world.start(container_id)
    found = world.engine.inspect(container_id)
    assert found is not None
    facts = ProcFs().look(found.pid)
    assert facts is not None
    owner = cgroup.parse(facts.cgroup)
    assert (owner.kind, owner.container) == ("podman", container_id)
    assert ProcFs().namespaced_pid(found.pid) == 1
    world.kill(container_id)
    world.remove(container_id)
    assert ProcFs().namespaced_pid(found.pid) is None


def test_what_podman_tells_of_a_container_with_everything(podman: Podman) -> None:
    container_id = podman.create(
        "everything",
        "sleep 100",
        Env=["NVIDIA_VISIBLE_DEVICES=GPU-8a31c9e4,1", "TOKEN=geheim"],
        Labels={"PODMAN_SYSTEMD_UNIT": "llm.service", "api-key": "geheim", "url": "https://me:geheim@example.com"},
        StopSignal="SIGUSR1",
        HostConfig={"Binds": ["/tmp:/data:ro"], "LogConfig": {"Type": "none"}, "RestartPolicy": {"Name": "always"}},
    )
    found = DockerApi(podman.socket).inspect(container_id)
    assert found is not None
    assert (found.unit, found.restart_policy, found.log_driver) == ("llm.service", "always", "none")
    assert not found.keeps_log
    assert found.gpus is not None and found.gpus.ids == ("GPU-8a31c9e4", "1")
    assert [(mount.source, mount.target, mount.writable) for mount in found.mounts] == [("/tmp", "/data", False)]
    assert "geheim" not in str(vars(found))
    podman.remove(container_id)
