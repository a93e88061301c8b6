"""What follows from a card's readings over time: it stalls, its fan stands still, it has lost PCIe lanes or NVLinks.

Each of them is a metric of its own, so that a rule needs but a plain limit. A reading that is missing or failed
makes no number here; what the card does not offer is unsupported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from gpuwatch.model.gpu import GpuSample
from gpuwatch.model.instant import Instant
from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import UNSUPPORTED, Reading, failed, value

BUSY_PERCENT, IDLE_PERCENT = 50.0, 5.0
BUSY_S = 60.0  # a job counts as one after so long
DIP_S = 10.0  # a shorter pause (a checkpoint, a slow batch) does not end being busy
HELD_SHARE, HELD_BYTES = 0.1, 2 * 1024.0**3  # of the card's memory; either is enough
FAN_NEEDED_C = 70.0  # a card with a zero-fan mode starts its fan well below
MINUTE_S = METRICS["gpu.pcie_width"].every_s
_NOT_READ = failed("not read")


class CardFacts:
    """Remembers what it needs of each card, by UUID; the baseline of NVLinks outlives the process by `state`."""

    def __init__(self) -> None:
        self._cards: dict[str, _Card] = {}
        self._most_links: dict[str, float] = {}

    def quick(self, sample: GpuSample, taken: Instant, in_use: Optional[bool], gap_s: float) -> dict[str, Reading]:
        """gpu.stalled and gpu.fan_stopped. A sample that comes again (the driver is silent) gives the same again.

        `in_use`: some process is on the card; None where nobody can tell, then its memory alone speaks. A longer
        pause than `gap_s` between samples counts as neither busy nor idle.
        """
        card = self._cards.setdefault(sample.uuid, _Card())
        return {"gpu.stalled": card.stall.judge(sample, taken, in_use, gap_s), "gpu.fan_stopped": _fan_stopped(sample)}

    def slow(self, sample: GpuSample) -> Mapping[str, Reading]:
        """gpu.pcie_*_missing and gpu.nvlinks_missing; to be asked with each sample, in order of time.

        PCIe is judged only where the card was under load in this minute's reading and in the one before: idle cards
        lower generation and width to save power. Without load there is no reading.
        """
        card = self._cards.setdefault(sample.uuid, _Card())
        load = sample.reading("gpu.utilisation") or _NOT_READ
        if sample.slow and sample.slow_taken != card.minute:
            card.next_minute(sample.slow_taken, load)
            card.missing = self._missing(sample, card, load)
        card.load = load
        return card.missing if sample.slow else {}

    def _missing(self, sample: GpuSample, card: _Card, load: Reading) -> dict[str, Reading]:
        found = {}
        for what, name in (("width", "gpu.pcie_lanes_missing"), ("generation", "gpu.pcie_generations_missing")):
            lacking = _lacking(sample.slow.get(f"gpu.pcie_{what}_max"), sample.slow.get(f"gpu.pcie_{what}"))
            if load.unsupported:
                lacking = UNSUPPORTED  # MIG: whether it works can't be told
            if lacking.value is None or card.under_load:
                found[name] = lacking
        up = sample.slow.get("gpu.nvlinks_up", _NOT_READ)
        if up.value is not None:
            self._most_links[sample.uuid] = max(up.value, self._most_links.get(sample.uuid, 0.0))
            up = value(self._most_links[sample.uuid] - up.value)
        found["gpu.nvlinks_missing"] = up
        return found

    def keep(self, uuids: Iterable[str]) -> None:
        """Forget the recent past of all cards but these; baselines stay."""
        uuids = set(uuids)
        self._cards = {uuid: card for uuid, card in self._cards.items() if uuid in uuids}

    def state(self) -> dict[str, float]:
        """The most NVLinks that were ever up, by UUID; JSON-able."""
        return dict(self._most_links)

    def restore(self, document: Any) -> None:
        """Take `state` of an earlier process; what makes no sense is left out and learned anew."""
        low, high = METRICS["gpu.nvlinks_up"].low, METRICS["gpu.nvlinks_up"].high
        for uuid, links in document.items() if isinstance(document, Mapping) else ():
            if isinstance(links, (int, float)) and low <= links <= high:
                self._most_links[str(uuid)] = float(links)

    def forget(self, uuid: str) -> None:
        """The card is settled anew: what it has now is what it should have."""
        self._most_links.pop(uuid, None)
        self._cards.pop(uuid, None)


class _Stall:
    """How long a card idles whose job was busy and still holds its memory."""

    def __init__(self) -> None:
        self._last: Optional[Instant] = None
        self._proven = False  # it was busy for long enough, and the memory has been held ever since
        self._busy: Optional[Instant] = None  # since when
        self._slack: Optional[Instant] = None
        self._idle: Optional[Instant] = None

    def judge(self, sample: GpuSample, taken: Instant, in_use: Optional[bool], gap_s: float) -> Reading:
        needed = ("gpu.utilisation", "gpu.memory_used", "gpu.memory_total")
        load, used, total = (sample.reading(name) or _NOT_READ for name in needed)
        if load.value is None or used.value is None or total.value is None:
            return next(each for each in (load, used, total) if each.value is None)
        self._look_for_gap(taken, gap_s)
        if in_use is False or used.value <= min(HELD_SHARE * total.value, HELD_BYTES):
            self._proven, self._busy, self._slack, self._idle = False, None, None, None
            return value(0.0)
        self._note_work(taken, load.value)
        return value((taken.since(self._idle) or 0.0) if self._proven and self._idle else 0.0)

    def _look_for_gap(self, taken: Instant, gap_s: float) -> None:
        age = None if self._last is None else taken.since(self._last)
        if age is None or not 0 <= age <= gap_s:
            self._busy = self._slack = self._idle = None
            self._proven = self._proven and age is not None
        self._last = taken

    def _note_work(self, taken: Instant, load: float) -> None:
        if load >= BUSY_PERCENT:
            self._busy, self._slack = self._busy or taken, None
            self._proven = self._proven or (taken.since(self._busy) or 0.0) >= BUSY_S
        else:
            self._slack = self._slack or taken
            if (taken.since(self._slack) or 0.0) > DIP_S:
                self._busy = None
        self._idle = (self._idle or taken) if load < IDLE_PERCENT else None


@dataclass
class _Card:
    stall: _Stall = field(default_factory=_Stall)
    load: Reading = _NOT_READ  # of the sample before
    minute: Optional[Instant] = None  # of the newest slow readings
    busy: bool = False  # in the sample of that minute, and in the one before it
    under_load: bool = False  # the same of the minute before, too
    missing: dict[str, Reading] = field(default_factory=dict)

    def next_minute(self, taken: Optional[Instant], load: Reading) -> None:
        """One sample alone may be of the moment at which work began, after the slow readings were taken."""
        age = None if taken is None or self.minute is None else taken.since(self.minute)
        lately = age is not None and 0 < age <= 3 * MINUTE_S
        busy = all(each.value is not None and each.value >= BUSY_PERCENT for each in (self.load, load))
        self.under_load = busy and self.busy and lately
        self.minute, self.busy = taken, busy


def _fan_stopped(sample: GpuSample) -> Reading:
    fan = sample.reading("gpu.fan") or _NOT_READ
    celsius = sample.reading("gpu.temperature") or _NOT_READ
    if fan.value is None or fan.value > 0:
        return value(0.0) if fan.value else fan
    return celsius if celsius.value is None else value(1.0 if celsius.value >= FAN_NEEDED_C else 0.0)


def _lacking(most: Optional[Reading], there: Optional[Reading]) -> Reading:
    """What is missing of the most there can be."""
    most, there = most or _NOT_READ, there or _NOT_READ
    if most.value is None or there.value is None:
        return most if most.value is None else there
    return value(max(0.0, most.value - there.value))
