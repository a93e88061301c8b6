"""Settings declared once: the table that checking, the JSON Schema, the defaults and `config show` are made from.

A Section is a group of settings that files add to and override one by one. A Record is a group that
stands or falls as a whole. A NamedList holds records that later files replace by their name.
Channel types (gpuwatch.alerts.channels) declare their own settings with ChannelType.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from gpuwatch.config.document import Node
from gpuwatch.config.kinds import Found, Kind, ListOf, ScalarKind, Schema, an, plain
from gpuwatch.config.report import Place, Report, closest, did_you_mean, quoted, shown


@dataclass(frozen=True)
class Setting:
    """One setting. `default` None: it has none (required, or its absence means something: see help)."""

    name: str
    kind: Kind
    help: str
    default: Any = None
    example: str = ""
    required: bool = False


@dataclass(frozen=True)
class ChannelType:
    """A way to reach people: the settings a channel of this type has besides the common ones.

    `settings` hold scalar kinds only; their values reach the channel as text (Channel.options).
    """

    name: str
    help: str
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class Fields:
    """What one group of settings held: good values, and what was given for the others."""

    found: Mapping[str, Found]
    wrong: Mapping[str, Node]
    place: Place

    def given(self, *names: str) -> tuple[str, ...]:
        """Those of the names that were written, rightly or not."""
        return tuple(name for name in names if name in self.found or name in self.wrong)

    def value(self, name: str, default: Any = None) -> Any:
        """The plain value, or the default."""
        return plain(self.found[name]) if name in self.found else default

    def place_of(self, name: str) -> Place:
        """Where a value stands; the group's own place when there is none."""
        if name in self.found:
            return self.found[name].place
        return self.wrong[name].place if name in self.wrong else self.place


Absent = Mapping[str, str]  # settings people may expect -> what to say about them, after the name


def later(consequence: str) -> str:
    """What is said about a setting that does not exist yet: it must never be believed to work."""
    return f"is not in this version: {consequence}"


def join(path: str, name: str) -> str:
    """rules[0] + metric -> rules[0].metric"""
    return f"{path}.{name}" if path else name


def read_fields(settings: tuple[Setting, ...], absent: Absent, node: Node, path: str, report: Report) -> Fields:
    """Check every setting of a group; unknown, repeated and not yet existing ones are problems."""
    known = {setting.name: setting for setting in settings}
    found: dict[str, Found] = {}
    wrong: dict[str, Node] = {}
    seen: dict[str, Place] = {}
    for key, value in node.entries:
        if key.kind != "text":
            report.error(key.place, path, f"expected the name of a setting, not {an(key)}")
        elif key.text in seen:
            first = seen[key.text].line
            report.error(key.place, path, f"{quoted(key.text)} is given twice (first on line {first})")
        else:
            seen[key.text] = key.place
            if key.text in known:
                one = known[key.text].kind.check(value, join(path, key.text), report)
                if one is None:
                    wrong[key.text] = value
                else:
                    found[key.text] = one
            else:
                report.error(key.place, path, _unknown(key.text, known, absent))
    return Fields(found, wrong, node.place)


def _unknown(name: str, known: Mapping[str, Setting], absent: Absent) -> str:
    if name in absent:
        return f"'{name}' {absent[name]}"
    if name == "<<":
        return "'<<' (merging of tables) is not supported; write the settings out"
    return f"no setting {quoted(name)} here{did_you_mean(name, known) or '; there is ' + ', '.join(known)}"


def fields_schema(settings: tuple[Setting, ...]) -> Schema:
    """An object that holds these settings and no others."""
    properties: Schema = {}
    for setting in settings:
        properties[setting.name] = {"description": setting.help, **setting.kind.schema()}
        if setting.default is not None:
            properties[setting.name]["default"] = setting.kind.show(setting.default)
        if setting.example:
            properties[setting.name]["examples"] = [setting.example]
    return {"type": "object", "properties": properties, "additionalProperties": False}


