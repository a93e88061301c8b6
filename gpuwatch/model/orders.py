"""What people told the running daemon: leave your hands off, work is under way here, don't tell me about that."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, replace
from typing import Optional

from gpuwatch.model.incident import Cause, Incident, Subject
from gpuwatch.model.instant import Instant

# Host metrics by which gpuwatch tells what it can't do any more: told in a maintenance window, too.
OWN_TROUBLE = frozenset({"host.store_failing", "host.acting_stopped", "host.journal_behind"})


@dataclass(frozen=True)
class Order:
    """Since when, until when, who, why. Without `until` it holds until it is taken back."""

    since: Instant
    until: Optional[Instant] = None
    by: str = ""
    comment: str = ""

    def holds(self, now: Instant) -> bool:
        """Measured by the machine's own clock; over a restart of the host by UTC, which is all there is then."""
        if self.until is None:
            return True
        left = self.until.since(now)
        return left > 0 if left is not None else self.until.utc_s > now.utc_s

    @property
    def words(self) -> str:
        """Who and why: "root (sudo: wang): fan is being replaced"."""
        return f"{self.by}: {self.comment}" if self.comment else self.by


def given(now: Instant, for_s: Optional[float], by: str, comment: str) -> Order:
    """An order from now on, for so long; for good without `for_s`."""
    until = None if for_s is None else replace(now, boottime_s=now.boottime_s + for_s, utc_s=now.utc_s + for_s)
    return Order(now, until, by, comment)


@dataclass(frozen=True)
class Silence:
    """Nobody is told of what matches; it is recorded, shown and acted upon all the same."""

    id: str  # "s3"
    order: Order
    rule: str = "*"  # glob
    subject: Optional[Subject] = None  # None: every one; the id of a unit may be a glob

    def covers(self, cause: Cause, subject: Subject) -> bool:
        """True when it is about this rule on this subject."""
        if not fnmatch.fnmatchcase(cause.rule, self.rule):
            return False
        mine = self.subject
        return mine is None or (mine.kind == subject.kind and fnmatch.fnmatchcase(subject.id, mine.id))


@dataclass(frozen=True)
class Mute:
    """Why nobody is told now: `by` is a silence's id or that of a maintenance window, `why` is for people."""

    by: str
    why: str


@dataclass(frozen=True)
class Orders:
    """Everything that people have ordered and that has not ended."""

    disarmed: Optional[Order] = None  # nothing is done in earnest: every action ends as "would have"
    maintenance: Optional[Order] = None  # the same, and nobody is told
    silences: tuple[Silence, ...] = ()
    released: tuple[str, ...] = ()  # ids of holds that a person ended ("a17-2")
    vetoed: tuple[str, ...] = ()  # ids of actions that a person forbade; "#17": all that incident 17 still wants
    next_silence: int = 1

    def hands_off(self, now: Instant) -> str:
        """Why nothing may be done in earnest now: "disarmed" or "maintenance"; "" when it may."""
        if self.disarmed is not None and self.disarmed.holds(now):
            return "disarmed"
        return "maintenance" if self.maintenance is not None and self.maintenance.holds(now) else ""

    def forbids(self, incident: int, intent: str = "") -> bool:
        """True when a person forbade this action, or whatever this incident still wants."""
        return intent in self.vetoed or f"#{incident}" in self.vetoed

    def mute(self, incident: Incident, now: Instant) -> Optional[Mute]:
        """Why nobody is told of this incident now; None when people are.

        An incident of many rules is muted only while each rule that holds is: one that nobody silenced is news.
        """
        causes = [cause for cause in incident.causes if cause.cleared is None] or list(incident.causes)
        window = self.maintenance
        if window is not None and window.holds(now) and not any(_own_trouble(cause) for cause in causes):
            return Mute(f"m{window.since.utc_s:.0f}", f"maintenance ({window.words})")
        holding = [silence for silence in self.silences if silence.order.holds(now)]
        found = [next((each for each in holding if each.covers(cause, incident.subject)), None) for cause in causes]
        first = found[0] if found else None
        if first is None or None in found:
            return None
        return Mute(first.id, f"silence {first.id} ({first.order.words})")

    def at(self, now: Instant) -> Orders:
        """Those that have not ended."""

        def still(order: Optional[Order]) -> Optional[Order]:
            return order if order is not None and order.holds(now) else None

        return replace(
            self,
            disarmed=still(self.disarmed),
            maintenance=still(self.maintenance),
            silences=tuple(silence for silence in self.silences if silence.order.holds(now)),
        )


def _own_trouble(cause: Cause) -> bool:
    return cause.facts.get("metric") in OWN_TROUBLE
