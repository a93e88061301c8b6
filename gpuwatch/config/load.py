"""From files to Settings, or to every problem there is in them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from gpuwatch.catalog.default_rules import default_rules_text
from gpuwatch.config.classes import warn_of_ended
from gpuwatch.config.document import parse
from gpuwatch.config.files import drop_ins, read_file
from gpuwatch.config.kinds import Found, Labels, an, number_text, plain
from gpuwatch.config.merge import Values, merge
from gpuwatch.config.patterns import check_patterns
from gpuwatch.config.report import Place, Report, in_order
from gpuwatch.config.root import root_table
from gpuwatch.config.secrets import refuse_secrets
from gpuwatch.config.selector import check_selectors
from gpuwatch.config.table import ChannelType, Named, NamedList, Section, join, read_fields
from gpuwatch.config.workloads import check_overlaps
from gpuwatch.model.errors import ConfigError, Problem
from gpuwatch.model.rule import Rule
from gpuwatch.model.settings import Budget, Grace, Mode, Settings, Throttle

DEFAULT_RULES = "rules.yaml (default rules)"


@dataclass(frozen=True)
class Loaded:
    """A configuration that can be used.

    `warnings`: allowed, and probably not meant. `files`: what was read, in order. `origins`: where
    each setting that was given comes from, as "file:line" by path ("budget.within",
    "workloads[training]"); what is not in it has its default.
    """

    settings: Settings
    warnings: tuple[Problem, ...] = ()
    files: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)


def load(
    path: str,
    channel_types: Mapping[str, ChannelType],
    conf_d: Optional[str] = None,
    defaults: Optional[bytes] = None,
    now_utc_s: Optional[float] = None,
) -> Loaded:
    """Read `path` and then conf.d/*.yaml beside it (or `conf_d`) in the order of their names.

    `channel_types`: the types of channels with their settings (gpuwatch.alerts.channels);
    `defaults`: the text of the default rules, the package's own unless given; `now_utc_s`: to warn of
    what has ended by now. Raises ConfigError with every problem of every file, in file and line order.
    """
    table = root_table(channel_types)
    report = Report(path)
    directory = os.path.join(os.path.dirname(path), "conf.d") if conf_d is None else conf_d
    files = (path, *drop_ins(directory, report))
    values = default_values(table, default_rules_text() if defaults is None else defaults, report)
    blind = False
    for file in files:
        found = _read(file, table, report)
        blind = blind or found is None
        values = merge(table, values, found or {}, "", report, blind)
    check_whole(values, report, blind)
    if now_utc_s is not None:
        warn_of_ended(_value(values, "xid_classes", ()), report, now_utc_s)
    if report.problems:
        raise ConfigError(in_order(report.problems, (DEFAULT_RULES, directory, *files)))
    settings = settings_from(values)
    warnings = in_order([*report.warnings, *_whole_warnings(settings, values, path)], (directory, *files))
    return Loaded(settings, warnings, files, dict(_origins(table, values, "")))


def _read(file: str, table: Section, report: Report) -> Optional[Values]:
    """The values of one file; None when nothing of it could be read."""
    data = read_file(file, report)
    return None if data is None else _check(data, file, table, report)


def _check(data: bytes, file: str, table: Section, report: Report) -> Optional[Values]:
    before = len(report.problems)
    own = Report(file)
    node = parse(data, own)
    if node is not None and node.kind != "table":
        own.error(node.place, "", f"expected settings such as 'mode: observe', not {an(node)}")
        node = None
    values: Values = {}
    if node is not None:
        refuse_secrets(node, "", own)
        values = read_fields(table.settings, table.absent, node, "", own).found
    report.problems.extend(own.problems)
    report.warnings.extend(own.warnings)
    return None if node is None and len(report.problems) > before else values


def default_values(table: Section, text: bytes, report: Report) -> Values:
    values = _check(text, DEFAULT_RULES, table, report) or {}
    rules = values["rules"].value if "rules" in values else ()
    ours = tuple(Found(_by_default(one.value), one.place) for one in rules)
    return {"rules": Found(ours, Place(DEFAULT_RULES))}


def _by_default(named: Named) -> Named:
    thing = replace(named.thing, origin="default") if isinstance(named.thing, Rule) else named.thing
    return replace(named, thing=thing)


def check_whole(values: Values, report: Report, blind: bool) -> None:
    protect = plain(_value(values, "protect", {}).get("units", ()))
    check_overlaps(_value(values, "workloads", ()), protect, report)
    rules = _value(values, "rules", ())
    check_patterns(_value(values, "patterns", ()), rules, report, blind)
    check_selectors(rules, _value(values, "workloads", ()), report, blind)
    _check_throttle(_value(values, "throttle", {}), report)


def _check_throttle(given: Values, report: Report) -> None:
    """One step must fit in between what a GPU had and the lowest it may get."""
    step, lowest = (_value(given, name, getattr(Throttle, name)) for name in ("step", "lowest"))
    if step > round(1 - lowest, 4):
        name = "step" if "step" in given else "lowest"
        room = number_text(round(100 - 100 * lowest, 2))
        text = f"a step of {number_text(round(100 * step, 2))}% is more than the {room}% down to the lowest"
        report.error(given[name].place, f"throttle.{name}", text)


def _value(values: Mapping[str, Any], name: str, default: Any) -> Any:
    return values[name].value if name in values else default


def settings_from(values: Values) -> Settings:
    """The frozen settings; every value is checked by now."""
    budget = plain(_value(values, "budget", {}))
    keep = plain(_value(_value(values, "evidence", {}), "keep", {}))
    throttle, grace = plain(_value(values, "throttle", {})), plain(_value(values, "grace", {}))
    channels = _value(_value(values, "alerts", {}), "channels", ())
    return Settings(
        mode=Mode(_value(values, "mode", Settings.mode)),
        language=_value(values, "language", Settings.language),
        interval_s=_value(values, "interval", Settings.interval_s),
        labels=plain(_value(values, "labels", {})),
        workloads=_enabled(values, "workloads"),
        protect=plain(_value(_value(values, "protect", {}), "units", ())),
        budget=Budget(
            destructive=budget.get("destructive", Budget.destructive),
            within_s=budget.get("within", Budget.within_s),
            heat_per_gpu=budget.get("heat_per_gpu", Budget.heat_per_gpu),
        ),
        rules=tuple(one.value.thing for one in _value(values, "rules", ())),
        channels=tuple(one.value.thing for one in channels if one.value.enabled),
        patterns=_enabled(values, "patterns"),
        xid_classes=_enabled(values, "xid_classes"),
        evidence_count=keep.get("count", Settings.evidence_count),
        host=_value(values, "host", Settings.host),
        throttle=Throttle(**throttle),
        grace=Grace(grace.get("start", Grace.start_s), grace.get("boot", Grace.boot_s)),
    )


def _enabled(values: Values, name: str) -> tuple[Any, ...]:
    return tuple(one.value.thing for one in _value(values, name, ()) if one.value.enabled)


def _whole_warnings(settings: Settings, values: Values, path: str) -> Iterator[Problem]:
    if settings.mode is Mode.ENFORCE and not settings.workloads:
        place = values["mode"].place
        text = "mode: enforce without any workload: nothing can ever be stopped"
        yield Problem(place.file, place.line, place.column, text)
    if settings.workloads and not settings.channels:
        yield Problem(path, 1, 1, "alerts.channels: there is none; gpuwatch can tell nobody what it does")


def _origins(section: Section, values: Values, path: str) -> Iterator[tuple[str, str]]:
    for setting in section.settings:
        if setting.name not in values:
            continue
        here, found = join(path, setting.name), values[setting.name]
        if isinstance(setting.kind, Section):
            yield from _origins(setting.kind, found.value, here)
        elif isinstance(setting.kind, Labels):
            yield from ((join(here, name), str(one.place)) for name, one in found.value.items())
        elif isinstance(setting.kind, NamedList):
            yield from ((f"{here}[{one.value.name}]", _origin(one)) for one in found.value)
        else:
            yield here, str(found.place)


def _origin(found: Found) -> str:
    thing = found.value.thing
    return thing.origin if isinstance(thing, Rule) else str(found.place)
