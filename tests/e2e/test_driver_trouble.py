"""A driver that hangs, a card that is lost, a driver that isn't there (S7, S14)."""

from __future__ import annotations

import time

from tests.lab.gpu_host import GpuHost
from tests.lab.waiting import wait_for


def cycles(host: GpuHost) -> int:
    return int(host.status()["cycles"])


def test_hanging_driver_never_stops_the_cycle_and_comes_back(host: GpuHost) -> None:
    host.configure_robot()
    host.start()
    host.scenario.hang(3600, index="*")
    for index in range(8):
        host.scenario.hang(3600, index=index)
    first, began = cycles(host), time.monotonic()
    silent = host.incident("driver-silent", timeout_s=30)
    took_s, done = time.monotonic() - began, cycles(host) - first
    assert done >= took_s * 0.7, f"{done} cycles in {took_s:.1f} s"
    asked = time.monotonic()
    assert host.status()["driver"]["state"] == "silent"
    assert time.monotonic() - asked < 1.5
    assert host.container.show("gpuwatch.service", "ActiveState", "NRestarts") == {
        "ActiveState": "active",
        "NRestarts": "0",
    }

    host.scenario.hang(None, index="*")
    for index in range(8):
        host.scenario.hang(None, index=index)
    number = str(silent["incident"]["number"])
    wait_for(lambda: host.status()["driver"]["state"] == "ok", 30, "the driver is back", every_s=0.3)
    wait_for(lambda: len(host.robot.texts()) == 2, 40, "one message of silence, one of its end", every_s=0.3)
    assert number in host.robot.texts()[0]


def test_stop_is_quick_with_a_child_stuck_in_the_driver(host: GpuHost) -> None:
    host.start()
    for index in range(8):
        host.scenario.hang(3600, index=index)
    wait_for(lambda: host.status()["driver"]["state"] == "silent", 20, "the driver is silent", every_s=0.3)
    began = time.monotonic()
    host.container.run("systemctl", "stop", "gpuwatch.service")
    assert time.monotonic() - began < 6.0
    assert host.container.run("pgrep", "-f", "gpuwatch.system.nvml.child", check=False).stdout == ""


def test_lost_gpu_is_told_and_the_others_go_on(host: GpuHost) -> None:
    host.start()
    host.scenario.lose(2)
    host.incident("gpu-lost", timeout_s=20)
    gpus = {each["index"]: each for each in host.status()["gpus"]}
    assert gpus[2]["lost"]
    for index in (0, 1, 3, 4, 5, 6, 7):
        assert gpus[index]["readings"]["gpu.temperature"]["value"] is not None, index


def test_without_a_driver_it_says_so_and_never_loads_it(host: GpuHost) -> None:
    version = host.container.root / "srv/lab/proc-driver/nvidia"
    aside = version.with_name("aside")
    version.rename(aside)
    try:
        host.start()
        assert "no NVIDIA driver" in host.container.show("gpuwatch.service", "StatusText")["StatusText"]
        host.kernel_says("NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus.")
        wait_for(host.incidents, 15, "the journal half goes on", every_s=0.2)
    finally:
        aside.rename(version)
