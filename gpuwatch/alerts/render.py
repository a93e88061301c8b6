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

Of an update and of resolved, numbers (value, temperature, others_*) come from `facts` alone: what a
cause says of them is of the past.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from typing import Optional

from gpuwatch.alerts import outcome, topics
from gpuwatch.alerts.topics import Case
from gpuwatch.alerts.words import Words, foreign, number_of
from gpuwatch.model import reason
from gpuwatch.model.event import Scalar
from gpuwatch.model.incident import Cause, Incident
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent
from gpuwatch.model.notification import Message
from gpuwatch.model.rule import Severity
from gpuwatch.model.settings import Settings

MOST_LINES = 8  # the title included
MOST_TITLE = 120
MOST_LINE = 240
SIMULATED = "SIMULATED"

# How gladly a line is given up when there are too many; the highest goes first.
_WHEN, _ACTION, _COMMAND, _ADVICE, _EVIDENCE, _CONTEXT, _JOB, _RULE, _PLACE = range(9)
_UNSAID = frozenset({"", reason.IN_FLIGHT, reason.SETTLING, reason.NOT_CONFIRMED, reason.LADDER_ENDED})
# With these a stop that a rule wants will not come by itself.
_HELPLESS = frozenset(
    {
        reason.NO_WORKLOAD,
        reason.NOBODY_THERE,
        reason.ATTRIBUTION_UNKNOWN,
        reason.NOT_ALLOWED,
        reason.BUDGET_SPENT,
        reason.OLD_EVENT,
    }
)
_CLOSED_EARLY = (reason.RULE_CHANGED, reason.REBOOTED)
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
    told = outcome.stops(intents, incident.number)
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
        title=_title(words, tag, settings.host or incident.id.split("#", 1)[0], _card(incident), what, simulated),
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


def _card(incident: Incident) -> str:
    """GPU3 for "GPU 3"; nothing for the host."""
    if incident.subject.kind != "gpu":
        return ""
    label = foreign(incident.label)
    head, _, tail = label.partition(" ")
    return head + tail if tail.isdigit() else label


def _news(case: Case) -> _Ranked:
    """Lines of firing, escalated and update, in the order of reading."""
    words = case.words
    ranked: _Ranked = [(_WHEN, topics.when(case))]
    meaning = topics.meaning(case)
    if meaning is not None:
        ranked.append((_CONTEXT, meaning))
    ranked += [(_JOB, line) for line in _job(case)]
    ranked += [(_CONTEXT, line) for line in topics.context(case)]
    ranked += [(_RULE, line) for line in _rule(case)]
    ranked += [(_ACTION, line) for line in _actions(case)]
    if case.incident.bundle:
        ranked.append((_EVIDENCE, words.say("evidence", bundle=foreign(case.incident.bundle))))
    ranked += [(_PLACE, line) for line in topics.place(case)]
    ranked += [(_ADVICE, line) for line in topics.advice(case)]
    ranked.append((_COMMAND, _command(case)))
    return ranked


def _job(case: Case) -> list[str]:
    if not case.told:
        return []
    first, words = case.told[0], case.words
    unit = foreign(first.target)
    if topics.topic_of(case.facts) == "lost":
        return [words.say("lost.affected", unit=unit)]
    who = [foreign(user, 32) for user in first.users[:3]]
    if first.used_bytes > 0:
        who.append(words.quantity("gpu.memory_used", first.used_bytes))
    return [words.say("job", unit=unit, who=", ".join(who))] if who else []


def _rule(case: Case) -> list[str]:
    """Which rule it was and what else holds."""
    words, said = case.words, []
    limit, metric = number_of(case.cause.facts.get("limit")), case.metric
    if metric and limit is not None and topics.topic_of(case.facts) in ("hot", "metric"):
        shown = words.quantity(metric, limit)
        key = "rule.set" if not shown else f"rule.{'below' if case.facts.get('direction') == 'below' else 'above'}"
        line = words.say(key, rule=foreign(case.cause.rule), metric=words.metric(metric), limit=shown)
        held = number_of(case.cause.facts.get("for_s"))
        said.append(line + (words.say("rule.for", duration=words.duration(held)) if held else ""))
    count = number_of(case.facts.get("count"))
    if count is not None and count > 1:
        said.append(words.say("count", count=int(count)))
    also = [
        foreign(cause.rule) for cause in case.incident.causes if cause.cleared is None and cause.rule != case.cause.rule
    ]
    if also:
        said.append(words.say("rule.also", rules=", ".join(also[:4])))
    return said


def _wants_stop(case: Case) -> bool:
    return case.rule is not None and any("stop" in step.do for step in case.rule.ladder)


def _helpless(case: Case) -> bool:
    """True when a rule wants something stopped and gpuwatch can't or may not do it."""
    return not case.told and _wants_stop(case) and case.cause.facts.get("reason") in _HELPLESS


def _actions(case: Case) -> list[str]:
    words = case.words
    if case.told:
        return outcome.lines(words, case.told, rising=case.facts.get("rising") is True)
    if case.facts.get("old") is True:
        return [words.say("old")]
    why = str(case.cause.facts.get("reason") or "")
    wants_stop = _wants_stop(case)
    if wants_stop and why not in _UNSAID:
        return [words.say("action.none", reason=words.reason(why))]
    tells_only = case.rule is not None and not wants_stop and topics.topic_of(case.facts) in ("hot", "metric")
    return [words.say("action.inform")] if tells_only else []


def _command(case: Case) -> str:
    """The one thing to run."""
    words, stopped = case.words, outcome.stopped(case.told)
    if stopped is not None and not outcome.urgent(case.told) and topics.topic_of(case.facts) in ("hot", "metric"):
        command = outcome.start_command(stopped)
        if command is not None:
            key = "next.start" if topics.topic_of(case.facts) == "hot" else "next.start_again"
            return words.say(key, command=command)
    return _details(case)


def _details(case: Case) -> str:
    if topics.topic_of(case.facts) == "store":
        return case.words.say("next.details", command="gpuwatch status")
    return case.words.say("next.details", command=f"gpuwatch incident show {case.incident.number}")


def _resolved(case: Case, ended: str) -> _Ranked:
    """Lines of the last message."""
    words, incident, topic = case.words, case.incident, topics.topic_of(case.facts)
    ranked: _Ranked = [(_WHEN, _lasted(case))]
    if ended:
        ranked.append((_CONTEXT, words.say(f"closed.{ended}")))
    elif topic == "silent":
        ranked.append((_CONTEXT, words.say("silent.resumed")))
    elif topic in ("xid", "sxid"):
        ranked.append((_CONTEXT, words.say("next.quiet")))
    stopped = outcome.stopped(case.told)
    ranked += [(_ACTION, line) for line in outcome.lines(words, case.told, rising=False)]
    if incident.bundle:
        ranked.append((_EVIDENCE, words.say("evidence", bundle=foreign(incident.bundle))))
    command: Optional[str] = None
    if stopped is not None:
        ranked.append((_ADVICE, words.say("next.still_stopped", unit=foreign(stopped.target))))
        command = outcome.start_command(stopped)
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
    if topics.topic_of(case.facts) == "hot" and worst is not None:
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
