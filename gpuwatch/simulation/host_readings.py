"""A simulated host's own figures: calm until a script changes them. Behind protocols.HostFiles and UnitFiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Optional

from gpuwatch.model.host import FileSystem, Sensor, StuckThread
from gpuwatch.model.reading import UNSUPPORTED, Reading, value
from gpuwatch.system.protocols import StuckLook

_GIB = 1024.0**3
_STALLS = tuple(f"{kind}_{what}_{which}" for kind in ("memory", "cpu", "io") for what in ("pressure", "stalled")
                for which in ("some", "full"))  # fmt: skip
ROOT = FileSystem("/", "ext4", "/dev/nvme0n1p2", "259:2")


class SimulatedHostFiles:
    """A server with 1 TiB of memory, 64 cores and one disk. Change what `figures`, `disks`, ... hold."""

    def __init__(self) -> None:
        self.figures: dict[str, Reading] = {
            "host.memory_total": value(1024 * _GIB),
            "host.memory_available": value(700 * _GIB),
            "host.memory_available_ratio": value(700 / 1024),
            "host.swap_total": value(0),
            "host.swap_used": value(0),
            "host.swap_used_ratio": UNSUPPORTED,
            **{f"host.{name}": value(0) for name in _STALLS},
            "host.load_1m": value(12.0),
            "host.load_5m": value(12.0),
            "host.load_15m": value(12.0),
            "host.load_per_core": value(12 / 64),
        }
        self.kills: Reading = value(0)
        self.synchronised: Reading = value(1)
        self.disks: dict[str, FileSystem] = {}
        self.chip_sensors: dict[str, tuple[Sensor, ...]] = {}
        self.stuck_threads: tuple[StuckThread, ...] = ()
        self.put_disk(ROOT, size=1800 * _GIB, free=900 * _GIB)
        self.put_temperature("coretemp@coretemp.0", "Package id 0", 58.0, critical_c=100.0)

    # What a script does

    def put_disk(
        self, disk: FileSystem, size: float, free: float, inodes_free: float = 0.9, read_only: bool = False
    ) -> None:
        """Mount a file system, or fill a mounted one."""
        readings = {
            "host.disk_size": value(size),
            "host.disk_free": value(free),
            "host.disk_free_ratio": value(free / size),
            "host.inodes_free_ratio": value(inodes_free),
            "host.disk_read_only": value(1 if read_only else 0),
        }
        self.disks[disk.mount] = replace(disk, readings=readings)

    def put_temperature(self, chip: str, label: str, degrees: float, critical_c: float) -> None:
        """A chip with one sensor."""
        readings = {"host.sensor_temperature": value(degrees), "host.sensor_margin": value(critical_c - degrees)}
        self.chip_sensors[chip] = (Sensor(f"{chip}/{label}", chip.partition("@")[0], label, readings),)

    # HostFiles

    def quick(self) -> Mapping[str, Reading]:
        """See protocols.HostFiles."""
        return dict(self.figures)

    def oom_kills(self) -> Reading:
        """See protocols.HostFiles."""
        return self.kills

    def clock_synchronised(self) -> Reading:
        """See protocols.HostFiles."""
        return self.synchronised

    def mounts(self, paths: Sequence[str]) -> Mapping[str, FileSystem]:
        """See protocols.HostFiles."""
        return {path: replace(self._disk(path), readings={}) for path in paths}

    def space(self, path: str) -> FileSystem:
        """See protocols.HostFiles."""
        return self._disk(path)

    def chips(self) -> tuple[str, ...]:
        """See protocols.HostFiles."""
        return tuple(self.chip_sensors)

    def sensors(self, chip: str) -> tuple[Sensor, ...]:
        """See protocols.HostFiles."""
        return self.chip_sensors.get(chip, ())

    def stuck(self, pids: Sequence[int]) -> StuckLook:
        """See protocols.HostFiles."""
        return StuckLook(self.stuck_threads)

    def close(self) -> None:
        """See protocols.HostFiles."""

    def _disk(self, path: str) -> FileSystem:
        below = [mount for mount in self.disks if mount == "/" or f"{path}/".startswith(f"{mount}/")]
        return self.disks[max(below, key=len)]


class SimulatedUnitFiles:
    """Control groups that a script has made: `groups` by path."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, Reading]] = {}

    def put(self, control_group: str, used: float, limit: Optional[float] = None, oom_kills: int = 0) -> None:
        """Make a unit's cgroup, or change it."""
        readings = {f"unit.{kind}_pressure_{which}": value(0) for kind in ("memory", "cpu", "io")
                    for which in ("some", "full")}  # fmt: skip
        self.groups[control_group] = {
            **readings,
            "unit.memory": value(used),
            "unit.memory_used": value(used),
            "unit.memory_max": UNSUPPORTED if limit is None else value(limit),
            "unit.memory_used_ratio": UNSUPPORTED if limit is None else value(used / limit),
            "unit.memory_peak": value(used),
            "unit.swap": value(0),
            "unit.oom_kills": value(oom_kills),
            "unit.frozen": value(0),
            "unit.tasks": value(8),
            "unit.tasks_ratio": UNSUPPORTED,
        }

    def end(self, control_group: str) -> None:
        """The unit has ended."""
        self.groups.pop(control_group, None)

    def readings(self, control_group: str) -> Optional[Mapping[str, Reading]]:
        """See protocols.UnitFiles."""
        found = self.groups.get(control_group)
        return None if found is None else dict(found)
