"""Whom an action may hit: configured units with a confirmed process on the GPU (S2, S11), within the budget (S4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from gpuwatch.model import reason, units
from gpuwatch.model.gpu import Attribution
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.settings import Budget, Settings, Workload
from gpuwatch.policy.state import ATTRIBUTION_S, SETTLE_S


@dataclass(frozen=True)
class Candidate:
    """A unit that may be acted on for one GPU."""

    unit: str
    workload: Workload
    users: tuple[str, ...]
    used_bytes: int


def candidates(
    attribution: Optional[Attribution], settings: Settings, now: Instant
) -> tuple[tuple[Candidate, ...], str]:
    """Candidates in the order in which they are acted on, and the reason code when there are none.

    Lowest priority first, largest user of GPU memory next, then by name.
    """
    age = None if attribution is None else now.since(attribution.taken)
    if attribution is None or attribution.unknown or age is None or age > ATTRIBUTION_S:
        return (), reason.ATTRIBUTION_UNKNOWN
    if not attribution.owners:
        return (), reason.NOBODY_THERE
    found: dict[str, Candidate] = {}
    unconfirmed = False
    for owner in attribution.owners:
        workload = None if owner.kind != "unit" or owner.unit is None else workload_of(owner.unit, settings)
        if workload is None or owner.unit is None:
            continue
        if owner.pid not in attribution.confirmed:
            unconfirmed = True
            continue
        before = found.get(owner.unit, Candidate(owner.unit, workload, (), 0))
        users = before.users if owner.user in before.users else (*before.users, owner.user)
        found[owner.unit] = Candidate(owner.unit, workload, users, before.used_bytes + (owner.used_bytes or 0))
    if not found:
        return (), reason.NOT_CONFIRMED if unconfirmed else reason.NO_WORKLOAD
    ordered = sorted(found.values(), key=lambda each: (each.workload.priority, -each.used_bytes, each.unit))
    return tuple(ordered), ""


def workload_of(unit: str, settings: Settings) -> Optional[Workload]:
    """The first workload that names the unit, if the unit may be touched at all."""
    if units.refusal(unit) is not None or units.matches(unit, settings.protect):
        return None
    return next((each for each in settings.workloads if units.matches(unit, each.units)), None)


def obstacle(
    intents: Iterable[Intent], target: str, gpu: str, heat: bool, observe: bool, budget: Budget, now: Instant
) -> str:
    """The reason code for not acting on `target` now, or "" when nothing stands in the way.

    S4: one action in flight a target and a GPU, time to settle, a budget of destructive ladders. What would have
    been done counts in observe mode only: it leaves the budget of what is done in earnest alone.
    """
    spent: set[str] = set()
    for intent in intents:
        if intent.action != "stop":
            continue
        same_gpu = gpu != "" and intent.gpu == gpu
        if intent.open and (intent.target == target or same_gpu):
            return reason.IN_FLIGHT
        age = now.since(intent.changed)
        if (
            same_gpu
            and intent.state in (IntentState.VERIFIED, IntentState.FAILED)
            and age is not None
            and age < SETTLE_S
        ):
            return reason.SETTLING
        if intent.state is IntentState.WOULD_HAVE and not observe:
            continue
        sent_age = _sent_age(intent, now)
        if sent_age is not None and sent_age < budget.within_s and intent.heat == heat and (same_gpu or not heat):
            spent.add(intent.target)
    if target in spent and not heat:
        return ""  # a ladder on a target counts once
    limit = budget.heat_per_gpu if heat else budget.destructive
    return reason.BUDGET_SPENT if len(spent) >= limit else ""


def _sent_age(intent: Intent, now: Instant) -> Optional[float]:
    """Seconds since it was carried out, or would have been; None when it was not (or not in this boot)."""
    if intent.state is IntentState.WOULD_HAVE:
        return now.since(intent.changed)
    return None if intent.sent is None else now.since(intent.sent)
