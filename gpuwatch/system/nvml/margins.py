"""Degrees left to a card's own points, and whether to believe them. Pure.

Ada and later tell T.Limit, the degrees left to the maximum operating temperature, and their points as offsets
on that scale: an H100 slows down at -2 and shuts down at -8, so with T.Limit 54 there are 56 degrees left to
slowdown. Older cards tell the points in degrees Celsius.

T.Limit is cross-checked, since on some cards and drivers the call answers a constant such as 0 or -5 on a cold
card, and passing over 0 and less instead would make the watch blind when it is hottest. The temperature plus
T.Limit is the maximum operating temperature that the card claims; real ones are 80 to 95 C, and a hot spot or
the memory may be ahead of the core by some 15 degrees.

    claimed maximum above 120 C                            nonsense: it would hide heat
    claimed maximum below 60 C                             nonsense, unless a witness of heat speaks
    T.Limit above 0, claimed maximum 60 to 120 C           believed
    T.Limit 0 or below, a witness of heat speaks           believed: this is the alarm
    T.Limit 0 or below, core 25 C or more below its point  nonsense
    T.Limit 0 or below, claimed maximum 70 C or more       believed: this is the alarm
    T.Limit 0 or below, claimed maximum 60 to 70 C         believed if clocks drop under load or power is near its
                                                           limit, else failed: nothing confirms it
    T.Limit 0 or below, no temperature                     the same; a T.Limit above 0 is believed

Witnesses of heat: HW or SW thermal slowdown, memory at 80 C or more, the core within 10 degrees of a point that
the card gives in degrees Celsius.

Nonsense is `unsupported`: then the points in degrees Celsius serve where there are some, and rules for cards
without points where there are none. After three such samples in a row T.Limit stays unsupported for this start
of the driver, so that a constant does not become an alarm when the card warms up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from gpuwatch.model.reading import UNSUPPORTED, Reading, failed

COLDEST_MAXIMUM_C, HOTTEST_MAXIMUM_C = 60.0, 120.0
SURE_MAXIMUM_C = 70.0
HOT_MEMORY_C = 80.0
NEAR_POINT_C, FAR_FROM_POINT_C = 10.0, 25.0
NEAR_POWER_LIMIT = 0.9
BUSY_PERCENT, DROPPED_CLOCK = 50.0, 0.75
PROVEN_AFTER = 3
UNCONFIRMED = "T.Limit says that the card is at its limit, and nothing else on it confirms that"


@dataclass(frozen=True)
class Witnesses:
    """What else the card said in the same second."""

    temperature: Reading = UNSUPPORTED
    memory_temperature: Reading = UNSUPPORTED
    operating_point: Reading = UNSUPPORTED  # in degrees Celsius, by the card's own word
    slowdown_point: Reading = UNSUPPORTED
    hw_thermal_slowdown: Reading = UNSUPPORTED
    sw_thermal_slowdown: Reading = UNSUPPORTED
    utilisation: Reading = UNSUPPORTED
    sm_clock: Reading = UNSUPPORTED
    max_sm_clock: Reading = UNSUPPORTED
    power_ratio: Reading = UNSUPPORTED


class Belief:
    """Whether T.Limit of one card is believed; one object for each start of the driver."""

    def __init__(self) -> None:
        self._nonsense_in_a_row = 0

    def judge(self, tlimit: Reading, witnesses: Witnesses) -> Reading:
        """T.Limit as it was read, or unsupported, or failed; see the module's table."""
        if self._nonsense_in_a_row >= PROVEN_AFTER:
            return UNSUPPORTED
        judged = judge(tlimit, witnesses)
        if tlimit.value is not None:
            self._nonsense_in_a_row = self._nonsense_in_a_row + 1 if judged.unsupported else 0
        return judged


def judge(tlimit: Reading, witnesses: Witnesses) -> Reading:
    """One sample by itself."""
    if tlimit.value is None:
        return tlimit
    temperature = witnesses.temperature.value
    if temperature is not None and temperature + tlimit.value > HOTTEST_MAXIMUM_C:
        return UNSUPPORTED
    if _heat(witnesses):
        return tlimit
    if temperature is None:
        return tlimit if tlimit.value > 0 or _strain(witnesses) else failed(UNCONFIRMED)
    claimed = temperature + tlimit.value
    if claimed < COLDEST_MAXIMUM_C:
        return UNSUPPORTED
    if tlimit.value > 0:
        return tlimit
    left = _degrees_to_point(witnesses)
    if left is not None and left >= FAR_FROM_POINT_C:
        return UNSUPPORTED
    return tlimit if claimed >= SURE_MAXIMUM_C or _strain(witnesses) else failed(UNCONFIRMED)


def _heat(witnesses: Witnesses) -> bool:
    """Somebody else says outright that it is hot."""
    memory, left = witnesses.memory_temperature.value, _degrees_to_point(witnesses)
    return (
        witnesses.hw_thermal_slowdown.value == 1
        or witnesses.sw_thermal_slowdown.value == 1
        or (memory is not None and memory >= HOT_MEMORY_C)
        or (left is not None and left <= NEAR_POINT_C)
    )


def _degrees_to_point(witnesses: Witnesses) -> Optional[float]:
    """From the core to the nearest point in degrees Celsius that the card gives; None when that can't be said."""
    points = [point.value for point in (witnesses.operating_point, witnesses.slowdown_point) if point.value is not None]
    temperature = witnesses.temperature.value
    return min(points) - temperature if points and temperature is not None else None


def _strain(witnesses: Witnesses) -> bool:
    """It works at its power limit, or its clocks drop under load: heat is likely."""
    if (witnesses.power_ratio.value or 0.0) >= NEAR_POWER_LIMIT:
        return True
    clock, most = witnesses.sm_clock.value, witnesses.max_sm_clock.value
    busy = (witnesses.utilisation.value or 0.0) >= BUSY_PERCENT
    return busy and clock is not None and most is not None and clock < DROPPED_CLOCK * most
