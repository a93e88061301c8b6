"""Every metric a rule can name, declared once: unit, scope, and what is plausible at all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True)
class Metric:
    """`low`..`high` is the plausible range, ends included; a value outside it is a failed reading."""

    name: str
    unit: str
    scope: str  # gpu | host | filesystem | sensor | unit | workload: what there is one of for each value
    low: float
    high: float
    text: str  # what it is, for the manual and for error messages
    every_s: float = 1.0  # how often it is read at most (GpuSample.slow); for a gap to count as one
    derived: bool = False  # the daemon's own: worked out from other readings, or about itself; no device tells it

    def plausible(self, number: float) -> bool:
        """True within its range; what is outside can't be what it says (S3)."""
        return self.low <= number <= self.high


_GIB = 1024.0**3
NOT_GROWING_S = 86400.0  # of a forecast: what does not grow, or fills later than this

_derived = partial(Metric, derived=True)

METRICS = {
    metric.name: metric
    for metric in (
        Metric("gpu.temperature", "C", "gpu", 1, 125, "GPU core temperature"),
        Metric("gpu.memory_temperature", "C", "gpu", 1, 125, "memory (HBM, GDDR6X) temperature"),
        Metric("gpu.slowdown_margin", "C", "gpu", -60, 125, "degrees left to the card's own slowdown point"),
        Metric("gpu.shutdown_margin", "C", "gpu", -60, 125, "degrees left to the card's own shutdown point"),
        Metric("gpu.operating_margin", "C", "gpu", -60, 125, "degrees left to the highest temperature it is meant for"),
        Metric("gpu.utilisation", "%", "gpu", 0, 100, "share of time in which a kernel ran"),
        Metric("gpu.memory_utilisation", "%", "gpu", 0, 100, "share of time in which memory was read or written"),
        Metric("gpu.memory_total", "bytes", "gpu", 1, 4096 * _GIB, "memory of the card"),
        Metric("gpu.memory_reserved", "bytes", "gpu", 0, 4096 * _GIB, "memory reserved by the driver"),
        Metric("gpu.memory_used", "bytes", "gpu", 0, 4096 * _GIB, "memory in use, without the driver's own"),
        Metric("gpu.memory_used_ratio", "ratio", "gpu", 0, 1, "used divided by total memory"),
        Metric("gpu.power", "W", "gpu", 0, 5000, "power draw of the board"),
        Metric("gpu.power_limit", "W", "gpu", 0, 5000, "power limit in force"),
        Metric("gpu.power_limit_set", "W", "gpu", 0, 5000, "power limit that was asked for"),
        Metric("gpu.power_ratio", "ratio", "gpu", 0, 5, "power draw divided by the limit in force"),
        Metric("gpu.energy", "J", "gpu", 0, 1e15, "energy used since the driver was loaded"),
        Metric("gpu.idle", "0/1", "gpu", 0, 1, "clocks are low because nothing runs: no fault"),
        Metric("gpu.application_clocks", "0/1", "gpu", 0, 1, "clocks are where somebody has set them: no fault"),
        Metric("gpu.sw_power_cap", "0/1", "gpu", 0, 1, "clocks are held by the power limit: no fault"),
        Metric("gpu.sync_boost", "0/1", "gpu", 0, 1, "clocks follow another card's: no fault"),
        Metric("gpu.hw_slowdown", "0/1", "gpu", 0, 1, "the hardware halves the clocks, for heat or power"),
        Metric("gpu.sw_thermal_slowdown", "0/1", "gpu", 0, 1, "the driver lowers the clocks because of heat"),
        Metric("gpu.hw_thermal_slowdown", "0/1", "gpu", 0, 1, "the hardware slows the clocks because of heat"),
        Metric("gpu.hw_power_brake", "0/1", "gpu", 0, 1, "the power supply asks the hardware to slow down"),
        Metric("gpu.graphics_clock", "MHz", "gpu", 0, 10000, "clock of the graphics engine"),
        Metric("gpu.sm_clock", "MHz", "gpu", 0, 10000, "clock of the multiprocessors"),
        Metric("gpu.memory_clock", "MHz", "gpu", 0, 20000, "clock of the memory"),
        Metric("gpu.video_clock", "MHz", "gpu", 0, 10000, "clock of the video engines"),
        Metric("gpu.pstate", "", "gpu", 0, 15, "performance state: 0 is the fastest, 8 and more are idle"),
        Metric("gpu.fan", "%", "gpu", 0, 200, "fan speed as intended by the card"),
        _derived("gpu.memory_full_in", "s", "gpu", 0, NOT_GROWING_S, "time until its memory is full, at this rate"),
        _derived("gpu.stalled", "s", "gpu", 0, 1e9, "how long it idles with a busy job's memory still held"),
        _derived("gpu.fan_stopped", "0/1", "gpu", 0, 1, "its fan stands still at 70 C or more"),
        # Read once a minute
        Metric("gpu.slowdown_point", "C", "gpu", 50, 130, "temperature at which the card slows its clocks", 60),
        Metric("gpu.shutdown_point", "C", "gpu", 50, 150, "temperature at which the card cuts its power", 60),
        Metric("gpu.operating_point", "C", "gpu", 50, 130, "highest temperature the card is meant to run at", 60),
        Metric("gpu.memory_operating_point", "C", "gpu", 50, 130, "the same of its memory", 60),
        Metric("gpu.max_graphics_clock", "MHz", "gpu", 0, 10000, "highest clock of the graphics engine", 60),
        Metric("gpu.max_sm_clock", "MHz", "gpu", 0, 10000, "highest clock of the multiprocessors", 60),
        Metric("gpu.max_memory_clock", "MHz", "gpu", 0, 20000, "highest clock of the memory", 60),
        Metric("gpu.max_video_clock", "MHz", "gpu", 0, 10000, "highest clock of the video engines", 60),
        Metric("gpu.power_limit_default", "W", "gpu", 0, 5000, "power limit after a start", 60),
        Metric("gpu.power_limit_min", "W", "gpu", 0, 5000, "lowest power limit that can be set", 60),
        Metric("gpu.power_limit_max", "W", "gpu", 0, 5000, "highest power limit that can be set", 60),
        Metric("gpu.persistence_mode", "0/1", "gpu", 0, 1, "the driver stays initialised without programs", 60),
        Metric("gpu.recovery_action", "", "gpu", 0, 255, "what the driver asks for: 0 nothing, 1 reset, 2 reboot", 60),
        Metric("gpu.ecc_enabled", "0/1", "gpu", 0, 1, "memory errors are corrected and counted", 60),
        Metric("gpu.ecc_corrected", "", "gpu", 0, 1e18, "corrected memory errors since the driver was loaded", 60),
        Metric("gpu.ecc_uncorrected", "", "gpu", 0, 1e18, "uncorrected memory errors since the driver was loaded", 60),
        Metric("gpu.ecc_corrected_ever", "", "gpu", 0, 1e18, "corrected memory errors in the card's life", 60),
        Metric("gpu.ecc_uncorrected_ever", "", "gpu", 0, 1e18, "uncorrected memory errors in the card's life", 60),
        Metric("gpu.rows_remapped_correctable", "", "gpu", 0, 1e6, "memory rows replaced after corrected errors", 60),
        Metric("gpu.rows_remapped_uncorrectable", "", "gpu", 0, 1e6, "rows replaced after uncorrected errors", 60),
        Metric("gpu.row_remap_pending", "0/1", "gpu", 0, 1, "a memory row is replaced at the next reset", 60),
        Metric("gpu.row_remap_failed", "0/1", "gpu", 0, 1, "a memory row could not be replaced", 60),
        Metric("gpu.pages_retired_correctable", "", "gpu", 0, 1e6, "memory pages retired after corrected errors", 60),
        Metric("gpu.pages_retired_uncorrectable", "", "gpu", 0, 1e6, "pages retired after an uncorrected error", 60),
        Metric("gpu.page_retirement_pending", "0/1", "gpu", 0, 1, "a memory page is retired at the next reset", 60),
        Metric("gpu.pcie_generation", "", "gpu", 1, 10, "PCIe generation in use (lower while idle: no fault)", 60),
        Metric("gpu.pcie_generation_max", "", "gpu", 1, 10, "PCIe generation that card and slot can do", 60),
        Metric("gpu.pcie_width", "lanes", "gpu", 1, 32, "PCIe lanes in use", 60),
        Metric("gpu.pcie_width_max", "lanes", "gpu", 1, 32, "PCIe lanes that card and slot can do", 60),
        _derived("gpu.pcie_generations_missing", "", "gpu", 0, 9, "PCIe generations less than can be, under load", 60),
        _derived("gpu.pcie_lanes_missing", "lanes", "gpu", 0, 31, "PCIe lanes less than can be, under load", 60),
        Metric("gpu.pcie_replays", "", "gpu", 0, 1e18, "PCIe packets sent again", 60),
        Metric("gpu.nvlinks_up", "", "gpu", 0, 64, "NVLinks that are up", 60),
        Metric("gpu.nvlinks_down", "", "gpu", 0, 64, "NVLinks that are down", 60),
        _derived("gpu.nvlinks_missing", "", "gpu", 0, 64, "NVLinks down of the most that were ever up", 60),
        Metric("gpu.nvlink_replays", "", "gpu", 0, 1e18, "NVLink packets sent again", 60),
        Metric("gpu.nvlink_recoveries", "", "gpu", 0, 1e18, "NVLinks trained anew after an error", 60),
        Metric("gpu.nvlink_flit_errors", "", "gpu", 0, 1e18, "NVLink flow control packets with a wrong checksum", 60),
        Metric("gpu.nvlink_data_errors", "", "gpu", 0, 1e18, "NVLink data packets with a wrong checksum", 60),
        Metric("gpu.nvlink_effective_errors", "", "gpu", 0, 1e18, "NVLink errors that correction left (Blackwell)", 60),
        Metric("gpu.nvlink_failed_recoveries", "", "gpu", 0, 1e18, "NVLinks not brought back (Blackwell)", 60),
        Metric("gpu.fabric_state", "", "gpu", 0, 3, "NVSwitch fabric: 1 not started, 2 in progress, 3 joined", 60),
        Metric("gpu.fabric_status", "", "gpu", 0, 9999, "result of joining the fabric: 0 is good", 60),
        Metric("gpu.fabric_degraded", "0/1", "gpu", 0, 1, "the fabric runs with less bandwidth", 60),
        Metric("gpu.mig_mode", "0/1", "gpu", 0, 1, "the card is divided into instances (MIG)", 60),
        _derived("gpu.lost", "0/1", "gpu", 0, 1, "the driver can no longer reach the card"),
        _derived("host.driver_silent", "s", "host", 0, 1e9, "how long the GPU driver has not answered"),
        _derived("host.driver_mismatch", "0/1", "host", 0, 1, "driver library and kernel module differ in version"),
        _derived(
            "host.store_failing", "s", "host", 0, 1e9, "how long gpuwatch's own state could not be written to disk"
        ),
        _derived("host.acting_stopped", "0/1", "host", 0, 1, "an action is wanted and the budget of actions is spent"),
        _derived("host.gpu_sample_age", "s", "host", 0, 1e9, "age of the newest readings of any GPU"),
        _derived("host.gpus_hot", "", "host", 0, 1024, "GPUs within 5 C of slowdown, or at 85 C where unknown"),
        _derived("host.journal_behind", "s", "host", 0, 1e9, "how long the journal could not be read"),
        _derived("host.fabric_manager_down", "0/1", "host", 0, 1, "NVIDIA's fabric manager does not run", 60),
        _derived("host.memory_full_in", "s", "host", 0, NOT_GROWING_S, "time until memory runs out, at this rate"),
        Metric("host.memory_total", "bytes", "host", 1, 65536 * _GIB, "memory of the host that the kernel manages"),
        Metric("host.memory_available", "bytes", "host", 0, 65536 * _GIB, "memory that can be had without swapping"),
        Metric("host.memory_available_ratio", "ratio", "host", 0, 1, "MemAvailable divided by MemTotal"),
        Metric("host.swap_total", "bytes", "host", 0, 65536 * _GIB, "swap space of the host"),
        Metric("host.swap_used", "bytes", "host", 0, 65536 * _GIB, "swap space in use"),
        Metric("host.swap_used_ratio", "ratio", "host", 0, 1, "swap in use divided by swap space"),
        Metric("host.memory_pressure_some", "%", "host", 0, 100, "share of 10 s in which a task waited for memory"),
        Metric("host.memory_pressure_full", "%", "host", 0, 100, "share of 10 s in which all tasks waited for memory"),
        Metric("host.cpu_pressure_some", "%", "host", 0, 100, "share of 10 s in which a task waited for a CPU"),
        Metric("host.cpu_pressure_full", "%", "host", 0, 100, "share of 10 s in which all tasks waited for a CPU"),
        Metric("host.io_pressure_some", "%", "host", 0, 100, "share of 10 s in which a task waited for a disk"),
        Metric("host.io_pressure_full", "%", "host", 0, 100, "share of 10 s in which all tasks waited for a disk"),
        Metric("host.memory_stalled_some", "s", "host", 0, 1e9, "time since boot in which a task waited for memory"),
        Metric("host.memory_stalled_full", "s", "host", 0, 1e9, "time since boot in which all waited for memory"),
        Metric("host.cpu_stalled_some", "s", "host", 0, 1e9, "time since boot in which a task waited for a CPU"),
        Metric("host.cpu_stalled_full", "s", "host", 0, 1e9, "time since boot in which all waited for a CPU"),
        Metric("host.io_stalled_some", "s", "host", 0, 1e9, "time since boot in which a task waited for a disk"),
        Metric("host.io_stalled_full", "s", "host", 0, 1e9, "time since boot in which all waited for a disk"),
        Metric("host.oom_kills", "", "host", 0, 1e12, "processes that the kernel killed for memory since boot", 5),
        Metric("host.load_1m", "", "host", 0, 1e6, "load average over one minute"),
        Metric("host.load_5m", "", "host", 0, 1e6, "load average over five minutes"),
        Metric("host.load_15m", "", "host", 0, 1e6, "load average over a quarter of an hour"),
        Metric("host.load_per_core", "", "host", 0, 1e6, "load average over one minute, divided by the cores online"),
        Metric("host.uptime", "s", "host", 0, 1e10, "time since boot, suspend included"),
        Metric("host.clock_synchronised", "0/1", "host", 0, 1, "the clock is kept by NTP, PTP or the like", 60),
        Metric("host.stuck_processes", "", "host", 0, 1e6, "GPU processes that hang in the kernel (state D)", 10),
        Metric("host.disk_size", "bytes", "filesystem", 0, 1e21, "size of the file system", 15),
        Metric("host.disk_free", "bytes", "filesystem", 0, 1e21, "space that a plain user can still fill", 15),
        Metric("host.disk_free_ratio", "ratio", "filesystem", 0, 1, "free space, as `df` counts it, from 0 to 1", 15),
        Metric("host.inodes_free_ratio", "ratio", "filesystem", 0, 1, "inodes left, of those there can be", 15),
        Metric("host.disk_read_only", "0/1", "filesystem", 0, 1, "takes no writes, as after an error of the disk", 15),
        Metric("host.sensor_temperature", "C", "sensor", -40, 150, "temperature of a sensor of the host", 10),
        Metric("host.sensor_margin", "C", "sensor", -110, 190, "degrees left to the sensor's own critical point", 10),
        Metric("host.fan_speed", "rpm", "sensor", 0, 100000, "speed of a fan of the host", 10),
        Metric("host.sensor_power", "W", "sensor", 0, 100000, "power as a sensor of the host measures it", 10),
        Metric("unit.memory", "bytes", "unit", 0, 65536 * _GIB, "the unit's memory, all file cache included", 5),
        Metric("unit.memory_used", "bytes", "unit", 0, 65536 * _GIB, "its memory without inactive file pages", 5),
        Metric("unit.memory_max", "bytes", "unit", 0, 65536 * _GIB, "the unit's own memory limit (MemoryMax=)", 5),
        Metric("unit.memory_used_ratio", "ratio", "unit", 0, 1.5, "used memory divided by the unit's own limit", 5),
        _derived("host.memory_thrashing", "%", "host", 0, 100, "share of 10 s lost to memory while under 10 % is left"),
        _derived("unit.memory_thrashing", "%", "unit", 0, 100, "the same of a unit within 10 % of its own limit", 5),
        _derived("unit.memory_full_in", "s", "unit", 0, NOT_GROWING_S, "time until its limit is met, at this rate", 5),
        Metric("unit.memory_peak", "bytes", "unit", 0, 65536 * _GIB, "the most memory the unit has had", 5),
        Metric("unit.swap", "bytes", "unit", 0, 65536 * _GIB, "swap space charged to the unit", 5),
        Metric("unit.oom_kills", "", "unit", 0, 1e12, "processes of the unit that the kernel killed for memory", 5),
        Metric("unit.memory_pressure_some", "%", "unit", 0, 100, "share of 10 s in which a task waited for memory", 5),
        Metric("unit.memory_pressure_full", "%", "unit", 0, 100, "share of 10 s in which all waited for memory", 5),
        Metric("unit.cpu_pressure_some", "%", "unit", 0, 100, "share of 10 s in which a task waited for a CPU", 5),
        Metric("unit.cpu_pressure_full", "%", "unit", 0, 100, "share of 10 s in which all tasks waited for a CPU", 5),
        Metric("unit.io_pressure_some", "%", "unit", 0, 100, "share of 10 s in which a task waited for a disk", 5),
        Metric("unit.io_pressure_full", "%", "unit", 0, 100, "share of 10 s in which all tasks waited for a disk", 5),
        Metric("unit.frozen", "0/1", "unit", 0, 1, "every process of the unit is frozen", 5),
        Metric("unit.tasks", "", "unit", 0, 1e9, "processes and threads of the unit", 5),
        Metric("unit.tasks_ratio", "ratio", "unit", 0, 1.5, "tasks divided by the unit's own limit (TasksMax=)", 5),
        _derived("workload.gpu_memory", "bytes", "workload", 0, 4096 * _GIB, "the most it uses on any one GPU", 5),
        _derived("workload.gpu_memory_ratio", "ratio", "workload", 0, 1e6, "that divided by its gpu_memory_limit", 5),
    )
}
