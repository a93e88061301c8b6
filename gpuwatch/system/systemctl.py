"""systemd through `systemctl`: the fall-back while the message bus is down.

As root systemctl talks to PID 1 over its private socket, so it works without a bus.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Optional

from gpuwatch.model.errors import ActionError, SourceError
from gpuwatch.system import command
from gpuwatch.system.protocols import UnitFacts
from gpuwatch.system.unit_facts import STOPS_TOO, RawUnit, find_cgroup_root, gather, valid_name

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
        self._deadline = 0.0

    def unit(self, name: str) -> UnitFacts:
        """See protocols.Systemd."""
        self._deadline = time.monotonic() + self._timeout_s
        return gather(self, name, self._cgroup_root)

    def stop_unit(self, name: str) -> None:
        """See protocols.Systemd."""
        self._act(name, "stop", "--no-block", "--job-mode=replace")

    def kill_unit(self, name: str, signal: int) -> None:
        """See protocols.Systemd."""
        self._act(name, "kill", f"--signal={int(signal)}")

    def close(self) -> None:
        """See protocols.Systemd."""

    def read(self, names: Sequence[str]) -> list[RawUnit]:
        """See unit_facts.UnitReader."""
        shown = ",".join((*_SHOWN, *STOPS_TOO))
        result = self._run("show", "--no-pager", f"--property={shown}", "--", *names)
        if not result.ok or result.cut:
            raise SourceError(f"systemctl show failed: {result.problem()}")
        blocks = [_block(text) for text in result.stdout.strip("\n").split("\n\n")]
        if len(blocks) != len(names):
            raise SourceError(f"systemctl show gave {len(blocks)} units for {len(names)}")
        return [_raw(block) for block in blocks]

    def _act(self, name: str, verb: str, *options: str) -> None:
        if not valid_name(name):
            raise ActionError(f"{name[:80]!r} is not the name of a unit")
        self._deadline = time.monotonic() + self._timeout_s
        try:
            result = self._run(verb, "--no-ask-password", *options, "--", name)
        except SourceError as error:
            raise ActionError(str(error)) from error
        if result.returncode is None:
            raise ActionError(f"systemctl {verb} {name} has not answered", unknown=True)
        if not result.ok:
            raise ActionError(f"systemctl {verb} {name}: {result.problem()}")

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
        )
    except (KeyError, ValueError) as error:
        raise SourceError(f"systemctl show gave something else than expected: {error}") from error


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
