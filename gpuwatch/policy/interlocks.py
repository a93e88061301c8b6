"""What stands in the way of what can't be taken back: grace, one in flight, time to settle, the budget (S4)."""

from __future__ import annotations

from typing import Optional

from gpuwatch.model import reason
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.rule import Rule
from gpuwatch.policy.situation import Situation
from gpuwatch.policy.state import SETTLE_S, Alert
from gpuwatch.policy.victims import Candidate


def obstacle(alert: Alert, rule: Rule, candidate: Candidate, situation: Situation) -> str:
    """The reason code for not acting on a candidate now, or "" when nothing stands in the way.

    What would have been done counts in observe mode only: it leaves the budget of what is done in earnest alone.
    """
    now, target, budget = situation.now, candidate.unit, situation.settings.budget
    observe = situation.observes(candidate.workload)
    gpu = alert.subject.id if alert.subject.kind == "gpu" else ""
    if situation.graced():
        return reason.GRACE
    spent: set[str] = set()
    for intent in situation.intents:
        if intent.action != "stop":
            continue
        # What two actions share, so that one has to show its effect before the next: a card, or the host's memory.
        same_place = intent.gpu == gpu and (gpu != "" or intent.incident == alert.incident)
        if intent.open and (intent.target == target or same_place):
            return reason.IN_FLIGHT
        age = now.since(intent.changed)
        ended = intent.state in (IntentState.VERIFIED, IntentState.FAILED)
        if same_place and ended and age is not None and age < SETTLE_S:
            return reason.SETTLING
        if intent.state is IntentState.WOULD_HAVE and not observe:
            continue
        sent_age = _sent_age(intent, now)
        counts = intent.heat == rule.heat and (same_place or not rule.heat)
        if sent_age is not None and sent_age < budget.within_s and counts:
            spent.add(intent.target)
    if target in spent and not rule.heat:
        return ""  # a ladder on a target counts once
    limit = budget.heat_per_gpu if rule.heat else budget.destructive
    return reason.BUDGET_SPENT if len(spent) >= limit else ""


def _sent_age(intent: Intent, now: Instant) -> Optional[float]:
    """Seconds since it was carried out, or would have been; None when it was not (or not in this boot)."""
    if intent.state is IntentState.WOULD_HAVE:
        return now.since(intent.changed)
    return None if intent.sent is None else now.since(intent.sent)
