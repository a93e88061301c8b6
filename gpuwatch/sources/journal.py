"""Journal entries to events: what may be believed, what it means, and how often it was said."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from gpuwatch.catalog import journal_lines, kernel, xid
from gpuwatch.catalog.text import clean
from gpuwatch.model.event import Event, Scalar
from gpuwatch.model.instant import Instant
from gpuwatch.system.protocols import JournalBatch, JournalEntry

STORM_US = 10_000_000  # equal lines within this time of the first become one event
KEY_CHARACTERS = 300
_BY_PID = frozenset({"oom_kill", "oom_context", "unit_leftover_process"})

_VOLATILE = re.compile(r"0x[0-9A-Fa-f_]+|[0-9]+")

Facts = dict[str, Scalar]
_Key = tuple[Scalar, ...]


@dataclass
class _Storm:
    """Equal facts close together: the first entry stands for all, the newest gives the cursor."""

    entry: JournalEntry
    facts: Facts
    count: int = 1
    cursor: str = ""


class JournalSource:
    """Keeps nothing between batches, so a restart at the cursor gives the same events."""

    def events(self, batch: JournalBatch, now: Instant) -> tuple[Event, ...]:
        """The events of a batch in the order of their first lines.

        `at` is the entry's own boot id and CLOCK_MONOTONIC, which is CLOCK_BOOTTIME less the time
        spent in suspend: after one, entries look older than they are and make history (S9 errs on
        the safe side). The kernel's own stamp is not used: it drifts over weeks of uptime.
        """
        storms: list[_Storm] = []
        newest: dict[_Key, _Storm] = {}
        for entry in batch.entries:
            message = entry.fields.get("MESSAGE", "")
            for facts in _facts(entry, message) if message else ():
                key = _key(entry, facts, message)
                storm = newest.get(key)
                if storm is not None and 0 <= entry.monotonic_us - storm.entry.monotonic_us <= STORM_US:
                    storm.count += 1
                    storm.cursor = entry.cursor
                else:
                    newest[key] = storm = _Storm(entry, facts, cursor=entry.cursor)
                    storms.append(storm)
        gap = (_gap(batch, now),) if batch.gap else ()
        return (*gap, *(_event(storm, now) for storm in storms))


def _event(storm: _Storm, now: Instant) -> Event:
    entry, facts = storm.entry, _judged(storm.facts)
    uuid = facts.get("uuid")
    return Event(
        kind=str(facts["kind"]),
        at=Instant(entry.boot_id, entry.monotonic_us / 1e6, entry.realtime_us / 1e6),
        seen=now,
        source="journal",
        fields={name: value for name, value in facts.items() if name != "kind"},
        uuid=uuid if isinstance(uuid, str) else None,
        text=clean(entry.fields["MESSAGE"]),
        cursor=storm.cursor,
        count=storm.count,
    )


def _gap(batch: JournalBatch, now: Instant) -> Event:
    fields: Facts = {"reason": "removed", "unit": None, "count": None}
    return Event("log_gap", now, now, "journal", fields, text=clean(batch.gap), cursor=batch.cursor)


def _facts(entry: JournalEntry, message: str) -> tuple[Facts, ...]:
    if says_kernel(entry.fields):
        return kernel.parse_entry(message)
    facts: Optional[Facts] = None
    if says_manager(entry.fields):
        facts = journal_lines.parse_manager(message)
        unit = entry.fields.get("UNIT")
        if facts is not None and unit is not None and facts["unit"] != unit:
            facts = None
    elif says_journald(entry.fields):
        facts = journal_lines.parse_journald(message)
    return () if facts is None else (facts,)


def says_kernel(fields: Mapping[str, str]) -> bool:
    """S10: what user space writes to /dev/kmsg has the kernel's transport, but neither its facility nor its name."""
    return (
        fields.get("_TRANSPORT") == "kernel"
        and fields.get("SYSLOG_FACILITY") == "0"
        and fields.get("SYSLOG_IDENTIFIER") == "kernel"
    )


def says_manager(fields: Mapping[str, str]) -> bool:
    """S10: a line of the service manager itself; `_PID` and `_TRANSPORT` are journald's own word."""
    return fields.get("_PID") == "1" and fields.get("_TRANSPORT") == "journal"


def says_journald(fields: Mapping[str, str]) -> bool:
    """S10: a line of journald about itself; nobody else can have this transport."""
    return fields.get("_TRANSPORT") == "driver"


def _judged(facts: Facts) -> Facts:
    """An Xid gets its class and severity; `class` is what event rules match."""
    if facts["kind"] == "xid":
        klass, severity = xid.judge(facts)
        return {**facts, "class": klass, "severity": severity.value}
    return facts


def _key(entry: JournalEntry, facts: Facts, message: str) -> _Key:
    """What equal lines share. Numbers, addresses and names that users chose must not split a storm; a card, a link,
    a recovery action, a unit, or the victim of an OOM kill must."""
    kind, process = facts["kind"], facts.get("process")
    text = message[:KEY_CHARACTERS]
    if isinstance(process, str) and process:
        text = text.replace(process, "")
    victim = facts.get("pid") if kind in _BY_PID else None
    own = [facts.get(name) for name in ("xid", "sxid", "pci", "link", "recovery_to", "unit", "minor")]
    return (kind, entry.boot_id, victim, *own, _VOLATILE.sub("#", text))
