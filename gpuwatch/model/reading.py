"""One value read from a device: there, not offered by this device, or not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Reading:
    """A value, or `unsupported`, or `failed(reason)`; never a stand-in number.

    Exactly one of the three holds: `value` is not None; or `problem` is "unsupported"; or
    `problem` is any other text, the reason of the failure.
    """

    value: Optional[float] = None
    problem: Optional[str] = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.problem is None):
            raise ValueError("a reading has either a value or a problem")

    @property
    def failed(self) -> bool:
        """True when a value should have been there and was not."""
        return self.problem is not None and self.problem != "unsupported"

    @property
    def unsupported(self) -> bool:
        """True when the device does not offer this value."""
        return self.problem == "unsupported"


UNSUPPORTED = Reading(problem="unsupported")


def value(number: float) -> Reading:
    """A reading that succeeded."""
    return Reading(value=float(number))


def failed(reason: str) -> Reading:
    """A reading that should have succeeded and did not."""
    return Reading(problem=reason)
