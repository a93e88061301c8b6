"""Classes of Xids as this site sees them, in place of the table's."""

from __future__ import annotations

from typing import Optional

from gpuwatch.catalog.xid import CLASSES, RECOVERY_CHANGED
from gpuwatch.config.kinds import ONE_LINE, Choice, Count, Flag
from gpuwatch.config.report import Report
from gpuwatch.config.table import Fields, NamedList, Setting, join
from gpuwatch.model.settings import XidClass


def _build(fields: Fields, path: str, report: Report) -> Optional[XidClass]:
    number, klass, reason = fields.value("xid"), fields.value("class"), fields.value("reason")
    if number == RECOVERY_CHANGED:
        text = f"an Xid {number} names what the driver wants done, and that decides its class"
        report.error(fields.place_of("xid"), join(path, "xid"), text)
        return None
    return None if number is None or klass is None or reason is None else XidClass(number, klass, reason)


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
    ),
    build=_build,
    absent={"severity": "is a rule's to say: event: {kind: xid, codes: [NUMBER]}"},
)
