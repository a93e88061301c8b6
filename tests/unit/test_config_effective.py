"""gpuwatch config show --effective: which rules hold for which card, from what the daemon says of the cards."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli.main import main
from tests.unit.config_files import write

Capture = pytest.CaptureFixture[str]

OWN = """\
rules:
  - {name: warm, metric: gpu.temperature, above: 90, severity: warning}
  - {name: cool, metric: gpu.temperature, above: 80, severity: warning}
  - {name: cold, metric: gpu.temperature, below: 5, severity: warning}
  - {name: jump, metric: gpu.temperature, above: 100, change_over: 1m, severity: warning}
  - {name: one, metric: gpu.power, above: 600, only: {models: ["*H100*"], workloads: [training]}, severity: warning}
  - {name: any, metric: gpu.power, above: 600, only: {workloads: ["*"]}, severity: warning}
  - {name: relative, metric: gpu.shutdown_margin, below: 2, severity: critical}
  - {name: absolute, metric: gpu.temperature, above: 95, unless_supported: gpu.shutdown_margin, severity: critical}
  - {name: off, metric: gpu.power, above: 100, enabled: false, severity: warning}
workloads: [{name: training, units: ["train@*.service"]}]
alerts: {channels: [{name: ops, type: wecom, key: {credential: ops}}]}
"""
NO = "unsupported"


def card(index: int, name: str, **readings: object) -> dict[str, Any]:
    """One GPU of the daemon's view: a number, or why there is none."""
    shown = {f"gpu.{metric}": readings.get(metric, "not read") for metric in ("temperature", "power", *readings)}
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": name,
        "pci": f"0000:0{index}:00.0",
        "lost": False,
        "readings": {
            metric: {"value": None, "problem": each} if isinstance(each, str) else {"value": each, "problem": None}
            for metric, each in shown.items()
        },
    }


H100 = card(0, "NVIDIA H100 80GB HBM3", slowdown_margin=26.0, shutdown_margin=32.0, slowdown_point=87.0)
GEFORCE = card(1, "NVIDIA GeForce RTX 4090", slowdown_margin=NO, shutdown_margin=NO, slowdown_point=NO)
STARTING = card(2, "NVIDIA A100", shutdown_margin="not read")
FAILING = card(2, "NVIDIA A100", shutdown_margin="the driver said no")
LOST = {**card(3, "NVIDIA A100"), "lost": True, "readings": {}}


def host(directory: Path, *cards: dict[str, Any], state: str = "ok") -> str:
    """What a daemon has left behind."""
    view = {"utc_s": time.time() - 60, "gpus": list(cards), "driver": {"state": state}}
    (directory / "status.json").write_text(json.dumps(view))
    return str(directory)


def rules_of(tmp_path: Path, capsys: Capture, shown: dict[str, Any]) -> dict[str, dict[str, Any]]:
    arguments = ["config", "show", "--effective", "--json", "--config", write(tmp_path, OWN)]
    assert main([*arguments, "--run-dir", host(tmp_path, shown)]) == 0
    (gpu,) = json.loads(capsys.readouterr().out)["effective"]["gpus"]
    return {each["rule"]: each for each in gpu["rules"]}


def test_a_limit_in_degrees_is_capped_at_the_cards_own_slowdown_point(tmp_path: Path, capsys: Capture) -> None:
    found = rules_of(tmp_path, capsys, H100)
    assert {name: found[name]["limit"] for name in ("warm", "cool", "cold", "jump")} == {
        "warm": {"above": 85.0},
        "cool": {"above": 80.0},
        "cold": {"below": 5.0},
        "jump": {"above": 100.0},
    }
    assert found["warm"]["written"] == {"above": 90.0}
    assert found["warm"]["why"] == "written: 90; this card slows down at 87 C"
    assert found["cool"]["why"] == ""


def test_a_card_that_does_not_tell_its_point_has_no_cap(tmp_path: Path, capsys: Capture) -> None:
    assert rules_of(tmp_path, capsys, GEFORCE)["warm"]["limit"] == {"above": 90.0}


@pytest.mark.parametrize(
    "shown, relative, absolute",
    [
        (H100, "", "the card reports gpu.shutdown_margin"),
        (GEFORCE, "the card does not report gpu.shutdown_margin", ""),
        (STARTING, "", "it is not known whether the card reports gpu.shutdown_margin"),
        (FAILING, "", "it is not known whether the card reports gpu.shutdown_margin"),
    ],
)
def test_a_rule_for_heat_is_for_cards_that_report_their_limits_or_for_the_others(
    tmp_path: Path, capsys: Capture, shown: dict[str, Any], relative: str, absolute: str
) -> None:
    found = rules_of(tmp_path, capsys, shown)
    for name, why in (("relative", relative), ("absolute", absolute)):
        assert (found[name]["applies"], found[name]["limit"] is None, found[name]["why"]) == (not why, bool(why), why)


def test_only_the_cards_that_a_rule_names(tmp_path: Path, capsys: Capture) -> None:
    found = rules_of(tmp_path, capsys, H100)
    assert found["one"]["why"] == "only while training works on it"
    assert found["any"]["why"] == "only while a workload works on it"
    other = rules_of(tmp_path, capsys, GEFORCE)
    assert (other["one"]["applies"], other["one"]["why"]) == (False, "the rule names other cards (only)")
    assert "off" not in other


def test_for_people_it_is_a_comment_below_the_settings(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, OWN)
    arguments = ["config", "show", "--config", path]
    assert main([*arguments, "--effective", "--run-dir", host(tmp_path, H100, LOST)]) == 0
    said = capsys.readouterr().out
    assert main(arguments) == 0
    plain = capsys.readouterr().out
    assert said.startswith(plain)
    lines = said[len(plain) :].splitlines()
    assert all(line.startswith("#") or not line for line in lines)
    assert lines[1].startswith("# What these rules mean for the GPUs of this host, as gpuwatch saw them 60 s ago (")
    assert lines[2] == "# GPU 0, NVIDIA H100 80GB HBM3, GPU-0"
    assert [" ".join(line.split()) for line in lines if "# " in line and " warm" in line] == [
        "# warm gpu.temperature above 85 C (written: 90; this card slows down at 87 C)"
    ]
    assert lines[-2:] == ["# GPU 3, NVIDIA A100, GPU-3", "#   lost: nothing can be said about it"]
    (tmp_path / "again").mkdir()
    again = write(tmp_path / "again", said)
    assert main(["config", "check", "--quiet", "--config", again]) == 0


def test_it_says_why_it_cannot(tmp_path: Path, capsys: Capture) -> None:
    arguments = ["config", "show", "--effective", "--config", write(tmp_path, OWN), "--run-dir", str(tmp_path)]
    assert main(arguments) == 1
    assert "\n# Which limits hold for each GPU can't be told: " in capsys.readouterr().out
    host(tmp_path, state="no_library")
    assert main(arguments) == 1
    assert capsys.readouterr().out.endswith("can't be told: gpuwatch sees no GPU (driver: no library)\n")
    assert main([*arguments, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)["effective"]
    assert (document["problem"], document["gpus"]) == ("gpuwatch sees no GPU (driver: no library)", [])


def test_what_has_ended_is_told_by_check(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, "xid_classes: [{xid: 31, class: link, reason: x, until: 2026-01-01}]\n")
    assert main(["config", "check", "--config", path]) == 0
    assert "warning: xid_classes[31].until: has ended (2026-01-01)" in capsys.readouterr().err
