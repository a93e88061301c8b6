"""The settings in force, written as a configuration file again, with where each of them comes from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from gpuwatch.config.amounts import Percent, Size
from gpuwatch.config.classes import Until
from gpuwatch.config.kinds import duration_text
from gpuwatch.config.limits import limit_shown
from gpuwatch.config.load import Loaded
from gpuwatch.model.metric import METRICS
from gpuwatch.model.rule import EventMatch, Rule, Selector, Step, Threshold
from gpuwatch.model.settings import Channel, Settings, SitePattern, StopSettings, Workload, XidClass

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*|[0-9]+(?:ms|[smhd]|[KMGT]iB)")
_WORDS_OF_YAML = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})

Data = dict[str, Any]


def as_data(settings: Settings) -> Data:
    """Plain data that a configuration file could hold; loading it gives the same settings."""
    return {
        "mode": settings.mode.value,
        "language": settings.language,
        "interval": duration_text(settings.interval_s),
        **({"host": settings.host} if settings.host else {}),
        "labels": dict(settings.labels),
        "workloads": [_workload(one) for one in settings.workloads],
        "protect": {"units": list(settings.protect)},
        "budget": {
            "destructive": settings.budget.destructive,
            "within": duration_text(settings.budget.within_s),
            "heat_per_gpu": settings.budget.heat_per_gpu,
        },
        "throttle": {
            "gpus": list(settings.throttle.gpus),
            "step": _percent(settings.throttle.step),
            "lowest": _percent(settings.throttle.lowest),
        },
        "grace": {"start": duration_text(settings.grace.start_s), "boot": duration_text(settings.grace.boot_s)},
        "patterns": [_pattern(one) for one in settings.patterns],
        "xid_classes": [_xid_class(one) for one in settings.xid_classes],
        "evidence": {"keep": {"count": settings.evidence_count}},
        "alerts": {"channels": [_channel(one) for one in settings.channels]},
        "rules": [_rule(one) for one in settings.rules],
    }


def _workload(workload: Workload) -> Data:
    data: Data = {"name": workload.name}
    if workload.units or not workload.containers:
        data["units"] = list(workload.units)
    if workload.containers:
        data["containers"] = list(workload.containers)
    data["priority"] = workload.priority
    if workload.mode is not None:
        data["mode"] = workload.mode.value
    if workload.allow is not None:
        data["allow"] = list(workload.allow)
    stop = _stop(workload.stop)
    if stop:
        data["stop"] = stop
    if workload.gpu_memory_limit is not None:
        data["gpu_memory_limit"] = Size(0, 0).show(workload.gpu_memory_limit)
    return data


def _stop(stop: StopSettings) -> Data:
    data: Data = {}
    if stop.grace_s is not None:
        data["grace"] = duration_text(stop.grace_s)
    if stop.warn_before_s:
        data["warn_before"] = duration_text(stop.warn_before_s)
    if stop.checkpoint is not None:
        data["checkpoint"] = {"signal": stop.checkpoint.signal, "wait": duration_text(stop.checkpoint.wait_s)}
    return data


def _percent(ratio: float) -> str:
    return Percent(0, 100).show(ratio)


def _xid_class(change: XidClass) -> Data:
    data: Data = {"xid": change.xid, "class": change.klass, "reason": change.reason}
    if change.until_utc_s is not None:
        data["until"] = Until().show(change.until_utc_s)
    return data


def _pattern(pattern: SitePattern) -> Data:
    data: Data = {"name": pattern.name, "literal": pattern.literal}
    if pattern.pattern is not None:
        data["pattern"] = pattern.pattern
    data["severity"] = pattern.severity.value
    if pattern.meaning:
        data["meaning"] = pattern.meaning
    if pattern.units:
        data["units"] = list(pattern.units)
    return data


def _channel(channel: Channel) -> Data:
    key = channel.key
    return {
        "name": channel.name,
        "type": channel.type,
        "key": {"credential": key.credential} if key.credential is not None else {"file": key.file},
        "severities": [one.value for one in channel.severities],
        "mention": list(channel.mention),
        **channel.options,
    }


def _rule(rule: Rule) -> Data:
    data: Data = {"name": rule.name}
    if not rule.enabled:
        data["enabled"] = False
    if rule.metric is not None and rule.threshold is not None:
        data.update(metric=rule.metric, **_threshold(rule.metric, rule.threshold))
        data["for"] = duration_text(rule.for_s)
        if rule.change_over_s is not None:
            data["change_over"] = duration_text(rule.change_over_s)
        if rule.clear is not None:
            data["clear"] = {**_threshold(rule.metric, rule.clear.threshold), "for": duration_text(rule.clear.for_s)}
        if rule.unless_supported is not None:
            data["unless_supported"] = rule.unless_supported
        if rule.keep_s:
            data["keep"] = duration_text(rule.keep_s)
    if rule.event is not None:
        data["event"] = _event(rule.event)
        data["quiet_for"] = "reboot" if rule.quiet_for_s is None else duration_text(rule.quiet_for_s)
    if not rule.only.everything:
        data["only"] = _selector(rule.only)
    data["severity"] = rule.severity.value
    if rule.ladder:
        data["ladder"] = [_step(step) for step in rule.ladder]
    return data


def _selector(only: Selector) -> Data:
    return {each.name: list(getattr(only, each.name)) for each in fields(only) if getattr(only, each.name)}


def _step(step: Step) -> Data:
    data: Data = {"do": list(step.do), "after": duration_text(step.after_s)}
    return {**data, "worse": True} if step.worse else data


def _threshold(metric: str, threshold: Threshold) -> Data:
    word, number = ("above", threshold.above) if threshold.above is not None else ("below", threshold.below)
    assert number is not None
    text = limit_shown(METRICS[metric], number)
    return {word: text if not re.fullmatch(r"-?[0-9.]+", text) else json.loads(text)}


def _event(event: EventMatch) -> Data:
    data: Data = {"kind": event.kind}
    if event.codes:
        data["codes"] = list(event.codes)
    if event.classes:
        data["classes"] = list(event.classes)
    if event.fatal is not None:
        data["fatal"] = event.fatal
    if event.patterns:
        data["patterns"] = list(event.patterns)
    if event.count > 1:
        data.update(count=event.count, within=duration_text(event.within_s))
    if event.different:
        data["different"] = event.different
    return data


def as_text(loaded: Loaded) -> str:
    """The settings as YAML, each with its origin behind it."""
    lines = list(_lines(as_data(loaded.settings), "", "", loaded.origins))
    width = min(64, max(len(text) for text, origin in lines if origin))
    return "".join(f"{text:<{width}}  # {origin}\n" if origin else f"{text}\n" for text, origin in lines)


def _lines(data: Data, indent: str, path: str, origins: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in data.items():
        here = f"{path}.{name}" if path else name
        if isinstance(value, dict) and value:
            yield f"{indent}{flow(name)}:", ""
            yield from _lines(value, indent + "  ", here, origins)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{indent}{flow(name)}:", ""
            for entry in value:
                yield from _entry(entry, indent + "  ", origins.get(f"{here}[{_name(entry)}]", "default"))
        else:
            yield f"{indent}{flow(name)}: {flow(value)}", origins.get(here, "default")


def _name(entry: Data) -> Any:
    """What stands first in an entry is what it is known by."""
    return next(iter(entry.values()))


def _entry(entry: Data, indent: str, origin: str) -> Iterator[tuple[str, str]]:
    for number, (name, value) in enumerate(entry.items()):
        yield f"{indent}{'  ' if number else '- '}{name}: {flow(value)}", "" if number else origin


def flow(value: Any) -> str:
    """A value on one line of YAML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(name)}: {flow(one)}" for name, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow(one) for one in value) + "]"
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS_OF_YAML
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)
