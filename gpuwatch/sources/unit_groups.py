"""Which units of workloads run, and in which control groups: also those without a process on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from gpuwatch.model.errors import SourceError
from gpuwatch.model.instant import Instant
from gpuwatch.model.units import matches, refusal
from gpuwatch.system.protocols import ListedUnit, Systemd, Task, Worker

EVERY_S = 10.0
CHANGED_EVERY_S = 2.0  # while other globs wait for their first answer
TRUSTED_S = 30.0
_EARLY_S = 0.2  # cycles don't begin to the millisecond


class UnitGroups:
    """Asks systemd on a Worker, one question at a time; `problem` is why the newest one was not answered."""

    def __init__(self, systemd: Systemd, worker: Worker) -> None:
        self._systemd, self._worker = systemd, worker
        self._task: Optional[Task[tuple[ListedUnit, ...]]] = None
        self._asked: Optional[Instant] = None
        self._asked_for: tuple[str, ...] = ()
        self._known: tuple[ListedUnit, ...] = ()
        self._known_at: Optional[Instant] = None  # when it was asked for
        self.problem = ""

    def observe(self, globs: tuple[str, ...], now: Instant) -> Mapping[str, str]:
        """The control group of each running unit that a glob names and that may be a workload at all, by unit.

        Never blocks: what was known is told until it is TRUSTED_S old.
        """
        self._take_in()
        if globs and self._due(globs, now):
            self._asked, self._asked_for = now, globs
            self._task = self._worker.submit(lambda: self._systemd.units(globs))
            self._take_in()  # a worker that runs its jobs at once has the answer already
        age = _age_s(self._known_at, now)
        if age is None or age > TRUSTED_S:
            return {}
        return {
            unit.name: unit.control_group
            for unit in self._known
            if unit.control_group and matches(unit.name, globs) and refusal(unit.name) is None
        }

    def _take_in(self) -> None:
        if self._task is None or not self._task.done():
            return
        task, self._task = self._task, None
        try:
            self._known, self._known_at, self.problem = task.result(), self._asked, ""
        except SourceError as error:
            self.problem = str(error)

    def _due(self, globs: tuple[str, ...], now: Instant) -> bool:
        if self._task is not None:
            return False
        age = _age_s(self._asked, now)
        return age is None or age >= (EVERY_S if globs == self._asked_for else CHANGED_EVERY_S) - _EARLY_S


def _age_s(since: Optional[Instant], now: Instant) -> Optional[float]:
    """None when it never was, or in another boot."""
    return None if since is None else now.since(since)
