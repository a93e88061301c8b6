"""The host-wide lock: of daemon, `run --once` and writing commands, one at a time acts."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
from dataclasses import dataclass
from typing import Optional

from gpuwatch.model.errors import SourceError

_WORDS = {
    "daemon": "the gpuwatch daemon",
    "once": "gpuwatch run --once",
    "cli": "a gpuwatch command",
    "driver": "gpuwatch's process for the GPU driver",
}
_MOST_BYTES = 4096
_FLOCK = "hhqqi4x"  # struct flock: type, whence, start, length (0: to the end), pid


@dataclass(frozen=True)
class Holder:
    """Who holds the lock, by its own words. `started_ticks` is field 22 of its /proc/<pid>/stat."""

    pid: int
    started_ticks: int
    kind: str  # daemon | once | cli | driver
    since_utc_s: float

    def __str__(self) -> str:
        who = _WORDS.get(self.kind, "gpuwatch")
        return f"{who} (pid {self.pid})" if self.pid else who


class HostLock:
    """A lock on an open file (F_OFD_SETLK). The kernel gives it back when the holder is gone, however it ended.

    Unlike flock(2) it can be asked about without being taken, so a look at it never keeps a daemon
    from starting. The file itself is never removed: two processes could then hold locks on two files of one name.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: Optional[int] = None

    @property
    def held(self) -> bool:
        """True while this object holds it."""
        return self._fd is not None

    def acquire(self, kind: str, now_utc_s: float) -> bool:
        """Take it if it is free; False, at once, if another process has it.

        Raises SourceError when the file can't be opened or locked at all.
        """
        if self._fd is not None:
            return True
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise SourceError(f"can't open the lock {self.path}: {error.strerror}") from error
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            words = {"pid": os.getpid(), "started_ticks": _own_ticks(), "kind": kind, "since_utc_s": now_utc_s}
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(words).encode() + b"\n", 0)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise SourceError(f"can't take the lock {self.path}: {error.strerror}") from error
        self._fd = fd
        return True

    def release(self) -> None:
        """Give it back."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def holder(self) -> Optional[Holder]:
        """Who holds it now; None when nobody does, whatever the file says from earlier.

        A holder that has not written its name yet, or a file that is unreadable to us, gives pid 0.
        """
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError:
            return Holder(0, 0, "", 0.0)
        try:
            if _free(fd):
                return None
            return _parse(os.pread(fd, _MOST_BYTES, 0))
        finally:
            os.close(fd)


def _free(fd: int) -> bool:
    """True when nobody holds it."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    return int(struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))[0]) == fcntl.F_UNLCK


def _parse(content: bytes) -> Holder:
    try:
        words = json.loads(content)
        return Holder(int(words["pid"]), int(words["started_ticks"]), str(words["kind"]), float(words["since_utc_s"]))
    except (ValueError, TypeError, KeyError):
        return Holder(0, 0, "", 0.0)


def _own_ticks() -> int:
    """Start time of this process in clock ticks (man 5 proc, field 22); the name in () may hold anything."""
    with open("/proc/self/stat", "rb") as stat:
        return int(stat.read().rpartition(b")")[2].split()[19])
