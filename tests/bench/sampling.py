"""What one sampling pass over eight GPUs costs the daemon and its child, over the fake driver library."""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from gpuwatch.model.gpu import DriverState
from gpuwatch.system.nvml.client import NvmlClient
from tests.bench.processes import memory_of
from tests.bench.table import Row, median
from tests.fakes.nvml.bench import NvmlBench, sample_until

PASSES = 300


def run() -> Sequence[Row]:
    """With and without process lists; beside as many reads of six files of /proc."""
    with tempfile.TemporaryDirectory(prefix="gpuwatch-bench-") as place:
        bench = NvmlBench(Path(place))
        for index in range(8):
            bench.scenario.processes(index, [(os.getpid(), 30 << 30)])
        client = bench.client()
        try:
            sample_until(client, lambda report: report.state is DriverState.OK)
            return [*passes(client, bench.pids[-1], False), *passes(client, bench.pids[-1], True), *memory(bench)]
        finally:
            bench.close()


def passes(client: NvmlClient, pid: int, with_processes: bool) -> list[Row]:
    """Wall time of a pass as the cycle sees it, CPU time on both sides."""
    what = "with process lists" if with_processes else "readings"
    walls, child, own = [], cpu_ms(pid), own_cpu_ms()
    for _ in range(PASSES):
        began = time.perf_counter()
        client.sample(with_processes, False, 1.0)
        walls.append((time.perf_counter() - began) * 1000)
    child, own = (cpu_ms(pid) - child) / PASSES, (own_cpu_ms() - own) / PASSES
    files = proc_ms()
    return [
        Row(f"{what}: until the report is there", median(walls), "ms"),
        Row(f"{what}: CPU of the child", child, "ms", files, "reading six files of /proc anew"),
        Row(f"{what}: CPU of the daemon", own, "ms", files, "reading six files of /proc anew"),
    ]


def memory(bench: NvmlBench) -> list[Row]:
    """Of the child."""
    rss, pss, anon = memory_of(bench.pids[-1])
    return [
        Row("the child: RSS", rss, "MiB"),
        Row("the child: PSS", pss, "MiB"),
        Row("the child: anonymous", anon, "MiB"),
    ]


def cpu_ms(pid: int) -> float:
    """Of a process since its start."""
    return int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[0]) / 1e6


def own_cpu_ms() -> float:
    """Of this one."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1000


def proc_ms() -> float:
    """A yardstick."""
    names = ("meminfo", "loadavg", "stat", "vmstat", "uptime", "self/stat")
    began = own_cpu_ms()
    for _ in range(PASSES):
        for name in names:
            Path("/proc", name).read_bytes()
    return (own_cpu_ms() - began) / PASSES
