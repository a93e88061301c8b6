"""Whom an action may hit: configured units and containers that use what is short or hot, and why this one (S2, S11).

One search for every resource: a GPU, its memory, the host's memory, one unit, a workload on the card where it is over
its limit. Containers are found on cards only: their own memory is not read. Lowest priority first, the largest user of
that resource next, then by name. Everything configured that was looked at gets a verdict, so that people can be told
why it was this one, or why it was nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from gpuwatch.model import container as containers
from gpuwatch.model import reason, units
from gpuwatch.model.container import Container
from gpuwatch.model.event import Scalar
from gpuwatch.model.gpu import Attribution, Owner
from gpuwatch.model.host import UNIT, SubjectReadings
from gpuwatch.model.instant import Instant
from gpuwatch.model.settings import Settings, Workload
from gpuwatch.model.target import of_container, unit_of
from gpuwatch.policy.conditions import usable
from gpuwatch.policy.state import ATTRIBUTION_S

UNIT_READINGS_S = 15.0  # units are read every 5 s; an older reading names nobody
LOST_LIST_S = 60.0  # the last list of a lost GPU serves a hold for so long (S11)
# Whoever may be stopped, together: below this share of the resource it would bring nothing to stop them all. What is
# missing at this second is no measure: it changes with every allocation, and two units may make it up together.
NEGLIGIBLE_TOGETHER = 0.05
# Beside the largest that may be stopped: below this share of it, stopping this one brings nothing. A share of the
# resource would spare each of twenty equal jobs that fill a host between them.
NEGLIGIBLE_BESIDE = 0.1
_MPS_SERVER = "nvidia-cuda-mps"  # comm of server and control daemon; clients keep their own names

# Kinds of Resource
GPU, GPU_MEMORY, HOST_MEMORY, OF_UNIT, OF_WORKLOAD = "gpu", "gpu_memory", "host_memory", "unit", "workload"
_SHARED = frozenset({GPU_MEMORY, HOST_MEMORY, OF_WORKLOAD})  # where it counts how much a unit uses

# Verdicts, beside reason.NOT_CONFIRMED, reason.NOT_ALLOWED and reason.NO_READING
CHOSEN = "chosen"
HIGHER_PRIORITY = "higher_priority"
SMALLER = "smaller"
LATER_NAME = "later_name"  # equal in all else
PROTECTED = "protected"  # by the configuration, or a unit that is never touched
NEGLIGIBLE = reason.NEGLIGIBLE
MPS_SERVER = reason.MPS_SERVER  # it serves everybody's processes
RULED_OUT = reason.RULED_OUT  # it was refused, or a person forbade it
CAME_BACK = "came_back"  # it was stopped for this before: the last choice
VERDICTS = (
    *(CHOSEN, HIGHER_PRIORITY, SMALLER, LATER_NAME, PROTECTED, NEGLIGIBLE, MPS_SERVER, RULED_OUT, CAME_BACK),
    *(reason.NOT_CONFIRMED, reason.NOT_ALLOWED, reason.NO_READING, reason.ENGINE_SILENT),
)
LOST_LIST = reason.LOST_LIST  # the card is lost: its last list of processes serves a hold, not a stop
NOT_UNITS = reason.NOT_UNITS  # what is over the limit is nothing that gpuwatch could stop

# Why nobody, the most telling verdict first
_WHY_NONE = (
    *(reason.NOT_CONFIRMED, reason.NO_READING, reason.ENGINE_SILENT, RULED_OUT, reason.NOT_ALLOWED),
    *(NEGLIGIBLE, MPS_SERVER),
)


@dataclass(frozen=True)
class Resource:
    """What is hot or short. `id`: the GPU's UUID, the unit, the workload; "" of the host.

    `total_bytes`: how much of it there is, or the limit that is exceeded; None where nobody says.
    """

    kind: str
    id: str = ""
    total_bytes: Optional[float] = None


@dataclass(frozen=True)
class Seen:
    """What is known of who uses what: attributions by UUID, readings of units (Subject kind "unit"), containers by
    their full id. `silent_engines`: the kinds of those that don't answer now, so whose containers can't be stopped."""

    now: Instant
    settings: Settings
    attributions: Mapping[str, Attribution] = field(default_factory=dict)
    subjects: Sequence[SubjectReadings] = ()
    containers: Mapping[str, Container] = field(default_factory=dict)
    silent_engines: Collection[str] = ()


@dataclass(frozen=True)
class Candidate:
    """A unit or container that may be acted on. `users` own its processes on the card; `used_bytes` of the resource.
    `label`: what people call it, where that is not its name."""

    unit: str  # as a target: model/target.py
    workload: Workload
    users: tuple[str, ...]
    used_bytes: int
    label: str = ""


@dataclass(frozen=True)
class Considered:
    """A configured unit or container and its verdict. `used_bytes` None: it is not known."""

    unit: str
    workload: str
    used_bytes: Optional[int]
    verdict: str
    label: str = ""


@dataclass(frozen=True)
class Choice:
    """Candidates in the order in which they are acted on, and the reason code when there are none."""

    candidates: tuple[Candidate, ...] = ()
    why_none: str = ""
    considered: tuple[Considered, ...] = ()

    def without(self, ruled_out: Collection[str], last: Collection[str] = ()) -> Choice:
        """Some can't be had; `last` were stopped for this before and have come back."""
        if not self.candidates:
            return self
        out = {each.unit for each in self.candidates if each.unit in ruled_out}
        left = sorted((each for each in self.candidates if each.unit not in out), key=lambda each: each.unit in last)
        considered = [replace(each, verdict=RULED_OUT) if each.unit in out else each for each in self.considered]
        return _ranked(tuple(left), considered, last)

    def facts(self) -> dict[str, Scalar]:
        """For messages: who, by what ("only", "lowest_priority", "largest", parted by blanks), and everybody that was
        considered as "name=verdict:bytes". No name of a unit or container holds a blank or "="."""
        considered = " ".join(
            f"{each.label or each.unit}={each.verdict}:{'' if each.used_bytes is None else each.used_bytes}"
            for each in self.considered
        )
        if not self.candidates:
            return {"considered": considered} if considered else {}
        victim, others = self.candidates[0], self.candidates[1:]
        because = [] if others else ["only"]
        if any(each.workload.priority > victim.workload.priority for each in others):
            because.append("lowest_priority")
        equals = [each for each in others if each.workload.priority == victim.workload.priority]
        if equals and all(each.used_bytes < victim.used_bytes for each in equals):
            because.append("largest")
        return {
            "victim": victim.label or victim.unit,
            "victim_workload": victim.workload.name,
            "victim_priority": victim.workload.priority,
            "victim_bytes": victim.used_bytes,
            "victim_because": " ".join(because),
            "considered": considered,
        }


