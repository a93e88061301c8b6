"""Kinds of values that only stories have: figures of any metric, ramps, moments, GPUs by index."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from gpuwatch.config.document import Node
from gpuwatch.config.kinds import (
    Duration,
    Found,
    Kind,
    ScalarKind,
    Schema,
    Text,
    an,
    duration_s,
    number_of,
    size_bytes,
)
from gpuwatch.config.report import Report, did_you_mean, quoted
from gpuwatch.config.table import Record
from gpuwatch.model.event import Scalar
from gpuwatch.model.metric import METRICS, Metric
from gpuwatch.model.reading import UNSUPPORTED, Reading, failed, value

ALL_GPUS = (-1,)
MOST_GPUS = 64
LINE = Text(r"(?=[\s\S]*\S)[\s\S]{1,4000}", "a line of a log")
ANY_TEXT = Text(r"[^\x00-\x1f\x7f-\x9f]{1,300}", "one line of text")
_WORDS = {"unsupported": UNSUPPORTED, "failed": failed("the call failed"), "auto": None}


def figure(text: str, metric: Metric) -> Optional[Reading]:
    """A reading as people write it: 94, 3GiB, 30s, 15%, `unsupported`, `failed`; `auto` (None) takes back what was set.
    Implausible numbers are allowed: stories are about them, too. Raises ValueError."""
    if text in _WORDS:
        return _WORDS[text]
    number: Optional[float] = None
    if metric.unit == "bytes":
        number = size_bytes(text)
    elif metric.unit == "s":
        number = duration_s(text)
    elif metric.unit == "ratio" and text.endswith("%"):
        percent = number_of(text[:-1])
        number = None if percent is None else percent / 100
    number = number_of(text) if number is None else number
    if number is None:
        example = {"bytes": "60GiB", "s": "30s", "ratio": "0.15 or 15%"}.get(metric.unit, "94")
        raise ValueError(f"{quoted(text)} is no reading of {metric.name} (e.g. {example}, unsupported, failed, auto)")
    return value(number)


@dataclass(frozen=True)
class Figure(ScalarKind):
    """A reading of one metric."""

    metric: Metric

    @property
    def words(self) -> str:
        """What it is."""
        return f"a reading of {self.metric.name}"

    def parse(self, text: str) -> Optional[Reading]:
        """See `figure`."""
        return figure(text, self.metric)

    def schema(self) -> Schema:
        """A number, or text."""
        return {"type": ["number", "string"]}


@dataclass(frozen=True)
class Number(ScalarKind):
    """A plain number."""

    low: float = 0.0
    high: float = 1e9

    @property
    def words(self) -> str:
        """With its range."""
        return f"a number from {self.low:g} to {self.high:g}"

    def parse(self, text: str) -> float:
        """The number."""
        number = number_of(text)
        if number is None or not self.low <= number <= self.high:
            raise ValueError(f"{quoted(text)} is not {self.words}")
        return number

    def schema(self) -> Schema:
        """A number."""
        return {"type": "number"}


@dataclass(frozen=True)
class Size(ScalarKind):
    """Bytes."""

    @property
    def words(self) -> str:
        """With an example."""
        return "a size such as 60GiB"

    def parse(self, text: str) -> float:
        """The bytes."""
        number = size_bytes(text)
        if number is None:
            raise ValueError(f"{quoted(text)} is not {self.words}")
        return number

    def schema(self) -> Schema:
        """Text or a number."""
        return {"type": ["number", "string"]}


@dataclass(frozen=True)
class Shift(ScalarKind):
    """A signed duration: +1h, -30s."""

    @property
    def words(self) -> str:
        """With examples."""
        return "a shift such as +1h or -30s"

    def parse(self, text: str) -> float:
        """Seconds."""
        seconds = duration_s(text[1:]) if text[:1] in ("+", "-") else None
        if seconds is None:
            raise ValueError(f"{quoted(text)} is not {self.words}")
        return -seconds if text[0] == "-" else seconds

    def schema(self) -> Schema:
        """Text."""
        return {"type": "string"}


@dataclass(frozen=True)
class Gpus(Kind):
    """0, [0, 1] or all."""

    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """Indices; ALL_GPUS for all."""
        if node.kind == "text" and node.text == "all":
            return Found(ALL_GPUS, node.place)
        items = node.items if node.kind == "list" else (node,)
        indices = []
        for item in items:
            if item.kind != "text" or not re.fullmatch(r"\d{1,2}", item.text) or int(item.text) >= MOST_GPUS:
                said = quoted(item.text) if item.kind == "text" else an(item)
                report.error(item.place, path, f"{said} is not the index of a GPU (0, [0, 1] or all)")
                return None
            indices.append(int(item.text))
        return Found(tuple(indices), node.place)

    def schema(self) -> Schema:
        """Any of the three."""
        return {"anyOf": [{"const": "all"}, {"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}


@dataclass(frozen=True)
class Moments(Kind):
    """Two moments of the story, the earlier one first."""

    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """Seconds."""
        texts = [item.text for item in node.items if item.kind == "text"]
        seconds = [duration_s(text) for text in texts]
        if node.kind != "list" or len(node.items) != 2 or len(seconds) != 2 or None in seconds:
            report.error(node.place, path, "expected two moments such as [15s, 20s]")
            return None
        first, last = seconds
        if first is None or last is None or first > last:
            report.error(node.place, path, f"{texts[0]} is later than {texts[1]}")
            return None
        return Found((first, last), node.place)

    def schema(self) -> Schema:
        """Two durations."""
        return {"type": "array", "items": Duration().schema(), "minItems": 2, "maxItems": 2}


@dataclass(frozen=True)
class Figures(Kind):
    """{temperature: 94, power: 71}: what is meant is found once it is known what the readings are of."""

    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """The nodes by name."""
        if node.kind != "table" or not node.entries:
            report.error(node.place, path, f"expected readings such as {{temperature: 94}}, not {an(node)}")
            return None
        good = True
        for key, item in node.entries:
            if key.kind != "text" or item.kind != "text":
                report.error(item.place, path, f"expected one reading, not {an(item)}")
                good = False
        return Found(node, node.place) if good else None

    def schema(self) -> Schema:
        """An object."""
        return {"type": "object"}


@dataclass(frozen=True)
class Ramps(Kind):
    """{temperature: [61, 94]}: from one to the other in a straight line."""

    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """The nodes by name."""
        good = node.kind == "table" and bool(node.entries)
        for key, item in node.entries:
            pair = item.kind == "list" and len(item.items) == 2 and all(one.kind == "text" for one in item.items)
            good = good and key.kind == "text" and pair
        if not good:
            report.error(node.place, path, "expected ramps such as {temperature: [61, 94]}")
        return Found(node, node.place) if good else None

    def schema(self) -> Schema:
        """An object of pairs."""
        return {"type": "object"}


@dataclass(frozen=True)
class Each(Kind):
    """A list of records; what is wrong with one does not hide what is wrong with another."""

    record: Record
    most: int = 1000

    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """A tuple of the good ones."""
        if node.kind != "list" or len(node.items) > self.most:
            said = f"a list of {len(node.items)}" if node.kind == "list" else an(node)
            report.error(node.place, path, f"expected a list of at most {self.most} entries, not {said}")
            return None
        found = [self.record.check(item, f"{path}[{number}]", report) for number, item in enumerate(node.items)]
        return Found(tuple(each for each in found if each is not None), node.place)

    def schema(self) -> Schema:
        """An array."""
        return {"type": "array", "items": self.record.schema(), "maxItems": self.most}


@dataclass(frozen=True)
class Facts(Kind):
    """Free names with single values."""

    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """A mapping of name to scalar."""
        if node.kind != "table":
            report.error(node.place, path, f"expected names with values, not {an(node)}")
            return None
        found: dict[str, Scalar] = {}
        for key, item in node.entries:
            if key.kind != "text" or item.kind not in ("text", "nothing"):
                report.error(item.place, path, f"expected a single value, not {an(item)}")
                return None
            found[key.text] = None if item.kind == "nothing" else _scalar(item.text)
        return Found(found, node.place)

    def schema(self) -> Schema:
        """An object of scalars."""
        return {"type": "object"}


def _scalar(text: str) -> Scalar:
    if text in ("true", "false"):
        return text == "true"
    number = number_of(text)
    if number is None:
        return text
    return int(number) if re.fullmatch(r"[+-]?\d+", text) else number


@dataclass(frozen=True)
class Order(Kind):
    """What somebody tells gpuwatch: `disarm`, or {what: maintenance-on, for: 2h, comment: ...}."""

    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """The arguments as on the control socket."""
        if node.kind == "text":
            return Found({"what": node.text}, node.place)
        found = Facts().check(node, path, report)
        if found is None:
            return None
        arguments = dict(found.value)
        if "for" in arguments:
            arguments["for_s"] = duration_s(str(arguments.pop("for")))
        if not isinstance(arguments.get("what"), str) or arguments.get("for_s", 0.0) is None:
            report.error(node.place, path, "expected e.g. {what: disarm, for: 2h, comment: fans are replaced}")
            return None
        return Found(arguments, node.place)

    def schema(self) -> Schema:
        """Text or an object."""
        return {"type": ["string", "object"]}


@dataclass(frozen=True)
class ByName(Kind):
    """{NAME: {...}, ...}: records under the names of what they describe."""

    name: ScalarKind
    record: Record

    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """A mapping of name to Found record."""
        if node.kind != "table":
            report.error(node.place, path, f"expected names with their settings, not {an(node)}")
            return None
        found: dict[str, Found] = {}
        good = True
        for key, item in node.entries:
            name = self.name.check(key, path, report)
            empty = Node("table", item.place) if item.kind == "nothing" else item
            one = self.record.check(empty, f"{path}.{key.text[:60]}", report)
            if name is None or one is None:
                good = False
            elif name.value in found:
                report.error(key.place, path, f"{quoted(key.text)} is given twice")
            else:
                found[name.value] = one
        return Found(found, node.place) if good else None

    def schema(self) -> Schema:
        """An object of records."""
        return {"type": "object", "additionalProperties": self.record.schema()}


def metric_of(key: Node, scope: str, path: str, report: Report) -> Optional[Metric]:
    """The metric that a short or full name means, of one scope; None after a problem."""
    full = f"{'gpu' if scope == 'gpu' else 'unit' if scope == 'unit' else 'host'}.{key.text}"
    name = key.text if "." in key.text else full
    metric = METRICS.get(name)
    if metric is not None and metric.scope == scope:
        return metric
    short = {each.name.partition(".")[2]: each for each in METRICS.values() if each.scope == scope}
    hint = did_you_mean(key.text, [*short, *(each.name for each in short.values())])
    report.error(key.place, path, f"no metric {quoted(key.text)} of a {scope.upper()}{hint}")
    return None


def readings_of(node: Node, scope: str, path: str, report: Report) -> Mapping[str, Optional[Reading]]:
    """What a Figures node says, by the full names of metrics."""
    found: dict[str, Optional[Reading]] = {}
    for key, item in node.entries:
        metric = metric_of(key, scope, path, report)
        if metric is None:
            continue
        try:
            found[metric.name] = figure(item.text, metric)
        except ValueError as error:
            report.error(item.place, f"{path}.{key.text}", str(error))
    return found


def ramps_of(node: Node, scope: str, path: str, report: Report) -> Mapping[str, tuple[float, float]]:
    """What a Ramps node says, by the full names of metrics."""
    found: dict[str, tuple[float, float]] = {}
    for key, item in node.entries:
        metric = metric_of(key, scope, path, report)
        if metric is None:
            continue
        ends = []
        for end in item.items:
            try:
                reading = figure(end.text, metric)
            except ValueError as error:
                report.error(end.place, f"{path}.{key.text}", str(error))
                continue
            if reading is None or reading.value is None:
                report.error(end.place, f"{path}.{key.text}", "a ramp goes from one number to another")
            else:
                ends.append(reading.value)
        if len(ends) == 2:
            found[metric.name] = (ends[0], ends[1])
    return found
