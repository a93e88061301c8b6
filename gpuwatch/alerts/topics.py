"""What an incident is about (heat, a lost card, an Xid, the driver, ...) and how each is told. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Optional

from gpuwatch.alerts import outcome
from gpuwatch.alerts.words import Words, columns, foreign, number_of, pasteable, short_unit
from gpuwatch.catalog import judge, xid
from gpuwatch.catalog.texts import has
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
SHORT = 30  # columns: a longer sentence is no title
_PATIENCE_S = 60.0  # a trouble younger than this is told by its time alone


@dataclass(frozen=True)
class Case:
    """All that one message is made from."""

    incident: Incident
    kind: str  # firing | escalated | update | resolved
    cause: Cause  # the gravest
    facts: Mapping[str, Scalar]  # of all causes, the gravest cause's on top, what is known now above all
    fresh: Mapping[str, Scalar]  # what is known now
    told: tuple[Intent, ...]  # outcome.told
    settings: Settings
    words: Words

    @property
    def rule(self) -> Optional[Rule]:
        """The gravest cause's rule, while the configuration still has it."""
        return next((rule for rule in self.settings.rules if rule.name == self.cause.rule), None)

    @property
    def topic(self) -> str:
        """What the gravest cause is about; see topic_of."""
        return topic_of(self.cause.facts)

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
        if self.cause.facts.get("direction") == "below":  # a forecast
            return since
        if limit is None or not 0 < limit < 1e7 or self.metric not in METRICS or METRICS[self.metric].unit != "s":
            return since
        return Instant(since.boot_id, since.boottime_s - limit, since.utc_s - limit)

    @property
    def xid(self) -> Optional[int]:
        """The Xid (or SXid) code of the gravest cause; of a lost card the one that told it, whoever else fired."""
        code = number_of(self.cause.facts.get("xid")) or number_of(self.cause.facts.get("sxid"))
        if code is None:
            told = [each.facts.get("xid") for each in self.incident.causes]
            return next((each for each in _LOST_XIDS if each in told), None)
        return int(code)

    @property
    def meaning(self) -> str:
        """What the catalogue says of the gravest cause, or of the Xid that it goes by."""
        name = f"meaning_{self.words.language}"
        same = [each.facts.get(name) for each in self.incident.causes if each.facts.get("xid") == self.xid]
        return str(self.cause.facts.get(name) or (self.xid is not None and same and same[-1]) or "")


def topic_of(facts: Mapping[str, Scalar]) -> str:
    """hot | lost | suspected | xid | sxid | recovery | silent | mismatch | store | acting_stopped | metric | event |
    rule."""
    metric = str(facts.get("metric") or "")
    if metric == "gpu.lost" or facts.get("xid") in _LOST_XIDS or facts.get("kind") == "gpu_lost" or facts.get("lost"):
        return "lost"
    if metric in HEAT:
        return "hot"
    if metric in _HOST_TOPICS:
        return _HOST_TOPICS[metric]
    if metric == "gpu.recovery_action":
        return "recovery"
    if facts.get("users") and number_of(facts.get("total")) is not None:
        return "suspected"
    for code in ("xid", "sxid"):
        if number_of(facts.get(code)) is not None:
            return code
    if metric:
        return "metric"
    return "event" if facts.get("kind") in judge.kinds() or has(f"title.event.{facts.get('kind')}") else "rule"


def subject(words: Words, incident: Incident) -> str:
    """What it is about, for a title: GPU3 for "GPU 3", train@llama, "disk /var"; nothing for the host."""
    kind = incident.subject.kind
    label = foreign(incident.label, 18 if kind == "sensor" else 32)
    if kind == "gpu":
        head, _, tail = label.partition(" ")
        return head + tail if tail.isdigit() else label
    if kind == "unit":
        return short_unit(label)
    if kind == "filesystem":
        return words.say("subject.filesystem", name=label)
    return "" if kind == "host" else label


def title(case: Case) -> str:
    """What happened, for the first line, without tag, host and card."""
    end = outcome.suffix(case.words, case.told)
    if case.topic == "hot" and end:
        degrees = case.temperature or case.worst
        plain = outcome.not_done(case.told) and degrees is not None
        return _join(case, case.words.temperature(degrees or 0) if plain else case.words.say("title.hot"), end)
    return _join(case, _event(case), end)


def _join(case: Case, first: str, end: str) -> str:
    return first + case.words.say("join") + end if end else first


