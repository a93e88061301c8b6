"""The verbs that order something: over a real control socket to a daemon, and what they show."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.cli import action as action_verb
from gpuwatch.cli.main import main
from gpuwatch.cli.status import draw
from gpuwatch.daemon.control import Control, Request
from gpuwatch.daemon.turn import Turn
from gpuwatch.daemon.view import Process, status_line
from gpuwatch.model.intent import IntentState
from gpuwatch.system.control_socket import ControlServer
from gpuwatch.system.worker import InlineWorker
from tests.scenarios.bench import QUICK, TRAIN, Bench


class Daemon:
    """A turn over a simulated host that is made whenever somebody orders something."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        folder = str(bench.folder)
        process = Process("gpu-07", 1, 0.0, False, f"{folder}/state")
        cycle, scene = bench.assembly.cycle, bench.assembly.scene
        self.turn = Turn(cycle, scene, InlineWorker(), process, bench.log, lambda: cycle.settings, f"{folder}/run")
        control = Control(self.turn.latest, self.wake, os.geteuid())
        self.turn.requests = control.requests
        self.server = ControlServer(f"{folder}/run/control.sock", control.handle)

    def wake(self) -> None:
        """Called from the socket's thread: the only one at work then."""
        self.turn.run()
        self.bench.clock.advance(1.0)

    @property
    def line(self) -> str:
        """STATUS= of the last cycle."""
        return status_line(self.turn.cycle.seen, self.turn.cycle.settings, False)

    @property
    def screen(self) -> str:
        """`gpuwatch status`."""
        return draw(self.turn.latest(), 0.5, "")


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    monkeypatch.setenv("SUDO_USER", "wang")
    bench = Bench(tmp_path, QUICK)
    bench.run(5)
    daemon = Daemon(bench)
    yield daemon
    daemon.server.close()


def call(daemon: Daemon, *argv: str, config: bool = True) -> int:
    folder = daemon.bench.folder
    places = ["--run-dir", str(folder / "run"), "--state-dir", str(folder / "state")]
    return main([*argv, *places, *(["--config", str(daemon.bench.config)] if config else [])])


