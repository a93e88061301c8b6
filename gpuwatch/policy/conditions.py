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
from gpuwatch.model.gpu import GpuSample
from gpuwatch.model.incident import Subject
from gpuwatch.model.instant import Instant
from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import Reading
from gpuwatch.model.rule import Clear, EventMatch, Rule, Threshold
from gpuwatch.policy.state import MOST_PERIODS, Alert, Window

POINTS = 12  # a window is kept in so many steps: it is written down with each
# An absolute limit is at most so many degrees below the card's own point.
CAPS = {"gpu.temperature": ("gpu.slowdown_point", 2.0), "gpu.memory_temperature": ("gpu.memory_operating_point", 0.0)}


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
    return reading.value if METRICS[metric].plausible(reading.value) else None


def period_of(rule: Rule, period_s: float) -> float:
    """How often a new sample of the rule's metric is to be expected."""
    assert rule.metric is not None
    return max(period_s, METRICS[rule.metric].every_s)


def limits(rule: Rule, sample: Optional[GpuSample]) -> tuple[Threshold, Clear]:
    """The limits that hold for one card: an absolute temperature is capped by what the card itself reports."""
    assert rule.threshold is not None and rule.clear is not None
    threshold, clear = rule.threshold, rule.clear
    own = CAPS.get(rule.metric or "")
    if sample is None or own is None or rule.change_over_s is not None or threshold.above is None:
        return threshold, clear
    point = usable(own[0], sample.reading(own[0]))
    if point is None or threshold.above <= point - own[1]:
        return threshold, clear
    cap = point - own[1]
    below = cap if clear.threshold.below is None else min(clear.threshold.below, cap)
    return Threshold(above=cap), replace(clear, threshold=Threshold(below=below))


def change(window: Optional[Window], rule: Rule, number: float, taken: Instant) -> tuple[Window, float]:
    """The window with one more value, and how much it changed over the rule's time.

    A point is kept each twelfth of the time. While the window is not full yet the change is that of a shorter time:
    what has risen too far in that has risen too far.
    """
    over_s = rule.change_over_s
    assert over_s is not None
    print_ = rule_print(rule)
    points = () if window is None or window.rule_print != print_ else window.points
    if points and taken.boottime_s < points[-1][0]:
        points = ()  # another boot
    if points and taken.boottime_s - points[-1][0] > over_s / 2:
        points = ()  # a gap: what lies before says nothing about a rate
    if not points or taken.boottime_s - points[-1][0] >= over_s / POINTS:
        points = (*points, (taken.boottime_s, number))
    while len(points) > 1 and taken.boottime_s - points[0][0] > over_s:
        points = points[1:]
    return Window(print_, points), number - points[0][1]


def judge(
    alert: Optional[Alert],
    rule: Rule,
    subject: Subject,
    label: str,
    number: float,
    taken: Instant,
    period_s: float,
    limit: Optional[tuple[Threshold, Clear]] = None,
) -> tuple[Optional[Alert], str]:
    """The alert after one sample, and what happened: a reason code, "" for nothing new.

    None stands for inactive. Only samples count: `for` and `clear` are measured from the first to
    the newest one, and a gap of more than MOST_PERIODS periods, or another boot, starts them anew.
    """
    threshold, clear = limit or limits(rule, None)
    if alert is not None:
        gap = taken.since(alert.sample)
        if gap is not None and gap <= 0:
            return alert, ""  # this sample has been judged
        if gap is None or gap > MOST_PERIODS * period_s:
            alert = None if alert.phase == "pending" else replace(alert, clear_since=None, cleared=None)
    if threshold.holds(number):
        return _holding(alert, rule, subject, label, number, taken)
    if alert is None or alert.phase == "pending":
        return None, ""
    if not clear.threshold.holds(number):
        return replace(alert, sample=taken, value=number, holding=False, clear_since=None, cleared=None), ""
    clear_since = alert.clear_since or taken
    alert = replace(alert, sample=taken, value=number, holding=False, clear_since=clear_since)
    if (taken.since(clear_since) or 0.0) < clear.for_s:
        return alert, ""
    alert = replace(alert, cleared=alert.cleared or taken)
    return (None, reason.CLEARED) if kept_long_enough(alert, taken) else (alert, "")


def kept_long_enough(alert: Alert, now: Instant) -> bool:
    """True when what has cleared need not be kept on any longer (Rule.keep_s)."""
    return alert.cleared is not None and (now.since(alert.cleared) or 0.0) >= alert.keep_s


def _holding(
    alert: Optional[Alert], rule: Rule, subject: Subject, label: str, number: float, taken: Instant
) -> tuple[Alert, str]:
    news = ""
    if alert is None:
        alert = Alert(rule.name, rule_print(rule), subject, label, "pending", since=taken, sample=taken)
        news = reason.PENDING
    alert = replace(alert, sample=taken, value=number, holding=True, clear_since=None, cleared=None)
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
    return not match.classes or (event.kind == "xid" and xid_class(event, classes) in match.classes)


def xid_class(event: Event, classes: Optional[Mapping[int, str]] = None) -> str:
    """The class of an Xid here and now: one that came back after a reset or a reboot is the hardware's."""
    klass = xid_table.judge(event.fields, classes)[0]
    return "hardware" if event.fields.get("repeated") is True and klass in RESET_CLASSES else klass


RESET_CLASSES = frozenset({"gpu_reset", "host_restart"})  # what a reset or a restart of the host is to cure


def counted(
    window: Optional[Window], rule: Rule, owner: str, count: int, seen: Instant
) -> tuple[Window, Optional[int]]:
    """The window with one more event, and how many there are in the rule's time; None while they are too few."""
    assert rule.event is not None
    match, print_ = rule.event, rule_print(rule)
    kept: list[tuple[tuple[float, float], str]] = []
    if window is not None and window.rule_print == print_:
        kept = [
            (point, whose)
            for point, whose in zip(window.points, window.owners)
            if 0 <= seen.boottime_s - point[0] <= match.within_s
        ]
    if not match.different or (owner and all(whose != owner for _, whose in kept)):
        kept.append(((seen.boottime_s, float(count)), owner))
    elif owner:  # the same one again: it counts from now
        kept = [pair for pair in kept if pair[1] != owner] + [((seen.boottime_s, 1.0), owner)]
    kept = kept[-MOST_COUNTED:]
    total = len(kept) if match.different else int(sum(point[1] for point, _ in kept))
    after = Window(print_, tuple(point for point, _ in kept), tuple(whose for _, whose in kept))
    return after, total if total >= match.count else None


MOST_COUNTED = 100


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
    return replace(alert, sample=event.seen, actionable=alert.actionable or not old, cleared=None), ""
