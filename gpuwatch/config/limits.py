"""Metrics in rules: their names, and limits in each one's own unit and range, or in that of a difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from gpuwatch.config.kinds import (
    ScalarKind,
    Schema,
    duration_s,
    duration_text,
    number_of,
    number_text,
    size_bytes,
    size_text,
)
from gpuwatch.config.report import did_you_mean, quoted
from gpuwatch.model.metric import METRICS, Metric


@dataclass(frozen=True)
class Limit(ScalarKind):
    """A limit of a metric. Its unit and range come from the metric beside it, so the text is kept."""

    @property
    def words(self) -> str:
        """What is expected."""
        return "a number in the metric's unit"

    def parse(self, text: str) -> str:
        """The text itself; `limit` reads it."""
        return text

    def schema(self) -> Schema:
        """A number, or a size or duration as text."""
        return {"type": ["number", "string"], "pattern": "^[+-]?[0-9]"}


@dataclass(frozen=True)
class MetricName(ScalarKind):
    """The name of a metric, of one scope if said."""

    scope: str = ""

    @property
    def words(self) -> str:
        """What is expected."""
        return "the name of a metric such as gpu.temperature"

    def parse(self, text: str) -> str:
        """The name."""
        if text not in METRICS:
            raise ValueError(f"no metric {quoted(text)}{did_you_mean(text, METRICS) or '; see gpuwatch config schema'}")
        if self.scope and METRICS[text].scope != self.scope:
            raise ValueError(f"'{text}' is not a metric of a {self.scope.upper()}")
        return text

    def schema(self) -> Schema:
        """The names."""
        return {"enum": [name for name, metric in METRICS.items() if self.scope in ("", metric.scope)]}


def _range(metric: Metric, change: bool) -> tuple[float, float]:
    """What a reading can be, or how far two can be apart."""
    span = metric.high - metric.low
    return (-span, span) if change else (metric.low, metric.high)


def _number_words(metric: Metric, change: bool) -> str:
    low, high = (_limit_text(metric, end) for end in _range(metric, change))
    units = {
        "C": "a number of degrees Celsius",
        "%": "a number of percent",
        "W": "a number of watts",
        "MHz": "a number of megahertz",
        "ratio": "a ratio",
        "0/1": "a number between no and yes",
        "bytes": "a size such as 60GiB",
        "": "a number",
        "J": "a number of joules",
        "rpm": "a number of revolutions per minute",
    }
    if metric.unit == "s":
        return "a duration such as 30s"
    return f"{units.get(metric.unit, f'a number of {metric.unit}')} ({low} to {high})"


def _limit_text(metric: Metric, value: float) -> str:
    return limit_shown(metric, value) if metric.unit != "s" else number_text(value)


def limit_shown(metric: Metric, value: float) -> str:
    """A limit as the file would write it: 60GiB, 30s, 95, -2GiB."""
    sign, number = ("-", -value) if value < 0 else ("", value)
    if metric.unit == "bytes":
        return sign + size_text(number)
    return sign + (duration_text(number) if metric.unit == "s" else number_text(number))


def _read_number(text: str, metric: Metric, change: bool) -> Optional[float]:
    if change and text[:1] in ("-", "+"):
        number = _read_number(text[1:], metric, False)
        return -number if number is not None and text[0] == "-" else number
    if metric.unit == "bytes":
        return size_bytes(text)
    if metric.unit == "s":
        seconds = duration_s(text)
        return number_of(text) if seconds is None else seconds
    return number_of(text)


def limit(text: str, metric: Metric, above: bool, change: bool = False) -> float:
    """The number of a limit; `change`: of how much the value changes. Raises ValueError when it is none, or one that
    nothing can pass."""
    number = _read_number(text, metric, change)
    words = _number_words(metric, change)
    if number is None:
        bare = text.rstrip(" %CWMHz°")
        hint = f"; write the number alone: {bare}" if bare != text and number_of(bare) is not None else ""
        raise ValueError(f"{quoted(text)} is not {words}{hint}")
    low, high = _range(metric, change)
    if not low <= number <= high:
        hint = ""
        if metric.unit == "ratio" and 1 < number <= 100:
            hint = f"; {number_text(number)} % is {number_text(number / 100)}"
        raise ValueError(f"{quoted(text)} is not {words}{hint}")
    if number == (high if above else low):
        word = "above" if above else "below"
        ends = f"{_limit_text(metric, low)} to {_limit_text(metric, high)}"
        what = "difference" if change else "reading"
        raise ValueError(f"no {what} can be {word} {text}: {metric.name} {'differs by' if change else 'is'} {ends}")
    return number
