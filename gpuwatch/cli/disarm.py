"""`gpuwatch disarm`: nothing is done in earnest until `gpuwatch arm`, whatever the configuration says (S6)."""

from __future__ import annotations

import argparse
from typing import Any

from gpuwatch.cli import orders


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "disarm",
        help="touch nothing, as in observe mode, until `arm`",
        description="Every workload is treated as in observe mode: watched, told, nothing touched. Without --for it"
        " holds until `gpuwatch arm`, over restarts and reboots.",
        epilog='example: gpuwatch disarm --for 2h --comment "benchmark on GPU 3"',
    )
    orders.add_for(parser, 365)
    parser.add_argument("--comment", default="", metavar="TEXT", help="why; shown in status")
    orders.add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when it is in force."""
    answer = orders.tell(args, "disarm", for_s=args.for_s, comment=args.comment)
    return orders.finish(
        args,
        answer,
        f"DISARMED {orders.until(answer) or 'until you say so'}: everything is watched and told, nothing is touched.",
        "Take it back: gpuwatch arm",
    )
