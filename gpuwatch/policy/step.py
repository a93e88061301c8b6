"""One step of judgement: what was seen goes in, what is wanted now comes out. Pure.

    step(state, inputs, settings) -> Outcome

Invariants (tests check them over random histories):
- no wish rests on a missing, stale, failed or implausible reading (S3): its `sample` is that of a
  reading that was usable, and it is repeated, never advanced, while readings are missing;
- every wish names a configured, unprotected leaf unit with a confirmed process on the GPU (S2, S11);
- an alert that fires ends only by its clear condition, a changed rule, or (events) time or a reboot;
- an event of an earlier boot, or older than a minute when read, wants nothing (S9).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Optional

from gpuwatch.catalog import xid as xid_table
from gpuwatch.model import reason
from gpuwatch.model.event import Event, Scalar
from gpuwatch.model.gpu import DriverState, GpuSample
from gpuwatch.model.incident import Incident, Subject
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import FINAL
from gpuwatch.model.metric import METRICS
from gpuwatch.model.notification import Transition
from gpuwatch.model.reading import Reading, value
from gpuwatch.model.rule import Rule, Severity
from gpuwatch.model.settings import Settings
from gpuwatch.model.wish import Decision, Wish
from gpuwatch.policy import conditions, incidents
from gpuwatch.policy.ladder import Situation, climb
from gpuwatch.policy.state import OLD_EVENT_S, OWN_DOING_S, STALE_S, Alert, Inputs, KnownGpu, Outcome, PolicyState

HOST = Subject("host", "")


def step(state: PolicyState, inputs: Inputs, settings: Settings) -> Outcome:
    """One cycle's judgement; see the module."""
    return _Step(state, inputs, settings).run()


def forget_gpu(state: PolicyState, uuid: str, now: Instant) -> PolicyState:
    """The state without a card that was taken out on purpose: what it was accused of ends."""
    open_incidents = dict(state.incidents)
    kept = {}
    for key, alert in state.alerts.items():
        if alert.subject != Subject("gpu", uuid):
            kept[key] = alert
        elif str(alert.incident) in open_incidents:
            incident = open_incidents[str(alert.incident)]
            open_incidents[str(alert.incident)] = incidents.leave(incident, alert.rule, now, reason.FORGOTTEN)
    gpus = {known: gpu for known, gpu in state.gpus.items() if known != uuid}
    return replace(state, alerts=kept, incidents=open_incidents, gpus=gpus)


