"""A transition of an incident as a message for a phone. Pure.

The first line tells host, card and event; then what is known, what was done, and one thing to do;
at most MOST_LINES lines. A line whose facts are not known is left out. Names from outside are cleaned
(words.foreign); what a channel's markup could misread is the channel's to escape.

Facts that are read, from Cause.facts (as they were when the rule fired) and from the `facts`
argument (as they are now, which wins); all are optional:

    metric, value, limit, unit, direction, for_s    a threshold rule, in the metric's unit
    temperature                                     degrees C of the card
    others_low, others_high, others_count           the other cards' degrees C, and how many answer
    rising                                          True while the temperature still goes up
    lost                                            the driver's reason for calling the card lost
    xid, sxid, xid_class, meaning_en, meaning_zh    an Xid and what the catalogue says of it
    kind, count, old, process, pid                  an event; `old`: it was old when it was read
    stuck_pids                                      process ids in D state, as text with blanks
    module_version, library_version                 of a driver mismatch
    problem                                         why state can't be saved
    reason                                          code (model/reason.py): why nothing is done
    suspect, cooling, witnesses_*                   what a doubt about a heat rests on (policy/plausibility.py)
    victim, victim_because, victim_bytes            who was chosen, and by what (policy/victims.py)
    user, unit                                      whose program an Xid names
    total, within_s, users                          of counted events
    repeated, recovery_to                           it came back after a reset; what the driver asks for
    change_over_s                                   `value` is a change within that time

Of an update and of resolved, numbers (value, temperature, others_*) come from `facts` alone: what a
cause says of them is of the past.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from typing import Optional

from gpuwatch.alerts import advice, changes, judgement, outcome, topics
from gpuwatch.alerts.changes import Around
from gpuwatch.alerts.topics import Case
from gpuwatch.alerts.words import Words, foreign, number_of
from gpuwatch.model import reason
from gpuwatch.model.event import Scalar
from gpuwatch.model.incident import Cause, Incident
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent
from gpuwatch.model.metric import METRICS
from gpuwatch.model.notification import Message
from gpuwatch.model.rule import Severity
from gpuwatch.model.settings import Settings

MOST_LINES = 8  # the title included
MOST_TITLE = 120
MOST_LINE = 240
SIMULATED = "SIMULATED"

# How gladly a line is given up when there are too many; the highest goes first.
_WHEN, _ACTION, _COMMAND, _ADVICE, _EVIDENCE, _CONTEXT, _JOB, _RULE, _PLACE = range(9)
_UNSAID = frozenset(
    {
        "",
        reason.IN_FLIGHT,
        reason.SETTLING,
        reason.NOT_CONFIRMED,
        reason.WAITING,
        reason.WOULD_HAVE,
        reason.APPLIED,
    }
)
# With these a stop that a rule wants will not come by itself.
_HELPLESS = frozenset(
    {
        reason.NO_WORKLOAD,
        reason.NOBODY_THERE,
        reason.ATTRIBUTION_UNKNOWN,
        reason.NOT_ALLOWED,
        reason.BUDGET_SPENT,
        reason.OLD_EVENT,
        # Of policy/victims.py
        "lost_list",
        "not_units",
        "negligible",
        "mps_server",
        "ruled_out",
    }
)
_CLOSED_EARLY = (reason.RULE_CHANGED, reason.REBOOTED, reason.CLOSED_BY_HAND)
_Ranked = list[tuple[int, str]]


def render(
    incident: Incident,
    transition: str,
    intents: tuple[Intent, ...],
    settings: Settings,
    now: Instant,
    zone: tzinfo,
    simulated: bool,
    facts: Mapping[str, Scalar],
) -> Message:
    """The message for `transition` (firing | escalated | update | resolved, with or without "#2")."""
    kind = transition.split("#", 1)[0]
    words = Words(settings.language, zone, now)
    cause = _gravest(incident)
    merged: dict[str, Scalar] = {}
    for each in (*incident.causes, cause):
        merged.update(each.facts)
    told = outcome.told(intents, incident.number)
    case = Case(incident, kind, cause, {**merged, **facts}, facts, told, settings, words)
    urgent = (outcome.urgent(told) or _helpless(case)) and not case.over
    ended = _ended_early(case)
    tag = words.say(f"tag.{_tag(case, urgent, ended)}")
    if case.over:
        what = topics.back(case) if not ended else words.say("back.closed", number=incident.number)
    else:
        what = topics.title(case)
    ranked = _resolved(case, ended) if case.over else _news(case)
    return Message(
        title=_title(
            words, tag, settings.host or incident.id.split("#", 1)[0], topics.subject(words, incident), what, simulated
        ),
        lines=_fit(ranked),
        severity=incident.severity,
        tone=kind,
        urgent=urgent,
        bundle=incident.bundle,
    )


def render_test(host: str, channel: str, language: str, now: Instant, zone: tzinfo, simulated: bool) -> Message:
    """The message of `gpuwatch alert test`."""
    words = Words(language, zone, now)
    title = _title(words, words.say("tag.test"), host, "", words.say("test.title"), simulated)
    sent = words.say("test.sent", time=words.time(now), channel=foreign(channel))
    return Message(title, (sent, words.say("test.meaning")), Severity.INFO, "test")


def _gravest(incident: Incident) -> Cause:
    """The gravest cause that still holds; a lost card before anything else of the same severity."""
    causes = [cause for cause in incident.causes if cause.cleared is None] or list(incident.causes)
    if not causes:
        return Cause("", incident.severity, incident.opened)
    return min(
        causes,
        key=lambda cause: (-cause.severity.rank, topics.topic_of(cause.facts) != "lost", cause.since.utc_s, cause.rule),
    )


def _tag(case: Case, urgent: bool, ended: str) -> str:
    if case.over:
        return "closed" if ended else "resolved"
    return "act" if urgent else case.incident.severity.value


def _title(words: Words, tag: str, host: str, card: str, what: str, simulated: bool) -> str:
    name = foreign(host, 40)
    if not name.replace(".", "").isdigit():
        name = name.split(".", 1)[0]  # a lock screen has no room for a domain
    line = tag + (" " if words.language != "zh" else "") + " ".join(part for part in (name, card, what) if part)
    if simulated:
        line = f"{SIMULATED} {line}"
    return line if len(line) <= MOST_TITLE else line[: MOST_TITLE - 1] + "…"


def _news(case: Case) -> _Ranked:
    """Lines of firing, escalated and update, in the order of reading."""
    words = case.words
    ranked: _Ranked = [(_WHEN, topics.when(case))]
    ranked += [(_CONTEXT, line) for line in advice.meaning(case)]
    ranked += [(_JOB, line) for line in _job(case)]
    ranked += [(_CONTEXT, line) for line in advice.context(case)]
    ranked += [(_RULE, line) for line in _rule(case)]
    ranked += [(_ACTION if needed else _CONTEXT, line) for needed, line in _actions(case)]
    if case.incident.bundle:
        ranked.append((_EVIDENCE, words.say("evidence", bundle=foreign(case.incident.bundle))))
    ranked += [(_PLACE, line) for line in advice.place(case)]
    ranked += [(_ADVICE, line) for line in advice.advice(case)]
    ranked.append((_COMMAND, _command(case)))
    return ranked


def _job(case: Case) -> list[str]:
    """Whose job it is, and why this one was chosen."""
    words, stops = case.words, outcome.stops(case.told)
    aimed = next((intent for intent in case.told if intent.action in ("stop", "hold")), None)
    if case.topic == "lost":
        unit = aimed.name if aimed is not None else case.facts.get("victim")
        return [words.say("lost.affected", unit=foreign(unit))] if unit else []
    if not stops:
        return []
    first, said = stops[0], []
    who = [foreign(user, 32) for user in first.users[:3]]
    if first.used_bytes > 0:
        who.append(words.quantity("gpu.memory_used", first.used_bytes))
    if who:
        said.append(words.say("job", unit=foreign(first.name), who=", ".join(who)))
    facts = first.because or case.cause.facts
    if facts.get("victim") == first.name and facts.get("victim_because") != "only":
        chosen = judgement.chosen(words, facts)
        said += [] if chosen is None else [chosen]
    return said


def _rule(case: Case) -> list[str]:
    """Which rule it was and what else holds."""
    words, said = case.words, []
    limit, metric = number_of(case.cause.facts.get("limit")), case.metric
    unit = METRICS[metric].unit if metric in METRICS else ""
    negated = unit == "0/1" and case.facts.get("direction") == "below"  # its name would say the opposite
    if metric and limit is not None and case.topic in ("hot", "metric") and not negated:
        shown = "" if limit == 0.5 else words.quantity(metric, limit)  # of a count: any at all
        key = "rule.set" if not shown else f"rule.{'below' if case.facts.get('direction') == 'below' else 'above'}"
        line = words.say(key, rule=foreign(case.cause.rule), metric=words.metric(metric), limit=shown)
        held = number_of(case.cause.facts.get("for_s"))
        over = number_of(case.cause.facts.get("change_over_s"))
        line += words.say("rule.within", duration=words.duration(over)) if over else ""
        said.append(line + (words.say("rule.for", duration=words.duration(held)) if held else ""))
    count = number_of(case.cause.facts.get("count"))
    if count is not None and count > 1 and case.cause.facts.get("total") is None:
        said.append(words.say("count", count=int(count)))
    also = [
        foreign(cause.rule) for cause in case.incident.causes if cause.cleared is None and cause.rule != case.cause.rule
    ]
    if also:
        said.append(words.say("rule.also", rules=", ".join(also[:4])))
    return said


def _wants(case: Case, *actions: str) -> bool:
    """True when the gravest cause's rule has one of these in its ladder."""
    return case.rule is not None and any(action in step.do for step in case.rule.ladder for action in actions)