def _event(case: Case) -> str:
    words, topic = case.words, case.topic
    if topic == "hot":
        return _heat_event(case)
    if topic == "lost":
        return words.say("title.lost") if case.xid is None else words.say("title.lost_xid", xid=case.xid)
    if topic == "suspected":
        return words.say("title.suspected", count=int(number_of(case.cause.facts.get("total")) or 0))
    if topic in ("xid", "sxid"):
        again = topic == "xid" and case.cause.facts.get("repeated") is True
        return words.say("title.xid_again" if again else f"title.{topic}", xid=case.xid)
    if topic == "recovery":
        action = recovery(case)
        key = f"title.needs.{action['class']}" if action is not None else ""
        return words.say(key if has(key) else "title.needs.unknown")
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
    return _counted(case, named_event(case))


def named_event(case: Case) -> str:
    """An event by its title, by what the catalogue says of it, or by its rule."""
    facts = case.cause.facts
    key = f"title.event.{facts.get('kind')}"
    if has(key) and (facts.get("kind") != "log_match" or facts.get("pattern")):
        return case.words.say(key, pattern=foreign(facts.get("pattern") or "", 32))
    said = catalogue(case, judge.meaning).rstrip(".。")
    return said if 0 < columns(said) <= SHORT else case.words.say("title.rule", rule=foreign(case.cause.rule))


def _counted(case: Case, what: str) -> str:
    total, within = number_of(case.cause.facts.get("total")), number_of(case.cause.facts.get("within_s"))
    if total is None or within is None:
        return what
    return case.words.say("title.counted", what=what, count=int(total), duration=case.words.duration(within))


def catalogue(case: Case, ask: Callable[[Mapping[str, Scalar], str], str]) -> str:
    """What the catalogue says of the gravest cause's event, "" for nothing. UNIT in it becomes the unit's name."""
    facts = case.cause.facts
    if not facts.get("kind"):
        return ""
    said = ask(facts, case.words.language)
    unit = case.incident.subject.id if case.incident.subject.kind == "unit" else ""
    if pasteable(unit) and shlex.quote(unit) == unit:
        said = said.replace("UNIT", unit).replace("单元名", unit)
    return said


def recovery(case: Case) -> Optional[Mapping[str, str]]:
    """What the driver itself asks for, where it asks for anything: it outranks the table."""
    facts = case.cause.facts
    number = number_of(facts.get("value") if case.topic == "recovery" else facts.get("recovery_to"))
    return None if not number else xid.recovery(int(number))


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
    if shown and limit is not None and case.metric.endswith("temperature"):
        key = "title.above_memory" if case.metric == "gpu.memory_temperature" else "title.above"
        return words.say(key, value=shown, limit=words.degrees(limit))
    return words.say("title.hot")


def _metric_event(case: Case) -> str:
    words, value, limit = case.words, case.number("value"), number_of(case.facts.get("limit"))
    name = words.metric(case.metric)
    unit = METRICS[case.metric].unit if case.metric in METRICS else ""
    if value is None and unit != "0/1":
        return name
    shown = words.quantity(case.metric, value or 0.0)
    if has(f"title.{case.metric}"):
        return words.say(f"title.{case.metric}", value=shown, count=f"{value or 0:.0f}")
    if limit is None or not shown:
        return words.say("title.metric", metric=name, value=shown).strip()
    key = "title.metric_below" if case.facts.get("direction") == "below" else "title.metric_above"
    return words.say(key, metric=name, value=shown, limit=words.quantity(case.metric, limit))


def back(case: Case) -> str:
    """The first line of the last message, without tag, host and card."""
    words, topic = case.words, case.topic
    if topic == "hot":
        return (
            words.say("back.normal")
            if case.temperature is None
            else words.say("back.hot", value=words.temperature(case.temperature))
        )
    if topic in ("xid", "sxid"):
        return words.say(f"back.{topic}", xid=case.xid)
    if topic == "event":
        return words.say("back.event", what=named_event(case))
    if topic in ("suspected", "recovery") or case.incident.subject.kind in ("filesystem", "sensor"):
        return words.say("back.normal")
    return words.say(f"back.{topic}", rule=foreign(case.cause.rule), metric=words.metric(case.metric))


def when(case: Case) -> str:
    """Since when, and how it stands now."""
    words, topic = case.words, case.topic
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
