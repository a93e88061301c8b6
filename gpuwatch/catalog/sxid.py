"""What the SXid numbers of an NVSwitch mean. Data: sxid.json, loaded at first use.

Facts per number, from NVIDIA's public documentation of the fabric manager: its name and its group: non-fatal,
potentially fatal, always fatal. Whether an error *was* fatal is the word in the line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpuwatch.model.event import Scalar
from gpuwatch.model.rule import Severity


@dataclass(frozen=True)
class Sxid:
    """One number. `meaning` and `next_step` are ours, by language."""

    number: int
    known: bool
    name: str
    group: str  # non-fatal | potentially fatal | always fatal | unknown
    klass: str
    severity: Severity
    meaning: Mapping[str, str]
    next_step: Mapping[str, str]


def lookup(number: int) -> Sxid:
    """The entry of a number; one of group unknown for a number that is not in the table."""
    row = _table()["codes"].get(str(number))
    known = row is not None
    row = row or {"name": "", "group": "unknown"}
    group = _table()["groups"][row["group"]]
    words = row if "en" in row else group
    return Sxid(
        number=number,
        known=known,
        name=row["name"],
        group=row["group"],
        klass=row.get("class", group["class"]),
        severity=Severity(row.get("severity", group["severity"])),
        meaning={"en": words["en"], "zh": words["zh"]},
        next_step={"en": group["next_en"], "zh": group["next_zh"]},
    )


def fatal() -> Sxid:
    """What goes for any number whose line says Fatal."""
    group = _table()["groups"]["always fatal"]
    words = {"en": group["en"], "zh": group["zh"]}
    steps = {"en": group["next_en"], "zh": group["next_zh"]}
    return Sxid(0, False, "", "always fatal", group["class"], Severity(group["severity"]), words, steps)


def numbers() -> tuple[int, ...]:
    """Every number in the table, in order."""
    return tuple(int(number) for number in _table()["codes"])


def judge(facts: Mapping[str, Scalar]) -> tuple[str, Severity]:
    """Class and severity of a line: the word Fatal decides, the table tells the rest."""
    number = facts.get("sxid")
    entry = lookup(number if isinstance(number, int) else -1)
    if facts.get("fatal") is True:
        return entry.klass, Severity.CRITICAL
    if facts.get("fatal") is False and entry.severity is Severity.CRITICAL:
        return entry.klass, Severity.WARNING
    return entry.klass, entry.severity


@lru_cache(maxsize=1)
def _table() -> Any:
    with open(os.path.join(os.path.dirname(__file__), "sxid.json"), encoding="utf-8") as file:
        return json.load(file)
