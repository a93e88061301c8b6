"""Incidents: opened by the first anomaly of a subject, joined by the next, recovered when all have cleared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Optional

from gpuwatch.model.event import Scalar
from gpuwatch.model.gpu import Attribution
from gpuwatch.model.incident import Cause, Incident, IncidentState, Subject, TimelineEntry
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import FINAL, Intent
from gpuwatch.model.notification import Transition
from gpuwatch.model.rule import Rule, Severity
from gpuwatch.policy.state import CAUSE_S, CLOSE_AFTER_S

TOLD = ("throttle", "stop")  # actions whose outcome is worth a message; a hold is told along with another
MOST_STORY = 200  # entries kept of an incident's story; the first and the newest matter


def open_incident(number: int, host: str, subject: Subject, label: str, rule: Rule, now: Instant) -> Incident:
    """A new one, without causes yet."""
    return Incident(
        number=number,
        id=f"{host}#{number}",
        subject=subject,
        label=label,
        state=IncidentState.OPEN,
        severity=rule.severity,
        opened=now,
    )


def find(incidents: Mapping[str, Incident], subject: Subject, facts: Mapping[str, Scalar]) -> Optional[Incident]:
    """The open or recovered incident of a subject that a trouble with these facts is part of. Of the host there is one
    for each kind of trouble: a clock that was set must not hide that memory runs out."""
    mine = _trouble(facts)
    for incident in incidents.values():
        if incident.subject == subject and (subject.kind != "host" or _trouble(incident.causes[0].facts) == mine):
            return incident
    return None


_TROUBLES = {
    **dict.fromkeys(("host.driver_silent", "host.driver_mismatch", "host.gpu_sample_age"), "driver"),
    **dict.fromkeys(("oom_kill", "oomd_kill"), "memory"),
}


def _trouble(facts: Mapping[str, Scalar]) -> str:
    """What of the host is in trouble, by the metric or the kind of event."""
    name = str(facts.get("metric") or facts.get("kind") or "")
    return "memory" if name.startswith("host.memory_") else _TROUBLES.get(name, name)


def join(
    incident: Incident, rule: Rule, since: Instant, now: Instant, facts: Mapping[str, Scalar]
) -> tuple[Incident, str]:
    """The incident with one more firing rule, and the transition that people must hear of ("" if none)."""
    reopened = incident.state is not IncidentState.OPEN
    graver = rule.severity.rank > incident.severity.rank
    causes = tuple(cause for cause in incident.causes if cause.rule != rule.name)
    story_facts = {"rule": rule.name, **{key: facts[key] for key in ("value", "metric", "xid") if key in facts}}
    incident = replace(
        incident,
        state=IncidentState.OPEN,
        severity=rule.severity if graver or reopened else incident.severity,
        causes=(*causes, Cause(rule.name, rule.severity, since, facts)),
        recovered=None,
    )
    incident = tell_story(incident, now, "fired", story_facts)
    if rule.severity is Severity.INFO:
        return incident, ""
    if not told(incident, "firing") or reopened:
        return incident, "firing"
    return incident, "escalated" if graver else ""


def relate(
    incident: Incident, others: Iterable[Incident], attributions: Sequence[Attribution], now: Instant
) -> Incident:
    """The incident with the ids of those that an earlier one of the same job or host may have caused it."""
    found = set(incident.related)
    for other in others:
        age = now.since(other.opened)
        recent = other.number != incident.number and age is not None and age <= CAUSE_S and other.closed is None
        if recent and _related(incident.subject, other.subject, attributions):
            found.add(other.id)
    return replace(incident, related=tuple(sorted(found))) if found != set(incident.related) else incident


def _related(one: Subject, other: Subject, attributions: Sequence[Attribution]) -> bool:
    """The host and whatever is on it; a unit and the cards that it uses."""
    if "host" in (one.kind, other.kind):
        return one.kind != other.kind
    if {one.kind, other.kind} != {"unit", "gpu"}:
        return False
    unit, card = (one.id, other.id) if one.kind == "unit" else (other.id, one.id)
    return any(owner.unit == unit for each in attributions if each.uuid == card for owner in each.owners)


def leave(incident: Incident, rule: str, now: Instant, why: str) -> Incident:
    """The incident after one of its rules has cleared."""
    causes = tuple(replace(cause, cleared=now) if cause.rule == rule else cause for cause in incident.causes)
    return tell_story(replace(incident, causes=causes), now, why, {"rule": rule})


def settle(incident: Incident, now: Instant, boot_changed: bool) -> tuple[Incident, str]:
    """open -> recovered once every cause has cleared, recovered -> closed some time later."""
    if incident.state is IncidentState.OPEN and all(cause.cleared is not None for cause in incident.causes):
        incident = replace(incident, state=IncidentState.RECOVERED, recovered=now)
        incident = tell_story(incident, now, "recovered", {})
        return incident, "resolved" if told(incident, "firing") else ""
    if incident.state is IncidentState.RECOVERED and incident.recovered is not None:
        quiet = now.since(incident.recovered)
        if boot_changed or quiet is None or quiet >= CLOSE_AFTER_S:
            closed = replace(incident, state=IncidentState.CLOSED, closed=now, close_reason="recovered")
            return tell_story(closed, now, "closed", {}), ""
    return incident, ""


def returned(incident: Incident) -> int:
    """How often it was open again soon after it had recovered; at most MOST_RETURNS."""
    return min(MOST_RETURNS, sum(entry.what == "recovered" for entry in incident.story))


MOST_RETURNS = 5


def outcome_due(incident: Incident, intents: tuple[Intent, ...], wanted: frozenset[int]) -> int:
    """How many actions people have not heard of that have ended or are in force; 0 while one is under way or wanted."""
    mine = [each for each in intents if each.incident == incident.number and each.action in TOLD]
    ended = [intent for intent in mine if intent.state in FINAL or intent.applied is not None]
    if len(ended) < len(mine) or incident.number in wanted or not told(incident, "firing"):
        return 0
    return max(0, len(ended) - incident.told_actions)


def transition(incident: Incident, kind: str) -> tuple[Incident, Transition]:
    """The transition under a name that is unique within the incident, and the incident that remembers it."""
    count = sum(name.split("#", 1)[0] == kind for name in incident.notified)
    name = kind if count == 0 else f"{kind}#{count + 1}"
    incident = replace(incident, notified=(*incident.notified, name))
    return incident, Transition(incident, name)


def told(incident: Incident, kind: str) -> bool:
    """True when people have heard of this kind of transition."""
    return any(name.split("#", 1)[0] == kind for name in incident.notified)


def tell_story(incident: Incident, at: Instant, what: str, facts: Mapping[str, Scalar]) -> Incident:
    """The incident with one more line; of a very long story the middle is dropped."""
    story = (*incident.story, TimelineEntry(at, what, facts))
    if len(story) > MOST_STORY:
        story = story[: MOST_STORY // 4] + story[-(MOST_STORY * 3 // 4) :]
    return replace(incident, story=story)


def note_peak(incident: Incident, metric: str, number: float, worse_below: bool) -> Incident:
    """The worst value of a metric during the incident."""
    before = incident.peak.get(metric)
    if before is not None and (before <= number if worse_below else before >= number):
        return incident
    return replace(incident, peak={**incident.peak, metric: number})
