"""`gpuwatch incident list|show|ack|close`: what happened, what was done, from the store; works with the daemon down."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from typing import Any, Optional

from gpuwatch.alerts.desk import muted_of
from gpuwatch.alerts.silence import Hush
from gpuwatch.cli import orders, places
from gpuwatch.cli.output import local_time, safe, show_json, table
from gpuwatch.model.codec import encode
from gpuwatch.model.errors import StoreError
from gpuwatch.model.incident import Incident, IncidentState
from gpuwatch.model.intent import Intent
from gpuwatch.store.memory import Snapshot, from_documents
from gpuwatch.store.waiting import read_stored

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


def read_store(state_dir: str, run_dir: str) -> Snapshot:
    """What is stored, with what waits for the disk. Raises StoreError with a sentence for people."""
    path, waiting = os.path.join(state_dir, "state.db"), os.path.join(run_dir, "waiting.jsonl")
    if not os.access(state_dir, os.R_OK | os.X_OK):
        raise StoreError(
            f"{state_dir}: can't be read (only root may)"
            if os.path.exists(state_dir)
            else f"{state_dir}: nothing there; has gpuwatch run on this host?"
        )
    if not os.path.exists(path) and not os.path.exists(waiting):
        raise StoreError(f"{path}: nothing there; has gpuwatch run on this host?")
    documents, problem = read_stored(path, waiting, ("incidents", "intents", "spool", "state"))
    if problem:
        sys.stderr.write(f"gpuwatch: {safe(problem)}\n")
    return from_documents(documents)


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
    if incident.peak:
        lines.append("  worst: " + ", ".join(f"{metric} {value:g}" for metric, value in incident.peak.items()))
    story = [
        (entry.at.utc_s, entry.what + (f" ({_facts(entry.facts)})" if entry.facts else "")) for entry in incident.story
    ]
    for intent in intents:
        mode = " (observe mode)" if intent.observe else ""
        story.append((intent.created.utc_s, f"{intent.id}: {intent.action} {intent.target}{mode}: planned"))
        for moment, what in (
            (intent.preserved, f"evidence durable: {intent.bundle}"),
            (intent.sent, "stop requested"),
            (intent.killed, "SIGKILL sent"),
            (intent.gone, "gone"),
        ):
            if moment is not None:
                story.append((moment.utc_s, f"{intent.id}: {what}"))
        if not intent.open:
            detail = f": {intent.detail}" if intent.detail else ""
            story.append((intent.changed.utc_s, f"{intent.id}: {intent.state.value} ({intent.reason}){detail}"))
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
    hidden = {"meaning_en", "meaning_zh", "unit"}
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in facts.items()
        if name not in hidden and value not in (None, "")
    )
