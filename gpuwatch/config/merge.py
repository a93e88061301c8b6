"""Several files become one: later files add to and override earlier ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gpuwatch.config.kinds import Found, Labels, ListOf
from gpuwatch.config.report import Report, did_you_mean, shown
from gpuwatch.config.table import Named, NamedList, Section, join
from gpuwatch.model.rule import Rule

Values = Mapping[str, Found]


def merge(section: Section, base: Values, over: Values, path: str, report: Report, blind: bool) -> dict[str, Found]:
    """The values of `base` and, where it has some, of `over`.

    Single values and lists: the later one. Groups: each setting by itself. Labels and protect.units:
    all together. Named lists: by name, the later entry whole. `blind`: an earlier file could not be
    read, so a name that is not known may be in it.
    """
    merged: dict[str, Found] = dict(base)
    for setting in section.settings:
        if setting.name not in over:
            continue
        new, old = over[setting.name], base.get(setting.name)
        here = join(path, setting.name)
        value: Any = new.value
        if isinstance(setting.kind, Section):
            value = merge(setting.kind, old.value if old else {}, new.value, here, report, blind)
        elif isinstance(setting.kind, NamedList):
            value = _merge_named(setting.kind, old.value if old else (), new.value, here, report, blind)
        elif isinstance(setting.kind, Labels):
            value = {**(old.value if old else {}), **new.value}
        elif isinstance(setting.kind, ListOf) and setting.kind.adds and old:
            known = {one.value for one in old.value}
            value = old.value + tuple(one for one in new.value if one.value not in known)
        merged[setting.name] = Found(value, new.place)
    return merged


def _merge_named(
    kind: NamedList, base: tuple[Found, ...], over: tuple[Found, ...], path: str, report: Report, blind: bool
) -> tuple[Found, ...]:
    entries = {one.value.name: one for one in base}
    for one in over:
        named: Named = one.value
        if named.thing is not None or named.enabled:
            entries[named.name] = one
        elif named.name in entries:
            entries[named.name] = Found(_turned_off(entries[named.name].value, one), one.place)
        elif not blind:
            meant = did_you_mean(named.name, entries)
            report.error(one.place, path, f"there is no {kind.noun} '{shown(named.name)}' to turn off{meant}")
    return tuple(entries.values())


def _turned_off(named: Named, by: Found) -> Named:
    thing = named.thing
    if isinstance(thing, Rule):
        thing = dataclasses.replace(thing, enabled=False, origin=str(by.place))
    return Named(named.name, False, thing)
