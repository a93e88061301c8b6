"""One step of judgement: what was seen goes in, what is wanted now comes out. Pure.

    step(state, inputs, settings) -> Outcome

Invariants (policy/invariants.py states them, tests check them over random histories):
- no wish rests on a missing, stale, failed or implausible reading (S3): its `sample` is that of a
  reading that was usable, and it is repeated, never advanced, while readings are missing;
- every wish to stop names a configured, unprotected leaf unit with a confirmed process on the GPU (S2, S11);
- an alert that fires ends only by its clear condition, a changed rule, a person, or (events) time or a reboot;
- an event of an earlier boot, or older than a minute when read, wants nothing (S9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Optional

from gpuwatch.model import reason
from gpuwatch.model.event import Event, Scalar
from gpuwatch.model.gpu import Attribution, DriverState, GpuSample
from gpuwatch.model.incident import Subject
from gpuwatch.model.instant import Instant
from gpuwatch.model.reading import Reading, value
from gpuwatch.model.rule import Rule, Severity
from gpuwatch.model.settings import Settings
from gpuwatch.model.trace import Trace
from gpuwatch.model.wish import Decision, Wish
from gpuwatch.policy import conditions, facts
from gpuwatch.policy.book import Book
from gpuwatch.policy.explained import children, follows, inhibited
from gpuwatch.policy.ladder import climb
from gpuwatch.policy.plausibility import FROZEN, JUMP, assess
from gpuwatch.policy.repeats import Repeats
from gpuwatch.policy.situation import Situation, heat_metric
from gpuwatch.policy.state import (
    OLD_EVENT_S,
    OWN_DOING_S,
    STALE_S,
    Alert,
    Inputs,
    KnownGpu,
    Outcome,
    PolicyState,
    Window,
)
from gpuwatch.policy.subjects import HOST, Subjects, event_subject, victim_of
from gpuwatch.policy.throttles import one_a_gpu


def step(state: PolicyState, inputs: Inputs, settings: Settings) -> Outcome:
    """One cycle's judgement; see the module."""
    return _Step(state, inputs, settings).run()


