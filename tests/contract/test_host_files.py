"""protocols.HostFiles: the simulated host, a tree of files, and this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import Reading
from gpuwatch.simulation.host_readings import SimulatedHostFiles
from gpuwatch.system.host import RealHost
from gpuwatch.system.protocols import HostFiles
from tests.fakes.host_tree import HostTree

ELSEWHERE = {"host.oom_kills", "host.clock_synchronised", "host.uptime", "host.stuck_processes"}
OWN = {"host.driver_silent", "host.driver_mismatch", "host.store_failing", "host.acting_stopped"}  # gpuwatch's own
STALLS = ("memory", "cpu", "io")
OF_FILES = {
    "host.memory_total", "host.memory_available", "host.memory_available_ratio", "host.swap_total", "host.swap_used",
    "host.swap_used_ratio", "host.load_1m", "host.load_5m", "host.load_15m", "host.load_per_core",
    *(f"host.{kind}_{what}" for kind in STALLS
      for what in ("pressure_some", "pressure_full", "stalled_some", "stalled_full")),
}  # fmt: skip


def simulated(tmp_path: Path) -> HostFiles:
    return SimulatedHostFiles()


def tree(tmp_path: Path) -> HostFiles:
    here = HostTree(tmp_path)
    here.hwmon(0, "coretemp", "coretemp.0", temp1_input="45000", temp1_label="Package id 0", temp1_crit="100000")
    here.zone(0, "acpitz", temp="27800")
    return RealHost(here.proc, here.sys, here.run)


def machine(tmp_path: Path) -> HostFiles:
    return RealHost()


@pytest.fixture(params=[simulated, tree, machine])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostFiles]:
    make: Callable[[Path], HostFiles] = request.param
    host = make(tmp_path)
    yield host
    host.close()


def plausible(name: str, reading: Reading) -> bool:
    return reading.value is None or METRICS[name].plausible(reading.value)


def test_every_metric_of_the_host_has_a_place() -> None:
    of_host = {name for name, metric in METRICS.items() if metric.scope == "host"}
    assert of_host - ELSEWHERE - OWN >= OF_FILES
    assert of_host >= OF_FILES


def test_quick_gives_the_same_metrics_everywhere(host: HostFiles) -> None:
    readings = host.quick()
    assert set(readings) == OF_FILES
    assert all(plausible(name, reading) for name, reading in readings.items())
    assert not any(reading.failed for reading in readings.values())
    memory = readings["host.memory_available_ratio"].value
    assert memory is not None and 0 < memory <= 1


def test_quick_can_be_asked_again(host: HostFiles) -> None:
    total = host.quick()["host.memory_total"]
    assert host.quick()["host.memory_total"] == total
    host.close()
    assert host.quick()["host.memory_total"] == total


def test_counters(host: HostFiles) -> None:
    for name, reading in (
        ("host.oom_kills", host.oom_kills()),
        ("host.clock_synchronised", host.clock_synchronised()),
    ):
        assert not reading.unsupported
        assert plausible(name, reading)


def test_a_path_has_a_file_system(host: HostFiles) -> None:
    by_letters = host.mounts(["/", "/no/such/directory"])
    assert set(by_letters) == {"/", "/no/such/directory"}
    root = by_letters["/"]
    assert (root.mount, root.readings) == ("/", {})
    assert root.kind and root.device.count(":") == 1
    asked = host.space("/no/such/directory")
    assert (asked.mount, asked.device) == ("/", root.device)
    assert set(asked.readings) == {name for name, metric in METRICS.items() if metric.scope == "filesystem"}
    assert all(plausible(name, reading) for name, reading in asked.readings.items())
    assert (asked.readings["host.disk_size"].value or 0) > (asked.readings["host.disk_free"].value or 0) > 0


def test_chips_have_sensors(host: HostFiles) -> None:
    keys = []
    for chip in host.chips():
        for sensor in host.sensors(chip):
            keys.append(sensor.key)
            assert sensor.chip
            assert sensor.readings
            assert all(METRICS[name].scope == "sensor" for name in sensor.readings)
            assert all(plausible(name, reading) for name, reading in sensor.readings.items())
    assert len(keys) == len(set(keys))
    assert host.sensors("no such chip") == ()


def test_nobody_is_stuck(host: HostFiles) -> None:
    assert host.stuck((os.getpid(), 2**22 + 1)).threads == ()
