"""No rule may be about a metric that nothing feeds: each one reaches the rules, through a whole gpuwatch.

Two rules a metric, "above its lowest" and "below its highest": whatever number arrives, one of them fires.
What the driver itself tells of a GPU is left to tests/integration/test_every_gpu_metric.py.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import value
from gpuwatch.model.rule import Clear, Rule, Severity, Threshold
from gpuwatch.simulation.host import TRAINING
from gpuwatch.system.host import RealHost
from gpuwatch.system.unit_files import CgroupFiles
from tests.fakes.host_tree import HostTree
from tests.scenarios.bench import Bench

JUDGED = {name for name, metric in METRICS.items() if metric.scope != "gpu" or metric.derived}
STALL = "some avg10=2.50 avg60=0.00 avg300=0.00 total=12\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=5"
CGROUP = {
    "cgroup.events": "populated 1\nfrozen 0",
    "memory.current": "600",
    "memory.max": "800",
    "memory.peak": "700",
    "memory.swap.current": "1",
    "memory.stat": "anon 1\ninactive_file 200",
    "memory.events": "oom 2\noom_kill 1",
    "memory.pressure": STALL,
    "cpu.pressure": STALL,
    "io.pressure": STALL,
    "pids.current": "24",
    "pids.max": "96",
}


def rules() -> tuple[Rule, ...]:
    found = []
    for name in sorted(JUDGED):
        metric = METRICS[name]
        for word, limit in (("above", Threshold(above=metric.low)), ("below", Threshold(below=metric.high))):
            found.append(Rule(f"{name} {word}", Severity.INFO, metric=name, threshold=limit, clear=Clear(limit, 60.0)))
    return tuple(found)


def fed(bench: Bench) -> set[str]:
    """The metrics that some rule was judged by."""
    return {alert.rule.partition(" ")[0] for alert in bench.assembly.cycle.seen.policy.alerts.values()}


def test_every_metric_reaches_the_rules(tmp_path: Path) -> None:
    tree = HostTree(tmp_path / "tree")
    tree.hwmon(
        0,
        "nct6798",
        "nct6775.656",
        temp1_input="45000",
        temp1_crit="100000",
        fan1_input="1200",
        power1_average="250000000",
    )
    tree.unit(f"/system.slice/{TRAINING.unit.name}", **CGROUP)
    host = RealHost(tree.proc, tree.sys, tree.run)
    bench = Bench(tmp_path, host_files=host, unit_files=CgroupFiles(tree.cgroup))
    cycle = bench.assembly.cycle
    limited = tuple(replace(each, gpu_memory_limit=2**30) for each in cycle.settings.workloads)
    cycle.reload(replace(cycle.settings, rules=rules(), workloads=limited))
    bench.host.cards.work(0, True)
    bench.host.cards.set_reading(0, "gpu.fan", value(40))
    bench.host.cards.set_reading(0, "gpu.fabric_state", value(2))  # it waits for a fabric manager
    bench.run(130, step_s=5)  # PCIe is judged after two minutes of load
    end = time.monotonic() + 20  # the questions to disks and sensors are answered by threads
    bench.run(6)
    bench.host.cards.silence(True)  # a reason to look for processes that hang
    while JUDGED - fed(bench) and time.monotonic() < end:
        bench.run(3)
    assert JUDGED - fed(bench) == set()
