"""systemd over D-Bus: what a unit is now, stop, kill, freeze or limit it (org.freedesktop.systemd1, man 5)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable, Optional, TypeVar

from gpuwatch.model.errors import ActionError, SourceError
from gpuwatch.system.dbus import SYSTEM_BUS, BusConnection, BusDown, BusRefused, BusSilent
from gpuwatch.system.protocols import CpuLimit, ListedUnit, Systemd, UnitFacts
from gpuwatch.system.unit_facts import (
    RUNNING,
    STOPS_TOO,
    RawUnit,
    UnitList,
    change_limit,
    find_cgroup_root,
    gather,
    unified_hierarchy,
    valid_name,
)

T = TypeVar("T")

_SYSTEMD = "org.freedesktop.systemd1"
_MANAGER = f"{_SYSTEMD}.Manager"
_ROOT = "/org/freedesktop/systemd1"
_PROPERTIES = "org.freedesktop.DBus.Properties"
_UNLIMITED = 2**64 - 1  # infinity of time spans, "not set" of weights
_RUN_INTERFACES = {"service": f"{_SYSTEMD}.Service", "scope": f"{_SYSTEMD}.Scope"}
_GIVEN_UP_FOR_S = 30.0
_RUN_PROPERTIES = ("ControlGroup", "TimeoutStopUSec", "Result")
_SERVICE_PROPERTIES = (*_RUN_PROPERTIES, "MainPID", "WatchdogUSec")  # a scope has no main process


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
        self._list = UnitList(self._cgroup_root)
        self._connection: Optional[BusConnection] = None
        self._deadline = 0.0

    def unit(self, name: str) -> UnitFacts:
        """See protocols.Systemd. Raises NoAnswer where the fault is the bus's."""
        self._begin()
        return self._source(name, lambda: gather(self, name, self._cgroup_root))

    def units(self, globs: Sequence[str]) -> tuple[ListedUnit, ...]:
        """See protocols.Systemd. Raises NoAnswer where the fault is the bus's."""
        if not globs:
            return ()  # without a pattern systemd lists every unit
        self._begin()
        return self._source("units", lambda: self._listed(globs))

    def cpu_limit(self, name: str) -> CpuLimit:
        """See protocols.Systemd. Raises NoAnswer where the fault is the bus's."""
        self._begin()
        return self.limit_now(name)

    def set_cpu_limit(self, name: str, limit: CpuLimit) -> None:
        """See protocols.Systemd. Raises Unreachable when there was no bus to ask or send over."""
        self._begin()
        try:
            self._source(name, lambda: change_limit(self, name, limit, self._cgroup_root))
        except NoAnswer as error:
            raise Unreachable(f"the CPU limit of {name} was not changed: {error}") from error
        except SourceError as error:
            raise ActionError(f"the CPU limit of {name} was not changed: {error}") from error

    def freeze_unit(self, name: str) -> None:
        """See protocols.Systemd. Raises Unreachable when there was no bus to send it over."""
        if not unified_hierarchy(self._cgroup_root):
            raise ActionError(f"{name} can't be frozen: this host has no unified cgroup hierarchy (cgroup v2)")
        self._act(name, "FreezeUnit", "s", (name,))

    def thaw_unit(self, name: str) -> None:
        """See protocols.Systemd. Raises Unreachable when there was no bus to send it over."""
        self._act(name, "ThawUnit", "s", (name,))

    def stop_unit(self, name: str) -> None:
        """See protocols.Systemd. Raises Unreachable when there was no bus to send it over."""
        self._act(name, "StopUnit", "ss", (name, "replace"))

    def kill_unit(self, name: str, signal: int, main: bool = False) -> None:
        """See protocols.Systemd. Raises Unreachable when there was no bus to send it over."""
        self._act(name, "KillUnit", "ssi", (name, "main" if main else "all", int(signal)))

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
        for wanted in _SERVICE_PROPERTIES if name.endswith(".service") else _RUN_PROPERTIES if interface else ():
            own[wanted] = self._ask(path, _PROPERTIES, "Get", "ss", (interface, wanted))[0]
        timeout_us = int(_value(own, "TimeoutStopUSec", _UNLIMITED))
        watchdog_us = int(_value(own, "WatchdogUSec", 0))
        return RawUnit(
            name=name,
            load_state=str(_value(unit, "LoadState", "")),
            active_state=str(_value(unit, "ActiveState", "")),
            stops_too=tuple(str(other) for key in STOPS_TOO for other in _value(unit, key, ())),
            sub_state=str(_value(unit, "SubState", "")),
            invocation=bytes(_value(unit, "InvocationID", b"")).hex(),
            main_pid=int(_value(own, "MainPID", 0)),
            control_group=str(_value(own, "ControlGroup", "")),
            stop_timeout_s=None if timeout_us == _UNLIMITED else timeout_us / 1e6,
            result=str(_value(own, "Result", "")),
            job=int(_value(unit, "Job", (0, "/"))[0]),
            refuse_manual_stop=bool(_value(unit, "RefuseManualStop", False)),
            freezer=str(_value(unit, "FreezerState", "")),
            watchdog_s=None if watchdog_us in (0, _UNLIMITED) else watchdog_us / 1e6,
            absent_paths=_absent_paths(_value(unit, "Conditions", ())),
        )

    def limit_now(self, name: str) -> CpuLimit:
        """See unit_facts.LimitKeeper."""
        interface = _run_interface(name)
        return self._source(name, lambda: self._limit(name, interface))

    def write_limit(self, name: str, before: CpuLimit, after: CpuLimit) -> None:
        """See unit_facts.LimitKeeper."""
        changes = [("CPUQuotaPerSecUSec", before.quota_us_per_s, after.quota_us_per_s)]
        changes.append(("CPUWeight", before.weight, after.weight))
        written = [(key, ("t", _UNLIMITED if new is None else new)) for key, old, new in changes if old != new]
        self._send(name, "SetUnitProperties", "sba(sv)", (name, True, written))  # True: until the next boot

    def _limit(self, name: str, interface: str) -> CpuLimit:
        path = self._ask(_ROOT, _MANAGER, "LoadUnit", "s", (name,))[0]
        asked = ("CPUQuotaPerSecUSec", "CPUWeight")
        values = [int(self._ask(path, _PROPERTIES, "Get", "ss", (interface, key))[0][1]) for key in asked]
        quota, weight = (None if value == _UNLIMITED else value for value in values)
        return CpuLimit(quota, weight)

    def _listed(self, globs: Sequence[str]) -> tuple[ListedUnit, ...]:
        units = self._ask(_ROOT, _MANAGER, "ListUnitsByPatterns", "asas", (list(RUNNING), list(globs)))[0]
        paths = {str(unit[0]): str(unit[6]) for unit in units}

        def control_groups(names: Sequence[str]) -> Iterator[tuple[str, str]]:
            for name in names:
                try:
                    body = (_run_interface(name), "ControlGroup")
                    yield name, str(self._ask(paths[name], _PROPERTIES, "Get", "ss", body)[0][1])
                except BusRefused:
                    pass  # it has ended since

        return self._list.answer({str(unit[0]): str(unit[3]) for unit in units}, globs, control_groups)

    def _begin(self) -> None:
        self._deadline = time.monotonic() + self._timeout_s

    def _source(self, what: str, ask: Callable[[], T]) -> T:
        """Ask systemd, with the bus's errors in our words."""
        try:
            return ask()
        except (BusDown, BusSilent) as error:
            raise NoAnswer(f"systemd can't be asked about {what}: {error}") from error
        except BusRefused as error:
            raise SourceError(f"systemd says nothing about {what}: {error}") from error

    def _ask(self, path: str, interface: str, method: str, signature: str, body: tuple[Any, ...]) -> tuple[Any, ...]:
        """A question, asked again once over a new connection when the old one was dead."""
        try:
            return self._call(path, interface, method, signature, body)
        except BusSilent:
            return self._call(path, interface, method, signature, body)

    def _act(self, name: str, method: str, signature: str, body: tuple[Any, ...]) -> None:
        if not valid_name(name):
            raise ActionError(f"{name[:80]!r} is not the name of a unit")
        self._begin()
        self._send(name, method, signature, body)

    def _send(self, name: str, method: str, signature: str, body: tuple[Any, ...]) -> None:
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


