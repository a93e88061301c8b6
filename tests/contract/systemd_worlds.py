"""The same small world of units, made three times: simulated, over D-Bus, through systemctl."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Optional, Protocol

from gpuwatch.simulation.systemd import SimulatedSystemd, SimulatedUnit
from gpuwatch.system.protocols import Systemd
from gpuwatch.system.systemctl import SystemctlFallback
from gpuwatch.system.systemd import SystemdBus
from tests.fakes.clock import FakeClock
from tests.lab.nspawn import PATH, Container
from tests.lab.waiting import wait_for

STUBBORN_STOP_TIMEOUT_S = 1.5
WATCHDOG_S = 300.0
CONTAINER = f"docker-{'0123456789abcdef' * 4}.scope"
_numbers = itertools.count(1)


class World(Protocol):
    """Makes running units of a kind; `pass_time` lets up to that many seconds go by."""

    systemd: Systemd

    def make(self, kind: str) -> str:
        """A running unit, its name. Kinds: plain, polite (ends in order on SIGTERM), stubborn, always, no_manual_stop,
        required, watched (by a watchdog), crowded (a container in its cgroup)."""

    def dependent(self, name: str) -> str:
        """The name of the running unit that goes along with a unit of kind "required"."""

    def until(self, name: str, active_state: str, other_than: str = "") -> None:
        """Let time pass until a unit is in a state (and has another invocation)."""

    def start(self, name: str) -> None:
        """Start a unit that was stopped."""

    def put_container_beside(self, name: str) -> None:
        """From now on the slice of this unit holds a container, and has no cpu controller yet."""


class SimulatedWorld:
    """SimulatedSystemd."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.simulated = SimulatedSystemd(self.clock)
        self.systemd: Systemd = self.simulated

    def make(self, kind: str) -> str:
        name = f"contract-{kind}-{next(_numbers)}.service"
        if kind == "required":
            self.simulated.add(SimulatedUnit(self.dependent(name)))
        self.simulated.add(
            SimulatedUnit(
                name,
                ignores_sigterm=kind == "stubborn",
                stop_timeout_s=STUBBORN_STOP_TIMEOUT_S if kind == "stubborn" else 90.0,
                restart=kind == "always",
                refuse_manual_stop=kind == "no_manual_stop",
                takes_along=(self.dependent(name),) if kind == "required" else (),
                watchdog_s=WATCHDOG_S if kind == "watched" else None,
                containers=(f"/system.slice/{name}/{CONTAINER}",) if kind == "crowded" else (),
            )
        )
        return name

    def start(self, name: str) -> None:
        self.simulated.start(name)

    def put_container_beside(self, name: str) -> None:
        self.simulated.change(SimulatedUnit(name, no_cpu_limit="containers run in system.slice"))

    def dependent(self, name: str) -> str:
        return "needs-" + name

    def until(self, name: str, active_state: str, other_than: str = "") -> None:
        for _ in range(200):
            facts = self.systemd.unit(name)
            if facts.active_state == active_state and (not other_than or facts.invocation != other_than):
                return
            self.clock.advance(0.1)
        raise AssertionError(f"{name} never became {active_state}: {facts}")


class CpuTree:
    """The cgroups of a container as if it had a cpu controller, which this kernel may keep for cgroup version 1: the
    root and system.slice are made up, the units in it are real."""

    def __init__(self, place: Path, container: Container) -> None:
        self.root = place / "cgroup"
        self.slice = self.root / "system.slice"
        self._real = container.root / "sys/fs/cgroup/system.slice"
        self.slice.mkdir(parents=True)
        (self.root / "cgroup.controllers").write_text("cpu memory pids\n")
        for directory in (self.root, self.slice):
            (directory / "cgroup.subtree_control").write_text("cpu memory pids\n")

    def show(self, name: str) -> None:
        (self.slice / name).symlink_to(self._real / name)


