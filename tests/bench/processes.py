"""What processes cost, as the kernel counts it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """Over a span of time: CPU and wake-ups a minute; at its end: memory in MiB."""

    cpu_ms: float
    wakeups: float
    rss: float
    pss: float
    anon: float


def cost(pids: Iterable[int], seconds: float) -> Cost:
    """Of all these processes together."""
    before = {pid: _used(pid) for pid in pids}
    began = time.monotonic()
    time.sleep(seconds)
    minutes = (time.monotonic() - began) / 60
    cpu_ns = wakeups = 0
    memory = [0.0, 0.0, 0.0]
    for pid, then in before.items():
        now = _used(pid)
        cpu_ns, wakeups = cpu_ns + now[0] - then[0], wakeups + now[1] - then[1]
        memory = [total + own for total, own in zip(memory, memory_of(pid))]
    return Cost(cpu_ns / 1e6 / minutes, wakeups / minutes, *memory)


def memory_of(pid: int) -> tuple[float, float, float]:
    """RSS, PSS and anonymous memory in MiB."""
    fields = {"Rss": 0.0, "Pss": 0.0, "Anonymous": 0.0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines():
        name, _, rest = line.partition(":")
        if name in fields:
            fields[name] = int(rest.split()[0]) / 1024
    return fields["Rss"], fields["Pss"], fields["Anonymous"]


def _used(pid: int) -> tuple[int, int]:
    """CPU time in ns and voluntary switches (each ends with a wake-up), of all threads."""
    cpu_ns = switches = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            cpu_ns += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text("ascii").split()[0])
            for line in Path(f"/proc/{pid}/task/{task}/status").read_text("utf-8").splitlines():
                if line.startswith("voluntary_ctxt_switches"):
                    switches += int(line.split()[1])
    except OSError:
        pass  # it has ended
    return cpu_ns, switches
