"""The fabric manager: asked only where there is an NVSwitch, judged by state and version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.model.errors import SourceError
from gpuwatch.model.reading import UNSUPPORTED, value
from gpuwatch.simulation.systemd import SimulatedSystemd, SimulatedUnit
from gpuwatch.sources.fabric import EVERY_S, UNIT, FabricManager, FabricSource
from gpuwatch.system.worker import InlineWorker
from tests.fakes.clock import FakeClock
from tests.fakes.story import gpu, report

SAYS = "Fabric Manager version is : 580.65.06"


class Host:
    def __init__(self, joined: bool = True, said: str = SAYS, installed: bool = True) -> None:
        self.clock, self.said, self.asked = FakeClock(), said, 0
        self.systemd = SimulatedSystemd(self.clock, [SimulatedUnit(UNIT)] if installed else [])
        self.source = FabricSource(self.systemd, self._version, InlineWorker(), InlineWorker())
        self.sample = replace(gpu(0), slow={"gpu.fabric_state": value(3) if joined else UNSUPPORTED})

    def _version(self) -> str:
        self.asked += 1
        if not self.said:
            raise SourceError("nv-fabricmanager: no such program")
        return self.said

    def look(self, seconds: float = 1.0) -> FabricManager | None:
        self.clock.advance(seconds)
        return self.source.observe(report(self.clock.now(), self.sample), self.clock.now())


def test_a_host_without_nvswitch_is_not_asked() -> None:
    host = Host(joined=False)
    assert host.look() is None
    assert host.asked == 0


def test_it_runs_and_is_of_the_drivers_version() -> None:
    host = Host()
    host.look()
    assert host.look() == FabricManager("active", "580.65.06", True, "")


def test_once_a_minute_is_enough() -> None:
    host = Host()
    for _ in range(50):
        host.look()
    assert host.asked == 1
    host.look(EVERY_S)
    assert host.asked == 2


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (Host(said="Fabric Manager version is : 570.1.2"), "must be of one version"),
        (Host(installed=False), "is not installed"),
    ],
)
def test_what_is_wrong_is_said(host: Host, words: str) -> None:
    host.look()
    known = host.look()
    assert known is not None and words in known.problem


def test_stopped_and_a_silent_systemd() -> None:
    host = Host()
    host.systemd.end(UNIT)
    host.look()
    known = host.look()
    assert known is not None and known.problem.startswith(UNIT)
    host.systemd.silence(True)
    host.look(EVERY_S)
    known = host.look()
    assert known is not None and known.problem == "systemd does not answer"


def test_a_program_that_tells_no_version_is_no_problem() -> None:
    host = Host(said="")
    host.look()
    assert host.look() == FabricManager("active", "", None, "")


def test_the_thread_that_stops_units_never_waits_for_the_program() -> None:
    host = Host()
    hands: list[object] = []

    class Hands(InlineWorker):
        def submit(self, job: Callable[[], Any]) -> Any:
            hands.append(job())
            return super().submit(job)

    host.source = FabricSource(host.systemd, host._version, Hands(), InlineWorker())
    host.look()
    assert host.asked == 1
    assert [type(each).__name__ for each in hands] == ["UnitFacts"]
