"""The incidents of one step: which alerts they are made of, and what of them is news to people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Optional

from gpuwatch.model.event import Scalar
from gpuwatch.model.gpu import GpuSample
from gpuwatch.model.incident import Incident, Subject
from gpuwatch.model.intent import FINAL, Intent, IntentState
from gpuwatch.model.notification import Transition
from gpuwatch.model.rule import Rule
from gpuwatch.model.wish import Wish
from gpuwatch.policy import facts, incidents
from gpuwatch.policy.state import Alert, Inputs, PolicyState

PUT_BACK_S = 30.0
IN_FORCE = (IntentState.APPLIED, IntentState.UNDOING)


class Book:
    """The working copy of one step."""

    def __init__(self, state: PolicyState, inputs: Inputs) -> None:
        self._before, self._inputs, self._now = state.incidents, inputs, inputs.now
        self.incidents: dict[str, Incident] = dict(state.incidents)
        self.next_incident = state.next_incident
        self._closed: list[Incident] = []
        self._news: dict[int, str] = {}  # incident number -> transition to tell

    def of(self, alert: Alert) -> Optional[Incident]:
        """The incident that an alert is part of."""
        return self.incidents.get(str(alert.incident))

    def changed(self) -> tuple[Incident, ...]:
        """Those that are new or different, closed ones included."""
        everything = (*self.incidents.values(), *self._closed)
        return tuple(each for each in everything if self._before.get(str(each.number)) != each)

    def rename(self, uuids: Mapping[str, str]) -> None:
        """What was filed under a card's address goes on under its UUID."""
        for number, incident in self.incidents.items():
            if incident.subject.kind == "gpu" and incident.subject.id in uuids:
                self.incidents[number] = replace(incident, subject=Subject("gpu", uuids[incident.subject.id]))

    def join(self, alert: Alert, rule: Rule, found: Mapping[str, Scalar], explained: str) -> Alert:
        """The alert as part of its subject's incident, which it opens if there is none. What is `explained` by
        another rule is no news."""
        incident = incidents.find(self.incidents, alert.subject, found)
        if incident is None:
            host = self._inputs.host_name
            incident = incidents.open_incident(self.next_incident, host, alert.subject, alert.label, rule, self._now)
            self.next_incident += 1
        incident, news = incidents.join(incident, rule, alert.since, self._now, found)
        incident = incidents.relate(incident, self.incidents.values(), self._inputs.attributions, self._now)
        self.incidents[str(incident.number)] = incident
        if news and not explained and self._news.get(incident.number) != "firing":
            self._news[incident.number] = news
        return replace(alert, incident=incident.number, keep_s=rule.keep_s * 2 ** incidents.returned(incident))

    def leave(self, alert: Alert, why: str) -> None:
        """One of its alerts has ended."""
        incident = self.of(alert)
        if incident is not None:
            self.incidents[str(alert.incident)] = incidents.leave(incident, alert.rule, self._now, why)

    def follow(self, incident: Incident, found: Mapping[str, Scalar]) -> None:
        """Something that the incident has caused itself."""
        self.incidents[str(incident.number)] = incidents.tell_story(incident, self._now, "followed", found)

    def note_peaks(
        self, alert: Alert, metric: str, number: float, worse_below: bool, sample: Optional[GpuSample]
    ) -> None:
        """Margins judge, but people think in degrees: keep the peak temperature too."""
        incident = incidents.note_peak(self.incidents[str(alert.incident)], metric, number, worse_below)
        temperature = None if sample is None else facts.temperature_of(sample)
        if temperature is not None:
            incident = incidents.note_peak(incident, "gpu.temperature", temperature, False)
        self.incidents[str(alert.incident)] = incident

    def note_why(self, alert: Alert, why: Mapping[str, Scalar]) -> None:
        """The message says why nothing is done, or why it was this target: keep the newest with the cause."""
        incident = self.of(alert)
        if incident is None:
            return
        causes = tuple(
            replace(cause, facts={**cause.facts, **why})
            if cause.rule == alert.rule and any(cause.facts.get(name) != why.get(name) for name in ("reason", "victim"))
            else cause
            for cause in incident.causes
        )
        if causes != incident.causes:
            self.incidents[str(incident.number)] = replace(incident, causes=causes)

    def note_outcomes(self, wishes: Sequence[Wish]) -> None:
        """What has been done since people were told, once nothing of it is under way or wanted any more."""
        intents = self._inputs.intents
        ended = {intent.rung for intent in intents if intent.state in FINAL}
        wanted = frozenset(wish.incident for wish in wishes if wish.action == "stop" and wish.rung not in ended)
        for number, incident in list(self.incidents.items()):
            due = incidents.outcome_due(incident, intents, wanted)
            if due:
                self.incidents[number] = replace(incident, told_actions=incident.told_actions + due)
                self._news.setdefault(incident.number, "update")

    def tell(self, rebooted: bool) -> tuple[Transition, ...]:
        """What people must hear of now; incidents that are over are taken out."""
        transitions = []
        for number, incident in list(self.incidents.items()):
            news = self._news.get(incident.number, "")
            incident = _with_bundle(incident, self._inputs.intents)
            if news:
                incident, transition = incidents.transition(incident, news)
                transitions.append(transition)
            if rebooted or not self._being_put_back(incident):
                incident, settled = incidents.settle(incident, self._now, rebooted)
            else:
                settled = ""
            if settled:
                incident, transition = incidents.transition(incident, settled)
                transitions.append(transition)
            if incident.closed is not None:
                del self.incidents[number]
                self._closed.append(incident)
            else:
                self.incidents[number] = incident
        return tuple(transitions)

    def _being_put_back(self, incident: Incident) -> bool:
        """It is not over before what was done about it is put back; for a while, since that may fail."""
        cleared = [cause.cleared for cause in incident.causes if cause.cleared is not None]
        ages = [age for age in map(self._now.since, cleared) if age is not None]
        if not ages or min(ages) >= PUT_BACK_S:
            return False
        return any(each.incident == incident.number and each.state in IN_FORCE for each in self._inputs.intents)


def _with_bundle(incident: Incident, intents: Iterable[Intent]) -> Incident:
    preserved = [
        intent.bundle
        for intent in intents
        if intent.incident == incident.number and intent.bundle and intent.preserved is not None
    ]
    return replace(incident, bundle=preserved[-1]) if preserved and incident.bundle != preserved[-1] else incident
