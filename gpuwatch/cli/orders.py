"""How every verb that orders something says it: to the daemon, or without one to the store."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Mapping
from typing import Any, Callable, Optional

from gpuwatch.cli import places
from gpuwatch.cli.output import local_time, safe, show_json
from gpuwatch.model.codec import decode
from gpuwatch.model.errors import SourceError, StoreError
from gpuwatch.model.instant import Instant
from gpuwatch.model.orders import Order, Orders
from gpuwatch.system.control_socket import ask

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def add_options(parser: argparse.ArgumentParser) -> None:
    """--json and where things are."""
    parser.add_argument("--json", action="store_true", help="machine-readable, with a schema version")
    places.add_state_dir(parser)
    places.add_run_dir(parser)
    places.add_config(parser)


def add_for(parser: argparse.ArgumentParser, most_days: int, default: Optional[str] = None, **more: Any) -> None:
    """--for TIME."""
    says = f"30m, 2h, 1d; at most {most_days}d" + (f" (default {default})" if default else "")
    parser.add_argument(
        "--for", dest="for_s", metavar="TIME", type=duration(most_days), default=default, help=says, **more
    )


def duration(most_days: int) -> Callable[[str], float]:
    """Reads a time on the command line, in seconds."""

    def read(text: str) -> float:
        match = re.fullmatch(r"([0-9]{1,8})([smhd])", text.strip())
        seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
        if not 0 < seconds <= most_days * _UNITS["d"]:
            raise argparse.ArgumentTypeError(
                f"{safe(text)}: expected a time such as 30m, 2h or 1d, at most {most_days}d"
            )
        return seconds

    return read


def tell(args: argparse.Namespace, what: str, **arguments: Any) -> Mapping[str, Any]:
    """The answer to an order; {"error": ...} when nothing was done. Raises GpuwatchError."""
    order = {"what": what, **{name: each for name, each in arguments.items() if each not in (None, "", False)}}
    order["sudo"] = os.environ.get("SUDO_USER", "")
    try:
        return ask(os.path.join(args.run_dir, "control.sock"), {"verb": "order", **order})
    except SourceError as error:
        if not isinstance(error.__cause__, (FileNotFoundError, ConnectionRefusedError)):
            raise
    from gpuwatch.daemon.app import Options
    from gpuwatch.daemon.offline import obey_without_daemon

    return obey_without_daemon(Options(args.config, args.state_dir, args.run_dir), order, os.geteuid())


def finish(args: argparse.Namespace, answer: Mapping[str, Any], *lines: str) -> int:
    """Show what came of it; the exit code."""
    if "error" in answer:
        sys.stderr.write(f"gpuwatch: {safe(answer['error'])}\n")
        return 1
    if args.json:
        show_json({"schema": 1, **answer})
        return 0
    for line in lines:
        sys.stdout.write(safe(line) + "\n")
    if answer.get("warning"):
        sys.stderr.write(f"gpuwatch: {safe(answer['warning'])}\n")
    return 0


def until(answer: Mapping[str, Any]) -> str:
    """Of an answer: "until 2026-11-30 15:45:32 CST"; "" without an end."""
    end = answer.get("until_utc_s")
    return "" if end is None else f"until {local_time(end)}"


def shown_until(order: Order) -> str:
    """The same of an order."""
    return "" if order.until is None else f"until {local_time(order.until.utc_s)}"


def orders_in(view: Mapping[str, Any], utc_s: float) -> Orders:
    """Those of a view that hold at that time: it may be an old copy, or of an older gpuwatch. Raises StoreError."""
    return _holding(view.get("orders"), utc_s)


def stored_orders(state_dir: str, run_dir: str) -> Orders:
    """Those in the store, for when no daemon runs. Raises StoreError."""
    from gpuwatch.store.waiting import read_stored

    path = os.path.join(state_dir, "state.db")
    documents, _ = read_stored(path, os.path.join(run_dir, "waiting.jsonl"), ("state",))
    return _holding(documents["state"].get("orders"), time.time())


def _holding(document: Any, utc_s: float) -> Orders:
    if document is None:
        return Orders()
    try:
        return decode(Orders, document).at(Instant("", 0.0, utc_s))
    except (TypeError, KeyError, ValueError) as error:
        raise StoreError(f"the orders can't be read: {error}") from error
