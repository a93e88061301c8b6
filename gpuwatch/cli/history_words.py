"""History in words: what a value is called, why nobody looked, and whether a card was there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def explain(known: Known, now: float, zone: tzinfo, metrics: Sequence[str], span: Optional[tuple[float, float]]) -> str:
    """One sentence: there, not there, or why nobody can say; below it what is known. `span`: of the history."""
    moment = f"{shown(known.asked_utc_s, zone, now)} ({_from_now(now - known.asked_utc_s)})"
    index = known.gpu.index if known.row is None or known.row.index is None else known.row.index
    card = f"GPU {index}"
    if known.there and known.row is not None and known.age_s is not None:
        when = "at that second" if known.age_s < 1 else f"{ago(known.age_s)} before"
        lines = [paint(f"{card} was there at {moment}; read {when}.", "green"), f"  {summary(known.row, metrics)}"]
    elif known.there is False:
        how = "the driver had lost it" if known.why == "lost" else "the driver did not list it"
        lines = [paint(f"{card} was NOT there at {moment}: {how}.", "red")]
    else:
        reason = _reason(known, now, zone, span)
        lines = [paint(f"Nobody can say whether {card} was there at {moment}: {reason}.", "yellow")]
    if not known.there and known.why != "never_seen":
        for word, row in (("Before", known.before), ("After", known.after)):
            seen = (
                "never seen" if row is None else f"there at {shown(row.at.utc_s, zone, now)}, {summary(row, metrics)}"
            )
            lines.append(f"  {word}: {seen}")
    if known.twice:
        lines.append("  The clock was set back: this time of day came twice, and this is about the second.")
    lines.append(safe(f"  {known.gpu.name}  {known.gpu.uuid}  {known.gpu.pci}"))
    return "\n".join(lines)


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


def _from_now(age_s: float) -> str:
    if abs(age_s) < 1:
        return "now"
    return f"{ago(age_s)} ago" if age_s > 0 else f"in {ago(-age_s)}"


def _reason(known: Known, now: float, zone: tzinfo, span: Optional[tuple[float, float]]) -> str:
    if known.why == "never_seen":
        return "it is not in the history"
    if span is not None and known.why == "before_history":
        return f"the history begins at {shown(span[0], zone, now)}"
    if span is not None and known.why == "after_history":
        return f"nothing is recorded after {shown(span[1], zone, now)}"
    words = WHY.get(known.why, known.why.replace("_", " "))
    return words if known.gap is None else f"{words} {_bounds(known.gap, now, zone)}"


def _bounds(gap: Gap, now: float, zone: tzinfo) -> str:
    detail = f" ({safe(gap.detail)})" if gap.detail else ""
    if gap.until_utc_s is None:
        return f"since {shown(gap.from_utc_s, zone, now)}{detail}"
    return f"from {shown(gap.from_utc_s, zone, now)} to {shown(gap.until_utc_s, zone, now)}{detail}"
