"""The stage between what happened and what is told: silences and maintenance windows. Pure.

Muted is what a mute of model/orders.py covers, with two exceptions: that a stop was carried out, and that a trouble
is over of which people had been told. Once an incident is no longer muted and still open, it is told once, as it is
then; one that has recovered meanwhile is not. What nobody was told of is remembered, for those who ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Optional

from gpuwatch.model.incident import Incident, IncidentState
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import FINAL, Intent
from gpuwatch.model.notification import Transition
from gpuwatch.model.orders import Mute, Orders
from gpuwatch.model.rule import DESTRUCTIVE

MOST_REMEMBERED = 200  # incidents

# By the incident's number.
Muted = Mapping[str, "Hush"]


@dataclass(frozen=True)
class Hush:
    """What was kept from people about one incident."""

    why: str  # of the newest mute, for people
    by: str = ""  # the mute that holds now; "" when none does
    names: tuple[str, ...] = ()  # transitions that were not told
    unheard: bool = False  # nobody was told that it fires
    stops: int = 0  # carried out, and told
    told: int = 0  # times that it was told because a mute had ended


def hush(
    transitions: Iterable[Transition],
    incidents: Iterable[Incident],
    intents: tuple[Intent, ...],
    orders: Orders,
    muted: Muted,
    now: Instant,
) -> tuple[tuple[Transition, ...], Muted]:
    """The transitions that people hear of, and what is remembered. `incidents`: all that are not closed."""
    if not (muted or orders.silences or orders.maintenance):
        return tuple(transitions), muted
    told: list[Transition] = []
    after = dict(muted)
    for transition in transitions:
        key, mute = str(transition.incident.number), orders.mute(transition.incident, now)
        heard, entry = _judge(transition, after.get(key), mute, _stops(transition.incident, intents))
        if heard:
            told.append(transition)
        if entry is not None:
            after[key] = entry
    open_ones = {str(incident.number): incident for incident in incidents if incident.state is IncidentState.OPEN}
    for key, incident in open_ones.items():
        mute, before = orders.mute(incident, now), after.get(key)
        if mute is not None:
            after[key] = _under(before, mute)
        elif before is not None and (before.by or before.unheard):
            if not any(each.incident.number == incident.number for each in told):
                told.append(Transition(incident, _name(before)))
            after[key] = replace(before, by="", unheard=False, told=before.told + 1)
    for key, entry in after.items():
        if entry.by and key not in open_ones:
            after[key] = replace(entry, by="")
    return tuple(told), _remembered(after)


def _under(entry: Optional[Hush], mute: Mute) -> Hush:
    return Hush(mute.why, mute.by) if entry is None else replace(entry, why=mute.why, by=mute.by)


def _judge(
    transition: Transition, entry: Optional[Hush], mute: Optional[Mute], stops: int
) -> tuple[bool, Optional[Hush]]:
    """Whether people hear of it, and the entry after that. `stops`: how many were carried out so far."""
    if mute is None and entry is None:
        return True, None
    kind = transition.kind
    if mute is None:
        assert entry is not None
        if kind == "resolved":
            heard = not entry.unheard
        else:  # with a mute that ends just now, all that has happened is told at once, as firing
            heard = kind == "firing" or not (entry.by or entry.unheard)
            if not heard:
                return False, entry
    else:
        entry = _under(entry, mute)
        if kind == "resolved":
            heard = not entry.unheard  # the end of what they know
        else:
            heard = kind == "update" and stops > entry.stops
            entry = replace(entry, unheard=not heard and (entry.unheard or kind == "firing"))
    if heard:
        return True, replace(entry, stops=stops)
    return False, replace(entry, names=(*(name for name in entry.names if name != transition.name), transition.name))


def _name(entry: Hush) -> str:
    """Unlike any that the policy gives, and the same when the cycle is repeated."""
    return f"firing#after-{entry.by or 'mute'}" + (f"-{entry.told + 1}" if entry.told else "")


def _stops(incident: Incident, intents: tuple[Intent, ...]) -> int:
    """Stops that were carried out in earnest, whatever came of them."""
    return sum(
        intent.incident == incident.number
        and intent.action in DESTRUCTIVE
        and not intent.observe
        and intent.sent is not None
        and intent.state in FINAL
        for intent in intents
    )


def _remembered(muted: Muted) -> Muted:
    newest = sorted(muted, key=int)[-MOST_REMEMBERED:]
    return {key: muted[key] for key in newest}
