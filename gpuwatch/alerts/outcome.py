"""What gpuwatch did, or did not do, about an incident: the part of a message that comes from intents. Pure."""

from __future__ import annotations

import shlex
from typing import Optional

from gpuwatch.alerts.words import Words, foreign, short_unit
from gpuwatch.model.intent import Intent, IntentState

MOST_TOLD = 2  # actions told one by one in a message

_NOT_STOPPED = frozenset({IntentState.REFUSED, IntentState.FAILED, IntentState.WOULD_HAVE})


def stops(intents: tuple[Intent, ...], incident: int) -> tuple[Intent, ...]:
    """The destructive intents of an incident, those that need a person first, then the newest."""
    mine = [intent for intent in intents if intent.incident == incident and intent.action != "snapshot"]
    newest: dict[str, Intent] = {}
    for intent in mine:  # of many tries on one target the last one counts
        newest[intent.target] = intent
    return tuple(sorted(newest.values(), key=lambda intent: (_rank(intent), -intent.changed.utc_s, intent.target)))


def _rank(intent: Intent) -> int:
    if intent.state in _NOT_STOPPED or intent.state is IntentState.UNKNOWN:
        return 0
    if intent.open:
        return 1
    return 2 if intent.state is IntentState.VERIFIED else 3


def urgent(told: tuple[Intent, ...]) -> bool:
    """True when something that should have been stopped was not, or nobody knows."""
    return any(_rank(intent) == 0 for intent in told)


def suffix(words: Words, told: tuple[Intent, ...]) -> str:
    """The end of a title: "stopping train@llama", "job NOT stopped"; "" when there is nothing to say."""
    if not told:
        return ""
    first = told[0]
    unit = short_unit(first.target)
    if first.state is IntentState.UNKNOWN:
        return words.say("suffix.uncertain")
    if first.state in _NOT_STOPPED or (first.open and first.observe):
        return words.say("suffix.not_stopped")
    if first.state in (IntentState.GONE, IntentState.VERIFIED):
        return words.say("suffix.stopped", unit=unit)
    return words.say("suffix.stopping", unit=unit) if first.open else ""


def lines(words: Words, told: tuple[Intent, ...], rising: bool) -> list[str]:
    """One or two lines for each action."""
    said = []
    for intent in told[:MOST_TOLD]:
        said.append(_line(words, intent))
        if intent.state is IntentState.WOULD_HAVE:
            said.append(words.say("action.nothing_done_rising" if rising else "action.nothing_done"))
    if len(told) > MOST_TOLD:
        said.append(words.say("action.more", count=len(told) - MOST_TOLD))
    return said


def _line(words: Words, intent: Intent) -> str:
    unit = foreign(intent.target)
    state = intent.state
    if state in (IntentState.PLANNED, IntentState.PRESERVED):
        return words.say("action.observing" if intent.observe else "action.planned", unit=unit)
    if state is IntentState.SENT:
        if intent.killed is not None:
            return words.say("action.killed", unit=unit, time=words.time(intent.killed))
        return words.say("action.sent", unit=unit, time=words.time(intent.sent or intent.changed, intent.grace_s))
    if state is IntentState.GONE:
        return words.say("action.gone", unit=unit, duration=words.duration(_took_s(intent) or 0.0))
    if state is IntentState.VERIFIED:
        took = _took_s(intent)
        if took is None:
            return words.say("action.verified_only", unit=unit)
        key = "action.verified" if intent.killed is None else "action.verified_kill"
        return words.say(key, unit=unit, duration=words.duration(took))
    if state is IntentState.WOULD_HAVE:
        return words.say("action.would_have", unit=unit, time=words.time(intent.changed))
    return words.say(f"action.{state.value}", unit=unit, reason=words.reason(intent.reason, intent.detail))


def _took_s(intent: Intent) -> Optional[float]:
    """Seconds from the stop request until it was gone; None when unknown."""
    if intent.sent is None or intent.gone is None:
        return None
    return intent.gone.since(intent.sent)


def stopped(told: tuple[Intent, ...]) -> Optional[Intent]:
    """The first action that verifiably stopped something."""
    return next((intent for intent in told if intent.state is IntentState.VERIFIED), None)


def start_command(intent: Intent) -> Optional[str]:
    """How a person starts it again; None for a name that had to be cleaned, which nobody should paste."""
    name = intent.target
    if foreign(name) != name or name.startswith("-"):
        return None
    return f"systemctl start {shlex.quote(name)}"
