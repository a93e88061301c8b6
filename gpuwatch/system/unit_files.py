"""Control groups of units, version 2; see protocols.UnitFiles. Source: the kernel's cgroup-v2.rst.

A unit without a controller (memory accounting turned off, cgroup version 1) lacks the files: unsupported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Optional

from gpuwatch.model.reading import UNSUPPORTED, Reading, failed, value
from gpuwatch.system.kernel_files import number_after, pressure, read_file, senseless, unreadable


class CgroupFiles:
    """`root` is where the unified hierarchy is mounted (unit_facts.find_cgroup_root)."""

    def __init__(self, root: str = "/sys/fs/cgroup") -> None:
        self._root = root

    def readings(self, control_group: str) -> Optional[Mapping[str, Reading]]:
        """See protocols.UnitFiles. About a dozen small files."""
        if not control_group.startswith("/") or ".." in control_group.split("/"):
            return None
        place = self._root + control_group
        if not os.path.isdir(place):
            return None
        readings = _memory(place)
        for kind in ("memory", "cpu", "io"):
            readings.update(_pressure(place, kind))
        readings["unit.frozen"] = _figure(f"{place}/cgroup.events", b"frozen ")  # since Linux 5.2
        readings["unit.tasks"] = _number(f"{place}/pids.current")
        readings["unit.tasks_ratio"] = _share(readings["unit.tasks"], _number(f"{place}/pids.max"))
        # A unit that ended meanwhile has no readings, not half of them.
        return readings if os.path.isdir(place) else None


def _memory(place: str) -> dict[str, Reading]:
    all_of_it = _number(f"{place}/memory.current")
    limit = _number(f"{place}/memory.max")
    used = _without(all_of_it, _figure(f"{place}/memory.stat", b"inactive_file "))
    return {
        "unit.memory": all_of_it,
        "unit.memory_used": used,
        "unit.memory_max": limit,
        "unit.memory_used_ratio": _share(used, limit),
        "unit.memory_peak": _number(f"{place}/memory.peak"),  # since Linux 5.19
        "unit.swap": _number(f"{place}/memory.swap.current"),
        "unit.oom_kills": _figure(f"{place}/memory.events", b"oom_kill "),
    }


def _without(all_of_it: Reading, idle: Reading) -> Reading:
    """Inactive file pages are given up before anything is killed, so they are no use of memory."""
    if all_of_it.value is None:
        return all_of_it
    if idle.value is None:
        return failed(f"how much of it is idle file cache is not known: {idle.problem}")
    return value(max(0.0, all_of_it.value - idle.value))


def _share(used: Reading, limit: Reading) -> Reading:
    if used.value is None:
        return used
    if limit.value is None:
        return limit
    return value(used.value / limit.value) if limit.value else UNSUPPORTED


def _number(path: str) -> Reading:
    """A file with one number; "max" stands for no limit."""
    try:
        content = read_file(path).strip()
        return UNSUPPORTED if content == b"max" else value(int(content))
    except OSError as error:
        return unreadable(path, error)
    except ValueError:
        return senseless(path)


def _figure(path: str, name: bytes) -> Reading:
    """The figure in the line that begins with `name`."""
    try:
        number = number_after(read_file(path), name)
    except OSError as error:
        return unreadable(path, error)
    return UNSUPPORTED if number is None else value(number)


def _pressure(place: str, kind: str) -> dict[str, Reading]:
    path = f"{place}/{kind}.pressure"
    try:
        found = pressure(read_file(path))
    except OSError as error:
        missing, found = unreadable(path, error), {}
    except ValueError:
        missing, found = senseless(path), {}
    else:
        missing = UNSUPPORTED
    return {
        f"unit.{kind}_pressure_{which}": value(found[which][0]) if which in found else missing
        for which in ("some", "full")
    }
