"""What is known now about an incident's subject: the numbers that a message gives beside its story."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwatch.model.event import Scalar
from gpuwatch.model.gpu import DriverState, GpuReport
from gpuwatch.model.incident import Incident
from gpuwatch.model.metric import METRICS
from gpuwatch.policy.conditions import usable
from gpuwatch.sources.ring import Ring

RISING_OVER_S, RISING_C = 10.0, 1.0


def current_facts(incident: Incident, report: GpuReport, ring: Ring) -> Mapping[str, Scalar]:
    """Temperature, the judged value, the other cards; nothing of what can't be read now."""
    facts: dict[str, Scalar] = {}
    if report.state is not DriverState.OK:
        return facts
    mine = next((sample for sample in report.samples if incident.subject.id in (sample.uuid, sample.pci)), None)
    if mine is None:
        return facts
    for name, metric in (("temperature", "gpu.temperature"), ("value", _judged(incident))):
        number = usable(metric, mine.readings.get(metric)) if metric else None
        if number is not None:
            facts[name] = number
    change = ring.change(mine.uuid, "gpu.temperature", RISING_OVER_S)
    if change is not None and change >= RISING_C:
        facts["rising"] = True
    others = [
        degrees
        for sample in report.samples
        if sample.uuid != mine.uuid
        and (degrees := usable("gpu.temperature", sample.readings.get("gpu.temperature"))) is not None
    ]
    if others:
        facts.update(others_low=min(others), others_high=max(others), others_count=len(others))
    return facts


def _judged(incident: Incident) -> str:
    """The GPU metric of the newest rule that judged one."""
    for cause in reversed(incident.causes):
        metric = cause.facts.get("metric")
        if isinstance(metric, str) and metric in METRICS and metric != "gpu.lost":
            return metric
    return ""
