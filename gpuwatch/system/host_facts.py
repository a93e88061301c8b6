"""The state of the host for a bundle: memory, pressure, load, uptime, versions. Never touches the GPU driver."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping

from gpuwatch.system.kernel_files import number_after, read_file

_MOST_BYTES = 1 << 16


def read_host_facts(
    proc: str = "/proc", os_release: str = "/etc/os-release", sys: str = "/sys"
) -> Mapping[str, object]:
    """JSON-able facts; what can't be read is {"problem": why}. A few files of /proc, no fork, well under 1 ms.

    No file system but the kernel's own is asked: space on disks comes from the last HostReport.
    """
    return {
        "meminfo_kb": _pairs(f"{proc}/meminfo"),
        "pressure": {kind: _text(f"{proc}/pressure/{kind}") for kind in ("memory", "cpu", "io")},
        "loadavg": _text(f"{proc}/loadavg"),
        "uptime": _text(f"{proc}/uptime"),  # seconds since boot, idle seconds of all cores
        "swaps": _text(f"{proc}/swaps"),
        "oom_kills": _oom_kills(f"{proc}/vmstat"),  # since boot, of the host and of cgroups
        "boot_id": _text(f"{proc}/sys/kernel/random/boot_id"),
        "clocksource": _text(f"{sys}/devices/system/clocksource/clocksource0/current_clocksource"),
        "kernel": " ".join(os.uname()[:3:2]),
        "os": _os_name(os_release),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(_MOST_BYTES)


def _text(path: str) -> object:
    try:
        return _read(path).strip()
    except OSError as error:
        return {"problem": error.strerror or "read error"}


def _pairs(path: str) -> object:
    """meminfo: "MemTotal:  123 kB" as a number under its name."""
    try:
        lines = _read(path).splitlines()
    except OSError as error:
        return {"problem": error.strerror or "read error"}
    words = [line.replace(":", " ").split() for line in lines]
    return {word[0]: int(word[1]) for word in words if len(word) > 1 and word[1].isdigit()}


def _oom_kills(path: str) -> object:
    try:
        return number_after(read_file(path), b"oom_kill ")
    except OSError as error:
        return {"problem": error.strerror or "read error"}


def _os_name(path: str) -> object:
    try:
        for line in _read(path).splitlines():
            if line.startswith("PRETTY_NAME="):
                return line.partition("=")[2].strip().strip("\"'")
    except OSError as error:
        return {"problem": error.strerror or "read error"}
    return ""