class RealWorld:
    """A booted systemd, asked through `systemd`, which looks into `tree` where there is one."""

    def __init__(self, container: Container, systemd: Systemd, tree: Optional[CpuTree] = None) -> None:
        self.container, self.systemd, self._tree = container, systemd, tree
        self._made: list[str] = []

    def make(self, kind: str) -> str:
        name = f"contract-{kind.replace('_', '-')}-{os.getpid()}-{next(_numbers)}.service"
        unit, service = "", "ExecStart=/bin/sleep 1000\n"
        if kind == "stubborn":
            service = answering('""')
            service += f"TimeoutStopSec={STUBBORN_STOP_TIMEOUT_S}\n"
        elif kind == "always":
            service += "Restart=always\nRestartSec=100ms\n"
        elif kind == "no_manual_stop":
            unit = "RefuseManualStop=yes\n"
        elif kind == "polite":
            service = answering('"exit 0"')
        elif kind == "watched":
            service += f"WatchdogSec={WATCHDOG_S}\n"
        elif kind == "crowded":
            service += "Delegate=yes\n"
        self.install(name, unit, service)
        if kind == "required":
            self.install(self.dependent(name), f"Requires={name}\nAfter={name}\n", "ExecStart=/bin/sleep 1000\n")
        elif kind == "crowded":
            self.container.run("mkdir", f"/sys/fs/cgroup/system.slice/{name}/{CONTAINER}")
        return name

    def start(self, name: str) -> None:
        self.container.run("systemctl", "start", name)

    def put_container_beside(self, name: str) -> None:
        assert self._tree is not None
        (self._tree.slice / "cgroup.subtree_control").write_text("memory pids\n")
        (self._tree.slice / CONTAINER).mkdir()

    def dependent(self, name: str) -> str:
        return "needs-" + name

    def install(self, name: str, unit: str, service: str, start: bool = True) -> None:
        """Write a unit file and start it."""
        self.container.write(f"/run/systemd/system/{name}", f"[Unit]\n{unit}[Service]\n{service}")
        self._made.append(name)
        if self._tree is not None:
            self._tree.show(name)
        if start:
            self.container.run("systemctl", "start", name)

    def until(self, name: str, active_state: str, other_than: str = "") -> None:
        def there() -> bool:
            facts = self.systemd.unit(name)
            return facts.active_state == active_state and (not other_than or facts.invocation != other_than)

        wait_for(there, what=f"{name} {active_state}")

    def clear(self) -> None:
        """Stop and remove everything."""
        if self._made:
            files = " ".join(f"/run/systemd/system/{name}" for name in self._made)
            names = " ".join(self._made)
            self.container.sh(
                f"systemctl kill -s KILL {names} 2>/dev/null || :; rm -f {files}; "
                "rm -rf /run/systemd/system.control; systemctl daemon-reload"
            )
            self.container.sh(f"systemctl stop {names} 2>/dev/null || :; systemctl reset-failed")
        self._made.clear()


def answering(trap: str) -> str:
    """A service that answers SIGTERM with a shell's `trap`, and that has not started before it can."""
    loop = f"trap {trap} TERM; systemd-notify --ready; while :; do sleep 0.1; done"
    return f"Type=notify\nNotifyAccess=all\nExecStart=/bin/sh -c '{loop}'\n"


def bus_of(container: Container, tree: Optional[CpuTree] = None, timeout_s: float = 2.0) -> SystemdBus:
    """Its systemd over its own system bus."""
    return SystemdBus(container.bus_address, timeout_s, _cgroup_root(container, tree))


def systemctl_of(container: Container, tree: Optional[CpuTree] = None, timeout_s: float = 5.0) -> SystemctlFallback:
    """Its systemd through its own systemctl."""
    enter = ("nsenter", "-t", str(container.leader), "-a", "--wdns=/", "--", "env", f"PATH={PATH}", "systemctl")
    return SystemctlFallback(enter, timeout_s, _cgroup_root(container, tree))


def _cgroup_root(container: Container, tree: Optional[CpuTree]) -> str:
    return f"{container.root}/sys/fs/cgroup" if tree is None else str(tree.root)
