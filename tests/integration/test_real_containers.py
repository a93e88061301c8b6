"""ContainerSource with its thread, over real podman: deaths, deletions, an API that hangs, goes and comes back."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from typing import Any, Optional

import pytest

from gpuwatch.actions.router import Containers, Router
from gpuwatch.model.container import ContainerReport, EngineState
from gpuwatch.model.errors import ActionError, SourceError
from gpuwatch.model.event import Event
from gpuwatch.simulation.systemd import SimulatedSystemd, SimulatedUnit
from gpuwatch.sources import containers
from gpuwatch.sources.containers import ContainerSource
from gpuwatch.system.clock import SystemClock
from gpuwatch.system.containers import DockerApi
from gpuwatch.system.errands import Errands
from gpuwatch.system.procfs import ProcFs
from gpuwatch.system.protocols import Task, UnitFacts
from gpuwatch.system.worker import InlineWorker, ThreadWorker
from tests.conftest import refuse
from tests.contract.engine_worlds import RealWorld
from tests.lab.engines import Podman, why_no_podman
from tests.lab.waiting import wait_for

TRAP = "trap 'exit 7' TERM; while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    refuse(why_no_podman())
    with Podman() as podman:
        yield podman


class Watch:
    """A source that is asked every 50 ms, with everything that it told."""

    def __init__(self, podman: Podman, stored: Optional[dict[str, Any]] = None) -> None:
        self.clock = SystemClock()
        engine = DockerApi(podman.socket, timeout_s=1.0)
        self.source = ContainerSource([engine], ThreadWorker("containers"), self.clock, stored or {})
        self.events: list[Event] = []
        self.report = ContainerReport()
        self.slowest_s = 0.0

    def look(self) -> ContainerReport:
        began = time.monotonic()
        self.report = self.source.observe(self.clock.now())
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        self.events += self.report.events
        return self.report

    def until(self, state: EngineState) -> None:
        wait_for(lambda: self.look().engines[0].state is state, timeout_s=20, what=state.value, every_s=0.05)

    def until_told(self, kind: str, container_id: str) -> Event:
        def told() -> Optional[Event]:
            self.source.want([container_id])
            self.look()
            mine = [each for each in self.events if each.kind == kind and each.fields["container"] == container_id]
            return mine[0] if mine else None

        return wait_for(told, timeout_s=20, what=kind, every_s=0.05)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EVENTS_S", "IDLE_PODMAN_S", "FIRST_BACKOFF_S", "LAST_BACKOFF_S"):
        monkeypatch.setattr(containers, name, 0.3)


def test_a_life_with_a_deletion_right_after_the_end(podman: Podman) -> None:
    watch = Watch(podman)
    watch.until(EngineState.OK)
    began = time.time()
    trainer = podman.create("trainer", TRAP, Labels={"com.docker.compose.project": "llama"})
    podman.post(trainer, "start")
    watch.until_told("container_start", trainer)
    wait_for(lambda: (found := watch.look().of(trainer)) is not None and found.live, what="its facts", every_s=0.05)
    podman.post(trainer, "stop?t=5")
    podman.remove(trainer)
    death = watch.until_told("container_die", trainer)
    assert death.fields["exit_code"] == 7
    assert began < death.at.utc_s < time.time()
    assert abs(death.at.boottime_s - watch.clock.now().boottime_s) < 60
    watch.until_told("container_remove", trainer)
    (one,) = (one for one in watch.report.exits if one.container.id == trainer)
    assert (one.exit_code, one.container.name, one.container.compose_project) == (7, "trainer", "llama")
    assert one.removed_ns is not None
    assert [each.kind for each in watch.events if each.fields["container"] == trainer] == [
        "container_start", "container_die", "container_remove",
    ]  # fmt: skip

    again = Watch(podman, json.loads(json.dumps(watch.source.state())))
    again.until(EngineState.OK)
    assert again.report.of(trainer) == one.container
    assert again.events == []


def test_a_death_while_nobody_watched_is_told_by_the_next_start(podman: Podman) -> None:
    watch = Watch(podman)
    watch.until(EngineState.OK)
    trainer = podman.create("unwatched", TRAP)
    podman.post(trainer, "start")
    watch.until_told("container_start", trainer)
    stored = json.loads(json.dumps(watch.source.state()))
    podman.post(trainer, "kill?signal=KILL")
    wait_for(lambda: podman.call("GET", f"/containers/{trainer}/json")[1]["State"]["Status"] == "exited")
    podman.remove(trainer)
    again = Watch(podman, stored)
    assert again.until_told("container_die", trainer).fields["exit_code"] == 137
    (one,) = (one for one in again.report.exits if one.container.id == trainer)
    assert one.container.name == "unwatched"


def test_an_api_that_hangs_goes_and_comes_back(podman: Podman) -> None:
    """S7: the cycle never waits for it; containers go on, and so does what is known of them."""
    watch = Watch(podman)
    watch.until(EngineState.OK)
    trainer = podman.create("steady", TRAP)
    podman.post(trainer, "start")
    watch.until_told("container_start", trainer)
    assert podman.process is not None
    podman.process.send_signal(signal.SIGSTOP)
    try:
        watch.until(EngineState.SLOW)
        assert "does not answer within 1 s" in watch.report.engines[0].problem
        assert watch.report.of(trainer) is not None
    finally:
        podman.process.send_signal(signal.SIGCONT)
    watch.until(EngineState.OK)
    podman.stop_serving()
    watch.until(EngineState.DOWN)
    podman.serve()
    watch.until(EngineState.OK)
    podman.remove(trainer)
    watch.until_told("container_die", trainer)
    assert watch.slowest_s < 0.3


UNIT = "train@llama.service"


class Hands:
    """A router over real podman, each call in a thread of its own, and over one simulated unit."""

    def __init__(self, podman: Podman) -> None:
        self.world = RealWorld("podman", podman)
        self.systemd = SimulatedSystemd(SystemClock(), (SimulatedUnit(UNIT),))
        engine = DockerApi(podman.socket, timeout_s=1.0, stopped_s=1.0)
        self.router = Router(self.systemd, InlineWorker(), Containers([engine], ProcFs()), Errands())

    def look(self, container_id: str) -> UnitFacts:
        task = self.router.look(f"podman:{container_id}")
        done(task)
        return task.result()

    def stop(self, facts: UnitFacts, grace_s: float) -> Task[None]:
        return self.router.stop(facts.name, facts.invocation, grace_s)


def done(task: Task[Any]) -> None:
    wait_for(task.done, timeout_s=20, what="an answer")


def test_a_container_is_stopped_as_a_unit_is(podman: Podman) -> None:
    hands = Hands(podman)
    job = hands.world.job()
    before = hands.look(job)
    assert (before.load_state, before.active_state, before.paused) == ("loaded", "active", False)
    assert job in before.control_group and before.main_pid > 0
    stop = hands.stop(before, 10.0)
    done(stop)
    stop.result()
    after = hands.look(job)
    assert (after.running, after.invocation) == (False, before.invocation)
    hands.world.start(job)
    assert hands.look(job).invocation != before.invocation
    late = hands.stop(before, 10.0)
    done(late)
    with pytest.raises(ActionError, match="started anew"):
        late.result()
    podman.remove(job)
    assert hands.look(job).load_state == "not-found"


def test_a5_a_paused_container_is_thawed_and_stopped(podman: Podman) -> None:
    hands = Hands(podman)
    job = hands.world.job()
    podman.post(job, "pause")
    facts = hands.look(job)
    assert facts.paused and facts.running
    stop = hands.stop(facts, 10.0)
    done(stop)
    stop.result()
    found = hands.look(job).container
    assert found is not None and found.exit_code == 143  # it heard SIGTERM
    podman.remove(job)


def test_a_container_with_a_long_grace_delays_no_other(podman: Podman) -> None:
    hands = Hands(podman)
    deaf, quick = hands.world.job(deaf=True), hands.world.job()
    first, second = hands.look(deaf), hands.look(quick)
    long, short = hands.stop(first, 300.0), hands.stop(second, 300.0)
    done(short)
    short.result()
    assert not long.done()
    assert hands.look(deaf).active_state == "deactivating"
    kill = hands.router.kill(first.name, first.invocation, 9)
    done(kill)
    kill.result()
    done(long)
    assert not hands.look(deaf).running
    for each in (deaf, quick):
        podman.remove(each)


def test_s7_an_api_that_hangs_leaves_a_stop_unknown_and_delays_no_unit(podman: Podman) -> None:
    hands = Hands(podman)
    job = hands.world.job()
    facts = hands.look(job)
    assert podman.process is not None
    podman.process.send_signal(signal.SIGSTOP)
    try:
        asked, stop = hands.router.look(facts.name), hands.stop(facts, 1.0)
        assert hands.router.look(UNIT).result().running
        hands.router.stop(UNIT, "", 1.0).result()
        assert [call.verb for call in hands.systemd.calls] == ["stop"]
        done(asked)
        with pytest.raises(SourceError, match="does not answer"):
            asked.result()
        done(stop)
        with pytest.raises(ActionError, match="does not answer") as error:
            stop.result()
        assert error.value.unknown
    finally:
        podman.process.send_signal(signal.SIGCONT)
    wait_for(lambda: podman.call("GET", "/_ping")[0] == 200, what="podman")
    podman.remove(job)
