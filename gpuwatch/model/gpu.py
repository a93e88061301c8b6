"""What one look at the GPU driver gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Optional

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


@dataclass(frozen=True)
class GpuProcess:
    """A line of NVML's process lists. `used_bytes` is None where the driver does not tell."""

    pid: int
    kind: str  # compute | graphics | mps
    used_bytes: Optional[int] = None


@dataclass(frozen=True)
class ProcessList:
    """All processes of one GPU at one instant; `problem` as in Reading, and then no processes."""

    processes: tuple[GpuProcess, ...] = ()
    problem: Optional[str] = None


@dataclass(frozen=True)
class GpuSample:
    """The readings of one GPU, keyed by metric name (model/metric.py).

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


@dataclass(frozen=True)
class GpuReport:
    """What the driver said last.

    `taken` is when the samples were asked for (no reading in them is older), None if there never
    were any; it stays behind while the driver is silent or fails. `stuck_since` is set while any
    GPU goes unanswered: with state SILENT all of them, with state OK those whose readings have
    failed. `binding` names the Python module that speaks to the library, with path and version.
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
