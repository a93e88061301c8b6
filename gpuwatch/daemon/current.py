"""What is known now about an incident's subject: the numbers that a message gives beside its story."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Optional

from gpuwatch.model.event import Scalar
from gpuwatch.model.gpu import DriverState, GpuReport, GpuSample
from gpuwatch.model.host import SubjectReadings
from gpuwatch.model.incident import Incident
from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import Reading
from gpuwatch.policy.conditions import usable
from gpuwatch.sources.ring import Ring

RISING_OVER_S, RISING_C = 10.0, 1.0


def current_facts(
    incident: Incident,
    report: GpuReport,
    ring: Ring,
    host: Optional[Mapping[str, Reading]] = None,
    subjects: Iterable[SubjectReadings] = (),
) -> Mapping[str, Scalar]:
    """The judged value; of a card also temperature and the other cards. Nothing of what can't be read now.

    `host` and `subjects` are what rules judge beside cards (policy.state.Inputs).
    """
    if incident.subject.kind == "gpu":
        mine = _sample(incident, report)
        return {} if mine is None else _of_card(incident, mine, report, ring)
    readings = host or {}
    if incident.subject.kind != "host":
        readings = next((each.readings for each in subjects if each.subject == incident.subject), {})
    return _value(incident, readings)


def _sample(incident: Incident, report: GpuReport) -> Optional[GpuSample]:
    samples = report.samples if report.state is DriverState.OK else ()
    return next((sample for sample in samples if incident.subject.id in (sample.uuid, sample.pci)), None)


def _of_card(incident: Incident, mine: GpuSample, report: GpuReport, ring: Ring) -> dict[str, Scalar]:
    facts = _value(incident, {**mine.slow, **mine.readings})
    temperature = usable("gpu.temperature", mine.readings.get("gpu.temperature"))
    if temperature is not None:
        facts["temperature"] = temperature
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


def _value(incident: Incident, readings: Mapping[str, Reading]) -> dict[str, Scalar]:
    metric = _judged(incident)
    number = usable(metric, readings.get(metric)) if metric else None
    return {} if number is None else {"value": number}


def _judged(incident: Incident) -> str:
    """The metric whose value is told: that of the newest rule that judged one itself, not its change."""
    for cause in reversed(incident.causes):
        metric = cause.facts.get("metric")
        if isinstance(metric, str) and metric in METRICS and metric != "gpu.lost":
            return "" if "change_over_s" in cause.facts else metric
    return ""
