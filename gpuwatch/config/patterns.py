"""Patterns of this site: lines of the journal that become events. What one may be: catalog/user_patterns.py."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from gpuwatch.catalog.user_patterns import (
    LEAST_LITERAL,
    MOST_LITERAL,
    MOST_PATTERN,
    compile_user,
    literal_problem,
    pattern_problem,
    written,
)
from gpuwatch.config.events import SITE_PATTERN
from gpuwatch.config.kinds import NAME, ONE_LINE, Choice, Flag, Found, ListOf, ScalarKind, Schema
from gpuwatch.config.report import Report, did_you_mean, looks_secret, quoted, shown
from gpuwatch.config.table import Fields, Named, NamedList, Setting
from gpuwatch.config.workloads import UnitText
from gpuwatch.model.rule import Rule, Severity
from gpuwatch.model.settings import SitePattern
from gpuwatch.model.units import catches_all


@dataclass(frozen=True)
class Literal(ScalarKind):
    """The text that is in every line of a pattern."""

    @property
    def words(self) -> str:
        """What is expected."""
        return "a text that is in every such line and in few others"

    def parse(self, text: str) -> str:
        """The text itself."""
        problem = literal_problem(text)
        if problem:
            raise ValueError(problem)
        return text

    def schema(self) -> Schema:
        """A string with its length."""
        return {"type": "string", "minLength": LEAST_LITERAL, "maxLength": MOST_LITERAL}


@dataclass(frozen=True)
class Expression(ScalarKind):
    """A regular expression. It is judged by the literal beside it, so only kept here."""

    @property
    def words(self) -> str:
        """What is expected."""
        return "a regular expression that begins with the literal"

    def parse(self, text: str) -> str:
        """The text itself; `pattern_problem` reads it."""
        return text

    def schema(self) -> Schema:
        """A string with its length."""
        return {"type": "string", "maxLength": MOST_PATTERN}


@dataclass(frozen=True)
class PrintingUnit(UnitText):
    """A unit whose output is compared with a pattern."""

    def problem(self, text: str) -> Optional[str]:
        """Nothing prints as a slice, and the output of a whole host is too much to read."""
        if catches_all(text):
            return "names every unit of the host, whose whole output would be read; name the units that print it"
        if text.endswith(".slice"):
            return "is a slice, and nothing prints as one; name the units in it"
        if "." not in text and not text.endswith("*"):
            return f"has no unit suffix and would fit nothing (did you mean '{text}.service'?)"
        return None


def _build_pattern(fields: Fields, path: str, report: Report) -> Optional[SitePattern]:
    literal, pattern = fields.value("literal"), fields.value("pattern")
    if literal is not None and pattern is not None:
        problem = pattern_problem(pattern, literal)
        if problem:
            told = "can't be used" if looks_secret(pattern) or looks_secret(literal) else problem
            report.error(fields.place_of("pattern"), f"{path}.pattern", told)
            return None
    if literal is None or "name" not in fields.found:
        return None
    return SitePattern(
        name=fields.value("name"),
        literal=literal,
        pattern=pattern,
        severity=Severity(fields.value("severity", SitePattern.severity.value)),
        meaning=fields.value("meaning", SitePattern.meaning),
        units=fields.value("units", ()),
    )


PATTERNS = NamedList(
    noun="pattern",
    settings=(
        Setting("name", NAME, "What the pattern is called; rules name it.", example="loader-stall", required=True),
        Setting("enabled", Flag(), "false turns the pattern off.", default=True),
        Setting(
            "literal",
            Literal(),
            "A text that is in every such line and in few others, exactly as it is printed.",
            example="data loader waits",
            required=True,
        ),
        Setting(
            "pattern",
            Expression(),
            "Begins with the literal (special characters escaped); its named groups become fields of the event."
            " Left out: the literal alone.",
            example="data loader waits since (?P<seconds>[0-9]{1,6}) s",
        ),
        Setting(
            "severity",
            Choice(tuple(one.value for one in Severity)),
            "How grave the event is. People are told by a rule about it.",
            default=SitePattern.severity.value,
        ),
        Setting("meaning", ONE_LINE, "What it means, in a sentence.", example="The data loader can't keep up."),
        Setting(
            "units",
            ListOf(PrintingUnit(), least=1),
            "Units that print it; their output is read. Left out: every line that is read anyway.",
            example='["train@*.service"]',
        ),
    ),
    build=_build_pattern,
    absent={
        "regex": "is written as pattern",
        "kind": f"is always {SITE_PATTERN}",
        "ladder": "belongs to a rule: event: {kind: " + SITE_PATTERN + ", patterns: [NAME]}",
        "containers": "is not in this version: leave 'units' out, and the output of workloads' containers is compared",
    },
)


def check_patterns(patterns: Iterable[Found], rules: Iterable[Found], report: Report, blind: bool) -> None:
    """All patterns that are in force together, and the rules about them.

    `blind`: a file could not be read, so a pattern that is not known may be in it.
    """
    known = {one.value.name: one for one in patterns}
    used = {name: one for name, one in known.items() if one.value.enabled and one.value.thing is not None}
    rows = [written(each.value.thing, each.place.file, each.place.line, each.place.column) for each in used.values()]
    report.problems.extend(compile_user(rows)[1])
    told: set[str] = set()
    for one in rules:
        named: Named = one.value
        if not isinstance(named.thing, Rule) or not named.thing.enabled or named.thing.event is None:
            continue
        if named.thing.event.kind == SITE_PATTERN:
            names = named.thing.event.patterns
            told.update(names or used)
            _check_names(one, names, known, report, blind)
    for name in used.keys() - told:
        grave: Severity = used[name].value.thing.severity
        if grave is not Severity.INFO:
            text = f"has severity {grave.value}, and no rule is about it: it is listed, and nobody is told"
            report.warn(used[name].place, f"patterns[{shown(name)}]", text)


def _check_names(rule: Found, names: tuple[str, ...], known: dict[str, Found], report: Report, blind: bool) -> None:
    path = f"rules[{shown(rule.value.name)}].event"
    unknown = [name for name in names if name not in known]
    off = [name for name in names if name in known and not known[name].value.enabled]
    for name in () if blind else unknown:
        report.error(rule.place, f"{path}.patterns", f"there is no pattern {quoted(name)}{did_you_mean(name, known)}")
    for name in off:
        report.warn(rule.place, f"{path}.patterns", f"pattern {quoted(name)} is turned off")
    if not names and not any(one.value.enabled for one in known.values()) and not blind:
        report.warn(rule.place, path, "is about this site's patterns, and there is none")
