"""Journal entries to events: what they say is the catalogue's to tell; here is how often it was said, and how many
events that may be."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Callable, Optional

from gpuwatch.catalog import entry as entries
from gpuwatch.catalog import judge
from gpuwatch.catalog.fields import Facts
from gpuwatch.catalog.reader import EntryReader
from gpuwatch.catalog.text import clean
from gpuwatch.catalog.user_patterns import UserPatterns
from gpuwatch.model.event import Event, Scalar
from gpuwatch.model.instant import Instant
from gpuwatch.system.protocols import JournalBatch, JournalEntry

STORM_US = 10_000_000  # equal lines within this time of the first become one event
KEY_CHARACTERS = 300
MOST_OF_A_KIND = 200  # different events of one batch; what is beyond is counted as one
MOST_USER_EVENTS = 100  # of all kinds of which anybody can have written the line
OWN_PATTERNS_S = 0.05  # of one batch; a site's patterns get no more time than this

_BY_PID = frozenset({"oom_kill", "oom_context", "unit_leftover_process", "unit_kill"})
# The life of units: told about those of interest only, a busy host has many each minute.
_LIFE = frozenset(
    {
        "unit_started",
        "unit_stopping",
        "unit_stopped",
        "unit_ended",
        "unit_reloaded",
        "unit_skipped",
        "unit_process_exit",
        "unit_kill",
    }
)
_ALWAYS = re.compile(r"nvidia-.{1,60}|gpuwatch.{0,60}|slurmd\.service|dcgm.{0,60}", re.DOTALL)
_VOLATILE = re.compile(r"0x[0-9A-Fa-f_]+|[0-9]+")

_Key = tuple[Scalar, ...]


@dataclass
class _Storm:
    """Equal facts close together: the first entry stands for all, the newest gives the cursor."""

    entry: JournalEntry
    facts: Facts
    count: int = 1
    cursor: str = ""


class JournalSource:
    """Keeps nothing between batches but a block of lines that is not complete, so a restart at the cursor gives the
    same events.

    `interest`: whether the start and end of a unit are worth an event. `own`: the patterns of the site.
    """

    def __init__(
        self,
        interest: Optional[Callable[[str], bool]] = None,
        own: Optional[UserPatterns] = None,
        own_s: float = OWN_PATTERNS_S,
    ) -> None:
        """`own_s`: seconds of a batch that the site's patterns may take."""
        self._interest = interest
        self._own_s = own_s
        self._reader = EntryReader(own)
        self._classes: Optional[Mapping[int, str]] = None

    def configure(
        self,
        interest: Optional[Callable[[str], bool]],
        own: Optional[UserPatterns],
        classes: Optional[Mapping[int, str]] = None,
    ) -> None:
        """Go on with other settings."""
        self._classes = classes
        self._interest = interest
        self._reader.own = own if own is not None and own.patterns else None

    def events(self, batch: JournalBatch, now: Instant) -> tuple[Event, ...]:
        """The events of a batch in the order of their first lines.

        `at` is the entry's own boot id and CLOCK_MONOTONIC, which is CLOCK_BOOTTIME less the time
        spent in suspend: after one, entries look older than they are and make history (S9 errs on
        the safe side). The kernel's own stamp is not used: it drifts over weeks of uptime.
        """
        heap = _Heap()
        budget, unread = self._own_s, 0
        for entry in batch.entries:
            if not entry.fields.get("MESSAGE"):
                continue
            if self._reader.own is None:
                found = self._reader.read(entry.fields, entry)
            else:
                began = time.perf_counter()
                found = self._reader.read(entry.fields, entry, budget > 0)
                if budget > 0:
                    budget -= time.perf_counter() - began
                elif not found:
                    unread += 1
            for facts, first in found:
                if self._wanted(facts):
                    heap.add(first if isinstance(first, JournalEntry) else entry, facts, entry.cursor)
        gaps = [_gap(batch, now, batch.gap, "removed", None)] if batch.gap else []
        if unread:
            text = f"{unread} lines were not compared with this site's patterns: they take too long"
            gaps.append(_gap(batch, now, text, "slow_patterns", unread))
        return (*gaps, *(_event(storm, now, self._classes) for storm in heap.storms))

    def _wanted(self, facts: Facts) -> bool:
        if facts["kind"] not in _LIFE:
            return True
        unit = str(facts.get("unit"))
        return _ALWAYS.fullmatch(unit) is not None or (self._interest is not None and self._interest(unit))


