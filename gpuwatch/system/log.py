"""The daemon's own log: native journal entries where systemd started us, text on standard error elsewhere."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Optional, Union

EMERGENCY, CRITICAL, ERROR, WARNING, NOTICE, INFO, DEBUG = 0, 2, 3, 4, 5, 6, 7
_WORDS = {CRITICAL: "critical: ", ERROR: "error: ", WARNING: "warning: "}


class JournalLog:
    """Sends entries with SYSLOG_IDENTIFIER=gpuwatch and fields such as GPUWATCH_INCIDENT, GPU_UUID."""

    def __init__(self) -> None:
        # The C function alone: systemd.journal would cost the resident process 4 MiB.
        self._send: Callable[..., None] = importlib.import_module("systemd._journal").sendv

    def write(self, priority: int, message: str, fields: Optional[Mapping[str, str]] = None) -> None:
        """Log one line. A journal that does not take it is not our caller's trouble."""
        pairs = {"MESSAGE": message, "PRIORITY": str(priority), "SYSLOG_IDENTIFIER": "gpuwatch", **(fields or {})}
        try:
            self._send(*(f"{key}={text}".encode("utf-8", "replace") for key, text in pairs.items()))
        except OSError:
            sys.stderr.write(f"<{priority}>{message}\n")


class StderrLog:
    """One line each on standard error, for a terminal."""

    def write(self, priority: int, message: str, fields: Optional[Mapping[str, str]] = None) -> None:
        """Log one line; debug lines are left out."""
        if priority <= INFO:
            sys.stderr.write(f"gpuwatch: {_WORDS.get(priority, '')}{message}\n")
            sys.stderr.flush()


def open_log() -> Union[JournalLog, StderrLog]:
    """The journal where our standard error goes there, else standard error."""
    if os.environ.get("JOURNAL_STREAM"):
        try:
            return JournalLog()
        except ImportError:
            return StderrLog()
    return StderrLog()


class NullLog:
    """Says nothing: for the demo, which shows what happens itself."""

    def write(self, priority: int, message: str, fields: Optional[Mapping[str, str]] = None) -> None:
        """See protocols.Log."""