@dataclass(frozen=True)
class Section(Kind):
    """A group of settings; found as a mapping of those that were given."""

    settings: tuple[Setting, ...]
    absent: Absent = field(default_factory=dict)

    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """A mapping of name to Found."""
        if node.kind == "nothing":
            return Found({}, node.place)
        if node.kind != "table":
            names = ", ".join(setting.name for setting in self.settings)
            report.error(node.place, path, f"expected settings ({names}), not {an(node)}")
            return None
        return Found(read_fields(self.settings, self.absent, node, path, report).found, node.place)

    def schema(self) -> Schema:
        """An object, or nothing."""
        return {**fields_schema(self.settings), "type": ["object", "null"]}


Build = Callable[[Fields, str, Report], Any]


@dataclass(frozen=True)
class Record(Kind):
    """A group that is one value. `build` makes it from the fields, or returns None after a problem."""

    settings: tuple[Setting, ...]
    build: Build
    absent: Absent = field(default_factory=dict)
    instead: str = ""  # said, without repeating it, when a single value stands where the group should

    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """What `build` made."""
        if node.kind != "table":
            if node.kind == "text" and self.instead:
                report.settle(node.place, path, self.instead)
                return None
            names = ", ".join(setting.name for setting in self.settings)
            report.error(node.place, path, f"expected settings ({names}), not {an(node)}")
            return None
        fields = read_fields(self.settings, self.absent, node, path, report)
        complete = require(self.settings, fields, path, report)
        built = self.build(fields, path, report)
        return Found(built, node.place) if built is not None and complete and not fields.wrong else None

    def schema(self) -> Schema:
        """An object with its required settings."""
        required = [setting.name for setting in self.settings if setting.required]
        return {**fields_schema(self.settings), **({"required": required} if required else {})}


@dataclass(frozen=True)
class OneOrRecord(Kind):
    """A record that has a short form: one value, which stands for its setting `name`."""

    one: ScalarKind
    name: str
    record: Record

    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """Either form, as the record."""
        if node.kind != "text":
            return self.record.check(node, path, report)
        single = self.one.check(node, path, report)
        if single is None:
            return None
        fields = Fields({self.name: single}, {}, node.place)
        return Found(self.record.build(fields, path, report), node.place)

    def schema(self) -> Schema:
        """Either form."""
        return {"anyOf": [self.one.schema(), self.record.schema()]}


def require(settings: tuple[Setting, ...], fields: Fields, path: str, report: Report) -> bool:
    """False, with a problem each, when a required setting was not given."""
    missing = [setting for setting in settings if setting.required and not fields.given(setting.name)]
    for setting in missing:
        example = f", e.g. {setting.name}: {setting.example}" if setting.example else ""
        report.error(fields.place, path, f"'{setting.name}' is missing{example}")
    return not missing


@dataclass(frozen=True)
class Named:
    """An entry of a named list. `thing` None: only its name and `enabled: false` were given."""

    name: str
    enabled: bool
    thing: Any


