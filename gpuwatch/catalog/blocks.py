"""Blocks of lines that are one event: the summary that torchrun prints when a job failed, with the rank that failed
first. Pure.

Printed to a unit's standard output every line is an entry of its own, so the block is put together again by stream
(who printed it); in a container's log or a message with line breaks it may come as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Optional

from gpuwatch.catalog.fields import Facts, number, short

HEAD = "Root Cause (first observed failure)"
KIND = "first_failure"
MOST_STREAMS = 64
MOST_LINES = 24

_FIELD = re.compile(r"(?:^|[\s:\]])(host|rank|exitcode|traceback) {1,12}: (.{0,200})")
_RANK = re.compile(r"([0-9]{1,6}) \(local_rank: ([0-9]{1,6})\)")
_EXIT = re.compile(r"(-?[0-9]{1,6}) *\(pid: ([0-9]{1,10})\)")
_SIGNAL = re.compile(r"Signal [0-9]{1,3} \((SIG[A-Z0-9]{2,10})\)")
_END = "======"


@dataclass
class _Open:
    facts: Facts
    lines: int = 0
    began: object = None


@dataclass
class Blocks:
    """Open blocks by stream. `feed` takes the lines of one stream in order."""

    _open: dict[Hashable, _Open] = field(default_factory=dict)

    def feed(
        self, stream: Hashable, text: str, author: Facts, tag: object = None
    ) -> tuple[bool, Optional[Facts], object]:
        """Whether the line belongs to a block; the block's facts when it is complete; the tag of its first line."""
        if HEAD in text:
            facts: Facts = {"kind": KIND, "rank": None, **author}
            done = _fill_all(facts, text[text.index(HEAD) :])
            if done:
                return True, facts, tag
            while len(self._open) >= MOST_STREAMS:
                self._open.pop(next(iter(self._open)))
            self._open[stream] = _Open(facts, began=tag)
            return True, None, tag
        block = self._open.get(stream)
        if block is None:
            return False, None, None
        block.lines += 1
        if _fill_all(block.facts, text) or block.lines >= MOST_LINES:
            del self._open[stream]
            known = block.facts["rank"] is not None
            return True, block.facts if known else None, block.began
        return True, None, None

    def __bool__(self) -> bool:
        return bool(self._open)


def _fill_all(facts: Facts, text: str) -> bool:
    """Take what the lines say; True at the end of the block."""
    ended = False
    for line in text.split("\n")[:MOST_LINES]:
        ended = _fill(facts, line) or ended
    return ended


def _fill(facts: Facts, line: str) -> bool:
    if _END in line:
        return facts["rank"] is not None
    match = _FIELD.search(line[:400])
    if match is None:
        return False
    name, value = match[1], match[2]
    if name == "host":
        facts["host"] = short(value)
    elif name == "rank":
        found = _RANK.match(value)
        if found:
            facts["rank"], facts["local_rank"] = number(found[1]), number(found[2])
    elif name == "exitcode":
        found = _EXIT.match(value)
        if found:
            facts["exit_status"], facts["child_pid"] = number(found[1]), number(found[2])
    else:
        found = _SIGNAL.match(value)
        facts["signal"] = found[1] if found else None
        return facts["rank"] is not None
    return False
