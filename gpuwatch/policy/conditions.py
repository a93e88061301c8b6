"""When a rule's condition begins, fires and clears. One alert, one sample at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Optional
from zlib import crc32

from gpuwatch.catalog import xid as xid_table
from gpuwatch.model import reason
from gpuwatch.model.codec import decode, encode
from gpuwatch.model.event import Event
from gpuwatch.model.incident import Subject
from gpuwatch.model.instant import Instant
from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import Reading
from gpuwatch.model.rule import EventMatch, Rule
from gpuwatch.policy.state import MOST_PERIODS, Alert


@lru_cache(maxsize=256)
def rule_print(rule: Rule) -> str:
    """Eight hex digits that change when anything about the rule changes, but for where it is written.

    A checksum is enough, and spares the resident process the 4 MiB of a cryptographic library.
    """
    plain = decode(Rule, encode(replace(rule, origin="")))  # 5 and 5.0 are one limit
    content = json.dumps(encode(plain), sort_keys=True)
    return f"{crc32(content.encode()):08x}"


def alert_key(rule: str, subject: Subject) -> str:
    """How an alert is filed."""
    return f"{rule}|{subject.kind}|{subject.id}"


def usable(metric: str, reading: Optional[Reading]) -> Optional[float]:
    """The number to judge, or None when the reading is missing, failed or implausible (S3)."""
    if reading is None or reading.value is None:
        return None
    declared = METRICS[metric]
    return reading.value if declared.low <= reading.value <= declared.high else None


def judge(
    alert: Optional[Alert], rule: Rule, subject: Subject, label: str, number: float, taken: Instant, period_s: float
) -> tuple[Optional[Alert], str]:
    """The alert after one sample, and what happened: a reason code, "" for nothing new.

    None stands for inactive. Only samples count: `for` and `clear` are measured from the first to
    the newest one, and a gap of more than MOST_PERIODS periods, or another boot, starts them anew.
    """
    assert rule.threshold is not None and rule.clear is not None
    if alert is not None:
        gap = taken.since(alert.sample)
        if gap is not None and gap <= 0:
            return alert, ""  # this sample has been judged
        if gap is None or gap > MOST_PERIODS * period_s:
            alert = None if alert.phase == "pending" else replace(alert, clear_since=None)
    if rule.threshold.holds(number):
        return _holding(alert, rule, subject, label, number, taken)
    if alert is None or alert.phase == "pending":
        return None, ""
    if not rule.clear.threshold.holds(number):
        return replace(alert, sample=taken, value=number, clear_since=None), ""
    clear_since = alert.clear_since or taken
    if (taken.since(clear_since) or 0.0) >= rule.clear.for_s:
        return None, reason.CLEARED
    return replace(alert, sample=taken, value=number, clear_since=clear_since), ""


def _holding(
    alert: Optional[Alert], rule: Rule, subject: Subject, label: str, number: float, taken: Instant
) -> tuple[Alert, str]:
    news = ""
    if alert is None:
        alert = Alert(rule.name, rule_print(rule), subject, label, "pending", since=taken, sample=taken)
        news = reason.PENDING
    alert = replace(alert, sample=taken, value=number, clear_since=None)
    if alert.phase == "pending" and (taken.since(alert.since) or 0.0) >= rule.for_s:
        return replace(alert, phase="firing", fired=taken), reason.FIRED
    return alert, news


def matches(match: EventMatch, event: Event, classes: Optional[Mapping[int, str]] = None) -> bool:
    """True when the rule is about this event."""
    if match.kind != event.kind:
        return False
    code = event.fields.get("xid", event.fields.get("sxid"))
    if match.codes and code not in match.codes:
        return False
    if match.patterns and event.fields.get("pattern") not in match.patterns:
        return False
    if match.fatal is not None and event.fields.get("fatal") is not match.fatal:
        return False
    return not match.classes or (event.kind == "xid" and xid_table.judge(event.fields, classes)[0] in match.classes)


def matched(
    alert: Optional[Alert], rule: Rule, subject: Subject, label: str, event: Event, old: bool
) -> tuple[Alert, str]:
    """The alert after an event that its rule is about; it fires at once.

    What a user could have written is told, never a reason to act (S10).
    """
    old = old or event.fields.get("source_trust") == "user"
    if alert is None:
        alert = Alert(
            rule.name,
            rule_print(rule),
            subject,
            label,
            "firing",
            since=event.at,
            sample=event.seen,
            fired=event.seen,
            actionable=not old,
        )
        return alert, reason.FIRED
    return replace(alert, sample=event.seen, actionable=alert.actionable or not old), ""
