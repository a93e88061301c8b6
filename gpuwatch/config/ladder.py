"""The ladder of a rule: what may be done, and for which kind of trouble."""

from __future__ import annotations

from typing import Optional

from gpuwatch.catalog.judge import is_user_kind
from gpuwatch.config.events import EVENT_KINDS
from gpuwatch.config.kinds import Choice, Duration, Flag, Found, ListOf
from gpuwatch.config.report import Report
from gpuwatch.config.table import Fields, Record, Setting, join
from gpuwatch.model.metric import Metric
from gpuwatch.model.rule import ACTIONS, EventMatch, Step

LATER_ACTIONS = ("freeze", "kill", "pause", "resume")
MOST_STEPS = 5

_DOES = {"stop": "stops something", "hold": "keeps something from starting", "throttle": "slows a GPU down"}
_SCOPES = {
    "gpu": "a GPU",
    "host": "the host",
    "filesystem": "a file system",
    "sensor": "a sensor of the host",
    "unit": "a unit",
    "workload": "a workload",
}
_LEADS_TO_UNITS = frozenset({"gpu", "unit", "workload"})  # from these one comes to units that can be stopped or held
_MEMORY = "host.memory_"


def scope_words(scope: str) -> str:
    """What a metric of this scope is about."""
    return _SCOPES.get(scope, f"a {scope}")


def _build(fields: Fields, _path: str, _report: Report) -> Optional[Found]:
    """The step with its place: what is wrong about it is known with the whole rule only."""
    if "do" not in fields.found:
        return None
    step = Step(fields.value("do"), fields.value("after", 0.0), fields.value("worse", False))
    return Found(step, fields.place_of("worse"))


STEP = Record(
    (
        Setting("do", ListOf(Choice(ACTIONS, LATER_ACTIONS), least=1), "What is done.", None, "[stop]", required=True),
        Setting("after", Duration(), "So long after the previous step ended, if it still holds.", default=0.0),
        Setting(
            "worse",
            Flag(),
            "true: only while the value is no better than when the previous step ended.",
            default=False,
        ),
    ),
    _build,
)


def check_ladder(fields: Fields, path: str, report: Report, metric: Optional[Metric]) -> None:
    """A step that acts needs a cause that nobody can forge (S10), something to find its target by, and people
    who are told. `metric`: what the rule is about, None for an event."""
    place, here = fields.place_of("ladder"), join(path, "ladder")
    event: Optional[EventMatch] = fields.value("event")
    acts = acting(fields)
    if event is not None and is_user_kind(event.kind):
        if fields.value("ladder") and not acts:
            report.warn(place, here, f"is never climbed: anybody can write a line that makes a {event.kind}")
        for action in acts:
            text = f"can't {action} anything: anybody can write a line that makes a {event.kind}"
            report.error(place, here, text)
        return
    for action in acts:
        why = _no_target(action, metric, event)
        if why:
            report.error(place, here, f"can't {action} anything: {why}")
    if acts and fields.value("severity") == "info":
        text = f"{_DOES[acts[0]]}, and nobody is told at severity info; use warning or critical"
        report.error(place, here, text)
    _check_worse(fields, here, report)


def acting(fields: Fields) -> tuple[str, ...]:
    """What the ladder of a rule does besides saving evidence, the gravest first."""
    done = {action for step in fields.value("ladder", ()) for action in step.do}
    return tuple(action for action in _DOES if action in done)


def _no_target(action: str, metric: Optional[Metric], event: Optional[EventMatch]) -> str:
    """Why nobody could say what the action is for; "" when there is a way."""
    if event is not None:
        if EVENT_KINDS[event.kind].of_gpu:
            return ""
        found = "only a GPU can be throttled" if action == "throttle" else f"what to {action} is found by its GPU"
        return f"{event.kind} names no GPU, and {found}"
    if metric is None:
        return ""  # told already
    if action == "throttle":
        return "" if metric.scope == "gpu" else f"{_about(metric)}, and only a GPU can be throttled"
    if metric.scope in _LEADS_TO_UNITS or (metric.name.startswith(_MEMORY) and metric.name != _MEMORY + "total"):
        return ""
    if metric.name.startswith("host.swap_"):
        text = "swap in use is no want of memory; use host.memory_available or host.memory_pressure_full"
        return f"{_about(metric)}, and {text}"
    return f"{_about(metric)}, and what to {action} is found by a GPU, a unit, a workload or the host's memory"


def _about(metric: Metric) -> str:
    return f"{metric.name} is about {scope_words(metric.scope)}"


def _check_worse(fields: Fields, here: str, report: Report) -> None:
    steps = fields.found["ladder"].value if "ladder" in fields.found else ()
    for number, one in enumerate(steps):
        step: Found = one.value
        if not step.value.worse:
            continue
        path = f"{here}[{number}].worse"
        if fields.given("event"):
            report.error(step.place, path, "is for rules about a metric; an event has no value that gets worse")
        elif number == 0:
            report.error(step.place, path, "is for later steps: there is no step before the first to compare with")
