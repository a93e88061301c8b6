"""GPUs and processes that exist only in memory, with figures like those of eight H100 cards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from gpuwatch.model.errors import SourceError
from gpuwatch.model.gpu import (
    DriverState,
    GpuIdentity,
    GpuProcess,
    GpuReport,
    GpuSample,
    MigInstance,
    ProcessList,
)
from gpuwatch.model.instant import Instant
from gpuwatch.model.reading import UNSUPPORTED, Reading, value
from gpuwatch.system.nvml.capabilities import Capabilities
from gpuwatch.system.nvml.inventory import Inventory
from gpuwatch.system.protocols import Clock, ProcessFacts

GIB = 1024.0**3
TOTAL_BYTES = 80 * GIB - 512 * 1024**2
# An H100's own points in degrees Celsius: T.Limit counts to 87, slowdown is 2 beyond, shutdown 8.
OPERATING_C, SLOWDOWN_C, SHUTDOWN_C = 87.0, 89.0, 95.0
PROBE_S, MINUTE_S = 30.0, 60.0
SILENT_S = 3.0
TICKS_A_SECOND = 100


@dataclass
class _Card:
    identity: GpuSample
    celsius: float
    busy: bool = False
    thermal_slowdown: bool = False
    lost: Optional[str] = None
    listed: bool = True
    joules: float = 1.2e8
    instances: tuple[MigInstance, ...] = ()
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
        self._inventory, self._capabilities = Inventory(), Capabilities()
        self._minute_taken: Optional[Instant] = None
        self._paused = ""
        self._rest_until: Optional[Instant] = None
        self._released_until: Optional[Instant] = None
        self.closed = False

    # protocols.GpuDriver

    def sample(self, with_processes: bool, spare_child: bool, wait_s: float) -> GpuReport:
        """See protocols.GpuDriver."""
        now = self._clock.now()
        until, probing = self._rest(now)
        if until is not None:
            state = DriverState.PAUSED if self._paused else DriverState.RELEASED
            reason = f"driver calls are paused {self._paused}" if self._paused else "given up on request, for a repair"
            return replace(self._last, state=state, reason=reason, resumes=until, child_pid=0)
        if self._silent:
            return self._say_nothing(now)
        if probing:
            self._paused = ""
        self._stuck_since = None
        if self._state is not DriverState.OK:
            return replace(self._last, state=self._state, reason=self._reason)
        self._last = self._report(now, with_processes)
        return self._last

    def fds(self) -> tuple[int, ...]:
        """See protocols.GpuDriver."""
        return ()

    def expect(self, gpus: Sequence[GpuIdentity]) -> None:
        """See protocols.GpuDriver."""
        self._inventory.expect(gpus)

    def pause(self, why: str) -> None:
        """See protocols.GpuDriver."""
        if not self._paused:
            self._rest_until = _later(self._clock.now(), PROBE_S)
        self._paused = why

    def release(self, for_s: float) -> None:
        """See protocols.GpuDriver."""
        self._released_until = _later(self._clock.now(), for_s)

    def resume(self) -> None:
        """See protocols.GpuDriver."""
        self._paused, self._released_until, self._rest_until = "", None, None

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
        """Any reading, whatever the rest says; None ends that. One that is read once a minute is read now."""
        if metric in _SLOW:
            self._minute_taken = None
        if reading is None:
            self._cards[index].overrides.pop(metric, None)
        else:
            self._cards[index].overrides[metric] = reading

    def without_margins(self, index: int) -> None:
        """A card that reports no points of its own."""
        for metric in ("slowdown_margin", "shutdown_margin", "operating_margin"):
            self._cards[index].overrides[f"gpu.{metric}"] = UNSUPPORTED
        for metric in ("slowdown_point", "shutdown_point", "operating_point"):
            self._cards[index].overrides[f"gpu.{metric}"] = UNSUPPORTED

    def set_processes(self, index: int, processes: Sequence[GpuProcess], problem: Optional[str] = None) -> None:
        """What the driver lists; with `problem` the list can't be read."""
        self._cards[index].processes = ProcessList(tuple(processes) if problem is None else (), problem)

    def lose(self, index: int) -> None:
        """The card falls off the bus."""
        self._cards[index].lost = "the driver can no longer reach it (NVML error 15, GPU is lost)"

    def unlist(self, index: int) -> None:
        """The driver lists the card no longer."""
        self._cards[index].listed = False

    def find(self, index: int) -> None:
        """The card is back."""
        self._cards[index].lost, self._cards[index].listed = None, True

    def swap(self, index: int, uuid: str) -> None:
        """Another card is put into its slot."""
        self._cards[index].identity = replace(self._cards[index].identity, uuid=uuid)

    def divide(self, index: int, instances: Sequence[MigInstance]) -> None:
        """MIG mode with these instances; none ends it."""
        self._cards[index].instances = tuple(instances)

    def unify_memory(self, index: int) -> None:
        """A card without memory of its own (N6)."""
        for metric in ("total", "reserved", "used", "used_ratio"):
            self._cards[index].overrides[f"gpu.memory_{metric}"] = UNSUPPORTED

    def silence(self, silent: bool) -> None:
        """Let the driver answer nothing, or answer again."""
        self._silent = silent

    def fail(self, state: DriverState, reason: str = "") -> None:
        """The driver as a whole is in some state; OK ends that."""
        self._state, self._reason = state, reason

    def _rest(self, now: Instant) -> tuple[Optional[Instant], bool]:
        """Until when the driver is left alone; True when a probe is due."""
        for until in (self._released_until, self._rest_until if self._paused else None):
            if until is not None and (until.since(now) or 0.0) > 0:
                return until, False
        self._released_until = None
        return None, bool(self._paused)

    def _report(self, now: Instant, with_processes: bool) -> GpuReport:
        answered = []
        age = None if self._minute_taken is None else now.since(self._minute_taken)
        minute_due = age is None or age >= MINUTE_S
        for card in self._cards:
            if not card.listed:
                continue
            sample = _sample(card, with_processes)
            answered.append(sample)
            self._capabilities.note(sample)
            if minute_due and sample.lost is None:
                slow = _slow_readings(card)
                self._inventory.note_slow(sample.uuid, now, slow)
                self._capabilities.note_slow(sample.uuid, slow)
        self._minute_taken = now if minute_due else self._minute_taken
        return replace(
            self._last,
            state=DriverState.OK,
            reason="",
            taken=now,
            samples=self._inventory.complete(answered, []),
            child_pid=3999,
            capabilities=self._capabilities.table,
            new=self._inventory.new,
            missing=self._inventory.missing,
        )

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


