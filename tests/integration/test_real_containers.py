"""ContainerSource with its thread, over real podman: deaths, deletions, an API that hangs, goes and comes back."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from typing import Any, Optional

import pytest

from gpuwatch.model.container import ContainerReport, EngineState
from gpuwatch.model.event import Event
from gpuwatch.sources import containers
from gpuwatch.sources.containers import ContainerSource
from gpuwatch.system.clock import SystemClock
from gpuwatch.system.containers import DockerApi
from gpuwatch.system.worker import ThreadWorker
from tests.conftest import refuse
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
