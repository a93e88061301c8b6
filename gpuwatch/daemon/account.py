"""The daemon's account of itself in the log: every decision and every step of an action, with fields to filter by.

What is about a unit carries OBJECT_SYSTEMD_UNIT, by which `journalctl -u UNIT` shows it too (it takes that field
from root's entries alone), so that whoever owns the unit finds out why it ended or is slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Optional

from gpuwatch.alerts.words import MOST_WORDS, foreign
from gpuwatch.catalog.texts import has, text
from gpuwatch.model import reason
from gpuwatch.model.event import Scalar
from gpuwatch.model.incident import Incident, IncidentState
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.wish import Decision
from gpuwatch.system.protocols import Log

# Fixed for ever: journalctl MESSAGE_ID=... finds them, systemd's catalog explains them.
DECISION_ID = "6f1d7c0e6c0b4a64a4a1d7f5c2a3e910"
ACTION_ID = "b3e4f1d29a5c4f0e8d76c1b2a9038e54"
PROBLEM_ID = "0c9e5b7a3f214d1d9e86f7a5b4c3d2e1"

WARNING, NOTICE, INFO, DEBUG = 4, 5, 6, 7
_QUIET = frozenset(
    {reason.PENDING, reason.WAITING, reason.NOT_CONFIRMED, reason.IN_FLIGHT, reason.SETTLING, reason.HISTORY}
)
# Something is wanted and a person may have to see to it.
_GRAVE = frozenset({reason.BUDGET_SPENT, reason.SUSPECT, reason.ATTRIBUTION_UNKNOWN, reason.NO_BUNDLE})
_HARMLESS = frozenset({reason.CLEARED, reason.COOLING, reason.GRACE, reason.INHIBITED, reason.WOULD_HAVE})
_TOUCHES = frozenset({IntentState.SENT, IntentState.FAILED, IntentState.REFUSED, IntentState.OVERTAKEN})


def log_decisions(log: Log, decisions: Iterable[Decision], incidents: Iterable[Incident] = ()) -> None:
    """One line a decision, "nothing, because ..." included. `incidents`: all that are not closed."""
    numbers = {incident.subject: incident for incident in incidents if incident.state is not IncidentState.CLOSED}
    for decision in decisions:
        fields = {"MESSAGE_ID": DECISION_ID, "GPUWATCH_RULE": decision.rule, "GPUWATCH_REASON": decision.code}
        if decision.subject in numbers:
            fields["GPUWATCH_INCIDENT"] = str(numbers[decision.subject].number)
        if decision.subject.kind == "gpu":
            fields["GPU_UUID"] = decision.subject.id
        unit = _unit_of(decision)
        if unit:
            fields["OBJECT_SYSTEMD_UNIT"] = unit
        log.write(_priority(decision, decision.subject in numbers), _sentence(decision), fields)


def _priority(decision: Decision, told: bool) -> int:
    """`told`: it belongs to an incident that people hear of."""
    if decision.code in _QUIET:
        return DEBUG
    if decision.code in _HARMLESS:
        return INFO
    return WARNING if decision.code in _GRAVE or (decision.code == reason.FIRED and told) else NOTICE


def _sentence(decision: Decision) -> str:
    facts = decision.facts
    shown = ", ".join(f"{name} {_shown(fact)}" for name, fact in facts.items() if name in _SHOWN)
    message = f"{decision.label}: {decision.rule or 'event'}: {decision.code}" + (f" ({shown})" if shown else "")
    if decision.code == reason.FIRED:
        said = facts.get("meaning_en")
        return f"{message}: {foreign(said, MOST_WORDS)}" if said else message
    return f"{message}: {text('en', f'reason.{decision.code}')}" if has(f"reason.{decision.code}") else message


def _unit_of(decision: Decision) -> str:
    """The systemd unit that a decision is about: that of the program an Xid names, or the unit that was judged."""
    if decision.subject.kind == "unit":
        return _valid(decision.subject.id)
    # A metric's fact of this name is what it is measured in; a container's name is no unit.
    return "" if "metric" in decision.facts else _valid(decision.facts.get("unit"))


def _valid(name: Scalar) -> str:
    """A service's or scope's own name; "" for anything that another could have made up."""
    known = isinstance(name, str) and name.endswith((".service", ".scope")) and foreign(name, 255) == name
    return str(name) if known else ""


def log_intents(
    log: Log, before: Iterable[Intent], after: Iterable[Intent], units_on: Optional[Mapping[str, Iterable[str]]] = None
) -> None:
    """One line for each step that an action has taken. `units_on`: the units on a card by its UUID, for throttles."""
    known: Mapping[str, Intent] = {intent.id: intent for intent in before}
    for intent in after:
        if intent == known.get(intent.id):
            continue
        fields = {
            "MESSAGE_ID": ACTION_ID,
            "GPUWATCH_ACTION": intent.id,
            "GPUWATCH_INCIDENT": str(intent.incident),
            "GPUWATCH_RULE": intent.rule,
            "GPUWATCH_STATE": intent.state.value,
            "GPUWATCH_REASON": intent.reason,
            "GPUWATCH_TARGET": intent.target,
            "GPUWATCH_BUNDLE": intent.bundle,
            "GPU_UUID": intent.gpu,
        }
        if intent.action == "throttle":
            fields["GPUWATCH_LEVEL"] = str(intent.level)
        priority = WARNING if intent.state in _TOUCHES else NOTICE
        slowed = (units_on or {}).get(intent.target, ()) if intent.action == "throttle" else (intent.target,)
        concerned = [unit for unit in map(_valid, slowed) if unit]
        for unit in concerned or [""]:
            more = {"OBJECT_SYSTEMD_UNIT": unit} if unit else {}
            log.write(priority, _step(intent), {**fields, **more})


def _step(intent: Intent) -> str:
    """ "action a17-1: stop train@llama.service: sent, for rule gpu-critical, incident 17"."""
    message = f"action {intent.id}: {intent.action} {intent.name}".rstrip() + f": {intent.state.value}"
    if intent.reason not in ("", intent.state.value):
        message += f" ({intent.reason})"
    if intent.before is not None and intent.value is not None and intent.action == "throttle":
        message += f": power limit {intent.before:g} -> {intent.value:g} W, level {intent.level}"
    if intent.observe:
        message += ", observe mode: nothing is touched"
    message += f", for rule {intent.rule}, incident {intent.incident}"
    return f"{message}: {intent.detail}" if intent.detail else message


_SHOWN = (
    *("value", "limit", "metric", "xid", "kind", "pci", "count", "total", "users", "old", "user", "process", "pid"),
    *("suspect", "witnesses_for", "witnesses_against", "witnesses_silent", "by"),
)


def _shown(fact: Scalar) -> str:
    return f"{fact:g}" if isinstance(fact, float) else foreign(fact, MOST_WORDS)
