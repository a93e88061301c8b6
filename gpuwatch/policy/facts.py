"""What a message about an alert needs to know, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from gpuwatch.catalog import judge as catalog_judge
from gpuwatch.catalog import xid as xid_table
from gpuwatch.model.event import Event, Scalar
from gpuwatch.model.gpu import Attribution, DriverState, GpuSample, Owner
from gpuwatch.model.instant import Instant
from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import Reading
from gpuwatch.model.rule import Rule, Threshold
from gpuwatch.policy import conditions
from gpuwatch.policy.state import ATTRIBUTION_S, Inputs

_FROM_EVENT = (
    "process",
    "pid",
    "code",
    "fatal",
    "link",
    "pattern",
    "user",
    "unit",
    "count",
    "scope",
    "device",
    "result",
    "seconds",
    "direction",
)


def of_reading(
    rule: Rule,
    number: float,
    limit: Threshold,
    sample: Optional[GpuSample],
    samples: Sequence[GpuSample],
    inputs: Inputs,
) -> dict[str, Scalar]:
    """Of a metric's alert: value and limit, and how the card stands among the others."""
    assert rule.metric is not None
    below = limit.below is not None
    facts: dict[str, Scalar] = {
        "metric": rule.metric,
        "unit": METRICS[rule.metric].unit,
        "value": number,
        "limit": limit.below if below else limit.above,
        "direction": "below" if below else "above",
        "for_s": rule.for_s,
    }
    if rule.change_over_s is not None:
        facts["change_over_s"] = rule.change_over_s
    if sample is not None:
        facts.update(_of_card(sample, samples))
    if inputs.problems.get(rule.metric):
        facts["problem"] = inputs.problems[rule.metric]
    if rule.metric == "host.driver_silent":
        if inputs.report.state is DriverState.OK:
            # One card hangs, the driver answers for the others.
            silent = [each.index for each in samples if _says_nothing(each)]
            facts["partial"] = ", ".join(f"GPU {index}" for index in silent) or "one GPU"
            facts["others_count"] = len(samples) - len(silent)
        facts["stuck_pids"] = " ".join(str(pid) for pid in inputs.stuck_pids) or None
    return facts


def _of_card(sample: GpuSample, samples: Sequence[GpuSample]) -> dict[str, Scalar]:
    facts: dict[str, Scalar] = {}
    temperature = temperature_of(sample)
    if temperature is not None:
        facts["temperature"] = temperature
    if sample.lost:
        facts["lost"] = sample.lost
    action = conditions.usable("gpu.recovery_action", sample.reading("gpu.recovery_action"))
    if action:
        facts["recovery_to"] = int(action)  # what the driver asks for outranks the table
    others = [
        degrees for other in samples if other.uuid != sample.uuid and (degrees := temperature_of(other)) is not None
    ]
    if others:
        facts.update(others_low=min(others), others_high=max(others), others_count=len(others))
    return facts


def temperature_of(sample: GpuSample) -> Optional[float]:
    """The core's, where it is plausible."""
    return conditions.usable("gpu.temperature", sample.readings.get("gpu.temperature"))


def of_event(event: Event, old: bool, classes: Mapping[int, str]) -> dict[str, Scalar]:
    """Of an event's alert: what happened, in words too."""
    facts: dict[str, Scalar] = {"kind": event.kind, "count": event.count, "old": old, **codes(event)}
    for key in _FROM_EVENT:
        if event.fields.get(key) is not None and key not in facts:
            facts[key] = event.fields[key]
    if event.fields.get("meaning") is not None:
        facts.update(meaning_en=event.fields["meaning"], meaning_zh=event.fields["meaning"])
    code = event.fields.get("xid")
    if isinstance(code, int):
        entry = xid_table.lookup(code)
        facts.update(
            xid_class=conditions.xid_class(event, classes),
            meaning_en=entry.sentence("en"),
            meaning_zh=entry.sentence("zh"),
        )
        if event.fields.get("repeated") is True:
            facts["repeated"] = True
        if event.fields.get("recovery_to") is not None:
            facts["recovery_to"] = event.fields["recovery_to"]
    elif "meaning_en" not in facts:
        for language in ("en", "zh"):
            meaning = catalog_judge.meaning({**event.fields, "kind": event.kind}, language)
            if meaning:
                facts[f"meaning_{language}"] = meaning
    return facts


def codes(event: Event) -> dict[str, Scalar]:
    """The numbers that name it."""
    return {key: event.fields[key] for key in ("xid", "sxid", "pci") if event.fields.get(key) is not None}


def owner_of(event: Event, attribution: Optional[Attribution], now: Instant) -> Optional[Owner]:
    """Whose process an Xid names, for people: the pid in the line is a hint, never a victim (S11)."""
    pid = event.fields.get("pid")
    age = None if attribution is None else now.since(attribution.taken)
    if attribution is None or attribution.unknown or age is None or age > ATTRIBUTION_S + 5 or not isinstance(pid, int):
        return None
    return next((owner for owner in attribution.owners if owner.pid == pid), None)


def _says_nothing(sample: GpuSample) -> bool:
    readings: Mapping[str, Reading] = sample.readings
    return not sample.lost and not any(reading.value is not None for reading in readings.values())
