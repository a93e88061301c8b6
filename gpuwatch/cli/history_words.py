"""History in words: what a value is called, why nobody looked, and whether a card was there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Optional

from gpuwatch.cli.moments import shown
from gpuwatch.cli.output import GIB, ago, paint, safe
from gpuwatch.model.metric import METRICS
from gpuwatch.store.history_rows import Gap, Known, Row

# Reasons of gaps, and states of the driver, completing "because ..."
WHY = {
    "gpuwatch_down": "gpuwatch was not running",
    "host_down": "the host was down or restarted",
    "not_looking": "gpuwatch made no cycle (the machine was suspended or overloaded)",
    "not_written": "the disk did not take what was seen",
    "put_aside": "what was before is in a broken file, put aside",
    "not_recorded": "nothing was recorded",
    "driver_late": "the GPU driver was too slow",
    "driver_silent": "the GPU driver did not answer",
    "driver_absent": "no NVIDIA driver was loaded",
    "driver_no_library": "the driver's library was missing",
    "driver_mismatch": "driver library and kernel module did not match",
    "driver_failed": "the GPU driver could not be used",
    "driver_released": "the driver was left alone for a repair",
    "driver_paused": "the driver was left alone after an Xid 119 or 120",
    "unreadable": "the driver gave no reading of this card",
}
_ALARMING = {
    "gpu.hw_thermal_slowdown": "the hardware slows it down because of heat",
    "gpu.sw_thermal_slowdown": "the driver slows it down because of heat",
    "gpu.hw_power_brake": "the power supply slows it down",
    "gpu.row_remap_failed": "a memory row could not be replaced",
    "gpu.row_remap_pending": "a memory row waits for a reset",
}
_WHOLE = ("C", "W", "MHz", "J", "rpm")  # units whose decimals are noise on a screen


def label(metric: str) -> str:
    """slowdown margin"""
    return metric.split(".", 1)[1].replace("_", " ")


def cell(metric: str, value: Optional[float]) -> str:
    """A value with its unit, as on the status screen."""
    if value is None:
        return "-"
    unit = METRICS[metric].unit
    if unit == "bytes":
        return f"{value / GIB:.1f} GiB"
    if unit in ("ratio", "%"):
        return f"{100 * value if unit == 'ratio' else value:.0f}%"
    if unit == "0/1":
        return "yes" if value > 0.5 else "no"
    digits = f"{value:.0f}" if unit in _WHOLE or value == int(value) else f"{value:g}"
    return f"{digits} {unit}".rstrip()


@dataclass(frozen=True)
class Viewer:
    """Who asks, when, and about which metrics. `span`: when the history begins and ends."""

    now_utc_s: float
    zone: tzinfo
    metrics: Sequence[str] = ()
    span: Optional[tuple[float, float]] = None

    def shown(self, utc_s: float) -> str:
        """A moment."""
        return shown(utc_s, self.zone, self.now_utc_s)

    def asked(self, utc_s: float) -> str:
        """A moment, and how far it is from now."""
        age_s = self.now_utc_s - utc_s
        away = "now" if abs(age_s) < 1 else f"{ago(age_s)} ago" if age_s > 0 else f"in {ago(-age_s)}"
        return f"{self.shown(utc_s)} ({away})"


def explain(known: Known, viewer: Viewer) -> str:
    """One sentence about a card: there, not there, or why nobody can say; below it what is known."""
    lines = [_sentence(known, viewer)]
    if known.there and known.row is not None:
        lines.append(f"  {summary(known.row, viewer.metrics)}")
    elif known.why != "never_seen":
        for word, row in (("Before", known.before), ("After", known.after)):
            seen = "never seen"
            if row is not None:
                seen = f"there at {viewer.shown(row.at.utc_s)}, {summary(row, viewer.metrics)}"
            lines.append(f"  {word}: {seen}")
    if known.twice:
        lines.append("  The clock was set back: this time of day came twice, and this is about the second.")
    lines.append(safe(f"  {known.gpu.name}  {known.gpu.uuid}  {known.gpu.pci}"))
    return "\n".join(lines)


def explain_all(answers: Sequence[Known], viewer: Viewer) -> str:
    """One sentence about all cards, then a line for each."""
    there, moment = sum(known.there is True for known in answers), viewer.asked(answers[0].asked_utc_s)
    count = f"All {there}" if there == len(answers) else f"{there} of {len(answers)}"
    lines = [f"{count} GPUs were there at {moment}."]
    if all(known.there is None for known in answers):
        lines = [paint(f"Nobody can say which GPUs were there at {moment}.", "yellow")]
    for known in answers:
        if known.there and known.row is not None:
            lines.append(f"  {_card(known)}  {summary(known.row, viewer.metrics)}")
        elif known.there is False:
            lines.append(paint(f"  {_card(known)}  NOT there: {_absence(known)}", "red"))
        else:
            lines.append(paint(f"  {_card(known)}  unknown: {_reason(known, viewer)}", "yellow"))
    if any(known.twice for known in answers):
        lines.append("  The clock was set back: this time of day came twice, and this is about the second.")
    return "\n".join(lines)


def _sentence(known: Known, viewer: Viewer) -> str:
    card, moment = _card(known), viewer.asked(known.asked_utc_s)
    if known.there:
        late = f" It was read {ago(known.age_s)} before, and not since." if known.age_s else ""
        return paint(f"{card} was there at {moment}.{late}", "green")
    if known.there is False:
        return paint(f"{card} was NOT there at {moment}: {_absence(known)}.", "red")
    return paint(f"Nobody can say whether {card} was there at {moment}: {_reason(known, viewer)}.", "yellow")


def _card(known: Known) -> str:
    """With the index that it had at that moment."""
    return f"GPU {known.gpu.index if known.row is None or known.row.index is None else known.row.index}"


def _absence(known: Known) -> str:
    return "the driver had lost it" if known.why == "lost" else "the driver did not list it"


def summary(row: Row, metrics: Sequence[str] = ()) -> str:
    """The values asked for, or the main ones and what is alarming, in a line."""
    values = row.values
    if metrics:
        return ", ".join(f"{label(metric)} {cell(metric, values.get(metric))}" for metric in metrics)
    parts = [
        _value(values, "gpu.temperature"),
        _value(values, "gpu.slowdown_margin", " to slowdown"),
        _part_of(values, "gpu.power", "gpu.power_limit"),
        _part_of(values, "gpu.memory_used", "gpu.memory_total"),
        _value(values, "gpu.utilisation"),
        _value(values, "gpu.sm_clock"),
        *(words if values.get(metric) else "" for metric, words in _ALARMING.items()),
        _value(values, "gpu.ecc_uncorrected", " uncorrected memory errors")
        if values.get("gpu.ecc_uncorrected")
        else "",
    ]
    return ", ".join(filter(None, parts)) or "no value was read"


def _value(values: Mapping[str, Optional[float]], metric: str, words: str = "") -> str:
    value = values.get(metric)
    return "" if value is None else cell(metric, value) + words


def _part_of(values: Mapping[str, Optional[float]], part: str, whole: str) -> str:
    if values.get(part) is None or values.get(whole) is None:
        return _value(values, part)
    return f"{_value(values, part).rsplit(' ', 1)[0]} of {_value(values, whole)}"


def _reason(known: Known, viewer: Viewer) -> str:
    if known.why == "never_seen":
        return "it is not in the history"
    if viewer.span is not None and known.why == "before_history":
        return f"the history begins at {viewer.shown(viewer.span[0])}"
    if viewer.span is not None and known.why == "after_history":
        return f"nothing is recorded after {viewer.shown(viewer.span[1])}"
    words = WHY.get(known.why, known.why.replace("_", " "))
    return words if known.gap is None else f"{words} {_bounds(known.gap, viewer)}"


def _bounds(gap: Gap, viewer: Viewer) -> str:
    detail = f" ({safe(gap.detail)})" if gap.detail else ""
    if gap.until_utc_s is None:
        return f"since {viewer.shown(gap.from_utc_s)}{detail}"
    return f"from {viewer.shown(gap.from_utc_s)} to {viewer.shown(gap.until_utc_s)}{detail}"
