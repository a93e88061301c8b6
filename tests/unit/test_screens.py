"""What people see: status, check, incident, help. From frozen views; nothing of the host is asked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli import incident as incident_verb
from gpuwatch.cli.check import judge_daemon
from gpuwatch.cli.main import VERBS, main
from gpuwatch.cli.output import ago, safe, size, table, width
from gpuwatch.cli.status import draw
from gpuwatch.daemon.view import Process, status_line, view
from gpuwatch.model.gpu import DriverState, GpuReport
from tests.scenarios.bench import TRAIN, Bench


def _view(bench: Bench) -> dict[str, Any]:
    cycle = bench.assembly.cycle
    return view(cycle.seen, cycle.settings, Process("gpu-07", 1, 0.0, False, "/var/lib/gpuwatch"), 1, 2048)


@pytest.fixture
def hot(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.run(5)
    bench.heat(94)
    bench.run(20)
    return bench


def test_the_status_screen_fits_a_terminal_and_says_what_matters(hot: Bench) -> None:
    screen = draw(_view(hot), 0.5, "")
    lines = screen.split("\n")
    assert "enforce" in lines[0] and "1 incident" in lines[0]
    assert any("H100" in line and "incident 1" in line and "94 C" in line for line in lines)
    assert any(line.startswith("Incident 1: GPU 3") for line in lines)
    assert max(map(width, lines)) <= 100
    assert max(width(line) for line in lines[1:10]) <= 80


def test_the_status_line_is_one_line(hot: Bench) -> None:
    cycle = hot.assembly.cycle
    assert (
        status_line(cycle.seen, cycle.settings, False)
        == "8 GPUs read, max 94 C (GPU 3), 1 incident, enforce: 1 workload"
    )
    assert status_line(cycle.seen, cycle.settings, True).startswith("SIMULATED")


def test_an_old_copy_says_how_old_it_is_and_what_to_do(hot: Bench) -> None:
    screen = draw(_view(hot), 300.0, "the daemon is not running")
    assert "not running; this is from 5 min ago" in screen
    assert "systemctl start gpuwatch" in screen


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (GpuReport(DriverState.ABSENT), "No NVIDIA driver"),
        (GpuReport(DriverState.SILENT, stuck_pids=(41872,)), "stuck: pid 41872"),
        (GpuReport(DriverState.MISMATCH, reason="library 1, module 2"), "mismatch: library 1, module 2"),
    ],
)
def test_the_driver_is_named_when_it_is_not_well(tmp_path: Path, report: GpuReport, words: str) -> None:
    bench = Bench(tmp_path)
    bench.run(1)
    cycle = bench.assembly.cycle
    cycle.seen = type(cycle.seen)(now=cycle.seen.now, report=report)
    assert words in draw(_view(bench), 0.1, "")


def test_incident_show_tells_the_story_in_order(hot: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["incident", "show", "1", "--state-dir", str(hot.folder / "state")]) == 0
    shown = capsys.readouterr().out
    order = ["Incident gpu-07#1", "planned", "evidence durable", "requested", "gone", "verified", "Told:"]
    positions = [shown.index(word) for word in order]
    assert positions == sorted(positions)
    assert TRAIN in shown


def test_incident_list_and_a_wrong_number(hot: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    state = str(hot.folder / "state")
    assert main(["incident", "list", "--state-dir", state]) == 0
    assert "gpu-critical" in capsys.readouterr().out
    assert main(["incident", "show", "99", "--state-dir", state]) == 1
    assert "no incident 99" in capsys.readouterr().err


def test_no_store_is_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["incident", "list", "--state-dir", str(tmp_path / "none")]) == 1
    assert "has gpuwatch run on this host?" in capsys.readouterr().err


def test_names_from_outside_can_not_move_the_cursor(hot: Bench) -> None:
    stored = hot.stored()
    evil = "x\x1b[2J\n\u202e"
    from dataclasses import replace

    changed = replace(stored.incidents["1"], label=evil)
    drawn = incident_verb.draw(changed, [], {})
    assert "\x1b" not in drawn and "\u202e" not in drawn


def _judged(**more: Any) -> tuple[str, str]:
    given: dict[str, Any] = {
        "utc_s": 100.0,
        "boottime_s": 100.0,
        "incidents": [],
        "alerts": {"refused": "", "failing": {}},
        "journal": {"problem": ""},
        "driver": {"state": "ok", "sampled_utc_s": 99.5},
        "gpus": [1, 2],
        "mode": "observe",
    }
    return judge_daemon({**given, **more}, 1101.0, 101.0)


INCIDENT = {"number": 1, "label": "GPU 3", "rules": ["gpu-hot"], "state": "open", "severity": "warning"}


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({}, "OK"),
        ({"driver": {"state": "absent"}}, "OK"),
        ({"driver": {"state": "silent"}}, "WARNING"),
        ({"driver": {"state": "ok", "sampled_utc_s": 60.0}}, "WARNING"),
        ({"incidents": [INCIDENT]}, "WARNING"),
        ({"incidents": [{**INCIDENT, "severity": "critical"}]}, "CRITICAL"),
        ({"incidents": [{**INCIDENT, "severity": "critical", "state": "recovered"}]}, "OK"),
        ({"alerts": {"refused": "errcode 93000", "failing": {}}}, "WARNING"),
        ({"alerts": {"refused": "", "failing": {"ops": {"since_utc_s": 1000.0, "problem": "HTTP 500"}}}}, "OK"),
        ({"alerts": {"refused": "", "failing": {"ops": {"since_utc_s": 100.0, "problem": "HTTP 500"}}}}, "WARNING"),
        ({"journal": {"problem": "no journal"}}, "WARNING"),
        ({"boottime_s": 10.0}, "CRITICAL"),
    ],
)
def test_check_in_nagios_words(given: dict[str, Any], word: str) -> None:
    assert _judged(**given)[0] == word


def test_help_fits_a_screen_and_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out.split("\n")
    assert len(shown) <= 34 and max(map(len, shown)) <= 100
    assert all(any(line.strip().startswith(verb) for line in shown) for verb in VERBS)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert re.search(rf"examples?:\s+gpuwatch {verb}", capsys.readouterr().out)


def test_a_verb_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["statsu"]) == 2
    assert "did you mean status?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.84, "0.8 s"), (-1, "0.0 s"), (42, "42 s"), (600, "10 min"), (9000, "2 h"), (1e6, "12 days")],
)
def test_ago(seconds: float, words: str) -> None:
    assert ago(seconds) == words


def test_table_and_size() -> None:
    assert table(("A", "N"), [["温度", "1"], ["x", "22"]], right=(1,)) == "A      N\n温度   1\nx     22"
    assert [size(n) for n in (0, 2048, 5 << 20, 3 << 40)] == ["0 B", "2 KiB", "5.0 MiB", "3072.0 GiB"]
    assert safe("a\x1b[0m\nb") == "a\ufffd[0m\ufffdb"
