"""Stories for `gpuwatch simulate`, from YAML; every problem at once, with its place, as in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Optional

from gpuwatch.catalog.default_rules import default_rules_text
from gpuwatch.config.document import Node, parse
from gpuwatch.config.kinds import Schema, an
from gpuwatch.config.load import check_whole, default_values, settings_from
from gpuwatch.config.merge import Values, merge
from gpuwatch.config.report import Place, Report, did_you_mean, in_order, quoted
from gpuwatch.config.root import root_table
from gpuwatch.config.scenario_kinds import ALL_GPUS, ramps_of, readings_of
from gpuwatch.config.scenario_table import GPU_VERBS, NEVER, RULE_VERBS, STORY, VERBS, WHAT
from gpuwatch.config.secrets import refuse_secrets
from gpuwatch.config.table import (
    ChannelType,
    Fields,
    fields_schema,
    join,
    read_fields,
    require,
)
from gpuwatch.model.errors import ConfigError
from gpuwatch.model.settings import Mode, Settings, Workload
from gpuwatch.simulation import scenario as seen
from gpuwatch.simulation.scenario import Card, Expectation, Happening, Scenario

AFTER_S = 30.0  # a story goes on for so long after the last moment that it mentions
FIRST_PID = 4242
TRAINING = Workload("training", units=("train@*.service",))


class ScenarioReader:
    """`channel_types` as for the configuration, which a story may hold as a whole. One reader reads many stories."""

    def __init__(self, channel_types: Mapping[str, ChannelType]) -> None:
        self._root = root_table(channel_types)
        self._defaults: Optional[Values] = None

    def read(self, data: bytes, file: str, settings: Optional[Settings] = None) -> tuple[Scenario, Settings]:
        """The story and the settings that it is played with: its own, or those that are given (its `config` is checked
        all the same). Raises ConfigError with every problem."""
        report = Report(file)
        node = parse(data, report)
        found: Optional[tuple[Scenario, Settings]] = None
        if node is not None and node.kind == "table":
            refuse_secrets(node, "", report)
            fields = read_fields(STORY, {}, node, "", report)
            require(STORY, fields, "", report)
            own = self._settings(fields.value("config"), "config", report)
            own = replace(own, interval_s=fields.value("interval", own.interval_s))
            later = self._reloads(fields, own.interval_s, report)
            played = own if settings is None else replace(settings, interval_s=own.interval_s)
            found = _scenario(fields, own, later if settings is None else {}, report), played
        elif not report.problems:
            said = "nothing" if node is None else an(node)
            report.error(Place(file), "", f"expected a story (story: ..., host: ..., timeline: ...), not {said}")
        if report.problems or found is None:
            raise ConfigError(in_order(report.problems, (file,)))
        return found

    def schema(self) -> Schema:
        """The JSON Schema of a story, for editors and other tools."""
        story = fields_schema(STORY)
        story["properties"]["config"] = self._root.schema()
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "gpuwatch story",
            "description": "For gpuwatch simulate, which checks more than a schema can.",
            **story,
            "required": ["story"],
        }

    def _reloads(self, fields: Fields, interval_s: float, report: Report) -> dict[str, Settings]:
        """What each entry of the timeline puts in the place of `config`, by the entry's path."""
        given = [(each.value("reload"), path) for each, path in fields.value("timeline", ()) if each.given("reload")]
        read = {path: self._settings(node, join(path, "reload"), report) for node, path in given}
        return {path: replace(each, interval_s=interval_s) for path, each in read.items()}

    def _settings(self, node: Optional[Node], path: str, report: Report) -> Settings:
        """A whole configuration over the shipped rules; None is the one that a story has without saying so."""
        if self._defaults is None:
            self._defaults = default_values(self._root, default_rules_text(), report)
        values = self._defaults
        if node is not None:
            own = read_fields(self._root.settings, self._root.absent, node, path, report).found
            values = merge(self._root, values, own, path, report, False)
            check_whole(values, report, False)
        settings = settings_from(values)
        if node is None:
            settings = replace(settings, mode=Mode.ENFORCE, workloads=(TRAINING,))
        return settings


