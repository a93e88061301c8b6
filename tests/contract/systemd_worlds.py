"""The same small world of units, made three times: simulated, over D-Bus, through systemctl."""

from __future__ import annotations

import itertools
import os
from typing import Protocol

from gpuwatch.simulation.systemd import SimulatedSystemd, SimulatedUnit
from gpuwatch.system.protocols import Systemd
from gpuwatch.system.systemctl import SystemctlFallback
from gpuwatch.system.systemd import SystemdBus
from tests.fakes.clock import FakeClock
from tests.lab.nspawn import PATH, Container
from tests.lab.waiting import wait_for

STUBBORN_STOP_TIMEOUT_S = 1.5
_numbers = itertools.count(1)


class World(Protocol):
    """Makes running units of a kind; `pass_time` lets up to that many seconds go by."""

    systemd: Systemd

    def make(self, kind: str) -> str:
        """A running unit, its name. Kinds: plain, stubborn, always, no_manual_stop, required."""

    def dependent(self, name: str) -> str:
        """The name of the running unit that goes along with a unit of kind "required"."""

    def until(self, name: str, active_state: str, other_than: str = "") -> None:
        """Let time pass until a unit is in a state (and has another invocation)."""


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
            )
        )
        return name

    def dependent(self, name: str) -> str:
        return "needs-" + name

    def until(self, name: str, active_state: str, other_than: str = "") -> None:
        for _ in range(200):
            facts = self.systemd.unit(name)
            if facts.active_state == active_state and (not other_than or facts.invocation != other_than):
                return
            self.clock.advance(0.1)
        raise AssertionError(f"{name} never became {active_state}: {facts}")


class RealWorld:
    """A booted systemd, asked through `systemd`."""

    def __init__(self, container: Container, systemd: Systemd) -> None:
        self.container, self.systemd = container, systemd
        self._made: list[str] = []

    def make(self, kind: str) -> str:
        name = f"contract-{kind.replace('_', '-')}-{os.getpid()}-{next(_numbers)}.service"
        unit, service = "", "ExecStart=/bin/sleep 1000\n"
        if kind == "stubborn":
            service = "ExecStart=/bin/sh -c 'trap \"\" TERM; while :; do sleep 0.1; done'\n"
            service += f"TimeoutStopSec={STUBBORN_STOP_TIMEOUT_S}\n"
        elif kind == "always":
            service += "Restart=always\nRestartSec=100ms\n"
        elif kind == "no_manual_stop":
            unit = "RefuseManualStop=yes\n"
        self.install(name, unit, service)
        if kind == "required":
            self.install(self.dependent(name), f"Requires={name}\nAfter={name}\n", "ExecStart=/bin/sleep 1000\n")
        return name

    def dependent(self, name: str) -> str:
        return "needs-" + name

    def install(self, name: str, unit: str, service: str, start: bool = True) -> None:
        """Write a unit file and start it."""
        self.container.write(f"/run/systemd/system/{name}", f"[Unit]\n{unit}[Service]\n{service}")
        self._made.append(name)
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
                f"systemctl kill -s KILL {names} 2>/dev/null || :; rm -f {files}; systemctl daemon-reload"
            )
            self.container.sh(f"systemctl stop {names} 2>/dev/null || :; systemctl reset-failed")
        self._made.clear()


def bus_of(container: Container) -> SystemdBus:
    """Its systemd over its own system bus."""
    return SystemdBus(container.bus_address, cgroup_root=f"{container.root}/sys/fs/cgroup")


def systemctl_of(container: Container) -> SystemctlFallback:
    """Its systemd through its own systemctl."""
    enter = ("nsenter", "-t", str(container.leader), "-a", "--wdns=/", "--", "env", f"PATH={PATH}", "systemctl")
    return SystemctlFallback(enter, cgroup_root=f"{container.root}/sys/fs/cgroup")
