"""Two policies over the same time: what only one of them would have done, and what one would have done earlier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuwatch.daemon.replay import SOMEBODY
from gpuwatch.daemon.told import Entry
from gpuwatch.daemon.verdict import told
from gpuwatch.model import reason
from gpuwatch.simulation import scenario as seen

SAME_TROUBLE_S = 600.0  # what lies farther apart is another trouble
SAME_MOMENT_S = 1.0
_COMPARED = (seen.FIRES, seen.WOULD)
_TOLD = (*_COMPARED, seen.CLEARS, seen.REASON, seen.FAILED, seen.REFUSED)


@dataclass(frozen=True)
class Difference:
    """kind: added (only the new policy) | removed (only the old one) | earlier | later; `by_s` for the latter two."""

    kind: str
    entry: Entry
    by_s: float = 0.0

    @property
    def words(self) -> str:
        """For people."""
        return told(self.entry) + (f", by {self.by_s:.0f} s" if self.by_s else "")


def tell(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """What a replay can vouch for, with the unknown owner in plain words."""
    return tuple(_plain(each) for each in entries if each.verb in _TOLD and each.reason != reason.WOULD_HAVE)


def _plain(entry: Entry) -> Entry:
    unit = "whoever-was-there@gpu"
    if unit not in entry.name and unit not in entry.on:
        return entry
    return replace(entry, name=_named(entry.name), on=_named(entry.on))


def _named(text: str) -> str:
    action, _, target = text.rpartition(" ")
    if target.startswith("whoever-was-there@gpu"):
        return f"{action} {SOMEBODY.name}".strip()
    return text


def differences(old: Sequence[Entry], new: Sequence[Entry]) -> tuple[Difference, ...]:
    """In the order of time. What fires and what would be done count; two within ten minutes are the same trouble."""
    found: list[Difference] = []
    left = [each for each in old if each.verb in _COMPARED]
    for entry in (each for each in new if each.verb in _COMPARED):
        alike = [each for each in left if _key(each) == _key(entry) and abs(each.at_s - entry.at_s) <= SAME_TROUBLE_S]
        if not alike:
            found.append(Difference("added", entry))
            continue
        match = min(alike, key=lambda each: abs(each.at_s - entry.at_s))
        left.remove(match)
        by_s = entry.at_s - match.at_s
        if abs(by_s) > SAME_MOMENT_S:
            found.append(Difference("later" if by_s > 0 else "earlier", entry, abs(by_s)))
    found += [Difference("removed", each) for each in left]
    return tuple(sorted(found, key=lambda each: each.entry.at_s))


def _key(entry: Entry) -> tuple[str, str, str]:
    """A stop is the same whichever rule asks for it."""
    return (entry.verb, entry.name, entry.on)
