"""Kinds for amounts: sizes in bytes, and shares in percent."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuwatch.config.kinds import ScalarKind, Schema, number_of, number_text, size_bytes, size_text
from gpuwatch.config.report import quoted

_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,2})?)\s?%")


@dataclass(frozen=True)
class Size(ScalarKind):
    """Bytes, written with a unit: 512MiB, 60GiB."""

    low: int
    high: int

    @property
    def words(self) -> str:
        """With an example."""
        return "a size such as 60GiB"

    def parse(self, text: str) -> int:
        """Bytes."""
        number = size_bytes(text)
        if number is None:
            raise ValueError(f"{quoted(text)} is not {self.words}")
        if not self.low <= number <= self.high:
            unit = " (its unit is missing)" if number_of(text) is not None else ""
            raise ValueError(f"{quoted(text)} is outside {size_text(self.low)} to {size_text(self.high)}{unit}")
        return int(number)

    def schema(self) -> Schema:
        """A string; the range is said in words only."""
        return {"type": "string", "pattern": r"^\d{1,15}(?:\.\d{1,3})?\s?(?:KiB|MiB|GiB|TiB|B)$"}

    def show(self, value: int) -> str:
        """The largest unit that keeps it exact."""
        text = size_text(value)
        return text if number_of(text) is None else f"{text}B"


@dataclass(frozen=True)
class Percent(ScalarKind):
    """A share, written in percent (15%) and kept as a ratio (0.15). The ends are percent."""

    low: int
    high: int

    @property
    def words(self) -> str:
        """With its range."""
        return f"a share from {self.low}% to {self.high}%"

    def parse(self, text: str) -> float:
        """The ratio."""
        match = _PERCENT.fullmatch(text)
        if match is not None and self.low <= float(match[1]) <= self.high:
            return round(float(match[1]) / 100, 4)
        number = number_of(text)
        hint = "" if number is None else f"; {number_text(number)}% is written with its sign"
        if number is not None and 0 < number < 1:
            hint = f"; write {self.show(number)}"
        raise ValueError(f"{quoted(text)} is not {self.words}{hint}")

    def schema(self) -> Schema:
        """A string; the range is said in words only."""
        return {"type": "string", "pattern": rf"^{_PERCENT.pattern}$"}

    def show(self, value: float) -> str:
        """In percent."""
        return f"{number_text(round(value * 100, 2))}%"
