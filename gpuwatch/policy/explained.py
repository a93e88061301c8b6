"""What is explained by something graver: a child of an earlier Xid, a card that is gone, a driver that hangs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Optional

from gpuwatch.model.event import Event
from gpuwatch.model.incident import Incident, Subject
from gpuwatch.model.rule import Rule
from gpuwatch.policy.state import Alert


def children(event: Event, subject: Subject, incidents: Iterable[Incident]) -> Optional[Incident]:
    """The open incident whose Xid the line itself names as its cause (K8); None for one that stands for itself."""
    caused_by = event.fields.get("caused_by")
    if event.kind != "xid" or not isinstance(caused_by, int):
        return None
    for incident in incidents:
        if incident.subject == subject and any(cause.facts.get("xid") == caused_by for cause in incident.causes):
            return incident
    return None


def inhibited(firing: Iterable[Alert], rules: Mapping[str, Rule]) -> dict[Subject, str]:
    """The subjects whose other troubles follow from one rule's: a lost card does nothing else of interest."""
    return {alert.subject: alert.rule for alert in firing if _loss(rules[alert.rule])}


def follows(rule: Rule, subject: Subject, firing: Iterable[Alert], rules: Mapping[str, Rule]) -> str:
    """The firing rule that explains this one on the same subject, or on its host, so that nobody has to be told; ""
    if none does."""
    for alert in firing:
        other = rules.get(alert.rule)
        if other is None or alert.phase != "firing" or other.name == rule.name:
            continue
        if alert.subject == subject and _loss(other) and not _loss(rule):
            return other.name
        graver = rule.severity.rank > other.severity.rank  # that stands for itself
        if rule.metric is not None and rule.metric in FOLLOW.get(other.metric or "", ()) and not graver:
            return other.name
    return ""


# What the alert of a metric of the host explains, there and on its cards: who reads no card can't have new readings of
# them, and where many cards are hot at once it is the room, not each of them.
FOLLOW = {
    "host.driver_silent": ("host.gpu_sample_age",),
    "host.driver_mismatch": ("host.gpu_sample_age",),
    "host.gpus_hot": ("gpu.slowdown_margin", "gpu.temperature", "gpu.memory_temperature"),
}


def _loss(rule: Rule) -> bool:
    return rule.metric == "gpu.lost" or (rule.event is not None and rule.event.kind == "gpu_lost")
