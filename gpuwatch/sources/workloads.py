"""Memory, pressure, freezer and tasks of the units that belong to workloads, from their control groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from gpuwatch.model.host import UnitReadings, WorkloadReport
from gpuwatch.model.instant import Instant
from gpuwatch.model.metric import METRICS
from gpuwatch.sources.every import Every
from gpuwatch.system.protocols import UnitFiles

UNITS_EVERY_S = METRICS["unit.memory"].every_s
MOST_UNITS = 200


class WorkloadSource:
    """Reads a dozen small files a unit each 5 s; what is asked in between is answered from the last look."""

    def __init__(self, files: UnitFiles) -> None:
        self._files = files
        self._every = Every(UNITS_EVERY_S)
        self._names: frozenset[str] = frozenset()
        self._report: Optional[WorkloadReport] = None

    def observe(self, units: Mapping[str, str], now: Instant) -> WorkloadReport:
        """`units`: the ControlGroup of each running leaf unit, by name. A unit without a cgroup is left out."""
        if self._every.due(now) or self._report is None or not units.keys() <= self._names:
            self._names = frozenset(units)
            found = ((unit, group, self._files.readings(group)) for unit, group in list(units.items())[:MOST_UNITS])
            self._report = WorkloadReport(
                now, tuple(UnitReadings(unit, group, readings) for unit, group, readings in found if readings)
            )
        elif units.keys() != self._names:  # some have ended
            self._names = frozenset(units)
            left = tuple(each for each in self._report.units if each.unit in units)
            self._report = WorkloadReport(self._report.taken, left)
        return self._report
