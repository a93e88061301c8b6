"""What an incident is about (heat, a lost card, an Xid, the driver, ...) and how each is told. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from gpuwatch.alerts import outcome
from gpuwatch.alerts.words import MOST_WORDS, Words, foreign, number_of
from gpuwatch.model.event import Scalar
from gpuwatch.model.incident import Cause, Incident
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent
from gpuwatch.model.metric import METRICS
from gpuwatch.model.rule import Rule
from gpuwatch.model.settings import Settings

HEAT = (
    "gpu.temperature",
    "gpu.memory_temperature",
    "gpu.slowdown_margin",
    "gpu.shutdown_margin",
    "gpu.hw_thermal_slowdown",
)
_HOST_TOPICS = {
    "host.driver_silent": "silent",
    "host.driver_mismatch": "mismatch",
    "host.store_failing": "store",
    "host.acting_stopped": "acting_stopped",
}
_LOST_XIDS = (79,)  # "GPU has fallen off the bus"
_HANDS_ON = ("hardware", "host_restart")  # classes for which somebody walks to the rack
_PATIENCE_S = 60.0  # a trouble younger than this is told by its time alone


@dataclass(frozen=True)
class Case:
    """All that one message is made from."""

    incident: Incident
    kind: str  # firing | escalated | update | resolved
    cause: Cause  # the gravest
    facts: Mapping[str, Scalar]  # of all causes, the gravest cause's on top, what is known now above all
    fresh: Mapping[str, Scalar]  # what is known now
    told: tuple[Intent, ...]
    settings: Settings
    words: Words

    @property
    def rule(self) -> Optional[Rule]:
        """The gravest cause's rule, while the configuration still has it."""
        return next((rule for rule in self.settings.rules if rule.name == self.cause.rule), None)

    @property
    def over(self) -> bool:
        """True for the last message."""
        return self.kind == "resolved"

    def number(self, name: str) -> Optional[float]:
        """A fact that is true at the moment of the message: the causes' own facts are of when they fired."""
        given = self.fresh if self.kind in ("update", "resolved") else self.facts
        return number_of(given.get(name))

    @property
    def metric(self) -> str:
        """The metric that the gravest cause is about; "" for an event."""
        return str(self.cause.facts.get("metric") or "")

    @property
    def temperature(self) -> Optional[float]:
        """Degrees now: of the memory where that is what the rule is about."""
        if self.metric == "gpu.memory_temperature":
            return self.number("value")
        known = self.number("temperature")
        return self.number("value") if known is None and self.metric == "gpu.temperature" else known

    @property
    def worst(self) -> Optional[float]:
        """The highest temperature of the incident that is known."""
        of_memory = self.metric == "gpu.memory_temperature"
        name = "gpu.memory_temperature" if of_memory else "gpu.temperature"
        own = self.cause.facts.get("value" if self.metric == name else "temperature")
        known = [self.incident.peak.get(name), number_of(own), self.temperature]
        return max((degrees for degrees in known if degrees is not None), default=None)

    @property
    def began(self) -> Instant:
        """When the trouble began. A metric that counts seconds began to count before its rule held."""
        since, limit = self.cause.since, number_of(self.cause.facts.get("limit"))
        if limit is None or not 0 < limit < 1e7 or self.metric not in METRICS or METRICS[self.metric].unit != "s":
            return since
        return Instant(since.boot_id, since.boottime_s - limit, since.utc_s - limit)

    @property
    def xid(self) -> Optional[int]:
        """The Xid (or SXid) code, if there is one."""
        code = number_of(self.facts.get("xid")) or number_of(self.facts.get("sxid"))
        return None if code is None else int(code)


def topic_of(facts: Mapping[str, Scalar]) -> str:
    """hot | lost | xid | sxid | silent | mismatch | store | acting_stopped | metric | rule."""
    metric = str(facts.get("metric") or "")
    if metric == "gpu.lost" or facts.get("xid") in _LOST_XIDS or facts.get("kind") == "gpu_lost" or facts.get("lost"):
        return "lost"
    if metric in HEAT:
        return "hot"
    if metric in _HOST_TOPICS:
        return _HOST_TOPICS[metric]
    for code in ("xid", "sxid"):
        if number_of(facts.get(code)) is not None:
            return code
    return "metric" if metric else "rule"


