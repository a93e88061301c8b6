"""Text for a terminal: safe to show, in columns, coloured only where a person looks."""

from __future__ import annotations

import json
import os
import sys
import time
import unicodedata
from collections.abc import Sequence
from typing import Any

COLOURS = {"red": "31", "yellow": "33", "green": "32", "bold": "1", "dim": "2"}
GIB = 1024.0**3


def safe(text: object) -> str:
    """One line without control characters: names of processes and units are arbitrary text."""
    return "".join(char if char.isprintable() else "\ufffd" for char in str(text))


def paint(text: str, colour: str) -> str:
    """The text in a colour on a terminal that wants colours (https://no-color.org), plain elsewhere."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m"


def width(text: str) -> int:
    """Columns that a terminal needs: wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns two spaces apart; those in `right` are aligned to the right. The last one is not padded."""
    cells = [[safe(cell) for cell in row] for row in (header, *rows)]
    widths = [max(width(row[column]) for row in cells) for column in range(len(header))]
    lines = []
    for row in cells:
        parts = []
        for column, cell in enumerate(row):
            pad = " " * (widths[column] - width(cell))
            last = column == len(row) - 1 and column not in right
            parts.append(pad + cell if column in right else cell + ("" if last else pad))
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def local_time(utc_s: float) -> str:
    """2026-11-30 13:45:32 CST, in the zone of this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(utc_s))


def ago(seconds: float) -> str:
    """0.8 s, 12 s, 5 min, 3 h, 2 days."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86400:.0f} days"


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit in ("B", "KiB") else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def show_json(data: Any) -> None:
    """Print one JSON document."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False, indent=2) + "\n")
