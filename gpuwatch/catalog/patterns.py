"""Patterns over lines of the journal: how they are held, and how the right one is found fast. Pure.

The shipped ones are data: patterns_*.yaml beside this module is where they are written and
patterns.json is the same in a form that loads in a millisecond; `python -m gpuwatch.catalog.compile_patterns`
makes the one from the others and a test keeps them equal.

A pattern has a literal, which decides whether its regular expression is looked at at all: `starts`
(the line begins with it), `holds` (it stands anywhere in it), or both. Literals that begin a line are found
through a table of their first three characters, the few others by plain search, so a line that means
nothing costs about a microsecond.

A pattern either has `pattern`, whose named groups are the names of catalog.fields, or `reader`, the
name of a function for shapes that need more than one expression (catalog.readers).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Callable, Optional

from gpuwatch.catalog.fields import Facts, read_field
from gpuwatch.model.event import Scalar

MOST_CHARACTERS = 4096  # of a line that are looked at; the kernel cuts its own at about 1,000
_KEY = 3

LineReader = Callable[[str], Optional[Facts]]


@dataclass(frozen=True)
class Pattern:
    """One pattern. `values` translates what a group found; a text that it does not know becomes None."""

    name: str
    source: str  # kernel | manager | journald | service | workload
    kind: Optional[str]  # None: known, and no event
    starts: str = ""
    holds: str = ""
    expression: Optional[re.Pattern[str]] = None
    reader: Optional[LineReader] = None
    units: tuple[str, ...] = ()  # of which service it is
    bare: bool = False  # of the manager: about no unit
    message_id: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)  # fact -> field of the journal entry
    values: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    fixed: Mapping[str, Scalar] = field(default_factory=dict)

    def read(self, line: str) -> Optional[Facts]:
        """The facts of a line that has the literal, or None."""
        if self.starts and self.holds and self.holds not in line:
            return None
        if self.reader is not None:
            return self.reader(line)
        if self.expression is None:
            return {"kind": self.kind, **self.fixed}
        match = self.expression.match(line) if self.starts else self.expression.search(line)
        return None if match is None else self.facts(match)

    def facts(self, match: re.Match[str]) -> Facts:
        """What the groups say."""
        facts: Facts = {"kind": self.kind}
        for name, text in match.groupdict().items():
            if text is None:
                facts[name] = None
            elif name in self.values:
                facts[name] = self.values[name].get(text)
            else:
                facts[name] = read_field(name, text)
        facts.update(self.fixed)
        return facts


class Table:
    """Patterns of one source, by their literals. The first that reads a line wins: those with `starts`, then `holds`,
    each in the order they are written."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        starts: dict[str, list[Pattern]] = {}
        holds: list[Pattern] = []
        for pattern in patterns:
            if pattern.starts:
                starts.setdefault(pattern.starts[:_KEY], []).append(pattern)
            elif pattern.holds:
                holds.append(pattern)
        self._starts = {key: _runs(found, "starts") for key, found in starts.items()}
        self._holds = _runs(holds, "holds")

    def read(self, line: str) -> Optional[Facts]:
        """The facts of a line; None when no pattern is about it. `kind` None: a pattern says that it is no event."""
        for literal, patterns in self._starts.get(line[:_KEY], ()):
            if line.startswith(literal):
                for pattern in patterns:
                    facts = pattern.read(line)
                    if facts is not None:
                        return facts
        for literal, patterns in self._holds:
            if literal in line:
                for pattern in patterns:
                    facts = pattern.read(line)
                    if facts is not None:
                        return facts
        return None


def _runs(found: Iterable[Pattern], literal: str) -> tuple[tuple[str, tuple[Pattern, ...]], ...]:
    """Neighbours with the same literal together, so that it is looked for once; their order stays."""
    return tuple((text, tuple(some)) for text, some in groupby(found, key=attrgetter(literal)))


def build(rows: Iterable[Mapping[str, Any]], readers: Mapping[str, LineReader]) -> tuple[Pattern, ...]:
    """Patterns from their written form. Raises KeyError, ValueError or re.error for what is not well written."""
    return tuple(_build(row, readers) for row in rows)


def _build(row: Mapping[str, Any], readers: Mapping[str, LineReader]) -> Pattern:
    expression = re.compile(row["pattern"], re.DOTALL) if "pattern" in row else None
    return Pattern(
        name=row["name"],
        source=row["source"],
        kind=row["kind"],
        starts=row.get("starts", ""),
        holds=row.get("holds", ""),
        expression=expression,
        reader=readers[row["reader"]] if "reader" in row else None,
        units=tuple(row.get("units", ())),
        bare=row.get("bare", False),
        message_id=row.get("message_id", ""),
        fields=row.get("fields", {}),
        values=row.get("values", {}),
        fixed=row.get("set", {}),
    )


@lru_cache(maxsize=1)
def shipped() -> tuple[Mapping[str, Any], ...]:
    """The rows of patterns.json."""
    with open(os.path.join(os.path.dirname(__file__), "patterns.json"), encoding="utf-8") as file:
        return tuple(json.load(file))
