"""`gpuwatch evidence`: screens, JSON, exit codes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli.main import main
from gpuwatch.evidence.bundle import write_bundle
from gpuwatch.system.files import RealFiles
from tests.unit.evidence_cases import CONTENT, ID

OTHER = "20261130T054600Z-manual-host"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    trigger: Mapping[str, Any] = {"reason": "by hand \x1b[31mred\u202e", "empty": ""}
    write_bundle(RealFiles(), str(tmp_path / "evidence"), ID, CONTENT)
    write_bundle(RealFiles(), str(tmp_path / "evidence"), OTHER, replace(CONTENT, trigger=trigger))
    return tmp_path


def call(state: Path, *words: str) -> int:
    return main(["evidence", words[0], "--state-dir", str(state), *words[1:]])


def test_list(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(state, "list") == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0].split() == ["BUNDLE", "TAKEN", "SIZE", "WHY"]
    assert lines[1].startswith(OTHER) and lines[2].startswith(ID)
    assert "2026-11-30 13:45:32 CST" in lines[2]
    assert lines[2].endswith("gpu-07#17 · gpu-critical · stop · train@llama.service")
    assert "\x1b" not in out and "\u202e" not in out


def test_list_json(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(state, "list", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == 1
    assert [entry["id"] for entry in data["bundles"]] == [OTHER, ID]
    assert data["bundles"][1]["trigger"]["rule"] == "gpu-critical"


@pytest.mark.parametrize("name", [ID, ID[:20]])
def test_show(state: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert call(state, "show", name) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Bundle {ID}\ngpu-07, 2026-11-30 13:45:32 CST (2026-11-30T05:45:32.123456Z)")
    assert "samples.json" in out and "  target: train@llama.service" in out
    assert out.endswith("ok: every file is as it was written\n")


def test_show_what_is_hostile(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(state, "show", OTHER) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\u202e" not in out and "by hand" in out


def test_verify_all_one_and_by_path(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(state, "verify") == 0
    assert capsys.readouterr().out.endswith("2 ok, 0 damaged\n")
    (state / "evidence" / ID / "events.json").write_text("{}")
    assert call(state, "verify") == 1
    out = capsys.readouterr().out
    assert f"{ID}: DAMAGED: events.json was changed\n" in out and out.endswith("1 ok, 1 damaged\n")
    assert call(state, "verify", OTHER) == 0
    assert call(state, "verify", str(state / "evidence" / ID) + "/") == 1
    assert call(state, "show", ID) == 1
    capsys.readouterr()
    assert call(state, "verify", ID, "--json") == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["schema"], data["ok"], data["bundles"][0]["problems"]) == (1, False, ["events.json was changed"])


@pytest.mark.parametrize(
    "name, words",
    [
        ("2020", "no bundle 2020"),
        ("2026", "2 bundles begin with 2026"),
        ("../x", "is no directory"),
        ("\x1b[2J", "no bundle"),
    ],
)
def test_what_is_not_there(state: Path, capsys: pytest.CaptureFixture[str], name: str, words: str) -> None:
    assert call(state, "show", name) == 1
    err = capsys.readouterr().err
    assert words in err and "\x1b" not in err


def test_before_there_is_any(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(tmp_path, "list") == 0
    assert capsys.readouterr().out == f"no bundles in {tmp_path}/evidence\n"
    assert call(tmp_path, "verify") == 0
