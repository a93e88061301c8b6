"""What one look at the GPU driver gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Optional

from gpuwatch.model.gpu_change import GpuChanged
from gpuwatch.model.instant import Instant
from gpuwatch.model.reading import Reading


class DriverState(str, Enum):
    """State of the driver as a whole, as the NVML client sees it."""

    OK = "ok"
    STARTING = "starting"  # a child runs and has not answered yet
    ABSENT = "absent"  # no /proc/driver/nvidia: no driver is loaded, and gpuwatch never loads it (S14)
    NO_LIBRARY = "no_library"  # the driver is loaded, libnvidia-ml.so.1 is not to be found
    MISMATCH = "mismatch"  # library and kernel module are of different versions (NVML error 18)
    SILENT = "silent"  # the child does not answer in time; what it said before is stale
    FAILED = "failed"  # nvmlInit gave another error; reason says which
    RELEASED = "released"  # given up on request, for a repair
    PAUSED = "paused"  # not asked after an Xid 119 or 120, but for a probe now and then


@dataclass(frozen=True)
class GpuProcess:
    """A line of NVML's process lists. `used_bytes` is None where the driver does not tell."""

    pid: int
    kind: str  # compute | graphics | mps
    used_bytes: Optional[int] = None
    instance: Optional[int] = None  # id of the MIG instance it is on


@dataclass(frozen=True)
class ProcessList:
    """All processes of one GPU at one instant; `problem` as in Reading, and then no processes."""

    processes: tuple[GpuProcess, ...] = ()
    problem: Optional[str] = None


@dataclass(frozen=True)
class GpuIdentity:
    """A GPU as it is remembered. `index` is the last one the driver gave it, for display."""

    uuid: str
    index: int
    name: str
    pci: str


@dataclass(frozen=True)
class MigInstance:
    """A part of a GPU in MIG mode (N8). It has memory and processes of its own; all else is the GPU's.

    `readings` holds gpu.memory_* under the names of the whole card's. `processes` as in GpuSample.
    """

    uuid: str
    gpu_instance: int
    compute_instance: int
    name: str
    readings: Mapping[str, Reading] = field(default_factory=dict)
    processes: Optional[ProcessList] = None


@dataclass(frozen=True)
class GpuSample:
    """The readings of one GPU, keyed by metric name (model/metric.py).

    `readings` are those of this second. `slow` holds what is read once a minute (METRICS[name].every_s), asked
    for at `slow_taken`; it is empty until the driver has told it once. `taken` is set where this GPU was too
    slow for the report's question and these are the readings of an earlier one, at most 3 s before.
    `unified_memory`: the card has no memory of its own, the host's counts (N6).

    `lost` is the reason when the driver says that the GPU is gone (NVML errors 15 GPU_IS_LOST and
    16 RESET_REQUIRED, or a known UUID that is no longer listed); then there are no readings.
    `processes` is None when the lists were not read this time. `sources` says for a metric that has
    several which interface of the driver fed it: "v1" or "v2" for memory ("v1" counts reserved memory
    as used), "tlimit" or "threshold" for the margins.
    """

    uuid: str
    index: int
    name: str
    pci: str  # canonical: 0000:c6:00.0, lower case, domain of at least four digits
    readings: Mapping[str, Reading] = field(default_factory=dict)
    processes: Optional[ProcessList] = None
    lost: Optional[str] = None
    sources: Mapping[str, str] = field(default_factory=dict)
    slow: Mapping[str, Reading] = field(default_factory=dict)
    slow_taken: Optional[Instant] = None
    taken: Optional[Instant] = None
    unified_memory: bool = False
    instances: tuple[MigInstance, ...] = ()

    def reading(self, metric: str) -> Optional[Reading]:
        """Of this second or of this minute; None when it was not read."""
        return self.readings.get(metric) or self.slow.get(metric)


@dataclass(frozen=True)
class GpuReport:
    """What the driver said last.

    `taken` is when the samples were asked for (no reading in them is older), None if there never
    were any; it stays behind while the driver is silent or fails. `stuck_since` is set while any
    GPU goes unanswered: with state SILENT all of them, with state OK those whose readings have
    failed. `binding` names the Python module that speaks to the library, with path and version.

    `capabilities`, by UUID and metric (and "processes", "mig"): "supported", "unsupported", or "failed" for
    what has never been read; found by asking, since this start of the child (N12). `new` are UUIDs that are
    not in the remembered set, `missing` those of the set that the driver does not list (N10). `resumes` is
    when a driver that is PAUSED is probed next, or one that is RELEASED is spoken to again. `changed` are the
    answers to GpuDriver.change() that came since the last report, in whatever state the driver is now.
    """

    state: DriverState
    reason: str = ""
    taken: Optional[Instant] = None
    samples: tuple[GpuSample, ...] = ()
    driver_version: str = ""
    library_path: str = ""
    child_pid: int = 0
    stuck_since: Optional[Instant] = None
    stuck_pids: tuple[int, ...] = ()
    binding: str = ""
    capabilities: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    new: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    resumes: Optional[Instant] = None
    changed: tuple[GpuChanged, ...] = ()

    def taken_of(self, sample: GpuSample, metric: str = "") -> Optional[Instant]:
        """When a reading of one of its samples was asked for; without `metric`, those of this second."""
        if metric in sample.slow and metric not in sample.readings:
            return sample.slow_taken
        return sample.taken or self.taken


@dataclass(frozen=True)
class Owner:
    """Who a GPU process belongs to, from /proc (start time, cgroup)."""

    pid: int
    started_ticks: int  # field 22 of /proc/<pid>/stat; with the pid, the identity of a process
    started_boottime_s: float
    name: str  # comm, at most 15 bytes, arbitrary text
    uid: int
    user: str
    kind: str  # unit | session | docker | podman | user_unit | slurm | kubepods | other
    unit: Optional[str] = None  # the leaf systemd unit
    container: Optional[str] = None  # full id
    cgroup: str = ""
    used_bytes: Optional[int] = None
    process_kind: str = "compute"
    instance: Optional[int] = None  # id of the MIG instance it is on
    # Names for people, put on by sources/owner_names.py; nothing is decided by them
    container_name: str = ""
    container_pid: Optional[int] = None  # its pid inside the container
    image: str = ""
    compose: str = ""  # PROJECT/SERVICE
    user_unit: str = ""  # unit of the user's own service manager
    job: str = ""  # of Slurm: JOB.STEP


@dataclass(frozen=True)
class Attribution:
    """Who uses one GPU. `confirmed` holds the pids that S11's double reading agrees on.

    `unknown` is the reason why the list as a whole cannot be trusted; then nobody is named.
    `stale_s` is set for a lost GPU: the age of its last good list, whose processes were looked up again.
    """

    uuid: str
    taken: Instant
    owners: tuple[Owner, ...] = ()
    confirmed: tuple[int, ...] = ()
    unknown: Optional[str] = None
    stale_s: Optional[float] = None