def title(case: Case) -> str:
    """What happened, for the first line, without tag, host and card."""
    topic = topic_of(case.facts)
    end = outcome.suffix(case.words, case.told)
    if topic == "hot" and end:
        degrees = case.temperature or case.worst
        plain = outcome.urgent(case.told) and degrees is not None
        return _join(case, case.words.temperature(degrees or 0) if plain else case.words.say("title.hot"), end)
    return _join(case, _event(case, topic), end)


def _join(case: Case, first: str, end: str) -> str:
    return first + case.words.say("join") + end if end else first


def _event(case: Case, topic: str) -> str:
    words = case.words
    if topic == "hot":
        return _heat_event(case)
    if topic == "lost":
        return words.say("title.lost") if case.xid is None else words.say("title.lost_xid", xid=case.xid)
    if topic in ("xid", "sxid"):
        return words.say(f"title.{topic}", xid=case.xid)
    if topic == "silent" and case.facts.get("partial"):
        return words.say("title.silent_part", gpus=foreign(case.facts["partial"]))
    if topic in ("silent", "store"):
        value = case.number("value")
        return (
            words.say(f"title.{topic}")
            if not value
            else words.say(f"title.{topic}_for", duration=words.duration(value))
        )
    if topic in ("mismatch", "acting_stopped"):
        return words.say(f"title.{topic}")
    if topic == "metric":
        return _metric_event(case)
    return words.say("title.rule", rule=foreign(case.cause.rule))


def _heat_event(case: Case) -> str:
    words, value, degrees = case.words, case.number("value"), case.temperature
    shown = "" if degrees is None else words.temperature(degrees)
    if case.metric in ("gpu.slowdown_margin", "gpu.shutdown_margin") and value is not None:
        point = case.metric.split(".")[1].replace("_margin", "")
        if value > 0:
            margin = words.degrees(value)
            return words.say(f"title.{point}" if shown else f"title.{point}_only", value=shown, margin=margin)
        return words.say(f"title.{point}_reached", value=shown) if shown else words.say("title.hot")
    if case.metric == "gpu.hw_thermal_slowdown":
        return words.say("title.slowed", value=shown) if shown else words.say("title.slowed_only")
    limit = number_of(case.facts.get("limit"))
    if shown and limit is not None:
        return words.say("title.above", value=shown, limit=words.degrees(limit))
    return words.say("title.hot")


def _metric_event(case: Case) -> str:
    words, value, limit = case.words, case.number("value"), number_of(case.facts.get("limit"))
    name = words.metric(case.metric)
    if value is None:
        return name
    shown = words.quantity(case.metric, value)
    if limit is None or not shown:
        return words.say("title.metric", metric=name, value=shown).strip()
    key = "title.metric_below" if case.facts.get("direction") == "below" else "title.metric_above"
    return words.say(key, metric=name, value=shown, limit=words.quantity(case.metric, limit))


def back(case: Case) -> str:
    """The first line of the last message, without tag, host and card."""
    words, topic = case.words, topic_of(case.facts)
    if topic == "hot":
        return (
            words.say("back.normal")
            if case.temperature is None
            else words.say("back.hot", value=words.temperature(case.temperature))
        )
    if topic in ("xid", "sxid"):
        return words.say(f"back.{topic}", xid=case.xid)
    if topic == "metric":
        return words.say("back.normal")
    return words.say(f"back.{topic}", rule=foreign(case.cause.rule))


