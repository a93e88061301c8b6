"""`gpuwatch incident list|show|ack|close`: what happened, what was done, from the store; works with the daemon down."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from datetime import timezone
from typing import Any, Optional

from gpuwatch.alerts.desk import muted_of
from gpuwatch.alerts.judgement import chosen, considered, doubts
from gpuwatch.alerts.silence import Hush
from gpuwatch.alerts.words import Words
from gpuwatch.cli import orders, places
from gpuwatch.cli.action import steps
from gpuwatch.cli.output import local_time, safe, show_json, table
from gpuwatch.cli.stored import read_store
from gpuwatch.model.codec import encode
from gpuwatch.model.incident import Incident, IncidentState
from gpuwatch.model.intent import Intent
from gpuwatch.store.memory import Snapshot

_EPILOG = """examples:
  gpuwatch incident list
  gpuwatch incident show 17
  gpuwatch incident ack 17 --comment "fan is ordered"
  gpuwatch incident close 17 --reason "card was reset"
"""


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "incident",
        help="list, show, ack, close: what happened, what was done",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="what", required=True, metavar="list|show|ack|close")
    listing = verbs.add_parser("list", help="newest first", epilog="example: gpuwatch incident list --all --json")
    listing.add_argument("--all", action="store_true", help="closed ones too")
    show = verbs.add_parser("show", help="one, with its story", epilog="example: gpuwatch incident show 17")
    show.add_argument("number", help="17, or gpu-07#17")
    for verb in (listing, show):
        verb.add_argument("--json", action="store_true")
        places.add_state_dir(verb)
        places.add_run_dir(verb)
    ack = verbs.add_parser(
        "ack",
        help="mark it as seen; nothing else changes",
        epilog='example: gpuwatch incident ack 17 --comment "fan is ordered"',
    )
    ack.add_argument("--comment", default="", metavar="TEXT", help="kept with the incident")
    close = verbs.add_parser(
        "close",
        help="end it by hand, such as after a reset; refused while a reading says otherwise",
        epilog='example: gpuwatch incident close 17 --reason "card was reset"',
    )
    close.add_argument("--reason", required=True, metavar="TEXT", help="kept with the incident")
    for verb in (ack, close):
        verb.add_argument("number", help="17, or gpu-07#17")
        orders.add_options(verb)


def run(args: argparse.Namespace) -> int:
    """Exit 1 when there is no such incident or no store, or when the order is refused."""
    if args.what == "ack":
        answer = orders.tell(args, "acknowledge", id=args.number, comment=args.comment)
        return orders.finish(args, answer, f"incident {answer.get('incident')} is marked as seen")
    if args.what == "close":
        answer = orders.tell(args, "close", id=args.number, comment=args.reason)
        return orders.finish(args, answer, f"incident {answer.get('incident')} is closed")
    stored = read_store(args.state_dir, args.run_dir)
    return _list(stored, args) if args.what == "list" else _show(stored, args)


def _list(stored: Snapshot, args: argparse.Namespace) -> int:
    newest = sorted(stored.incidents.values(), key=lambda incident: -incident.number)
    shown = [incident for incident in newest if args.all or incident.state is not IncidentState.CLOSED]
    if args.json:
        show_json({"schema": 1, "incidents": [encode(incident) for incident in shown]})
        return 0
    if not shown:
        hint = "" if args.all or not newest else f" ({len(newest)} closed: gpuwatch incident list --all)"
        sys.stdout.write(f"no incidents{hint}\n")
        return 0
    rows = [
        [
            str(incident.number),
            local_time(incident.opened.utc_s),
            incident.severity.value,
            incident.label,
            incident.state.value + (f", seen by {incident.acknowledged.by}" if incident.acknowledged else ""),
            ", ".join(cause.rule for cause in incident.causes),
        ]
        for incident in shown
    ]
    sys.stdout.write(table(("#", "OPENED", "SEVERITY", "WHAT", "STATE", "RULES"), rows, right=(0,)) + "\n")
    return 0


def _show(stored: Snapshot, args: argparse.Namespace) -> int:
    number = args.number.rsplit("#", 1)[-1]
    incident = stored.incidents.get(number)
    if incident is None:
        sys.stderr.write(f"gpuwatch: no incident {safe(args.number)}; see: gpuwatch incident list --all\n")
        return 1
    intents = [intent for intent in stored.intents.values() if intent.incident == incident.number]
    told = {key: entry.state.value for key, entry in stored.spool.items() if key.startswith(f"{incident.id}/")}
    muted = muted_of(stored.state.get("muted")).get(number)
    if args.json:
        shown = {
            "incident": encode(incident),
            "actions": encode(intents),
            "notifications": told,
            "muted": encode(muted),
        }
        show_json({"schema": 1, **shown})
    else:
        sys.stdout.write(draw(incident, intents, told, muted) + "\n")
    return 0


def draw(incident: Incident, intents: list[Intent], told: Mapping[str, str], muted: Optional[Hush] = None) -> str:
    """The whole story, one line an entry, in order."""
    words = Words("en", timezone.utc, incident.opened)
    lines = [
        f"Incident {incident.id}: {incident.label} ({incident.subject.id or 'this host'})",
        f"{incident.severity.value}, {incident.state.value}, since {local_time(incident.opened.utc_s)}",
    ]
    if incident.acknowledged is not None:
        seen = incident.acknowledged
        lines.append(
            f"  seen by {seen.by}, {local_time(seen.at.utc_s)}" + (f": {seen.comment}" if seen.comment else "")
        )
    for cause in incident.causes:
        ended = "holds" if cause.cleared is None else f"cleared {local_time(cause.cleared.utc_s)}"
        lines.append(f"  {cause.rule}: {_facts(cause.facts)}; {ended}")
        lines += [f"    {line}" for line in doubts(words, cause.facts)]
    if incident.related:
        lines.append(f"  may have to do with {', '.join(incident.related)}")
    if incident.peak:
        lines.append("  worst: " + ", ".join(f"{metric} {value:g}" for metric, value in incident.peak.items()))
    story = [
        (entry.at.utc_s, entry.what + (f" ({_facts(entry.facts)})" if entry.facts else "")) for entry in incident.story
    ]
    for intent in intents:
        name = f"{intent.id}: {intent.action} {intent.name}".rstrip() + (" (observe mode)" if intent.observe else "")
        for utc_s, what in steps(intent):
            story.append((utc_s, f"{name}: {what}"))
            name = intent.id
        why = [chosen(words, intent.because), *considered(words, intent.because)] if intent.because else []
        lines += [f"  {intent.id}: {line}" for line in why if line]
    lines.append("Story:")
    lines += [f"  {local_time(utc_s)}  {what}" for utc_s, what in sorted(story, key=lambda pair: pair[0])]
    if told:
        lines.append("Told: " + ", ".join(f"{key.split('/', 1)[1]} {state}" for key, state in sorted(told.items())))
    if muted is not None and muted.names:
        lines.append(f"Not told: {', '.join(muted.names)}: {muted.why}")
    elif muted is not None and muted.by:
        lines.append(f"Nobody is told now: {muted.why}")
    if incident.bundle:
        lines.append(f"Evidence: gpuwatch evidence show {incident.bundle}")
    return "\n".join(map(safe, lines))


def _facts(facts: Mapping[str, Any]) -> str:
    """All but what is said in words elsewhere."""
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in facts.items()
        if name not in _IN_WORDS and not name.startswith(("victim", "witnesses_")) and value not in (None, "")
    )


_IN_WORDS = frozenset({"meaning_en", "meaning_zh", "unit", "considered", "suspect", "cooling"})
