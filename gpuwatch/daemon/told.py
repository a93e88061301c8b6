"""What gpuwatch made of a story or of a recorded time: one entry for each thing that a person would hear of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from gpuwatch.model import reason
from gpuwatch.model.event import Scalar
from gpuwatch.model.incident import Incident, IncidentState
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.rule import REVERSIBLE
from gpuwatch.model.wish import Decision
from gpuwatch.policy.state import Outcome, PolicyState
from gpuwatch.simulation import scenario as seen

_DONE = {"stop": seen.STOPS, "throttle": seen.THROTTLES, "hold": seen.HOLDS}
_ENDS = {
    IntentState.REFUSED: seen.REFUSED,
    IntentState.FAILED: seen.FAILED,
    IntentState.WITHDRAWN: seen.WITHDRAWN,
    IntentState.UNKNOWN: seen.UNKNOWN,
    IntentState.OVERTAKEN: seen.OVERTAKEN,
    IntentState.UNDONE: seen.UNDONE,
}
_MOVED = (reason.DEEPER, reason.LIGHTER, reason.REAPPLIED)
_OVER = frozenset(
    {reason.CLEARED, reason.REBOOTED, reason.RULE_CHANGED, reason.FORGOTTEN, reason.CLOSED_BY_HAND, reason.REPLACED}
)


@dataclass(frozen=True)
class Entry:
    """One of the verbs of simulation/scenario.py at a moment, in seconds from the beginning.

    `name` is what the verb names, `on` what it happens to: "GPU 3", "host", a unit.
    """

    at_s: float
    verb: str
    name: str
    on: str = ""
    rule: str = ""
    reason: str = ""
    level: int = 0
    facts: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def timeless(self) -> tuple[str, str, str, str, str, int]:
        """What it says, whenever it was."""
        return (self.verb, self.name, self.on, self.rule, self.reason, self.level)


def of_step(
    at_s: float, before: PolicyState, outcome: Outcome, earlier: Sequence[Intent], later: Sequence[Intent]
) -> tuple[Entry, ...]:
    """Everything that one step brought, conditions first."""
    labels = {uuid: f"GPU {gpu.index}" for uuid, gpu in outcome.state.gpus.items()}
    found = [_of_decision(at_s, decision) for decision in outcome.decisions if decision.code != reason.PENDING]
    known = {intent.id: intent for intent in earlier}
    for intent in later:
        found += _of_intent(at_s, known.get(intent.id), intent, labels)
    found += _of_incidents(at_s, before, outcome)
    found += [
        Entry(at_s, seen.TELLS, transition.kind, transition.incident.label, transition.incident.causes[-1].rule)
        for transition in outcome.transitions
    ]
    return tuple(found)


def _of_decision(at_s: float, decision: Decision) -> Entry:
    if decision.code == reason.FIRED:
        return Entry(at_s, seen.FIRES, decision.rule, decision.label, decision.rule, "", 0, decision.facts)
    if decision.code in _OVER:
        return Entry(at_s, seen.CLEARS, decision.rule, decision.label, decision.rule, decision.code)
    return Entry(at_s, seen.REASON, decision.code, decision.label, decision.rule, decision.code, 0, decision.facts)


def _of_intent(at_s: float, before: Optional[Intent], after: Intent, labels: Mapping[str, str]) -> Iterator[Entry]:
    place = labels.get(after.gpu, after.gpu) if after.gpu else "host"
    target = labels.get(after.target, after.target) or place
    facts: dict[str, Scalar] = {"id": after.id, "detail": after.detail, "workload": after.workload}
    if before is not None and (before.state, before.level, before.killed) == (after.state, after.level, after.killed):
        return
    state, action = after.state, after.action
    if after.killed is not None and (before is None or before.killed is None):
        yield Entry(at_s, seen.KILLS, target, place, after.rule, after.reason, 0, facts)
    elif state is IntentState.WOULD_HAVE:
        yield Entry(at_s, seen.WOULD, f"{action} {target}", place, after.rule, "", after.level, facts)
    elif state in _ENDS:
        yield Entry(at_s, _ENDS[state], action, target, after.rule, after.reason, after.level, facts)
    elif action == "snapshot" and state is IntentState.VERIFIED:
        yield Entry(at_s, seen.SAVES, place, place, after.rule, "", 0, facts)
    elif action in REVERSIBLE and state is IntentState.APPLIED:
        watts: dict[str, Scalar] = {"before": after.before, "value": after.value}
        # Why it was set again is said when it was sent.
        moved = before is not None and before.state is IntentState.SENT and before.reason in _MOVED
        why = before.reason if before is not None and moved and after.reason == reason.APPLIED else after.reason
        yield Entry(at_s, _DONE[action], target, place, after.rule, why, after.level, {**facts, **watts})
    elif action not in REVERSIBLE and state is IntentState.SENT and action in _DONE:
        yield Entry(at_s, _DONE[action], target, place, after.rule, after.reason, 0, facts)
    elif state is IntentState.VERIFIED:
        yield Entry(at_s, seen.STOPPED, target, place, after.rule, "", 0, facts)


def _of_incidents(at_s: float, before: PolicyState, outcome: Outcome) -> Iterator[Entry]:
    for incident in outcome.changed:
        if str(incident.number) not in before.incidents:
            yield Entry(at_s, seen.OPENS, incident.label, incident.label, _first_rule(incident))
        if incident.state is IncidentState.CLOSED:
            yield Entry(at_s, seen.CLOSES, incident.label, incident.label, _first_rule(incident), incident.close_reason)


def _first_rule(incident: Incident) -> str:
    return incident.causes[0].rule if incident.causes else ""
