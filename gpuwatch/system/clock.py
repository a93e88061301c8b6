"""The machine's clocks."""

from __future__ import annotations

import time
from datetime import timezone, tzinfo
from zoneinfo import ZoneInfo

from gpuwatch.model.errors import SourceError
from gpuwatch.model.instant import Instant


class SystemClock:
    """Implements protocols.Clock."""

    def __init__(self, proc_root: str = "/proc") -> None:
        """Raises SourceError when the boot id can't be read."""
        self._boot_id = boot_id(proc_root)

    def now(self) -> Instant:
        """See protocols.Clock."""
        return Instant(self._boot_id, time.clock_gettime(time.CLOCK_BOOTTIME), time.time())

    def monotonic(self) -> float:
        """See protocols.Clock."""
        return time.monotonic()


def boot_id(proc_root: str = "/proc") -> str:
    """The id of this boot as the journal writes it: 32 hex digits. Raises SourceError."""
    path = f"{proc_root}/sys/kernel/random/boot_id"
    try:
        with open(path, encoding="ascii") as file:
            text = file.read().strip().replace("-", "")
    except (OSError, ValueError) as error:
        raise SourceError(f"can't read {path}: {error}") from error
    if len(text) != 32:
        raise SourceError(f"{path} holds no boot id")
    return text


def local_zone(path: str = "/etc/localtime") -> tzinfo:
    """The zone of this machine with its daylight saving rules; UTC where none is set."""
    try:
        with open(path, "rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return timezone.utc
