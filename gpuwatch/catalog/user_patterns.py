"""Patterns that a site writes in conf.d: checked when they are loaded, so that none can slow the reader down. Pure.

    patterns:
      - name: loader-stall
        literal: "data loader waits"
        pattern: 'data loader waits since (?P<seconds>[0-9]{1,6}) s'
        severity: warning
        meaning: The data loader can't keep up.
        units: ["train@*.service"]

The literal decides which lines are looked at: it must be in the line, and the expression begins with it, so nothing is
searched for at every place of a line. Refused: what can take more than MOST_STEPS steps on a line (nested repetitions,
several unbounded ones), references back, looking ahead or behind, and groups whose names are not fields
of events, or that would say who wrote the line. The text handed to a pattern ends MOST_TEXT characters
behind the literal. What matches has kind log_match and source_trust user: it can be told, and never acted on.
"""

from __future__ import annotations

import fnmatch
import importlib
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

from gpuwatch.catalog import entry
from gpuwatch.catalog.fields import USER_FIELDS, Facts, read_field, short
from gpuwatch.catalog.patterns import MOST_CHARACTERS
from gpuwatch.model.errors import ConfigError, Problem
from gpuwatch.model.rule import Severity
from gpuwatch.model.settings import Settings, SitePattern

MOST_PATTERNS = 100
MOST_TEXT = 512
MOST_STEPS = 600_000
LEAST_LITERAL = 4
MOST_LITERAL = 200
MOST_PATTERN = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_KNOWN = ("name", "literal", "pattern", "severity", "meaning", "units")
# The parser of regular expressions is the same module under two names.
_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


class Written(NamedTuple):
    """A value of a configuration file and where it stands; `value` is a text, or a list of texts for units."""

    value: object
    file: str
    line: int
    column: int


@dataclass(frozen=True)
class UserPattern:
    """One checked pattern."""

    name: str
    literal: str
    expression: re.Pattern[str]
    severity: Severity = Severity.INFO
    meaning: str = ""
    units: tuple[str, ...] = ()  # globs; empty: of every unit

    def read(self, text: str, unit: str) -> Optional[Facts]:
        """The facts of a line that holds the literal, or None."""
        at = text.find(self.literal)
        if at < 0 or (self.units and not any(fnmatch.fnmatchcase(unit, glob) for glob in self.units)):
            return None
        match = self.expression.match(text[at : at + len(self.literal) + MOST_TEXT])
        if match is None:
            return None
        found: Facts = {name: read_field(name, value) for name, value in match.groupdict().items() if value is not None}
        facts: Facts = {"kind": "log_match", "pattern": self.name, "alert_severity": self.severity.value, **found}
        return {**facts, "meaning": short(self.meaning)} if self.meaning else facts


@dataclass(frozen=True)
class UserPatterns:
    """All of a site's."""

    patterns: tuple[UserPattern, ...] = ()

    def read(self, fields: Mapping[str, str]) -> Optional[Facts]:
        """The facts of an entry by the first pattern that fits."""
        text = fields.get("MESSAGE", "")[:MOST_CHARACTERS]
        unit = fields.get("_SYSTEMD_UNIT", "")
        for pattern in self.patterns:
            if pattern.literal in text:
                facts = pattern.read(text, unit)
                if facts is not None:
                    return {**entry.author(fields, text), **facts, "source_trust": entry.USER}
        return None


def compile_user(written: Sequence[Mapping[str, Written]]) -> tuple[UserPatterns, tuple[Problem, ...]]:
    """The patterns that are well written, and everything that is wrong with the others. Each mapping is one entry of
    the list `patterns`: key -> value with its position. An entry needs at least one value to have a position."""
    problems: list[Problem] = []
    found: dict[str, UserPattern] = {}
    for number, row in enumerate(written):
        report = _Report(f"patterns[{number}]", row, problems)
        pattern = _compile(row, report)
        if pattern is None:
            continue
        if pattern.name in found:
            report.add("name", f"there is another pattern called '{pattern.name}'")
        elif len(found) >= MOST_PATTERNS:
            report.add("name", f"there are more than {MOST_PATTERNS} patterns; each costs time on every line")
        else:
            found[pattern.name] = pattern
    return UserPatterns(tuple(found.values())), tuple(problems)


def compiled(settings: Settings) -> UserPatterns:
    """The patterns of a configuration. Raises ConfigError for what the loader would not have let through."""
    patterns, problems = compile_user([written(pattern) for pattern in settings.patterns])
    if problems:
        raise ConfigError(problems)
    return patterns


def written(pattern: SitePattern, file: str = "", line: int = 1, column: int = 1) -> dict[str, Written]:
    """A pattern as `compile_user` takes it, all of it written at one place."""
    given: dict[str, object] = {
        "name": pattern.name,
        "literal": pattern.literal,
        "severity": pattern.severity.value,
        "meaning": pattern.meaning,
        "units": pattern.units,
        **({} if pattern.pattern is None else {"pattern": pattern.pattern}),
    }
    return {key: Written(value, file, line, column) for key, value in given.items()}


@dataclass
class _Report:
    path: str
    row: Mapping[str, Written]
    problems: list[Problem]

    def add(self, key: str, text: str) -> None:
        place = self.row.get(key) or next(iter(self.row.values()), Written(None, "", 1, 1))
        path = f"{self.path}.{key}" if key else self.path
        self.problems.append(Problem(place.file, place.line, place.column, f"{path}: {text}"))


