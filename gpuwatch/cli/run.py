"""`gpuwatch run`: the daemon in the foreground, as systemd starts it; `--once`: one pass, as the timer does."""

from __future__ import annotations

import argparse
from typing import Any

from gpuwatch.cli import places


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "run",
        help="the daemon in the foreground",
        epilog="example: gpuwatch run --config config/gpuwatch.yaml --state-dir /tmp/gw --run-dir /tmp/gw",
    )
    parser.add_argument("--once", action="store_true", help="one pass, then end; does nothing while a daemon runs")
    parser.add_argument(
        "--simulated", action="store_true", help="a simulated host instead of this one; says so everywhere"
    )
    parser.add_argument("--kmsg", default="/dev/kmsg", metavar="PATH", help="the doorbell (default: /dev/kmsg)")
    places.add_config(parser)
    places.add_state_dir(parser)
    places.add_run_dir(parser)


def run(args: argparse.Namespace) -> int:
    """0 after SIGTERM; 78 for a bad configuration; 1 when another gpuwatch acts on this host."""
    from gpuwatch.daemon.app import Options, run_daemon, run_once

    options = Options(args.config, args.state_dir, args.run_dir, args.kmsg)
    if args.simulated:
        from gpuwatch.daemon.simulated import run_simulated

        return run_simulated(options)
    return run_once(options) if args.once else run_daemon(options)
