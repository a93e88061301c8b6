"""Rules: their settings, and what must fit together in one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from gpuwatch.config.event_match import EVENT
from gpuwatch.config.kinds import NAME, Choice, Duration, Flag, ListOf, Schema, duration_text
from gpuwatch.config.ladder import MOST_STEPS, STEP, acting, check_ladder, scope_words
from gpuwatch.config.limits import Limit, MetricName, limit, limit_shown
from gpuwatch.config.report import Report, closest
from gpuwatch.config.selector import ONLY, selector
from gpuwatch.config.table import Fields, NamedList, Record, Setting, join
from gpuwatch.model.metric import METRICS, Metric
from gpuwatch.model.rule import DESTRUCTIVE, Clear, Rule, Severity, Threshold

DEFAULT_CLEAR_FOR_S = 60.0
LONGEST_CHANGE_S = 86_400.0
_ONLY_METRIC = ("above", "below", "for", "clear", "unless_supported", "change_over", "keep")
_ELSEWHERE = {"keep": "is for rules about a metric; quiet_for says how long an event keeps its rule firing"}


@dataclass(frozen=True)
class Quiet(Duration):
    """A duration, or the word reboot (None): only a restart of the host ends it."""

    @property
    def words(self) -> str:
        """With an example."""
        return "a duration such as 10m, or reboot"

    def parse(self, text: str) -> Optional[float]:
        """Seconds, or None."""
        return None if text == "reboot" else super().parse(text)

    def schema(self) -> Schema:
        """Either form."""
        return {"anyOf": [{"const": "reboot"}, super().schema()]}

    def show(self, value: Any) -> str:
        """Either form."""
        return "reboot" if value is None else super().show(value)


def _metric_of(fields: Fields) -> Optional[Metric]:
    name = fields.value("metric")
    if name is None and "metric" in fields.wrong:
        name = closest(fields.wrong["metric"].text, METRICS)  # judge the limits by the metric that was probably meant
    return METRICS.get(name) if name else None


def _threshold(
    fields: Fields, path: str, report: Report, metric: Optional[Metric], change: bool
) -> Optional[Threshold]:
    """Exactly one of above and below, in range. `change`: of a difference."""
    given = fields.given("above", "below")
    if len(given) == 2:
        report.error(fields.place_of("below"), path, "has 'above' and 'below'; a limit is one of them")
        return None
    if not given:
        report.error(fields.place, path, "needs 'above' or 'below'")
        return None
    word = given[0]
    if metric is None or word not in fields.found:
        return None
    try:
        number = limit(fields.value(word), metric, word == "above", change)
    except ValueError as error:
        report.error(fields.place_of(word), join(path, word), str(error))
        return None
    return Threshold(above=number) if word == "above" else Threshold(below=number)


# The parts of a rule ----------------------------------------------------------------------------


def _clear_fields(fields: Fields, _path: str, _report: Report) -> Fields:
    return fields  # read once the rule's metric is known


CLEAR = Record(
    (
        Setting("above", Limit(), "The alert ends above this.", example="8"),
        Setting("below", Limit(), "The alert ends below this.", example="80"),
        Setting("for", Duration(), "And has been so for this long.", default=DEFAULT_CLEAR_FOR_S, example="60s"),
    ),
    _clear_fields,
)


def _build_rule(fields: Fields, path: str, report: Report) -> Optional[Rule]:
    before = len(report.problems)
    name, severity = fields.value("name"), fields.value("severity")
    metric_rule, event_rule = bool(fields.given("metric")), bool(fields.given("event"))
    rule: Optional[Rule] = None
    if metric_rule and event_rule:
        report.error(fields.place_of("event"), path, "has 'metric' and 'event'; a rule is about one of them")
    elif metric_rule:
        rule = _metric_rule(fields, path, report)
    elif event_rule:
        rule = _event_rule(fields, path, report)
    else:
        report.error(fields.place, path, "needs 'metric' or 'event'")
    if metric_rule != event_rule:
        check_ladder(fields, path, report, _metric_of(fields))
    if rule is None or name is None or severity is None or len(report.problems) > before:
        return None
    return rule


def _base(fields: Fields) -> dict[str, Any]:
    return {
        "name": fields.value("name", ""),
        "severity": Severity(fields.value("severity", "info")),
        "ladder": fields.value("ladder", ()),
        "enabled": fields.value("enabled", True),
        "origin": str(fields.place),
    }


def _metric_rule(fields: Fields, path: str, report: Report) -> Optional[Rule]:
    for name in fields.given("quiet_for"):
        report.error(fields.place_of(name), join(path, name), "is for rules about an event; use clear: {..., for: ...}")
    metric = _metric_of(fields)
    change = bool(fields.given("change_over"))
    threshold = _threshold(fields, path, report, metric, change)
    clear = _clear(fields, path, report, metric, threshold, change)
    only = selector(fields, path, report, metric, None)
    if threshold is None or clear is None or metric is None:
        return None
    _check_unless(fields, path, report, metric)
    _check_change(fields, path, report, metric)
    for_s = fields.value("for", 0.0)
    if for_s == 0 and DESTRUCTIVE & set(acting(fields)):
        text = f"stops on a single reading of {metric.name}; a 'for: 5s' would wait for a second opinion"
        report.warn(fields.place, path, text)
    return Rule(
        metric=metric.name,
        threshold=threshold,
        for_s=for_s,
        clear=clear,
        unless_supported=fields.value("unless_supported"),
        change_over_s=fields.value("change_over"),
        keep_s=fields.value("keep", Rule.keep_s),
        only=only,
        **_base(fields),
    )


def _check_unless(fields: Fields, path: str, report: Report, metric: Metric) -> None:
    name = fields.value("unless_supported")
    if name is not None and metric.scope != "gpu":
        text = f"is for rules about a GPU; {metric.name} is about {scope_words(metric.scope)}"
        report.error(fields.place_of("unless_supported"), join(path, "unless_supported"), text)
    elif name is not None and name == metric.name:
        text = "is the rule's own metric, so the rule could never apply"
        report.error(fields.place_of("unless_supported"), join(path, "unless_supported"), text)


def _check_change(fields: Fields, path: str, report: Report, metric: Metric) -> None:
    """A change needs two readings, and one more so that none of them has to be on time."""
    over_s = fields.value("change_over")
    if over_s is not None and over_s < 3 * metric.every_s:
        every, least = duration_text(metric.every_s), duration_text(3 * metric.every_s)
        text = f"is too short: {metric.name} is read every {every}, so {least} or more"
        report.error(fields.place_of("change_over"), join(path, "change_over"), text)


def _clear(
    fields: Fields,
    path: str,
    report: Report,
    metric: Optional[Metric],
    threshold: Optional[Threshold],
    change: bool,
) -> Optional[Clear]:
    """The clear condition; without one: the other side of the same limit, for a minute."""
    if not fields.given("clear"):
        if threshold is None:
            return None
        return Clear(Threshold(above=threshold.below, below=threshold.above), DEFAULT_CLEAR_FOR_S)
    if "clear" not in fields.found:
        return None
    inner: Fields = fields.value("clear")
    here = join(path, "clear")
    back = _threshold(inner, here, report, metric, change)
    if back is None or threshold is None or metric is None:
        return None
    problem = _hysteresis(metric, threshold, back)
    if problem:
        word = "above" if back.above is not None else "below"
        report.error(inner.place_of(word), join(here, word), problem)
        return None
    return Clear(back, inner.value("for", DEFAULT_CLEAR_FOR_S))


def _hysteresis(metric: Metric, threshold: Threshold, back: Threshold) -> str:
    """Why an alert with this limit can't clear like that; "" when it can."""
    if threshold.above is not None:
        edge = limit_shown(metric, threshold.above)
        if back.below is None:
            return f"clears on the side it fires on; a rule 'above: {edge}' clears with 'below: ...'"
        if back.below > threshold.above:
            return f"would clear while it fires; it must be {edge} or less"
        return ""
    assert threshold.below is not None
    edge = limit_shown(metric, threshold.below)
    if back.above is None:
        return f"clears on the side it fires on; a rule 'below: {edge}' clears with 'above: ...'"
    if back.above < threshold.below:
        return f"would clear while it fires; it must be {edge} or more"
    return ""


