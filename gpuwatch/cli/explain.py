"""gpuwatch explain: what an Xid means, by number or by the line of the kernel log."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Optional

from gpuwatch.catalog.explain import Explanation, explain_line, explain_xid

SCHEMA = 1
EXAMPLE = """example:
  gpuwatch explain 79
  gpuwatch explain 'NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.'
"""


def add_parser(subparsers: Any) -> None:
    """Add the verb; `run` is called with the parsed arguments."""
    parser = subparsers.add_parser(
        "explain",
        help="what an Xid means and what to do first",
        description="What an Xid means, its class, NVIDIA's immediate action, and what it proves.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="+", metavar="NUMBER|LINE", help="an Xid number, or a line of the kernel log")
    parser.add_argument("--language", choices=("en", "zh"), default="en", help="en (default) or zh")
    parser.add_argument("--json", action="store_true", help="machine-readable, with a schema version")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the explanation. 0; 1 for a line without an Xid."""
    what = " ".join(args.what).strip()
    explanation = _explain(what, args.language)
    if explanation is None:
        print("gpuwatch explain: no Xid in this; give a number or a line with 'NVRM: Xid (...): N'", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(_document(explanation), ensure_ascii=False, indent=2))
    else:
        print("\n".join(explanation.lines()))
    return 0


def _explain(what: str, language: str) -> Optional[Explanation]:
    words = what.split()
    number = words[-1] if words else ""
    if (len(words) == 1 or (len(words) == 2 and words[0].lower() == "xid")) and number.isascii() and number.isdigit():
        return explain_xid(int(number[:9]), language)
    return explain_line(what, language)


def _document(explanation: Explanation) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "xid": explanation.number,
        "known": explanation.known,
        "mnemonic": explanation.mnemonic,
        "class": explanation.klass,
        "severity": explanation.severity.value,
        "in_use": explanation.in_use,
        "action": explanation.action,
        "action_text": explanation.action_text,
        "meaning": explanation.meaning,
        "proves": explanation.proves,
        "next": explanation.next_step,
        "facts": dict(explanation.facts),
    }