def test_disarm_is_shown_first_everywhere(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(daemon, "disarm", "--for", "2h", "--comment", "benchmark") == 0
    assert "DISARMED until " in capsys.readouterr().out
    first, second = daemon.screen.split("\n")[:2]
    assert first.startswith("DISARMED by ") and first.endswith(": benchmark") and "(sudo: wang) until " in first
    assert second.endswith("gpuwatch arm")
    assert daemon.line.startswith("DISARMED by ") and ", 8 GPUs read" in daemon.line
    assert call(daemon, "arm") == 0
    assert "DISARMED" not in daemon.screen + daemon.line


def test_the_answer_comes_after_it_is_written_down(daemon: Daemon) -> None:
    assert call(daemon, "disarm") == 0
    assert daemon.bench.stored().state["orders"]["disarmed"]["until"] is None


def test_what_is_not_on_disk_is_said(daemon: Daemon) -> None:
    turn = daemon.turn
    request = Request("order", {"what": "disarm"})
    turn.requests.append(request)
    turn._answer_requests()
    seen = turn.cycle.seen
    turn._end_orders(replace(seen, committed=replace(seen.committed, degraded=True, problem="disk full")))
    answer = request.wait()
    assert answer is not None
    assert answer["done"] is True and "not on disk: disk full" in answer["warning"]


def test_silence_add_list_expire(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(daemon, "silence", "add", "--rule", "gpu-*", "--gpu", "3", "--for", "4h", "--comment", "fan") == 0
    assert "gpuwatch silence expire s1" in capsys.readouterr().out
    assert "1 silence: gpuwatch silence list" in daemon.screen
    assert call(daemon, "silence", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ID", "UNTIL", "RULE", "ABOUT", "BY", "COMMENT"]
    assert lines[1].startswith("s1 ") and "gpu-*  GPU 3" in lines[1] and lines[1].endswith("fan")
    assert call(daemon, "silence", "list", "--json") == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)["silences"]] == ["s1"]
    assert call(daemon, "silence", "expire", "s1") == 0
    assert call(daemon, "silence", "expire", "s1") == 1
    told = capsys.readouterr()
    assert "no silence s1" in told.err
    assert call(daemon, "silence", "list") == 0
    assert capsys.readouterr().out == "no silences\n"


@pytest.mark.parametrize(
    "argv",
    [
        ["silence", "add", "--rule", "x", "--comment", "y"],
        ["silence", "add", "--rule", "x", "--for", "4h"],
        ["silence", "add", "--rule", "x", "--for", "31d", "--comment", "y"],
        ["silence", "add", "--rule", "x", "--for", "soon", "--comment", "y"],
        ["silence", "add", "--gpu", "3", "--unit", "x", "--for", "1h", "--comment", "y"],
        ["maintenance", "on", "--for", "8d"],
        ["maintenance", "on", "--for", "0m"],
        ["incident", "close", "17"],
    ],
)
def test_what_is_missing_or_too_long_is_a_mistake(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2


def test_a_silence_of_nothing_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["silence", "add", "--for", "1h", "--comment", "y"]) == 2
    assert "name what to silence" in capsys.readouterr().err


def test_maintenance_with_the_gpus_released(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(daemon, "maintenance", "on", "--release-gpu", "--for", "1h", "--comment", "new fans") == 0
    assert "heat is NOT watched" in capsys.readouterr().out
    daemon.bench.run(3)
    assert daemon.line.startswith("MAINTENANCE by ") and "GPU driver released" in daemon.line
    assert daemon.screen.startswith("MAINTENANCE by ")
    assert call(daemon, "maintenance", "off", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "done": True}


def test_what_was_not_told_is_shown_with_the_incident(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    call(daemon, "silence", "add", "--rule", "gpu-critical", "--for", "4h", "--comment", "fan")
    daemon.bench.heat(94)
    daemon.bench.run(20)
    call(daemon, "incident", "ack", "gpu-07#1", "--comment", "on it")
    capsys.readouterr()
    assert call(daemon, "incident", "show", "1", config=False) == 0
    shown = capsys.readouterr().out
    assert "Not told: firing: silence s1 (" in shown and "(sudo: wang): fan)" in shown
    assert "seen by " in shown and ": on it" in shown
    assert call(daemon, "incident", "list", config=False) == 0
    assert "open, seen by " in capsys.readouterr().out
    assert "seen by " in daemon.screen


def test_closing_what_still_holds_is_refused(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.bench.heat(94)
    daemon.bench.run(8)
    assert call(daemon, "incident", "close", "1", "--reason", "done") == 1
    assert "rule gpu-critical still holds" in capsys.readouterr().err


def test_action_list_and_show(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(daemon, "action", "list", config=False) == 0
    assert capsys.readouterr().out == "no actions\n"
    daemon.bench.heat(94)
    daemon.bench.run(20)
    assert call(daemon, "action", "list", config=False) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " stop " in line]
    identifier = line.split()[0]
    assert TRAIN in line and "enforce" in line and "verified" in line
    assert call(daemon, "action", "show", identifier, config=False) == 0
    shown = capsys.readouterr().out
    order = [f"Action {identifier}: stop {TRAIN}", "planned", "evidence durable", "requested", "gone", "verified"]
    assert sorted(order, key=shown.index) == order
    assert call(daemon, "action", "show", "a9-9", config=False) == 1
    assert call(daemon, "action", "list", "--json", config=False) == 0
    told = capsys.readouterr()
    assert "no action a9-9" in told.err and identifier in [each["id"] for each in json.loads(told.out)["actions"]]
    assert call(daemon, "action", "veto", identifier) == 1
    assert "is over already" in capsys.readouterr().err
    assert call(daemon, "action", "veto", "1") == 0
    assert "all that incident 1 still wants is forbidden" in capsys.readouterr().out


def test_a_throttle_is_shown_in_watts(daemon: Daemon) -> None:
    daemon.bench.heat(94)
    daemon.bench.run(20)
    (stop,) = [each for each in daemon.bench.intents if each.action == "stop"]
    throttle = replace(stop, action="throttle", state=IntentState.APPLIED, before=700.0, value=595.0)
    assert "700 W -> 595 W" in action_verb.draw(throttle)
    cycle = daemon.turn.cycle
    cycle.seen = replace(cycle.seen, intents=(throttle,))
    assert "throttled to 595 W" in daemon.screen and "stopping" not in daemon.screen


def test_hold_list_and_release(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    def holds() -> int:
        return main(["hold", "list", "--run-dir", str(daemon.bench.folder / "run")])

    assert holds() == 0
    assert capsys.readouterr().out == "nothing is held\n"
    daemon.bench.heat(94)
    daemon.bench.run(20)
    cycle = daemon.turn.cycle
    hold = replace(cycle.seen.intents[-1], id="a1-9", action="hold", target=TRAIN, state=IntentState.APPLIED)
    cycle.seen = replace(cycle.seen, intents=(hold,))
    assert holds() == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line.startswith("a1-9 ") and TRAIN in line and "gpu-critical" in line
    assert call(daemon, "hold", "release", "nobody.service") == 1
    assert "nothing is held as nobody.service" in capsys.readouterr().err


def test_only_root_may_order() -> None:
    control = Control(dict, lambda: None, 1000)
    assert "only root" in control.handle({"verb": "order", "what": "disarm"}, 1001)["error"]
    assert not control.requests


def test_with_the_daemon_down_the_store_is_written_and_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    bench = Bench(tmp_path, QUICK)
    bench.run(5)
    daemon = Daemon(bench)
    daemon.turn.run()
    daemon.server.close()
    bench.close()
    assert call(daemon, "disarm", "--comment", "repair") == 0
    assert "in force from its next start on" in capsys.readouterr().err
    assert call(daemon, "silence", "add", "--host-only", "--for", "1h", "--comment", "x") == 0
    assert call(daemon, "silence", "list") == 0
    assert "s1 " in capsys.readouterr().out
    assert main(["status", "--run-dir", str(tmp_path / "run")]) == 1
    shown = capsys.readouterr().out
    assert "not running" in shown and "DISARMED by root until taken back: repair" in shown.replace(
        f"uid {os.geteuid()}", "root"
    )
    bench.start()
    assert bench.assembly.cycle.seen.orders.disarmed is None, "seen with the first cycle"
    bench.run(1)
    assert bench.assembly.cycle.seen.orders.hands_off(bench.clock.now()) == "disarmed"
