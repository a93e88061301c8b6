"""`only` of a rule: which of the things that its metric or event is about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from gpuwatch.config.events import EVENT_KINDS
from gpuwatch.config.kinds import NAME, Found, ListOf, ScalarKind, Schema, Text
from gpuwatch.config.ladder import scope_words
from gpuwatch.config.report import Report, did_you_mean, quoted, shown
from gpuwatch.config.table import Fields, Named, Record, Setting, join
from gpuwatch.config.workloads import UnitText
from gpuwatch.model.metric import Metric
from gpuwatch.model.rule import EventMatch, Rule, Selector
from gpuwatch.model.units import catches_all

ANY = "*"  # any workload
_OF_GPU = ("gpus", "models", "workloads", "units")
_OF_UNIT = ("units", "workloads")
_SIDES = {  # scope of a metric -> what can be selected
    "gpu": _OF_GPU,
    "unit": _OF_UNIT,
    "workload": ("workloads",),
    "filesystem": ("filesystems",),
    "sensor": ("sensors",),
}
_WHAT = {
    "gpus": "a GPU",
    "models": "a GPU",
    "workloads": "a GPU, a unit or a workload",
    "units": "a GPU or a unit",
    "filesystems": "a file system",
    "sensors": "a sensor of the host",
}


@dataclass(frozen=True)
class GpuGlob(ScalarKind):
    """UUIDs of GPUs, with * and ? as in a shell."""

    @property
    def words(self) -> str:
        """With an example."""
        return "a GPU's UUID such as GPU-3d9a7c10* (the index changes; `gpuwatch status --json` shows UUIDs)"

    def parse(self, text: str) -> str:
        """The glob, in lower case as NVML has it."""
        kind = Text(self._pattern, self.words)
        return "GPU-" + kind.parse(text)[4:].lower()

    def schema(self) -> Schema:
        """A string with its pattern."""
        return Text(self._pattern, self.words).schema()

    @property
    def _pattern(self) -> str:
        return r"GPU-[0-9A-Fa-f*?\[\]!-]{1,60}"


@dataclass(frozen=True)
class SelectedUnit(UnitText):
    """Units that a rule is about; any that there can be readings of."""

    def problem(self, text: str) -> Optional[str]:
        """What would select everything, or nothing."""
        if catches_all(text):
            return "names every unit; leave it out"
        if "." not in text and not text.endswith("*"):
            return f"has no unit suffix and would fit nothing (did you mean '{text}.service'?)"
        return None


def _fields(fields: Fields, path: str, report: Report) -> Fields:
    """Read once it is known what the rule is about."""
    if not fields.given(*_WHAT):
        report.warn(fields.place, path, "is empty, so the rule is about everything")
    return fields


ONLY = Record(
    (
        Setting("gpus", ListOf(GpuGlob(), least=1), "GPUs by UUID.", example='["GPU-3d9a7c10*"]'),
        Setting(
            "models",
            ListOf(Text(r"(?=.*\S)[^\x00-\x1f\x7f]{1,100}", "the name of a card such as *H100*"), least=1),
            "GPUs by the name of the card.",
            example='["*H100*"]',
        ),
        Setting(
            "workloads",
            ListOf(Text(rf"\{ANY}|{NAME.pattern}", "the name of a workload, or * for any of them"), least=1),
            "Units of these workloads (* for any), or GPUs on which one of their processes is.",
            example="[training]",
        ),
        Setting(
            "units",
            ListOf(SelectedUnit(), least=1),
            "Units by name, or GPUs on which one of their processes is.",
            example='["train@*.service"]',
        ),
        Setting(
            "filesystems",
            ListOf(Text(r"[/*?\[][^\x00-\x1f\x7f]{0,1000}", "a mount point such as /var or /data*"), least=1),
            "File systems by where they are mounted.",
            example='["/data*"]',
        ),
        Setting(
            "sensors",
            ListOf(Text(r"(?=.*\S)[^\x00-\x1f\x7f]{1,200}", "the key of a sensor such as coretemp@*"), least=1),
            "Sensors of the host by their keys, as `gpuwatch status --json` has them.",
            example='["coretemp@*"]',
        ),
    ),
    _fields,
)


def selector(
    fields: Fields, path: str, report: Report, metric: Optional[Metric], event: Optional[EventMatch]
) -> Selector:
    """The sides that were given; those that don't go with what the rule is about are problems."""
    if "only" not in fields.found:
        return Selector()
    inner: Fields = fields.value("only")
    here = join(path, "only")
    sides = tuple(_WHAT) if metric is None and event is None else _sides(metric, event)
    for name in inner.given(*_WHAT):
        if name not in sides:
            text = f"is for rules about {_WHAT[name]}; {_about(metric, event)}"
            report.error(inner.place_of(name), join(here, name), text)
    for model in inner.value("models", ()):
        if not set(model) & set("*?[ "):
            text = f"{quoted(model)} is hardly the whole name of a card; '*{shown(model)}*' finds it in one"
            report.warn(inner.place_of("models"), join(here, "models"), text)
    return Selector(**{name: inner.value(name, ()) for name in _WHAT})


def _sides(metric: Optional[Metric], event: Optional[EventMatch]) -> tuple[str, ...]:
    if metric is not None:
        return _SIDES.get(metric.scope, ())
    assert event is not None
    kind = EVENT_KINDS[event.kind]
    return _OF_GPU if kind.of_gpu else _OF_UNIT if kind.of_unit else ()


def _about(metric: Optional[Metric], event: Optional[EventMatch]) -> str:
    if metric is not None:
        return f"{metric.name} is about {scope_words(metric.scope)}"
    assert event is not None
    kind = EVENT_KINDS[event.kind]
    return f"{event.kind} is about {'a GPU' if kind.of_gpu else 'a unit' if kind.of_unit else 'the host'}"


def check_selectors(rules: Iterable[Found], workloads: Iterable[Found], report: Report, blind: bool) -> None:
    """The workloads that rules name are there, in whatever file.

    `blind`: a file could not be read, so a workload that is not known may be in it.
    """
    known = {one.value.name: one.value for one in workloads}
    for one in rules:
        named: Named = one.value
        if not isinstance(named.thing, Rule) or not named.thing.enabled:
            continue
        path = f"rules[{shown(named.name)}].only.workloads"
        for name in named.thing.only.workloads:
            if name in known and not known[name].enabled:
                report.warn(one.place, path, f"workload {quoted(name)} is turned off")
            elif name not in known and name != ANY and not blind:
                text = f"there is no workload {quoted(name)}{did_you_mean(name, known)}"
                report.error(one.place, path, text)
