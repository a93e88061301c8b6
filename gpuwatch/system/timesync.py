"""Is the clock kept by NTP, PTP or the like? Sources: systemd-timesyncd(8), adjtimex(2), systemd's timedated."""

from __future__ import annotations

import os
import time
from typing import Optional

from gpuwatch.model.reading import Reading, failed, value

FRESH_S = 3 * 2048.0  # timesyncd asks its server every 2,048 s at the latest (PollIntervalMaxSec=)
_WORST_ERROR_US = 16_000_000  # where the kernel's estimate of its error stops growing: nobody steers the clock


def clock_synchronised(run: str = "/run") -> Reading:
    """1 or 0, with the meaning of "System clock synchronized" in timedatectl.

    timesyncd touches a file at each synchronisation; while that is fresh, nothing else is asked. Otherwise
    the kernel is, which chrony (with rtcsync), ntpd and ptp4l tell about their work.
    """
    touched = f"{run}/systemd/timesync/synchronized"
    try:
        age_s = time.time() - os.stat(touched).st_mtime
        if age_s <= FRESH_S:
            return value(1.0)
        known = value(0.0)
    except OSError:
        known = failed("the kernel may not be asked (adjtimex), and systemd-timesyncd does not run")
    error_us = _estimated_error_us()
    if error_us is None:
        return known
    return value(1.0 if error_us < _WORST_ERROR_US else 0.0)


def _estimated_error_us() -> Optional[int]:
    """The kernel's maximum error; None where the call is not allowed (seccomp: ProtectClock=)."""
    # Here and not above: it costs a third of a MiB for good, and hosts with timesyncd never need it.
    import ctypes

    class Timex(ctypes.Structure):
        _fields_ = (
            ("modes", ctypes.c_uint),  # 0: only ask
            ("offset", ctypes.c_long),
            ("freq", ctypes.c_long),
            ("maxerror", ctypes.c_long),
            ("rest", ctypes.c_char * 512),  # the whole is 208 bytes on 64-bit machines
        )

    answer = Timex()
    if ctypes.CDLL(None).adjtimex(ctypes.byref(answer)) < 0:
        return None
    return int(answer.maxerror)