def _event_rule(fields: Fields, path: str, report: Report) -> Optional[Rule]:
    for name in fields.given(*_ONLY_METRIC):
        text = _ELSEWHERE.get(name, "is for rules about a metric; an event just happens")
        report.error(fields.place_of(name), join(path, name), text)
    event = fields.value("event")
    if event is None:
        return None
    only = selector(fields, path, report, None, event)
    return Rule(event=event, quiet_for_s=fields.value("quiet_for", Rule.quiet_for_s), only=only, **_base(fields))


RULES = NamedList(
    noun="rule",
    settings=(
        Setting("name", NAME, "What the rule is called; a later file replaces it by this name.", required=True),
        Setting("enabled", Flag(), "false turns the rule off.", default=True),
        Setting("metric", MetricName(), "What is measured. A rule has this or event.", example="gpu.slowdown_margin"),
        Setting("above", Limit(), "Fires above this, in the metric's unit.", example="95"),
        Setting("below", Limit(), "Fires below this, in the metric's unit.", example="3"),
        Setting("for", Duration(), "Only when it was so for this long without a break.", default=0.0, example="30s"),
        Setting(
            "change_over",
            Duration(3, LONGEST_CHANGE_S),
            "Judge by how much the value grew (above) or fell (below a negative limit) within this time, not by the"
            " value.",
            example="10m",
        ),
        Setting("clear", CLEAR, "When it is over. Left out: back on the other side of the limit for 60s."),
        Setting(
            "keep",
            Duration(),
            "What was done stays in force, and the alert open, for so long after it is over.",
            default=Rule.keep_s,
            example="5m",
        ),
        Setting("only", ONLY, "Which GPUs, units, file systems or sensors it is about. Left out: all."),
        Setting(
            "unless_supported",
            MetricName("gpu"),
            "Not for cards that report this metric.",
            example="gpu.shutdown_margin",
        ),
        Setting("event", EVENT, "What happened. A rule has this or metric."),
        Setting(
            "quiet_for",
            Quiet(low_s=1),
            "An event rule is over after this long without another such event, or with a reboot: quiet_for: reboot.",
            default=Rule.quiet_for_s,
        ),
        Setting(
            "severity",
            Choice(tuple(one.value for one in Severity)),
            "info is only logged; warning and critical are told to people.",
            example="warning",
            required=True,
        ),
        Setting("ladder", ListOf(STEP, most=MOST_STEPS), "What is done, step by step, while the condition lasts."),
    ),
    build=_build_rule,
    absent={"action": "is written as ladder: [{do: [stop]}]", "do": "is written as ladder: [{do: [stop]}]"},
    conditions=(
        {"oneOf": [{"required": ["metric"]}, {"required": ["event"]}]},
        {
            "if": {"required": ["metric"]},
            "then": {
                "oneOf": [{"required": ["above"]}, {"required": ["below"]}],
                "not": {"required": ["quiet_for"]},
            },
            "else": {"not": {"anyOf": [{"required": [name]} for name in _ONLY_METRIC]}},
        },
    ),
)
