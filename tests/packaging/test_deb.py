"""The Debian package as a file: what is in it, what lintian says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import gpuwatch
from tests.conftest import TREE, refuse
from tests.lab.refusal import why_no_command


def ask(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_lintian_finds_nothing(deb: Path) -> None:
    refuse(why_no_command("lintian"))
    done = subprocess.run(
        ["lintian", "--allow-root", "--fail-on", "error,warning", str(deb)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_versions_agree(deb: Path) -> None:
    changelog = (TREE / "packaging" / "debian" / "changelog").read_text(encoding="utf-8")
    newest = re.match(r"gpuwatch \(([^)]+)\)", changelog)
    assert newest is not None
    assert ask("dpkg-deb", "--field", str(deb), "Version").strip() == newest.group(1) == gpuwatch.__version__


def test_whole_package_and_nothing_else_is_inside(deb: Path) -> None:
    listing = ask("dpkg-deb", "--contents", str(deb))
    files = {line.split()[5].lstrip(".") for line in listing.splitlines() if not line.startswith("d")}
    modules = {
        f"/usr/share/gpuwatch/{path.relative_to(TREE)}"
        for path in (TREE / "gpuwatch").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert modules <= files
    assert {
        "/etc/gpuwatch/gpuwatch.yaml",
        "/lib/systemd/system/gpuwatch-once.service",
        "/lib/systemd/system/gpuwatch-once.timer",
        "/lib/systemd/system/gpuwatch.service",
        "/usr/bin/gpuwatch",
        "/usr/lib/sysusers.d/gpuwatch.conf",
        "/usr/share/doc/gpuwatch/copyright",
        "/usr/share/gpuwatch/pynvml.py",
    } <= files
    foreign = [name for name in files - modules if not re.match(r"/(etc/gpuwatch|lib/systemd/system|usr)/", name)]
    assert foreign == []
    assert [name for name in files if "test" in name or name.endswith(".pyc")] == []


def test_nothing_in_it_reloads_the_service_manager(deb: Path, tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "--control", str(deb), str(tmp_path / "control")], check=True)
    for script in ("postinst", "prerm", "postrm"):
        for line in (tmp_path / "control" / script).read_text(encoding="utf-8").splitlines():
            command = line.split("#")[0].strip()
            assert "daemon-reload" not in command or command.startswith("echo"), f"{script}: {line}"
