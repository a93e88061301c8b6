"""What a rule's alert is short of, or too hot: whose use of it makes somebody a victim."""

from __future__ import annotations

from typing import Optional

from gpuwatch.model import reason
from gpuwatch.model.rule import Rule
from gpuwatch.policy import victims
from gpuwatch.policy.conditions import usable
from gpuwatch.policy.situation import Situation
from gpuwatch.policy.state import Alert
from gpuwatch.policy.victims import Choice, Resource, Seen


def choose(alert: Alert, rule: Rule, situation: Situation, action: str = "stop") -> Choice:
    """Whom an action of this alert may hit, and why. A full disk or a silent driver is nobody's doing that shows."""
    if alert.subject.kind not in ("gpu", "unit", "workload") and not _about_memory(rule):
        return Choice((), reason.NO_WORKLOAD)
    seen = Seen(
        situation.now,
        situation.settings,
        situation.attributions,
        situation.subjects,
        situation.containers,
        situation.silent_engines,
    )
    return victims.choose(_resource(alert, rule, situation), seen, action)


def _resource(alert: Alert, rule: Rule, situation: Situation) -> Resource:
    kind, subject = alert.subject.kind, alert.subject.id
    if kind == "gpu":
        of_memory = rule.metric in ("gpu.memory_used", "gpu.memory_used_ratio", "gpu.memory_full_in")
        return Resource(victims.GPU_MEMORY if of_memory else victims.GPU, subject, _card_memory(subject, situation))
    if kind == "unit":
        return Resource(victims.OF_UNIT, subject)
    if kind == "workload":
        workload = situation.workload(subject)
        limit = None if workload is None else workload.gpu_memory_limit
        return Resource(victims.OF_WORKLOAD, subject, None if limit is None else float(limit))
    return Resource(victims.HOST_MEMORY, "", usable("host.memory_total", situation.host.get("host.memory_total")))


def _card_memory(uuid: str, situation: Situation) -> Optional[float]:
    sample = situation.samples.get(uuid)
    return None if sample is None else usable("gpu.memory_total", sample.reading("gpu.memory_total"))


def _about_memory(rule: Rule) -> bool:
    if rule.event is not None:
        return rule.event.kind in ("oom_kill", "oomd_kill")
    return (rule.metric or "").startswith("host.memory")