class _Step:
    """The working copy of one step; nothing of it outlives run()."""

    def __init__(self, state: PolicyState, inputs: Inputs, settings: Settings) -> None:
        self.before, self.inputs, self.settings = state, inputs, settings
        self.now = inputs.now
        self.classes = settings.class_overrides()
        self.rebooted = state.boot_id not in ("", inputs.now.boot_id)
        self.rules = {rule.name: rule for rule in settings.rules if rule.enabled}
        self.alerts: dict[str, Alert] = dict(state.alerts)
        self.incidents: dict[str, Incident] = dict(state.incidents)
        self.closed: list[Incident] = []
        self.gpus: dict[str, KnownGpu] = dict(state.gpus)
        self.next_incident = state.next_incident
        self.decisions: list[Decision] = []
        self.wishes: list[Wish] = []
        self.news: dict[int, str] = {}  # incident number -> transition to tell
        report = inputs.report
        age = None if report.taken is None else self.now.since(report.taken)
        self.taken = report.taken if report.state is DriverState.OK and age is not None and age <= STALE_S else None
        self.samples: tuple[GpuSample, ...] = report.samples if self.taken else ()

    def run(self) -> Outcome:
        """In the order of the module's picture: conditions, then wishes, then what people are told."""
        for sample in self.samples:
            nameless = not sample.uuid or sample.uuid.startswith("unidentified-")  # lost before it told its UUID
            if not nameless and (not sample.lost or sample.uuid not in self.gpus):
                self.gpus[sample.uuid] = KnownGpu(sample.index, sample.name, sample.pci)
        self._name_what_had_an_address()
        self._end_what_no_longer_stands()
        for rule in self.rules.values():
            if rule.metric is not None and rule.metric != "host.acting_stopped":
                for subject, label, reading, taken in self._readings(rule):
                    self._judge(rule, subject, label, reading, taken)
        for event in self.inputs.events:
            self._match(event)
        self._quiet()
        self._climb()
        self._judge_budget()
        self._tell_outcomes()
        transitions = self._tell()
        return Outcome(
            state=PolicyState(self.alerts, self.incidents, self.next_incident, self.gpus, self.now.boot_id),
            wishes=tuple(self.wishes),
            transitions=transitions,
            decisions=tuple(self.decisions),
            changed=tuple(
                incident
                for incident in (*self.incidents.values(), *self.closed)
                if self.before.incidents.get(str(incident.number)) != incident
            ),
        )

    # Conditions

    def _name_what_had_an_address(self) -> None:
        """What was filed under a PCI address while the card had no UUID yet (no driver, a line at boot)
        goes on under its UUID: one card is one subject."""
        uuids = self._aliases()
        for key, alert in list(self.alerts.items()):
            if alert.subject.kind != "gpu" or alert.subject.id not in uuids:
                continue
            subject = Subject("gpu", uuids[alert.subject.id])
            named = conditions.alert_key(alert.rule, subject)
            if named in self.alerts:
                self._end(key, reason.CLEARED)
            else:
                label = f"GPU {self.gpus[subject.id].index}"
                self.alerts[named] = replace(self.alerts.pop(key), subject=subject, label=label)
        for number, incident in self.incidents.items():
            if incident.subject.kind == "gpu" and incident.subject.id in uuids:
                self.incidents[number] = replace(incident, subject=Subject("gpu", uuids[incident.subject.id]))

    def _end_what_no_longer_stands(self) -> None:
        """Alerts of rules that are gone or different; pending ones and events of an earlier boot."""
        for key, alert in list(self.alerts.items()):
            rule = self.rules.get(alert.rule)
            if rule is None or conditions.rule_print(rule) != alert.rule_print:
                self._end(key, reason.RULE_CHANGED)
            elif self.rebooted and alert.phase == "pending":
                del self.alerts[key]
            elif self.rebooted and rule.event is not None:
                self._end(key, reason.REBOOTED)

    def _readings(self, rule: Rule) -> Iterator[tuple[Subject, str, Reading, Instant]]:
        assert rule.metric is not None
        scope = METRICS[rule.metric].scope
        if scope == "gpu":
            yield from self._gpu_readings(rule, rule.metric)
        elif scope == "host":
            reading = self.inputs.host.get(rule.metric)
            if reading is not None:
                yield HOST, "host", reading, self.now
        for each in self.inputs.subjects:
            if each.subject.kind == scope and rule.metric in each.readings:
                yield each.subject, each.label, each.readings[rule.metric], each.taken

    def _gpu_readings(self, rule: Rule, metric: str) -> Iterator[tuple[Subject, str, Reading, Instant]]:
        if self.taken is None:
            return
        for sample in self.samples:
            if rule.unless_supported is not None:
                other = sample.reading(rule.unless_supported)
                if other is None or not other.unsupported:
                    continue
            reading = value(1.0 if sample.lost else 0.0) if metric == "gpu.lost" else sample.reading(metric)
            if reading is not None:
                taken = self.inputs.report.taken_of(sample, metric) or self.taken
                yield Subject("gpu", sample.uuid), f"GPU {sample.index}", reading, taken

    def _judge(self, rule: Rule, subject: Subject, label: str, reading: Reading, taken: Instant) -> None:
        assert rule.metric is not None and rule.threshold is not None
        key = conditions.alert_key(rule.name, subject)
        number = conditions.usable(rule.metric, reading)
        if number is None:
            return  # neither fires nor clears
        period_s = max(self.inputs.period_s, METRICS[rule.metric].every_s)
        alert, news = conditions.judge(self.alerts.get(key), rule, subject, label, number, taken, period_s)
        if alert is not None:
            self.alerts[key] = alert
        elif news == "":
            self.alerts.pop(key, None)
        if news == reason.FIRED and alert is not None:
            self._open(key, rule, alert, self._reading_facts(rule, subject, number))
        elif news == reason.CLEARED:
            self._end(key, reason.CLEARED)
        elif news:
            self._decide(news, rule.name, subject, label, {"value": number})
        alert = self.alerts.get(key)
        if alert is not None and alert.incident:
            incident = self.incidents[str(alert.incident)]
            worse_below = rule.threshold.below is not None
            self.incidents[str(alert.incident)] = incidents.note_peak(incident, rule.metric, number, worse_below)
            self._note_temperature(alert, subject)

    def _note_temperature(self, alert: Alert, subject: Subject) -> None:
        """Margins judge, but people think in degrees: keep the peak temperature too."""
        sample = self._sample(subject)
        reading = None if sample is None else sample.readings.get("gpu.temperature")
        number = conditions.usable("gpu.temperature", reading)
        if number is not None:
            incident = self.incidents[str(alert.incident)]
            self.incidents[str(alert.incident)] = incidents.note_peak(incident, "gpu.temperature", number, False)

    def _match(self, event: Event) -> None:
        subject, label = self._event_subject(event)
        if event.at.boot_id != self.now.boot_id:
            self._decide(reason.HISTORY, "", subject, label, {"kind": event.kind, **_codes(event)})
            return
        age = event.seen.since(event.at)
        old = age is None or age > OLD_EVENT_S
        for rule in self.rules.values():
            if rule.event is None or not conditions.matches(rule.event, event, self.classes):
                continue
            key = conditions.alert_key(rule.name, subject)
            alert, news = conditions.matched(self.alerts.get(key), rule, subject, label, event, old)
            self.alerts[key] = alert
            if news == reason.FIRED:
                self._open(key, rule, alert, self._own_doing(subject) | _event_facts(event, old, self.classes))

    def _quiet(self) -> None:
        """An event alert ends when its event was not seen again for a while."""
        for key, alert in list(self.alerts.items()):
            rule = self.rules[alert.rule]
            if rule.event is None or rule.quiet_for_s is None:
                continue
            quiet = self.now.since(alert.sample)
            if quiet is not None and quiet >= rule.quiet_for_s:
                self._end(key, reason.CLEARED)

    # Incidents

    def _open(self, key: str, rule: Rule, alert: Alert, facts: Mapping[str, Scalar]) -> None:
        self._decide(reason.FIRED, rule.name, alert.subject, alert.label, facts)
        if rule.severity is Severity.INFO:
            return  # for the log and the digest only
        incident = incidents.find(self.incidents, alert.subject)
        if incident is None:
            incident = incidents.open_incident(
                self.next_incident, self.inputs.host_name, alert.subject, alert.label, rule, self.now
            )
            self.next_incident += 1
        incident, news = incidents.join(incident, rule, alert.since, self.now, facts)
        self.incidents[str(incident.number)] = incident
        self.alerts[key] = replace(alert, incident=incident.number)
        if news and self.news.get(incident.number) != "firing":
            self.news[incident.number] = news

    def _end(self, key: str, why: str) -> None:
        alert = self.alerts.pop(key)
        incident = self.incidents.get(str(alert.incident))
        if alert.phase == "firing":
            self._decide(why, alert.rule, alert.subject, alert.label, {})
        if incident is not None:
            self.incidents[str(alert.incident)] = incidents.leave(incident, alert.rule, self.now, why)

    # Wishes

    def _climb(self) -> None:
        attributions = {attribution.uuid: attribution for attribution in self.inputs.attributions}
        firing = [(key, alert) for key, alert in self.alerts.items() if alert.phase == "firing"]
        firing.sort(key=lambda pair: (-self.rules[pair[1].rule].severity.rank, pair[0]))
        for key, alert in firing:
            situation = Situation(
                self.now,
                self.inputs.intents,
                attributions.get(alert.subject.id),
                self.settings,
            )
            climbed, wishes = climb(alert, self.rules[alert.rule], situation)
            wishes = tuple(wish for wish in wishes if not self._taken_by_another(wish))
            if climbed.reason != alert.reason and climbed.reason:
                self._decide(climbed.reason, alert.rule, alert.subject, alert.label, {})
            self.alerts[key] = climbed
            self.wishes.extend(wishes)
            self._note_reason(climbed)

    def _taken_by_another(self, wish: Wish) -> bool:
        """One new action a target and a GPU in one step, whatever many rules want (S4)."""
        return wish.action == "stop" and any(
            other.action == "stop"
            and other.rung != wish.rung
            and (other.target == wish.target or other.gpu == wish.gpu)
            for other in self.wishes
        )

    def _note_reason(self, alert: Alert) -> None:
        """The message says why nothing is done: keep the newest reason with the cause."""
        incident = self.incidents.get(str(alert.incident))
        if incident is None:
            return
        causes = tuple(
            replace(cause, facts={**cause.facts, "reason": alert.reason})
            if cause.rule == alert.rule and cause.facts.get("reason") != alert.reason
            else cause
            for cause in incident.causes
        )
        if causes != incident.causes:
            self.incidents[str(incident.number)] = replace(incident, causes=causes)

    def _judge_budget(self) -> None:
        """ "I stopped acting" is itself something to be told (S4)."""
        blocked = any(alert.reason == reason.BUDGET_SPENT for alert in self.alerts.values())
        for rule in self.rules.values():
            if rule.metric == "host.acting_stopped":
                self._judge(rule, HOST, "host", value(1.0 if blocked else 0.0), self.now)

    # What people are told

    def _tell_outcomes(self) -> None:
        ended = {intent.rung for intent in self.inputs.intents if intent.state in FINAL}
        wanted = frozenset(
            wish.incident for wish in self.wishes if wish.action != "snapshot" and wish.rung not in ended
        )
        for incident in list(self.incidents.values()):
            due = incidents.outcome_due(incident, self.inputs.intents, wanted)
            if due:
                self.incidents[str(incident.number)] = replace(incident, told_actions=incident.told_actions + due)
                self.news.setdefault(incident.number, "update")

    def _tell(self) -> tuple[Transition, ...]:
        transitions = []
        for incident in list(self.incidents.values()):
            news = self.news.get(incident.number, "")
            incident = self._note_bundle(incident)
            if news:
                incident, transition = incidents.transition(incident, news)
                transitions.append(transition)
            incident, settled = incidents.settle(incident, self.now, self.rebooted)
            if settled:
                incident, transition = incidents.transition(incident, settled)
                transitions.append(transition)
            if incident.closed is not None:
                del self.incidents[str(incident.number)]
                self.closed.append(incident)
            else:
                self.incidents[str(incident.number)] = incident
        return tuple(transitions)

    def _note_bundle(self, incident: Incident) -> Incident:
        preserved = [
            intent.bundle
            for intent in self.inputs.intents
            if intent.incident == incident.number and intent.bundle and intent.preserved is not None
        ]
        return replace(incident, bundle=preserved[-1]) if preserved and incident.bundle != preserved[-1] else incident

    # Names and facts

    def _own_doing(self, subject: Subject) -> dict[str, Scalar]:
        """An error right after we stopped a process on that card is likely of our own making (N18)."""
        for intent in self.inputs.intents:
            age = None if intent.sent is None else self.now.since(intent.sent)
            if intent.gpu == subject.id and age is not None and age < OWN_DOING_S:
                return {"after_own_action": intent.id}
        return {}

    def _event_subject(self, event: Event) -> tuple[Subject, str]:
        forgeable = event.fields.get("source_trust") == "user"
        pci = None if forgeable else event.fields.get("pci")
        uuid = event.uuid or (self._aliases().get(pci) if isinstance(pci, str) else None)
        if uuid is not None:
            known = self.gpus.get(uuid)
            return Subject("gpu", uuid), f"GPU {known.index}" if known else f"GPU {uuid[4:12]}"
        if isinstance(pci, str):
            return Subject("gpu", pci), f"GPU {pci}"
        return HOST, "host"

    def _aliases(self) -> dict[str, str]:
        return {known.pci: uuid for uuid, known in self.gpus.items()}

    def _sample(self, subject: Subject) -> Optional[GpuSample]:
        return next((sample for sample in self.samples if sample.uuid == subject.id), None)

    def _reading_facts(self, rule: Rule, subject: Subject, number: float) -> dict[str, Scalar]:
        assert rule.metric is not None and rule.threshold is not None
        limit = rule.threshold.below if rule.threshold.below is not None else rule.threshold.above
        facts: dict[str, Scalar] = {
            "metric": rule.metric,
            "unit": METRICS[rule.metric].unit,
            "value": number,
            "limit": limit,
            "direction": "below" if rule.threshold.below is not None else "above",
            "for_s": rule.for_s,
        }
        sample = self._sample(subject)
        if sample is not None:
            temperature = conditions.usable("gpu.temperature", sample.readings.get("gpu.temperature"))
            if temperature is not None:
                facts["temperature"] = temperature
            if sample.lost:
                facts["lost"] = sample.lost
            others = [
                degrees
                for other in self.samples
                if other.uuid != sample.uuid
                and (degrees := conditions.usable("gpu.temperature", other.readings.get("gpu.temperature"))) is not None
            ]
            if others:
                facts.update(others_low=min(others), others_high=max(others), others_count=len(others))
        if self.inputs.problems.get(rule.metric):
            facts["problem"] = self.inputs.problems[rule.metric]
        if rule.metric == "host.driver_silent":
            if self.inputs.report.state is DriverState.OK:
                # One card hangs, the driver answers for the others.
                silent = [sample.index for sample in self.samples if _says_nothing(sample)]
                facts["partial"] = ", ".join(f"GPU {index}" for index in silent) or "one GPU"
                facts["others_count"] = len(self.samples) - len(silent)
            facts["stuck_pids"] = " ".join(str(pid) for pid in self.inputs.stuck_pids) or None
        return facts

    def _decide(self, code: str, rule: str, subject: Subject, label: str, facts: Mapping[str, Scalar]) -> None:
        self.decisions.append(Decision(code, rule, subject, label, facts))


def _says_nothing(sample: GpuSample) -> bool:
    return not sample.lost and not any(reading.value is not None for reading in sample.readings.values())


def _codes(event: Event) -> dict[str, Scalar]:
    return {key: event.fields[key] for key in ("xid", "sxid", "pci") if event.fields.get(key) is not None}


def _event_facts(event: Event, old: bool, classes: Mapping[int, str]) -> dict[str, Scalar]:
    facts: dict[str, Scalar] = {"kind": event.kind, "count": event.count, "old": old, **_codes(event)}
    for key in ("process", "pid", "code", "fatal", "link", "pattern"):
        if event.fields.get(key) is not None:
            facts[key] = event.fields[key]
    if event.fields.get("meaning") is not None:
        facts.update(meaning_en=event.fields["meaning"], meaning_zh=event.fields["meaning"])
    code = event.fields.get("xid")
    if isinstance(code, int):
        entry = xid_table.lookup(code)
        facts.update(
            xid_class=xid_table.judge(event.fields, classes)[0],
            meaning_en=entry.sentence("en"),
            meaning_zh=entry.sentence("zh"),
        )
    return facts