@dataclass(frozen=True)
class NamedList(Kind):
    """Records with a name. `noun` is what one is called: rule, workload, channel.

    `variants`: further settings of an entry by its "type" (channels). `key`: the setting that is the name.
    """

    noun: str
    settings: tuple[Setting, ...]  # its key and "enabled" first
    build: Build
    absent: Absent = field(default_factory=dict)
    variants: Optional[Mapping[str, tuple[Setting, ...]]] = None
    conditions: tuple[Schema, ...] = ()  # what the JSON Schema says about a complete entry besides
    key: str = "name"

    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """A tuple of Found Named."""
        if node.kind == "nothing":
            return Found((), node.place)
        if node.kind != "list":
            report.error(node.place, path, f"expected a list of {self.noun}s ('- {self.key}: ...'), not {an(node)}")
            return None
        entries: list[Found] = []
        names: dict[str, Place] = {}
        for number, item in enumerate(node.items):
            entry = self._entry(item, f"{path}[{number}]", report)
            if entry is None:
                continue
            name = entry.value.name
            if name in names:
                text = f"there is a {self.noun} '{shown(name)}' in this file already (line {names[name].line})"
                report.error(item.place, f"{path}[{number}]", text)
                continue
            names[name] = item.place
            entries.append(entry)
        return Found(tuple(entries), node.place)

    def _entry(self, node: Node, path: str, report: Report) -> Optional[Found]:
        if node.kind != "table":
            report.error(
                node.place, path, f"expected a {self.noun} ('{self.key}: ...' and its settings), not {an(node)}"
            )
            return None
        if self._is_stranger(node):
            own = tuple(setting for setting in self.settings if setting.name == "type")
            read_fields(own, {}, Node("table", node.place, entries=_only("type", node)), path, report)
            return None
        settings = self.settings + self._variant(node)
        fields = read_fields(settings, self.absent, node, path, report)
        enabled = bool(fields.value("enabled", True))
        name = str(fields.value(self.key)) if self.key in fields.found else None
        if not enabled and fields.given(*(one.name for one in settings)) == (self.key, "enabled"):
            return None if name is None else Found(Named(name, False, None), node.place)
        complete = require(settings, fields, path, report)
        built = self.build(fields, path, report)
        if built is None or not complete or fields.wrong:
            # Still an entry by name, so that a later `enabled: false` for it is not called unknown.
            return None if name is None else Found(Named(name, enabled, None), node.place)
        return Found(Named(str(name), enabled, built), node.place)

    def _is_stranger(self, node: Node) -> bool:
        """A type that does not exist: its other settings can't be judged."""
        name = _text("type", node)
        return self.variants is not None and name != "" and closest(name, self.variants) is None

    def _variant(self, node: Node) -> tuple[Setting, ...]:
        if self.variants is None:
            return ()
        name = closest(_text("type", node), self.variants) or (
            next(iter(self.variants)) if len(self.variants) == 1 else ""
        )
        return self.variants.get(name, ())

    def schema(self) -> Schema:
        """An array of complete entries, or of {name, enabled: false}."""
        extra: dict[str, Setting] = {}
        for settings in (self.variants or {}).values():
            extra.update({setting.name: setting for setting in settings})
        required = [setting.name for setting in self.settings if setting.required]
        whole: Schema = {"required": required}
        if self.conditions:
            whole["allOf"] = list(self.conditions)
        off: Schema = {
            "required": [self.key, "enabled"],
            "maxProperties": 2,
            "properties": {"enabled": {"const": False}},
        }
        entry = {**fields_schema(self.settings + tuple(extra.values())), "anyOf": [whole, off]}
        return {"type": ["array", "null"], "items": entry}


def _only(name: str, node: Node) -> tuple[tuple[Node, Node], ...]:
    return tuple((key, value) for key, value in node.entries if key.kind == "text" and key.text == name)


def _text(name: str, node: Node) -> str:
    return next((value.text for _, value in _only(name, node) if value.kind == "text"), "")


def walk(settings: tuple[Setting, ...], path: str = "") -> Iterator[tuple[str, Setting]]:
    """Every setting with its path, groups before what is in them: "alerts.channels[].key.file"."""
    for setting in settings:
        here = join(path, setting.name)
        yield here, setting
        if isinstance(setting.kind, (Section, Record)):
            yield from walk(setting.kind.settings, here)
        elif isinstance(setting.kind, OneOrRecord):
            yield from walk(setting.kind.record.settings, here)
        elif isinstance(setting.kind, ListOf) and isinstance(setting.kind.kind, Record):
            yield from walk(setting.kind.kind.settings, here + "[]")
        elif isinstance(setting.kind, NamedList):
            yield from walk(setting.kind.settings, here + "[]")


def scalar(setting: Setting) -> ScalarKind:
    """The kind of a channel type's setting; TypeError when it is no scalar."""
    if not isinstance(setting.kind, ScalarKind):
        raise TypeError(f"{setting.name}: a channel type's setting is a single value")
    return setting.kind
