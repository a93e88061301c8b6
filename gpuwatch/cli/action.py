"""`gpuwatch action list|show|veto|revert`: what gpuwatch did, does and would have done; forbidding it in time."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from gpuwatch.cli import orders, places
from gpuwatch.cli.output import local_time, safe, show_json, table
from gpuwatch.cli.stored import read_store
from gpuwatch.model.codec import encode
from gpuwatch.model.intent import Intent
from gpuwatch.store.memory import Snapshot

SHOWN = 30
_EPILOG = """examples:
  gpuwatch action list
  gpuwatch action show a17-2
  gpuwatch action veto a17-2      this action; `veto 17`: all that incident 17 still wants
  gpuwatch action revert a17-1    a throttle or a hold that is in force is put back
"""


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "action",
        help="list, show, veto, revert: what gpuwatch does, did, would have done",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="action_verb", required=True, metavar="list|show|veto|revert")
    listing = verbs.add_parser(
        "list", help=f"the newest {SHOWN}, newest last", epilog="example: gpuwatch action list --all"
    )
    listing.add_argument("--all", action="store_true", help="all that are kept")
    show = verbs.add_parser("show", help="one, step by step", epilog="example: gpuwatch action show a17-2")
    show.add_argument("id", metavar="ID", help="as `gpuwatch action list` shows it")
    for verb in (listing, show):
        verb.add_argument("--json", action="store_true", help="machine-readable, with a schema version")
        places.add_state_dir(verb)
        places.add_run_dir(verb)
    veto = verbs.add_parser(
        "veto", help="forbid one that has not been carried out", epilog="example: gpuwatch action veto a17-2"
    )
    veto.add_argument("id", metavar="ID", help="an action (a17-2), or an incident (17): all that it still wants")
    veto.add_argument("--comment", default="", metavar="TEXT", help="why; kept in the log")
    orders.add_options(veto)
    revert = verbs.add_parser(
        "revert", help="put back what is in force: a throttle, a hold", epilog="example: gpuwatch action revert a17-1"
    )
    revert.add_argument("id", metavar="ID", help="an action (a17-1)")
    revert.add_argument("--comment", default="", metavar="TEXT", help="why; kept in the log")
    orders.add_options(revert)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when done; 1 when it is refused or there is no such action."""
    if args.action_verb == "veto":
        answer = orders.tell(args, "veto", id=args.id, comment=args.comment)
        key = str(answer.get("id", ""))
        what = f"all that incident {key[1:]} still wants" if key.startswith("#") else f"action {key}"
        return orders.finish(args, answer, f"{what} is forbidden")
    if args.action_verb == "revert":
        answer = orders.tell(args, "revert", id=args.id, comment=args.comment)
        return orders.finish(args, answer, f"action {safe(args.id)} is being put back")
    stored = read_store(args.state_dir, args.run_dir)
    return _list(stored, args) if args.action_verb == "list" else _show(stored, args)


def _list(stored: Snapshot, args: argparse.Namespace) -> int:
    intents = sorted(
        stored.intents.values(), key=lambda intent: (intent.created.utc_s, intent.incident, len(intent.id))
    )
    shown = intents if args.all else intents[-SHOWN:]
    if args.json:
        show_json({"schema": 1, "actions": encode(shown)})
        return 0
    if not shown:
        sys.stdout.write("no actions\n")
        return 0
    rows = [
        [
            each.id,
            local_time(each.created.utc_s),
            each.action,
            _target(each),
            _mode(each),
            each.state.value,
            each.reason,
        ]
        for each in shown
    ]
    sys.stdout.write(table(("ID", "PLANNED", "ACTION", "TARGET", "MODE", "STATE", "REASON"), rows) + "\n")
    if len(shown) < len(intents):
        sys.stdout.write(f"{len(intents) - len(shown)} older ones: gpuwatch action list --all\n")
    return 0


def _show(stored: Snapshot, args: argparse.Namespace) -> int:
    intent = stored.intents.get(args.id)
    if intent is None:
        sys.stderr.write(f"gpuwatch: no action {safe(args.id)}; see: gpuwatch action list --all\n")
        return 1
    if args.json:
        show_json({"schema": 1, "action": encode(intent)})
    else:
        sys.stdout.write(draw(intent) + "\n")
    return 0


def draw(intent: Intent) -> str:
    """What is wanted of whom, and each step that it has taken."""
    lines = [f"Action {intent.id}: {intent.action} {_target(intent)} ({_mode(intent)})"]
    lines.append(f"  for rule {intent.rule}, step {intent.step + 1}, incident {intent.incident}")
    if intent.workload:
        lines.append(f"  workload {intent.workload}" + (f", used by {', '.join(intent.users)}" if intent.users else ""))
    if intent.before is not None or intent.value is not None:
        lines.append(f"  {_watts(intent.before)} -> {_watts(intent.value)}")
    lines += [f"  {local_time(utc_s)}  {what}" for utc_s, what in steps(intent)]
    if intent.bundle:
        lines.append(f"Evidence: gpuwatch evidence show {intent.bundle}")
    return "\n".join(map(safe, lines))


def steps(intent: Intent) -> list[tuple[float, str]]:
    """When it did what, in order, in UTC seconds."""
    moments = [
        (intent.created, "planned"),
        (intent.preserved, f"evidence durable: {intent.bundle}"),
        (intent.sent, "requested"),
        (intent.applied, "in force"),
        (intent.killed, "SIGKILL sent"),
        (intent.gone, "gone"),
    ]
    taken = [(moment.utc_s, what) for moment, what in moments if moment is not None]
    detail = f": {intent.detail}" if intent.detail else ""
    reason = f" ({intent.reason})" if intent.reason not in ("", intent.state.value) else ""
    return [*sorted(taken, key=lambda step: step[0]), (intent.changed.utc_s, f"{intent.state.value}{reason}{detail}")]


def _target(intent: Intent) -> str:
    return intent.name or intent.gpu or "this host"


def _mode(intent: Intent) -> str:
    return "observe" if intent.observe else "enforce"


def _watts(value: object) -> str:
    return "?" if value is None else f"{value:g} W"
