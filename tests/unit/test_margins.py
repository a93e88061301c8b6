"""When T.Limit is believed, and when it is nonsense (the table of nvml/margins.py)."""

from __future__ import annotations

import pytest

from gpuwatch.model.reading import UNSUPPORTED, Reading, failed, value
from gpuwatch.system.nvml.margins import UNCONFIRMED, Belief, Witnesses, judge

BELIEVED, NONSENSE, UNSURE = "believed", "nonsense", "unsure"


def say(**celsius: float) -> Witnesses:
    return Witnesses(**{name: value(number) for name, number in celsius.items()})


def verdict(tlimit: float, witnesses: Witnesses) -> str:
    judged = judge(value(tlimit), witnesses)
    if judged.unsupported:
        return NONSENSE
    if judged.failed:
        assert judged.problem == UNCONFIRMED
        return UNSURE
    assert judged.value == tlimit
    return BELIEVED


@pytest.mark.parametrize(
    "tlimit, witnesses, expected",
    [
        # A healthy card at any temperature
        (54, say(temperature=33), BELIEVED),
        (1, say(temperature=86), BELIEVED),
        (46, say(temperature=41, operating_point=87), BELIEVED),
        # The alarm: at or beyond the maximum operating temperature, and the card is hot
        (0, say(temperature=87), BELIEVED),
        (-3, say(temperature=90), BELIEVED),
        (-8, say(temperature=95, hw_thermal_slowdown=1), BELIEVED),
        (0, say(temperature=70), BELIEVED),
        (-5, say(temperature=80, slowdown_point=88), BELIEVED),
        # A constant on a cold card
        (0, say(temperature=35), NONSENSE),
        (-5, say(temperature=35, utilisation=0, power_ratio=0.1), NONSENSE),
        (0, say(temperature=59, hw_thermal_slowdown=0, sw_thermal_slowdown=0), NONSENSE),
        (0, say(temperature=35, power_ratio=1.0, utilisation=98), NONSENSE),
        (10, say(temperature=35), NONSENSE),
        (0, say(temperature=75, operating_point=100), NONSENSE),
        # Too good to be true: it would hide heat
        (100, say(temperature=35), NONSENSE),
        (40, say(temperature=95, hw_thermal_slowdown=1), NONSENSE),
        # The core is cool, something else is hot
        (0, say(temperature=50, memory_temperature=95), BELIEVED),
        (-2, say(temperature=45, hw_thermal_slowdown=1), BELIEVED),
        (0, say(temperature=40, sw_thermal_slowdown=1), BELIEVED),
        (0, say(temperature=50, memory_temperature=79), NONSENSE),
        (-1, say(temperature=55, slowdown_point=64), BELIEVED),
        # In between: something must confirm it
        (0, say(temperature=65), UNSURE),
        (0, say(temperature=65, power_ratio=0.95), BELIEVED),
        (0, say(temperature=65, power_ratio=0.5), UNSURE),
        (0, say(temperature=65, utilisation=90, sm_clock=900, max_sm_clock=1980), BELIEVED),
        (0, say(temperature=65, utilisation=90, sm_clock=1900, max_sm_clock=1980), UNSURE),
        (0, say(temperature=65, utilisation=5, sm_clock=345, max_sm_clock=1980), UNSURE),
        # Nobody knows the temperature
        (20, say(), BELIEVED),
        (0, say(), UNSURE),
        (0, say(hw_thermal_slowdown=1), BELIEVED),
        (0, say(memory_temperature=90), BELIEVED),
        (0, say(power_ratio=0.95), BELIEVED),
    ],
)
def test_the_table(tlimit: float, witnesses: Witnesses, expected: str) -> None:
    assert verdict(tlimit, witnesses) == expected


@pytest.mark.parametrize("reading", [UNSUPPORTED, failed("NVML error 999")])
def test_what_was_not_read_stays_so(reading: Reading) -> None:
    assert judge(reading, say(temperature=35)) is reading


def test_a_constant_is_no_alarm_when_the_card_warms_up() -> None:
    belief = Belief()
    for celsius in (35, 36, 37):
        assert belief.judge(value(0), say(temperature=celsius)).unsupported
    assert belief.judge(value(0), say(temperature=88, hw_thermal_slowdown=1)).unsupported


def test_one_wrong_temperature_proves_nothing() -> None:
    belief = Belief()
    for celsius in (40, 3, 40, 3, 40, 3, 40):
        belief.judge(value(47), say(temperature=celsius))
    assert belief.judge(value(-1), say(temperature=88)).value == -1


def test_a_failed_call_neither_proves_nor_disproves() -> None:
    belief = Belief()
    for _ in range(2):
        belief.judge(value(0), say(temperature=35))
        belief.judge(failed("NVML error 999"), say(temperature=35))
    assert belief.judge(value(0), say(temperature=35)).unsupported
    assert belief.judge(value(0), say(temperature=88)).unsupported