def _later(now: Instant, seconds: float) -> Instant:
    return Instant(now.boot_id, now.boottime_s + seconds, now.utc_s + seconds)


def _sample(card: _Card, with_processes: bool) -> GpuSample:
    if card.lost is not None:
        return replace(card.identity, lost=card.lost)
    card.joules += 612.0 if card.busy else 71.0
    readings = {**_readings(card), **{name: each for name, each in card.overrides.items() if name not in _SLOW}}
    margins = ("gpu.slowdown_margin", "gpu.shutdown_margin", "gpu.operating_margin")
    return replace(
        card.identity,
        readings=readings,
        processes=card.processes if with_processes else None,
        sources={**dict.fromkeys(margins, "tlimit"), "gpu.memory_used": "v2"},
        unified_memory=readings["gpu.memory_total"].unsupported,
        instances=tuple(each if with_processes else replace(each, processes=None) for each in card.instances),
    )


def _readings(card: _Card) -> dict[str, Reading]:
    used = sum(process.used_bytes or 0 for process in card.processes.processes) + 4 * 1024**2
    power = 612.0 if card.busy else 71.0
    if card.thermal_slowdown:
        power = min(power, 350.0)
    clock = 1215.0 if card.thermal_slowdown else 1980.0 if card.busy else 345.0
    numbers = {
        "gpu.temperature": card.celsius,
        "gpu.memory_temperature": card.celsius + 9,
        "gpu.slowdown_margin": SLOWDOWN_C - card.celsius,
        "gpu.shutdown_margin": SHUTDOWN_C - card.celsius,
        "gpu.operating_margin": OPERATING_C - card.celsius,
        "gpu.utilisation": 98.0 if card.busy else 0.0,
        "gpu.memory_utilisation": 41.0 if card.busy else 0.0,
        "gpu.memory_total": TOTAL_BYTES,
        "gpu.memory_reserved": 580 * 1024.0**2,
        "gpu.memory_used": float(used),
        "gpu.memory_used_ratio": used / TOTAL_BYTES,
        "gpu.power": power,
        "gpu.power_limit": 700.0,
        "gpu.power_ratio": power / 700.0,
        "gpu.energy": card.joules,
        "gpu.idle": 0.0 if card.busy else 1.0,
        "gpu.application_clocks": 0.0,
        "gpu.sw_power_cap": 0.0,
        "gpu.sync_boost": 0.0,
        "gpu.hw_slowdown": 1.0 if card.thermal_slowdown else 0.0,
        "gpu.sw_thermal_slowdown": 0.0,
        "gpu.hw_thermal_slowdown": 1.0 if card.thermal_slowdown else 0.0,
        "gpu.hw_power_brake": 0.0,
        "gpu.graphics_clock": clock,
        "gpu.sm_clock": clock,
        "gpu.memory_clock": 2619.0,
        "gpu.video_clock": 1545.0 if card.busy else 765.0,
        "gpu.pstate": 0.0,
    }
    return {**{name: value(number) for name, number in numbers.items()}, "gpu.fan": UNSUPPORTED}


