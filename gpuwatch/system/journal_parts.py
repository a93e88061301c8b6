"""Lines of containers that were logged in parts, put together (J12).

docker's journald driver cuts at 16 KiB and gives the parts CONTAINER_PARTIAL_ID, _ORDINAL and _LAST; each part
but the last has CONTAINER_PARTIAL_MESSAGE=true, which is all that podman's conmon writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpuwatch.system.protocols import Clock, JournalEntry

JOINED_CHARACTERS = 65_536  # of one line; the rest is cut
WAIT_S = 5.0  # for the next part; then what has come is the line
MOST_LINES = 64  # that are incomplete at a time

_PREFIX = "CONTAINER_PARTIAL_"


@dataclass
class _Line:
    first: JournalEntry
    newest: JournalEntry
    texts: list[str]
    characters: int
    since: float


class Parts:
    """Keeps incomplete lines between reads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[tuple[str, str, str], _Line] = {}

    def join(self, entries: Iterable[JournalEntry]) -> list[JournalEntry]:
        """The entries with each complete line as one, in the order of their last parts."""
        whole: list[JournalEntry] = []
        now = self._clock.monotonic()
        for entry in entries:
            key = _key(entry)
            line = self._lines.get(key) if self._lines else None
            if line is None and not _is_part(entry):
                whole.append(entry)
                continue
            if line is None:
                line = self._lines[key] = _Line(entry, entry, [], 0, now)
            text = entry.fields.get("MESSAGE", "")[: JOINED_CHARACTERS - line.characters]
            line.texts.append(text)
            line.characters += len(text)
            line.newest = entry
            if not _goes_on(entry):
                whole.append(_joined(self._lines.pop(key)))
        for key in [key for key, line in self._lines.items() if now - line.since >= WAIT_S]:
            whole.append(_joined(self._lines.pop(key)))
        while len(self._lines) > MOST_LINES:
            whole.append(_joined(self._lines.pop(next(iter(self._lines)))))
        return whole


def _key(entry: JournalEntry) -> tuple[str, str, str]:
    """Both streams of a container are cut on their own; their priorities differ."""
    fields = entry.fields
    container = fields.get("CONTAINER_ID_FULL") or fields.get("CONTAINER_ID", "")
    return fields.get("CONTAINER_PARTIAL_ID", ""), container, fields.get("PRIORITY", "")


def _is_part(entry: JournalEntry) -> bool:
    return "CONTAINER_PARTIAL_MESSAGE" in entry.fields or "CONTAINER_PARTIAL_ID" in entry.fields


def _goes_on(entry: JournalEntry) -> bool:
    return entry.fields.get("CONTAINER_PARTIAL_MESSAGE") == "true"


def _joined(line: _Line) -> JournalEntry:
    """It was printed when its first part was; reading goes on behind the last."""
    fields = {name: value for name, value in line.first.fields.items() if not name.startswith(_PREFIX)}
    return replace(line.first, cursor=line.newest.cursor, fields={**fields, "MESSAGE": "".join(line.texts)})
