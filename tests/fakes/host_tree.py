"""A /proc, /sys, /run and cgroup tree made of plain files, as a GPU server has them."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

MEMINFO = """MemTotal:       1056563132 kB
MemFree:        12345678 kB
MemAvailable:   792422349 kB
SwapCached:            0 kB
SwapTotal:       8388604 kB
SwapFree:        2097151 kB
HugePages_Total:       0
"""
SOME = "some avg10={some} avg60=0.00 avg300=0.00 total={total}\n"
FULL = "full avg10={full} avg60=0.00 avg300=0.00 total=500000\n"
MOUNTINFO = "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n"


class HostTree:
    """The files lie below `root`/proc, /sys, /run, /cgroup; write others with `put`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc, self.sys = str(root / "proc"), str(root / "sys")
        self.run, self.cgroup = str(root / "run"), str(root / "cgroup")
        self.put("proc/meminfo", MEMINFO)
        self.put("proc/vmstat", "nr_free_pages 1\noom_kill 3\noom_kill_other 9\n")
        self.put("proc/loadavg", "12.50 8.00 4.25 3/1200 4711\n")
        self.put("proc/self/mountinfo", MOUNTINFO)
        for kind in ("memory", "cpu", "io"):
            self.stall(kind, 1.5, 0.25)
        for folder in ("sys/class/hwmon", "sys/class/thermal", "run", "cgroup"):
            (root / folder).mkdir(parents=True)

    def put(self, path: str, text: str) -> None:
        """A file below the root; its directory is made."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", errors="surrogateescape")

    def remove(self, path: str) -> None:
        """One file less."""
        (self.root / path).unlink()

    def stall(self, kind: str, some: float, full: Optional[float]) -> None:
        """Pressure of a kind; `full` None: a line that older kernels don't have for the CPU."""
        lines = SOME.format(some=some, total=2_000_000) + ("" if full is None else FULL.format(full=full))
        self.put(f"proc/pressure/{kind}", lines)

    def hwmon(self, number: int, name: str, device: str = "", **files: str) -> None:
        """A chip: hwmon(2, "coretemp", "coretemp.0", temp1_input="45000")."""
        here = f"sys/class/hwmon/hwmon{number}"
        self.put(f"{here}/name", f"{name}\n")
        if device:
            self.put(f"sys/devices/{device}/uevent", "")
            (self.root / here / "device").symlink_to(self.root / "sys/devices" / device)
        for file, text in files.items():
            self.put(f"{here}/{file}", f"{text}\n")

    def zone(self, number: int, kind: str, **files: str) -> None:
        """A thermal zone: zone(0, "acpitz", temp="27800")."""
        self.put(f"sys/class/thermal/thermal_zone{number}/type", f"{kind}\n")
        for file, text in files.items():
            self.put(f"sys/class/thermal/thermal_zone{number}/{file}", f"{text}\n")

    def process(
        self,
        pid: int,
        name: str = "python3",
        threads: tuple[tuple[int, str], ...] = (),
        links: tuple[str, ...] = (),
        wchan: str = "0",
        stack: Optional[str] = None,
        cgroup: str = "/system.slice/train.service",
    ) -> None:
        """A process with threads (number, state), all with the same wchan and stack, and open files."""
        stat = f"({name}) {{state}} {' '.join(['0'] * 18)} {pid * 10} 0\n"
        self.put(f"proc/{pid}/stat", f"{pid} {stat.format(state='S')}")
        self.put(f"proc/{pid}/status", "Name:\tx\nUid:\t0\t0\t0\t0\n")
        self.put(f"proc/{pid}/cgroup", f"0::{cgroup}\n")
        self.put(f"proc/{pid}/comm", f"{name}\n")
        (self.root / f"proc/{pid}/fd").mkdir(exist_ok=True)
        for number, link in enumerate(links):
            (self.root / f"proc/{pid}/fd/{number}").symlink_to(link)
        for thread, state in threads or ((pid, "S"),):
            self.put(f"proc/{pid}/task/{thread}/stat", f"{thread} {stat.format(state=state)}")
            self.put(f"proc/{pid}/task/{thread}/wchan", wchan)
            if stack is not None:
                self.put(f"proc/{pid}/task/{thread}/stack", stack)

    def unit(self, group: str, **files: str) -> None:
        """A cgroup: unit("/system.slice/a.service", **{"memory.current": "1"})."""
        (self.root / f"cgroup{group}").mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            self.put(f"cgroup{group}/{file}", f"{text}\n")