def _slow_readings(card: _Card) -> dict[str, Reading]:
    divided = {"gpu.mig_mode": value(1.0)} if card.instances else {}
    return {**_SLOW, **divided, **{name: each for name, each in card.overrides.items() if name in _SLOW}}


# What is read once a minute, of a healthy card. Older kinds of memory repair are unsupported.
_SLOW: dict[str, Reading] = {
    name: UNSUPPORTED if number is None else value(number)
    for name, number in {
        "gpu.slowdown_point": SLOWDOWN_C,
        "gpu.shutdown_point": SHUTDOWN_C,
        "gpu.operating_point": OPERATING_C,
        "gpu.memory_operating_point": None,
        "gpu.max_graphics_clock": 1980,
        "gpu.max_sm_clock": 1980,
        "gpu.max_memory_clock": 2619,
        "gpu.max_video_clock": 1545,
        "gpu.power_limit_set": 700,
        "gpu.power_limit_default": 700,
        "gpu.power_limit_min": 200,
        "gpu.power_limit_max": 700,
        "gpu.persistence_mode": 1,
        "gpu.recovery_action": 0,
        "gpu.ecc_enabled": 1,
        "gpu.ecc_corrected": 0,
        "gpu.ecc_uncorrected": 0,
        "gpu.ecc_corrected_ever": 0,
        "gpu.ecc_uncorrected_ever": 0,
        "gpu.rows_remapped_correctable": 0,
        "gpu.rows_remapped_uncorrectable": 0,
        "gpu.row_remap_pending": 0,
        "gpu.row_remap_failed": 0,
        "gpu.pages_retired_correctable": None,
        "gpu.pages_retired_uncorrectable": None,
        "gpu.page_retirement_pending": None,
        "gpu.pcie_generation": 5,
        "gpu.pcie_generation_max": 5,
        "gpu.pcie_width": 16,
        "gpu.pcie_width_max": 16,
        "gpu.pcie_replays": 0,
        "gpu.nvlinks_up": 18,
        "gpu.nvlinks_down": 0,
        "gpu.nvlink_replays": 0,
        "gpu.nvlink_recoveries": 0,
        "gpu.nvlink_flit_errors": 0,
        "gpu.nvlink_data_errors": 0,
        "gpu.nvlink_effective_errors": None,
        "gpu.nvlink_failed_recoveries": None,
        "gpu.fabric_state": 3,
        "gpu.fabric_status": 0,
        "gpu.fabric_degraded": 0,
        "gpu.mig_mode": 0,
    }.items()
}
