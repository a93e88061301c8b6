"""protocols.UnitFiles: simulated, a tree of files, and real control groups of a booted systemd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Callable, Optional

import pytest

from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import UNSUPPORTED, Reading, value
from gpuwatch.simulation.host_readings import SimulatedUnitFiles
from gpuwatch.system.protocols import UnitFiles
from gpuwatch.system.unit_files import CgroupFiles
from tests.fakes.host_tree import HostTree
from tests.lab.nspawn import Container
from tests.lab.waiting import wait_for

GROUP = "/system.slice/train@a.service"
GIB = 1024**3
OF_UNITS = {name for name, metric in METRICS.items() if metric.scope == "unit" and not metric.derived}
STALL = "some avg10=2.50 avg60=0.00 avg300=0.00 total=12\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=5"
FILES = {
    "cgroup.events": "populated 1\nfrozen 0",
    "memory.current": str(6 * GIB),
    "memory.max": str(8 * GIB),
    "memory.peak": str(7 * GIB),
    "memory.swap.current": "0",
    "memory.stat": f"anon 1\nfile 2\ninactive_anon 5\nactive_anon 1\ninactive_file {2 * GIB}\nworkingset 3",
    "memory.events": "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0",
    "memory.pressure": STALL,
    "cpu.pressure": STALL,
    "io.pressure": STALL,
    "pids.current": "24",
    "pids.max": "96",
}


def tree(tmp_path: Path, **changes: Optional[str]) -> CgroupFiles:
    """A unit's cgroup with all controllers, changed: None takes a file away."""
    here = HostTree(tmp_path)
    files = {**FILES, **{name.replace("__", "."): text for name, text in changes.items()}}
    here.unit(GROUP, **{name: text for name, text in files.items() if text is not None})
    return CgroupFiles(here.cgroup)


def of_tree(tmp_path: Path) -> UnitFiles:
    return tree(tmp_path)


def simulated(tmp_path: Path) -> UnitFiles:
    files = SimulatedUnitFiles()
    files.put(GROUP, used=4 * GIB, limit=8 * GIB)
    return files


@pytest.mark.parametrize("make", [simulated, of_tree])
class TestEveryAdapter:
    def test_a_unit_has_all_readings(self, make: Callable[[Path], UnitFiles], tmp_path: Path) -> None:
        readings = make(tmp_path).readings(GROUP)
        assert readings is not None
        assert set(readings) == OF_UNITS
        assert not any(reading.failed for reading in readings.values())
        assert readings["unit.memory_used"] == value(4 * GIB)
        assert readings["unit.memory_used_ratio"] == value(0.5)
        for name, reading in readings.items():
            assert reading.value is None or METRICS[name].plausible(reading.value)

    @pytest.mark.parametrize("group", ["", "/system.slice/none.service", "relative", "/../proc"])
    def test_what_is_no_cgroup(self, make: Callable[[Path], UnitFiles], tmp_path: Path, group: str) -> None:
        assert make(tmp_path).readings(group) is None