def choose(resource: Resource, seen: Seen, action: str = "stop", lost_stop: bool = False) -> Choice:
    """Whom `action` may hit for the sake of a resource. `lost_stop`: the site wants a stop although the list of a
    lost GPU is not of now."""
    if resource.kind in (GPU, GPU_MEMORY):
        attribution = seen.attributions.get(resource.id)
        because = _unusable(attribution, seen.now, action, lost_stop)
        if because or attribution is None:
            return Choice((), because)
        uses = _on_card(attribution, seen, None)
        return _judged(uses, resource, action, "" if attribution.owners else reason.NOBODY_THERE)
    if resource.kind == OF_WORKLOAD:
        return _of_workload(resource, seen, action, lost_stop)
    only = resource.id if resource.kind == OF_UNIT else None
    return _judged(_by_readings(seen, only), resource, action, "")


def workload_of(unit: str, settings: Settings) -> Optional[Workload]:
    """The first workload that names the unit, if the unit may be touched at all."""
    if units.refusal(unit) is not None or units.matches(unit, settings.protect):
        return None
    return _named_by(unit, settings)


def owner_workload(owner: Owner, settings: Settings, known: Mapping[str, Container]) -> Optional[Workload]:
    """The workload whose process it is, if it may be touched at all. `known`: containers by their full id."""
    found = _place(owner, settings, known)
    return None if found is None or found.out else found.workload


