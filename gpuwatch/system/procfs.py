"""/proc: one process at a time."""

from __future__ import annotations

import os
import pwd
from typing import Optional

from gpuwatch.model.errors import SourceError
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
            name, state, started_ticks = parse_stat(stat)
            if parse_stat(again)[2] != started_ticks:  # the pid was given to another process meanwhile
                return None
        except (ValueError, IndexError) as error:
            raise SourceError(f"can't make sense of {self._root}/{pid}/stat") from error
        return ProcessFacts(pid, started_ticks, started_ticks / self._tick, state, name, uid, self._user(uid), cgroup)

    def working_directory(self, pid: int) -> Optional[str]:
        """Where a process works, as it sees it; None when it is gone, hidden, or that place was removed."""
        try:
            path = os.readlink(os.path.join(self._root, str(pid), "cwd"))
        except OSError:
            return None
        return path if path.startswith("/") and not path.endswith(" (deleted)") else None

    def namespaced_pid(self, pid: int) -> Optional[int]:
        """The pid in the innermost PID namespace of a process: what it is called inside its container.

        The same pid for a process in no other namespace than ours; None when it is gone, hidden, or the kernel
        (before 4.1) doesn't tell. From NSpid in /proc/<pid>/status. For people to read: nothing is decided by it.
        """
        if pid <= 0:
            return None
        try:
            status = self._read(pid, "status")
        except OSError:
            return None
        line = next((line for line in status.split(b"\n") if line.startswith(b"NSpid:")), b"")
        numbers = line[len(b"NSpid:") :].split()
        return int(numbers[-1]) if numbers and numbers[-1].isdigit() else None

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
                name = pwd.getpwuid(uid).pw_name
                # A name that is no UTF-8 comes with surrogates, which nothing can write down.
                self._users[uid] = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            except KeyError:
                self._users[uid] = str(uid)
        return self._users[uid]


def parse_stat(stat: bytes) -> tuple[str, str, int]:
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
