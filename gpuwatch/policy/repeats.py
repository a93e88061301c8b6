"""An Xid that asked for a reset or a restart and is back after it: now it is the hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuwatch.model.event import Event
from gpuwatch.model.incident import Subject
from gpuwatch.model.instant import Instant
from gpuwatch.policy.conditions import RESET_CLASSES, xid_class
from gpuwatch.policy.state import REPEATED_S, Trouble

MOST = 200  # troubles remembered


class Repeats:
    """The troubles of one step; `troubles` is what is remembered."""

    def __init__(self, troubles: Mapping[str, Trouble], now: Instant) -> None:
        self._now = now
        self.troubles = {key: each for key, each in troubles.items() if 0 <= now.utc_s - each.utc_s <= REPEATED_S}

    def note(self, event: Event, subject: Subject, classes: Mapping[int, str]) -> Event:
        """The event, marked as `repeated` where the same Xid had asked for what was done since."""
        if event.kind != "xid" or subject.kind != "gpu" or xid_class(event, classes) not in RESET_CLASSES:
            return event
        key = f"{subject.id} {event.fields.get('xid')}"
        before = self.troubles.get(key)
        cured = before is not None and (before.settled or before.boot_id != event.at.boot_id)
        repeated = before is not None and (cured or before.repeated)
        if before is None or cured:
            self.troubles[key] = Trouble(event.at.boot_id, event.at.utc_s, repeated=repeated)
            self.troubles = dict(list(self.troubles.items())[-MOST:])
        return replace(event, fields={**event.fields, "repeated": True}) if repeated else event


def cured(troubles: Mapping[str, Trouble], subject: Subject) -> dict[str, Trouble]:
    """The troubles after a person said that a card was reset; that time passed without an Xid says nothing."""
    return {
        key: replace(each, settled=True) if key.split(" ", 1)[0] == subject.id else each
        for key, each in troubles.items()
    }
