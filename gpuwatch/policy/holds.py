"""Holding a unit: what was stopped, or runs on a card that must be reset, is not started again before it is over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Optional

from gpuwatch.model import reason
from gpuwatch.model.intent import FINAL, Intent, IntentState
from gpuwatch.model.rule import Rule
from gpuwatch.model.wish import Wish
from gpuwatch.policy.resources import choose
from gpuwatch.policy.rung import Rung, wish_again, wish_for
from gpuwatch.policy.situation import Situation
from gpuwatch.policy.state import Alert
from gpuwatch.policy.victims import workload_of

_STOPPED = (IntentState.SENT, IntentState.GONE, IntentState.VERIFIED)


def rung(alert: Alert, rule: Rule, step: int, situation: Situation) -> tuple[Alert, Rung]:
    """The alert with what it wants held. Ends at once: more is added while the alert lasts. One hold a unit, whoever
    wants it: it stays for as long as one of them does. A person's release counts for all that fires by then."""
    orders = situation.orders
    mine = situation.of_rung(alert, rule, step, "hold")
    free = {each.target for each in situation.intents if each.action == "hold" and _released(each, alert, situation)}
    # One that was put back when an earlier alert of this incident ended is wanted anew; one that a person ended is not.
    settled = {
        intent.target
        for intent in mine
        if intent.state in FINAL
        and not situation.overtaken(intent)
        and (intent.state is not IntentState.UNDONE or intent.id in orders.released)
    }
    over = alert.cleared is not None or orders.forbids(alert.incident)
    because = ""
    wishes: list[Wish] = []
    more = () if over else _targets(alert, rule, step, situation)
    for unit in dict.fromkeys((*alert.holds, *more)):
        carrier = in_force(situation.intents, unit)
        workload = situation.workload(carrier.workload) if carrier else workload_of(unit, situation.settings)
        observe = situation.observes(workload)
        if carrier is not None:
            if unit not in free and not orders.forbids(carrier.incident, carrier.id):
                wishes.append(wish_again(carrier, observe=carrier.observe or observe, sample=alert.sample))
        elif over or unit in free | settled or workload is None or situation.said(alert, "hold", unit):
            continue
        elif workload.allow is not None and "hold" not in workload.allow:
            because = reason.NOT_ALLOWED  # also where it was stopped: that is allowed by itself
            continue
        else:
            name = workload.name
            wishes.append(wish_for(alert, rule, step, "hold", unit, alert.sample, workload=name, observe=observe))
    wanted = tuple(dict.fromkeys((*alert.holds, *(wish.target for wish in wishes))))
    return replace(alert, holds=wanted), Rung(tuple(wishes), because, ended=True)


def in_force(intents: Iterable[Intent], unit: str) -> Optional[Intent]:
    """The one hold of a unit that is under way, in force or being put back."""
    return next((each for each in intents if each.action == "hold" and each.target == unit and each.open), None)


def _released(intent: Intent, alert: Alert, situation: Situation) -> bool:
    """True for a hold that a person has ended since the alert fires."""
    if intent.id not in situation.orders.released:
        return False
    since = alert.fired or alert.since
    age = intent.changed.since(since)
    return intent.open or age is None or age >= 0


def _targets(alert: Alert, rule: Rule, step: int, situation: Situation) -> tuple[str, ...]:
    """Beside a stop: what it stopped. Otherwise the units of workloads that use the card (of a lost one: used)."""
    if any("stop" in each.do for each in rule.ladder[: step + 1]):
        return tuple(
            intent.target
            for intent in situation.intents
            if intent.incident == alert.incident and intent.action == "stop" and intent.state in _STOPPED
        )
    return tuple(sorted(each.unit for each in choose(alert, rule, situation, "hold").candidates))
