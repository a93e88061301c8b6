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
    """Asks once a minute, and only on hosts with an NVSwitch fabric.

    systemd is asked on `hands`, which owns the bus; the program runs on `elsewhere`: the thread that stops units
    must not wait for it.
    """

    def __init__(self, systemd: Systemd, ask_version: Callable[[], str], hands: Worker, elsewhere: Worker) -> None:
        """`ask_version` gives the program's own words ("Fabric Manager version is : 580.65.06"); raises SourceError."""
        self._systemd, self._ask_version, self._hands, self._elsewhere = systemd, ask_version, hands, elsewhere
        self._asked: Optional[Instant] = None
        self._state: Optional[Task[UnitFacts]] = None
        self._version: Optional[Task[str]] = None
        self._known = FabricManager()

    def observe(self, report: GpuReport, now: Instant) -> Optional[FabricManager]:
        """What is known; None on a host without a fabric. Never blocks."""
        if not has_fabric(report):
            return None
        if self._state is not None and self._version is not None and self._state.done() and self._version.done():
            self._known = _answered(self._state, self._version, report.driver_version)
            self._state = self._version = None
        age = None if self._asked is None else now.since(self._asked)
        if self._state is None and (age is None or age >= EVERY_S):
            self._asked = now
            self._state = self._hands.submit(lambda: self._systemd.unit(UNIT))
            self._version = self._elsewhere.submit(self._ask_version)
        return self._known


def _answered(state: Task[UnitFacts], version: Task[str], driver_version: str) -> FabricManager:
    try:
        facts = state.result()
    except SourceError as error:
        return FabricManager(problem=str(error))
    try:
        said = version.result()
    except SourceError:
        said = ""  # it runs or not, whatever the program says
    return _judged(facts, said, driver_version)


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
