"""Stopping a unit: who it is, whether anything stands in the way, and when a rung has done what it could."""

from __future__ import annotations

from dataclasses import replace

from gpuwatch.model import reason
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.rule import Rule
from gpuwatch.model.settings import StopSettings
from gpuwatch.model.wish import Wish
from gpuwatch.policy.interlocks import obstacle
from gpuwatch.policy.resources import choose
from gpuwatch.policy.rung import Rung, wish_again, wish_for
from gpuwatch.policy.situation import Situation
from gpuwatch.policy.state import Alert
from gpuwatch.policy.victims import LOST_LIST, Candidate, Choice

NOBODY_CAN_TELL = frozenset(
    {reason.ATTRIBUTION_UNKNOWN, reason.NOT_CONFIRMED, reason.NO_READING, reason.ENGINE_SILENT, LOST_LIST}
)
MOST_WITHDRAWN = 3  # a target that keeps slipping away ends its rung


def rung(alert: Alert, rule: Rule, step: int, situation: Situation, blocked: str) -> Rung:
    """At most one stop at a time; the next one only when what the last one did has had time to show."""
    choice = choose(alert, rule, situation)
    because = choice.why_none
    mine = situation.of_rung(alert, rule, step, "stop")
    under_way = next((intent for intent in mine if intent.open), None)
    if under_way is not None:
        return _keep(under_way, choice, alert, rule, step, situation, blocked)
    mine = [intent for intent in mine if not situation.overtaken(intent)]
    last = mine[-1] if mine else None
    if last is not None and last.state in (IntentState.WOULD_HAVE, IntentState.FAILED, IntentState.UNKNOWN):
        return Rung(reason=last.reason, ended=True)
    if sum(intent.state is IntentState.WITHDRAWN for intent in mine) >= MOST_WITHDRAWN:
        return Rung(reason=reason.REPLACED, ended=True)
    if blocked:
        return Rung(reason=blocked)
    if situation.orders.forbids(alert.incident):
        return Rung(reason=reason.VETOED)
    out = {intent.target for intent in mine if intent.state is IntentState.REFUSED}
    vetoed = {intent.target for intent in mine if situation.orders.forbids(intent.incident, intent.id)}
    stopped = {intent.target for intent in mine if intent.state is IntentState.VERIFIED}
    choice = choice.without(out | vetoed, stopped)  # one that came back is the last choice
    if not choice.candidates:
        # Where all were refused the rung is over. After a stop it is not: the next job may start on a hot card.
        if vetoed:
            return Rung(reason=reason.VETOED, ended=True)
        refused = last is not None and last.state is IntentState.REFUSED
        return Rung(reason=last.reason if last is not None and refused else because, ended=refused)
    chosen = choice.candidates[0]
    if situation.said(alert, "stop", chosen.unit):
        return Rung(reason=reason.WOULD_HAVE, ended=True)  # another rule of this incident has said so
    because = obstacle(alert, rule, chosen, situation)
    if because:
        return Rung(reason=because)
    return Rung((replace(_wish(chosen, alert, rule, step, situation), because=choice.facts()),))


def _keep(
    intent: Intent,
    choice: Choice,
    alert: Alert,
    rule: Rule,
    step: int,
    situation: Situation,
    blocked: str,
) -> Rung:
    """An action under way is wanted for as long as its target still is somebody to act on.

    While nobody can tell (stale or unknown attribution, a suspect reading), it is neither dropped nor carried
    out: the wish stays with the sample that it had.
    """
    if situation.orders.forbids(intent.incident, intent.id) and intent.sent is None:
        return Rung(reason=reason.VETOED)
    workload = situation.workload(intent.workload)
    how = workload.stop if workload is not None else StopSettings(intent.grace_s)
    if blocked:
        return Rung((wish_again(intent, stop=how),), blocked)
    for candidate in choice.candidates:
        if candidate.unit == intent.target:
            return Rung((_wish(candidate, alert, rule, step, situation),))
    if choice.why_none not in NOBODY_CAN_TELL and intent.sent is None:
        return Rung(reason=choice.why_none)
    return Rung((wish_again(intent, stop=how),), choice.why_none)


def _wish(candidate: Candidate, alert: Alert, rule: Rule, step: int, situation: Situation) -> Wish:
    listed = _listed(alert, candidate, situation)
    older = listed if rule.event is not None or (alert.sample.since(listed) or 0.0) > 0 else alert.sample
    return wish_for(
        alert,
        rule,
        step,
        "stop",
        candidate.unit,
        older,
        workload=candidate.workload.name,
        observe=situation.observes(candidate.workload),
        stop=candidate.workload.stop,
        users=candidate.users,
        used_bytes=candidate.used_bytes,
        label=candidate.label,
    )


def _listed(alert: Alert, candidate: Candidate, situation: Situation) -> Instant:
    """When it was seen that this unit is the one: a wish is no newer than that."""
    if alert.subject.kind == "gpu":
        return situation.attributions[alert.subject.id].taken
    if alert.subject.kind == "workload":
        lists = [each.taken for each in situation.attributions.values()]
        return min(lists, key=lambda taken: taken.boottime_s, default=alert.sample)
    mine = [
        each.taken for each in situation.subjects if (each.subject.kind, each.subject.id) == ("unit", candidate.unit)
    ]
    return mine[0] if mine else alert.sample