def _compile(row: Mapping[str, Written], report: _Report) -> Optional[UserPattern]:
    before = len(report.problems)
    for key in row:
        if key not in _KNOWN:
            report.add(key, f"no such setting; there is {', '.join(_KNOWN)}")
    texts = {key: _text(row, key, report) for key in ("name", "literal", "pattern", "severity", "meaning")}
    name, literal = texts["name"], texts["literal"]
    if name is not None and _NAME.fullmatch(name) is None:
        report.add("name", "is letters, digits and . _ - only, at most 64")
    wrong = {
        "literal": "" if literal is None else literal_problem(literal),
        "severity": _severity_problem(texts["severity"]),
    }
    for key, problem in wrong.items():
        if problem:
            report.add(key, problem)
    for key in ("name", "literal"):
        if key not in row:
            report.add("", f"needs '{key}'")
    pattern = re.escape(literal or "") if texts["pattern"] is None else texts["pattern"]
    problem = "" if literal is None or literal_problem(literal) else pattern_problem(pattern, literal)
    if problem:
        report.add("pattern", problem)
    units = _units(row, report)
    if len(report.problems) > before or name is None or literal is None:
        return None
    severity = Severity(texts["severity"] or "info")
    return UserPattern(name, literal, re.compile(pattern, re.DOTALL), severity, texts["meaning"] or "", units)


def _text(row: Mapping[str, Written], key: str, report: _Report) -> Optional[str]:
    value = row[key].value if key in row else None
    if value is None or isinstance(value, str):
        return value
    report.add(key, "must be a text")
    return None


def _units(row: Mapping[str, Written], report: _Report) -> tuple[str, ...]:
    value = row["units"].value if "units" in row else ()
    if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
        return tuple(value)
    report.add("units", "must be a list of names or globs of units")
    return ()


def _severity_problem(text: Optional[str]) -> str:
    names = [one.value for one in Severity]
    return "" if text is None or text in names else f"must be one of {', '.join(names)}"


def literal_problem(literal: str) -> str:
    """Why a text can't be the literal of a pattern; "" if it can."""
    if len(literal) < LEAST_LITERAL or len(literal.strip()) < LEAST_LITERAL:
        return f"must have at least {LEAST_LITERAL} characters that are in every such line and in few others"
    if len(literal) > MOST_LITERAL:
        return f"must have at most {MOST_LITERAL} characters"
    return "must be one line" if not literal.isprintable() else ""


def pattern_problem(pattern: str, literal: str) -> str:
    """Why a text can't be the expression of a pattern with this literal; "" if it can."""
    if len(pattern) > MOST_PATTERN:
        return f"must have at most {MOST_PATTERN} characters"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what a later Python reads differently is refused, and never printed
            tree = _parser.parse(pattern, re.DOTALL)
            re.compile(pattern, re.DOTALL)
    except (re.error, OverflowError, RecursionError, ValueError, Warning) as error:
        return f"is no regular expression: {error}"
    names = sorted(set(tree.state.groupdict) - USER_FIELDS)
    if names:
        return f"group '{short(names[0])}' is no field; there is {', '.join(sorted(USER_FIELDS))}"
    if tree.state.flags & (re.IGNORECASE | re.LOCALE | re.VERBOSE | re.ASCII | re.MULTILINE):
        return "has flags; write it without (?...)"
    if _begin(tree, len(literal)) != literal:
        return f"must begin with the literal: '{short(re.escape(literal))}...'"
    return _cost_problem(tree)


def _begin(tree: Any, length: int) -> str:
    """The first characters that the expression demands, as far as they are literal."""
    begin = ""
    for operation, argument in tree:
        if str(operation) == "LITERAL":
            begin += chr(argument)
        elif str(operation) == "SUBPATTERN" and len(begin) < length:
            inner = _begin(argument[-1], length - len(begin))
            begin += inner
            if len(inner) < len(argument[-1]):
                break
        else:
            break
        if len(begin) >= length:
            break
    return begin[:length]


class _Refused(Exception):
    """Why an expression could take long."""


def _cost_problem(tree: Any) -> str:
    try:
        steps = _ways(tree, False)
    except _Refused as refused:
        return str(refused)
    if steps > MOST_STEPS:
        return (
            "could take too long on a line made for it: at most two of its repetitions may be without a limit;"
            " write {1,9} instead of + where it is about numbers"
        )
    return ""


def _ways(tree: Any, repeated: bool) -> int:
    """In how many ways the expression can be laid over a text, at most: what backtracking may try."""
    ways = 1
    for operation, argument in tree:
        name = str(operation)
        if name in ("GROUPREF", "GROUPREF_EXISTS", "ASSERT", "ASSERT_NOT"):
            raise _Refused("may not refer back or look ahead or behind")
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            ways *= _ways_of_repeat(argument, repeated)
        elif name == "SUBPATTERN":
            ways *= _ways(argument[-1], repeated)
        elif name == "ATOMIC_GROUP":
            ways *= _ways(argument, repeated)
        elif name == "BRANCH":
            ways *= sum(_ways(branch, repeated) for branch in argument[1])
        if ways > MOST_STEPS * 1000:
            break
    return ways


def _ways_of_repeat(argument: Any, repeated: bool) -> int:
    least, most, inner = argument
    most = min(int(most), MOST_TEXT)
    choices = max(most - int(least) + 1, 1)
    inside = _ways(inner, True)
    if choices == 1 and inside == 1:
        return 1
    if inside > 1 and most > 1:
        raise _Refused("repeats something that itself repeats or has alternatives; write it out")
    if repeated and most > 1:
        raise _Refused("repeats something that itself repeats or has alternatives; write it out")
    return choices * inside