# Who uses it


@dataclass(frozen=True)
class _Use:
    """A configured unit or container that uses the resource; `out` is the verdict that rules it out, whatever the
    others do."""

    unit: str
    workload: Workload
    used_bytes: Optional[int] = None
    users: tuple[str, ...] = ()
    out: str = ""
    label: str = ""


def _place(
    owner: Owner, settings: Settings, known: Mapping[str, Container], silent: Collection[str] = ()
) -> Optional[_Use]:
    """Where a process runs, as a target; None where no workload names that. A container that a unit runs is stopped
    with its unit, if that is named; where only the container is named, it is for the executor to say why not."""
    if owner.kind == "unit" and owner.unit is not None:
        return _unit_place(owner.unit, settings)
    found = known.get(owner.container or "")
    if found is None or owner.kind != found.engine:
        return None
    unit = unit_of(found, owner.unit)
    by_unit = _unit_place(unit, settings) if unit else None
    workload = containers.workload_of(found, settings.workloads)
    if by_unit is not None or workload is None:
        return by_unit
    protected = any(name and units.matches(name, settings.protect) for name in (unit, owner.unit))
    out = PROTECTED if protected else reason.ENGINE_SILENT if found.engine in silent else ""
    return _Use(of_container(found), workload, out=out, label=found.name)


def _unit_place(unit: str, settings: Settings) -> Optional[_Use]:
    workload = _named_by(unit, settings)
    if workload is None:
        return None
    return _Use(unit, workload, out="" if workload_of(unit, settings) is not None else PROTECTED)


def _unusable(attribution: Optional[Attribution], now: Instant, action: str, lost_stop: bool) -> str:
    """Why the list of a card's processes names nobody (S11), or ""."""
    age = None if attribution is None else now.since(attribution.taken)
    if attribution is None or attribution.unknown or age is None:
        return reason.ATTRIBUTION_UNKNOWN
    if attribution.stale_s is None:
        return reason.ATTRIBUTION_UNKNOWN if age > ATTRIBUTION_S else ""
    if max(age, attribution.stale_s) > LOST_LIST_S:
        return reason.ATTRIBUTION_UNKNOWN
    return "" if action == "hold" or lost_stop else LOST_LIST


def _on_card(attribution: Attribution, seen: Seen, workload_name: Optional[str]) -> list[_Use]:
    """What is configured on a card (of one workload, if named), by its confirmed processes."""
    servers = _mps_units(seen)
    places: dict[str, tuple[_Use, list[Owner]]] = {}
    for owner in attribution.owners:
        place = _place(owner, seen.settings, seen.containers, seen.silent_engines)
        if place is not None and workload_name in (None, place.workload.name):
            places.setdefault(place.unit, (place, []))[1].append(owner)
    uses = []
    for place, owners in places.values():
        confirmed = [owner for owner in owners if owner.pid in attribution.confirmed]
        used = [owner.used_bytes for owner in confirmed if owner.used_bytes is not None]
        serves = MPS_SERVER if place.unit in servers else ""
        out = place.out or serves or ("" if confirmed else reason.NOT_CONFIRMED)
        people = tuple(dict.fromkeys(owner.user for owner in confirmed))
        uses.append(replace(place, used_bytes=sum(used) if used else None, users=people, out=out))
    return uses


def _by_readings(seen: Seen, only: Optional[str]) -> list[_Use]:
    """The configured units by their own memory; those that are not running have no readings."""
    servers = _mps_units(seen)
    uses = []
    for each in seen.subjects:
        unit = each.subject.id
        place = _unit_place(unit, seen.settings) if each.subject.kind == UNIT else None
        if place is None or only not in (None, unit):
            continue
        age = seen.now.since(each.taken)
        fresh = age is not None and age <= UNIT_READINGS_S
        used = usable("unit.memory_used", each.readings.get("unit.memory_used")) if fresh else None
        serves = MPS_SERVER if unit in servers else ""
        out = place.out or serves or (reason.NO_READING if used is None else "")
        uses.append(replace(place, used_bytes=None if used is None else int(used), out=out))
    return uses