class TestCgroupFiles:
    """What only the real one has to know."""

    def read(self, tmp_path: Path, **changes: Optional[str]) -> dict[str, Reading]:
        return dict(tree(tmp_path, **changes).readings(GROUP) or {})

    def test_figures(self, tmp_path: Path) -> None:
        readings = self.read(tmp_path)
        assert readings["unit.memory"] == value(6 * GIB)
        assert readings["unit.memory_used"] == value(4 * GIB)  # without 2 GiB of inactive file pages
        assert readings["unit.memory_peak"] == value(7 * GIB)
        assert readings["unit.oom_kills"] == value(1)
        assert readings["unit.memory_pressure_some"] == value(2.5)
        assert readings["unit.io_pressure_full"] == value(1.0)
        assert readings["unit.frozen"] == value(0)
        assert readings["unit.tasks"] == value(24)
        assert readings["unit.tasks_ratio"] == value(0.25)

    def test_no_limits(self, tmp_path: Path) -> None:
        readings = self.read(tmp_path, memory__max="max", pids__max="max")
        assert readings["unit.memory_used"] == value(4 * GIB)
        for name in ("unit.memory_max", "unit.memory_used_ratio", "unit.tasks_ratio"):
            assert readings[name] == UNSUPPORTED

    def test_a_limit_of_nothing(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, memory__max="0")["unit.memory_used_ratio"] == UNSUPPORTED

    def test_more_idle_cache_than_memory(self, tmp_path: Path) -> None:
        """The two files are read one after the other."""
        readings = self.read(tmp_path, memory__current=str(GIB))
        assert readings["unit.memory_used"] == value(0)

    def test_without_controllers(self, tmp_path: Path) -> None:
        none = {name.replace(".", "__"): None for name in FILES if name != "cgroup.events"}
        readings = self.read(tmp_path, **none)
        assert readings["unit.frozen"] == value(0)
        assert {name for name, reading in readings.items() if reading.unsupported} == OF_UNITS - {"unit.frozen"}

    def test_an_older_kernel(self, tmp_path: Path) -> None:
        readings = self.read(
            tmp_path, memory__peak=None, cgroup__events="populated 1", cpu__pressure=STALL.split("\n")[0]
        )
        for name in ("unit.memory_peak", "unit.frozen", "unit.cpu_pressure_full"):
            assert readings[name] == UNSUPPORTED
        assert readings["unit.cpu_pressure_some"] == value(2.5)

    def test_files_that_hold_something_else(self, tmp_path: Path) -> None:
        readings = self.read(tmp_path, memory__current="much", memory__pressure="none", pids__current="")
        for name in ("unit.memory", "unit.memory_used", "unit.memory_used_ratio", "unit.memory_pressure_some"):
            assert readings[name].failed
        assert readings["unit.tasks_ratio"].failed
        assert readings["unit.oom_kills"] == value(1)  # each by itself

    def test_memory_without_its_statistics_is_not_all_in_use(self, tmp_path: Path) -> None:
        readings = self.read(tmp_path, memory__stat="anon 5")
        assert readings["unit.memory_used"].failed
        assert readings["unit.memory"] == value(6 * GIB)

    def test_a_frozen_unit(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, cgroup__events="populated 1\nfrozen 1")["unit.frozen"] == value(1)


@pytest.fixture
def unit(booted: Container) -> Iterator[str]:
    """A unit that only sleeps, in a booted systemd."""
    name = "host-files-test.service"
    booted.run("systemd-run", "--quiet", f"--unit={name}", "sleep", "120")
    yield name
    booted.run("systemctl", "stop", name, check=False)


def cgroup_below(booted: Container, unit: str) -> tuple[CgroupFiles, str]:
    """Its control group as it is seen out here: the container has a cgroup namespace."""
    inside = booted.show(unit, "ControlGroup")["ControlGroup"]
    return CgroupFiles(str(booted.root / "sys/fs/cgroup")), inside


@pytest.mark.root
@pytest.mark.namespaces
def test_a_unit_of_a_real_systemd(booted: Container, unit: str) -> None:
    """Frozen, thawed, stopped. The lab's kernel gives the container no memory controller: unsupported, not failed."""
    files, group = cgroup_below(booted, unit)

    def frozen() -> Optional[float]:
        readings = files.readings(group)
        assert readings is not None
        assert set(readings) == OF_UNITS
        assert not [name for name, reading in readings.items() if reading.failed]
        return readings["unit.frozen"].value

    assert frozen() == 0.0
    booted.run("systemctl", "freeze", unit)
    wait_for(lambda: frozen() == 1.0)
    booted.run("systemctl", "thaw", unit)
    wait_for(lambda: frozen() == 0.0)
    booted.run("systemctl", "stop", unit)
    wait_for(lambda: files.readings(group) is None)
