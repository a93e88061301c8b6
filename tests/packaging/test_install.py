"""apt installs, upgrades, removes and purges the package in a booted systemd; no step reloads the service manager."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import refuse
from tests.lab.apt import apt_install
from tests.lab.nspawn import Container
from tests.lab.refusal import why_no_booted_systemd
from tests.lab.roots import ready_root
from tests.lab.waiting import wait_for

UNITS = ("gpuwatch.service", "gpuwatch-once.service", "gpuwatch-once.timer")


@pytest.fixture(scope="module")
def fresh(deb: Path) -> Iterator[Container]:
    """A Debian of its own, with the package just installed. The tests below use it one after another."""
    refuse(why_no_booted_systemd())
    with Container(ready_root()) as container:
        loaded = units_loaded_at(container)
        apt_install(container, deb)
        assert units_loaded_at(container) == loaded, "installing reloaded the service manager"
        yield container


def test_a_reload_would_be_seen(fresh: Container) -> None:
    """The tests below could not fail otherwise."""
    loaded = units_loaded_at(fresh)
    fresh.run("systemctl", "daemon-reload")
    assert units_loaded_at(fresh) != loaded


def units_loaded_at(container: Container) -> str:
    """Changes with every daemon-reload."""
    return container.run("systemctl", "show", "--property=UnitsLoadTimestampMonotonic", "--value").stdout.strip()


def test_service_is_enabled_and_timer_is_not(fresh: Container) -> None:
    assert fresh.run("systemctl", "is-enabled", "gpuwatch.service").stdout.strip() == "enabled"
    assert fresh.run("systemctl", "is-enabled", "gpuwatch-once.timer", check=False).stdout.strip() == "disabled"


def test_service_was_started(fresh: Container) -> None:
    assert fresh.show("gpuwatch.service", "ExecMainStartTimestampMonotonic") != {"ExecMainStartTimestampMonotonic": "0"}


def test_group_and_directories(fresh: Container) -> None:
    assert fresh.run("getent", "group", "gpuwatch").stdout.startswith("gpuwatch:")
    assert fresh.run("stat", "-c", "%a %U", "/var/lib/gpuwatch").stdout == "700 root\n"
    assert fresh.run("test", "-d", "/etc/gpuwatch/conf.d", check=False).returncode == 0


def test_default_configuration_is_a_conffile_in_observe_mode(fresh: Container) -> None:
    assert "/etc/gpuwatch/gpuwatch.yaml" in fresh.run("dpkg-query", "-W", "-f", "${Conffiles}", "gpuwatch").stdout
    assert "mode: observe" in fresh.run("cat", "/etc/gpuwatch/gpuwatch.yaml").stdout


def test_modules_are_compiled(fresh: Container) -> None:
    """A first start without .pyc files costs 12 MiB for life, and the sandbox couldn't write them."""
    missing = fresh.sh(
        "find /usr/share/gpuwatch -name '*.py' | while read -r f; do"
        ' d=${f%/*}; b=${f##*/}; ls "$d"/__pycache__/"${b%.py}".cpython-*.pyc >/dev/null 2>&1 || echo "$f"; done'
    ).stdout
    assert missing == ""


def test_command_works_from_anywhere_whatever_the_environment_says(fresh: Container) -> None:
    for name in ("gpuwatch", "json", "yaml"):
        fresh.write(f"/srv/trap/{name}.py", "raise SystemExit(9)\n")
    done = fresh.sh("cd /srv/trap && PYTHONPATH=/srv/trap gpuwatch --help")
    assert "gpuwatch" in done.stdout


def test_units_are_sound(fresh: Container) -> None:
    """systemd-analyze verify exits with 0 at an unknown key; what it says on stderr counts."""
    done = fresh.run(
        "systemd-analyze", "verify", "--man=no", *[f"/lib/systemd/system/{name}" for name in UNITS], check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_upgrade_keeps_the_edited_configuration_and_only_says_that_a_reload_is_due(
    fresh: Container, deb: Path, tmp_path: Path
) -> None:
    fresh.sh("echo '# edited' >>/etc/gpuwatch/gpuwatch.yaml")
    loaded = units_loaded_at(fresh)
    said = apt_install(fresh, newer(deb, tmp_path, "s/^RestartSec=3$/RestartSec=4/"))
    assert "# edited" in fresh.run("cat", "/etc/gpuwatch/gpuwatch.yaml").stdout
    assert units_loaded_at(fresh) == loaded
    assert "systemctl daemon-reload && systemctl try-restart gpuwatch" in said


def test_remove_stops_it_and_keeps_configuration_and_evidence(fresh: Container) -> None:
    fresh.sh("mkdir -p /var/lib/gpuwatch/evidence/kept")
    loaded = units_loaded_at(fresh)
    fresh.run("apt-get", "-q", "-y", "remove", "gpuwatch")
    assert fresh.run("systemctl", "is-active", "gpuwatch.service", check=False).stdout.strip() in (
        "inactive",
        "unknown",
    )
    assert fresh.run("ls", "/etc/gpuwatch/gpuwatch.yaml", "/var/lib/gpuwatch/evidence").stdout
    assert fresh.run("ls", "/usr/share/gpuwatch", check=False).stdout == ""
    assert units_loaded_at(fresh) == loaded


def test_installing_it_again_starts_it_again(fresh: Container, deb: Path) -> None:
    loaded = units_loaded_at(fresh)
    apt_install(fresh, deb)
    wait_for(lambda: fresh.show("gpuwatch.service", "ActiveState")["ActiveState"] == "active", 20, "it runs again")
    assert units_loaded_at(fresh) == loaded


def test_purge_leaves_nothing(fresh: Container) -> None:
    loaded = units_loaded_at(fresh)
    fresh.run("apt-get", "-q", "-y", "purge", "gpuwatch")
    assert units_loaded_at(fresh) == loaded
    left = fresh.sh(
        "find / -xdev \\( -path /proc -o -path /sys -o -path /srv -o -path /var/log -o -path /tmp \\) -prune"
        " -o -name '*gpuwatch*' -print"
    ).stdout
    assert left == ""
    # The manager forgets it with its next reload, which is the admin's to choose.
    assert fresh.show("gpuwatch.service", "ActiveState")["ActiveState"] == "inactive"
    fresh.run("systemctl", "daemon-reload")
    assert fresh.show("gpuwatch.service", "LoadState")["LoadState"] == "not-found"


def newer(deb: Path, place: Path, edit_unit: str) -> Path:
    """The same package with a higher version and one line of its unit file changed."""
    tree, built = place / "tree", place / "newer.deb"
    subprocess.run(["dpkg-deb", "--raw-extract", str(deb), str(tree)], check=True)
    subprocess.run(["sed", "-i", "s/^Version: .*/&+newer/", str(tree / "DEBIAN" / "control")], check=True)
    unit = tree / "lib" / "systemd" / "system" / "gpuwatch.service"
    before = unit.read_text(encoding="utf-8")
    subprocess.run(["sed", "-i", edit_unit, str(unit)], check=True)
    assert unit.read_text(encoding="utf-8") != before
    (tree / "DEBIAN" / "md5sums").unlink()
    subprocess.run(["dpkg-deb", "--build", str(tree), str(built)], check=True, capture_output=True)
    return built