def _of_workload(resource: Resource, seen: Seen, action: str, lost_stop: bool) -> Choice:
    """The units of one workload on the card where they use the most."""
    because, cards = "", []
    for attribution in seen.attributions.values():
        unusable = _unusable(attribution, seen.now, action, lost_stop)
        because = because or unusable
        if not unusable:
            uses = _on_card(attribution, seen, resource.id)
            cards.append((sum(use.used_bytes or 0 for use in uses), attribution.uuid, uses))
    if not any(uses for _, _, uses in cards):
        return Choice((), because or (NOT_UNITS if cards else reason.ATTRIBUTION_UNKNOWN))
    used, _, uses = max(cards, key=lambda card: (card[0], bool(card[2]), card[1]))
    choice = _judged(uses, resource, action, "")
    if choice.candidates and resource.total_bytes is not None and used <= resource.total_bytes:
        return Choice((), because or NOT_UNITS)  # the excess is not theirs, or on a card that tells nothing
    return choice


def _named_by(unit: str, settings: Settings) -> Optional[Workload]:
    return next((each for each in settings.workloads if units.matches(unit, each.units)), None)


def _mps_units(seen: Seen) -> frozenset[str]:
    """What holds an MPS server: with it, the programs of others would end too."""
    servers = (
        _place(owner, seen.settings, seen.containers)
        for attribution in seen.attributions.values()
        for owner in attribution.owners
        if owner.name.startswith(_MPS_SERVER)
    )
    return frozenset(place.unit for place in servers if place is not None)


# Who of them


def _judged(uses: Iterable[_Use], resource: Resource, action: str, because: str) -> Choice:
    """Rule out, order, and say of everybody why. `because`: the reason if nobody is configured."""
    known = [use if use.out else replace(use, out=_forbidden(use, resource, action)) for use in uses]
    eligible = [use.used_bytes or 0 for use in known if not use.out]
    if resource.kind in _SHARED and eligible:
        nothing = resource.total_bytes is not None and sum(eligible) < NEGLIGIBLE_TOGETHER * resource.total_bytes
        least = NEGLIGIBLE_BESIDE * max(eligible)
        known = [
            replace(use, out=NEGLIGIBLE) if not use.out and (nothing or (use.used_bytes or 0) < least) else use
            for use in known
        ]
    ordered = sorted(known, key=lambda use: (use.workload.priority, -(use.used_bytes or 0), use.label or use.unit))
    candidates = tuple(
        Candidate(use.unit, use.workload, use.users, use.used_bytes or 0, use.label) for use in ordered if not use.out
    )
    considered = [Considered(use.unit, use.workload.name, use.used_bytes, use.out, use.label) for use in ordered]
    found = _ranked(candidates, considered)
    return found if known or not because else replace(found, why_none=because)


def _forbidden(use: _Use, resource: Resource, action: str) -> str:
    if use.workload.allow is not None and action not in use.workload.allow:
        return reason.NOT_ALLOWED
    # Whoever is on a hot card heats it, however much memory it has; of memory it must be known how much.
    return reason.NO_READING if use.used_bytes is None and resource.kind in _SHARED else ""


def _ranked(candidates: tuple[Candidate, ...], considered: Iterable[Considered], last: Collection[str] = ()) -> Choice:
    """The verdicts of those that may be hit, seen from the first of them."""
    verdicts = {each.unit: _beside(each, candidates[0], last) for each in candidates}
    told = tuple(replace(each, verdict=verdicts.get(each.unit, each.verdict)) for each in considered)
    if candidates:
        return Choice(candidates, "", told)
    found = {each.verdict for each in told}
    return Choice((), next((code for code in _WHY_NONE if code in found), reason.NO_WORKLOAD), told)


def _beside(candidate: Candidate, first: Candidate, last: Collection[str]) -> str:
    if candidate is first:
        return CHOSEN
    if candidate.unit in last and first.unit not in last:
        return CAME_BACK
    if candidate.workload.priority > first.workload.priority:
        return HIGHER_PRIORITY
    return SMALLER if candidate.used_bytes < first.used_bytes else LATER_NAME