# From checked fields to the story ---------------------------------------------------------------


def _scenario(fields: Fields, settings: Settings, later: Mapping[str, Settings], report: Report) -> Scenario:
    host: Mapping[str, Any] = fields.value("host", {})
    cards = tuple(card for entry in host.get("gpus", ()) for card in entry) or (Card(), Card())
    count = len(cards)
    jobs = []
    for number, (name, (job, pid)) in enumerate(host.get("units", {}).items()):
        unit = replace(job.unit, name=name, pid=pid or FIRST_PID + 1000 * number)
        jobs.append(replace(job, unit=unit, gpus=_indices(job.gpus, count)))
    bystanders = [replace(each, gpus=_indices(each.gpus, count)) for each in host.get("processes", ())]
    _check_gpus("host.units", fields, [index for each in (*jobs, *bystanders) for index in each.gpus], count, report)
    readings = {}
    if host.get("readings") is not None:
        found = readings_of(host["readings"], "host", "host.readings", report)
        readings = {name: reading for name, reading in found.items() if reading is not None}
    known = {each.unit.name for each in jobs}
    happenings = [
        _happening(each, path, count, known, later.get(path), report) for each, path in fields.value("timeline", ())
    ]
    expect = [_expectation(each, path, settings, count, report) for each, path in fields.value("expect", ())]
    timeline = tuple(sorted((each for each in happenings if each is not None), key=lambda each: each.at_s))
    expected = tuple(each for each in expect if each is not None)
    last = max([0.0, *(_end(each) for each in timeline), *(each.to_s or each.from_s for each in expected)])
    return Scenario(
        fields.value("story", ""),
        cards,
        tuple(jobs),
        tuple(bystanders),
        readings,
        timeline,
        expected,
        fields.value("until", last + AFTER_S),
        host.get("uptime", Scenario.uptime_s),
        min(host.get("gpuwatch_up", Scenario.up_s), host.get("uptime", Scenario.uptime_s)),
        fields.value("strict", True),
    )


def _end(happening: Happening) -> float:
    return max(happening.at_s + happening.gap_s, happening.to_s or 0.0)


def _indices(gpus: tuple[int, ...], count: int) -> tuple[int, ...]:
    return tuple(range(count)) if gpus == ALL_GPUS else gpus


def _check_gpus(path: str, fields: Fields, gpus: list[int], count: int, report: Report) -> None:
    for index in sorted({index for index in gpus if index >= count}):
        place = fields.place_of("gpu") if path != "host.units" else fields.place_of("host")
        report.error(place, path, f"there is no GPU {index}; the host has {count} (GPU 0 to GPU {count - 1})")


_SUBJECTS = ("gpu", "unit", "filesystem", "sensor")


def _happening(
    fields: Fields, path: str, count: int, units: set[str], later: Optional[Settings], report: Report
) -> Optional[Happening]:
    gpus = _indices(fields.value("gpu", ()), count)
    _check_gpus(path, fields, list(gpus), count, report)
    unit = fields.value("unit", "")
    if unit and unit not in units:
        text = f"host.units has no {quoted(unit)}{did_you_mean(unit, units)}"
        report.error(fields.place_of("unit"), join(path, "unit"), text)
    if not fields.given(*(each.name for each in WHAT)):
        known = ", ".join(each.name for each in WHAT)
        report.error(fields.place, path, f"says nothing that happens; there is {known}")
    scope = _scope(fields, path, report)
    readings = _figures(fields, "set", scope, path, report)
    readings = {**readings, **_figures(fields, "host", "host", path, report)}
    ramps: Mapping[str, tuple[float, float]] = {}
    if "ramp" in fields.found:
        ramps = ramps_of(fields.value("ramp"), scope or "host", join(path, "ramp"), report)
    if "ramp" in fields.found and fields.value("to", 0.0) <= fields.value("at", 0.0):
        report.error(fields.place_of("ramp"), join(path, "ramp"), "needs a moment `to` that is later than `at`")
    event = fields.value("event", {})
    if "event" in fields.found and not isinstance(event.get("kind"), str):
        report.error(fields.place_of("event"), join(path, "event"), "'kind' is missing, e.g. kind: log_gap")
    if "at" not in fields.found:
        return None
    return Happening(
        at_s=fields.value("at"),
        to_s=fields.value("to"),
        gpus=gpus,
        unit=unit,
        pid=fields.value("process", 0),
        subject=fields.value("filesystem", fields.value("sensor", "")),
        readings=readings,
        ramps=ramps,
        noise=fields.value("noise", 0.0),
        lost=fields.value("lost"),
        listed=fields.value("listed"),
        driver=fields.value("driver", ""),
        power_limit_w=fields.value("power_limit"),
        refuses=fields.value("refuses"),
        attribution=fields.value("attribution", ""),
        state=fields.value("state", ""),
        kernel=fields.value("kernel", ""),
        manager=fields.value("manager", ""),
        output=fields.value("output", ""),
        age_s=fields.value("age", 0.0),
        line_fields={name: str(each) for name, each in fields.value("fields", {}).items()},
        event=event,
        gap_s=fields.value("gap", 0.0),
        restart="restart" in fields.found,
        reboot=fields.value("reboot", False),
        clock_s=fields.value("clock", 0.0),
        order=fields.value("order", {}),
        settings=later,
    )


