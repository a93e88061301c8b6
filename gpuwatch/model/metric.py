"""Every metric a rule can name, declared once: unit, scope, and what is plausible at all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """`low`..`high` is the plausible range, ends included; a value outside it is a failed reading."""

    name: str
    unit: str
    scope: str  # gpu | host
    low: float
    high: float
    text: str  # what it is, for the manual and for error messages


_GIB = 1024.0**3

METRICS = {
    metric.name: metric
    for metric in (
        Metric("gpu.temperature", "C", "gpu", 1, 125, "GPU core temperature"),
        Metric("gpu.memory_temperature", "C", "gpu", 1, 125, "memory (HBM, GDDR6X) temperature"),
        Metric("gpu.slowdown_margin", "C", "gpu", -60, 125, "degrees left to the card's own slowdown point"),
        Metric("gpu.shutdown_margin", "C", "gpu", -60, 125, "degrees left to the card's own shutdown point"),
        Metric("gpu.utilisation", "%", "gpu", 0, 100, "share of time in which a kernel ran"),
        Metric("gpu.memory_utilisation", "%", "gpu", 0, 100, "share of time in which memory was read or written"),
        Metric("gpu.memory_total", "bytes", "gpu", 1, 4096 * _GIB, "memory of the card"),
        Metric("gpu.memory_reserved", "bytes", "gpu", 0, 4096 * _GIB, "memory reserved by the driver"),
        Metric("gpu.memory_used", "bytes", "gpu", 0, 4096 * _GIB, "memory in use, without the driver's own"),
        Metric("gpu.memory_used_ratio", "ratio", "gpu", 0, 1, "used divided by total memory"),
        Metric("gpu.power", "W", "gpu", 0, 5000, "power draw of the board"),
        Metric("gpu.power_limit", "W", "gpu", 0, 5000, "power limit in force"),
        Metric("gpu.power_ratio", "ratio", "gpu", 0, 5, "power draw divided by the limit in force"),
        Metric("gpu.hw_thermal_slowdown", "0/1", "gpu", 0, 1, "the hardware slows the clocks because of heat"),
        Metric("gpu.sm_clock", "MHz", "gpu", 0, 10000, "clock of the multiprocessors"),
        Metric("gpu.fan", "%", "gpu", 0, 200, "fan speed as intended by the card"),
        Metric("gpu.lost", "0/1", "gpu", 0, 1, "the driver can no longer reach the card"),
        Metric("host.driver_silent", "s", "host", 0, 1e9, "how long the GPU driver has not answered"),
        Metric("host.driver_mismatch", "0/1", "host", 0, 1, "driver library and kernel module differ in version"),
        Metric("host.store_failing", "s", "host", 0, 1e9, "how long gpuwatch's own state could not be written to disk"),
        Metric("host.acting_stopped", "0/1", "host", 0, 1, "an action is wanted and the budget of actions is spent"),
        Metric("host.memory_available_ratio", "ratio", "host", 0, 1, "MemAvailable divided by MemTotal"),
    )
}
