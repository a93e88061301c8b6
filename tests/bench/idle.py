"""CPU, wake-ups and memory of the quiet daemon with its children, beside another daemon in the same minute."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.installed import installed, pids
from tests.bench.processes import Cost, cost
from tests.bench.table import Row
from tests.lab.gpu_host import GpuHost
from tests.lab.waiting import wait_for

SETTLE_S, MEASURE_S = 15.0, float(os.environ.get("GPUWATCH_BENCH_S", "60"))
PEER = "/usr/bin/earlyoom"


def run() -> Sequence[Row]:
    """GPUWATCH_BENCH_S changes how long is measured."""
    with installed() as host:
        host.start()
        peer = start_peer(host)
        wait_for(lambda: len(pids(host, "gpuwatch.service")) >= 2, 20, "the driver's child runs")
        time.sleep(SETTLE_S)
        everybody = pids(host, "gpuwatch.service")
        groups: dict[str, list[int]] = {name_of(pid): [pid] for pid in everybody}
        groups["all of gpuwatch"] = everybody
        if peer:
            groups["earlyoom"] = peer
        return rows(side_by_side(groups))


def start_peer(host: GpuHost) -> list[int]:
    """A small daemon that looks once a second, in C; nothing when it is not installed here."""
    if not os.path.exists(PEER):
        return []
    shutil.copy(PEER, host.container.root / "usr/local/bin/earlyoom")
    host.container.run("systemd-run", "--quiet", "--unit=bench-peer", "/usr/local/bin/earlyoom", "--dryrun", "-r", "0")
    return pids(host, "bench-peer.service")


def name_of(pid: int) -> str:
    """What a process of gpuwatch is."""
    argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    module = next((each for each in argv if each.startswith("gpuwatch.")), "")
    return f"child {module.removeprefix('gpuwatch.')}" if module else "the daemon itself"


def side_by_side(groups: dict[str, list[int]]) -> dict[str, Cost]:
    """All groups over the same span."""
    found: dict[str, Cost] = {}

    def measure(name: str, members: Sequence[int]) -> None:
        found[name] = cost(members, MEASURE_S)

    threads = [threading.Thread(target=measure, args=each) for each in groups.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {name: found[name] for name in groups}


def rows(costs: dict[str, Cost]) -> list[Row]:
    """A row a figure; the ratio is to the peer's."""
    peer = costs.get("earlyoom")
    told = []
    for name, each in costs.items():
        for what, figure, unit in (
            ("CPU", each.cpu_ms, "ms/min"),
            ("wake-ups", each.wakeups, "/min"),
            ("RSS", each.rss, "MiB"),
            ("PSS", each.pss, "MiB"),
            ("anonymous", each.anon, "MiB"),
        ):
            beside = {"CPU": "cpu_ms", "wake-ups": "wakeups", "RSS": "rss", "PSS": "pss", "anonymous": "anon"}[what]
            against = getattr(peer, beside) if peer and name != "earlyoom" else None
            told.append(Row(f"{name}: {what}", figure, unit, against, "earlyoom" if against else ""))
    return told
