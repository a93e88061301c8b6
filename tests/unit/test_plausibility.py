"""Is a card as hot as it says? Whole stories of one card, a sample a second; the last one is judged (S3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.model.gpu import GpuSample
from gpuwatch.model.reading import UNSUPPORTED, failed, value
from gpuwatch.model.trace import Trace, TracePoint
from gpuwatch.policy.conditions import usable
from gpuwatch.policy.plausibility import SUSPECTS, WITNESSES, Assessment, assess
from tests.fakes.story import NEXT_BOOT, at, gpu

BUSY: dict[str, Any] = {"utilisation": 98, "power": 650, "sm_clock": 1755, "memory_clock": 2619}
IDLE: dict[str, Any] = {"utilisation": 0, "power": 68, "sm_clock": 345, "memory_clock": 2619, "idle": 1}
NO_HBM: dict[str, Any] = {"memory_temperature": UNSUPPORTED}
CHEAP = {**NO_HBM, "energy": UNSUPPORTED, "hw_thermal_slowdown": UNSUPPORTED, "fan": UNSUPPORTED, "max_sm_clock": 1980}


def card(temperature: float, index: int = 0, **readings: Any) -> GpuSample:
    """An H100 without fans, busy unless said otherwise; its memory is always at 60 C, so it never bears heat out."""
    given = {"memory_temperature": 60, "hw_thermal_slowdown": 0, "max_sm_clock": 1980, "fan": UNSUPPORTED}
    return gpu(index, temperature, **{"power_limit_default": 700, **given, **BUSY, **readings})


def point(sample: GpuSample, second: float) -> TracePoint:
    names = [each.name for each in fields(TracePoint) if each.name != "taken"]
    found = {name: sample.reading(f"gpu.{name}") for name in names}
    return TracePoint(at(second), **{name: each.value for name, each in found.items() if each is not None})


def judged(
    samples: Sequence[GpuSample],
    peers: Iterable[GpuSample] = (),
    every_s: float = 1.0,
    metric: str = "gpu.temperature",
) -> Assessment:
    """The last sample, after those before it."""
    points = tuple(point(sample, 1000 + every_s * number) for number, sample in enumerate(samples))
    return assess(samples[-1], Trace(points), tuple(peers), metric)


def alive(count: int, temperature: float = 88, **readings: Any) -> list[GpuSample]:
    """Seconds of a plateau: all but the temperature moves a little."""
    return [
        card(temperature, **{"power": 650 + number % 7, "energy": 1e6 + 650 * number, **readings})
        for number in range(count)
    ]


# Hot while idle


def test_the_classic_false_overheat_is_suspect_and_says_who_spoke() -> None:
    found = judged([card(91, **IDLE)] * 120)
    assert (found.suspect, found.trusted, found.bears_action) == ("hot_while_idle", False, False)
    assert found.agree == ()
    assert set(found.against) == {"power", "utilisation", "memory_temperature", "hw_thermal_slowdown"}
    assert found.facts() == {
        "suspect": "hot_while_idle",
        "cooling": False,
        "witnesses_for": "",
        "witnesses_against": "memory_temperature=60 hw_thermal_slowdown power=68 utilisation=0",
        "witnesses_silent": "fan peers",
    }


def test_it_is_suspect_at_once_when_there_is_no_history() -> None:
    found = assess(card(91, **IDLE, **NO_HBM), Trace())
    assert (found.suspect, found.trusted) == ("hot_while_idle", False)
    assert set(found.silent) == {"memory_temperature", "rising", "fan", "peers"}


def test_an_idle_card_that_is_not_hot_is_nobodys_business() -> None:
    assert judged([card(45, **IDLE)] * 120) == Assessment()


@pytest.mark.parametrize("busy", [{"utilisation": 98}, {"power": 320}], ids=["it computes", "it draws power"])
def test_whatever_says_that_something_heats_it_ends_the_doubt(busy: dict[str, Any]) -> None:
    assert judged([card(91, **{**IDLE, **busy})] * 20).suspect == ""


def test_a_pause_between_two_batches_is_no_idleness() -> None:
    pause = [card(90, **IDLE)] * 3
    found = judged(alive(60, 90) + pause)
    assert (found.suspect, found.cooling) == ("", False)


@pytest.mark.parametrize(
    ("witness", "readings"),
    [
        ("memory_temperature", {"memory_temperature": 84}),
        ("memory_temperature", {"memory_temperature": 79, "memory_operating_point": 88}),
        ("hw_thermal_slowdown", {"hw_thermal_slowdown": 1}),
        ("fan", {"fan": 100}),
    ],
    ids=["close to the core", "close to its own point", "slowdown", "fan"],
)
def test_one_second_witness_is_enough(witness: str, readings: dict[str, Any]) -> None:
    found = judged([card(91, **{**IDLE, **readings})] * 30)
    assert (found.suspect, found.agree, found.trusted) == ("hot_while_idle", (witness,), True)


@pytest.mark.parametrize(
    ("witness", "degrees", "readings"),
    [("fan", 88, {"fan": 30}), ("hw_thermal_slowdown", 92, {}), ("clock_drop", 92, {**BUSY, "sm_clock": 1980})],
)
def test_a_reaction_that_should_be_there_and_is_not_speaks_against_it(
    witness: str, degrees: float, readings: dict[str, Any]
) -> None:
    found = judged([card(degrees, **{**IDLE, "idle": 0, **readings})] * 30)
    assert witness in found.against
    below_its_point = judged([card(88, **{**IDLE, "idle": 0, **readings, "fan": 80})] * 30)
    assert witness not in (*below_its_point.against, *below_its_point.agree)


def test_the_slowdown_of_the_drivers_software_is_no_second_witness() -> None:
    assert not judged([card(91, sw_thermal_slowdown=1, hw_slowdown=1, **IDLE)] * 30).trusted


@pytest.mark.parametrize("junk", [0, 255, -256, 2.0**63])
def test_a_reading_that_is_none_is_neither_doubted_nor_a_witness(junk: float) -> None:
    claim = card(junk, slowdown_margin=UNSUPPORTED, shutdown_margin=UNSUPPORTED, **IDLE)
    assert usable("gpu.temperature", claim.reading("gpu.temperature")) is None
    assert judged([claim] * 30) == Assessment()
    found = judged([card(91, **{**IDLE, "memory_temperature": junk})] * 30)
    assert "memory_temperature" in found.silent


# What is idle power


@pytest.mark.parametrize(
    ("limit", "power", "idle"),
    [(700, 174, True), (700, 176, False), (150, 58, True), (70, 30, True), (70, 36, False), (300, 80, True)],
    ids=["H100", "H100 working", "A10 with a program", "T4 with a program", "T4 working", "A40"],
)
def test_idle_power_is_a_share_of_the_default_limit_and_more_on_small_cards(
    limit: float, power: float, idle: bool
) -> None:
    more: dict[str, Any] = {"power": power, "power_limit": 0.5 * limit, "power_limit_default": limit}
    sample = card(91, **{**IDLE, **more})
    assert judged([sample] * 20).suspect == ("hot_while_idle" if idle else "")


def test_a_limit_that_was_lowered_counts_only_where_the_default_is_not_known() -> None:
    for power, suspect in ((87, "hot_while_idle"), (88, "")):
        more: dict[str, Any] = {"power": power, "power_limit": 350, "power_limit_default": failed("the call failed")}
        assert judged([card(91, **{**IDLE, **more})] * 20).suspect == suspect


def test_without_a_limit_the_lowest_of_the_trace_counts_if_it_was_higher_too() -> None:
    unlimited: dict[str, Any] = {"power_limit_default": UNSUPPORTED, "utilisation": UNSUPPORTED}
    level = [card(91, **{**IDLE, **unlimited, "power": 300})]
    assert judged(level * 60).suspect == ""  # load or idle? nobody can tell
    high = [card(91, **{**BUSY, **unlimited})]
    low = [card(91, **{**IDLE, **unlimited})]
    assert judged(high * 40 + low * 20).suspect == "hot_while_idle"


# It is over: hot, and getting cooler


def test_a_card_whose_job_has_just_ended_is_hot_indeed_and_nothing_is_to_be_stopped() -> None:
    after = [card(92 - 4 - number * 0.3, **IDLE) for number in range(10)]
    found = judged(alive(60, 92) + after)
    assert (found.suspect, found.trusted, found.cooling, found.bears_action) == ("", True, True, False)
    assert found.facts()["cooling"] is True


def test_it_still_counts_as_cooling_when_the_load_is_out_of_sight() -> None:
    assert judged([card(round(90 - number / 20), **IDLE) for number in range(100)]).cooling


def test_a_card_that_stays_as_hot_without_load_is_not_cooling() -> None:
    found = judged(alive(60, 92) + [card(92, **IDLE)] * 20)
    assert (found.suspect, found.cooling) == ("hot_while_idle", False)


def test_a_card_that_heats_again_is_not_cooling() -> None:
    found = judged(alive(30, 95) + [card(round(70 + number / 3), **IDLE) for number in range(70)])
    assert not found.cooling
    assert "rising" in found.agree


# Frozen


@pytest.mark.parametrize(
    "lacks",
    [{}, {"energy": UNSUPPORTED}, {"utilisation": UNSUPPORTED}, {**NO_HBM, "energy": UNSUPPORTED}],
    ids=["all", "an old card without an energy counter", "MIG: no utilisation", "no HBM sensor"],
)
def test_readings_that_stand_still_under_load_are_suspect(lacks: dict[str, Any]) -> None:
    frozen = [card(88, **{"energy": 1e6, **lacks})]
    assert judged(frozen * 60).suspect == ""  # 59 s
    found = judged(frozen * 61)
    assert (found.suspect, found.trusted) == ("frozen", False)


@pytest.mark.parametrize("moves", ["power", "energy", "sm_clock"])
def test_a_plateau_is_not_frozen(moves: str) -> None:
    samples = [card(88, 0, **{"energy": 1e6, moves: 640 + number}) for number in range(120)]
    assert judged(samples).suspect == ""


def test_a_card_that_tells_neither_power_nor_energy_is_never_frozen() -> None:
    assert judged([card(88, power=UNSUPPORTED, energy=UNSUPPORTED)] * 120).suspect == ""


def test_an_idle_card_may_stand_still() -> None:
    assert judged([card(40, energy=UNSUPPORTED, **IDLE)] * 120).suspect == ""


def test_what_stands_still_can_not_testify_for_itself() -> None:
    stuck: dict[str, Any] = {"energy": 1e6, "memory_temperature": 95, "fan": 100, "sm_clock": 900}
    found = judged([card(88, **stuck)] * 61)
    assert (found.suspect, found.agree, found.trusted) == ("frozen", (), False)
    assert {"memory_temperature", "fan", "clock_drop", "power"} <= set(found.silent)


@pytest.mark.parametrize(
    ("witness", "readings"),
    [("memory_temperature", {"memory_temperature": 91}), ("hw_thermal_slowdown", {"hw_thermal_slowdown": 1})],
)
def test_a_witness_that_is_alive_bears_a_frozen_card_out(witness: str, readings: dict[str, Any]) -> None:
    stuck = [card(88, energy=1e6)] * 60
    found = judged([*stuck, card(88, energy=1e6, **readings)])
    assert (found.suspect, found.agree, found.trusted) == ("frozen", (witness,), True)


def test_a_frozen_card_that_claims_to_be_cool_is_suspect_too() -> None:
    found = judged([card(60, energy=1e6)] * 61)
    assert (found.suspect, found.trusted) == ("frozen", False)


# Jumps


def test_a_jump_beyond_physics_is_suspect_for_as_long_as_it_is_in_sight() -> None:
    for later in (1, 30, 100):
        found = judged(alive(10, 55) + alive(later, 95))
        assert (found.suspect, found.trusted) == ("jump", False)


def test_the_step_of_a_load_is_no_jump() -> None:
    idle = [card(45, **IDLE)] * 10
    assert judged(idle + alive(5, 74)).suspect == ""


def test_the_first_sample_after_a_gap_or_a_reboot_is_no_jump() -> None:
    cool, hot = card(15), card(110)
    for later in (at(1016), at(1001, NEXT_BOOT)):
        trace = Trace((point(cool, 1000), replace(point(hot, 0), taken=later)))
        assert assess(hot, trace).suspect == ""
    assert assess(hot, Trace((point(cool, 1000), point(hot, 1001)))).suspect == "jump"


def test_a_spike_that_is_over_is_forgotten() -> None:
    spike = [card(112)]
    assert judged(alive(10, 60) + spike + alive(60, 61)).suspect == ""


def test_junk_in_between_is_no_jump() -> None:
    assert judged([*alive(10, 88), card(0), card(255), *alive(10, 88)]).suspect == ""


def test_a_fall_beyond_physics_is_no_proof_of_coolness() -> None:
    found = judged(alive(10, 94) + alive(5, 40))
    assert (found.suspect, found.trusted) == ("jump", False)


def test_what_came_before_a_jump_makes_no_rising_trend() -> None:
    found = judged(alive(30, 55) + alive(30, 95))
    assert "rising" not in found.agree
    rises = [card(round(92 + number / 5), power=650 + number % 7) for number in range(30)]
    assert "rising" in judged(alive(30, 55) + rises).agree


# Real heat


@pytest.mark.parametrize("rate", [1.0, 2.0, 3.0])
def test_a_true_runaway_is_trusted_by_every_witness(rate: float) -> None:
    samples = []
    for second in range(round(45 / rate) + 1):
        degrees = 50 + rate * second
        hot: dict[str, Any] = {"memory_temperature": degrees + 3, "fan": 100, "power": 650 + second % 5}
        if degrees >= 89:
            hot.update(hw_thermal_slowdown=1, sm_clock=990)
        samples.append(card(degrees, **hot))
    needs_history = {"rising"} if rate < 3 else set()  # 15 s are no trend yet
    found = judged(samples)
    assert (found.suspect, found.bears_action) == ("", True)
    assert set(found.agree) == {"memory_temperature", "hw_thermal_slowdown", "clock_drop", "fan"} | needs_history
    assert found.against == ()


@pytest.mark.parametrize("held", ["sw_power_cap", "application_clocks", "sync_boost", "hw_power_brake"])
def test_clocks_that_are_low_by_design_are_no_witness_of_heat(held: str) -> None:
    slow = alive(30, 88, sm_clock=900)
    assert "clock_drop" in judged(slow).agree
    found = judged(alive(30, 88, sm_clock=900, **{held: 1}))
    assert "clock_drop" not in (*found.agree, *found.against, *found.silent)


def test_what_the_card_does_not_have_does_not_vote() -> None:
    found = judged([card(86, **{**BUSY, **CHEAP})] * 5)  # a GeForce in a server
    assert set(found.silent) == {"memory_temperature", "hw_thermal_slowdown", "fan", "rising", "peers"}
    assert (found.suspect, found.trusted) == ("", True)


# The other cards


def test_in_a_hot_aisle_all_cards_bear_each_other_out() -> None:
    idle = {**IDLE, **NO_HBM}
    found = judged([card(86, **idle)] * 60, [card(86, **idle), *(card(80 + each, each, **idle) for each in (1, 2, 3))])
    assert (found.suspect, found.agree, found.trusted) == ("hot_while_idle", ("peers",), True)


def test_one_hot_card_among_cool_ones_stays_suspect() -> None:
    found = judged([card(91, **IDLE)] * 60, [card(38 + each, each, **IDLE) for each in (1, 2, 3)])
    assert "peers" in found.against
    assert found.numbers["peers"] == 40
    assert not found.trusted


@pytest.mark.parametrize(
    "peer",
    [card(88, 1), card(88, 1, lost="GPU is lost"), card(255, 1, **IDLE), card(91, 0, **IDLE)],
    ids=["busy", "lost", "unreadable", "itself"],
)
def test_a_card_that_can_not_be_compared_says_nothing(peer: GpuSample) -> None:
    found = judged([card(91, **IDLE)] * 60, [peer])
    assert "peers" in found.silent


# Heat of the memory


def test_the_memory_is_judged_by_the_core_and_never_by_itself() -> None:
    lonely = judged([card(45, **{**IDLE, "memory_temperature": 96})] * 30, metric="gpu.memory_temperature")
    assert (lonely.suspect, lonely.trusted) == ("hot_while_idle", False)
    assert "core_temperature" in lonely.against
    borne_out = judged([card(80, **{**IDLE, "memory_temperature": 96})] * 30, metric="gpu.memory_temperature")
    assert borne_out.agree == ("core_temperature",)


# Always

READING: st.SearchStrategy[Optional[float]] = st.one_of(st.none(), st.floats(-300, 300), st.sampled_from([0, 255, 90]))
LOOKS = st.lists(
    st.tuples(
        st.sampled_from([0.5, 1.0, 5.0, 20.0]),
        st.fixed_dictionaries(
            dict.fromkeys(("heat", "memory_temperature", "power", "utilisation", "fan", "sm_clock"), READING)
        ),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(LOOKS, st.booleans())
def test_every_witness_says_one_thing_and_a_suspect_needs_another(looks: Any, of_memory: bool) -> None:
    second, points = 1000.0, []
    for wait, numbers in looks:
        second += wait
        given_now: dict[str, Any] = {name: UNSUPPORTED if n is None else value(n) for name, n in numbers.items()}
        heat = given_now.pop("heat")
        sample = card(60, **given_now)
        sample = replace(sample, readings={**sample.readings, "gpu.temperature": heat})
        points.append(point(sample, second))
    found = assess(sample, Trace(tuple(points)), (), "gpu.memory_temperature" if of_memory else "gpu.temperature")
    said = (*found.agree, *found.against, *found.silent)
    assert len(said) == len(set(said))
    assert set(said) <= set(WITNESSES)
    assert found.suspect in ("", *SUSPECTS)
    assert found.trusted == (found.suspect == "" or found.agree != ())
    assert not (found.cooling and found.suspect)