class _Step:
    """The working copy of one step; nothing of it outlives run()."""

    def __init__(self, state: PolicyState, inputs: Inputs, settings: Settings) -> None:
        self.inputs, self.settings = inputs, settings
        self.now = inputs.now
        self.classes = settings.class_overrides(inputs.now.utc_s)
        self.rebooted = state.boot_id not in ("", inputs.now.boot_id)
        self.rules = {rule.name: rule for rule in settings.rules if rule.enabled}
        self.alerts: dict[str, Alert] = dict(state.alerts)
        self.active: set[str] = set()  # rules that have an alert
        self.book = Book(state, inputs)
        self.windows: dict[str, Window] = {} if self.rebooted else dict(state.windows)
        self.repeats = Repeats(state.troubles, inputs.now)
        self.gpus: dict[str, KnownGpu] = dict(state.gpus)
        self.decisions: list[Decision] = []
        self.wishes: list[Wish] = []
        report = inputs.report
        age = None if report.taken is None else self.now.since(report.taken)
        self.taken = report.taken if report.state is DriverState.OK and age is not None and age <= STALE_S else None
        self.samples: tuple[GpuSample, ...] = report.samples if self.taken else ()
        self.by_uuid = {sample.uuid: sample for sample in self.samples}
        self.subjects = Subjects(inputs, self.samples, self.taken, settings)

    def run(self) -> Outcome:
        """In the order of the module's picture: conditions, then wishes, then what people are told."""
        for sample in self.samples:
            nameless = not sample.uuid or sample.uuid.startswith("unidentified-")  # lost before it told its UUID
            if not nameless and (not sample.lost or sample.uuid not in self.gpus):
                self.gpus[sample.uuid] = KnownGpu(sample.index, sample.name, sample.pci)
        self._name_what_had_an_address()
        self._end_what_no_longer_stands()
        self.active = {alert.rule for alert in self.alerts.values()}
        for rule in self.rules.values():
            if rule.metric is not None and rule.metric != "host.acting_stopped":
                for subject, label, reading, taken in self.subjects.readings(rule):
                    self._judge(rule, subject, label, reading, taken)
        for event in self.inputs.events:
            self._match(event)
        self._quiet()
        self._climb()
        self._judge_budget()
        self.book.note_outcomes(self.wishes)
        transitions = self.book.tell(self.rebooted)
        return Outcome(
            state=PolicyState(
                self.alerts,
                self.book.incidents,
                self.book.next_incident,
                self.gpus,
                self.now.boot_id,
                self.windows,
                self.repeats.troubles,
            ),
            wishes=tuple(self.wishes),
            transitions=transitions,
            decisions=tuple(self.decisions),
            changed=self.book.changed(),
        )

    # Conditions

    def _name_what_had_an_address(self) -> None:
        """What was filed under a PCI address while the card had no UUID yet (no driver, a line at boot)
        goes on under its UUID: one card is one subject."""
        uuids = self._by_pci()
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
        self.book.rename(uuids)

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
        for key, window in list(self.windows.items()):
            rule = self.rules.get(key.split("|", 1)[0])
            if rule is None or conditions.rule_print(rule) != window.rule_print:
                del self.windows[key]

    def _judge(self, rule: Rule, subject: Subject, label: str, reading: Reading, taken: Instant) -> None:
        assert rule.metric is not None
        number = conditions.usable(rule.metric, reading)
        if (rule.name not in self.active and rule.change_over_s is None) and (
            number is None or not conditions.limits(rule, self.by_uuid.get(subject.id))[0].holds(number)
        ):
            return  # nearly all readings of nearly all days end here
        key = conditions.alert_key(rule.name, subject)
        if number is not None and rule.change_over_s is not None:
            self.windows[key], number = conditions.change(self.windows.get(key), rule, number, taken)
        if number is None:
            return  # neither fires nor clears
        sample = self.by_uuid.get(subject.id)
        limit = conditions.limits(rule, sample)
        if key in self.alerts and not limit[0].holds(number) and self._falsely_cool(rule, sample):
            return
        period_s = conditions.period_of(rule, self.inputs.period_s)
        alert, news = conditions.judge(self.alerts.get(key), rule, subject, label, number, taken, period_s, limit)
        if alert is not None:
            self.alerts[key] = alert
        elif news == "":
            self.alerts.pop(key, None)
        if news == reason.FIRED and alert is not None:
            found = facts.of_reading(rule, number, limit[0], sample, self.samples, self.inputs)
            self._open(key, rule, alert, found)
        elif news == reason.CLEARED:
            self._end(key, reason.CLEARED)
        elif news:
            self._decide(news, rule.name, subject, label, {"value": number})
        alert = self.alerts.get(key)
        if alert is not None and alert.incident:
            self.book.note_peaks(alert, rule.metric, number, limit[0].below is not None, sample)

    def _falsely_cool(self, rule: Rule, sample: Optional[GpuSample]) -> bool:
        """A reading that stands still under load, or fell faster than anything cools, clears nothing (S3)."""
        if not rule.heat or sample is None:
            return False
        trace = self.inputs.traces.get(sample.uuid, Trace())
        return assess(sample, trace, self.samples, heat_metric(rule)).suspect in (FROZEN, JUMP)

    def _match(self, event: Event) -> None:
        subject, label = event_subject(event, self._by_pci(), self.gpus)
        if event.at.boot_id != self.now.boot_id:
            self._decide(reason.HISTORY, "", subject, label, {"kind": event.kind, **facts.codes(event)})
            return
        subject, label = victim_of(event, self.alerts.values(), self.rules) or (subject, label)
        age = event.seen.since(event.at)
        old = age is None or age > OLD_EVENT_S
        owner = facts.owner_of(event, self._attribution(subject), self.now)
        if owner is not None:
            event = replace(
                event, fields={**event.fields, "user": owner.user, "unit": owner.unit or owner.container_name}
            )
        event = self.repeats.note(event, subject, self.classes)
        cause = children(event, subject, self.book.incidents.values())
        if cause is not None:
            self.book.follow(cause, {**facts.codes(event), "count": event.count})
            return
        for rule in self.rules.values():
            if rule.event is None or not conditions.matches(rule.event, event, self.classes):
                continue
            if self.subjects.selects_event(rule, subject, self.gpus):
                self._matched(rule, subject, label, event, old)

    def _matched(self, rule: Rule, subject: Subject, label: str, event: Event, old: bool) -> None:
        assert rule.event is not None
        key = conditions.alert_key(rule.name, subject)
        more: dict[str, Scalar] = {}
        if rule.event.count > 1:
            whose = str(event.fields.get("user") or "")
            self.windows[key], total = conditions.counted(self.windows.get(key), rule, whose, event.count, event.seen)
            if total is None:
                return
            more = {"total": total, "within_s": rule.event.within_s}
            if rule.event.different:
                more["users"] = ", ".join(sorted(set(self.windows[key].owners)))
        alert, news = conditions.matched(self.alerts.get(key), rule, subject, label, event, old)
        self.alerts[key] = alert
        if not news and event.fields.get("unit"):
            # Somebody else's program may be the next to fail: each owner finds it in the log of the own unit.
            self._decide(reason.AGAIN, rule.name, subject, label, facts.of_event(event, old, self.classes))
        if news == reason.FIRED:
            found = facts.of_event(event, old, self.classes)
            sample = self.by_uuid.get(subject.id)
            if sample is not None and "recovery_to" not in found:
                action = conditions.usable("gpu.recovery_action", sample.reading("gpu.recovery_action"))
                found.update({"recovery_to": int(action)} if action else {})
            self._open(key, rule, alert, {**self._own_doing(subject), **found, **more})

    def _quiet(self) -> None:
        """An event alert ends when its event was not seen again for a while."""
        for key, alert in list(self.alerts.items()):
            rule = self.rules[alert.rule]
            if rule.event is None or rule.quiet_for_s is None:
                continue
            quiet = self.now.since(alert.sample)
            if quiet is None or quiet < rule.quiet_for_s:
                continue
            if alert.cleared is None and alert.keep_s > 0:
                self.alerts[key] = alert = replace(alert, cleared=self.now)
            if alert.keep_s == 0 or conditions.kept_long_enough(alert, self.now):
                self._end(key, reason.CLEARED)

    def _open(self, key: str, rule: Rule, alert: Alert, found: Mapping[str, Scalar]) -> None:
        self._decide(reason.FIRED, rule.name, alert.subject, alert.label, found)
        if rule.severity is Severity.INFO:
            return  # for the log and the digest only
        explained = follows(rule, alert.subject, self.alerts.values(), self.rules)
        if explained:
            found = {**found, "follows": explained}
        self.alerts[key] = self.book.join(alert, rule, found, explained)

    def _end(self, key: str, why: str) -> None:
        alert = self.alerts.pop(key)
        if alert.phase == "firing":
            self._decide(why, alert.rule, alert.subject, alert.label, {})
        self.book.leave(alert, why)

    # Wishes

    def _climb(self) -> None:
        firing = [(key, alert) for key, alert in self.alerts.items() if alert.phase == "firing"]
        firing.sort(key=lambda pair: (-self.rules[pair[1].rule].severity.rank, pair[0]))
        situation = self._situation([alert for _, alert in firing])
        wanted: list[Wish] = []
        for key, alert in firing:
            climbed, wishes = climb(alert, self.rules[alert.rule], situation)
            taken = [wish for wish in wishes if not _taken_by_another(wish, wanted)]
            if climbed.reason != alert.reason and climbed.reason:
                more = self._why(climbed, situation)
                self._decide(climbed.reason, alert.rule, alert.subject, alert.label, more)
            self.alerts[key] = climbed
            wanted.extend(taken)
            chosen = next((wish.because for wish in taken if wish.because), {})
            self.book.note_why(climbed, {"reason": climbed.reason, **self._why(climbed, situation), **chosen})
        self.wishes = list(one_a_gpu(wanted))

    def _situation(self, firing: list[Alert]) -> Situation:
        hot = {
            (alert.subject.id, heat_metric(self.rules[alert.rule]))
            for alert in firing
            if alert.subject.kind == "gpu" and self.rules[alert.rule].heat
        }
        return Situation(
            now=self.now,
            settings=self.settings,
            intents=self.inputs.intents,
            orders=self.inputs.orders,
            started=self.inputs.started,
            period_s=self.inputs.period_s,
            samples=self.by_uuid,
            attributions={each.uuid: each for each in self.inputs.attributions},
            assessments={
                (uuid, metric): assess(self.by_uuid[uuid], self.inputs.traces.get(uuid, Trace()), self.samples, metric)
                for uuid, metric in sorted(hot)
                if uuid in self.by_uuid
            },
            subjects=self.inputs.subjects,
            host=self.inputs.host,
            containers={each.id: each for each in self.inputs.containers},
            silent_engines=self.inputs.silent_engines,
            inhibited=inhibited(firing, self.rules),
        )

    def _why(self, alert: Alert, situation: Situation) -> dict[str, Scalar]:
        """What a reason rests on, where it is a judgement of ours: people must be able to disagree."""
        assessment = situation.assessment(alert, self.rules[alert.rule])
        if alert.reason in (reason.SUSPECT, reason.COOLING) and assessment is not None:
            return dict(assessment.facts())
        if alert.reason == reason.INHIBITED:
            return {"by": situation.inhibited.get(alert.subject, "")}
        return {}

    def _judge_budget(self) -> None:
        """ "I stopped acting" is itself something to be told (S4)."""
        blocked = any(alert.reason == reason.BUDGET_SPENT for alert in self.alerts.values())
        for rule in self.rules.values():
            if rule.metric == "host.acting_stopped":
                self._judge(rule, HOST, "host", value(1.0 if blocked else 0.0), self.now)

    # Names and facts

    def _own_doing(self, subject: Subject) -> dict[str, Scalar]:
        """An error right after we stopped a process on that card is likely of our own making (N18)."""
        for intent in self.inputs.intents:
            age = None if intent.sent is None else self.now.since(intent.sent)
            if intent.action == "stop" and intent.gpu == subject.id and age is not None and age < OWN_DOING_S:
                return {"after_own_action": intent.id}
        return {}

    def _attribution(self, subject: Subject) -> Optional[Attribution]:
        return next((each for each in self.inputs.attributions if each.uuid == subject.id), None)

    def _by_pci(self) -> dict[str, str]:
        return {known.pci: uuid for uuid, known in self.gpus.items()}

    def _decide(self, code: str, rule: str, subject: Subject, label: str, found: Mapping[str, Scalar]) -> None:
        self.decisions.append(Decision(code, rule, subject, label, found))


def _taken_by_another(wish: Wish, wanted: list[Wish]) -> bool:
    """One new stop a target and a GPU in one step, whatever many rules want (S4); throttles are merged, not dropped."""
    if wish.action == "hold":
        return any(other.action == "hold" and other.target == wish.target for other in wanted)
    if wish.action == "snapshot":  # two rules that see one trouble: one bundle of these moments is enough
        return any(other.action == "snapshot" and other.incident == wish.incident for other in wanted)
    return wish.action == "stop" and any(
        other.action == "stop"
        and other.rung != wish.rung
        and (other.target == wish.target or (other.gpu == wish.gpu and (wish.gpu or other.incident == wish.incident)))
        for other in wanted
    )
