"""The last two minutes of each GPU, for judgements that a single sample can't bear."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from gpuwatch.model.gpu import DriverState, GpuReport, GpuSample
from gpuwatch.model.instant import Instant
from gpuwatch.model.trace import Trace, TracePoint

WINDOW_S = 120.0
MOST_POINTS = 130
_READ = {
    "temperature": "gpu.temperature",
    "memory_temperature": "gpu.memory_temperature",
    "power": "gpu.power",
    "energy": "gpu.energy",
    "sm_clock": "gpu.sm_clock",
    "memory_clock": "gpu.memory_clock",
    "utilisation": "gpu.utilisation",
    "fan": "gpu.fan",
}
_GONE = (DriverState.ABSENT, DriverState.NO_LIBRARY, DriverState.MISMATCH, DriverState.FAILED, DriverState.RELEASED)


class Traces:
    """One point a new sample. Starts anew for a card that was lost or not listed, and with another driver or boot."""

    def __init__(self) -> None:
        self._points: dict[str, deque[TracePoint]] = {}
        self._driver = ""

    def add(self, report: GpuReport) -> None:
        """Take in a report; samples that were taken in before are left out."""
        if report.state in _GONE:
            self._points.clear()
        if report.state is not DriverState.OK:
            return
        if report.driver_version != self._driver:
            self._points.clear()
            self._driver = report.driver_version
        there = {sample.uuid for sample in report.samples if sample.lost is None}
        for uuid in self._points.keys() - there:
            del self._points[uuid]
        for sample in report.samples:
            taken = report.taken_of(sample)
            if sample.lost is None and taken is not None:
                self._take(sample.uuid, _point(sample, taken))

    def _take(self, uuid: str, point: TracePoint) -> None:
        points = self._points.setdefault(uuid, deque(maxlen=MOST_POINTS))
        if points:
            age = point.taken.since(points[-1].taken)
            if age is not None and age <= 0:
                return
            if age is None or _loaded_anew(points[-1], point):
                points.clear()
        points.append(point)
        while points[0].taken.boottime_s < point.taken.boottime_s - WINDOW_S:
            points.popleft()

    def of(self) -> Mapping[str, Trace]:
        """By UUID. After a pause the points from before it are still there, as long as they are young enough."""
        return {uuid: Trace(tuple(points)) for uuid, points in self._points.items()}


def _loaded_anew(before: TracePoint, after: TracePoint) -> bool:
    """The driver counts energy since it was loaded."""
    return before.energy is not None and after.energy is not None and after.energy < before.energy


def _point(sample: GpuSample, taken: Instant) -> TracePoint:
    found = {}
    for name, metric in _READ.items():
        reading = sample.readings.get(metric)
        if reading is not None:
            found[name] = reading.value
    return TracePoint(taken, **found)
