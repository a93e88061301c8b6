"""`gpuwatch maintenance on --release-gpu`: let go of the GPUs for a repair; it comes back by itself (S14)."""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import Any, Optional

from gpuwatch.cli import places
from gpuwatch.cli.output import local_time, safe, show_json
from gpuwatch.system.control_socket import ask

DEFAULT = "30m"
MOST_S = 7 * 86400.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "maintenance",
        help="let go of the GPUs for a repair",
        epilog="example: gpuwatch maintenance on --release-gpu --for 1h && nvidia-smi --gpu-reset -i 3",
    )
    parser.add_argument("what", choices=("on", "off"))
    parser.add_argument("--release-gpu", action="store_true", help="end the process that has the driver open")
    parser.add_argument(
        "--for", dest="duration", default=DEFAULT, metavar="TIME", help=f"30m, 2h, 1d (default {DEFAULT})"
    )
    parser.add_argument("--json", action="store_true")
    places.add_run_dir(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when the daemon has done it."""
    seconds = parse_duration(args.duration)
    if seconds is None:
        sys.stderr.write(f"gpuwatch: --for {safe(args.duration)}: expected a time such as 30m, 2h or 1d, at most 7d\n")
        return 2
    if args.what == "on" and not args.release_gpu:
        sys.stderr.write("gpuwatch: this version knows `maintenance on --release-gpu` alone; alerts are not silenced\n")
        return 2
    request = {"verb": "release", "for_s": seconds} if args.what == "on" else {"verb": "resume"}
    answer = ask(os.path.join(args.run_dir, "control.sock"), request)
    if "error" in answer:
        sys.stderr.write(f"gpuwatch: {safe(answer['error'])}\n")
        return 1
    if args.json:
        show_json({"schema": 1, **answer})
    elif args.what == "on":
        sys.stdout.write(
            f"GPUs released until {local_time(answer['until_utc_s'])}; the journal and the host are watched on.\n"
            "Heat is NOT watched meanwhile. Earlier end: gpuwatch maintenance off\n"
        )
    else:
        sys.stdout.write("GPUs are watched again\n")
    return 0


def parse_duration(text: str) -> Optional[float]:
    """Seconds, or None."""
    match = re.fullmatch(r"([0-9]{1,6})([smhd])", text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    return seconds if 0 < seconds <= MOST_S else None
