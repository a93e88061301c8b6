"""Why this machine can't run something, in one sentence; "" when it can."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil

CLONE_NEWNS = 0x00020000


def why_no_root() -> str:
    """Not root."""
    return "" if os.geteuid() == 0 else "needs root"


@functools.cache
def why_no_namespaces() -> str:
    """Not root, or root without the right to make namespaces (an unprivileged container)."""
    if os.geteuid() != 0:
        return "needs root to make namespaces"
    child = os.fork()
    if child == 0:
        os._exit(0 if ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0 else 1)
    _, status = os.waitpid(child, 0)
    return "" if status == 0 else "may not make namespaces here (CAP_SYS_ADMIN is missing)"


def why_no_command(*names: str) -> str:
    """Programs that are not installed."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [name for name in names if shutil.which(name, path=path) is None]
    return f"needs {', '.join(missing)}" if missing else ""


def why_no_booted_systemd() -> str:
    """What stands against a booted systemd in systemd-nspawn."""
    return (
        why_no_namespaces()
        or why_no_command("systemd-nspawn", "nsenter", "mmdebstrap")
        or ("" if unified_mount() else "needs a mounted cgroup v2 hierarchy")
    )


def unified_mount() -> str:
    """Where the cgroup v2 hierarchy is mounted; "" if nowhere."""
    for place in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
        if os.path.exists(os.path.join(place, "cgroup.procs")):
            return place
    return ""
