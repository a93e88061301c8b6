"""Kinds of values: how each is read from text, described in errors, shown again, and put in the JSON Schema."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from gpuwatch.config.document import Node
from gpuwatch.config.report import Place, Report, did_you_mean, quoted

Schema = dict[str, Any]  # a JSON Schema, or a part of one

_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d{1,12}(?:\.\d{1,6})?(?:ms|[smhd]))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_NUMBER = re.compile(r"[+-]?\d{1,18}(?:\.\d{1,9})?")
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)\s?(KiB|MiB|GiB|TiB|B)?")
_UNIT_BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}


@dataclass(frozen=True)
class Found:
    """A checked value and where it was written."""

    value: Any
    place: Place


class Kind(ABC):
    """What a setting may hold. Subclasses are frozen dataclasses: data about data."""

    @abstractmethod
    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """The value, or None after telling `report` what is wrong."""

    @abstractmethod
    def schema(self) -> Schema:
        """The JSON Schema of the value."""

    def show(self, value: Any) -> Any:
        """The value as plain data that the file could hold."""
        return value


def an(node: Node) -> str:
    """What a node is, for "... expected, not a list"."""
    return {"list": "a list", "table": "a group of settings", "nothing": "nothing", "text": "a single value"}[node.kind]


class ScalarKind(Kind):
    """One text. `parse` raises ValueError with the sentence that follows the path."""

    @abstractmethod
    def parse(self, text: str) -> Any:
        """The value."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What is expected, e.g. "a duration such as 30s"."""

    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """One text, parsed."""
        if node.kind != "text":
            text = f"has no value; expected {self.words}" if node.kind == "nothing" else ""
            report.error(node.place, path, text or f"expected {self.words}, not {an(node)}")
            return None
        try:
            return Found(self.parse(node.text), node.place)
        except ValueError as error:
            report.error(node.place, path, str(error))
            return None


@dataclass(frozen=True)
class Choice(ScalarKind):
    """One of a few words. `absent`: words that people may expect, and `why` they are not here."""

    names: tuple[str, ...]
    absent: tuple[str, ...] = ()
    why: str = "is not in this version"

    @property
    def words(self) -> str:
        """The words."""
        return f"one of {', '.join(self.names)}" if len(self.names) > 1 else self.names[0]

    def parse(self, text: str) -> str:
        """The word itself."""
        if text in self.names:
            return text
        if text in self.absent:
            raise ValueError(f"{quoted(text)} {self.why}; there is {', '.join(self.names)}")
        raise ValueError(f"{quoted(text)} is not {self.words}{did_you_mean(text, self.names)}")

    def schema(self) -> Schema:
        """An enumeration."""
        return {"enum": list(self.names)}


@dataclass(frozen=True)
class Flag(ScalarKind):
    """true or false, in the spellings of YAML 1.1."""

    @property
    def words(self) -> str:
        """true or false."""
        return "true or false"

    def parse(self, text: str) -> bool:
        """The truth."""
        lower = text.lower()
        if lower in ("true", "yes", "on"):
            return True
        if lower in ("false", "no", "off"):
            return False
        raise ValueError(f"{quoted(text)} is not true or false")

    def schema(self) -> Schema:
        """A boolean."""
        return {"type": "boolean"}


@dataclass(frozen=True)
class Text(ScalarKind):
    """A text that matches `pattern` as a whole. `secret`: never repeated in an error."""

    pattern: str
    what: str  # "a name of letters, digits, '-', '_' and '.'"
    secret: bool = False

    @property
    def words(self) -> str:
        """What is expected."""
        return self.what

    def parse(self, text: str) -> str:
        """The text itself."""
        if re.fullmatch(self.pattern, text):
            return text
        raise ValueError(f"expected {self.what}" if self.secret else f"{quoted(text)} is not {self.what}")

    def schema(self) -> Schema:
        """A string with its pattern."""
        return {"type": "string", "pattern": f"^(?:{self.pattern})$"}


NAME = Text(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", "a name of letters, digits, '-', '_' and '.'")
ONE_LINE = Text(
    r"(?=.*\S)[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,200}", "one line of at most 200 characters"
)  # what people write for people


@dataclass(frozen=True)
class Count(ScalarKind):
    """A whole number, ends included."""

    low: int
    high: int

    @property
    def words(self) -> str:
        """With its range."""
        return f"a whole number from {self.low} to {self.high}"

    def parse(self, text: str) -> int:
        """The number."""
        if re.fullmatch(r"[+-]?\d{1,18}", text) and self.low <= int(text) <= self.high:
            return int(text)
        raise ValueError(f"{quoted(text)} is not {self.words}")

    def schema(self) -> Schema:
        """An integer with its range."""
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True)
class Duration(ScalarKind):
    """Seconds, written with a unit: 250ms, 30s, 10m, 4h, 1h30m, 7d."""

    low_s: float = 0.0
    high_s: float = 366 * 86400.0

    @property
    def words(self) -> str:
        """With an example."""
        return "a duration such as 30s, 10m or 4h"

    def parse(self, text: str) -> Optional[float]:
        """Seconds."""
        seconds = duration_s(text)
        if seconds is None:
            unit = " (its unit is missing)" if _NUMBER.fullmatch(text) else ""
            raise ValueError(f"{quoted(text)} is not {self.words}{unit}")
        if not self.low_s <= seconds <= self.high_s:
            limits = f"{duration_text(self.low_s)} to {duration_text(self.high_s)}"
            raise ValueError(f"{quoted(text)} is outside {limits}")
        return seconds

    def schema(self) -> Schema:
        """A string; the range is said in words only."""
        return {"type": "string", "pattern": f"^(?:0|{_DURATION.pattern})$"}

    def show(self, value: Any) -> str:
        """The shortest exact writing."""
        return duration_text(value)