def _run_interface(name: str) -> str:
    """The D-Bus interface of a service or scope. Raises SourceError for other names."""
    interface = _RUN_INTERFACES.get(name.rsplit(".", 1)[-1])
    if interface is None or not valid_name(name):
        raise SourceError(f"{name[:80]!r} is not the name of a service or scope")
    return interface


def _absent_paths(conditions: Iterable[Sequence[Any]]) -> tuple[str, ...]:
    """Of (type, is a trigger, is negated, parameter, state): the paths of ConditionPathExists=!PATH."""
    return tuple(str(each[3]) for each in conditions if each[0] == "ConditionPathExists" and each[2] and not each[1])


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
        return self._tried(lambda way: way.unit(name))

    def stop_unit(self, name: str) -> None:
        """See protocols.Systemd."""
        self._tried(lambda way: way.stop_unit(name))

    def kill_unit(self, name: str, signal: int, main: bool = False) -> None:
        """See protocols.Systemd."""
        self._tried(lambda way: way.kill_unit(name, signal, main))

    def units(self, globs: Sequence[str]) -> tuple[ListedUnit, ...]:
        """See protocols.Systemd."""
        return self._tried(lambda way: way.units(globs))

    def cpu_limit(self, name: str) -> CpuLimit:
        """See protocols.Systemd."""
        return self._tried(lambda way: way.cpu_limit(name))

    def set_cpu_limit(self, name: str, limit: CpuLimit) -> None:
        """See protocols.Systemd."""
        self._tried(lambda way: way.set_cpu_limit(name, limit))

    def freeze_unit(self, name: str) -> None:
        """See protocols.Systemd."""
        self._tried(lambda way: way.freeze_unit(name))

    def thaw_unit(self, name: str) -> None:
        """See protocols.Systemd."""
        self._tried(lambda way: way.thaw_unit(name))

    def close(self) -> None:
        """See protocols.Systemd."""
        self._bus.close()
        self._fallback.close()

    def _tried(self, ask: Callable[[Systemd], T]) -> T:
        if time.monotonic() >= self._bus_again_at:
            try:
                return ask(self._bus)
            except (NoAnswer, Unreachable):
                # A bus that hangs costs its time-out each time: leave it alone for a while.
                self._bus_again_at = time.monotonic() + _GIVEN_UP_FOR_S
        return ask(self._fallback)
