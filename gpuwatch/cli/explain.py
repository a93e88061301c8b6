"""gpuwatch explain: what an Xid or SXid number, a line of a log, or journal entries mean."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import Any, BinaryIO, Optional

from gpuwatch.catalog.explain import Explanation, explain_facts, explain_text, gravest
from gpuwatch.catalog.fields import FLAT
from gpuwatch.catalog.reader import EntryReader
from gpuwatch.cli.output import safe

SCHEMA = 1
MOST_BYTES = 32 * 1024 * 1024  # of one entry
EXAMPLE = """examples:
  gpuwatch explain 79
  gpuwatch explain sxid:20034
  gpuwatch explain 'NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.'
  journalctl -b -o json | gpuwatch explain --journal-json --json
"""


def add_parser(subparsers: Any) -> None:
    """Add the verb; `run` is called with the parsed arguments."""
    parser = subparsers.add_parser(
        "explain",
        help="what an Xid number, a line of a log or a journal entry means, and what to do first",
        description="What an error number or a line means, its class, what to do next, and what it proves.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="*", metavar="NUMBER|LINE", help="an Xid number, sxid:NUMBER, or a line of a log")
    parser.add_argument(
        "--journal-json",
        action="store_true",
        help="read entries from standard input as 'journalctl -o json' prints them; "
        "one JSON object an entry comes out (on a terminal: text about those that are events)",
    )
    parser.add_argument("--language", choices=("en", "zh"), default="en", help="en (default) or zh")
    parser.add_argument("--json", action="store_true", help="machine-readable, with a schema version")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the explanation. 0; 1 for a line that is no event; 2 for wrong usage."""
    if args.journal_json:
        if args.what:
            sys.stderr.write("gpuwatch explain: --journal-json reads standard input; leave out the line\n")
            return 2
        return _explain_entries(sys.stdin.buffer, args.language, args.json or not sys.stdout.isatty())
    what = " ".join(args.what).strip()
    if not what:
        sys.stderr.write("gpuwatch explain: give a number, a line, or --journal-json; see gpuwatch explain --help\n")
        return 2
    explanation = explain_text(what, args.language)
    if args.json:
        print(_dumped({"schema": SCHEMA, **_flat(explanation)}))
    elif explanation is not None:
        _show(explanation)
    else:
        sys.stderr.write(
            "gpuwatch explain: no event that gpuwatch knows; give a number, sxid:NUMBER or a line as the log has it\n"
        )
    return 0 if explanation is not None else 1


# Entries from standard input ----------------------------------------------------------------------


def _explain_entries(source: BinaryIO, language: str, as_json: bool) -> int:
    reader = EntryReader()
    for raw in _lines(source):
        fields, problem = _fields(raw)
        found = reader.read(fields) if fields else ()
        facts = gravest(tuple(facts for facts, _ in found))
        explanation = explain_facts(facts, language) if facts is not None else None
        if as_json:
            row = {"schema": SCHEMA, **_flat(explanation), **_about(fields)}
            kinds = [str(facts["kind"]) for facts, _ in found]
            if len(kinds) > 1:
                row["kinds"] = ",".join(kinds)  # an entry may hold several lines; the gravest is told
            if problem:
                row["error"] = problem
            sys.stdout.write(_dumped(row) + "\n")
        elif explanation is not None:
            print(f"{safe(_about(fields).get('time') or '')}  {safe(fields.get('MESSAGE', ''))[:200]}".strip())
            _show(explanation, "  ")
            print()
    sys.stdout.flush()
    return 0


def _lines(source: BinaryIO) -> Iterator[bytes]:
    """Lines that are not blank; of one that is longer than MOST_BYTES the start."""
    while True:
        line = source.readline(MOST_BYTES)
        if not line:
            return
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = source.readline(MOST_BYTES)
        if line.strip():
            yield line


def _fields(raw: bytes) -> tuple[dict[str, str], str]:
    """The fields of an entry as text, and what is wrong with it. Of a field that repeats the first value counts;
    values that are not UTF-8 come as lists of bytes; values that are too long for journalctl come as null."""
    try:
        data = json.loads(raw.decode("utf-8", "replace"), parse_int=_number)
    except (ValueError, RecursionError):
        return {}, "not a JSON object"
    if not isinstance(data, dict):
        return {}, "not a JSON object"
    fields = {str(name): _text(value) for name, value in data.items()}
    return {name: text for name, text in fields.items() if text is not None}, ""


def _number(digits: str) -> int:
    return int(digits) if len(digits) <= 20 else 0  # nothing in a journal is larger, and huge ones take for ever


def _text(value: Any) -> Optional[str]:
    if isinstance(value, list) and value and isinstance(value[0], (str, list)):
        value = value[0]
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        if all(isinstance(byte, int) and not isinstance(byte, bool) and 0 <= byte < 256 for byte in value):
            return bytes(value).decode("utf-8", "replace")
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return None


def _about(fields: dict[str, str]) -> dict[str, Any]:
    """When, and whether it can be believed."""
    stamp = fields.get("__REALTIME_TIMESTAMP", "")
    about: dict[str, Any] = {"time": None}
    if stamp.isascii() and stamp.isdigit() and len(stamp) <= 17:
        seconds, rest = divmod(int(stamp), 1_000_000)
        try:
            about["time"] = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:06d}Z"
        except (ValueError, OverflowError, OSError):
            pass  # beyond what a calendar holds
    return about


def _flat(explanation: Optional[Explanation]) -> dict[str, Any]:
    if explanation is not None:
        return explanation.flat()
    nothing: dict[str, Any] = dict.fromkeys(FLAT)
    return {**nothing, "class": None, "alert_severity": None, "meaning": None, "next_step": None}


def _dumped(row: dict[str, Any]) -> str:
    """One line of JSON that any terminal and any encoder takes."""
    text = json.dumps(row, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(row)


def _show(explanation: Explanation, indent: str = "") -> None:
    print("\n".join(indent + safe(line) for line in explanation.lines()))