def when(case: Case) -> str:
    """Since when, and how it stands now."""
    words, topic = case.words, topic_of(case.facts)
    time = words.time(case.began)
    if topic == "lost":
        others = number_of(case.facts.get("others_count"))
        if others:
            return words.say("lost.since_others", time=time, count=int(others))
        return words.say("lost.since", time=time)
    if topic == "silent":
        if case.facts.get("partial"):
            return words.say("silent.since_part", gpus=foreign(case.facts["partial"]), time=time)
        return words.say("silent.since", time=time)
    elapsed = words.elapsed(case.began)
    lasted = words.duration(elapsed)
    if topic == "hot" and case.temperature is not None:
        return _heat_when(case, time, elapsed)
    key = "when.since" if elapsed >= _PATIENCE_S else "when.now"
    said = words.say(key, time=time, duration=lasted)
    if topic == "hot" and case.worst is not None:
        said += words.say("when.peak", value=words.temperature(case.worst))
    return said


def _heat_when(case: Case, time: str, elapsed: float) -> str:
    words, degrees = case.words, case.temperature
    assert degrees is not None
    now, peak = words.temperature(degrees), words.temperature(case.worst or degrees)
    if case.kind == "update" and now != peak:
        return words.say("when.value_peak", time=words.time(words.now), value=now, peak=peak) + _point(case)
    if elapsed >= _PATIENCE_S:
        return words.say("when.since_value", time=time, duration=words.duration(elapsed), value=now) + _point(case)
    return words.say("when.value", time=words.time(words.now), value=now) + _point(case)


def _point(case: Case) -> str:
    """At which temperature the card itself slows or shuts down: measured as value + margin."""
    margin, degrees = number_of(case.cause.facts.get("value")), number_of(case.cause.facts.get("temperature"))
    if margin is None or degrees is None or case.metric not in ("gpu.slowdown_margin", "gpu.shutdown_margin"):
        return ""
    key = "when.slowdown" if case.metric == "gpu.slowdown_margin" else "when.shutdown"
    return case.words.say(key, point=case.words.temperature(degrees + margin))


def meaning(case: Case) -> Optional[str]:
    """What an Xid means, in the catalogue's words."""
    said = case.facts.get(f"meaning_{case.words.language}")
    return foreign(said, MOST_WORDS) if said and topic_of(case.facts) in ("xid", "sxid", "lost") else None


def context(case: Case) -> list[str]:
    """What the topic alone has to say: other cards, stuck processes, versions."""
    words, facts, topic = case.words, case.facts, topic_of(case.facts)
    if topic == "hot":
        return _others(case)
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
    return _process(case)


def _others(case: Case) -> list[str]:
    low, high = case.number("others_low"), case.number("others_high")
    if low is None or high is None:
        return []
    first, last = case.words.range(low, high)
    alone = case.temperature is not None and case.temperature > high + 5
    return [case.words.say("others.only" if alone else "others.too", low=first, high=last)]


def _process(case: Case) -> list[str]:
    name, pid = case.facts.get("process"), number_of(case.facts.get("pid"))
    if not name and pid is None:
        return []
    known = [foreign(name)] if name else []
    return [
        case.words.say("process", process=" ".join([*known, *(["pid " + str(int(pid))] if pid is not None else [])]))
    ]


def advice(case: Case) -> list[str]:
    """What to do, and what better not to do."""
    words, topic = case.words, topic_of(case.facts)
    klass = str(case.facts.get("xid_class") or "")
    if topic == "silent":
        return [words.say("silent.do_not")]
    if topic == "mismatch":
        return [words.say("mismatch.next")]
    if topic == "acting_stopped":
        return [words.say("acting.next")]
    if topic == "lost":
        return [words.say("lost.not_rebooted"), words.say("next.lost")]
    if topic in ("xid", "sxid") and klass in _ADVISED:
        return [words.say(f"next.{klass}")]
    return []


_ADVISED = ("application", "gpu_reset", "host_restart", "hardware", "link", "driver", "unknown")


def place(case: Case) -> list[str]:
    """Where the machine stands, when somebody may have to go there."""
    labels = case.settings.labels
    if not labels or (topic_of(case.facts) != "lost" and case.facts.get("xid_class") not in _HANDS_ON):
        return []
    said = ", ".join(f"{foreign(name, 32)} {foreign(value, 32)}" for name, value in labels.items())
    return [case.words.say("where", labels=said)]