def _scope(fields: Fields, path: str, report: Report) -> str:
    """What `set` and `ramp` are of."""
    said = fields.given(*_SUBJECTS)
    if len(said) > 1:
        report.error(fields.place_of(said[1]), path, f"is about {' and '.join(said)}; one entry is about one of them")
        return ""
    if "set" in fields.found and not said:
        report.error(fields.place_of("set"), join(path, "set"), f"of what? Name one of {', '.join(_SUBJECTS)}")
    for name, subject in (("lost", "gpu"), ("listed", "gpu"), ("power_limit", "gpu"), ("refuses", "gpu")):
        if name in fields.found and subject not in said:
            report.error(fields.place_of(name), join(path, name), f"needs `{subject}:`")
    if "output" in fields.found and "unit" not in said:
        report.error(fields.place_of("output"), join(path, "output"), "needs `unit:`")
    if "state" in fields.found and "unit" not in said and "process" not in fields.found:
        report.error(fields.place_of("state"), join(path, "state"), "needs `unit:` or `process:`")
    return said[0] if said else ""


def _figures(fields: Fields, name: str, scope: str, path: str, report: Report) -> Mapping[str, Any]:
    return readings_of(fields.value(name), scope, join(path, name), report) if name in fields.found and scope else {}


def _expectation(fields: Fields, path: str, settings: Settings, count: int, report: Report) -> Optional[Expectation]:
    verbs = fields.given(*VERBS, "never") or fields.given("reason")
    if len(verbs) != 1:
        known = ", ".join((*VERBS, "never", "reason"))
        said = f"expects {' and '.join(verbs)} at once" if verbs else f"expects nothing; there is {known}"
        report.error(fields.place, path, said)
        return None
    verb, name = verbs[0], str(fields.value(verbs[0], ""))
    rules = {rule.name for rule in settings.rules}
    never = verb == "never"
    if never:
        verb, name = (NEVER[name], "") if name in NEVER else (seen.FIRES, name)
    named = [(fields.value("rule"), "rule")]
    if verb in RULE_VERBS and name:
        named.append((name, verbs[0]))
    for rule, key in named:
        if rule is not None and rule not in rules:
            hint = did_you_mean(rule, [*rules, *NEVER] if never else rules)
            report.error(fields.place_of(key), join(path, key), f"no rule {quoted(rule)}{hint}")
    if verb in GPU_VERBS and name and name not in {f"GPU {index}" for index in range(count)}:
        text = f"{quoted(name)} is no GPU of the host (GPU 0 to GPU {count - 1})"
        report.error(fields.place_of(verbs[0]), join(path, verbs[0]), text)
    first, last = fields.value("within", (fields.value("after", 0.0), fields.value("by")))
    return Expectation(
        verb,
        name,
        fields.value("on", ""),
        fields.value("rule", ""),
        fields.value("reason", "") if verb != seen.REASON else "",
        fields.value("level"),
        first,
        last,
        never,
        str(fields.place),
    )
