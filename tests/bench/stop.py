"""From a kernel line to a unit without processes, through the doorbell, beside a plain `systemctl stop`."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from tests.bench.installed import cgroup, installed
from tests.bench.table import Row, median
from tests.lab.gpu_host import GpuHost
from tests.lab.waiting import wait_for

TIMES = 7
UNIT = "burner@3.service"
CONFIG = """
mode: enforce
workloads: [{name: training, units: ["burner@*.service"]}]
budget: {destructive: 100, within: 10m}
rules:
  - {name: bench-xid, event: {kind: xid, codes: [94]}, severity: critical, ladder: [{do: [stop]}]}
"""
LINE = "NVRM: Xid (PCI:0000:48:00): 94, pid=7, name=python3, Contained: SM (0x1)"


def run() -> Sequence[Row]:
    """Medians over some rounds; the clock is the one that journald stamps with."""
    with installed() as host:
        plain = [by_hand(host) for _ in range(TIMES)]
        asked, gone = zip(*[by_gpuwatch(host) for _ in range(TIMES)])
        return [
            Row("kernel line to the manager's 'Stopping'", median(asked), "ms"),
            Row("kernel line to the last process gone", median(gone), "ms", median(plain), "systemctl stop"),
        ]


def by_hand(host: GpuHost) -> float:
    """From the command's start."""
    host.container.run("systemctl", "reset-failed", check=False)  # systemd counts starts
    host.burn(UNIT)
    group = cgroup(host, UNIT)
    began = time.monotonic()
    host.container.run("systemctl", "--no-block", "stop", UNIT)
    return (await_empty(group) - began) * 1000


def by_gpuwatch(host: GpuHost) -> tuple[float, float]:
    """From just before the kernel speaks: until PID 1 says that it stops the unit, and until it is empty."""
    host.reset()
    host.configure(CONFIG)
    host.start()
    host.burn(UNIT)
    group = cgroup(host, UNIT)
    time.sleep(7.0)  # process lists are read each five seconds; a stop needs one that knows the process
    began = time.monotonic()
    host.kernel_says(LINE)
    ended = await_empty(group)
    said = host.container.journal("-u", UNIT, "--grep", "Stopping", "-n", "1", "-q")
    match = re.search(r"\[ *([0-9.]+)\]", said)
    assert match is not None, f"nothing about a stop in the journal: {said}"
    return (float(match[1]) - began) * 1000, (ended - began) * 1000


def await_empty(group: object) -> float:
    """When the unit has no process left."""
    events = f"{group}/cgroup.events"

    def empty() -> bool:
        try:
            with open(events, encoding="ascii") as file:
                return "populated 0" in file.read()
        except OSError:
            return True

    wait_for(empty, 30, "the unit is stopped", every_s=0.0005)
    return time.monotonic()
