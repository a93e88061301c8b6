"""sd_notify: the daemon's word to the service manager that started it (man 3 sd_notify)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import Optional, Union


class NullManager:
    """No service manager listens."""

    def notify(self, **fields: str) -> None:
        """See protocols.Manager."""


class SystemdManager:
    """Sends datagrams to $NOTIFY_SOCKET, a path or "@" and an abstract name."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self.watchdog_s = _watchdog_s(environ)  # None: no watchdog is set for this process

    def notify(self, **fields: str) -> None:
        """See protocols.Manager. RELOADING=1 gets the MONOTONIC_USEC that systemd 253 wants with it."""
        if not self._address:
            return
        if fields.get("RELOADING") == "1" and "MONOTONIC_USEC" not in fields:
            fields["MONOTONIC_USEC"] = str(time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000)
        text = "\n".join(f"{name}={_one_line(value)}" for name, value in fields.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                # A manager whose queue is full must not stop the cycle; the watchdog's next word comes in a second.
                sock.setblocking(False)
                sock.sendto(text.encode("utf-8", "replace"), self._address)
        except OSError:
            pass


def manager(environ: Mapping[str, str] = os.environ) -> Union[SystemdManager, NullManager]:
    """The manager that started this process, if one did."""
    return SystemdManager(environ) if environ.get("NOTIFY_SOCKET") else NullManager()


def _watchdog_s(environ: Mapping[str, str]) -> Optional[float]:
    """Seconds of WatchdogSec= where they are meant for this process (WATCHDOG_PID)."""
    try:
        pid = int(environ.get("WATCHDOG_PID") or os.getpid())
        microseconds = int(environ.get("WATCHDOG_USEC") or 0)
    except ValueError:
        return None
    return microseconds / 1e6 if microseconds > 0 and pid == os.getpid() else None


def _one_line(value: str) -> str:
    """A newline would begin another assignment."""
    return " ".join(value.splitlines())
