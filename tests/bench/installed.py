"""The installed product in a booted systemd, for benches that need it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.gpu_host import GpuHost
from tests.lab.refusal import unified_mount
from tests.lab.roots import ready_root
from tests.lab.wecom import Robot

TREE = Path(__file__).resolve().parents[2]


@contextmanager
def installed() -> Iterator[GpuHost]:
    """gpuwatch's package of this tree, on a host with eight cool GPUs."""
    subprocess.run(["make", "--no-print-directory", "-s", "fakes"], cwd=TREE, check=True)
    (TREE / "build").mkdir(exist_ok=True)
    subprocess.run(["bash", "packaging/build-deb"], cwd=TREE, check=True, stdout=subprocess.DEVNULL)
    (deb,) = (TREE / "dist").glob("gpuwatch_*_all.deb")
    library = TREE / "tests/fakes/nvml/build/libnvidia-ml.so.1"
    with tempfile.TemporaryDirectory(prefix="gpuwatch-bench-") as place, Robot() as robot:
        host = GpuHost(ready_root(), deb, library, robot, Path(place))
        with host.running():
            host.reset()
            yield host


def cgroup(host: GpuHost, unit: str) -> Path:
    """Of a unit inside, seen from here."""
    found = list((Path(unified_mount()) / host.container.name).glob(f"**/{unit}"))
    assert found, f"{unit} has no cgroup"
    return found[0]


def pids(host: GpuHost, unit: str) -> list[int]:
    """Processes of a unit by their numbers out here, the oldest first."""
    procs = [
        int(line)
        for path in [cgroup(host, unit), *cgroup(host, unit).glob("**/")]
        for line in (path / "cgroup.procs").read_text("ascii").split()
    ]
    return sorted(set(procs))
