"""/proc: one process at a time, and the host's memory."""

from __future__ import annotations

import os
import pwd
from typing import Optional

from gpuwatch.model.errors import SourceError
from gpuwatch.model.reading import Reading, failed, value
from gpuwatch.system.protocols import ProcessFacts

_MOST_BYTES = 1 << 16
_GONE = (FileNotFoundError, ProcessLookupError)


class ProcFs:
    """Implements protocols.Processes. `root` is where proc is mounted."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        self._tick = os.sysconf("SC_CLK_TCK")
        self._users: dict[int, str] = {}

    def look(self, pid: int) -> Optional[ProcessFacts]:
        """See protocols.Processes. A zombie is a process too (state Z)."""
        if pid <= 0:
            return None
        try:
            stat = self._read(pid, "stat")
            uid = _real_uid(self._read(pid, "status"))
            cgroup = _cgroup(self._read(pid, "cgroup"))
            again = self._read(pid, "stat")
        except _GONE:
            return None
        except OSError as error:
            raise SourceError(f"can't look at process {pid}: {error.strerror}") from error
        try:
            name, state, started_ticks = _parse_stat(stat)
            if _parse_stat(again)[2] != started_ticks:  # the pid was given to another process meanwhile
                return None
        except (ValueError, IndexError) as error:
            raise SourceError(f"can't make sense of {self._root}/{pid}/stat") from error
        return ProcessFacts(pid, started_ticks, started_ticks / self._tick, state, name, uid, self._user(uid), cgroup)

    def memory_available_ratio(self) -> Reading:
        """MemAvailable divided by MemTotal (/proc/meminfo)."""
        try:
            with open(os.path.join(self._root, "meminfo"), "rb") as file:
                lines = file.read(_MOST_BYTES).split(b"\n")
            figures = {name: int(rest.split()[0]) for name, _, rest in (line.partition(b":") for line in lines) if rest}
            return value(figures[b"MemAvailable"] / figures[b"MemTotal"])
        except OSError as error:
            return failed(f"can't read {self._root}/meminfo: {error.strerror}")
        except (ValueError, KeyError, IndexError, ZeroDivisionError):
            return failed(f"can't make sense of {self._root}/meminfo")

    def _read(self, pid: int, name: str) -> bytes:
        fd = os.open(f"{self._root}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, _MOST_BYTES)
        finally:
            os.close(fd)

    def _user(self, uid: int) -> str:
        # pwd may ask a directory server; each uid is asked once.
        if uid not in self._users:
            try:
                self._users[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:
                self._users[uid] = str(uid)
        return self._users[uid]


def _parse_stat(stat: bytes) -> tuple[str, str, int]:
    """Name, state and start time (field 22). The name may hold anything, so it is cut off at the last `)` (K13)."""
    head, parenthesis, tail = stat.rpartition(b")")
    if not parenthesis:
        raise ValueError("no name in stat")
    fields = tail.split()
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    return name, fields[0].decode("ascii", "replace"), int(fields[19])


def _real_uid(status: bytes) -> int:
    for line in status.split(b"\n"):
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    return 0


def _cgroup(content: bytes) -> str:
    """The path in the unified hierarchy; in systemd's own where the unified one is not in use (or says "/")."""
    unified = systemd = ""
    for line in content.decode("utf-8", "replace").split("\n"):
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and not controllers:
            unified = path
        elif controllers == "name=systemd":
            systemd = path
    return unified if unified not in ("", "/") else systemd or unified
