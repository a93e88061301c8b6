"""`gpuwatch event list`: what happened on this host, by time. Needs no daemon."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Optional

from gpuwatch.catalog.judge import meaning
from gpuwatch.cli import places
from gpuwatch.cli.moments import Column, add_time, iso, viewer_zone
from gpuwatch.cli.output import paint, safe, show_json, table, width
from gpuwatch.model.event import Event
from gpuwatch.model.pci import canonical
from gpuwatch.store.history_read import HistoryReader, open_history
from gpuwatch.store.history_rows import EventFilter, KnownGpu, NotedEvent

SCHEMA = 1
SHOWN = 200  # the newest
LEAST_WIDTH = 60
WHERE_WIDTH, WHAT_WIDTH = 20, 14
_CODES = ("xid", "sxid", "code", "exit_code", "signal", "result")
_PLACES = ("unit", "user_unit", "container_name", "container")
_HIDDEN = frozenset({"pci", "uuid", "severity", "alert_severity", "class", "source_trust", *_PLACES})
_NOISE = re.compile(r"^NVRM: (?:Xid \(PCI:[^)]{1,20}\): [0-9]{1,5}(?:, |$))?")
_COLOURS = {"critical": "red", "warning": "yellow"}


@dataclass
class _Story:
    """Events of the same kind in the same place, one directly after the other."""

    first: NotedEvent
    last: NotedEvent
    count: int

    @property
    def first_s(self) -> float:
        """When the first was, UTC."""
        return self.first.event.at.utc_s

    @property
    def last_s(self) -> float:
        """When the last was."""
        return self.last.event.at.utc_s


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "event",
        help="what happened: Xids, OOM kills, failed units, gaps in the log",
        epilog='examples: gpuwatch event list --since "2 h ago"   gpuwatch event list --gpu 3 --kind xid,gpu_lost',
    )
    verbs = parser.add_subparsers(dest="what", required=True)
    listing = verbs.add_parser(
        "list", help="the newest events", epilog="example: gpuwatch event list --since yesterday --unit 'train@*'"
    )
    add_time(listing, "--since", 'from then on: "10 min ago", 13:45, "yesterday 13:00", 2026-11-30T13:45:32+08:00')
    add_time(listing, "--until", "until then (default: now)", later=True)
    listing.add_argument("--kind", action="append", metavar="KIND", help="xid, oom_kill, ...; may repeat, or a,b")
    listing.add_argument("--gpu", metavar="GPU", help="3, GPU-3d9a7c10, or a PCI address")
    listing.add_argument("--unit", metavar="GLOB", help="a unit or a container: 'train@*'")
    listing.add_argument("--incident", type=int, metavar="NUMBER", help="those of one incident")
    listing.add_argument("--limit", type=_limit, default=SHOWN, metavar="N", help=f"the newest N (default: {SHOWN})")
    listing.add_argument("--each", action="store_true", help="equal ones in a row are not joined")
    listing.add_argument("--full", action="store_true", help="lines are not cut to the width of the terminal")
    listing.add_argument("--json", action="store_true", help="one JSON object (schema 1), each event by itself")
    places.add_state_dir(listing)


def run(args: argparse.Namespace) -> int:
    """Exit 0, also where nothing happened."""
    with open_history(os.path.join(args.state_dir, "history.db")) as reader:
        gpus = {gpu.uuid: gpu for gpu in reader.gpus()}
        found = reader.events(_filter(reader, args))
        if args.json:
            show_json({"schema": SCHEMA, "events": [_json(noted, gpus) for noted in found]})
            return 0
        if not found:
            kinds = reader.kinds()
            hint = f"; kinds in the history: {', '.join(kinds)}" if args.kind and kinds else ""
            sys.stdout.write(safe(f"no events{hint}") + "\n")
            return 0
    columns = 100_000 if args.full else max(LEAST_WIDTH, shutil.get_terminal_size((80, 24)).columns)
    stories = [_Story(noted, noted, noted.event.count) for noted in found] if args.each else _joined(found)
    sys.stdout.write(draw(stories, gpus, columns, time.time(), viewer_zone()) + "\n")
    if len(found) == args.limit:
        sys.stdout.write(f"older ones are not shown: --limit {args.limit * 5}, or --until\n")
    return 0


def _limit(text: str) -> int:
    """A type of argparse."""
    if not (text.isdecimal() and text.isascii() and 1 <= int(text[:9]) <= 1_000_000):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000000")
    return int(text)


def _filter(reader: HistoryReader, args: argparse.Namespace) -> EventFilter:
    kinds = tuple(kind for given in args.kind or () for kind in given.split(",") if kind)
    uuid: Optional[str] = None
    pci: Optional[str] = None
    if args.gpu is not None:
        pci = canonical(args.gpu)
        if pci is None or any(gpu.pci == pci for gpu in reader.gpus()):  # a card may be in the log only
            known = reader.gpu(args.gpu, args.until)
            uuid, pci = known.uuid, known.pci
    return EventFilter(args.since, args.until, kinds, uuid, pci, args.unit, args.incident, args.limit)


def _joined(found: Sequence[NotedEvent]) -> list[_Story]:
    stories: list[_Story] = []
    for noted in found:
        last = stories[-1] if stories else None
        if last is not None and _sameness(last.last.event) == _sameness(noted.event):
            last.last = noted
            last.count += noted.event.count
        else:
            stories.append(_Story(noted, noted, noted.event.count))
    return stories


def _sameness(event: Event) -> tuple[object, ...]:
    own = (event.fields.get(name) for name in ("pci", "alert_severity", *_CODES, *_PLACES))
    return (event.kind, event.at.boot_id, event.uuid, *own)


def draw(stories: Sequence[_Story], gpus: Mapping[str, KnownGpu], columns: int, now: float, zone: tzinfo) -> str:
    """The table, each line cut to that many columns."""
    clock = Column([moment for story in stories for moment in (story.first_s, story.last_s)], zone, now)
    rows = []
    for story in stories:
        event = story.first.event
        where = _where(event, gpus)
        cells = [clock.cell(story.first_s), _cut(where, WHERE_WIDTH), _cut(_what(event), WHAT_WIDTH)]
        rows.append([*cells, _repeated(story, clock) + _text(event, where)])
    lines = [_cut(line, columns) for line in table((clock.header, "WHERE", "WHAT", "TEXT"), rows).split("\n")]
    for place, story in enumerate(stories, start=1):
        colour = _COLOURS.get(str(story.first.event.fields.get("alert_severity", "")))
        if colour is not None:
            lines[place] = paint(lines[place], colour)
    return "\n".join(lines)


def _repeated(story: _Story, clock: Column) -> str:
    """How many there were, and until when."""
    if story.count == 1:
        return ""
    last = clock.cell(story.last_s)
    until = f" until {last}" if last != clock.cell(story.first_s) else ""
    return f"{story.count:,} times{until}: "


def _cut(text: str, columns: int) -> str:
    """At most that many columns of a terminal; the last says that there is more."""
    if width(text) <= columns:
        return text
    kept, used = [], 1
    for char in text:
        used += width(char)
        if used > columns:
            break
        kept.append(char)
    return "".join(kept) + "\u2026"


def _where(event: Event, gpus: Mapping[str, KnownGpu]) -> str:
    if event.uuid is not None:
        gpu = gpus.get(event.uuid)
        return event.uuid[:12] if gpu is None else f"GPU {gpu.index}"
    named = next((str(event.fields[name]) for name in _PLACES if event.fields.get(name)), "")
    return named or str(event.fields.get("pci") or "host")


def _what(event: Event) -> str:
    """xid 79, unit failed"""
    number = event.fields.get(event.kind)
    return event.kind.replace("_", " ") + ("" if number is None else f" {number}")


def _text(event: Event, where: str) -> str:
    """The source's line without what the other columns say; what it means where there is nothing else in it."""
    text = _NOISE.sub("", event.text)
    text = text[len(where) + 2 :] if text.startswith(f"{where}: ") else text
    if text:
        return text
    facts = {name: fact for name, fact in event.fields.items() if fact not in (None, "") and name not in _HIDDEN}
    shown = ", ".join(f"{name} {fact}" for name, fact in facts.items() if name != event.kind)
    return meaning({**event.fields, "kind": event.kind}, "en") or shown


def _json(noted: NotedEvent, gpus: Mapping[str, KnownGpu]) -> dict[str, Any]:
    event = noted.event
    gpu = gpus.get(event.uuid or "")
    return {
        "time": iso(event.at.utc_s),
        "boot_id": event.at.boot_id,
        "boottime_s": round(event.at.boottime_s, 6),
        "seen": iso(event.seen.utc_s),
        "kind": event.kind,
        "source": event.source,
        "uuid": event.uuid,
        "gpu": None if gpu is None else gpu.index,
        "incident": noted.incident,
        "count": event.count,
        "text": event.text,
        "fields": dict(event.fields),
    }
