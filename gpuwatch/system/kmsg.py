"""/dev/kmsg as a doorbell: it rings the moment the kernel speaks; what was said is read from the journal."""

from __future__ import annotations

import errno
import os
from typing import Optional

RECORD_BYTES = 8192  # no record of the kernel is longer
MOST_RECORDS = 4096  # taken in one go; a storm goes on ringing


class KmsgDoorbell:
    """See protocols.Doorbell. Needs CAP_SYSLOG where dmesg_restrict is set; without it there is no bell."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        """Open and go behind the last record. Never raises: `problem` says why there is no bell."""
        self.problem = ""
        self._fd: Optional[int] = None
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            self.problem = f"{path}: {error.strerror}"
            return
        try:
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            if error.errno != errno.ESPIPE:  # a FIFO stands in for it in containers: nothing to skip
                self._give_up(f"{path}: {error.strerror}")

    def fds(self) -> tuple[int, ...]:
        return () if self._fd is None else (self._fd,)

    def rang(self) -> bool:
        rang = False
        for _ in range(MOST_RECORDS):
            if self._fd is None:
                break
            try:
                if not os.read(self._fd, RECORD_BYTES):
                    self._give_up("end of file")  # a FIFO whose writers are gone would be readable for ever
                    break
            except BlockingIOError:
                break
            except OSError as error:
                # EPIPE: records were overwritten before they were read; the next read goes on behind them.
                if error.errno != errno.EPIPE:
                    self._give_up(error.strerror or "read error")
                    break
            rang = True
        return rang

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _give_up(self, problem: str) -> None:
        self.problem = problem
        self.close()
