"""The host's own figures; see protocols.HostFiles. Sources: proc(5) and the kernel's psi.rst."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from gpuwatch.model.host import FileSystem, Sensor
from gpuwatch.model.reading import UNSUPPORTED, Reading, value
from gpuwatch.system.kernel_files import KeptFile, number_after, pressure, senseless, unreadable
from gpuwatch.system.mounts import Mounts
from gpuwatch.system.protocols import StuckLook
from gpuwatch.system.sensors import Sensors
from gpuwatch.system.stuck import StuckFinder
from gpuwatch.system.timesync import clock_synchronised

_KIB = 1024


class RealHost:
    """Implements protocols.HostFiles. The directories are where the kernel's file systems are mounted.

    `quick` keeps its files open and is for one thread; the calls that may block share nothing with it.
    """

    def __init__(self, proc: str = "/proc", sys: str = "/sys", run: str = "/run", gpu_device: str = "/dev/nvidia"):
        self._meminfo = KeptFile(f"{proc}/meminfo")
        self._vmstat = KeptFile(f"{proc}/vmstat")
        self._loadavg = KeptFile(f"{proc}/loadavg")
        self._pressure = {kind: KeptFile(f"{proc}/pressure/{kind}") for kind in ("memory", "cpu", "io")}
        self._cores = os.sysconf("SC_NPROCESSORS_ONLN")
        self._run = run
        self._mounts = Mounts(f"{proc}/self/mountinfo")
        self._sensors = Sensors(sys)
        self._stuck = StuckFinder(proc, gpu_device)

    def quick(self) -> Mapping[str, Reading]:
        """See protocols.HostFiles. Five small files, nothing opened anew."""
        readings: dict[str, Reading] = {}
        readings.update(_memory(self._meminfo))
        for kind, file in self._pressure.items():
            readings.update(_stalls(file, kind))
        readings.update(_load(self._loadavg, self._cores))
        return readings

    def oom_kills(self) -> Reading:
        """See protocols.HostFiles."""
        return _oom_kills(self._vmstat)

    def clock_synchronised(self) -> Reading:
        """See protocols.HostFiles."""
        return clock_synchronised(self._run)

    def mounts(self, paths: Sequence[str]) -> Mapping[str, FileSystem]:
        """See protocols.HostFiles."""
        return self._mounts.of(paths)

    def space(self, path: str) -> FileSystem:
        """See protocols.HostFiles."""
        return self._mounts.space(path)

    def chips(self) -> tuple[str, ...]:
        """See protocols.HostFiles."""
        return self._sensors.chips()

    def sensors(self, chip: str) -> tuple[Sensor, ...]:
        """See protocols.HostFiles."""
        return self._sensors.read(chip)

    def stuck(self, pids: Sequence[int]) -> StuckLook:
        """See protocols.HostFiles."""
        return self._stuck.look(pids)

    def close(self) -> None:
        """See protocols.HostFiles."""
        for file in (self._meminfo, self._vmstat, self._loadavg, *self._pressure.values()):
            file.close()


def _memory(file: KeptFile) -> dict[str, Reading]:
    """MemAvailable is the kernel's own estimate of what can be had without swapping (since Linux 3.14)."""
    names = {
        "total": "host.memory_total",
        "available": "host.memory_available",
        "ratio": "host.memory_available_ratio",
        "swap_total": "host.swap_total",
        "swap_used": "host.swap_used",
        "swap_ratio": "host.swap_used_ratio",
    }
    try:
        content = file.read()
    except OSError as error:
        return dict.fromkeys(names.values(), unreadable(file.path, error))
    readings = dict.fromkeys(names.values(), senseless(file.path))
    total, available = number_after(content, b"MemTotal:"), number_after(content, b"MemAvailable:")
    if total is not None:
        readings[names["total"]] = value(total * _KIB)
    if available is not None:
        readings[names["available"]] = value(available * _KIB)
    if total and available is not None:
        readings[names["ratio"]] = value(available / total)
    swap, free = number_after(content, b"SwapTotal:"), number_after(content, b"SwapFree:")
    if swap is not None and free is not None:
        readings[names["swap_total"]] = value(swap * _KIB)
        readings[names["swap_used"]] = value((swap - free) * _KIB)
        readings[names["swap_ratio"]] = value((swap - free) / swap) if swap else UNSUPPORTED
    return readings


def _stalls(file: KeptFile, kind: str) -> dict[str, Reading]:
    """host.KIND_pressure_* in percent, host.KIND_stalled_* in seconds."""
    try:
        found = pressure(file.read())
    except OSError as error:
        missing, found = unreadable(file.path, error), {}
    except ValueError:
        missing, found = senseless(file.path), {}
    else:
        missing = UNSUPPORTED
    readings: dict[str, Reading] = {}
    for which in ("some", "full"):
        figures = found.get(which)
        readings[f"host.{kind}_pressure_{which}"] = missing if figures is None else value(figures[0])
        readings[f"host.{kind}_stalled_{which}"] = missing if figures is None else value(figures[1] / 1e6)
    return readings


def _oom_kills(file: KeptFile) -> Reading:
    """Every OOM kill since boot, of the host and of cgroups (since Linux 4.13)."""
    try:
        count = number_after(file.read(), b"oom_kill ")
    except OSError as error:
        return unreadable(file.path, error)
    return UNSUPPORTED if count is None else value(count)


def _load(file: KeptFile, cores: int) -> dict[str, Reading]:
    names = ("host.load_1m", "host.load_5m", "host.load_15m", "host.load_per_core")
    try:
        one, five, fifteen = map(float, file.read().split()[:3])
    except OSError as error:
        return dict.fromkeys(names, unreadable(file.path, error))
    except ValueError:
        return dict.fromkeys(names, senseless(file.path))
    return dict(zip(names, (value(one), value(five), value(fifteen), value(one / max(1, cores)))))
