"""`gpuwatch maintenance on|off`: work is under way here; with --release-gpu the GPUs are let go of, too (S14)."""

from __future__ import annotations

import argparse
from typing import Any

from gpuwatch.cli import orders

_EPILOG = """examples:
  gpuwatch maintenance on --for 2h --comment "new fans"
  gpuwatch maintenance on --release-gpu --for 1h && nvidia-smi --gpu-reset -i 3
  gpuwatch maintenance off
"""


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "maintenance",
        help="on, off: touch nothing and tell nobody while people work here",
        description="While it is on, nothing is touched and nobody is told of what begins, but for what gpuwatch"
        " itself can't do any more. What is still open at its end is told once.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("on", "off"))
    parser.add_argument(
        "--release-gpu", action="store_true", help="end the process that has the driver open; heat is NOT watched then"
    )
    orders.add_for(parser, 7, "4h")
    parser.add_argument("--comment", default="", metavar="TEXT", help="why; shown in status")
    orders.add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when it is in force."""
    if args.what == "off":
        return orders.finish(args, orders.tell(args, "maintenance-off"), "maintenance is over; GPUs are watched again")
    answer = orders.tell(
        args, "maintenance-on", for_s=args.for_s, comment=args.comment, release_gpu=int(args.release_gpu)
    )
    lines = [f"Maintenance {orders.until(answer)}: nothing is touched, and nobody is told of what begins."]
    if args.release_gpu:
        lines.append("GPUs are released: heat is NOT watched meanwhile; the journal and the host are watched on.")
    return orders.finish(args, answer, *lines, "Earlier end: gpuwatch maintenance off")
