"""The event of a rule: which ones, and how many within what time."""

from __future__ import annotations

from typing import Optional

from gpuwatch.catalog.xid import CLASSES
from gpuwatch.config.events import EVENT_KINDS, EventKind, EventKindName
from gpuwatch.config.kinds import NAME, Choice, Count, Duration, Flag, ListOf
from gpuwatch.config.report import Report
from gpuwatch.config.table import Fields, OneOrRecord, Record, Setting, join
from gpuwatch.model.rule import EventMatch

_NARROWS = ("codes", "classes", "fatal", "patterns")


def _build(fields: Fields, path: str, report: Report) -> Optional[EventMatch]:
    kind = EVENT_KINDS.get(fields.value("kind", ""))
    if kind is None:
        return None
    for name in fields.given(*_NARROWS):
        if name not in kind.fields:
            report.error(fields.place_of(name), join(path, name), f"an event of kind {kind.name} has no {name}")
    _check_count(fields, path, report, kind)
    return EventMatch(
        kind.name,
        codes=fields.value("codes", ()),
        classes=fields.value("classes", ()),
        fatal=fields.value("fatal"),
        patterns=fields.value("patterns", ()),
        count=fields.value("count", EventMatch.count),
        within_s=fields.value("within", EventMatch.within_s),
        different=fields.value("different", EventMatch.different),
    )


def _check_count(fields: Fields, path: str, report: Report, kind: EventKind) -> None:
    """A number needs a time, and a time a number."""
    several = fields.value("count", 1) > 1 or "count" in fields.wrong
    if "count" in fields.found and several and not fields.given("within"):
        text = "needs a time in which so many happen, e.g. within: 1h"
        report.error(fields.place_of("count"), join(path, "count"), text)
    for name in () if several else fields.given("within", "different"):
        text = "says nothing about one event; it goes with count: 2 or more"
        report.error(fields.place_of(name), join(path, name), text)
    if several and fields.given("different") and not kind.of_gpu:
        text = f"can't be told: an event of kind {kind.name} names no GPU whose users there could be"
        report.error(fields.place_of("different"), join(path, "different"), text)


EVENT = OneOrRecord(
    EventKindName(),
    "kind",
    Record(
        (
            Setting("kind", EventKindName(), "What happened.", example="xid", required=True),
            Setting("codes", ListOf(Count(1, 99_999), least=1), "Xid or SXid numbers; left out: all.", example="[79]"),
            Setting("classes", ListOf(Choice(CLASSES), least=1), "Classes of the Xid table; left out: all."),
            Setting("fatal", Flag(), "Only fatal (true) or only other ones (false); left out: both."),
            Setting(
                "patterns",
                ListOf(NAME, least=1),
                "Names of this site's patterns; left out: all.",
                example="[loader-stall]",
            ),
            Setting(
                "count",
                Count(1, 10_000),
                "Fires with so many of them on one card, unit or host in that time; a reboot starts anew.",
                default=EventMatch.count,
            ),
            Setting("within", Duration(1, 7 * 86400.0), "The time in which count is reached.", example="24h"),
            Setting(
                "different",
                Choice(("users",)),
                "users: counts each user of the card once, so that one program alone does not make it fire.",
                example="users",
            ),
        ),
        _build,
    ),
)
