"""Threads that wait in the kernel and can't be killed (state D), as behind a GPU driver that hangs.

Only files are read that answer whatever the process holds: stat, status, cgroup, wchan, stack and the links in
fd. Never cmdline, environ, maps or smaps: these wait for the memory map's lock, which such a process may hold for
ever. Nothing below /dev is opened or asked.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from typing import Optional

from gpuwatch.model.errors import SourceError
from gpuwatch.model.host import StuckThread
from gpuwatch.system.kernel_files import read_file, read_text
from gpuwatch.system.procfs import ProcFs, parse_stat
from gpuwatch.system.protocols import StuckLook

MOST_S = 2.0  # a walk over all processes is cut off after this long
_MOST_THREADS = 64
_MOST_FRAMES = 12
_DRIVER_FRAME = re.compile(r"\[nvidia")  # "uvm_ioctl+0x12/0x90 [nvidia_uvm]"
_DRIVER_FUNCTION = re.compile(r"(nvidia|nv|uvm|rm|os_acquire)_\w+|_nv\d+rm")  # and not nvme_...
_DRIVER_THREADS = re.compile(r"nv_queue.*|nvidia.*|UVM .*|irq/\d+-nvidia.*")  # comm of the driver's kernel threads


class StuckFinder:
    """`gpu_device`: how the paths of GPU device files begin."""

    def __init__(self, proc: str = "/proc", gpu_device: str = "/dev/nvidia") -> None:
        self._proc, self._gpu_device = proc, gpu_device
        self._processes = ProcFs(proc)

    def look(self, pids: Sequence[int]) -> StuckLook:
        """See protocols.HostFiles."""
        until = time.monotonic() + MOST_S
        holders, problem = self._holders(until)
        threads: list[StuckThread] = []
        for pid in sorted({*pids, *holders}):
            threads += self._of_process(pid)
            if len(threads) >= _MOST_THREADS:
                return StuckLook(tuple(threads[:_MOST_THREADS]), f"more than {_MOST_THREADS} threads hang")
        return StuckLook(tuple(threads), problem)

    def _holders(self, until: float) -> tuple[list[int], str]:
        """Processes that have a GPU open, and the driver's kernel threads."""
        found: list[int] = []
        hidden = 0
        try:
            pids = sorted(int(name) for name in os.listdir(self._proc) if name.isdigit())
        except OSError as error:
            return [], f"can't look into {self._proc}: {error.strerror}"
        for pid in pids:
            if time.monotonic() > until:
                return found, f"not all of {len(pids)} processes could be looked at within {MOST_S:g} s"
            try:
                if self._has_gpu(pid):
                    found.append(pid)
            except PermissionError:
                hidden += 1
            except OSError:
                pass  # it has ended
        return found, f"{hidden} processes may not be looked at" if hidden else ""

    def _has_gpu(self, pid: int) -> bool:
        """Raises OSError."""
        with os.scandir(f"{self._proc}/{pid}/fd") as entries:
            for entry in entries:
                try:
                    if os.readlink(entry.path).startswith(self._gpu_device):
                        return True
                except FileNotFoundError:
                    continue  # closed meanwhile
        return bool(_DRIVER_THREADS.fullmatch(read_text(f"{self._proc}/{pid}/comm") or ""))

    def _of_process(self, pid: int) -> list[StuckThread]:
        """Its threads in state D. A killed process may be a zombie of which one thread can't end."""
        try:
            threads = sorted(int(name) for name in os.listdir(f"{self._proc}/{pid}/task"))
        except OSError:
            return []
        return [stuck for stuck in (self._of_thread(pid, thread) for thread in threads) if stuck is not None]

    def _of_thread(self, pid: int, thread: int) -> Optional[StuckThread]:
        place = f"{self._proc}/{pid}/task/{thread}"
        try:
            name, state, started_ticks = parse_stat(read_file(f"{place}/stat"))
            if state != "D":
                return None
            facts = self._processes.look(pid)
        except (OSError, ValueError, IndexError, SourceError):
            return None
        wchan = read_text(f"{place}/wchan") or ""
        stack = _frames(read_text(f"{place}/stack") or "")
        return StuckThread(
            pid=pid,
            thread=thread,
            started_ticks=started_ticks,
            name=name,
            uid=-1 if facts is None else facts.uid,
            user="" if facts is None else facts.user,
            cgroup="" if facts is None else facts.cgroup,
            wchan="" if wchan == "0" else wchan,
            stack=stack[:_MOST_FRAMES],
            in_driver=_in_driver(wchan, stack),
        )


def _frames(stack: str) -> tuple[str, ...]:
    """The lines without the addresses in front: "[<0>] nv_ioctl+0x1/0x9 [nvidia]"."""
    return tuple(line.partition("] ")[2].strip() for line in stack.splitlines() if "] " in line)


def _in_driver(wchan: str, stack: tuple[str, ...]) -> Optional[bool]:
    if stack:
        return any(_DRIVER_FRAME.search(frame) for frame in stack)
    # Without the stack only the innermost function is known, and that may be a lock of the kernel's own.
    return True if _DRIVER_FUNCTION.fullmatch(wchan) else None
