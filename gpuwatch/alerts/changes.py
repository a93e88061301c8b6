"""What was changed and is put back (a power limit, a hold) as lines of a message. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from gpuwatch.alerts.words import Words, foreign, number_of
from gpuwatch.model import reason
from gpuwatch.model.incident import Cause, Incident
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.metric import METRICS
from gpuwatch.model.rule import Rule
from gpuwatch.model.settings import Settings

_BEGUN = (IntentState.SENT, IntentState.APPLIED)
_IN_VAIN = (IntentState.FAILED, IntentState.REFUSED, IntentState.OVERTAKEN)
_ENDS = {
    IntentState.FAILED: "failed",
    IntentState.REFUSED: "failed",
    IntentState.WITHDRAWN: "withdrawn",
    IntentState.OVERTAKEN: "overtaken",
}
_MARGINS = ("gpu.slowdown_margin", "gpu.shutdown_margin", "gpu.operating_margin")


@dataclass(frozen=True)
class Around:
    """What lines about actions need beside them. `rising`: it still heats. `over`: the trouble has ended."""

    incident: Incident
    settings: Settings
    rising: bool = False
    over: bool = False

    def rule(self, intent: Intent) -> Optional[Rule]:
        """The rule that the action is for, while it is configured and its condition holds."""
        return None if self.over or self.cause(intent) is None else self._rules.get(intent.rule)

    def cause(self, intent: Intent) -> Optional[Cause]:
        """What the rule has said, while it holds."""
        return next(
            (each for each in self.incident.causes if each.rule == intent.rule and each.cleared is None),
            None,
        )

    @property
    def _rules(self) -> Mapping[str, Rule]:
        return {rule.name: rule for rule in self.settings.rules}


def in_force(intent: Intent) -> bool:
    """True while a change that can be put back is on."""
    return intent.applied is not None and intent.state in _BEGUN


# Throttle


def throttle(words: Words, intent: Intent, around: Around) -> list[str]:
    """What became of the power limit; of one in force also what that means, until when, and what comes next."""
    if in_force(intent):
        return [_applied(words, intent), *_in_force(words, intent, around), *_next(words, intent, around)]
    if intent.state is IntentState.WOULD_HAVE:
        return [_would_have(words, intent)]
    return [_throttle(words, intent), *_next(words, intent, around)]


def _throttle(words: Words, intent: Intent) -> str:
    state = intent.state
    if state is IntentState.PLANNED:
        return words.say("action.throttle_observing" if intent.observe else "action.throttle_planned")
    if state in (IntentState.SENT, IntentState.UNDOING, IntentState.UNDONE):
        numbers = _numbers(words, intent, back=state is not IntentState.SENT)
        return words.say(f"action.throttle_{state.value}", **numbers) if numbers else words.reason(intent.reason)
    if state in _ENDS:
        return words.say(f"action.throttle_{_ENDS[state]}", reason=words.reason(intent.reason, intent.detail))
    return words.say("action.throttle_unknown")


def _applied(words: Words, intent: Intent) -> str:
    numbers, since = _numbers(words, intent), intent.applied or intent.changed
    key = "action.throttle_stays" if intent.reason == reason.CHANGE_FAILED else "action.throttle_applied"
    return words.say(key, time=words.time(since), **numbers) if numbers else words.reason(reason.APPLIED)


def _would_have(words: Words, intent: Intent) -> str:
    numbers = _numbers(words, intent)
    if not numbers:
        return words.say("action.throttle_observing")
    return words.say("action.throttle_would_have", time=words.time(intent.changed), **numbers)


def _numbers(words: Words, intent: Intent, back: bool = False) -> dict[str, str]:
    """The limit before and the one set; `back`: read from the second to the first. Empty where they are not known."""
    if intent.before is None or intent.value is None:
        return {}
    if not back:
        return words.watts(intent.before, intent.value)
    told = words.watts(intent.value, intent.before)
    return {"value": told["before"], "before": told["value"]}


def _in_force(words: Words, intent: Intent, around: Around) -> list[str]:
    said = []
    if intent.workload:
        said.append(words.say("action.throttle_goes_on", job=foreign(intent.workload)))
    else:
        said.append(words.say("action.throttle_slower"))
    rule = around.rule(intent)
    until = None if rule is None else _until(words, rule, around.cause(intent))
    if until is not None:
        said.append(until)
    return said


def _next(words: Words, intent: Intent, around: Around) -> list[str]:
    stop, rule = next_stop(intent, around), around.rule(intent)
    if stop is None or rule is None:
        return []
    key = "action.next_stop_worse" if rule.ladder[intent.step + 1].worse else "action.next_stop"
    return [words.say(key, time=words.time(stop))]


def _until(words: Words, rule: Rule, cause: Optional[Cause]) -> Optional[str]:
    """When it is put back by itself; None where that can't be told in degrees that a person can look up."""
    if rule.clear is None or rule.metric is None or cause is None:
        return None
    after = words.duration(rule.clear.for_s + rule.keep_s)
    below, above = rule.clear.threshold.below, rule.clear.threshold.above
    if METRICS[rule.metric].unit == "0/1":
        return words.say("action.throttle_after", duration=after)
    if rule.metric in _MARGINS:
        margin, degrees = number_of(cause.facts.get("value")), number_of(cause.facts.get("temperature"))
        if margin is None or degrees is None or above is None:
            return None
        condition = words.say("until.below", value=words.temperature(degrees + margin - above))
    elif below is not None:
        condition = words.say("until.below", value=words.quantity(rule.metric, below))
    else:
        condition = words.say("until.above", value=words.quantity(rule.metric, above or 0.0))
    return words.say("action.throttle_until", duration=after, condition=condition)


