"""`gpuwatch silence add|list|expire`: nobody is told of some rule or card for a time; all else goes on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from gpuwatch.cli import orders, places
from gpuwatch.cli.output import local_time, safe, show_json, table
from gpuwatch.model.codec import encode
from gpuwatch.model.errors import SourceError
from gpuwatch.model.orders import Orders, Silence

_EPILOG = """examples:
  gpuwatch silence add --rule gpu-hot --gpu 3 --for 4h --comment "fan is ordered"
  gpuwatch silence list
  gpuwatch silence expire s3
"""


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "silence",
        help="add, list, expire: tell nobody about a rule or a card for a time",
        description="A silence mutes messages, never actions, records or `gpuwatch status`. That a job was stopped is"
        " told all the same; what is still open at the end is told once.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="silence_verb", required=True, metavar="add|list|expire")
    add = verbs.add_parser(
        "add",
        help="begin one; all that is named must match",
        epilog='example: gpuwatch silence add --rule "xid-*" --gpu 3 --for 4h --comment "vendor is coming"',
    )
    add.add_argument("--rule", default="", metavar="GLOB", help="name of a rule, or a pattern such as gpu-*")
    about = add.add_mutually_exclusive_group()
    about.add_argument("--gpu", default="", metavar="GPU", help="index, (beginning of the) UUID, or PCI address")
    about.add_argument("--unit", default="", metavar="NAME", help="a unit, or a pattern such as train@*.service")
    about.add_argument("--host-only", action="store_true", help="what is about the host itself")
    orders.add_for(add, 30, required=True)
    add.add_argument("--comment", required=True, metavar="TEXT", help="why: others will ask")
    listing = verbs.add_parser("list", help="those that hold", epilog="example: gpuwatch silence list --json")
    expire = verbs.add_parser("expire", help="end one now", epilog="example: gpuwatch silence expire s3")
    expire.add_argument("id", metavar="ID", help="as `gpuwatch silence list` shows it")
    for verb in (add, listing, expire):
        orders.add_options(verb)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when done; 1 when it is refused."""
    if args.silence_verb == "list":
        return _list(args)
    if args.silence_verb == "expire":
        return orders.finish(args, orders.tell(args, "expire", id=args.id), f"silence {args.id} is over")
    if not (args.rule or args.gpu or args.unit or args.host_only):
        sys.stderr.write("gpuwatch: name what to silence: --rule, --gpu, --unit or --host-only (all: --rule '*')\n")
        return 2
    answer = orders.tell(
        args,
        "silence",
        for_s=args.for_s,
        comment=args.comment,
        rule=args.rule,
        gpu=args.gpu,
        unit=args.unit,
        host_only=int(args.host_only),
    )
    identifier = answer.get("id")
    return orders.finish(
        args,
        answer,
        f"silence {identifier} {orders.until(answer)}. Earlier end: gpuwatch silence expire {identifier}",
    )


def _list(args: argparse.Namespace) -> int:
    try:
        view, why_old = places.fetch_view(args.run_dir)
    except SourceError as error:
        view, why_old = {}, str(error)
    found = orders.stored_orders(args.state_dir, args.run_dir) if why_old else orders.orders_in(view, view["utc_s"])
    if args.json:
        show_json({"schema": 1, "silences": encode(found.silences)})
    else:
        sys.stdout.write(draw(found, view) + "\n")
    return 0


def draw(found: Orders, view: Mapping[str, Any]) -> str:
    """A line each."""
    if not found.silences:
        return "no silences"
    indexes = {gpu["uuid"]: gpu["index"] for gpu in view.get("gpus", ())}
    rows = [
        [
            silence.id,
            "" if silence.order.until is None else local_time(silence.order.until.utc_s),
            silence.rule,
            _about(silence, indexes),
            silence.order.by,
            silence.order.comment,
        ]
        for silence in found.silences
    ]
    return table(("ID", "UNTIL", "RULE", "ABOUT", "BY", "COMMENT"), rows)


def _about(silence: Silence, indexes: Mapping[str, int]) -> str:
    subject = silence.subject
    if subject is None:
        return "all"
    if subject.kind == "gpu":
        return f"GPU {indexes[subject.id]}" if subject.id in indexes else subject.id[:12]
    return safe(subject.id or "host")
