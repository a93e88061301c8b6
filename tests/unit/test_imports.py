"""The import contracts of pyproject.toml hold: layers, and who may touch the operating system."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from importlinter import cli

TREE = Path(__file__).resolve().parents[2]
LAYERED = ["model", "system", "simulation", "catalog", "config", "store", "policy", "sources", "evidence", "actions"]
LAYERED += ["alerts", "daemon", "cli"]


def lint(config: Path) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = cli.lint_imports(config_filename=str(config), no_cache=True)
    return status, said.getvalue()


def test_imports_keep_to_the_contracts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TREE)
    status, said = lint(Path("pyproject.toml"))
    assert status == 0, said


def test_every_package_has_its_place_in_the_layers() -> None:
    """A new package that no contract names would be free to import anything."""
    contracts = (TREE / "pyproject.toml").read_text(encoding="utf-8")
    packages = sorted(place.parent.name for place in (TREE / "gpuwatch").glob("*/__init__.py"))
    assert [name for name in packages if f"gpuwatch.{name}" not in contracts] == []


@pytest.mark.parametrize(
    "module, source, broken",
    [
        ("daemon/cycle.py", "import subprocess\n", "touched in system/ only"),
        ("daemon/cycle.py", "from gpuwatch.cli import main\n", "one way"),
        ("policy/step.py", "import os\n", "no input or output"),
        ("policy/step.py", "from gpuwatch.actions import stop\n", "one way"),
        ("sources/gpu.py", "import sqlite3\n", "SQLite"),
    ],
)
def test_a_breach_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, source: str, broken: str
) -> None:
    """The same contracts over a small tree of the same shape, with one bad import in it."""
    shaped = tmp_path / "shaped"
    for name in LAYERED:
        (shaped / name).mkdir(parents=True)
        (shaped / name / "__init__.py").write_text("")
    (shaped / "__init__.py").write_text("")
    (shaped / "cli" / "main.py").write_text("")
    (shaped / "actions" / "stop.py").write_text("")
    (shaped / module).write_text(source.replace("gpuwatch", "shaped"))
    text = (TREE / "pyproject.toml").read_text(encoding="utf-8").partition("[tool.importlinter]")
    (tmp_path / "pyproject.toml").write_text("".join(text[1:]).replace("gpuwatch", "shaped"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    status, said = lint(tmp_path / "pyproject.toml")
    assert status != 0
    assert any(broken in line and "BROKEN" in line for line in said.splitlines()), said
