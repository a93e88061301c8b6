"""Kernel lines: the driver's are heard, forged ones are not (S10)."""

from __future__ import annotations

import time
from typing import Any, Callable

import pytest

from tests.fakes.nvml.scenario import pci
from tests.lab.gpu_host import GpuHost
from tests.lab.waiting import wait_for

XID_79 = f"NVRM: Xid (PCI:{pci(3)[4:-2].lower()}): 79, pid=1234, name=python, GPU has fallen off the bus."


def quiet(host: GpuHost, cycles: int = 4) -> None:
    """Let the daemon make some cycles and check that nothing came of them."""
    begun = host.status()["cycles"]
    wait_for(lambda: host.status()["cycles"] >= begun + cycles, 20, every_s=0.3)
    assert host.incidents() == []


def test_xid_of_the_driver_opens_an_incident_and_is_told(host: GpuHost) -> None:
    host.configure_robot()
    host.start()
    host.kernel_says(XID_79)
    (incident,) = wait_for(host.incidents, 15, "an incident", every_s=0.2)
    assert "79" in str(incident["incident"]["causes"])
    assert wait_for(host.robot.texts, 15, "a message", every_s=0.2)


def test_the_doorbell_wakes_the_reader_before_the_next_cycle(host: GpuHost) -> None:
    """journald passes a line on after up to half a second, a cycle comes each second: order, not speed."""
    host.start()
    began = time.monotonic()
    host.kernel_says(XID_79)
    wait_for(host.incidents, 10, every_s=0.05)
    assert time.monotonic() - began < 5


def by_logger(host: GpuHost) -> None:
    host.container.run("logger", "-t", "kernel", "-p", "kern.err", XID_79)


def by_kmsg(host: GpuHost) -> None:
    host.kernel_says(XID_79, facility=1)  # what a write to /dev/kmsg by user space gets


def by_stdout(host: GpuHost) -> None:
    host.container.unit("echo", XID_79, properties=["SyslogIdentifier=kernel"])


@pytest.mark.parametrize("forge", [by_logger, by_kmsg, by_stdout])
def test_forged_line_is_nothing(host: GpuHost, forge: Callable[[GpuHost], Any]) -> None:
    host.start()
    forge(host)
    quiet(host)


def test_a_line_read_after_a_restart_is_handled_once(host: GpuHost) -> None:
    host.start()
    host.container.run("systemctl", "stop", "gpuwatch.service")
    host.container.kmsg.write(XID_79)
    host.start()
    (incident,) = wait_for(host.incidents, 15, "an incident", every_s=0.2)
    host.container.run("systemctl", "restart", "gpuwatch.service")
    begun = host.status()["cycles"]
    wait_for(lambda: host.status()["cycles"] >= begun + 3, 20, every_s=0.3)
    (again,) = host.incidents()
    assert again["incident"]["number"] == incident["incident"]["number"]
    assert again["notifications"].keys() == incident["notifications"].keys()


def test_every_line_of_a_burst_is_kept_apart_by_gpu(host: GpuHost) -> None:
    host.start()
    for index in (1, 5):
        host.kernel_says(XID_79.replace(pci(3)[4:-2].lower(), pci(index)[4:-2].lower()))
    wait_for(lambda: len(host.incidents()) == 2, 15, "two incidents", every_s=0.2)
    assert len({each["incident"]["subject"]["id"] for each in host.incidents()}) == 2
