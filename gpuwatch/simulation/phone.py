"""Draws messages as they would look on a phone, for the demo. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Optional

from gpuwatch.simulation.receiver import Received

WIDTH = 60  # columns inside the frame
_MARKUP = re.compile(r"</?font[^>]*>|\*\*")


def phone(messages: Sequence[Received], zone: Optional[tzinfo] = None, width: int = WIDTH) -> str:
    """A chat with one bubble for each message. `zone` None: the local one."""
    drawn = ["╭" + "─" * (width + 2) + "╮", _row("WeCom · gpuwatch".center(width), width)]
    for message in messages:
        clock = datetime.fromtimestamp(message.at_s, zone).strftime("%H:%M:%S")
        drawn += ["├" + "─" * (width + 2) + "┤", _row(clock.center(width).rstrip(), width)]
        text = _MARKUP.sub("", message.content)
        called = " ".join(f"@{who.lstrip('@')}" for who in message.mentioned)
        for line in [*text.split("\n"), *([called] if called else [])]:
            drawn += [_row(piece, width) for piece in _wrapped(line, width)]
    drawn.append("╰" + "─" * (width + 2) + "╯")
    return "\n".join(drawn)


def _row(line: str, width: int) -> str:
    return f"│ {line}{' ' * max(0, width - columns(line))} │"


def columns(line: str) -> int:
    """Width in a terminal: Chinese characters take two columns."""
    return sum(_columns(mark) for mark in line)


def _columns(mark: str) -> int:
    if unicodedata.combining(mark) or unicodedata.category(mark) == "Cf":
        return 0
    return 2 if unicodedata.east_asian_width(mark) in ("W", "F") else 1


def _wrapped(line: str, width: int) -> list[str]:
    """Broken at blanks where there are some near the end, else anywhere, as a phone does."""
    pieces: list[str] = []
    current = ""
    for mark in line:
        if columns(current) + _columns(mark) > width:
            head, blank, tail = current.rpartition(" ")
            if mark == " " or not blank or columns(head) < width // 2:
                head, tail = current, ""
            pieces.append(head)
            current = tail
            if mark == " " and not tail:
                continue
        current += mark
    return [*pieces, current]
