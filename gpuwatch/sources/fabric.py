"""NVIDIA's fabric manager, where there is an NVSwitch: does it run, and is it of the driver's version?

GPUs behind NVSwitch can't be used while it does not run, and it must be of exactly the driver's version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional

from gpuwatch.model.errors import SourceError
from gpuwatch.model.gpu import GpuReport
from gpuwatch.model.instant import Instant
from gpuwatch.system.protocols import Systemd, Task, UnitFacts, Worker

UNIT = "nvidia-fabricmanager.service"
EVERY_S = 60.0


@dataclass(frozen=True)
class FabricManager:
    """`state` is systemd's ActiveState, "" while it was not asked; `version` "" where it can't be told.
    `matches`: None while nobody can say."""

    state: str = ""
    version: str = ""
    matches: Optional[bool] = None
    problem: str = ""


class FabricSource:
    """Asks once a minute, on a worker's thread, and only on hosts with an NVSwitch fabric."""

    def __init__(self, systemd: Systemd, ask_version: Callable[[], str], hands: Worker) -> None:
        """`ask_version` gives the program's own words ("Fabric Manager version is : 580.65.06"); raises SourceError."""
        self._systemd, self._ask_version, self._hands = systemd, ask_version, hands
        self._asked: Optional[Instant] = None
        self._task: Optional[Task[tuple[UnitFacts, str]]] = None
        self._known = FabricManager()

    def observe(self, report: GpuReport, now: Instant) -> Optional[FabricManager]:
        """What is known; None on a host without a fabric. Never blocks."""
        if not has_fabric(report):
            return None
        if self._task is not None and self._task.done():
            task, self._task = self._task, None
            try:
                self._known = _judged(*task.result(), report.driver_version)
            except SourceError as error:
                self._known = FabricManager(problem=str(error))
        age = None if self._asked is None else now.since(self._asked)
        if self._task is None and (age is None or age >= EVERY_S):
            self._asked = now
            self._task = self._hands.submit(self._ask)
        return self._known

    def _ask(self) -> tuple[UnitFacts, str]:
        facts = self._systemd.unit(UNIT)
        if facts.load_state != "loaded":
            return facts, ""
        try:
            return facts, self._ask_version()
        except SourceError:
            return facts, ""  # it runs or not, whatever the program says


def has_fabric(report: GpuReport) -> bool:
    """True when a GPU of this host is made to join an NVSwitch fabric."""
    return any(
        reading is not None and reading.value is not None
        for reading in (sample.reading("gpu.fabric_state") for sample in report.samples)
    )


def _judged(facts: UnitFacts, said: str, driver_version: str) -> FabricManager:
    if facts.load_state != "loaded":
        return FabricManager(state="missing", problem=f"{UNIT} is not installed ({facts.load_state})")
    version = next((word for word in said.replace(":", " ").split() if word[:1].isdigit() and "." in word), "")
    matches = None if not version or not driver_version else version == driver_version
    problem = "" if facts.active_state == "active" else f"{UNIT} is {facts.active_state}"
    if matches is False:
        problem = problem or f"fabric manager {version} with driver {driver_version}: they must be of one version"
    return FabricManager(facts.active_state, version, matches, problem)
