"""`make env` on a machine that lacks system packages says in one line which, or installs them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import TREE


def needs(purpose: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", str(TREE / ".ci" / "needs"), purpose, "python3"],
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH on which there is next to nothing."""
    for name in ("bash", "id"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    return tmp_path


def test_what_is_missing_is_said_in_one_line(programs: Path) -> None:
    done = needs("build", programs)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "gcc" in line
    assert "python3-venv" in line
    assert "apt-get install" in line


def test_tests_go_on_without_what_is_missing(programs: Path) -> None:
    done = needs("test", programs)
    assert done.returncode == 0
    assert "mmdebstrap" in done.stderr


def test_root_installs_only_what_is_missing(programs: Path) -> None:
    for name in ("gcc", "cc", "make"):
        (programs / name).symlink_to("/bin/true")
    (programs / "id").unlink()
    (programs / "id").write_text("#!/bin/bash\necho 0\n")
    (programs / "apt-get").write_text(f'#!/bin/bash\necho "$*" >>{programs}/calls\n')
    for name in ("id", "apt-get"):
        (programs / name).chmod(0o755)
    assert needs("build", programs).returncode == 0
    update, install = (programs / "calls").read_text().splitlines()
    assert "update" in update
    assert "pkg-config" in install.split()
    assert "gcc" not in install.split()