def _helpless(case: Case) -> bool:
    """True when a rule wants something stopped and gpuwatch can't or may not do it."""
    done = outcome.stops(case.told)
    return not done and _wants(case, "stop") and case.cause.facts.get("reason") in _HELPLESS


def _actions(case: Case) -> list[tuple[bool, str]]:
    """What was done, or why nothing was; True with what can't be left out."""
    words = case.words
    why = str(case.cause.facts.get("reason") or "")
    key = "action.none" if _wants(case, "stop") else "action.none_done"
    if case.told:
        around = Around(case.incident, case.settings, rising=case.facts.get("rising") is True)
        said = outcome.lines(words, case.told, around)
        return [*said, (True, words.say(key, reason=words.reason(why)))] if _helpless(case) else said
    if case.facts.get("old") is True:
        return [(True, words.say("old"))]
    wanted = _wants(case, "stop", "throttle", "hold")
    if wanted and why not in _UNSAID:
        return [(True, words.say(key, reason=words.reason(why)))]
    if wanted and why == reason.WAITING:
        later = _later(case)
        return [(True, later)] if later else []
    tells_only = case.rule is not None and not wanted and case.topic in ("hot", "metric")
    return [(False, words.say("action.inform"))] if tells_only else []


def _later(case: Case) -> str:
    """What comes when it goes on, and when; "" once the first step's time has come."""
    if case.rule is None or case.rule.ladder[0].after_s <= 0:
        return ""
    step, words = case.rule.ladder[0], case.words
    action = next((each for each in ("stop", "throttle", "hold") if each in step.do), None)
    if action is None:
        return ""
    time = words.time(case.cause.since, case.rule.for_s + step.after_s)
    return words.say("action.later", what=words.say(f"later.{action}"), time=time)


