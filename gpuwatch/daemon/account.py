"""The daemon's account of itself in the log: every decision and every step of an action, with fields to filter by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuwatch.model import reason
from gpuwatch.model.event import Scalar
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.wish import Decision
from gpuwatch.system.protocols import Log

# Fixed for ever: journalctl MESSAGE_ID=... finds them, systemd's catalog explains them.
DECISION_ID = "6f1d7c0e6c0b4a64a4a1d7f5c2a3e910"
ACTION_ID = "b3e4f1d29a5c4f0e8d76c1b2a9038e54"
PROBLEM_ID = "0c9e5b7a3f214d1d9e86f7a5b4c3d2e1"

NOTICE, WARNING, INFO, DEBUG = 5, 4, 6, 7
_QUIET = frozenset(
    {reason.PENDING, reason.WAITING, reason.NOT_CONFIRMED, reason.IN_FLIGHT, reason.SETTLING, reason.HISTORY}
)


def log_decisions(log: Log, decisions: Iterable[Decision]) -> None:
    """One line a decision, "nothing, because ..." included."""
    for decision in decisions:
        priority = DEBUG if decision.code in _QUIET else NOTICE
        facts = ", ".join(f"{name} {_shown(fact)}" for name, fact in decision.facts.items() if name in _SHOWN)
        message = f"{decision.label}: {decision.rule or 'event'}: {decision.code}" + (f" ({facts})" if facts else "")
        fields = {"MESSAGE_ID": DECISION_ID, "GPUWATCH_RULE": decision.rule, "GPUWATCH_REASON": decision.code}
        if decision.subject.kind == "gpu":
            fields["GPU_UUID"] = decision.subject.id
        log.write(priority, message, fields)


def log_intents(log: Log, before: Iterable[Intent], after: Iterable[Intent]) -> None:
    """One line for each step that an action has taken."""
    known: Mapping[str, Intent] = {intent.id: intent for intent in before}
    for intent in after:
        if intent in known.values():
            continue
        priority = WARNING if intent.state in (IntentState.SENT, IntentState.FAILED, IntentState.REFUSED) else NOTICE
        detail = f": {intent.detail}" if intent.detail else ""
        message = f"action {intent.id}: {intent.action} {intent.target}".rstrip() + f": {intent.state.value}"
        because = f" ({intent.reason})" if intent.reason != intent.state.value else ""
        log.write(
            priority,
            message + because + detail,
            {
                "MESSAGE_ID": ACTION_ID,
                "GPUWATCH_ACTION": intent.id,
                "GPUWATCH_INCIDENT": str(intent.incident),
                "GPUWATCH_RULE": intent.rule,
                "GPUWATCH_STATE": intent.state.value,
                "GPUWATCH_REASON": intent.reason,
                "GPUWATCH_TARGET": intent.target,
                "GPUWATCH_BUNDLE": intent.bundle,
                "GPU_UUID": intent.gpu,
            },
        )


_SHOWN = ("value", "limit", "metric", "xid", "kind", "pci", "count", "old")


def _shown(fact: Scalar) -> str:
    return f"{fact:g}" if isinstance(fact, float) else str(fact)
