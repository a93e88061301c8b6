"""What the host itself says: memory, pressure, file systems, sensors, processes that hang, units' cgroups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from gpuwatch.model.incident import Subject
from gpuwatch.model.instant import Instant
from gpuwatch.model.reading import Reading

FILESYSTEM, SENSOR, UNIT = "filesystem", "sensor", "unit"  # kinds of Subject; also the scope of their metrics


@dataclass(frozen=True)
class FileSystem:
    """One mounted file system that matters, under the name that people know it by: where it is mounted.

    `paths` are the reasons why it matters. `device` is major:minor, the same for every mount of it.
    Readings: host.disk_* and host.inodes_*.
    """

    mount: str  # "/var"
    kind: str  # ext4 | xfs | nfs4 | ...
    source: str  # /dev/nvme0n1p2, server:/export
    device: str  # "259:2"
    readings: Mapping[str, Reading] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    taken: Optional[Instant] = None  # when it was asked; None: it has not answered yet


@dataclass(frozen=True)
class Sensor:
    """One temperature, fan or power sensor. `key` stays the same over restarts of the host.

    It is "CHIP@DEVICE/LABEL" for hwmon ("coretemp@coretemp.0/Package id 0") and "thermal:TYPE" for a
    thermal zone; a second one of the same name has "#2" behind it. Numbers of hwmon directories and of
    zones are not part of it, since they follow the order in which modules were loaded.
    """

    key: str
    chip: str  # hwmon's `name` or the zone's `type`
    label: str
    readings: Mapping[str, Reading] = field(default_factory=dict)
    taken: Optional[Instant] = None


@dataclass(frozen=True)
class StuckThread:
    """A thread of a GPU's process, or of the driver, in state D: it waits in the kernel and can't be killed.

    D is normal for milliseconds; `since` is the first look that found it so without a break.
    `in_driver` is True when the kernel stack (or at least the waiting function) is the NVIDIA driver's,
    False when the stack is somebody else's (a disk, NFS), None when it can't be told.
    """

    pid: int
    thread: int
    started_ticks: int  # of the thread; with its number, its identity
    name: str  # comm of the thread
    uid: int
    user: str
    cgroup: str
    wchan: str = ""  # the kernel function that it waits in, "" where not told
    stack: tuple[str, ...] = ()  # innermost first; empty where it may not be read (CAP_SYS_ADMIN)
    in_driver: Optional[bool] = None
    since: Optional[Instant] = None


@dataclass(frozen=True)
class SubjectReadings:
    """Readings of one thing that rules judge by itself. How often they are taken anew: Metric.every_s."""

    subject: Subject
    label: str  # "/var", "coretemp Package id 0", "train@a.service"
    taken: Instant
    readings: Mapping[str, Reading]


@dataclass(frozen=True)
class HostReport:
    """What the host said last. `readings` are those there is one of (host.*), taken at `taken`.

    `stuck_looked` is None unless somebody had a reason to look for stuck processes lately;
    `problems` says in words what could not be looked at, by what it is ("sensors", "stuck").
    """

    taken: Instant
    readings: Mapping[str, Reading] = field(default_factory=dict)
    filesystems: tuple[FileSystem, ...] = ()
    sensors: tuple[Sensor, ...] = ()
    stuck: tuple[StuckThread, ...] = ()
    stuck_looked: Optional[Instant] = None
    problems: Mapping[str, str] = field(default_factory=dict)

    def subjects(self) -> tuple[SubjectReadings, ...]:
        """File systems and sensors as rules see them: Subject("filesystem", "/var"), Subject("sensor", KEY)."""
        found = [
            SubjectReadings(Subject(FILESYSTEM, each.mount), each.mount, each.taken, each.readings)
            for each in self.filesystems
            if each.taken is not None
        ]
        found += [
            SubjectReadings(Subject(SENSOR, each.key), f"{each.chip} {each.label}".strip(), each.taken, each.readings)
            for each in self.sensors
            if each.taken is not None
        ]
        return tuple(found)


@dataclass(frozen=True)
class UnitReadings:
    """What the cgroup of one leaf unit says: unit.* readings, taken with the report."""

    unit: str
    control_group: str
    readings: Mapping[str, Reading] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkloadReport:
    """The units that were asked about and have a cgroup."""

    taken: Instant
    units: tuple[UnitReadings, ...] = ()

    def subjects(self) -> tuple[SubjectReadings, ...]:
        """Units as rules see them: Subject("unit", NAME)."""
        return tuple(
            SubjectReadings(Subject(UNIT, each.unit), each.unit, self.taken, each.readings) for each in self.units
        )
