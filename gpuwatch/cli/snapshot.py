"""`gpuwatch snapshot`: an evidence bundle now, written by the daemon, or by this command when there is none."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from typing import Any

from gpuwatch.cli import places
from gpuwatch.cli.output import safe, show_json
from gpuwatch.model.errors import SourceError
from gpuwatch.system.control_socket import ask


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "snapshot",
        help="write an evidence bundle now",
        epilog='example: gpuwatch snapshot --reason "before the reboot"',
    )
    parser.add_argument("--reason", default="by hand", help="kept in the bundle")
    parser.add_argument("--json", action="store_true")
    places.add_state_dir(parser)
    places.add_run_dir(parser)
    places.add_config(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when the bundle is durable."""
    try:
        answer: Mapping[str, Any] = ask(
            os.path.join(args.run_dir, "control.sock"), {"verb": "snapshot", "reason": args.reason}
        )
    except SourceError:
        from gpuwatch.daemon.app import snapshot_without_daemon

        answer = snapshot_without_daemon(args.config, args.state_dir, args.run_dir, args.reason)
    if "error" in answer:
        sys.stderr.write(f"gpuwatch: {safe(answer['error'])}\n")
        return 1
    if args.json:
        show_json({"schema": 1, **answer})
    else:
        sys.stdout.write(f"{safe(answer['path'])}\nsee: gpuwatch evidence show {safe(answer['bundle'])}\n")
    return 0
