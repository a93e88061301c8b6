"""The names of what an event may carry, and how text becomes their values. Pure; nothing raises.

The same names stand in patterns (named groups), in events, in `gpuwatch explain --json` and in rules.
"""

from __future__ import annotations

from typing import Callable, Optional

from gpuwatch.catalog.text import clean
from gpuwatch.model.event import Scalar
from gpuwatch.model.pci import canonical

Facts = dict[str, Scalar]

MOST_DIGITS = 15
MOST_TEXT = 200


def number(text: str) -> Optional[int]:
    """A decimal number with at most MOST_DIGITS digits, else None."""
    digits = text[1:] if text.startswith("-") else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= MOST_DIGITS else None


def short(text: str) -> str:
    """One line of at most MOST_TEXT characters."""
    return clean(text, MOST_TEXT)


def gpu_uuid(text: str) -> str:
    """As NVML writes it: "GPU-" and lower case."""
    return "GPU-" + short(text[4:]).lower() if text[:4].upper() == "GPU-" else short(text)


Reader = Callable[[str], Scalar]

FIELDS: dict[str, Reader] = {
    **dict.fromkeys(
        (
            "xid",
            "sxid",
            "pid",
            "gpu_instance",
            "compute_instance",
            "caused_by",
            "link",
            "recovery_from",
            "recovery_to",
            "uid",
            "slurm_job",
            "count",
            "cpu",
            "bank",
            "seconds",
            "minor",
            "switch",
            "rank",
            "local_rank",
            "exit_status",
            "child_pid",
            "gpu_index",
            "milliseconds",
        ),
        number,
    ),
    "pci": canonical,
    "uuid": gpu_uuid,
    **dict.fromkeys(
        (
            "process",
            "code",
            "scope",
            "container",
            "container_name",
            "runtime",
            "role",
            "unit",
            "user_unit",
            "slurm_step",
            "result",
            "severity",
            "version",
            "client_version",
            "device",
            "server",
            "library",
            "host",
            "signal",
            "state",
            "reason",
            "cgroup",
            "command",
            "job_result",
            "requested",
            "operation",
            "pattern",
            "label",
            "nvlink_unit",
            "error_status",
            "source_trust",
        ),
        short,
    ),
}

# What `gpuwatch explain --journal-json` always tells, None where it does not apply.
FLAT = (
    "kind",
    "xid",
    "sxid",
    "pci",
    "pid",
    "process",
    "gpu_instance",
    "compute_instance",
    "caused_by",
    "fatal",
    "link",
    "recovery_from",
    "recovery_to",
    "uuid",
    "code",
    "scope",
    "container",
    "runtime",
    "role",
    "unit",
    "user_unit",
    "uid",
    "slurm_job",
    "slurm_step",
    "count",
    "result",
    "severity",
    "cpu",
    "bank",
    "cleared",
    "seconds",
)

# What a pattern of a site may capture: nothing that says who wrote the line, which is journald's to tell.
USER_FIELDS = frozenset(
    {
        "code",
        "count",
        "device",
        "gpu_index",
        "host",
        "label",
        "library",
        "link",
        "local_rank",
        "operation",
        "pci",
        "process",
        "rank",
        "reason",
        "result",
        "seconds",
        "server",
        "state",
        "uuid",
        "version",
    }
)


def read_field(name: str, text: str) -> Scalar:
    """The value of a field from its text."""
    return FIELDS[name](text)
