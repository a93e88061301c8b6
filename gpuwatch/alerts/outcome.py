"""What gpuwatch did, or did not do, about an incident: the part of a message that comes from intents. Pure."""

from __future__ import annotations

import shlex
from typing import Optional

from gpuwatch.alerts import changes
from gpuwatch.alerts.changes import Around
from gpuwatch.alerts.words import Words, foreign, pasteable, short_unit
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.target import container_of

MOST_TOLD = 3  # actions told one by one in a message

_WAITING = (IntentState.PLANNED, IntentState.PRESERVED)
_NOT_DONE = frozenset({IntentState.REFUSED, IntentState.FAILED, IntentState.WOULD_HAVE, IntentState.UNKNOWN})


def told(intents: tuple[Intent, ...], incident: int) -> tuple[Intent, ...]:
    """The actions of an incident that people hear of: stops that need a person, other stops, throttles, holds."""
    mine = [intent for intent in intents if intent.incident == incident and intent.action != "snapshot"]
    newest: dict[tuple[str, str], Intent] = {}
    for intent in mine:  # of many tries on one target the last one counts
        newest[intent.action, intent.target] = intent
    return tuple(sorted(newest.values(), key=lambda intent: (_rank(intent), -intent.changed.utc_s, intent.target)))


def _rank(intent: Intent) -> int:
    if intent.state is IntentState.WITHDRAWN:
        return 5
    if intent.action != "stop":
        return 3 if intent.action == "throttle" else 4
    if intent.state in _NOT_DONE:
        return 0
    return 1 if intent.open else 2


def stops(actions: tuple[Intent, ...]) -> tuple[Intent, ...]:
    """Those that stop something."""
    return tuple(intent for intent in actions if intent.action == "stop")


def urgent(actions: tuple[Intent, ...]) -> bool:
    """True when something that should have been stopped was not, or nobody knows."""
    return any(_rank(intent) == 0 for intent in actions)


def suffix(words: Words, actions: tuple[Intent, ...]) -> str:
    """The end of a title: "stopping train@llama", "job NOT stopped"; "" when there is nothing to say."""
    if not actions:
        return ""
    first = actions[0]
    if first.action == "throttle":
        return words.say(f"suffix.{_throttle_suffix(first)}") if _throttle_suffix(first) else ""
    if first.action != "stop":
        return ""
    unit = short_unit(first.name)
    if first.state is IntentState.UNKNOWN:
        return words.say("suffix.uncertain")
    if first.state in _NOT_DONE or (first.open and first.observe):
        return words.say("suffix.not_stopped")
    if first.state in (IntentState.GONE, IntentState.VERIFIED):
        return words.say("suffix.stopped", unit=unit)
    return words.say("suffix.stopping", unit=unit) if first.open else ""


def _throttle_suffix(intent: Intent) -> str:
    if intent.state in _NOT_DONE or (intent.state is IntentState.PLANNED and intent.observe):
        return "not_throttled"
    if changes.in_force(intent):
        return "throttled"
    if intent.state in (IntentState.PLANNED, IntentState.SENT):
        return "throttling"
    return "restored" if intent.state is IntentState.UNDONE else ""


def not_done(actions: tuple[Intent, ...]) -> bool:
    """True when the first of them was wanted and did not come about."""
    return bool(actions) and actions[0].state in _NOT_DONE and actions[0].action in ("stop", "throttle")


def lines(words: Words, actions: tuple[Intent, ...], around: Around) -> list[tuple[bool, str]]:
    """A line or more for each action; True with those that can't be done without."""
    said = []
    stopped = {intent.target for intent in stops(actions) if intent.state is IntentState.VERIFIED}
    for intent in actions[:MOST_TOLD]:
        if intent.action == "throttle":
            first, *more = changes.throttle(words, intent, around)
            said += [(True, first), *((False, line) for line in more if not stops(actions))]
        elif intent.action == "hold":
            if around.over and changes.in_force(intent) and intent.target in stopped:
                continue  # it is what is left to do
            said.append((True, changes.hold(words, intent, intent.target in stopped)))
        else:
            said.append((True, _line(words, intent)))
        if intent.state is IntentState.WOULD_HAVE and intent.action != "hold" and not around.over:
            said.append((True, words.say("action.nothing_done_rising" if around.rising else "action.nothing_done")))
    if len(actions) > MOST_TOLD:
        said.append((False, words.say("action.more", count=len(actions) - MOST_TOLD)))
    return list(dict.fromkeys(said))


def _before(words: Words, intent: Intent) -> str:
    """What stands before a stop: evidence, a warning to people, a word to the job."""
    unit = foreign(intent.name)
    if intent.observe:
        return words.say("action.observing", unit=unit)
    if intent.checkpointed is not None:
        return words.say("action.checkpointed", unit=unit, time=words.time(intent.checkpointed))
    if intent.due_s > 0:
        return words.say("action.warned", unit=unit, time=_due(words, intent))
    return words.say("action.planned", unit=unit)


def _due(words: Words, intent: Intent) -> str:
    return words.time(intent.warned or intent.changed, intent.due_s)


def can_be_prevented(actions: tuple[Intent, ...]) -> Optional[Intent]:
    """A stop that has not begun, where people are given time to forbid it."""
    mine = stops(actions)
    return next((each for each in mine if each.state in _WAITING and each.due_s > 0 and not each.observe), None)


def announcement(words: Words, intent: Intent) -> str:
    """For the terminals of the host: what is stopped when, and how to forbid it."""
    return words.say(
        "wall", unit=foreign(intent.name), time=_due(words, intent), rule=foreign(intent.rule), id=intent.id
    )


def _line(words: Words, intent: Intent) -> str:
    unit = foreign(intent.name)
    state = intent.state
    if state in _WAITING:
        return _before(words, intent)
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
    key = state.value if state in _NOT_DONE or state is IntentState.WITHDRAWN else "unknown"
    return words.say(f"action.{key}", unit=unit, reason=words.reason(intent.reason, intent.detail))


def _took_s(intent: Intent) -> Optional[float]:
    """Seconds from the stop request until it was gone; None when unknown."""
    if intent.sent is None or intent.gone is None:
        return None
    return intent.gone.since(intent.sent)


def stopped(actions: tuple[Intent, ...]) -> Optional[Intent]:
    """The first action that verifiably stopped something."""
    return next((intent for intent in stops(actions) if intent.state is IntentState.VERIFIED), None)


def held(actions: tuple[Intent, ...], unit: str) -> bool:
    """True while a unit is kept from starting."""
    return any(each.action == "hold" and each.target == unit and changes.in_force(each) for each in actions)


def start_command(intent: Intent, actions: tuple[Intent, ...]) -> Optional[str]:
    """How a person starts it again; None for a name that nobody should paste."""
    if not pasteable(intent.name):
        return None
    engine, _ = container_of(intent.target)
    if engine:
        return f"{engine} start {shlex.quote(intent.name)}"
    unit = shlex.quote(intent.target)
    start = f"systemctl start {unit}"
    return f"gpuwatch hold release {unit} && {start}" if held(actions, intent.target) else start
