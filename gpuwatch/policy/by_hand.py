"""What people settle by hand: a card that was taken out, an incident that is seen to, one that is over. Pure.

Each gives the state that the next step starts from. An incident that only this changed is not among what that step
finds changed, so it comes back beside the state, to be written and told with the step's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional

from gpuwatch.model import reason
from gpuwatch.model.incident import Incident, IncidentState, Mark, Subject
from gpuwatch.model.instant import Instant
from gpuwatch.model.notification import Transition
from gpuwatch.policy import incidents
from gpuwatch.policy.repeats import cured
from gpuwatch.policy.state import Outcome, PolicyState


@dataclass(frozen=True)
class ByHand:
    """An incident that a person changed, and what is to be told of it."""

    incident: Incident
    transition: Optional[Transition] = None


@dataclass(frozen=True)
class Settled:
    """What came of it; `problem` says why nothing did."""

    state: PolicyState
    done: Optional[ByHand] = None
    problem: str = ""


def forget_gpu(state: PolicyState, uuid: str, now: Instant) -> PolicyState:
    """The state without a card that was taken out on purpose: what it was accused of ends."""
    open_incidents = dict(state.incidents)
    kept = {}
    for key, alert in state.alerts.items():
        if alert.subject != Subject("gpu", uuid):
            kept[key] = alert
        elif str(alert.incident) in open_incidents:
            incident = open_incidents[str(alert.incident)]
            open_incidents[str(alert.incident)] = incidents.leave(incident, alert.rule, now, reason.FORGOTTEN)
    gpus = {known: gpu for known, gpu in state.gpus.items() if known != uuid}
    return replace(state, alerts=kept, incidents=open_incidents, gpus=gpus)


def acknowledge(state: PolicyState, number: int, now: Instant, by: str, comment: str) -> Settled:
    """A mark that somebody has seen it; nothing else changes."""
    incident = state.incidents.get(str(number))
    if incident is None:
        return Settled(state, problem=f"incident {number} is not open")
    facts = {"by": by, "comment": comment}
    marked = incidents.tell_story(replace(incident, acknowledged=Mark(now, by, comment)), now, "acknowledged", facts)
    return Settled(replace(state, incidents={**state.incidents, str(number): marked}), ByHand(marked))


def close_incident(state: PolicyState, number: int, now: Instant, by: str, why: str) -> Settled:
    """Closed at once, its events forgotten: how people say "the reset is done" (W10).

    Refused while a reading says otherwise: it would be open again within a second.
    """
    incident = state.incidents.get(str(number))
    if incident is None:
        return Settled(state, problem=f"incident {number} is not open")
    measured = {cause.rule for cause in incident.causes if "metric" in cause.facts and cause.cleared is None}
    mine = {key: alert for key, alert in state.alerts.items() if alert.incident == number}
    for alert in mine.values():
        if alert.rule in measured and alert.phase == "firing" and alert.cleared is None:
            return Settled(state, problem=_still_holds(incident, alert.rule))
    for cause in incident.causes:
        if cause.cleared is None:
            incident = incidents.leave(incident, cause.rule, now, reason.CLOSED_BY_HAND)
    told = incident.state is IncidentState.OPEN and incidents.told(incident, "firing")
    incident = replace(incident, state=IncidentState.CLOSED, closed=now, close_reason=reason.CLOSED_BY_HAND)
    incident = incidents.tell_story(incident, now, "closed", {"by": by, "reason": why})
    transition = None
    if told:
        incident, transition = incidents.transition(incident, "resolved")
    left = replace(
        state,
        alerts={key: alert for key, alert in state.alerts.items() if key not in mine},
        incidents={key: each for key, each in state.incidents.items() if key != str(number)},
        windows={key: window for key, window in state.windows.items() if key not in mine},
        troubles=cured(state.troubles, incident.subject),
    )
    return Settled(left, ByHand(incident, transition))


def _still_holds(incident: Incident, rule: str) -> str:
    number = incident.number
    return (
        f"{incident.label}: rule {rule} still holds, so incident {number} can't be closed; acknowledge it "
        f"(gpuwatch incident ack {number}), or silence it (gpuwatch silence add --rule {rule} --for 4h --comment WHY)"
    )


def with_by_hand(outcome: Outcome, done: tuple[ByHand, ...]) -> Outcome:
    """A step's outcome with what people did before it; the step's own word on an incident is the newer one."""
    told = tuple(each.transition for each in done if each.transition is not None)
    return replace(
        outcome,
        transitions=(*told, *outcome.transitions),
        changed=(*(each.incident for each in done), *outcome.changed),
    )