def next_stop(intent: Intent, around: Around) -> Optional[Instant]:
    """When the job is stopped if the throttle does not help; None when no stop follows it."""
    rule = around.rule(intent)
    over_with = in_force(intent) or intent.state in _IN_VAIN  # of the throttle's own rung
    if not over_with or intent.action != "throttle" or rule is None or intent.step + 1 >= len(rule.ladder):
        return None
    step = rule.ladder[intent.step + 1]
    workload = next((each for each in around.settings.workloads if each.name == intent.workload), None)
    if "stop" not in step.do or (workload is not None and workload.allow is not None and "stop" not in workload.allow):
        return None
    began = intent.sent or intent.changed
    return Instant(began.boot_id, began.boottime_s + step.after_s, began.utc_s + step.after_s)


# Hold


def hold(words: Words, intent: Intent, stopped: bool) -> str:
    """What became of a hold. `stopped`: its unit was stopped, too."""
    unit, state = foreign(intent.target), intent.state
    if in_force(intent):
        return words.say("action.hold_stopped" if stopped else "action.hold_applied", unit=unit)
    if state in (IntentState.PLANNED, IntentState.SENT):
        return words.say("action.hold_observing" if intent.observe else "action.hold_planned", unit=unit)
    if state is IntentState.WOULD_HAVE:
        return words.say("action.hold_would_have", unit=unit, time=words.time(intent.changed))
    if state in (IntentState.UNDOING, IntentState.UNDONE):
        return words.say(f"action.hold_{state.value}", unit=unit)
    if state is IntentState.FAILED and intent.reason == reason.NO_DROP_IN:
        return words.say("action.hold_no_drop_in", unit=unit)
    if state is IntentState.FAILED and intent.reason == reason.NO_ROOM:
        return words.say("action.hold_already", unit=unit)  # its file was there
    end = "unknown" if state is IntentState.OVERTAKEN else _ENDS.get(state, "unknown")
    return words.say(f"action.hold_{end}", unit=unit, reason=words.reason(intent.reason, intent.detail))