def _command(case: Case) -> str:
    """The one thing to run."""
    words, stopped = case.words, outcome.stopped(case.told)
    heat = case.topic == "hot"
    if stopped is not None and not outcome.urgent(case.told) and case.topic in ("hot", "metric"):
        command = outcome.start_command(stopped, case.told)
        if command is not None:
            verb = "release" if outcome.held(case.told, stopped.target) else "start"
            return words.say(f"next.{verb}" if heat else f"next.{verb}_again", command=command)
    around = Around(case.incident, case.settings)
    waiting = outcome.can_be_prevented(case.told)
    if waiting is not None:
        return words.say("next.prevent", command=f"gpuwatch action veto {foreign(waiting.id)}")
    if not outcome.stops(case.told) and any(changes.next_stop(each, around) is not None for each in case.told):
        return words.say("next.prevent", command=f"gpuwatch action veto {case.incident.number}")
    return _details(case)


def _details(case: Case) -> str:
    if case.topic == "store":
        return case.words.say("next.details", command="gpuwatch status")
    return case.words.say("next.details", command=f"gpuwatch incident show {case.incident.number}")


def _resolved(case: Case, ended: str) -> _Ranked:
    """Lines of the last message."""
    words, incident, topic = case.words, case.incident, case.topic
    ranked: _Ranked = [(_WHEN, _lasted(case))]
    if ended:
        ranked.append((_CONTEXT, words.say(f"closed.{ended}")))
    elif topic == "silent":
        ranked.append((_CONTEXT, words.say("silent.resumed")))
    elif topic in ("xid", "sxid"):
        ranked.append((_CONTEXT, words.say("next.quiet")))
    stopped = outcome.stopped(case.told)
    around = Around(incident, case.settings, over=True)
    ranked += [(_ACTION if needed else _CONTEXT, line) for needed, line in outcome.lines(words, case.told, around)]
    if incident.bundle:
        ranked.append((_EVIDENCE, words.say("evidence", bundle=foreign(incident.bundle))))
    command: Optional[str] = None
    if stopped is not None:
        still = "held" if outcome.held(case.told, stopped.target) else "stopped"
        ranked.append((_ADVICE, words.say(f"next.still_{still}", unit=foreign(stopped.name))))
        command = outcome.start_command(stopped, case.told)
    ranked.append((_COMMAND, words.say("next.start_when_ready", command=command) if command else _details(case)))
    return ranked


