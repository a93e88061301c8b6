"""Class, severity, meaning and next step of any event, from its facts. Data: kinds.json, xid.json, sxid.json.

A code or a kind is a clue, not a verdict: it says what was noticed, not what failed first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Optional

from gpuwatch.catalog import sxid, xid
from gpuwatch.model.event import Scalar
from gpuwatch.model.rule import Severity

CLASSES = (*xid.CLASSES, "host")

CLUE = {
    "en": "A code is a clue, not a verdict: it says what was noticed, not what failed first.",
    "zh": "代码只是线索，不是定论：它说明观察到了什么，不能说明最先出问题的是什么。",
}
_SEVERITIES = {"corrected": Severity.INFO, "nonfatal": Severity.WARNING, "fatal": Severity.CRITICAL}
_BY_SEVERITY = frozenset({"pcie_aer", "edac"})


def kinds() -> tuple[str, ...]:
    """Every kind of event that the catalogue makes."""
    return ("xid", "sxid", *_kinds())


def is_user_kind(kind: str) -> bool:
    """True for kinds of which anybody can have written the line: nothing may act on them (S10)."""
    return bool(_kinds().get(kind, {}).get("user", False))


def judge(facts: Mapping[str, Scalar], overrides: Optional[Mapping[int, str]] = None) -> tuple[str, Severity]:
    """Class (of CLASSES) and severity of an event. `overrides`: the site's own classes of Xids, by number."""
    kind = facts["kind"]
    if kind == "xid":
        return xid.judge(facts, overrides)
    if kind == "sxid":
        return sxid.judge(facts)
    row = _kinds().get(str(kind))
    if row is None:
        return "unknown", Severity.WARNING
    if kind == "log_match" and facts.get("alert_severity") is not None:
        return row["class"], Severity(facts["alert_severity"])
    return row["class"], _severity(str(kind), facts, Severity(row["severity"]))


def _severity(kind: str, facts: Mapping[str, Scalar], usual: Severity) -> Severity:
    """What the line itself says about how grave it is outranks the kind's own severity."""
    if kind in _BY_SEVERITY:
        return _SEVERITIES.get(str(facts.get("severity")), usual)
    if facts.get("cleared") is True:
        return Severity.INFO
    if kind in ("mce", "fabric_error") and facts.get("fatal") is True:
        return Severity.CRITICAL
    if kind == "unit_failed" and facts.get("result") in ("oom-kill", "watchdog", "start-limit-hit"):
        return Severity.WARNING
    return usual


def meaning(facts: Mapping[str, Scalar], language: str) -> str:
    """What happened, in one plain sentence."""
    kind, number = facts["kind"], facts.get(str(facts["kind"]))
    if kind == "xid" and isinstance(number, int):
        return _xid_meaning(number, facts, language)
    if kind == "sxid" and isinstance(number, int):
        return sxid.lookup(number).meaning[language]
    row = _kinds().get(str(kind))
    return str(row[language]) if row else ""


def _xid_meaning(number: int, facts: Mapping[str, Scalar], language: str) -> str:
    sentence = xid.lookup(number).sentence(language)
    action = xid.recovery(facts.get("recovery_to"))
    if action is None:
        return sentence
    if language == "zh":
        return f"驱动对该 GPU 的恢复建议变为：{action['zh']}。"
    return f"The driver's advice on how to recover this GPU is now: {action['en']}."


def next_step(facts: Mapping[str, Scalar], language: str) -> str:
    """The one thing to do first."""
    kind, number = facts["kind"], facts.get(str(facts["kind"]))
    if kind == "xid" and isinstance(number, int):
        return _xid_next(number, facts, language)
    if kind == "sxid" and isinstance(number, int):
        entry = sxid.lookup(number)
        if facts.get("fatal") is True and entry.group != "always fatal":
            entry = sxid.fatal()
        return entry.next_step[language]
    row = _kinds().get(str(kind))
    if row is None:
        return ""
    return str(row["next_" + language])


def _xid_next(number: int, facts: Mapping[str, Scalar], language: str) -> str:
    action = xid.recovery(facts.get("recovery_to"))
    if action is not None:
        return str(action["next_" + language])
    caused_by = facts.get("caused_by")
    if isinstance(caused_by, int):
        return (
            f"先看引起它的 Xid {caused_by}" if language == "zh" else f"look at Xid {caused_by} first, which caused it"
        )
    cause = xid.cause(facts)
    if cause is not None:
        return cause.text(language)
    return xid.next_step(xid.lookup(number), language)


@lru_cache(maxsize=1)
def _kinds() -> Any:
    with open(os.path.join(os.path.dirname(__file__), "kinds.json"), encoding="utf-8") as file:
        return json.load(file)
