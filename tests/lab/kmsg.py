"""Kernel lines for a container: a FIFO in packet mode that is bound over its /dev/kmsg.

journald opens /dev/kmsg for reading and polls it; what it reads from the FIFO gets
_TRANSPORT=kernel, SYSLOG_FACILITY=0 and SYSLOG_IDENTIFIER=kernel, as a driver's line does, and
nothing reaches the ring buffer of the host. A record reaches one reader only, so a second reader
(gpuwatch's doorbell) needs a FIFO of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Optional

F_SETPIPE_SZ = 1031
PIPE_BYTES = 1 << 20  # 256 records may wait: in packet mode each takes a page


class KernelLog:
    """The writing end. It stays open from before boot: PID 1 would block on a FIFO without a writer."""

    def __init__(self, path: Path, wait: bool = True) -> None:
        """Make the FIFO at `path`. `wait`: a write waits for a busy reader; else it is lost when the FIFO is full."""
        os.mkfifo(path, 0o644)
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # O_RDWR never blocks and gets no SIGPIPE
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        flags = flags & ~os.O_NONBLOCK if wait else flags
        fcntl.fcntl(self._fd, fcntl.F_SETFL, flags | os.O_DIRECT)  # one write is one record, as /dev/kmsg guarantees
        fcntl.fcntl(self._fd, F_SETPIPE_SZ, PIPE_BYTES)
        self._sequence = 0

    def write(
        self,
        text: str,
        priority: int = 3,
        facility: int = 0,
        device: str = "",
        subsystem: str = "",
        monotonic_us: Optional[int] = None,
    ) -> None:
        """One record. `facility` 0 is the kernel's own; user space that writes to /dev/kmsg gets 1."""
        if monotonic_us is None:
            monotonic_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        record = f"{facility << 3 | priority},{self._sequence},{monotonic_us},-;{text}\n"
        if subsystem:
            record += f" SUBSYSTEM={subsystem}\n"
        if device:
            record += f" DEVICE={device}\n"
        self._sequence += 1
        with contextlib.suppress(BlockingIOError):
            os.write(self._fd, record.encode())

    def close(self) -> None:
        """Close and remove the FIFO."""
        os.close(self._fd)
        self.path.unlink()