def _lasted(case: Case) -> str:
    words, incident = case.words, case.incident
    start = min((case.began, *(cause.since for cause in incident.causes)), key=lambda since: since.utc_s)
    end = incident.recovered or words.now
    seconds = end.since(start)
    lasted = words.duration(end.utc_s - start.utc_s if seconds is None else seconds)
    first, last = words.span(start, end)
    line = words.say("when.lasted", duration=lasted, start=first, end=last, zone=words.zone_text(end))
    worst = case.worst
    if case.topic == "hot" and worst is not None:
        line += words.say("when.peak", value=words.temperature(worst))
    return line


def _ended_early(case: Case) -> str:
    """rule_changed or rebooted when the incident ended by that, "" when its trouble really ended."""
    ends = [entry.what for entry in case.incident.story if entry.facts.get("rule") == case.cause.rule]
    return ends[-1] if case.over and ends and ends[-1] in _CLOSED_EARLY else ""


def _fit(ranked: _Ranked) -> tuple[str, ...]:
    """At most MOST_LINES - 1 of them, the least important given up, in their order."""
    kept = [(rank, line if len(line) <= MOST_LINE else line[: MOST_LINE - 1] + "…") for rank, line in ranked if line]
    while len(kept) > MOST_LINES - 1:
        worst = max(range(len(kept)), key=lambda position: (kept[position][0], position))
        del kept[worst]
    return tuple(line for _, line in kept)
