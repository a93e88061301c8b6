"""The real NVML client over the fake library: builds the library, keeps the environment, leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, Optional

from gpuwatch.model.gpu import GpuReport
from gpuwatch.system.child import JsonChild
from gpuwatch.system.clock import SystemClock
from gpuwatch.system.nvml.client import MODULE, NvmlClient
from gpuwatch.system.nvml.patience import Patience
from tests.fakes.nvml.scenario import Scenario

HERE = Path(__file__).parent
SOURCES = sorted(HERE.glob("*.c"))
LIBRARY = HERE / "build" / "libnvidia-ml.so.1"
QUICK = Patience(start_s=10.0, silent_s=0.6, end_s=60.0, kill_s=60.0, gpu_s=0.3, prompt_s=0.1, pause_s=0.2)


def why_no_library() -> str:
    """Why there is no fake library and none can be built; "" when there is one."""
    return "" if LIBRARY.exists() or shutil.which("cc") else "needs a C compiler (cc) for the fake NVML library"


def library_directory() -> str:
    """Where the fake library is; built when it is missing or older than its source, as `make fakes` does."""
    newest = max(source.stat().st_mtime for source in (*SOURCES, *HERE.glob("*.h")))
    if not LIBRARY.exists() or LIBRARY.stat().st_mtime < newest:
        LIBRARY.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=LIBRARY.parent) as scratch:
            fresh = os.path.join(scratch, LIBRARY.name)
            flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{LIBRARY.name}"]
            subprocess.run(["cc", *flags, "-o", fresh, *map(str, SOURCES)], check=True)
            os.replace(fresh, LIBRARY)
    return str(LIBRARY.parent)


class NvmlBench:
    """A host whose driver is the scenario. `close()` ends every process that was started here."""

    def __init__(self, folder: Path, patience: Patience = QUICK) -> None:
        self.scenario = Scenario(folder / "fakenvml.conf")
        self.driver = folder / "driver"
        self.driver.mkdir()
        self.lock = folder / "nvml.lock"
        self.log = folder / "calls.log"
        self.environment: dict[str, str] = {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "LD_LIBRARY_PATH": library_directory(),
            "FAKE_NVML": str(self.scenario.path),
            "FAKE_NVML_LOG": str(self.log),
        }
        self.pids: list[int] = []
        self._patience = patience
        self._clients: list[NvmlClient] = []

    def client(self, patience: Optional[Patience] = None) -> NvmlClient:
        """A client of this host; more than one is like more than one gpuwatch."""
        client = NvmlClient(SystemClock(), str(self.lock), str(self.driver), self._spawn, patience or self._patience)
        self._clients.append(client)
        return client

    def calls(self, name: str = "") -> list[str]:
        """The calls that reached the library, oldest first."""
        lines = self.log.read_text("utf-8").splitlines() if self.log.exists() else []
        return [line for line in lines if not name or line.split()[1] == name]

    def close(self) -> None:
        """Nothing stays."""
        for client in self._clients:
            client.close(0.0)
        for pid in self.pids:
            if _is_ours(pid):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while any(_is_ours(pid) for pid in self.pids) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _spawn(self, arguments: Sequence[str]) -> JsonChild:
        child = JsonChild(MODULE, arguments, self.environment)
        self.pids.append(child.pid)
        return child


def sample_until(
    client: NvmlClient,
    wanted: Callable[[GpuReport], bool],
    timeout_s: float = 20.0,
    with_processes: bool = False,
    spare_child: bool = False,
) -> GpuReport:
    """Sample as the cycle does, only faster, until a report is as wanted."""
    deadline = time.monotonic() + timeout_s
    while True:
        report = client.sample(with_processes, spare_child, 0.2)
        if wanted(report):
            return report
        if time.monotonic() > deadline:
            raise AssertionError(f"still not so after {timeout_s:g} s: {report}")
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """True while a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _is_ours(pid: int) -> bool:
    try:
        return alive(pid) and MODULE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def number(report: GpuReport, index: int, metric: str) -> Optional[float]:
    """The value of a GPU's reading, of this second or this minute; None when it has none."""
    reading = report.samples[index].reading(metric)
    return None if reading is None else reading.value