class _Heap:
    """Facts put together: equal ones are counted, and beyond a number of different ones all of a kind are."""

    def __init__(self) -> None:
        self.storms: list[_Storm] = []
        self._newest: dict[_Key, _Storm] = {}
        self._kinds: Counter[Scalar] = Counter()

    def add(self, entry: JournalEntry, facts: Facts, cursor: str) -> None:
        key = _key(entry, facts)
        if self._count(key, entry, cursor):
            return
        user = facts.get("source_trust") == entries.USER
        kind = entries.USER if user else facts["kind"]
        if self._kinds[kind] >= (MOST_USER_EVENTS if user else MOST_OF_A_KIND):
            key = ("more", facts["kind"], entry.boot_id)
            if self._count(key, entry, cursor):
                return
            facts = {**facts, "reason": "aggregated"}
        self._kinds[kind] += 1
        self._newest[key] = storm = _Storm(entry, facts, cursor=cursor)
        self.storms.append(storm)

    def _count(self, key: _Key, entry: JournalEntry, cursor: str) -> bool:
        storm = self._newest.get(key)
        if storm is None:
            return False
        if key[0] != "more" and not 0 <= entry.monotonic_us - storm.entry.monotonic_us <= STORM_US:
            return False
        storm.count += 1
        storm.cursor = cursor
        return True


def _event(storm: _Storm, now: Instant, classes: Optional[Mapping[int, str]]) -> Event:
    entry = storm.entry
    klass, severity = judge.judge(storm.facts, classes)
    facts: Facts = {**storm.facts, "class": klass, "alert_severity": severity.value}
    uuid = facts.get("uuid")
    trusted = facts.get("source_trust") != entries.USER
    return Event(
        kind=str(facts.pop("kind")),
        at=Instant(entry.boot_id, entry.monotonic_us / 1e6, entry.realtime_us / 1e6),
        seen=now,
        source="journal",
        fields=facts,
        uuid=uuid if isinstance(uuid, str) and trusted else None,
        text=clean(entry.fields["MESSAGE"]),
        cursor=storm.cursor,
        count=storm.count,
    )


def _gap(batch: JournalBatch, now: Instant, text: str, reason: str, count: Optional[int]) -> Event:
    fields: Facts = {"reason": reason, "unit": None, "count": count}
    return Event("log_gap", now, now, "journal", fields, text=clean(text), cursor=batch.cursor)


def _key(entry: JournalEntry, facts: Facts) -> _Key:
    """What equal lines share. Numbers, addresses and names that users chose must not split a storm; a card, a link,
    a recovery action, a unit, or the victim of an OOM kill must."""
    kind, process = facts["kind"], facts.get("process")
    victim = facts.get("pid") if kind in _BY_PID else None
    if facts.get("source_trust") == entries.USER:  # the text is anybody's, so it can't tell events apart
        names = ("unit", "user_unit", "container", "rank", "local_rank", "pattern", "code")
        return (kind, entry.boot_id, *(facts.get(name) for name in names))
    text = entry.fields["MESSAGE"][:KEY_CHARACTERS]
    if isinstance(process, str) and process:
        text = text.replace(process, "")
    own = [facts.get(name) for name in ("xid", "sxid", "pci", "link", "recovery_to", "unit", "minor", "device")]
    return (kind, entry.boot_id, victim, *own, _VOLATILE.sub("#", text))
