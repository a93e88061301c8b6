"""`gpuwatch gpu list|accept|forget`: which GPUs belong into this host, and what changed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from gpuwatch.cli import places
from gpuwatch.cli.output import safe, show_json, table
from gpuwatch.model.errors import SourceError
from gpuwatch.system.control_socket import ask

_EPILOG = """examples:
  gpuwatch gpu list
  gpuwatch gpu accept GPU-3d9a7c10     a card that was put in on purpose
  gpuwatch gpu forget GPU-3d9a7c10     a card that was taken out on purpose
"""


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "gpu",
        help="list, accept, forget: which GPUs belong into this host",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="what", required=True, metavar="list|accept|forget")
    listing = verbs.add_parser("list", help="those that are there, new or missing", epilog="example: gpuwatch gpu list")
    accept = verbs.add_parser(
        "accept", help="a new card belongs here", epilog="example: gpuwatch gpu accept GPU-3d9a7c10"
    )
    forget = verbs.add_parser(
        "forget", help="a missing card does not come back", epilog="example: gpuwatch gpu forget GPU-3d9a7c10"
    )
    for verb in (accept, forget):
        verb.add_argument("uuid", metavar="UUID", help="the UUID or its beginning, as `gpuwatch gpu list` shows it")
    for verb in (listing, accept, forget):
        verb.add_argument("--json", action="store_true")
        places.add_run_dir(verb)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when done; 1 when the daemon refuses, is down, or there is no such card."""
    view, why_old = places.fetch_view(args.run_dir)
    if args.what == "list":
        return _list(view, why_old, args.json)
    if why_old:
        raise SourceError(f"{why_old}; only the daemon can {args.what} a GPU")
    uuid = find(view["gpus"], args.uuid)
    request = {"verb": "gpu", "what": args.what, "uuid": uuid}
    answer = ask(os.path.join(args.run_dir, "control.sock"), request)
    if "error" in answer:
        sys.stderr.write(f"gpuwatch: {safe(answer['error'])}\n")
        return 1
    if args.json:
        show_json({"schema": 1, "uuid": uuid, **answer})
    else:
        done = "belongs to this host now" if args.what == "accept" else "is forgotten; if it comes back it is new"
        sys.stdout.write(f"{safe(uuid)} {done}\n")
    return 0


def find(gpus: Sequence[Mapping[str, Any]], wanted: str) -> str:
    """The UUID that begins as given, with or without `GPU-`. Raises SourceError when it is not exactly one."""
    begins = wanted.lower().removeprefix("gpu-")
    found = [str(gpu["uuid"]) for gpu in gpus if str(gpu["uuid"]).lower().removeprefix("gpu-").startswith(begins)]
    if not begins or not found:
        raise SourceError(f"no GPU {safe(wanted)}; see: gpuwatch gpu list")
    if len(found) > 1 and wanted not in found:
        raise SourceError(f"{safe(wanted)} is the beginning of {len(found)} GPUs: {safe(', '.join(found))}")
    return wanted if wanted in found else found[0]


def _list(view: Mapping[str, Any], why_old: str, as_json: bool) -> int:
    gpus = view["gpus"]
    if as_json:
        names = ("index", "uuid", "name", "pci", "lost", "new", "missing", "capabilities")
        show_json({"schema": 1, "live": not why_old, "gpus": [{name: gpu.get(name) for name in names} for gpu in gpus]})
    else:
        sys.stdout.write(draw(gpus, why_old) + "\n")
    return 1 if why_old else 0


def draw(gpus: Sequence[Mapping[str, Any]], why_old: str = "") -> str:
    """A line a card, and what to do about those that are new or missing."""
    lines = [safe(f"{why_old}; this is what it left behind")] if why_old else []
    if not gpus:
        return "\n".join([*lines, "no GPUs are known"])
    rows = [[str(gpu["index"]), str(gpu["uuid"]), str(gpu["pci"]), _state(gpu)] for gpu in gpus]
    lines.append(table(("#", "UUID", "PCI", "STATE"), rows, right=(0,)))
    # Said once each, with the first one as the example.
    for word, text, verb in (
        ("new", "is new. Meant to be here?", "accept"),
        ("missing", "is missing. Taken out for good?", "forget"),
    ):
        first = next((str(gpu["uuid"]) for gpu in gpus if gpu.get(word)), None)
        if first is not None:
            lines.append(safe(f"{first[:12]} {text} gpuwatch gpu {verb} {first[:12]}"))
    return "\n".join(lines)


def _state(gpu: Mapping[str, Any]) -> str:
    if gpu.get("missing"):
        return "missing"
    words = ["lost" if gpu["lost"] else "stale" if gpu["stale"] else "ok"]
    if gpu.get("new"):
        words.append("new")
    return ", ".join(words)
