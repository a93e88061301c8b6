"""`gpuwatch hold list|release`: what was stopped and is kept from starting; letting it start again."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from gpuwatch.cli import orders, places
from gpuwatch.cli.output import local_time, show_json, table

_EPILOG = """examples:
  gpuwatch hold list
  gpuwatch hold release train@llama.service
"""


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "hold",
        help="list, release: units that are kept from starting",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="hold_verb", required=True, metavar="list|release")
    listing = verbs.add_parser("list", help="what is held, and why", epilog="example: gpuwatch hold list --json")
    listing.add_argument("--json", action="store_true", help="machine-readable, with a schema version")
    places.add_run_dir(listing)
    release = verbs.add_parser(
        "release", help="let it start again; starts nothing itself", epilog="example: gpuwatch hold release train@llama"
    )
    release.add_argument("id", metavar="UNIT|ID", help="the unit, or the action as `gpuwatch hold list` shows it")
    orders.add_options(release)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when done; 1 when it is refused, or the list is only what a daemon left behind."""
    if args.hold_verb == "list":
        return _list(args)
    answer = orders.tell(args, "release-hold", id=args.id)
    return orders.finish(args, answer, f"{answer.get('units')} may start again; gpuwatch does not start it")


def _list(args: argparse.Namespace) -> int:
    view, why_old = places.fetch_view(args.run_dir)
    held = [each for each in view["actions"] if each.get("action") == "hold"]
    if args.json:
        show_json({"schema": 1, "live": not why_old, "holds": held})
        return 1 if why_old else 0
    if why_old:
        sys.stderr.write(f"gpuwatch: {why_old}; this is what it left behind\n")
    rows = [
        [
            each["id"],
            each["target"],
            each["state"],
            local_time(each["since_utc_s"]),
            str(each["incident"]),
            each["rule"],
        ]
        for each in held
    ]
    header = ("ID", "UNIT", "STATE", "SINCE", "INCIDENT", "RULE")
    sys.stdout.write((table(header, rows) if rows else "nothing is held") + "\n")
    return 1 if why_old else 0
