"""One simulated card: what it tells, what it draws, and what can be set on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Optional

from gpuwatch.model.gpu import GpuSample, MigInstance, ProcessList
from gpuwatch.model.gpu_change import GONE, GpuChange, GpuChanged
from gpuwatch.model.instant import Instant
from gpuwatch.model.reading import UNSUPPORTED, Reading, value

GIB = 1024.0**3
TOTAL_BYTES = 80 * GIB - 512 * 1024**2
# An H100's own points in degrees Celsius: T.Limit counts to 87, slowdown is 2 beyond, shutdown 8.
OPERATING_C, SLOWDOWN_C, SHUTDOWN_C = 87.0, 89.0, 95.0
# What its power limit can be set to, and what it is after a start, in W; what it draws then: at work, idle, when hot.
LIMIT_MIN_W, LIMIT_MAX_W, LIMIT_DEFAULT_W = 200.0, 700.0, 700.0
BUSY_W, IDLE_W, HOT_W = 612.0, 71.0, 350.0


@dataclass
class Card:
    """An H100."""

    identity: GpuSample
    celsius: float
    busy: bool = False
    thermal_slowdown: bool = False
    lost: Optional[str] = None
    listed: bool = True
    joules: float = 1.2e8
    limit_w: float = LIMIT_DEFAULT_W
    locked_mhz: Optional[tuple[int, int]] = None
    refuses: tuple[str, str] = ("", "")  # to be changed: the problem and its words
    reverts: bool = False
    instances: tuple[MigInstance, ...] = ()
    processes: ProcessList = field(default_factory=ProcessList)
    overrides: dict[str, Reading] = field(default_factory=dict)

    def sample(self, with_processes: bool) -> GpuSample:
        """What the driver tells each second."""
        if self.lost is not None:
            return replace(self.identity, lost=self.lost)
        self.joules += self._draw_w()
        readings = {**self._readings(), **{name: each for name, each in self.overrides.items() if name not in SLOW}}
        margins = ("gpu.slowdown_margin", "gpu.shutdown_margin", "gpu.operating_margin")
        return replace(
            self.identity,
            readings=readings,
            processes=self.processes if with_processes else None,
            sources={**dict.fromkeys(margins, "tlimit"), "gpu.memory_used": "v2"},
            unified_memory=readings["gpu.memory_total"].unsupported,
            instances=tuple(each if with_processes else replace(each, processes=None) for each in self.instances),
        )

    def slow_readings(self) -> dict[str, Reading]:
        """And once a minute."""
        divided = {"gpu.mig_mode": value(1.0)} if self.instances else {}
        return {**SLOW, **divided, **{name: each for name, each in self.overrides.items() if name in SLOW}}

    def change(self, change: GpuChange, now: Instant) -> GpuChanged:
        """Set what is to be set, tell what is set then."""
        at = self.identity.pci
        if self.lost is not None or at != change.pci:
            why = self.lost or f"the card is at {at} and not at {change.pci}"
            return GpuChanged(change.id, change.uuid, now, GONE, why)
        problem, detail = ("", "") if change.is_question else self.refuses
        limit_w = self.limit_w if problem else self._set(change)
        limits = limit_w, LIMIT_MIN_W, LIMIT_MAX_W, LIMIT_DEFAULT_W
        return GpuChanged(change.id, change.uuid, now, problem, detail, *limits)

    def _set(self, change: GpuChange) -> float:
        limit_w = self.limit_w
        if change.power_limit_w is not None:
            limit_w = float(min(max(change.power_limit_w, LIMIT_MIN_W), LIMIT_MAX_W))
            self.limit_w = self.limit_w if self.reverts else limit_w
        if change.graphics_clock_mhz is not None or change.unlock_clocks:
            self.locked_mhz = change.graphics_clock_mhz
        return limit_w  # as it is read back, before it reverts

    def _draw_w(self) -> float:
        """A lower limit lowers what a busy card draws in the same ratio."""
        if not self.busy:
            return IDLE_W
        watts = BUSY_W * self.limit_w / LIMIT_DEFAULT_W
        return min(watts, HOT_W) if self.thermal_slowdown else watts

    def _readings(self) -> dict[str, Reading]:
        used = sum(process.used_bytes or 0 for process in self.processes.processes) + 4 * 1024**2
        power = self._draw_w()
        clock = 1215.0 if self.thermal_slowdown else 1980.0 if self.busy else 345.0
        if self.locked_mhz is not None:
            clock = min(max(clock, self.locked_mhz[0]), self.locked_mhz[1])
        numbers = {
            "gpu.temperature": self.celsius,
            "gpu.memory_temperature": self.celsius + 9,
            "gpu.slowdown_margin": SLOWDOWN_C - self.celsius,
            "gpu.shutdown_margin": SHUTDOWN_C - self.celsius,
            "gpu.operating_margin": OPERATING_C - self.celsius,
            "gpu.utilisation": 98.0 if self.busy else 0.0,
            "gpu.memory_utilisation": 41.0 if self.busy else 0.0,
            "gpu.memory_total": TOTAL_BYTES,
            "gpu.memory_reserved": 580 * 1024.0**2,
            "gpu.memory_used": float(used),
            "gpu.memory_used_ratio": used / TOTAL_BYTES,
            "gpu.power": power,
            "gpu.power_limit": self.limit_w,
            "gpu.power_limit_set": self.limit_w,
            "gpu.power_ratio": power / self.limit_w,
            "gpu.energy": self.joules,
            "gpu.idle": 0.0 if self.busy else 1.0,
            "gpu.application_clocks": 0.0,
            "gpu.sw_power_cap": 1.0 if self.busy and self.limit_w < LIMIT_DEFAULT_W else 0.0,
            "gpu.sync_boost": 0.0,
            "gpu.hw_slowdown": 1.0 if self.thermal_slowdown else 0.0,
            "gpu.sw_thermal_slowdown": 0.0,
            "gpu.hw_thermal_slowdown": 1.0 if self.thermal_slowdown else 0.0,
            "gpu.hw_power_brake": 0.0,
            "gpu.graphics_clock": clock,
            "gpu.sm_clock": clock,
            "gpu.memory_clock": 2619.0,
            "gpu.video_clock": 1545.0 if self.busy else 765.0,
            "gpu.pstate": 0.0,
        }
        return {**{name: value(number) for name, number in numbers.items()}, "gpu.fan": UNSUPPORTED}


def identity(index: int) -> GpuSample:
    """Who the card at an index is."""
    digits = f"{(index * 0x1F3D5B79 + 0x3D9A7C10) % 2**32:08x}"
    bus = 0x18 + 0x10 * index
    return GpuSample(
        f"GPU-{digits}-5b1e-4c27-9d40-{index:012x}", index, "NVIDIA H100 80GB HBM3", f"0000:{bus:02x}:00.0"
    )


# What is read once a minute, of a healthy card. Older kinds of memory repair are unsupported.
SLOW: dict[str, Reading] = {
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
        "gpu.power_limit_default": LIMIT_DEFAULT_W,
        "gpu.power_limit_min": LIMIT_MIN_W,
        "gpu.power_limit_max": LIMIT_MAX_W,
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
