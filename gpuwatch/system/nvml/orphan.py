"""A process of an earlier gpuwatch that still holds the driver's lock: ended only if it is that process."""

from __future__ import annotations

import os
import signal

from gpuwatch.model.errors import SourceError
from gpuwatch.system.lock import Holder
from gpuwatch.system.procfs import ProcFs


def signal_orphan(holder: Holder, module: str, number: signal.Signals) -> bool:
    """Send a signal to the holder; False when its start time or command line says that it is someone else."""
    if holder.pid <= 1:
        return False
    try:
        fd = os.pidfd_open(holder.pid)
    except (OSError, AttributeError):  # no such process, or a Python built for kernels before 5.3
        return False
    try:
        # The descriptor pins the process: what is checked now is what gets the signal.
        facts = ProcFs().look(holder.pid)
        if facts is None or facts.started_ticks != holder.started_ticks or module not in _command_line(holder.pid):
            return False
        signal.pidfd_send_signal(fd, number)
    except (OSError, SourceError):
        return False
    finally:
        os.close(fd)
    return True


def _command_line(pid: int) -> list[str]:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read(1 << 16).decode("utf-8", "replace").split("\0")
