"""What may be set on a GPU, and what became of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional

from gpuwatch.model.instant import Instant

# GpuChanged.problem; "" where there is none
UNSUPPORTED = "unsupported"  # the card, the driver or its library does not offer this
NO_PERMISSION = "no_permission"  # the driver wants more rights (on Linux CAP_SYS_ADMIN)
GONE = "gone"  # the card is lost, its UUID is not there, or it is in another slot than the one asked for (N17)
FAILED = "failed"  # anything else


@dataclass(frozen=True)
class GpuChange:
    """What to set on one GPU. With nothing to set it is a question, that only reads.

    `id` comes back with the answer. The card is found by `uuid`, and nothing is set unless it is at the address
    `pci` (canonical, model/pci.py). `power_limit_w` is clamped to the card's range.
    `graphics_clock_mhz` locks the clock between the two. Raises ValueError for what no card could be set to.
    """

    id: str
    uuid: str
    pci: str
    power_limit_w: Optional[float] = None
    graphics_clock_mhz: Optional[tuple[int, int]] = None
    unlock_clocks: bool = False

    def __post_init__(self) -> None:
        watts, lock = self.power_limit_w, self.graphics_clock_mhz
        if watts is not None and not (math.isfinite(watts) and watts >= 1):
            raise ValueError(f"no power limit: {watts:g} W")
        if lock is not None and not 0 < lock[0] <= lock[1]:
            raise ValueError(f"no clock range: {lock[0]} to {lock[1]} MHz")
        if lock is not None and self.unlock_clocks:
            raise ValueError("clocks can't be locked and unlocked at once")

    @property
    def is_question(self) -> bool:
        """True when there is nothing to set."""
        return self.power_limit_w is None and self.graphics_clock_mhz is None and not self.unlock_clocks


@dataclass(frozen=True)
class GpuChanged:
    """The answer to a GpuChange: `id` and `uuid` are its own, `at` is when the driver was asked.

    `power_limit_w` is the management limit as read back after the change, or as it is now for a question: it may
    differ from what was asked for (clamped, rounded by the card, put back at once). All four are None where they
    can't be read. With a problem a part of the change may still have been made, if there were several.
    """

    id: str
    uuid: str
    at: Instant
    problem: str = ""
    detail: str = ""  # in words, with the driver's own
    power_limit_w: Optional[float] = None
    power_limit_min_w: Optional[float] = None
    power_limit_max_w: Optional[float] = None
    power_limit_default_w: Optional[float] = None
