"""GPUs and processes that exist only in memory, with figures like those of eight H100 cards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from gpuwatch.model.errors import SourceError
from gpuwatch.model.gpu import DriverState, GpuProcess, GpuReport, GpuSample, ProcessList
from gpuwatch.model.instant import Instant
from gpuwatch.model.reading import UNSUPPORTED, Reading, value
from gpuwatch.system.protocols import Clock, ProcessFacts

GIB = 1024.0**3
TOTAL_BYTES = 80 * GIB - 512 * 1024**2
# An H100's own points in degrees Celsius: T.Limit counts to 87, slowdown is 2 beyond, shutdown 8.
SLOWDOWN_C, SHUTDOWN_C = 89.0, 95.0
SILENT_S = 3.0
TICKS_A_SECOND = 100


@dataclass
class _Card:
    identity: GpuSample
    celsius: float
    busy: bool = False
    thermal_slowdown: bool = False
    lost: Optional[str] = None
    processes: ProcessList = field(default_factory=ProcessList)
    overrides: dict[str, Reading] = field(default_factory=dict)


class SimulatedGpus:
    """Implements protocols.GpuDriver. Answers at once, with the figures of the moment it is asked."""

    def __init__(self, clock: Clock, count: int = 8) -> None:
        self._clock = clock
        self._cards = [_Card(_identity(index), 56.0 + index % 4) for index in range(count)]
        self._state, self._reason = DriverState.OK, ""
        self._silent = False
        self._stuck_since: Optional[Instant] = None
        self._last = GpuReport(DriverState.STARTING, driver_version="580.65.06")
        self.closed = False

    # protocols.GpuDriver

    def sample(self, with_processes: bool, spare_child: bool, wait_s: float) -> GpuReport:
        """See protocols.GpuDriver."""
        now = self._clock.now()
        if self._silent:
            return self._say_nothing(now)
        self._stuck_since = None
        if self._state is not DriverState.OK:
            return replace(self._last, state=self._state, reason=self._reason)
        samples = tuple(_sample(card, with_processes) for card in self._cards)
        self._last = replace(self._last, state=DriverState.OK, reason="", taken=now, samples=samples, child_pid=3999)
        return self._last

    def fds(self) -> tuple[int, ...]:
        """See protocols.GpuDriver."""
        return ()

    def close(self, wait_s: float) -> None:
        """See protocols.GpuDriver."""
        self.closed = True

    # the hand of the test, or of the demo

    def uuid(self, index: int) -> str:
        """The UUID of a GPU."""
        return self._cards[index].identity.uuid

    def pci(self, index: int) -> str:
        """Its canonical PCI address."""
        return self._cards[index].identity.pci

    def heat(self, index: int, celsius: float) -> None:
        """Temperature; margins, clocks and the slowdown bit follow it."""
        self._cards[index].celsius = celsius
        self._cards[index].thermal_slowdown = celsius >= SLOWDOWN_C

    def work(self, index: int, busy: bool) -> None:
        """Load: utilisation, power, clocks and memory follow it."""
        self._cards[index].busy = busy

    def set_reading(self, index: int, metric: str, reading: Optional[Reading]) -> None:
        """Any reading, whatever the rest says; None ends that."""
        if reading is None:
            self._cards[index].overrides.pop(metric, None)
        else:
            self._cards[index].overrides[metric] = reading

    def without_margins(self, index: int) -> None:
        """A card that reports no points of its own."""
        for metric in ("gpu.slowdown_margin", "gpu.shutdown_margin"):
            self._cards[index].overrides[metric] = UNSUPPORTED

    def set_processes(self, index: int, processes: Sequence[GpuProcess], problem: Optional[str] = None) -> None:
        """What the driver lists; with `problem` the list can't be read."""
        self._cards[index].processes = ProcessList(tuple(processes) if problem is None else (), problem)

    def lose(self, index: int) -> None:
        """The card falls off the bus."""
        self._cards[index].lost = "the driver can no longer reach it (NVML error 15, GPU is lost)"

    def unlist(self, index: int) -> None:
        """The driver lists the card no longer."""
        self._cards[index].lost = "it is not listed by the driver any more"

    def find(self, index: int) -> None:
        """The card is back."""
        self._cards[index].lost = None

    def silence(self, silent: bool) -> None:
        """Let the driver answer nothing, or answer again."""
        self._silent = silent

    def fail(self, state: DriverState, reason: str = "") -> None:
        """The driver as a whole is in some state; OK ends that."""
        self._state, self._reason = state, reason

    def _say_nothing(self, now: Instant) -> GpuReport:
        if self._stuck_since is None:
            self._stuck_since = now
        since = now.since(self._stuck_since)
        if since is None or since <= SILENT_S:
            return self._last
        return replace(
            self._last,
            state=DriverState.SILENT,
            reason="the driver does not answer",
            stuck_since=self._stuck_since,
            stuck_pids=(self._last.child_pid,) if self._last.child_pid else (),
        )


