"""Text from outside, made fit for one line on a screen, in a log or in a message. Pure."""

from __future__ import annotations

import re

MOST_CHARACTERS = 1000

_SPACE = re.compile("[\\s\x85\u2028\u2029]+")


def clean(text: str, most: int = MOST_CHARACTERS) -> str:
    """One line of at most `most` characters: white space becomes single spaces; what can't be printed (control
    characters, marks that turn the direction of text, halves of surrogate pairs) becomes U+FFFD."""
    line = _SPACE.sub(" ", text[: 2 * most + 64]).strip()
    if not line.isprintable():
        line = "".join(character if character.isprintable() else "\ufffd" for character in line)
    return line if len(line) <= most else line[: most - 1] + "…"
