"""Giving up what a process does not need: for children that talk to the network."""

from __future__ import annotations

import ctypes
import os
import pwd
import resource

_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_NOBODY = 65534  # the kernel's overflow id, and nobody's on every supported distribution


def drop_privileges() -> None:
    """Become nobody when root, for good; no new privileges, no core dump, no look from others in any case.

    Raises OSError when it can't be done; the caller must not go on then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.geteuid() == 0:
        user, group = _nobody()
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
        if 0 in (*os.getresuid(), *os.getresgid()):
            raise OSError("still root after giving it up")
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0)):
        if libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


def _nobody() -> tuple[int, int]:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return _NOBODY, _NOBODY
    return (entry.pw_uid, entry.pw_gid) if entry.pw_uid and entry.pw_gid else (_NOBODY, _NOBODY)
