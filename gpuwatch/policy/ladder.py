"""Climbing a ladder: which action a firing alert wants now, and when its rung is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional

from gpuwatch.model import reason
from gpuwatch.model.gpu import Attribution
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import FINAL, Intent, IntentState
from gpuwatch.model.rule import Rule
from gpuwatch.model.settings import Mode, Settings
from gpuwatch.model.wish import Wish
from gpuwatch.policy.state import Alert
from gpuwatch.policy.victims import Candidate, candidates, obstacle

SAME_MOMENT_S = 60.0
MOST_WITHDRAWN = 3  # a target that keeps slipping away ends its rung


@dataclass(frozen=True)
class Rung:
    """What one action of a rung comes to now: a wish, or the reason for none; `ended` for good."""

    wish: Optional[Wish] = None
    reason: str = ""
    ended: bool = False


@dataclass(frozen=True)
class Situation:
    """What a rung is judged against."""

    now: Instant
    intents: Sequence[Intent]
    attribution: Optional[Attribution]
    settings: Settings


def climb(alert: Alert, rule: Rule, situation: Situation) -> tuple[Alert, tuple[Wish, ...]]:
    """The alert with its rung and reason brought up to date, and what it wants now."""
    if not rule.ladder:
        return replace(alert, reason=""), ()
    if not alert.actionable:
        return replace(alert, reason=reason.OLD_EVENT), ()
    alert = _again_in_earnest(alert, rule, situation)
    if alert.step >= len(rule.ladder):
        return alert, ()  # keeps the reason that the last rung ended with
    step = rule.ladder[alert.step]
    started = alert.step_ended or alert.fired or alert.since
    waited = situation.now.since(started)
    if waited is not None and waited < step.after_s:
        return replace(alert, reason=reason.WAITING), ()
    rungs = [_rung(action, alert, rule, situation) for action in step.do]
    wishes = tuple(rung.wish for rung in rungs if rung.wish is not None)
    because = next((rung.reason for rung in rungs if rung.reason), "")
    alert = replace(alert, reason=because)
    if all(rung.ended for rung in rungs):
        alert = replace(alert, step=alert.step + 1, step_ended=situation.now)
    return alert, wishes


def _again_in_earnest(alert: Alert, rule: Rule, situation: Situation) -> Alert:
    """The admin wrote `enforce` while the condition holds: what would have been done is to be done now."""
    said = [
        intent.step
        for intent in situation.intents
        if (intent.incident, intent.rule) == (alert.incident, rule.name) and _overtaken(intent, situation)
    ]
    return replace(alert, step=min(said), step_ended=None) if said and min(said) < alert.step else alert


def _overtaken(intent: Intent, situation: Situation) -> bool:
    """True for what was only said in observe mode, for a workload that is enforced by now and not acted on since."""
    if intent.state is not IntentState.WOULD_HAVE:
        return False
    workload = next((each for each in situation.settings.workloads if each.name == intent.workload), None)
    if workload is None or situation.settings.workload_mode(workload) is Mode.OBSERVE:
        return False
    return not any(
        later.rung == intent.rung and not later.observe and later.state is not IntentState.WITHDRAWN
        for later in situation.intents
    )


def _rung(action: str, alert: Alert, rule: Rule, situation: Situation) -> Rung:
    mine = [
        intent for intent in situation.intents if intent.rung[:4] == (alert.incident, rule.name, alert.step, action)
    ]
    if action == "snapshot":
        if any(intent.state in FINAL for intent in mine) or _has_bundle(alert, situation):
            return Rung(ended=True)
        return Rung(wish=_snapshot(alert, rule))
    return _stop(mine, alert, rule, situation)


def _has_bundle(alert: Alert, situation: Situation) -> bool:
    """Many rules see one trouble (an Xid 79, a lost card): one bundle of these moments is enough."""
    for intent in situation.intents:
        if intent.incident == alert.incident and intent.rule != alert.rule:
            age = situation.now.since(intent.created)
            if (
                age is not None
                and age < SAME_MOMENT_S
                and intent.state not in (IntentState.REFUSED, IntentState.WITHDRAWN)
            ):
                return True
    return False


def _snapshot(alert: Alert, rule: Rule) -> Wish:
    return Wish(
        incident=alert.incident,
        rule=rule.name,
        step=alert.step,
        action="snapshot",
        target="",
        workload="",
        gpu=alert.subject.id if alert.subject.kind == "gpu" else "",
        sample=alert.sample,
        observe=False,
        heat=rule.heat,
    )


def _stop(mine: Sequence[Intent], alert: Alert, rule: Rule, situation: Situation) -> Rung:
    found, because = candidates(situation.attribution, situation.settings, situation.now)
    under_way = next((intent for intent in mine if intent.open), None)
    if under_way is not None:
        return _keep(under_way, found, because, alert, rule, situation)
    mine = [intent for intent in mine if not _overtaken(intent, situation)]
    last = mine[-1] if mine else None
    if last is not None and last.state in (IntentState.WOULD_HAVE, IntentState.FAILED, IntentState.UNKNOWN):
        return Rung(reason=last.reason, ended=True)
    if sum(intent.state is IntentState.WITHDRAWN for intent in mine) >= MOST_WITHDRAWN:
        return Rung(reason=reason.REPLACED, ended=True)
    refused_ones = {intent.target for intent in mine if intent.state is IntentState.REFUSED}
    stopped = {intent.target for intent in mine if intent.state is IntentState.VERIFIED}
    left = [candidate for candidate in found if candidate.unit not in refused_ones]
    left.sort(key=lambda candidate: candidate.unit in stopped)  # one that came back is the last choice
    if not left:
        # Where all were refused the rung is over. After a stop it is not: the next job may start on a hot card.
        refused = last is not None and last.state is IntentState.REFUSED
        return Rung(reason=last.reason if last is not None and refused else because, ended=refused)
    allowed = [
        candidate for candidate in left if candidate.workload.allow is None or "stop" in candidate.workload.allow
    ]
    if not allowed:
        return Rung(reason=reason.NOT_ALLOWED)
    chosen = allowed[0]
    said = [
        intent for intent in situation.intents if intent.incident == alert.incident and intent.target == chosen.unit
    ]
    if any(intent.state is IntentState.WOULD_HAVE and not _overtaken(intent, situation) for intent in said):
        return Rung(reason=reason.WOULD_HAVE, ended=True)  # another rule of this incident has said so
    gpu = alert.subject.id if alert.subject.kind == "gpu" else ""
    observe = situation.settings.workload_mode(chosen.workload) is Mode.OBSERVE
    budget = situation.settings.budget
    because = obstacle(situation.intents, chosen.unit, gpu, rule.heat, observe, budget, situation.now)
    if because:
        return Rung(reason=because)
    return Rung(wish=_wish(chosen, alert, rule, situation))


def _keep(
    intent: Intent, found: Sequence[Candidate], because: str, alert: Alert, rule: Rule, situation: Situation
) -> Rung:
    """An action under way is wanted for as long as its target still is somebody to act on.

    While nobody can tell (stale or unknown attribution), it is neither dropped nor carried out: the
    wish stays with the sample that it had.
    """
    for candidate in found:
        if candidate.unit == intent.target:
            return Rung(wish=_wish(candidate, alert, rule, situation))
    if because not in (reason.ATTRIBUTION_UNKNOWN, reason.NOT_CONFIRMED) and intent.sent is None:
        return Rung(reason=because)
    return Rung(
        wish=Wish(
            incident=intent.incident,
            rule=intent.rule,
            step=intent.step,
            action=intent.action,
            target=intent.target,
            workload=intent.workload,
            gpu=intent.gpu,
            sample=intent.created,
            observe=intent.observe,
            heat=intent.heat,
            grace_s=intent.grace_s,
            users=intent.users,
            used_bytes=intent.used_bytes,
        ),
        reason=because,
    )


def _wish(candidate: Candidate, alert: Alert, rule: Rule, situation: Situation) -> Wish:
    assert situation.attribution is not None
    listed = situation.attribution.taken
    older = listed if (alert.sample.since(listed) or 0.0) > 0 or rule.event is not None else alert.sample
    return Wish(
        incident=alert.incident,
        rule=rule.name,
        step=alert.step,
        action="stop",
        target=candidate.unit,
        workload=candidate.workload.name,
        gpu=alert.subject.id if alert.subject.kind == "gpu" else "",
        sample=older,
        observe=situation.settings.workload_mode(candidate.workload) is Mode.OBSERVE,
        heat=rule.heat,
        grace_s=candidate.workload.stop.grace_s,
        users=candidate.users,
        used_bytes=candidate.used_bytes,
    )
