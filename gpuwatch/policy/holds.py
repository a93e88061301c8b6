"""Holding a unit: what was stopped, or runs on a card that must be reset, is not started again before it is over."""

from __future__ import annotations

from gpuwatch.model import reason
from gpuwatch.model.intent import FINAL, IntentState
from gpuwatch.model.rule import Rule
from gpuwatch.policy.resources import choose
from gpuwatch.policy.rung import Rung, wish_again, wish_for
from gpuwatch.policy.situation import Situation
from gpuwatch.policy.state import Alert
from gpuwatch.policy.victims import workload_of

_STOPPED = (IntentState.SENT, IntentState.GONE, IntentState.VERIFIED)


def rung(alert: Alert, rule: Rule, step: int, situation: Situation) -> Rung:
    """Ends at once: what is to be held is added while the alert lasts. A person's release counts for all of it."""
    mine = situation.of_rung(alert, rule, step, "hold")
    wishes = []
    for intent in mine:
        free = intent.id in situation.orders.released or situation.orders.forbids(intent.incident, intent.id)
        if intent.open and not free:
            observe = situation.observes(situation.workload(intent.workload))
            wishes.append(wish_again(intent, observe=intent.observe or observe, sample=alert.sample))
    if alert.cleared is not None or situation.orders.forbids(alert.incident):
        return Rung(tuple(wishes), ended=True)
    # One that was put back when an earlier alert of this incident ended is wanted anew; one that a person ended is not.
    settled = {
        intent.target
        for intent in mine
        if intent.state in FINAL
        and not situation.overtaken(intent)
        and (intent.state is not IntentState.UNDONE or intent.id in situation.orders.released)
    }
    known = {intent.target for intent in mine if intent.open} | settled
    because = ""
    for unit in _targets(alert, rule, step, situation):
        workload = workload_of(unit, situation.settings)
        if unit in known or workload is None or situation.said(alert, "hold", unit):
            continue
        if workload.allow is not None and "hold" not in workload.allow:
            because = reason.NOT_ALLOWED  # also where it was stopped: that is allowed by itself
            continue
        observe = situation.observes(workload)
        wishes.append(wish_for(alert, rule, step, "hold", unit, alert.sample, workload=workload.name, observe=observe))
    return Rung(tuple(wishes), because, ended=True)


def _targets(alert: Alert, rule: Rule, step: int, situation: Situation) -> tuple[str, ...]:
    """Beside a stop: what it stopped. Otherwise the units of workloads that use the card (of a lost one: used)."""
    if any("stop" in each.do for each in rule.ladder[: step + 1]):
        return tuple(
            intent.target
            for intent in situation.intents
            if intent.incident == alert.incident and intent.action == "stop" and intent.state in _STOPPED
        )
    return tuple(sorted(each.unit for each in choose(alert, rule, situation, "hold").candidates))
