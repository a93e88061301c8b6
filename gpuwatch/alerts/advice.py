"""What is said of a topic beside its title: what it means, what is around it, what to do first. Pure."""

from __future__ import annotations

import shlex

from gpuwatch.alerts import judgement
from gpuwatch.alerts.topics import Case, catalogue, named_event, recovery
from gpuwatch.alerts.words import MOST_WORDS, foreign, number_of, pasteable
from gpuwatch.catalog import judge
from gpuwatch.catalog.texts import has
from gpuwatch.model import reason
from gpuwatch.model.metric import METRICS

_HANDS_ON = ("hardware", "host_restart")  # classes for which somebody walks to the rack
_RECOVERED = ("lost", "xid", "recovery", "event")  # topics for which the driver's own advice counts
_HOT_TOO_C = 10.0  # the coolest other card is no more than this below it: then it is the air
_KILLS = ("oom_kill", "unit_oom", "oomd_kill")
_ADVISED = ("application", "gpu_reset", "host_restart", "hardware", "link", "driver", "unknown")


def meaning(case: Case) -> list[str]:
    """What it means, where the title can't say it: an Xid or an event in the catalogue's words, a count."""
    words, facts, topic = case.words, case.cause.facts, case.topic
    if topic == "suspected":
        within = words.duration(number_of(facts.get("within_s")) or 0.0)
        return [words.say("suspected.who", users=foreign(facts["users"], 100), duration=within)]
    plain = not has(f"title.{case.metric}") and not has(f"next.{case.metric}")
    if topic == "metric" and plain and words.language == "en":
        said = METRICS[case.metric].text if case.metric in METRICS else ""
        return [said[0].upper() + said[1:]] if said else []
    if topic not in ("xid", "sxid", "lost", "event"):
        return []
    said = foreign(case.meaning or catalogue(case, judge.meaning), MOST_WORDS)
    named = topic == "event" and said.rstrip(".。") == named_event(case)
    more = [words.say("again.why")] if topic in ("xid", "lost") and facts.get("repeated") is True else []
    return [*([said] if said and not named else []), *more]


def context(case: Case) -> list[str]:
    """What the topic alone has to say: other cards, stuck processes, versions, whose program it was."""
    words, facts, topic = case.words, case.facts, case.topic
    if topic == "hot":
        in_doubt = case.cause.facts.get("reason") in (reason.SUSPECT, reason.COOLING)
        return [*(judgement.doubts(words, case.cause.facts) if in_doubt else []), *_others(case)]
    if topic == "silent":
        others = number_of(facts.get("others_count"))
        partial = bool(facts.get("partial"))
        said = [words.say("silent.others", count=int(others or 0)) if partial else words.say("silent.suspended")]
        pids = foreign(facts.get("stuck_pids") or "").replace(",", " ").split()
        return [*said, words.say("silent.stuck", pids=", ".join(pids))] if pids else said
    if topic == "mismatch":
        module, library = facts.get("module_version"), facts.get("library_version")
        said = [words.say("mismatch.why"), words.say("mismatch.kept")]
        if module and library:
            said.insert(0, words.say("mismatch.versions", module=foreign(module), library=foreign(library)))
        return said
    if topic == "store":
        problem = facts.get("problem")
        why = [words.say("store.problem", problem=foreign(problem, MOST_WORDS))] if problem else []
        return [*why, words.say("store.why")]
    if topic == "acting_stopped":
        budget = case.settings.budget
        within = words.duration(budget.within_s)
        return [words.say("acting.why", count=budget.destructive, duration=within, heat=budget.heat_per_gpu)]
    doing = facts.get("after_own_action")
    own = [words.say("own_doing", action=foreign(doing))] if doing else []
    return [*own, *_owner(case), *_process(case)]


