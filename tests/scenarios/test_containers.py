"""From a hot card to a stopped container: the same chain as for units (S1, S2, S4, S6, S7)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest

from gpuwatch.model import reason
from gpuwatch.model.container import EngineState
from gpuwatch.model.gpu import GpuProcess
from gpuwatch.model.intent import IntentState
from gpuwatch.simulation.containers import Done, Manner
from gpuwatch.simulation.host import SERVING
from tests.scenarios.bench import CONFIG, SERVE, TRAIN, Bench

NAMED = CONFIG.replace('units: ["train@*.service"]', "containers: [trainer-*]")
PLAIN = NAMED + "rules:\n  - {name: gpu-hot, enabled: false}\n"
CARD, PID, GIB = 3, 7001, 1 << 30


class Docked(Bench):
    """A bench whose jobs run in containers: the one of `names[0]` on CARD, others on the cards before it."""

    def __init__(self, folder: Path, config: str = PLAIN, names: tuple[str, ...] = ("trainer-1",), **more: Any) -> None:
        self.scope: Optional[str] = more.pop("scope", None)
        self.shared = False  # the serving unit works on the card, too
        manner = more.pop("manner", Manner(stops_in_s=2.0))
        labels = more.pop("labels", None)
        super().__init__(folder, config, **more)
        self.ids = [self.engine.create(name, labels=labels, manner=manner) for name in names]
        for number, each in enumerate(self.ids):
            self.engine.start(each, PID + number)
        self.host.moment = lambda seconds: self.place()
        self.run(3)

    def place(self) -> None:
        """Processes are on the cards for as long as their container runs."""
        for number, each in enumerate(self.ids):
            index, pid = CARD - number, PID + number
            there = next((one for one in self.engine.all() if one.id == each and one.live), None)
            self.host.cards.work(index, there is not None)
            listed = [] if there is None else [GpuProcess(pid, "compute", 40 * GIB)]
            if self.shared and self.host.runs(SERVING):
                listed.append(GpuProcess(SERVING.unit.pid, "compute", 20 * GIB))
            self.host.cards.set_processes(index, listed)
            if there is None:
                self.host.processes.end(pid)
            else:
                scope = self.scope or f"docker-{each}.scope"
                self.host.processes.put(pid, cgroup=f"/system.slice/{scope}")

    @property
    def verbs(self) -> list[str]:
        """What the engine was told to do."""
        return [each.verb for each in self.engine.done]


def test_a_hot_card_stops_the_container_on_it_with_evidence_and_its_name_in_the_messages(tmp_path: Path) -> None:
    bench = Docked(tmp_path)
    bench.heat(94)
    bench.run(25)
    assert bench.engine.done == [Done("stop", bench.ids[0], grace_s=10.0)]
    assert bench.calls() == []
    (intent,) = bench.stops
    assert (intent.state, intent.label) == (IntentState.VERIFIED, "trainer-1")
    assert intent.target == f"docker:{bench.ids[0]}"
    assert intent.preserved is not None and intent.sent is not None
    assert intent.preserved.boottime_s < intent.sent.boottime_s
    (bundle,) = bench.bundles()
    facts = json.loads((tmp_path / "state" / "evidence" / bundle / "unit.json").read_text())["unit"]
    assert facts["container"]["name"] == "trainer-1"
    told = "\n".join(line for entry in bench.spool.values() for line in (entry.message.title, *entry.message.lines))
    assert "trainer-1" in told and "docker start trainer-1" in told
    assert bench.ids[0][:12] not in told


def test_s6_in_observe_it_would_have_been_stopped(tmp_path: Path) -> None:
    bench = Docked(tmp_path, PLAIN.replace("mode: enforce", "mode: observe"))
    bench.heat(94)
    bench.run(60)
    assert bench.engine.done == []
    (intent,) = bench.stops
    assert intent.state is IntentState.WOULD_HAVE
    assert "trainer-1" in " ".join(bench.spool["update"].message.lines)


def test_s2_a_container_that_no_workload_names_is_left_alone(tmp_path: Path) -> None:
    bench = Docked(tmp_path, names=("other",))
    bench.heat(94)
    bench.run(60)
    assert bench.engine.done == [] and bench.stops == []
    assert any(reason.NO_WORKLOAD in line for _, line in bench.log.lines)


@pytest.mark.parametrize(
    ("pattern", "labels"),
    [
        ("label:team=ml", {"team": "ml"}),
        ("compose:llama/*", {"com.docker.compose.project": "llama", "com.docker.compose.service": "train"}),
    ],
)
def test_it_may_be_named_by_label_or_compose_service(tmp_path: Path, pattern: str, labels: dict[str, str]) -> None:
    bench = Docked(tmp_path, PLAIN.replace("trainer-*", f'"{pattern}"'), names=("x",), labels=labels)
    bench.heat(94)
    bench.run(25)
    assert bench.verbs == ["stop"]


def test_one_that_ignores_sigterm_is_killed_by_its_engine_after_the_configured_grace(tmp_path: Path) -> None:
    config = PLAIN.replace("containers:", "stop: {grace: 20s}\n    containers:")
    bench = Docked(tmp_path, config, manner=Manner(ignores_sigterm=True))
    bench.heat(94)
    bench.run(50)
    assert bench.engine.done == [Done("stop", bench.ids[0], grace_s=20.0)]
    (intent,) = bench.stops
    assert intent.state is IntentState.VERIFIED and intent.gone is not None and intent.sent is not None
    assert 20 <= (intent.gone.since(intent.sent) or 0) < 23


def test_a_paused_one_is_thawed_before_its_stop(tmp_path: Path) -> None:
    bench = Docked(tmp_path)
    bench.engine.pause(bench.ids[0])
    bench.heat(94)
    bench.run(25)
    assert bench.verbs == ["unpause", "stop"]
    assert bench.stops[0].state is IntentState.VERIFIED


def test_one_that_somebody_starts_again_came_back(tmp_path: Path) -> None:
    bench = Docked(tmp_path, manner=Manner(starts_again_in_s=2.0))
    bench.heat(94)
    bench.run(20)
    (intent,) = bench.stops
    assert (intent.state, intent.reason) == (IntentState.FAILED, reason.CAME_BACK)


def test_one_that_is_removed_under_our_feet_is_gone(tmp_path: Path) -> None:
    bench = Docked(tmp_path, manner=Manner(ignores_sigterm=True))
    bench.heat(94)
    bench.run(30, until=lambda: "stop" in bench.verbs)
    bench.engine.remove(bench.ids[0])
    bench.run(15)
    assert bench.stops[0].state is IntentState.VERIFIED
    assert bench.verbs == ["stop"]


def test_a_stop_under_way_is_not_withdrawn_when_the_card_cools(tmp_path: Path) -> None:
    """docker says "running" until the last process is gone."""
    bench = Docked(tmp_path, manner=Manner(stops_in_s=8.0))
    bench.heat(94)
    bench.run(30, until=lambda: "stop" in bench.verbs)
    bench.heat(60)
    bench.run(25)
    assert bench.verbs == ["stop"]
    assert bench.stops[0].state is IntentState.VERIFIED


def test_s8_after_a_crash_it_is_not_stopped_twice_once_it_is_gone(tmp_path: Path) -> None:
    bench = Docked(tmp_path)
    bench.heat(94)
    bench.run(30, until=lambda: "stop" in bench.verbs)
    bench.clock.advance(3.0)
    bench.restart()
    bench.run(15)
    assert bench.verbs == ["stop"]
    assert bench.stops[0].state is IntentState.VERIFIED


def test_a_stop_whose_answer_is_lost_is_watched_and_not_repeated(tmp_path: Path) -> None:
    bench = Docked(tmp_path, manner=Manner(loses_answer=True, stops_in_s=9.0))
    bench.heat(94)
    bench.run(30)
    assert bench.verbs == ["stop"]
    assert bench.stops[0].state is IntentState.VERIFIED


def test_where_the_engine_kills_nothing_after_the_grace_we_do(tmp_path: Path) -> None:
    bench = Docked(tmp_path, manner=Manner(ignores_sigterm=True, never_killed=True))
    bench.heat(94)
    bench.run(40)
    assert bench.engine.done[1:] == [Done("kill", bench.ids[0], signal=9)]
    assert bench.stops[0].state is IntentState.VERIFIED and bench.stops[0].killed is not None


def test_its_job_is_told_to_write_a_checkpoint_first(tmp_path: Path) -> None:
    how = "stop: {checkpoint: {signal: SIGUSR1, wait: 5s}}\n    containers:"
    bench = Docked(tmp_path, PLAIN.replace("containers:", how))
    bench.heat(94)
    bench.run(30)
    assert [(each.verb, each.signal) for each in bench.engine.done] == [("kill", 10), ("stop", 0)]


def test_s7_an_engine_that_hangs_holds_up_no_unit_on_the_same_card(tmp_path: Path) -> None:
    both = PLAIN.replace("containers:", "priority: 5\n    containers:").replace(
        "alerts:", '  - {name: serving, units: ["serve@*.service"], priority: 50}\nalerts:'
    )
    bench = Docked(tmp_path, both)
    bench.shared = True
    bench.run(3)
    bench.engine.fail(EngineState.SLOW)
    bench.run(10)
    bench.heat(94)
    bench.run(25)
    assert bench.engine.done == []
    assert bench.calls() == [("stop", SERVE)]
    bench.engine.fail(None)
    bench.run(600, until=lambda: bool(bench.engine.done))
    assert bench.verbs == ["stop"]


def test_s7_an_engine_that_answers_nothing_stops_nothing_until_it_does(tmp_path: Path) -> None:
    bench = Docked(tmp_path)
    bench.heat(94)
    bench.run(30, until=lambda: any(each.action == "stop" for each in bench.assembly.cycle.seen.intents))
    bench.engine.fail(EngineState.SLOW)
    bench.run(10)
    assert bench.engine.done == []
    assert [each.state for each in bench.stops] == [IntentState.PLANNED]
    bench.engine.fail(None)
    bench.run(20)
    assert [each.state for each in bench.stops] == [IntentState.VERIFIED]


def test_s7_what_became_of_a_stop_is_unknown_where_the_engine_never_answers_again(tmp_path: Path) -> None:
    bench = Docked(tmp_path, manner=Manner(ignores_sigterm=True))
    bench.heat(94)
    bench.run(30, until=lambda: "stop" in bench.verbs)
    bench.engine.fail(EngineState.SLOW)
    bench.run(330)
    (intent,) = bench.stops
    assert (intent.state, intent.reason) == (IntentState.UNKNOWN, reason.ENGINE_SILENT)
    assert "the container engine did not answer" in " ".join(bench.spool["update"].message.lines)


@pytest.mark.parametrize(
    ("named", "done"),
    [("containers: [trainer-*]", []), ('containers: [trainer-*]\n    units: ["train@*.service"]', [("stop", TRAIN)])],
)
def test_a7_of_a_container_that_a_unit_runs_the_unit_is_stopped_or_nothing(
    tmp_path: Path, named: str, done: list[tuple[str, str]]
) -> None:
    config = PLAIN.replace("containers: [trainer-*]", named)
    bench = Docked(tmp_path, config, labels={"PODMAN_SYSTEMD_UNIT": TRAIN})
    bench.heat(94)
    bench.run(20)
    assert bench.engine.done == []
    assert bench.calls() == done
    if not done:
        (intent,) = bench.stops
        assert (intent.state, intent.reason) == (IntentState.REFUSED, "run_by_unit")
        assert f"run by {TRAIN}" in " ".join(bench.spool["update"].message.lines)


def test_s2_gpuwatchs_own_container_is_never_stopped(tmp_path: Path) -> None:
    bench = Docked(tmp_path)
    executor = bench.assembly.cycle.ports.executor
    bench.assembly.cycle.ports.executor = replace(executor, own_units=(f"docker-{bench.ids[0]}.scope",))
    bench.heat(94)
    bench.run(20)
    assert bench.engine.done == []
    assert (bench.stops[0].state, bench.stops[0].reason) == (IntentState.REFUSED, "own")


def test_of_two_containers_the_one_on_the_hot_card_is_stopped(tmp_path: Path) -> None:
    bench = Docked(tmp_path, names=("trainer-1", "trainer-2"))
    bench.heat(94, CARD - 1)
    bench.run(25)
    assert bench.engine.done == [Done("stop", bench.ids[1], grace_s=10.0)]


def test_a_card_with_only_our_containers_on_it_may_be_throttled(tmp_path: Path) -> None:
    rule = """
rules:
  - name: warm
    metric: gpu.temperature
    above: 80
    for: 2s
    clear: {below: 70, for: 5s}
    severity: warning
    ladder: [{do: [throttle]}]
  - {name: gpu-hot, enabled: false}
  - {name: gpu-critical, enabled: false}
"""
    states = {}
    for place, name in enumerate(("trainer-1", "other")):
        folder = tmp_path / str(place)
        folder.mkdir()
        bench = Docked(folder, NAMED + rule, names=(name,))
        bench.heat(84)
        bench.run(12)
        states[name] = [each.state for each in bench.intents if each.action == "throttle"]
    assert states == {"trainer-1": [IntentState.APPLIED], "other": []}
