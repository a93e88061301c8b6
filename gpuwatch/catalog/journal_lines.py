"""What lines of PID 1 and of journald mean. Pure. The caller vouches for where they come from (S10).

Kinds: unit_oom, unit_failed (result), oomd_kill (count), unit_stop_timeout, unit_stop_failed,
unit_leftover_process (pid process), unit_restart (count): all with `unit`. log_gap (unit, count):
journald dropped lines (J11) or missed some of the kernel's.
"""

from __future__ import annotations

import re
from typing import Callable, Optional

from gpuwatch.catalog.text import clean
from gpuwatch.model.event import Scalar

Facts = dict[str, Scalar]

MOST_CHARACTERS = 4096

_UNIT_LINE = re.compile(r"([A-Za-z0-9:_.@\\-]{1,255}\.[a-z]{4,9}): (.*)", re.DOTALL)
_UNIT_KINDS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Facts]], ...] = (
    (re.compile(r"A process of this unit has been killed by the OOM killer\."), lambda match: {"kind": "unit_oom"}),
    (
        re.compile(r"Failed with result '([a-z-]{1,40})'\."),
        lambda match: {"kind": "unit_failed", "result": match[1]},
    ),
    (
        re.compile(r"systemd-oomd killed ([0-9]{1,9}) process\(es\) in this unit\."),
        lambda match: {"kind": "oomd_kill", "count": int(match[1])},
    ),
    (
        re.compile(r"State '(?:stop|final)-[a-z-]{1,30}' timed out\. .{0,60}"),
        lambda match: {"kind": "unit_stop_timeout"},
    ),
    (
        re.compile(r"Processes still around after (?:final )?SIGKILL\. .{0,60}"),
        lambda match: {"kind": "unit_stop_failed"},
    ),
    (
        re.compile(r"Unit process ([0-9]{1,10}) \((.{0,32})\) remains running after unit stopped\.", re.DOTALL),
        lambda match: {"kind": "unit_leftover_process", "pid": int(match[1]), "process": clean(match[2])},
    ),
    (
        re.compile(r"Scheduled restart job, restart counter is at ([0-9]{1,9})\."),
        lambda match: {"kind": "unit_restart", "count": int(match[1])},
    ),
)
_SUPPRESSED = re.compile(r"Suppressed ([0-9]{1,12}) messages from (\S{1,1000})")
_MISSED = re.compile(r"Missed ([0-9]{1,12}) kernel messages")


def parse_manager(message: str) -> Optional[Facts]:
    """A line of PID 1."""
    match = _UNIT_LINE.match(message[:MOST_CHARACTERS])
    if match is None:
        return None
    for pattern, facts in _UNIT_KINDS:
        found = pattern.fullmatch(match[2])
        if found:
            return {**facts(found), "unit": match[1]}
    return None


def parse_journald(message: str) -> Optional[Facts]:
    """A line of journald about itself."""
    line = message[:MOST_CHARACTERS]
    suppressed = _SUPPRESSED.fullmatch(line)
    if suppressed:
        unit = clean(suppressed[2].rsplit("/", 1)[-1])
        return {"kind": "log_gap", "reason": "suppressed", "unit": unit, "count": int(suppressed[1])}
    missed = _MISSED.fullmatch(line)
    if missed:
        return {"kind": "log_gap", "reason": "missed", "unit": None, "count": int(missed[1])}
    return None
