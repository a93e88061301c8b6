"""A YAML text as a tree of nodes that know their line and column.

Built from the parser's events, not from its constructor: no type is guessed ("on" stays "on"), no
object is made, and depth and size are bounded before anything is allocated for them. Aliases are
the same node again, counted as often as they are used, so that a small file can't unfold into a
large one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Optional

import yaml

from gpuwatch.config.report import Place, Report, shown

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 20
MAX_NODES = 20_000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
# What YAML 1.1 does not let stand in a text at all (its section 5.1).
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\ufeff")
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")

# What the parser says -> what a tired person can use. The first part that occurs decides.
_WORDS = (
    ("mapping values are not allowed", "a ':' where none can stand (wrong indentation, or missing quotes)"),
    ("could not find expected ':'", "a name without its ':'"),
    ("could not found expected ':'", "a name without its ':'"),
    ("end of stream", "a quote that is opened is not closed"),
    ("',' or ']'", "a list opened with '[' is not continued or closed"),
    ("',' or '}'", "a '{' is not continued or closed"),
    ("expected key", "the indentation does not fit the lines above"),
    ("'-' indicator", "the indentation does not fit the lines above"),
    ("<block end>", "the indentation does not fit the lines above"),
    ("cannot start any token", "a text that begins like this needs quotes"),
    ("document start", "a line that belongs to no setting"),
    ("nesting depth", "nested too deep"),
    ("node content", "a value, a list or a '{' is not continued"),
    ("unknown escape", "an unknown \\ in double quotes (single quotes take it as it is)"),
)


# Noticed long after the place that matters, which is where the quote or the name begins.
_TOLD_LATE = ("find expected ':'", "found expected ':'", "end of stream")


@dataclass(frozen=True)
class Node:
    """One piece of the file. `kind`: text | list | table | nothing (an empty value, ~ or null)."""

    kind: str
    place: Place
    text: str = ""
    items: tuple[Node, ...] = ()
    entries: tuple[tuple[Node, Node], ...] = ()
    size: int = 1  # nodes below and including this one, aliases unfolded
    depth: int = 1  # levels, likewise


@dataclass
class _Frame:
    """A list or table that is still open."""

    kind: str
    place: Place
    anchor: Optional[str]
    children: list[Node] = field(default_factory=list)


class _Broken(Exception):
    """Reading can't go on in this file."""

    def __init__(self, place: Place, text: str) -> None:
        super().__init__(text)
        self.place = place
        self.text = text


def parse(data: bytes, report: Report) -> Optional[Node]:
    """The tree of a file's bytes; None when it is empty or (with a problem in `report`) unusable."""
    try:
        return _parse(_decode(data, report.file), report.file)
    except _Broken as broken:
        report.error(broken.place, "", broken.text)
        return None


def _decode(data: bytes, file: str) -> str:
    if len(data) > MAX_BYTES:
        raise _Broken(Place(file, 1, 1), f"is larger than {MAX_BYTES // 1024} KiB")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        place = _place_after(data[: error.start].decode("utf-8", "replace"), file)
        raise _Broken(place, f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8") from error
    text = text[1:] if text.startswith("\ufeff") else text
    found = _FORBIDDEN.search(text)
    if found:
        place = _place_after(text[: found.start()], file)
        raise _Broken(place, f"the control character U+{ord(found.group()):04X} can't stand in a configuration")
    return text


def _place_after(text: str, file: str) -> Place:
    ends = [match.end() for match in _BREAK.finditer(text)]
    return Place(file, len(ends) + 1, len(text) - (ends[-1] if ends else 0) + 1)


def _parse(text: str, file: str) -> Optional[Node]:
    try:
        return _compose(yaml.parse(text, Loader=_LOADER), file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if error.context_mark and any(part in (error.problem or "") for part in _TOLD_LATE):
            mark = error.context_mark
        line, column = (mark.line, mark.column) if mark else (0, 0)
        raise _Broken(Place(file, line + 1, column + 1), _in_words(error, text, line, column)) from None
    except yaml.YAMLError:
        raise _Broken(Place(file, 1, 1), "is not valid YAML") from None


def _in_words(error: yaml.MarkedYAMLError, text: str, line: int, column: int) -> str:
    lines = _BREAK.split(text)
    rest = lines[line][column:] if line < len(lines) else ""
    if rest.startswith("\t") or (line < len(lines) and lines[line].startswith("\t")):
        return "a tab; YAML takes only spaces for indentation"
    said = f"{error.context or ''} {error.problem or ''}"
    for part, words in _WORDS:
        if part in said:
            return f"not valid YAML: {words}"
    return f"not valid YAML: {shown(error.problem or 'unreadable')}"


def _compose(events: Iterator[yaml.Event], file: str) -> Optional[Node]:
    root: Optional[Node] = None
    documents = 0
    total = 0
    stack: list[_Frame] = []
    anchors: dict[str, Node] = {}
    for event in events:
        place = Place(file, event.start_mark.line + 1, event.start_mark.column + 1) if event.start_mark else Place(file)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _Broken(place, "a second '---' document; a file holds one")
            continue
        _refuse_tag(event, place)
        node: Optional[Node] = None
        if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            kind = "list" if isinstance(event, yaml.SequenceStartEvent) else "table"
            stack.append(_Frame(kind, place, event.anchor))
            total += 1
            if len(stack) > MAX_DEPTH:
                raise _Broken(place, f"nested more than {MAX_DEPTH} levels deep")
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            frame = stack.pop()
            node = _close(frame)
            _remember(anchors, frame.anchor, node)
        elif isinstance(event, yaml.ScalarEvent):
            nothing = event.implicit[0] and event.value in _NOTHING
            node = Node("nothing" if nothing else "text", place, event.value)
            total += 1
            _remember(anchors, event.anchor, node)
        elif isinstance(event, yaml.AliasEvent):
            node = _unfold(anchors, event.anchor, place)
            total += node.size
            if len(stack) + node.depth > MAX_DEPTH:
                raise _Broken(place, f"nested more than {MAX_DEPTH} levels deep")
        if total > MAX_NODES:
            raise _Broken(place, f"holds more than {MAX_NODES} values (aliases count each time)")
        if node is not None and stack:
            stack[-1].children.append(node)
        elif node is not None:
            root = node
    return None if root is None or root.kind == "nothing" else root


def _refuse_tag(event: yaml.Event, place: Place) -> None:
    tag = getattr(event, "tag", None)
    if tag not in (None, "!"):
        raise _Broken(place, "a YAML tag ('!...') has no meaning in a configuration")


def _close(frame: _Frame) -> Node:
    size = 1 + sum(child.size for child in frame.children)
    depth = 1 + max((child.depth for child in frame.children), default=0)
    if frame.kind == "list":
        return Node("list", frame.place, items=tuple(frame.children), size=size, depth=depth)
    pairs = tuple(zip(frame.children[::2], frame.children[1::2]))
    return Node("table", frame.place, entries=pairs, size=size, depth=depth)


def _remember(anchors: dict[str, Node], anchor: Optional[str], node: Node) -> None:
    if anchor is not None:
        anchors[anchor] = node


def _unfold(anchors: dict[str, Node], anchor: Optional[str], place: Place) -> Node:
    node = anchors.get(anchor or "")
    if node is None:
        raise _Broken(place, f"the alias *{shown(anchor or '')} stands for nothing that is complete above it")
    return node