def _owner(case: Case) -> list[str]:
    """Whose program it was, by user and unit."""
    if case.topic not in ("xid", "event") or case.incident.subject.kind == "unit":
        return []  # of a metric, "unit" is what it is measured in
    known = [foreign(case.cause.facts[name]) for name in ("user", "unit") if case.cause.facts.get(name)]
    return [case.words.say("owner", who=", ".join(known))] if known else []


def it_is_the_air(case: Case) -> bool:
    """True when the other cards are about as hot as this one has been."""
    low, worst = case.number("others_low"), case.worst
    return low is not None and worst is not None and low >= worst - _HOT_TOO_C


def _others(case: Case) -> list[str]:
    low, high = case.number("others_low"), case.number("others_high")
    if low is None or high is None:
        return []
    first, last = case.words.range(low, high)
    count = case.number("others_count")
    if count and it_is_the_air(case):
        return [case.words.say("others.all", count=int(count) + 1, low=first, high=last)]
    alone = case.temperature is not None and case.temperature > high + 5
    return [case.words.say("others.only" if alone else "others.too", low=first, high=last)]


def _process(case: Case) -> list[str]:
    name, pid = case.cause.facts.get("process"), number_of(case.cause.facts.get("pid"))
    if case.topic == "suspected" or (not name and pid is None):
        return []
    known = [foreign(name)] if name else []
    key = "process.killed" if case.cause.facts.get("kind") in _KILLS else "process"
    return [case.words.say(key, process=" ".join([*known, *(["pid " + str(int(pid))] if pid is not None else [])]))]


def advice(case: Case) -> list[str]:
    """What to do, and what better not to do."""
    words, topic = case.words, case.topic
    klass = str(case.facts.get("xid_class") or "")
    if topic == "silent":
        return [words.say("silent.do_not")]
    if topic == "mismatch":
        return [words.say("mismatch.next")]
    if topic == "acting_stopped":
        return [words.say("acting.next")]
    if topic == "suspected":
        return [words.say("next.suspected")]
    first = [words.say("lost.not_rebooted")] if topic == "lost" else []
    action = recovery(case) if topic in _RECOVERED else None
    if topic in ("xid", "lost") and case.cause.facts.get("repeated") is True:
        return [*first, words.say("next.again")]
    if topic == "recovery" and action is None:
        return [words.say("recovery.unknown", number=int(number_of(case.cause.facts.get("value")) or 0))]
    if action is not None:
        asked = words.say("recovery", action=action[words.language])
        return [*first, asked, words.say("next.step", step=action[f"next_{words.language}"])]
    if topic == "lost":
        return [*first, words.say("next.lost")]
    if topic in ("xid", "sxid") and klass in _ADVISED:
        return [words.say(f"next.{klass}")]
    if topic in ("sxid", "event"):
        own = f"next.event.{case.cause.facts.get('kind')}"
        if has(own):
            return [words.say(own)]
        step = catalogue(case, judge.next_step)
        return [words.say("next.step", step=step)] if step else []
    return _metric_advice(case) if topic in ("hot", "metric") else []


def _metric_advice(case: Case) -> list[str]:
    """The first thing to do about a metric; about heat only while nothing was done, and not where it is the air."""
    if case.cause.facts.get("reason") == reason.SUSPECT:
        return [case.words.say("next.doubt")]
    if case.cause.facts.get("reason") == reason.COOLING:
        return []
    key = f"next.{case.metric}"
    if case.topic == "hot":
        key = key if has(key) else "next.gpu.temperature"
        if case.told or it_is_the_air(case):
            return []
    if not has(key):
        return []
    name = case.incident.subject.id
    return [case.words.say(key, name=shlex.quote(name) if pasteable(name) else "")]


def place(case: Case) -> list[str]:
    """Where the machine stands, when somebody may have to go there."""
    labels = case.settings.labels
    if not labels or (case.topic != "lost" and case.facts.get("xid_class") not in _HANDS_ON):
        return []
    said = ", ".join(f"{foreign(name, 32)} {foreign(value, 32)}" for name, value in labels.items())
    return [case.words.say("where", labels=said)]
