"""systemd over D-Bus: what a unit is now, stop it, kill it (org.freedesktop.systemd1, man 5)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Optional

from gpuwatch.model.errors import ActionError, SourceError
from gpuwatch.system.dbus import SYSTEM_BUS, BusConnection, BusDown, BusRefused, BusSilent
from gpuwatch.system.protocols import Systemd, UnitFacts
from gpuwatch.system.unit_facts import STOPS_TOO, RawUnit, find_cgroup_root, gather, valid_name

_SYSTEMD = "org.freedesktop.systemd1"
_MANAGER = f"{_SYSTEMD}.Manager"
_ROOT = "/org/freedesktop/systemd1"
_PROPERTIES = "org.freedesktop.DBus.Properties"
_INFINITY_US = 2**64 - 1
_RUN_INTERFACES = {"service": f"{_SYSTEMD}.Service", "scope": f"{_SYSTEMD}.Scope"}
_GIVEN_UP_FOR_S = 30.0


class Unreachable(ActionError):
    """The request did not leave this process: another way may be tried."""


class NoAnswer(SourceError):
    """Nothing came over the bus: another way may be tried."""


class SystemdBus:
    """systemd on a warm connection to the system bus; made anew once when it was found dead.

    `timeout_s` bounds each call of this class as a whole. `cgroup_root` is where systemd's hierarchy
    is mounted (None: found).
    """

    def __init__(
        self, address: Optional[str] = None, timeout_s: float = 2.0, cgroup_root: Optional[str] = None
    ) -> None:
        self._address = address or SYSTEM_BUS
        self._timeout_s = timeout_s
        self._cgroup_root = cgroup_root or find_cgroup_root()
        self._connection: Optional[BusConnection] = None
        self._deadline = 0.0

    def unit(self, name: str) -> UnitFacts:
        """See protocols.Systemd. Raises NoAnswer where the fault is the bus's."""
        self._deadline = time.monotonic() + self._timeout_s
        try:
            return gather(self, name, self._cgroup_root)
        except (BusDown, BusSilent) as error:
            raise NoAnswer(f"systemd can't be asked about {name}: {error}") from error
        except BusRefused as error:
            raise SourceError(f"systemd says nothing about {name}: {error}") from error

    def stop_unit(self, name: str) -> None:
        """See protocols.Systemd. Raises Unreachable when there was no bus to send it over."""
        self._act(name, "StopUnit", "ss", (name, "replace"))

    def kill_unit(self, name: str, signal: int) -> None:
        """See protocols.Systemd. Raises Unreachable when there was no bus to send it over."""
        self._act(name, "KillUnit", "ssi", (name, "all", int(signal)))

    def close(self) -> None:
        """See protocols.Systemd."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def read(self, names: Sequence[str]) -> list[RawUnit]:
        """See unit_facts.UnitReader."""
        return [self._read(name) for name in names]

    def _read(self, name: str) -> RawUnit:
        # LoadUnit, not GetUnit: a unit that nobody needs is not in memory, and that is no error.
        path = self._ask(_ROOT, _MANAGER, "LoadUnit", "s", (name,))[0]
        unit = self._ask(path, _PROPERTIES, "GetAll", "s", (f"{_SYSTEMD}.Unit",))[0]
        name = str(_value(unit, "Id", name))
        interface = _RUN_INTERFACES.get(name.rsplit(".", 1)[-1])
        own: dict[str, Any] = {}
        for wanted in ("MainPID", "ControlGroup", "TimeoutStopUSec", "Result") if interface else ():
            if wanted == "MainPID" and not name.endswith(".service"):
                continue  # a scope has no main process
            own[wanted] = self._ask(path, _PROPERTIES, "Get", "ss", (interface, wanted))[0]
        timeout_us = int(_value(own, "TimeoutStopUSec", _INFINITY_US))
        return RawUnit(
            name=name,
            load_state=str(_value(unit, "LoadState", "")),
            active_state=str(_value(unit, "ActiveState", "")),
            stops_too=tuple(str(other) for key in STOPS_TOO for other in _value(unit, key, ())),
            sub_state=str(_value(unit, "SubState", "")),
            invocation=bytes(_value(unit, "InvocationID", b"")).hex(),
            main_pid=int(_value(own, "MainPID", 0)),
            control_group=str(_value(own, "ControlGroup", "")),
            stop_timeout_s=None if timeout_us == _INFINITY_US else timeout_us / 1e6,
            result=str(_value(own, "Result", "")),
            job=int(_value(unit, "Job", (0, "/"))[0]),
            refuse_manual_stop=bool(_value(unit, "RefuseManualStop", False)),
        )

    def _ask(self, path: str, interface: str, method: str, signature: str, body: tuple[Any, ...]) -> tuple[Any, ...]:
        """A question, asked again once over a new connection when the old one was dead."""
        try:
            return self._call(path, interface, method, signature, body)
        except BusSilent:
            return self._call(path, interface, method, signature, body)

    def _act(self, name: str, method: str, signature: str, body: tuple[Any, ...]) -> None:
        if not valid_name(name):
            raise ActionError(f"{name[:80]!r} is not the name of a unit")
        self._deadline = time.monotonic() + self._timeout_s
        try:
            self._call(_ROOT, _MANAGER, method, signature, body)
        except BusRefused as error:
            raise ActionError(f"systemd refused {method} of {name}: {error}") from error
        except BusSilent as error:
            raise ActionError(f"{method} of {name} was sent, but systemd has not answered", unknown=True) from error
        except BusDown as error:
            raise Unreachable(f"{method} of {name} could not be sent: {error}") from error

    def _call(self, path: str, interface: str, method: str, signature: str, body: tuple[Any, ...]) -> tuple[Any, ...]:
        warm = self._connection is not None
        try:
            return self._call_once(path, interface, method, signature, body)
        except BusDown:
            if not warm:
                raise
            # The bus was restarted since the last call. What was not sent can be sent again.
            return self._call_once(path, interface, method, signature, body)

    def _call_once(
        self, path: str, interface: str, method: str, signature: str, body: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        if self._connection is None:
            self._connection = BusConnection(self._address, self._deadline)
        try:
            return self._connection.call(path, _SYSTEMD, interface, method, signature, body, deadline=self._deadline)
        except (BusDown, BusSilent):
            # Hanging up also takes back what PID 1 has not looked at yet: it serves no sender that is gone.
            self.close()
            raise


def _value(properties: Any, name: str, default: Any) -> Any:
    """The value of a variant (signature, value); `default` where this systemd has no such property."""
    entry = properties.get(name)
    return default if entry is None else entry[1]


class FailoverSystemd:
    """The bus, and `systemctl` (which root talks to PID 1 by, not needing a bus) while the bus is down.

    A request that systemd refused, or may have taken, is never repeated the other way.
    """

    def __init__(self, bus: Systemd, fallback: Systemd) -> None:
        self._bus, self._fallback = bus, fallback
        self._bus_again_at = 0.0

    def unit(self, name: str) -> UnitFacts:
        """See protocols.Systemd."""
        if self._bus_wanted():
            try:
                return self._bus.unit(name)
            except NoAnswer:
                # A bus that hangs costs its time-out each time: leave it alone for a while.
                self._bus_again_at = time.monotonic() + _GIVEN_UP_FOR_S
        return self._fallback.unit(name)

    def stop_unit(self, name: str) -> None:
        """See protocols.Systemd."""
        if self._bus_wanted():
            try:
                self._bus.stop_unit(name)
                return
            except Unreachable:
                self._bus_again_at = time.monotonic() + _GIVEN_UP_FOR_S
        self._fallback.stop_unit(name)

    def kill_unit(self, name: str, signal: int) -> None:
        """See protocols.Systemd."""
        if self._bus_wanted():
            try:
                self._bus.kill_unit(name, signal)
                return
            except Unreachable:
                self._bus_again_at = time.monotonic() + _GIVEN_UP_FOR_S
        self._fallback.kill_unit(name, signal)

    def close(self) -> None:
        """See protocols.Systemd."""
        self._bus.close()
        self._fallback.close()

    def _bus_wanted(self) -> bool:
        return time.monotonic() >= self._bus_again_at
