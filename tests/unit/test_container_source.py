"""ContainerSource over a simulated engine: what it tells, keeps, asks again, and lives through."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.model.container import EngineState
from gpuwatch.simulation.containers import SimulatedEngine
from gpuwatch.sources import container_ledger
from gpuwatch.sources.containers import EVENTS_S, IDLE_PODMAN_S, LIST_S, ContainerSource
from gpuwatch.system.worker import InlineWorker
from tests.fakes.clock import FakeClock
from tests.unit.container_bench import Bench, HeldWorker


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_first_look_tells_what_there_is_and_nothing_that_was(bench: Bench) -> None:
    trainer = bench.engine.run("trainer-1", pid=4711)
    old = bench.engine.run("old")
    bench.engine.end(old, 1)
    report = bench.see(1.0)
    (engine,) = report.engines
    assert (engine.state, engine.kind, engine.version, engine.problem) == (EngineState.OK, "docker", "28.5.1", "")
    assert engine.taken == bench.clock.now()
    assert {each.name: each.status for each in report.containers} == {"trainer-1": "running", "old": "exited"}
    assert report.of(trainer) is not None
    assert report.events == ()
    assert [(one.container.name, one.exit_code) for one in report.exits] == [("old", 1)]  # for the record


def test_a_life_is_told_in_order(bench: Bench) -> None:
    bench.see()
    trainer = bench.engine.run("trainer-1")
    bench.see()
    bench.engine.pause(trainer)
    bench.engine.pause(trainer, paused=False)
    bench.see()
    bench.clock.advance(30)
    bench.engine.end(trainer, 137, oom=True)
    died = bench.clock.now()
    report = bench.see()
    assert bench.told() == [
        "container_start",
        "container_pause",
        "container_unpause",
        "container_oom",
        "container_die",
    ]
    death = report.events[-1]
    assert death.source == "containers"
    assert (death.at, death.seen) == (died, bench.clock.now())
    assert death.fields["container"] == trainer
    assert (death.fields["exit_code"], death.fields["oom_killed"], death.fields["known_by"]) == (137, True, "inspect")
    assert "trainer-1" in death.text and "137" in death.text
    (one,) = report.exits
    assert (one.exit_code, one.oom_event, one.killed_with, one.removed_ns) == (137, True, None, None)
    assert bench.see().events == ()


def test_the_facts_of_a_container_stay_after_it_is_deleted(bench: Bench) -> None:
    bench.see()
    trainer = bench.engine.run("trainer-1", labels={"team": "ml"})
    bench.see()
    bench.engine.end(trainer, 3)
    bench.engine.remove(trainer)  # --rm: gone before anybody can look
    report = bench.see()
    assert report.containers == ()
    (one,) = report.exits
    assert (one.exit_code, one.known_by) == (3, "event")
    assert (one.container.name, one.container.image, one.container.labels) == ("trainer-1", "train:1", {"team": "ml"})
    assert one.removed_ns is not None
    assert report.of(trainer) == one.container
    assert bench.told() == ["container_start", "container_die", "container_remove"]
    bench.start()
    assert bench.see().exits == report.exits
    assert bench.told() == []


def test_one_that_is_deleted_while_it_is_looked_at_died_once(bench: Bench) -> None:
    """The event of its death was read, and the deletion came before the inspection."""
    bench.see()
    trainer = bench.engine.run("trainer-1")
    bench.see()
    bench.engine.end(trainer, 3)
    bench.engine.remove(trainer, silent=True)
    (one,) = bench.see().exits
    assert (one.exit_code, one.known_by) == (3, "event")
    assert bench.told() == ["container_start", "container_die"]


def test_one_that_came_and_went_between_two_looks(bench: Bench) -> None:
    bench.see()
    probe = bench.engine.run("probe")
    bench.engine.end(probe, 1)
    bench.engine.remove(probe)
    (one,) = bench.see().exits
    assert (one.container.name, one.container.engine, one.exit_code, one.known_by) == ("probe", "docker", 1, "event")


def test_who_sent_the_signal_is_kept(bench: Bench) -> None:
    """137 alone proves only SIGKILL; that it came through the engine is a fact."""
    bench.see()
    trainer = bench.engine.run("trainer-1")
    bench.engine.kill(trainer, 9)
    (one,) = bench.see().exits
    assert (one.exit_code, one.killed_with, one.oom_event) == (137, 9, False)
    other = bench.engine.run("trainer-2")
    bench.engine.end(other, 137)
    assert [each.killed_with for each in bench.see().exits] == [9, None]


def test_what_happened_while_gpuwatch_was_away_is_told_once(bench: Bench) -> None:
    trainer = bench.engine.run("trainer-1")
    bench.see()
    bench.told()
    bench.clock.advance(3600)
    bench.engine.end(trainer, 1)
    died = bench.clock.now()
    bench.clock.advance(600)
    bench.start()
    (death,) = bench.see().events
    assert death.kind == "container_die"
    assert death.at.boottime_s == pytest.approx(died.boottime_s, abs=1e-3)
    bench.told()
    bench.start()
    bench.see()
    assert bench.told() == []


def test_a_kill_before_the_commit_tells_again(bench: Bench) -> None:
    """S8: what was not written down is read again."""
    bench.see()
    before = dict(bench.stored)
    bench.engine.run("trainer-1")
    bench.see()
    assert bench.told() == ["container_start"]
    bench.stored = before
    bench.start()
    bench.see()
    assert bench.told() == ["container_start"]


def test_an_end_that_the_engine_has_forgotten_to_tell_is_found(bench: Bench) -> None:
    """dockerd was restarted: its events are lost, its record of the container is not."""
    trainer = bench.engine.run("trainer-1")
    bench.see()
    bench.told()
    bench.engine.end(trainer, 2, silent=True)
    bench.engine.forget()
    bench.see(LIST_S)
    (death,) = bench.events
    assert (death.kind, death.fields["exit_code"], death.fields["known_by"]) == ("container_die", 2, "inspect")
    bench.see(LIST_S)
    assert bench.told() == ["container_die"]


def test_one_that_vanished_without_a_word_has_ended(bench: Bench) -> None:
    trainer = bench.engine.run("trainer-1")
    bench.see()
    bench.told()
    bench.engine.end(trainer, 2, silent=True)
    bench.engine.remove(trainer, silent=True)
    report = bench.see(LIST_S)
    (one,) = report.exits
    assert (one.exit_code, one.known_by, one.container.name) == (None, "absence", "trainer-1")
    assert bench.told() == ["container_die"]


def test_one_that_dies_all_the_time_does_not_push_the_others_out(bench: Bench) -> None:
    bench.see()
    steady = bench.engine.run("steady")
    bench.engine.end(steady, 9)
    loop = bench.engine.create("loop")
    for round_ in range(30):
        bench.clock.advance(0.5)
        bench.engine.start(loop)
        bench.engine.end(loop, round_)
        if round_ % 10 == 0:
            bench.see(0.5)
    report = bench.see()
    assert bench.told().count("container_die") == 31
    assert [one.exit_code for one in report.exits if one.container.name == "loop"] == [25, 26, 27, 28, 29]
    assert [one.exit_code for one in report.exits if one.container.name == "steady"] == [9]
    assert len([key for key in bench.stored if ".exit." in key]) == 6


def test_the_ledger_and_the_list_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_ledger, "MOST_EXITS", 10)
    bench.see()
    for number in range(25):
        bench.engine.end(bench.engine.run(f"c{number}"), number)
        bench.see()
    report = bench.see()
    assert [one.exit_code for one in report.exits] == list(range(15, 25))
    assert len([key for key in bench.stored if ".exit." in key]) == 10


def test_many_containers_are_looked_at_over_several_cycles(bench: Bench) -> None:
    for number in range(120):
        bench.engine.run(f"c{number}")
    assert len(bench.see().containers) == 50
    assert len(bench.see(1.0).containers) == 100
    assert len(bench.see(1.0).containers) == 120


def test_a_quiet_engine_costs_one_question_a_period_and_no_write(bench: Bench) -> None:
    bench.engine.run("trainer-1")
    first = bench.see()
    bench.engine.asked.clear()
    for _ in range(int(EVENTS_S) * 5):
        assert bench.source.observe(bench.clock.now()) is first
        bench.clock.advance(1.0)
        assert bench.source.writes() == {}
    assert bench.engine.asked == ["events"] * 4


def test_podman_without_containers_is_left_alone() -> None:
    """Its API is started for each question where nobody else uses it."""
    bench = Bench("podman")
    bench.see()
    bench.engine.asked.clear()
    for _ in range(int(IDLE_PODMAN_S) - 2):
        bench.see(1.0)
    assert bench.engine.asked == []
    running = bench.engine.run("llm")
    bench.source.want([running])  # its process was seen on a GPU
    assert [each.name for each in bench.see(1.0).containers] == ["llm"]
    bench.engine.asked.clear()
    bench.see(EVENTS_S)
    assert bench.engine.asked == ["events"]


def test_an_id_that_no_engine_knows_is_not_asked_for_all_the_time(bench: Bench) -> None:
    bench.see()
    bench.engine.asked.clear()
    for _ in range(60):
        bench.source.want(["f" * 64])
        bench.see(1.0)
    assert bench.engine.asked.count("inspect") == 1


@pytest.mark.parametrize("state", [EngineState.DOWN, EngineState.SLOW, EngineState.FAILED])
def test_an_engine_that_fails_is_told_and_asked_less_and_less(bench: Bench, state: EngineState) -> None:
    trainer = bench.engine.run("trainer-1")
    bench.see()
    taken = bench.source.observe(bench.clock.now()).engines[0].taken
    bench.engine.fail(state, "the words of the engine")
    bench.engine.asked.clear()
    for _ in range(600):
        report = bench.see(1.0)
    (engine,) = report.engines
    assert (engine.state, engine.taken) == (state, taken)
    assert "the words of the engine" in engine.problem
    assert [each.id for each in report.containers] == [trainer]  # what was known stays, and its age is told
    assert 5 < len(bench.engine.asked) < 12
    bench.told()
    bench.engine.end(trainer, 1)
    bench.engine.fail(None)
    bench.engine.version = "29.0.0"  # it was away for an upgrade
    report = bench.see(301.0)
    (engine,) = report.engines
    assert (engine.state, engine.problem, engine.version) == (EngineState.OK, "", "29.0.0")
    assert bench.told() == ["container_die"]


def test_no_engine_is_no_problem(bench: Bench) -> None:
    bench.engine.vanish()
    (engine,) = bench.see().engines
    assert (engine.state, engine.problem) == (EngineState.ABSENT, "")
    bench.engine.vanish(gone=False)
    bench.engine.run("trainer-1")
    assert bench.see(6.0).engines[0].state is EngineState.OK
    bench.engine.vanish()
    (engine,) = bench.see().engines
    assert (engine.state, "gone" in engine.problem) == (EngineState.DOWN, True)


def test_one_engine_behind_two_sockets_counts_once() -> None:
    """The package podman-docker makes docker's socket a link to podman's."""
    clock = FakeClock()
    engine = SimulatedEngine(clock, "podman", "/run/docker.sock")
    twin = SimulatedEngine(clock, "podman", "/run/podman/podman.sock")
    object.__setattr__(twin, "identity", engine.identity)
    engine.run("llm")
    report = ContainerSource([engine, twin], InlineWorker(), clock, {}).observe(clock.now())
    assert [each.state for each in report.engines] == [EngineState.OK, EngineState.ABSENT]
    assert "same as /run/docker.sock" in report.engines[1].problem
    assert len(report.containers) == 1


def test_two_engines_keep_apart_what_they_store() -> None:
    clock = FakeClock()
    engines = [SimulatedEngine(clock, "docker"), SimulatedEngine(clock, "podman", "/run/podman/podman.sock")]
    names = ("a", "b")
    source = ContainerSource(engines, InlineWorker(), clock, {})
    source.observe(clock.now())
    for engine, name in zip(engines, names):
        engine.end(engine.run(name), 1)
        source.want(["0" * 64])  # wakes podman
    clock.advance(EVENTS_S)
    first = source.observe(clock.now())
    assert {(one.container.name, one.container.engine) for one in first.exits} == {("a", "docker"), ("b", "podman")}
    again = ContainerSource(engines, InlineWorker(), clock, json.loads(json.dumps(source.state())))
    assert again.observe(clock.now()).exits == first.exits


def test_a_hanging_worker_holds_up_nothing(bench: Bench) -> None:
    """S7: the cycle goes on, and nothing is piled up behind what hangs."""
    worker = HeldWorker(bench.clock)
    source = ContainerSource([bench.engine], worker, bench.clock, {})
    bench.engine.run("trainer-1")
    for _ in range(100):
        bench.clock.advance(1.0)
        report = source.observe(bench.clock.now())
    assert len(worker.tasks) == 1
    assert (report.engines[0].state, report.containers) == (EngineState.SLOW, ())
    worker.tasks[0].finish()
    report = source.observe(bench.clock.now())
    assert (report.engines[0].state, len(report.containers)) == (EngineState.OK, 1)


def test_one_container_that_can_not_be_read_keeps_no_other(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        bench.engine.run(name)
    good = bench.engine.inspect

    def inspect(container_id: str) -> Any:
        found = good(container_id)
        if found is not None and found.name == "b":
            bench.engine.fail(EngineState.FAILED, "HTTP status 500")
            try:
                return good(container_id)
            finally:
                bench.engine.fail(None)
        return found

    object.__setattr__(bench.engine, "inspect", inspect)
    report = bench.see()
    assert [each.name for each in report.containers] == ["a", "c"]
    (engine,) = report.engines
    assert engine.state is EngineState.OK
    assert "HTTP status 500" in engine.problem


def test_a_failure_in_the_middle_loses_nothing(bench: Bench) -> None:
    """Events were read, then the engine hung at the first inspection."""
    bench.see()
    trainer = bench.engine.run("trainer-1")
    good = bench.engine.inspect
    bench.engine.fail(None)

    def inspect(container_id: str) -> Any:
        bench.engine.fail(EngineState.SLOW)
        return good(container_id)

    object.__setattr__(bench.engine, "inspect", inspect)
    report = bench.see()
    assert bench.told() == ["container_start"]
    assert report.engines[0].state is EngineState.SLOW
    object.__setattr__(bench.engine, "inspect", good)
    bench.engine.fail(None)
    report = bench.see(6.0)
    assert bench.told() == []
    assert [each.id for each in report.containers] == [trainer]


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_a_clock_that_is_set_tells_nothing_twice(bench: Bench, seconds: float) -> None:
    bench.see()
    bench.engine.run("a")
    bench.see()
    bench.clock.step_utc(seconds)
    bench.engine.forget()  # the simulated one keeps its events in order of time
    bench.engine.run("b")
    bench.see()
    bench.see()
    assert bench.told() == ["container_start", "container_start"]


def test_an_event_from_before_this_boot_is_of_another(bench: Bench) -> None:
    bench.see()
    trainer = bench.engine.run("trainer-1")
    bench.engine.end(trainer, 1)
    bench.clock.reboot("9" * 32)
    bench.start()
    events = bench.see(1.0).events
    assert {event.at.boot_id for event in events} == {""}
    assert bench.clock.now().since(events[0].at) is None


def test_what_is_stored_and_broken_is_left_out_and_removed(bench: Bench) -> None:
    trainer = bench.engine.run("trainer-1")
    bench.engine.end(trainer, 1)
    bench.see()
    assert len(bench.stored) == 3
    for key in bench.stored:
        bench.stored[key] = {"what": "is this"} if ".engine" not in key else ["broken"]
    for name in ("known", "exit"):
        bench.stored[f"containers:{bench.engine.socket}.{name}.{'0' * 64}"] = {"what": 1}
    bench.start()
    report = bench.see()
    assert len(report.containers) == 1
    assert bench.told() == []
    assert len(bench.stored) == 3
    assert all("what" not in document for document in bench.stored.values())


def test_a_restarted_container_under_dockers_memory_of_its_last_end(bench: Bench) -> None:
    """docker tells the end of the run before while the next one runs."""
    bench.see()
    trainer = bench.engine.run("trainer-1")
    bench.engine.end(trainer, 5)
    bench.clock.advance(1.0)
    bench.engine.start(trainer)
    report = bench.see()
    assert bench.told() == ["container_start", "container_die", "container_start"]
    (one,) = report.exits
    assert one.exit_code == 5
    (container,) = report.containers
    assert (container.status, container.exit_code) == ("running", None)
    bench.see(LIST_S)
    assert bench.told() == []


def test_the_report_is_data(bench: Bench) -> None:
    """Frozen, and its text holds no labels (people put secrets there)."""
    bench.engine.run("trainer-1", labels={"note": "geheim"})
    report = bench.see()
    assert "geheim" not in repr(report)
    with pytest.raises(AttributeError):
        report.containers[0].name = "x"  # type: ignore[misc]
    assert replace(report, events=()) == report
