"""Classes of Xids as this site sees them, in place of the table's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Optional

from gpuwatch.catalog.xid import CLASSES, RECOVERY_CHANGED
from gpuwatch.config.kinds import ONE_LINE, Choice, Count, Flag, Found, ScalarKind, Schema
from gpuwatch.config.report import Report, quoted
from gpuwatch.config.table import Fields, NamedList, Setting, join
from gpuwatch.model.settings import XidClass
from gpuwatch.model.timestamps import NS, TimestampError, parse_time, parse_zoned_ns

_DATE = re.compile(r"2[0-9]{3}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(_DATE.pattern + r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2})? ?(?P<zone>Z|UTC|[+-][0-9]{2}:[0-9]{2})?")
_DAY_S = 86_400


@dataclass(frozen=True)
class Until(ScalarKind):
    """A moment that stays the same whenever and wherever the file is read: a date (its begin in UTC), or a time
    with its zone. Seconds since the epoch."""

    @property
    def words(self) -> str:
        """With examples."""
        return "a date such as 2027-01-31 (from 00:00 UTC) or a time such as 2027-01-31T08:00Z"

    def parse(self, text: str) -> float:
        """The moment."""
        match = _TIME.fullmatch(text)
        if match is not None and match["zone"] is None:
            raise ValueError(f"{quoted(text)} has no zone; write {text.replace(' ', 'T')}Z (UTC), or +08:00 behind it")
        if match is None and not _DATE.fullmatch(text):
            raise ValueError(f"{quoted(text)} is not {self.words}")
        try:
            if match is None:
                return parse_time(text, 0.0, timezone.utc)
            return parse_zoned_ns(text.replace(" UTC", "Z").replace("UTC", "Z")) / NS
        except TimestampError as error:
            raise ValueError(str(error)) from error

    def schema(self) -> Schema:
        """A string."""
        zone = _TIME.pattern.replace("(?P<zone>", "(?:").rstrip("?")
        return {"type": "string", "pattern": f"^(?:{_DATE.pattern}|{zone})$"}

    def show(self, value: float) -> str:
        """A date where that says it all."""
        moment = datetime.fromtimestamp(value, timezone.utc)
        return f"{moment:%Y-%m-%d}" if value % _DAY_S == 0 else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _build(fields: Fields, path: str, report: Report) -> Optional[XidClass]:
    number, klass, reason = fields.value("xid"), fields.value("class"), fields.value("reason")
    if number == RECOVERY_CHANGED:
        text = f"an Xid {number} names what the driver wants done, and that decides its class"
        report.error(fields.place_of("xid"), join(path, "xid"), text)
        return None
    if number is None or klass is None or reason is None:
        return None
    return XidClass(number, klass, reason, fields.value("until"))


XID_CLASSES = NamedList(
    noun="class change",
    key="xid",
    settings=(
        Setting("xid", Count(1, 99_999), "The number.", example="31", required=True),
        Setting("enabled", Flag(), "false goes back to the class of the table.", default=True),
        Setting("class", Choice(CLASSES), "What it is taken for; the rules for that class see it.", required=True),
        Setting(
            "reason", ONE_LINE, "Why, for those who come later.", example="here it was riser cables", required=True
        ),
        Setting("until", Until(), "From then on the table counts again. Left out: no end.", example="2027-01-31"),
    ),
    build=_build,
    absent={"severity": "is a rule's to say: event: {kind: xid, codes: [NUMBER]}"},
)


def warn_of_ended(classes: Iterable[Found], report: Report, now_utc_s: float) -> None:
    """A change whose end is past does nothing any more, and whoever wrote it may not know."""
    for one in classes:
        thing = one.value.thing
        if not one.value.enabled or not isinstance(thing, XidClass) or thing.until_utc_s is None:
            continue
        if thing.until_utc_s <= now_utc_s:
            text = f"has ended ({Until().show(thing.until_utc_s)}); the class of the table counts again"
            report.warn(one.place, f"xid_classes[{thing.xid}].until", text)