class SimulatedProcesses:
    """Implements protocols.Processes over processes that are put in by hand."""

    def __init__(self) -> None:
        self._there: dict[int, ProcessFacts] = {}
        self._hidden: set[int] = set()

    def look(self, pid: int) -> Optional[ProcessFacts]:
        """See protocols.Processes."""
        if pid in self._hidden:
            raise SourceError(f"can't look at process {pid}: Permission denied")
        return self._there.get(pid)

    def put(
        self,
        pid: int,
        cgroup: str,
        name: str = "python3.11",
        user: str = "ml-team",
        uid: int = 1001,
        started_boottime_s: float = 10.0,
        state: str = "S",
    ) -> None:
        """A process, new or changed."""
        ticks = round(started_boottime_s * TICKS_A_SECOND)
        self._there[pid] = ProcessFacts(pid, ticks, started_boottime_s, state, name, uid, user, cgroup)

    def end(self, pid: int) -> None:
        """It is gone."""
        self._there.pop(pid, None)

    def hide(self, pid: int) -> None:
        """/proc does not let us look at it."""
        self._hidden.add(pid)


def _identity(index: int) -> GpuSample:
    digits = f"{(index * 0x1F3D5B79 + 0x3D9A7C10) % 2**32:08x}"
    bus = 0x18 + 0x10 * index
    return GpuSample(
        f"GPU-{digits}-5b1e-4c27-9d40-{index:012x}", index, "NVIDIA H100 80GB HBM3", f"0000:{bus:02x}:00.0"
    )


def _sample(card: _Card, with_processes: bool) -> GpuSample:
    if card.lost is not None:
        return replace(card.identity, lost=card.lost)
    return replace(
        card.identity,
        readings={**_readings(card), **card.overrides},
        processes=card.processes if with_processes else None,
        sources={"gpu.slowdown_margin": "tlimit", "gpu.shutdown_margin": "tlimit", "gpu.memory_used": "v2"},
    )


def _readings(card: _Card) -> dict[str, Reading]:
    used = sum(process.used_bytes or 0 for process in card.processes.processes) + 4 * 1024**2
    power = 612.0 if card.busy else 71.0
    if card.thermal_slowdown:
        power = min(power, 350.0)
    numbers = {
        "gpu.temperature": card.celsius,
        "gpu.memory_temperature": card.celsius + 9,
        "gpu.slowdown_margin": SLOWDOWN_C - card.celsius,
        "gpu.shutdown_margin": SHUTDOWN_C - card.celsius,
        "gpu.utilisation": 98.0 if card.busy else 0.0,
        "gpu.memory_utilisation": 41.0 if card.busy else 0.0,
        "gpu.memory_total": TOTAL_BYTES,
        "gpu.memory_reserved": 580 * 1024.0**2,
        "gpu.memory_used": float(used),
        "gpu.memory_used_ratio": used / TOTAL_BYTES,
        "gpu.power": power,
        "gpu.power_limit": 700.0,
        "gpu.power_ratio": power / 700.0,
        "gpu.hw_thermal_slowdown": 1.0 if card.thermal_slowdown else 0.0,
        "gpu.sm_clock": 1215.0 if card.thermal_slowdown else 1980.0 if card.busy else 345.0,
    }
    return {**{name: value(number) for name, number in numbers.items()}, "gpu.fan": UNSUPPORTED}
