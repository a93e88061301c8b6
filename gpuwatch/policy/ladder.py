"""Climbing a ladder: which actions a firing alert wants now, and when its rung is done.

What can be put back (throttle, hold) is wanted from its rung on for as long as the alert fires; what can't is
wanted once. A rung that can't be had (not supported, not permitted, shared) ends, and the next one's time comes.
"""

from __future__ import annotations

from dataclasses import replace

from gpuwatch.model import reason
from gpuwatch.model.intent import FINAL, IntentState
from gpuwatch.model.rule import REVERSIBLE, Rule
from gpuwatch.model.wish import Wish
from gpuwatch.policy import holds, stops, throttles
from gpuwatch.policy.rung import Rung, wish_for
from gpuwatch.policy.situation import Situation
from gpuwatch.policy.state import SETTLE_S, Alert

SAME_MOMENT_S = 60.0
BETTER = 1.0  # degrees (or the metric's unit) that count as "it gets better"


def climb(alert: Alert, rule: Rule, situation: Situation) -> tuple[Alert, tuple[Wish, ...]]:
    """The alert with its rung and reason brought up to date, and what it wants now."""
    if not rule.ladder:
        return replace(alert, reason=""), ()
    if not alert.actionable:
        return replace(alert, reason=reason.OLD_EVENT), ()
    alert = _again_in_earnest(alert, rule, situation)
    blocked = situation.blocked(alert, rule)
    wishes: list[Wish] = []
    entered = any(each.rung[:3] == (alert.incident, rule.name, alert.step) for each in situation.intents)
    # While it is kept (Rule.keep_s) what its last rung did stays in force, too.
    reached = alert.step + 1 if alert.cleared is not None and entered else alert.step
    for index, step in enumerate(rule.ladder[:reached]):
        for action in step.do:
            if action in REVERSIBLE:
                alert, rung = _rung(action, alert, rule, index, situation, blocked)
                wishes += rung.wishes
    if alert.step >= len(rule.ladder) or alert.cleared is not None:
        return alert, tuple(wishes)  # keeps the reason that the last rung ended with
    step = rule.ladder[alert.step]
    waited = situation.now.since(alert.step_ended or alert.fired or alert.since)
    if waited is not None and waited < step.after_s:
        return replace(alert, reason=blocked or reason.WAITING), tuple(wishes)
    if waited is not None and waited < SETTLE_S and _just_throttled(alert, rule, situation):
        return replace(alert, reason=blocked or reason.SETTLING), tuple(wishes)
    if not entered and (not alert.holding or (step.worse and not _worse(alert, rule, situation))):
        return replace(alert, reason=reason.NOT_WORSE), tuple(wishes)
    rungs = []
    for action in step.do:
        alert, rung = _rung(action, alert, rule, alert.step, situation, blocked)
        rungs.append(rung)
        wishes += rung.wishes
    alert = replace(alert, reason=next((rung.reason for rung in rungs if rung.reason), ""))
    if all(rung.ended for rung in rungs):
        badness = situation.badness(alert, rule)
        alert = replace(alert, step=alert.step + 1, step_ended=situation.now, step_badness=badness)
    return alert, tuple(wishes)


def _just_throttled(alert: Alert, rule: Rule, situation: Situation) -> bool:
    """The rung before has slowed the card down: that needs time to show (S4)."""
    before = situation.of_rung(alert, rule, alert.step - 1, "throttle")
    return any(intent.applied is not None for intent in before)


def _worse(alert: Alert, rule: Rule, situation: Situation) -> bool:
    now = situation.badness(alert, rule)
    return now is not None and (alert.step_badness is None or now > alert.step_badness - BETTER)


def _again_in_earnest(alert: Alert, rule: Rule, situation: Situation) -> Alert:
    """The admin wrote `enforce` while the condition holds: what would have been done is to be done now."""
    said = [
        intent.step
        for intent in situation.intents
        if (intent.incident, intent.rule) == (alert.incident, rule.name) and situation.overtaken(intent)
    ]
    return replace(alert, step=min(said), step_ended=None) if said and min(said) < alert.step else alert


def _rung(action: str, alert: Alert, rule: Rule, step: int, situation: Situation, blocked: str) -> tuple[Alert, Rung]:
    if action == "snapshot":
        return alert, _snapshot(alert, rule, step, situation)
    if action == "throttle":
        return throttles.rung(alert, rule, step, situation, blocked)
    if action == "hold":
        return holds.rung(alert, rule, step, situation)
    # What can't be taken back needs the condition itself, not merely that it has not cleared yet.
    return alert, stops.rung(alert, rule, step, situation, blocked or ("" if alert.holding else reason.NOT_WORSE))


def _snapshot(alert: Alert, rule: Rule, step: int, situation: Situation) -> Rung:
    mine = situation.of_rung(alert, rule, step, "snapshot")
    if any(intent.state in FINAL for intent in mine) or (not mine and _has_bundle(alert, situation)):
        return Rung(ended=True)
    return Rung((wish_for(alert, rule, step, "snapshot", "", alert.sample),))


def _has_bundle(alert: Alert, situation: Situation) -> bool:
    """Many rules see one trouble (an Xid 79, a lost card): one bundle of these moments is enough."""
    for intent in situation.intents:
        if intent.incident == alert.incident and intent.rule != alert.rule and intent.bundle:
            age = situation.now.since(intent.created)
            if (
                age is not None
                and age < SAME_MOMENT_S
                and intent.state not in (IntentState.REFUSED, IntentState.WITHDRAWN)
            ):
                return True
    return False