def duration_s(text: str) -> Optional[float]:
    """Seconds of "1h30m"; None when it is none. A bare 0 needs no unit."""
    if text == "0":
        return 0.0
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _UNIT_S[unit] for number, unit in _DURATION_PART.findall(text))


def duration_text(seconds: float) -> str:
    """The shortest exact writing in one unit: 90s, 10m, 250ms."""
    milliseconds = round(seconds * 1000)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds % size == 0 and milliseconds:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"


def number_of(text: str) -> Optional[float]:
    """A plain decimal number; None for anything else, "nan" and "1e3" included."""
    return float(text) if _NUMBER.fullmatch(text) else None


def size_bytes(text: str) -> Optional[float]:
    """Bytes of "60GiB" or of a bare number; None when it is none."""
    match = _SIZE.fullmatch(text)
    return float(match[1]) * _UNIT_BYTES[match[2] or "B"] if match else None


def size_text(value: float) -> str:
    """The largest unit that keeps it exact."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if value >= _UNIT_BYTES[unit] and value % _UNIT_BYTES[unit] == 0:
            return f"{int(value // _UNIT_BYTES[unit])}{unit}"
    return number_text(value)


def number_text(value: float) -> str:
    """A number without a needless ".0"."""
    return str(int(value)) if value == int(value) else repr(value)


@dataclass(frozen=True)
class Labels(Kind):
    """Free names with single values: {site: sh1, rack: A03, u: 12}. Later files add and override."""

    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """A mapping of name to Found text."""
        if node.kind == "nothing":
            return Found({}, node.place)
        if node.kind != "table":
            report.error(node.place, path, f"expected labels such as {{site: sh1}}, not {an(node)}")
            return None
        found: dict[str, Found] = {}
        for key, value in node.entries:
            name = NAME.check(key, path, report)
            if value.kind != "text":
                report.error(value.place, path, f"the value of a label is a single text or number, not {an(value)}")
            elif name and name.value in found:
                report.error(key.place, path, f"label {quoted(key.text)} is given twice")
            elif name:
                found[name.value] = Found(value.text, value.place)
        return Found(found, node.place)

    def schema(self) -> Schema:
        """An object of scalars."""
        return {
            "type": ["object", "null"],
            "propertyNames": {"pattern": f"^(?:{NAME.pattern})$"},
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        }


@dataclass(frozen=True)
class ListOf(Kind):
    """A list of values of one kind, each once. `adds`: the lists of all files count together."""

    kind: Kind
    least: int = 0
    most: int = 100
    adds: bool = False

    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """A tuple of Found values."""
        if node.kind != "list":
            hint = f": [{node.text}]" if node.kind == "text" and quoted(node.text).startswith("'") else ""
            hint = hint if len(hint) < 60 else ""
            text = "has no value; write [] for an empty list" if node.kind == "nothing" and not self.least else ""
            report.error(node.place, path, text or f"expected a list{hint}, not {an(node)}")
            return None
        if not self.least <= len(node.items) <= self.most:
            text = f"expected {self.least} to {self.most} values, not {len(node.items)}"
            report.error(node.place, path, text if node.items else "is empty")
            return None
        found = [self.kind.check(item, f"{path}[{number}]", report) for number, item in enumerate(node.items)]
        good = tuple(one for one in found if one is not None)
        for number, item in enumerate(node.items):
            if item.kind == "text" and item.text in [before.text for before in node.items[:number]]:
                report.error(item.place, f"{path}[{number}]", f"{quoted(item.text)} is in the list already")
        return Found(good, node.place) if len(good) == len(node.items) else None

    def schema(self) -> Schema:
        """An array."""
        return {"type": "array", "items": self.kind.schema(), "minItems": self.least, "maxItems": self.most}

    def show(self, value: Any) -> list[Any]:
        """Each value shown."""
        return [self.kind.show(one) for one in value]


def plain(found: Any) -> Any:
    """The values without their places."""
    if isinstance(found, Found):
        return plain(found.value)
    if isinstance(found, tuple):
        return tuple(plain(one) for one in found)
    if isinstance(found, Mapping):
        return {name: plain(one) for name, one in found.items()}
    return found
