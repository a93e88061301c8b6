"""What a ladder is judged against: everything that a step knows, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from gpuwatch.model import reason
from gpuwatch.model.container import Container
from gpuwatch.model.gpu import Attribution, GpuSample
from gpuwatch.model.host import SubjectReadings
from gpuwatch.model.incident import Subject
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.orders import Orders
from gpuwatch.model.reading import Reading
from gpuwatch.model.rule import Rule
from gpuwatch.model.settings import Mode, Settings, Workload
from gpuwatch.policy import conditions
from gpuwatch.policy.plausibility import Assessment
from gpuwatch.policy.state import MOST_PERIODS, STALE_S, Alert


@dataclass(frozen=True)
class Situation:
    """`samples` and `attributions` by UUID, `assessments` by UUID and heat_metric(); `inhibited` says by which rule
    a subject's other troubles are explained."""

    now: Instant
    settings: Settings
    intents: Sequence[Intent] = ()
    orders: Orders = field(default_factory=Orders)
    started: Optional[Instant] = None
    period_s: float = 1.0
    samples: Mapping[str, GpuSample] = field(default_factory=dict)
    attributions: Mapping[str, Attribution] = field(default_factory=dict)
    assessments: Mapping[tuple[str, str], Assessment] = field(default_factory=dict)
    subjects: Sequence[SubjectReadings] = ()
    host: Mapping[str, Reading] = field(default_factory=dict)
    containers: Mapping[str, Container] = field(default_factory=dict)  # by their full id
    silent_engines: Sequence[str] = ()
    inhibited: Mapping[Subject, str] = field(default_factory=dict)

    def observes(self, workload: Optional[Workload]) -> bool:
        """True when nothing is done to it in earnest; None stands for the host as a whole."""
        if self.orders.hands_off(self.now):
            return True
        mode = self.settings.mode if workload is None else self.settings.workload_mode(workload)
        return mode is Mode.OBSERVE

    def workload(self, name: str) -> Optional[Workload]:
        """By its name."""
        return next((each for each in self.settings.workloads if each.name == name), None)

    def graced(self) -> bool:
        """True while the daemon or the host has only just started: nothing destructive begins then."""
        grace = self.settings.grace
        up_s = None if self.started is None else self.now.since(self.started)
        return self.now.boottime_s < grace.boot_s or (up_s is not None and up_s < grace.start_s)

    def blocked(self, alert: Alert, rule: Rule) -> str:
        """The reason code for which this alert moves nothing new, "" when it may."""
        if alert.subject in self.inhibited and self.inhibited[alert.subject] != rule.name:
            return reason.INHIBITED
        if rule.metric is not None:
            age = self.now.since(alert.sample)
            if age is None or age > max(STALE_S, MOST_PERIODS * conditions.period_of(rule, self.period_s)):
                return reason.NO_READING
        assessment = self.assessment(alert, rule)
        if assessment is None or assessment.bears_action:
            return ""
        return reason.COOLING if assessment.trusted else reason.SUSPECT

    def assessment(self, alert: Alert, rule: Rule) -> Optional[Assessment]:
        """How plausible the heat is that the alert is about; None where it is about no heat of a card read now."""
        return self.assessments.get((alert.subject.id, heat_metric(rule))) if rule.heat else None

    def badness(self, alert: Alert, rule: Rule) -> Optional[float]:
        """How bad it is now, more is worse: for heat the temperature, else the judged value."""
        sample = self.samples.get(alert.subject.id) if alert.subject.kind == "gpu" else None
        if rule.heat and sample is not None:
            degrees = conditions.usable("gpu.temperature", sample.reading("gpu.temperature"))
            if degrees is not None:
                return degrees
        if alert.value is None or rule.threshold is None:
            return None
        return alert.value if rule.threshold.above is not None else -alert.value

    def overtaken(self, intent: Intent) -> bool:
        """True for what was only said in observe mode, for what is enforced by now and was not acted on since."""
        if intent.state is not IntentState.WOULD_HAVE:
            return False
        workload = self.workload(intent.workload)
        if (workload is None and intent.workload) or self.observes(workload):
            return False
        return not any(
            later.rung == intent.rung and not later.observe and later.state is not IntentState.WITHDRAWN
            for later in self.intents
        )

    def of_rung(self, alert: Alert, rule: Rule, step: int, action: str) -> list[Intent]:
        """What was done for one action of one rung, oldest first."""
        wanted = (alert.incident, rule.name, step, action)
        return [intent for intent in self.intents if intent.rung[:4] == wanted]

    def said(self, alert: Alert, action: str, target: str) -> bool:
        """True when this incident has said already that it would have done this."""
        return any(
            intent.incident == alert.incident
            and (intent.action, intent.target) == (action, target)
            and intent.state is IntentState.WOULD_HAVE
            and not self.overtaken(intent)
            for intent in self.intents
        )


def heat_metric(rule: Rule) -> str:
    """Whose heat a rule is about: the memory's or the core's."""
    return rule.metric if rule.metric == "gpu.memory_temperature" else "gpu.temperature"
