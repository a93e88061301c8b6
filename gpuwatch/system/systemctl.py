"""systemd through `systemctl`: the fall-back while the message bus is down.

As root systemctl talks to PID 1 over its private socket, so it works without a bus; its verbs freeze and thaw alone
need the bus all the same (seen on 252).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import Optional

from gpuwatch.model.errors import ActionError, SourceError
from gpuwatch.system import command
from gpuwatch.system.protocols import CpuLimit, ListedUnit, UnitFacts
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

_SHOWN = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "InvocationID",
    "MainPID",
    "ControlGroup",
    "TimeoutStopUSec",
    "Result",
    "Job",
    "RefuseManualStop",
    "FreezerState",
    "WatchdogUSec",
)
_UNIT_S = {
    "y": 31557600.0,  # systemd's year and month: 365.25 days and a twelfth of it
    "month": 2629800.0,
    "w": 604800.0,
    "d": 86400.0,
    "h": 3600.0,
    "min": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
}


class SystemctlFallback:
    """The same protocol as SystemdBus. `argv` is what comes before the verb."""

    def __init__(
        self,
        argv: Sequence[str] = ("systemctl",),
        timeout_s: float = 5.0,
        cgroup_root: Optional[str] = None,
    ) -> None:
        self._argv = tuple(argv)
        self._timeout_s = timeout_s
        self._cgroup_root = cgroup_root or find_cgroup_root()
        self._list = UnitList(self._cgroup_root)
        self._deadline = 0.0

    def unit(self, name: str) -> UnitFacts:
        """See protocols.Systemd."""
        self._begin()
        return gather(self, name, self._cgroup_root)

    def stop_unit(self, name: str) -> None:
        """See protocols.Systemd."""
        self._act(name, "stop", "--no-block", "--job-mode=replace")

    def kill_unit(self, name: str, signal: int, main: bool = False) -> None:
        """See protocols.Systemd."""
        self._act(name, "kill", f"--signal={int(signal)}", f"--kill-who={'main' if main else 'all'}")

    def units(self, globs: Sequence[str]) -> tuple[ListedUnit, ...]:
        """See protocols.Systemd."""
        if not globs:
            return ()  # without a pattern systemctl lists every unit
        self._begin()
        filters = ("--type=service,scope", f"--state={','.join(RUNNING)}")
        lines = self._told("list-units", "--full", "--plain", "--no-legend", *filters, "--", *globs).splitlines()
        found = [line.split(None, 3) for line in lines]  # unit, load, active, the rest
        return self._list.answer({words[0]: words[2] for words in found if len(words) > 2}, globs, self._control_groups)

    def cpu_limit(self, name: str) -> CpuLimit:
        """See protocols.Systemd."""
        self._begin()
        return self.limit_now(name)

    def set_cpu_limit(self, name: str, limit: CpuLimit) -> None:
        """See protocols.Systemd."""
        self._begin()
        try:
            change_limit(self, name, limit, self._cgroup_root)
        except SourceError as error:
            raise ActionError(f"the CPU limit of {name} was not changed: {error}") from error

    def freeze_unit(self, name: str) -> None:
        """See protocols.Systemd."""
        if not unified_hierarchy(self._cgroup_root):
            raise ActionError(f"{name} can't be frozen: this host has no unified cgroup hierarchy (cgroup v2)")
        self._act(name, "freeze")

    def thaw_unit(self, name: str) -> None:
        """See protocols.Systemd."""
        self._act(name, "thaw")

    def close(self) -> None:
        """See protocols.Systemd."""

    def read(self, names: Sequence[str]) -> list[RawUnit]:
        """See unit_facts.UnitReader."""
        return [_raw(block) for block in self._show(names, (*_SHOWN, *STOPS_TOO))]

    def limit_now(self, name: str) -> CpuLimit:
        """See unit_facts.LimitKeeper."""
        if not valid_name(name) or not name.endswith((".service", ".scope")):
            raise SourceError(f"{name[:80]!r} is not the name of a service or scope")
        (shown,) = self._show([name], ("CPUQuotaPerSecUSec", "CPUWeight"))
        try:
            quota_s = parse_timespan(shown.get("CPUQuotaPerSecUSec") or "infinity")
            weight = _weight(shown.get("CPUWeight", ""))
        except ValueError as error:
            raise SourceError(f"systemctl show gave something else than expected: {error}") from error
        return CpuLimit(None if quota_s is None else round(quota_s * 1e6), weight)

    def write_limit(self, name: str, before: CpuLimit, after: CpuLimit) -> None:
        """See unit_facts.LimitKeeper."""
        written = []
        if after.quota_us_per_s != before.quota_us_per_s:
            written.append(f"CPUQuota={_percent(after.quota_us_per_s)}")
        if after.weight != before.weight:
            written.append(f"CPUWeight={'' if after.weight is None else after.weight or 'idle'}")
        self._send("set-property", "--runtime", "--", name, *written)

    def _control_groups(self, names: Sequence[str]) -> Iterable[tuple[str, str]]:
        shown = self._show(names, ("Id", "ControlGroup")) if names else []
        return [(name, block.get("ControlGroup", "")) for name, block in zip(names, shown)]

    def _show(self, names: Sequence[str], properties: Sequence[str]) -> list[dict[str, str]]:
        told = self._told("show", f"--property={','.join(properties)}", "--", *names)
        blocks = [_block(text) for text in told.strip("\n").split("\n\n")]
        if len(blocks) != len(names):
            raise SourceError(f"systemctl show gave {len(blocks)} units for {len(names)}")
        return blocks

    def _told(self, verb: str, *arguments: str) -> str:
        result = self._run(verb, "--no-pager", *arguments)
        if not result.ok or result.cut:
            raise SourceError(f"systemctl {verb} failed: {result.problem()}")
        return result.stdout

    def _act(self, name: str, verb: str, *options: str) -> None:
        if not valid_name(name):
            raise ActionError(f"{name[:80]!r} is not the name of a unit")
        self._begin()
        self._send(verb, *options, "--", name)

    def _send(self, verb: str, *arguments: str) -> None:
        about = f"{verb} {' '.join(arguments[arguments.index('--') + 1 :])}"
        try:
            result = self._run(verb, "--no-ask-password", *arguments)
        except SourceError as error:
            raise ActionError(str(error)) from error
        if result.returncode is None:
            raise ActionError(f"systemctl {about} has not answered", unknown=True)
        if not result.ok:
            raise ActionError(f"systemctl {about}: {result.problem()}")

    def _begin(self) -> None:
        self._deadline = time.monotonic() + self._timeout_s

    def _run(self, *arguments: str) -> command.CommandResult:
        return command.run((*self._argv, *arguments), max(0.1, self._deadline - time.monotonic()))


def _block(text: str) -> dict[str, str]:
    return {name: value for name, _, value in (line.partition("=") for line in text.split("\n"))}


def _raw(shown: dict[str, str]) -> RawUnit:
    try:
        return RawUnit(
            name=shown["Id"],
            load_state=shown["LoadState"],
            active_state=shown["ActiveState"],
            stops_too=tuple(other for key in STOPS_TOO for other in shown.get(key, "").split()),
            sub_state=shown["SubState"],
            invocation=shown.get("InvocationID", ""),
            main_pid=int(shown.get("MainPID") or 0),
            control_group=shown.get("ControlGroup", ""),
            stop_timeout_s=parse_timespan(shown.get("TimeoutStopUSec") or "infinity"),
            result=shown.get("Result", ""),
            job=int(shown.get("Job") or 0),
            refuse_manual_stop=shown.get("RefuseManualStop") == "yes",
            freezer=shown.get("FreezerState", ""),
            watchdog_s=parse_timespan(shown.get("WatchdogUSec") or "0") or None,
        )
    except (KeyError, ValueError) as error:
        raise SourceError(f"systemctl show gave something else than expected: {error}") from error


def _weight(shown: str) -> Optional[int]:
    if shown == "idle":
        return 0
    return None if shown in ("", "[not set]") else int(shown)


def _percent(quota_us_per_s: Optional[int]) -> str:
    """As CPUQuota= takes it: of one core. systemd before 250 takes no fractions, so there are none without need."""
    if quota_us_per_s is None:
        return ""
    whole, rest = divmod(quota_us_per_s, 10_000)
    return f"{quota_us_per_s / 10_000:.2f}%" if rest else f"{whole}%"


def parse_timespan(text: str) -> Optional[float]:
    """Seconds from what systemd prints ("1min 30s", man 7 systemd.time); None for infinity.

    Raises ValueError on other text.
    """
    if text == "infinity":
        return None
    parts = [re.fullmatch(r"(\d+(?:\.\d+)?)(y|month|w|d|h|min|s|ms|us)?", part) for part in text.split()]
    if not parts or not all(parts):
        raise ValueError(f"{text!r} is not a time span")
    return sum(float(part[1]) * _UNIT_S[part[2] or "s"] for part in parts if part is not None)
