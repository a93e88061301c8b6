"""Entries one after another to facts: what `entry` reads of each, plus blocks of lines and a site's own patterns. Pure
but for the blocks that it remembers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from gpuwatch.catalog import blocks, entry
from gpuwatch.catalog.blocks import Blocks
from gpuwatch.catalog.fields import Facts
from gpuwatch.catalog.user_patterns import UserPatterns

Found = tuple[Facts, object]  # facts, and the tag of the entry that they began with


class EntryReader:
    """Reads entries in their order. `own`: the site's patterns, looked at where nothing else fits."""

    def __init__(self, own: Optional[UserPatterns] = None) -> None:
        self.own = own if own is not None and own.patterns else None
        self._blocks = Blocks()

    def read(self, fields: Mapping[str, str], tag: object = None, with_own: bool = True) -> tuple[Found, ...]:
        """The facts of an entry, or of a block that ends with it. `tag` comes back with them; of a block it is that of
        the block's first entry."""
        if self._blocks or blocks.HEAD in fields.get("MESSAGE", ""):
            joined = self._join(fields, tag)
            if joined is not None:
                return joined
        found = entry.read(fields)
        if not found and self.own is not None and with_own:
            facts = self.own.read(fields)
            return () if facts is None else ((facts, tag),)
        return tuple((facts, tag) for facts in found)

    def _join(self, fields: Mapping[str, str], tag: object) -> Optional[tuple[Found, ...]]:
        if not entry.is_workload(fields):
            return None
        text = fields.get("MESSAGE", "")[: entry.MOST_BLOCK]
        part, facts, began = self._blocks.feed(entry.stream(fields), text, entry.author(fields, ""), tag)
        if not part:
            return None
        return () if facts is None else ((facts, began),)
