"""The unit files say what the design promises, as far as that can be seen without starting them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import refuse
from tests.lab.refusal import why_no_command

UNITS = Path(__file__).resolve().parents[2] / "systemd"
MOST_EXPOSED = 36  # tenths, of systemd-analyze security; raise it only with a comment in the unit file


def directives(name: str, section: str) -> list[tuple[str, str]]:
    """(key, value) in their order."""
    found: list[tuple[str, str]] = []
    here = ""
    for line in (UNITS / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            here = line.strip("[]")
        elif here == section and "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.append((key, value))
    return found


@pytest.mark.parametrize("name", ["gpuwatch.service", "gpuwatch-once.service"])
def test_exposure_stays_low(name: str) -> None:
    refuse(why_no_command("systemd-analyze"))
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(UNITS / name)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-600:]
    assert done.stderr == ""


def test_both_drivers_have_the_same_sandbox() -> None:
    def sandbox(name: str) -> list[tuple[str, str]]:
        lines = directives(name, "Service")
        return lines[lines.index(("NoNewPrivileges", "yes")) :]

    assert sandbox("gpuwatch-once.service") == sandbox("gpuwatch.service")


def test_one_pass_never_stops_the_daemon() -> None:
    keys = [key for key, _ in directives("gpuwatch-once.service", "Unit") + directives("gpuwatch-once.timer", "Unit")]
    assert "Conflicts" not in keys


def test_runtime_directory_outlives_a_restart() -> None:
    for name in ("gpuwatch.service", "gpuwatch-once.service"):
        assert ("RuntimeDirectoryPreserve", "yes") in directives(name, "Service")


def test_reload_checks_the_configuration_first() -> None:
    reload = [value for key, value in directives("gpuwatch.service", "Service") if key == "ExecReload"]
    assert reload == ["/usr/bin/gpuwatch config check --quiet", "/bin/kill -HUP $MAINPID"]


@pytest.mark.parametrize(
    "directive",
    [
        "PrivateDevices",
        "ProtectProc",
        "ProcSubset",
        "ProtectKernelLogs",
        "PrivateNetwork",
        "PrivateUsers",
        "IPAddressDeny",
    ],
)
def test_nothing_hides_what_is_watched(directive: str) -> None:
    """GPUs, the /proc of others, the kernel log, the network of the sender."""
    assert directive not in [key for key, _ in directives("gpuwatch.service", "Service")]
