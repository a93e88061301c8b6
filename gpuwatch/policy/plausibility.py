"""Is a card as hot as it says? A reading that contradicts itself is suspect until a second witness agrees (S3).

Suspect are: heat without anything that heats; readings that stand still under load; a jump that no metal can make.
Each witness speaks for real heat, against it, or not at all. One that the card does not have does not vote, and
what stands still can't testify for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Optional

from gpuwatch.model.event import Scalar
from gpuwatch.model.gpu import GpuSample
from gpuwatch.model.instant import Instant
from gpuwatch.model.metric import METRICS
from gpuwatch.model.trace import Trace, TracePoint
from gpuwatch.policy.conditions import usable

HOT_WHILE_IDLE, FROZEN, JUMP = "hot_while_idle", "frozen", "jump"
SUSPECTS = (HOT_WHILE_IDLE, FROZEN, JUMP)

# Witnesses
MEMORY, CORE = "memory_temperature", "core_temperature"
SLOWDOWN, CLOCK = "hw_thermal_slowdown", "clock_drop"
RISING, FAN, PEERS = "rising", "fan", "peers"
POWER, UTILISATION = "power", "utilisation"  # these two never prove heat; where they are low they speak against it
WITNESSES = (MEMORY, CORE, SLOWDOWN, CLOCK, RISING, FAN, PEERS, POWER, UTILISATION)

HOT_C = 70.0  # below this no rule that ships minds, whatever the card
NEAR_C = 10.0  # so close to a point of its own, or to another sensor, counts as hot too
FROZEN_S = 60.0
IDLE_PERCENT = 10.0
IDLE_S = 5.0  # a pause between two batches is no idleness
IDLE_SHARE = 0.25  # of the power limit
# A program alone, without work, keeps clocks and memory up: 30 W of a T4's 70 W, 58 W of an A10's 150 W.
IDLE_FLOOR_W, IDLE_FLOOR_SHARE = 80.0, 0.5
IDLE_OVER_LOWEST, LOADED_OVER_LOWEST = 1.2, 2.0
# The quickest that heat can do. At a step of the load the die runs ahead of its heat sink by power x resistance:
# 700 W x 0.04 K/W, or a GeForce's 350 W x 0.08 K/W, are 28 C, within a second. After that the sink itself has to be
# warmed: 700 W into 1 kg of copper or 0.5 kg of aluminium (about 400 J/K), with no air at all, are under 2 C/s.
JUMP_STEP_C, JUMP_C_PER_S = 30.0, 3.0
GAP_S = 15.0  # the first sample after a longer gap is compared with nothing
TREND_S, TREND_LEAST_S = 60.0, 20.0
RISE_C, FALL_C = 3.0, 2.0
CLOCK_DROP, CLOCK_FULL = 0.85, 0.95  # of the highest clock
FAN_FULL, FAN_CALM = 95.0, 60.0  # %
# Reasons for low clocks that have nothing to do with heat
_LOW_BY_DESIGN = (
    "gpu.idle",
    "gpu.application_clocks",
    "gpu.sw_power_cap",
    "gpu.sync_boost",
    "gpu.hw_power_brake",
)
_STANDING_STILL = ("temperature", "power", "sm_clock", "memory_clock", "energy")  # of TracePoint
_LIVELY = ("power", "energy")  # these never stand still under load, as temperature and clocks may


@dataclass(frozen=True)
class Assessment:
    """`suspect`: "" or one of SUSPECTS. The witnesses `agree` that it is hot, speak `against` it, or are `silent`.

    Silent are those that the card lacks, that could not be read, or that have too short a history. A witness that
    has nothing to say here (a clock held by the power limit) is in none of them. `numbers` by witness, in its unit:
    C, W, %; the clock in % of its highest; how much it rose in C; the middle one of the other cards in C.
    `cooling`: it is really hot, has no load any more, and gets cooler: to stop anything would change nothing.
    """

    suspect: str = ""
    agree: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    cooling: bool = False

    @property
    def trusted(self) -> bool:
        """True when there is no reason to doubt the reading, or a second witness bears it out."""
        return not self.suspect or bool(self.agree)

    @property
    def bears_action(self) -> bool:
        """True when something may be stopped or throttled on the strength of this reading."""
        return self.trusted and not self.cooling

    def facts(self) -> dict[str, Scalar]:
        """For messages: witnesses as "power=68 utilisation=0", without a number where there is none."""
        return {
            "suspect": self.suspect,
            "cooling": self.cooling,
            "witnesses_for": self._listed(self.agree),
            "witnesses_against": self._listed(self.against),
            "witnesses_silent": " ".join(self.silent),
        }

    def _listed(self, witnesses: tuple[str, ...]) -> str:
        return " ".join(f"{each}={self.numbers[each]:.0f}" if each in self.numbers else each for each in witnesses)


def assess(
    sample: GpuSample, trace: Trace, peers: Sequence[GpuSample] = (), metric: str = "gpu.temperature"
) -> Assessment:
    """Judge the heat that a card reports now.

    `trace` is its own, with the point of this sample last; empty after a start. `peers` are the other cards of the
    same report. `metric`: the one that a rule is about; everything but gpu.memory_temperature is the core's.
    Without a usable reading nothing is claimed, so nothing is doubted (policy/conditions.usable).
    """
    return _Inquiry(sample, trace, peers, metric == "gpu.memory_temperature").result()


@dataclass(frozen=True)
class _Vote:
    """True for real heat, False against it; None: silent, or, with `asked`, nothing to say. It goes by `number`."""

    says: Optional[bool] = None
    number: Optional[float] = None
    asked: bool = False


_SILENT, _NOTHING = _Vote(), _Vote(asked=True)


class _Inquiry:
    """One assessment under way."""

    def __init__(self, sample: GpuSample, trace: Trace, peers: Sequence[GpuSample], of_memory: bool) -> None:
        self.sample, self.peers, self.of_memory = sample, peers, of_memory
        self.metric = "gpu.memory_temperature" if of_memory else "gpu.temperature"
        self.name = "memory_temperature" if of_memory else "temperature"  # of TracePoint
        self.points = _unbroken(trace.points)
        self.temperatures = [
            (point.taken, number)
            for point in self.points
            if (number := getattr(point, self.name)) is not None and METRICS[self.metric].plausible(number)
        ]
        self.claim = _number(sample, self.metric)
        self.hot = _memory_is_hot(sample) if of_memory else _core_is_hot(sample)
        self.idle_w = _idle_power(sample, self.points)
        self.idle = _rest_of(sample, self.idle_w) is True and all(
            self._at_rest(point) is not False for point in _last(self.points, IDLE_S)
        )
        self.stuck = self._stuck()
        self.jumped_at = _jump(self.temperatures)

    def result(self) -> Assessment:
        """The verdict, and who said what."""
        cooling = self.hot and self.idle and self._falls()
        suspect = ""
        if self.jumped_at is not None:
            suspect = JUMP
        elif self.stuck:
            suspect = FROZEN
        elif self.hot and self.idle and not cooling:
            suspect = HOT_WHILE_IDLE
        if not self.hot:  # nobody can bear out a heat that isn't claimed
            return Assessment(suspect)
        found = Assessment(suspect, cooling=cooling and not suspect)
        votes = (
            *(((CORE, self._core()),) if self.of_memory else ((MEMORY, self._memory()),)),
            (SLOWDOWN, self._slowdown()),
            (CLOCK, self._clock()),
            (RISING, self._rising()),
            (FAN, self._fan()),
            (PEERS, self._peers()),
            (POWER, self._power()),
            (UTILISATION, self._utilisation()),
        )
        for name, vote in votes:
            found = _with_vote(found, name, vote)
        return found

    # The three reasons for doubt, and the good reason to be hot without load

    def _at_rest(self, point: TracePoint) -> Optional[bool]:
        return _at_rest(point.utilisation, point.power, self.idle_w)

    def _stuck(self) -> frozenset[str]:
        """What has stood still for FROZEN_S under load, if that is all that the card has; else nothing."""
        window = _last(self.points, FROZEN_S)
        if not window or _seconds(window[0].taken, window[-1].taken) < FROZEN_S:
            return frozenset()
        if any(self._at_rest(point) is not False for point in window):
            return frozenset()
        supported = [name for name in _STANDING_STILL if getattr(window[-1], name) is not None]
        if "temperature" not in supported or not any(name in supported for name in _LIVELY):
            return frozenset()  # a temperature and a clock that stand still may be a plateau
        if not all(_stands_still(window, name) for name in supported):
            return frozenset()
        others = [name for name in ("memory_temperature", "fan") if _stands_still(window, name)]
        return frozenset((*supported, *others))

    def _falls(self) -> bool:
        """It is cooler than when the load ended, or gets cooler for a while now."""
        if self.claim is None or self._rising().says:
            return False
        loaded = [getattr(point, self.name) for point in self.points if self._at_rest(point) is False]
        if loaded and loaded[-1] is not None:
            return self.claim < float(loaded[-1])
        return _span(self.temperatures) >= TREND_LEAST_S and self.temperatures[0][1] - self.claim >= FALL_C

    # Witnesses

    def _memory(self) -> _Vote:
        memory = _number(self.sample, "gpu.memory_temperature")
        if memory is None or "memory_temperature" in self.stuck:
            return _SILENT
        close = self.claim is not None and memory >= self.claim - NEAR_C
        return _Vote(close or _memory_is_hot(self.sample), memory)

    def _core(self) -> _Vote:
        core = _number(self.sample, "gpu.temperature")
        if core is None or "temperature" in self.stuck:
            return _SILENT
        # GDDR6X runs 20 C above its core by design
        close = self.claim is not None and core >= self.claim - 2 * NEAR_C
        return _Vote(close or _core_is_hot(self.sample), core)

    def _slowdown(self) -> _Vote:
        """The card's own circuit, not the driver's software, which believes the same sensor that is in doubt."""
        bit = _number(self.sample, "gpu.hw_thermal_slowdown")
        if bit is None:
            return _SILENT
        if bit >= 0.5:
            return _Vote(True)
        return _Vote(False) if self._past_slowdown() else _NOTHING

    def _clock(self) -> _Vote:
        clock, most = _number(self.sample, "gpu.sm_clock"), _number(self.sample, "gpu.max_sm_clock")
        if clock is None or not most or "sm_clock" in self.stuck:
            return _SILENT
        if self.idle or any((_number(self.sample, name) or 0.0) >= 0.5 for name in _LOW_BY_DESIGN):
            return _NOTHING
        share = clock / most
        if share <= CLOCK_DROP:
            return _Vote(True, 100 * share)
        return _Vote(False, 100 * share) if share >= CLOCK_FULL and self._past_slowdown() else _NOTHING

    def _rising(self) -> _Vote:
        """Steadily, over the three thirds of the last minute; what came before a jump does not count."""
        after = self.temperatures[self.jumped_at or 0 :]
        recent = [pair for pair in after if _seconds(pair[0], after[-1][0]) <= TREND_S]
        if _span(recent) < TREND_LEAST_S:
            return _SILENT
        parts: list[list[float]] = [[], [], []]
        for moment, number in recent:
            parts[min(2, int(3 * _seconds(recent[0][0], moment) / _span(recent)))].append(number)
        if not all(parts):
            return _SILENT
        first, middle, last = (median(part) for part in parts)
        rise = recent[-1][1] - recent[0][1]
        return _Vote(True, rise) if first < middle < last and rise >= RISE_C else _NOTHING

    def _fan(self) -> _Vote:
        fan = _number(self.sample, "gpu.fan")
        if fan is None or "fan" in self.stuck:
            return _SILENT
        if fan >= FAN_FULL:
            return _Vote(True, fan)
        return _Vote(False, fan) if fan <= FAN_CALM else _NOTHING

    def _peers(self) -> _Vote:
        """Most of the cards that do as much as this one are as hot: then it is the air. Busy cards say nothing
        about an idle one."""
        known = []
        for peer in self.peers:
            number = None if peer.uuid == self.sample.uuid else _number(peer, self.metric)
            if number is not None and _rest_of(peer, _idle_power(peer, ())) in (None, self.idle):
                known.append(number)
        if not known or self.claim is None:
            return _SILENT
        typical = median(known)
        return _Vote(typical >= self.claim - NEAR_C, typical)

    def _power(self) -> _Vote:
        power = _number(self.sample, "gpu.power")
        if power is None or self.idle_w is None or "power" in self.stuck:
            return _SILENT
        return _Vote(False, power) if power <= self.idle_w else _NOTHING

    def _utilisation(self) -> _Vote:
        utilisation = _number(self.sample, "gpu.utilisation")
        if utilisation is None:
            return _SILENT
        return _Vote(False, utilisation) if utilisation < IDLE_PERCENT else _NOTHING

    def _past_slowdown(self) -> bool:
        """It says that it is beyond its own slowdown point: then there should be a reaction."""
        margin = _number(self.sample, "gpu.slowdown_margin")
        return margin is not None and margin < 0


def _with_vote(found: Assessment, name: str, vote: _Vote) -> Assessment:
    numbers = found.numbers if vote.number is None else {**found.numbers, name: vote.number}
    if vote.says is True:
        return replace(found, agree=(*found.agree, name), numbers=numbers)
    if vote.says is False:
        return replace(found, against=(*found.against, name), numbers=numbers)
    return found if vote.asked else replace(found, silent=(*found.silent, name))


def _number(sample: GpuSample, metric: str) -> Optional[float]:
    return usable(metric, sample.reading(metric))


def _core_is_hot(sample: GpuSample) -> bool:
    """At HOT_C, or close to its own slowdown point; a card may tell the degrees left and no temperature."""
    core, margin = _number(sample, "gpu.temperature"), _number(sample, "gpu.slowdown_margin")
    return (core is not None and core >= HOT_C) or (margin is not None and margin <= NEAR_C)


def _memory_is_hot(sample: GpuSample) -> bool:
    """Close to its own highest temperature; at HOT_C and 15 C where the card does not tell that (HBM: 95 to 105 C)."""
    memory, most = _number(sample, "gpu.memory_temperature"), _number(sample, "gpu.memory_operating_point")
    return memory is not None and memory >= (HOT_C + 15.0 if most is None else most - NEAR_C)


def _limit(sample: GpuSample) -> Optional[float]:
    """The default power limit: that in force may be one that gpuwatch has lowered. Watts."""
    return _number(sample, "gpu.power_limit_default") or _number(sample, "gpu.power_limit") or None


def _idle_power(sample: GpuSample, points: Sequence[TracePoint]) -> Optional[float]:
    """Up to which power the card counts as idle, in watts; None when that can't be told.

    A share of its power limit, more on small cards. Without a limit: little over the lowest that the trace shows,
    but only where it shows much higher power too, since the lowest of two minutes under load is load.
    """
    limit = _limit(sample)
    if limit is not None:
        return max(IDLE_SHARE * limit, min(IDLE_FLOOR_W, IDLE_FLOOR_SHARE * limit))
    powers = [point.power for point in points if point.power is not None]
    if powers and max(powers) >= LOADED_OVER_LOWEST * min(powers):
        return IDLE_OVER_LOWEST * min(powers)
    return None


def _at_rest(utilisation: Optional[float], power: Optional[float], idle_w: Optional[float]) -> Optional[bool]:
    """Every reading that tells says that nothing heats the card; None when none tells."""
    said = []
    if utilisation is not None:
        said.append(utilisation < IDLE_PERCENT)
    if power is not None and idle_w is not None:
        said.append(power <= idle_w)
    return all(said) if said else None


def _rest_of(sample: GpuSample, idle_w: Optional[float]) -> Optional[bool]:
    return _at_rest(_number(sample, "gpu.utilisation"), _number(sample, "gpu.power"), idle_w)


# Stretches of the trace

_Series = Sequence[tuple[Instant, float]]


def _seconds(earlier: Instant, later: Instant) -> float:
    """Between two points of one unbroken stretch."""
    return later.since(earlier) or 0.0


def _unbroken(points: Sequence[TracePoint]) -> Sequence[TracePoint]:
    """The newest stretch without a gap, or another boot, in it."""
    for start in range(len(points) - 1, 0, -1):
        gap = points[start].taken.since(points[start - 1].taken)
        if gap is None or not 0 <= gap <= GAP_S:
            return points[start:]
    return points


def _last(points: Sequence[TracePoint], seconds: float) -> Sequence[TracePoint]:
    """The newest points that cover so long together; all, if they don't."""
    for start in range(len(points) - 1, 0, -1):
        if _seconds(points[start].taken, points[-1].taken) >= seconds:
            return points[start:]
    return points


def _span(series: _Series) -> float:
    return _seconds(series[0][0], series[-1][0]) if series else 0.0


def _stands_still(window: Sequence[TracePoint], name: str) -> bool:
    return len({number for point in window if (number := getattr(point, name)) is not None}) == 1


def _jump(series: _Series) -> Optional[int]:
    """Where the newest impossible jump landed; None when there was none, or one back since."""
    landed, direction = None, 0
    for at in range(1, len(series)):
        (before, lower), (after, upper) = series[at - 1], series[at]
        seconds, change = _seconds(before, after), upper - lower
        if seconds > GAP_S or abs(change) <= JUMP_STEP_C + JUMP_C_PER_S * seconds:
            continue
        way = 1 if change > 0 else -1
        landed, direction = (None, 0) if direction == -way else (at, way)
    return landed
