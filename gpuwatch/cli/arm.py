"""`gpuwatch arm`: takes a `gpuwatch disarm` back."""

from __future__ import annotations

import argparse
from typing import Any

from gpuwatch.cli import orders


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "arm",
        help="take `disarm` back",
        description="The modes of the configuration hold again. What observe mode protected stays in observe mode.",
        epilog="example: gpuwatch arm",
    )
    orders.add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when it is in force."""
    answer = orders.tell(args, "arm")
    was = "armed again" if answer.get("was") == "disarmed" else "it was armed already"
    return orders.finish(args, answer, f"{was}: the modes of the configuration hold")
