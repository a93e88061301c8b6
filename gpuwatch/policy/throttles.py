"""Throttling a GPU: whether it may be, how deep, and one throttle a GPU whatever many rules want.

Deeper while it still heats, lighter as it cools, each time after what was done has had SETTLE_S to show. A level
that was given back too early is not given back again before the alert ends, so it does not swing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Optional

from gpuwatch.model import reason, units
from gpuwatch.model.gpu import Attribution
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.rule import Rule
from gpuwatch.model.settings import Workload
from gpuwatch.model.wish import Wish
from gpuwatch.policy.rung import Rung, wish_again, wish_for
from gpuwatch.policy.situation import Situation
from gpuwatch.policy.state import ATTRIBUTION_S, SETTLE_S, Alert
from gpuwatch.policy.victims import owner_workload

NO_WORSE = 0.5  # degrees (or the metric's unit) that are noise
_SETTLED = (
    IntentState.WOULD_HAVE,
    IntentState.FAILED,
    IntentState.REFUSED,
    IntentState.UNKNOWN,
    IntentState.OVERTAKEN,
)


def rung(alert: Alert, rule: Rule, step: int, situation: Situation, blocked: str) -> tuple[Alert, Rung]:
    """The alert with its level, and what it wants of its GPU."""
    gpu = alert.subject.id
    carrier = in_force(situation.intents, gpu)
    if carrier is not None:
        if situation.orders.forbids(carrier.incident, carrier.id):
            return alert, Rung(reason=reason.VETOED, ended=True)
        if not blocked:
            alert = _depth(alert, rule, carrier, situation)
        observe = carrier.observe or situation.observes(situation.workload(carrier.workload))
        wish = wish_again(carrier, level=max(1, alert.level), observe=observe, sample=alert.sample)
        return alert, Rung((wish,), ended=carrier.state is not IntentState.PLANNED)
    mine = [each for each in situation.of_rung(alert, rule, step, "throttle") if not situation.overtaken(each)]
    if mine and mine[-1].state in _SETTLED:
        return alert, Rung(reason=mine[-1].reason, ended=True)
    if situation.orders.forbids(alert.incident) or any(situation.orders.forbids(0, each.id) for each in mine):
        return alert, Rung(reason=reason.VETOED, ended=True)
    if situation.said(alert, "throttle", gpu):
        return alert, Rung(reason=reason.WOULD_HAVE, ended=True)  # another rule of this incident has said so
    if blocked:
        return alert, Rung(reason=blocked)
    workloads, because = _permitted(situation.attributions.get(gpu), gpu, situation)
    if because:
        return alert, Rung(reason=because, ended=because in (reason.SHARED, reason.NOT_ALLOWED))
    observe = any(map(situation.observes, workloads)) if workloads else situation.observes(None)
    alert = replace(alert, level=1, level_since=alert.sample, level_value=alert.value, level_move=1)
    name = workloads[0].name if workloads else ""
    return alert, Rung(
        (wish_for(alert, rule, step, "throttle", gpu, alert.sample, workload=name, observe=observe, level=1),)
    )


def in_force(intents: Iterable[Intent], gpu: str) -> Optional[Intent]:
    """The one throttle of a GPU that is under way, in force or being put back."""
    return next((each for each in intents if each.action == "throttle" and each.target == gpu and each.open), None)


def one_a_gpu(wishes: Iterable[Wish]) -> tuple[Wish, ...]:
    """Of all that is wanted of one GPU, one throttle: in earnest before observed, then the deepest level."""
    chosen: dict[str, Wish] = {}
    others = []
    for wish in wishes:
        if wish.action != "throttle":
            others.append(wish)
            continue
        before = chosen.get(wish.target)
        if before is None:
            chosen[wish.target] = wish
        else:
            level, observe = max(before.level, wish.level), before.observe and wish.observe
            chosen[wish.target] = replace(before, level=level, observe=observe)
    return (*chosen.values(), *others)


def _permitted(attribution: Optional[Attribution], gpu: str, situation: Situation) -> tuple[tuple[Workload, ...], str]:
    """The workloads on a card and the reason code for not throttling it: it slows everybody who is on it down."""
    settings = situation.settings
    named = units.matches(gpu, settings.throttle.gpus)
    age = None if attribution is None else situation.now.since(attribution.taken)
    if attribution is None or attribution.unknown or age is None or age > ATTRIBUTION_S:
        return (), "" if named else reason.ATTRIBUTION_UNKNOWN
    if not attribution.owners:
        return (), "" if named else reason.NOBODY_THERE
    found: dict[str, Workload] = {}
    for owner in attribution.owners:
        workload = owner_workload(owner, settings, situation.containers)
        if workload is None:
            if not named:
                return (), reason.SHARED if _anybody_of_ours(attribution, situation) else reason.NO_WORKLOAD
        else:
            found[workload.name] = workload
    if any(each.allow is not None and "throttle" not in each.allow for each in found.values()):
        return (), reason.NOT_ALLOWED
    if not named and any(owner.pid not in attribution.confirmed for owner in attribution.owners):
        return (), reason.NOT_CONFIRMED
    return tuple(found.values()), ""


def _anybody_of_ours(attribution: Attribution, situation: Situation) -> bool:
    return any(owner_workload(owner, situation.settings, situation.containers) for owner in attribution.owners)


def _depth(alert: Alert, rule: Rule, carrier: Intent, situation: Situation) -> Alert:
    if alert.level == 0 or alert.level_since is None:
        return replace(alert, level=max(1, carrier.level), level_since=alert.sample, level_value=alert.value)
    if carrier.state is not IntentState.APPLIED or carrier.applied is None or alert.value is None:
        return alert
    settled = min(alert.sample.since(carrier.applied) or 0.0, alert.sample.since(alert.level_since) or 0.0)
    if settled < SETTLE_S or rule.threshold is None:
        return alert
    moved = replace(alert, level_since=alert.sample, level_value=alert.value)
    if alert.holding:
        sign = 1.0 if rule.threshold.above is not None else -1.0
        before = alert.value if alert.level_value is None else alert.level_value
        if sign * (alert.value - before) < -NO_WORSE:
            return moved  # it falls by itself: give it the same time again
        reheated = alert.reheated or alert.level_move < 0
        deeper = min(alert.level + 1, situation.settings.throttle.levels)
        return replace(moved, level=deeper, level_move=1, reheated=reheated)
    cool_s = 0.0 if alert.clear_since is None else alert.sample.since(alert.clear_since) or 0.0
    if cool_s >= SETTLE_S and alert.level > 1 and not alert.reheated:
        return replace(moved, level=alert.level - 1, level_move=-1)
    return alert
