"""What a rule judges: the readings of every subject that it is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Optional

from gpuwatch.model import units
from gpuwatch.model.event import Event
from gpuwatch.model.gpu import Attribution, GpuSample
from gpuwatch.model.incident import Subject
from gpuwatch.model.instant import Instant
from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import Reading, value
from gpuwatch.model.rule import Rule
from gpuwatch.model.settings import Settings
from gpuwatch.policy.state import Alert, Inputs, KnownGpu
from gpuwatch.policy.victims import workload_of

HOST = Subject("host", "")
OF_UNIT = frozenset({"oom_kill", "unit_oom", "oomd_kill"})  # and every kind that begins with "unit_"

Judged = tuple[Subject, str, Reading, Instant]


class Subjects:
    """The subjects of one step. `samples` is empty while the driver's report is stale."""

    def __init__(
        self, inputs: Inputs, samples: tuple[GpuSample, ...], taken: Optional[Instant], settings: Settings
    ) -> None:
        self._inputs, self._taken, self._settings = inputs, taken, settings
        self._attributions = {each.uuid: each for each in inputs.attributions}
        self._gpus = [(sample, Subject("gpu", sample.uuid), f"GPU {sample.index}") for sample in samples]

    def readings(self, rule: Rule) -> Iterator[Judged]:
        """Every reading that the rule judges now."""
        assert rule.metric is not None
        scope = METRICS[rule.metric].scope
        if scope == "gpu":
            yield from self._of_gpus(rule, rule.metric)
        elif scope == "host":
            reading = self._inputs.host.get(rule.metric)
            if reading is not None:
                yield HOST, "host", reading, self._inputs.now
        for each in self._inputs.subjects:
            if each.subject.kind == scope and rule.metric in each.readings and self._selected(rule, each.subject):
                yield each.subject, each.label, each.readings[rule.metric], each.taken

    def _of_gpus(self, rule: Rule, metric: str) -> Iterator[Judged]:
        if self._taken is None:
            return
        for sample, subject, label in self._gpus:
            if rule.unless_supported is not None:
                other = sample.reading(rule.unless_supported)
                if other is None or not other.unsupported:
                    continue
            reading = value(1.0 if sample.lost else 0.0) if metric == "gpu.lost" else sample.reading(metric)
            if reading is not None and self.selects_gpu(rule, sample.uuid, sample.name):
                taken = self._inputs.report.taken_of(sample, metric) or self._taken
                yield subject, label, reading, taken

    def selects_gpu(self, rule: Rule, uuid: str, model: str) -> bool:
        """True when the rule's selector does not leave this card out."""
        only = rule.only
        if only.everything:
            return True
        if only.gpus and not units.matches(uuid, only.gpus):
            return False
        if only.models and not units.matches(model, only.models):
            return False
        if not only.workloads and not only.units:
            return True
        used = _units_on(self._attributions.get(uuid))
        return any(self._selects_unit(rule, unit) for unit in used)

    def selects_event(self, rule: Rule, subject: Subject, known: Mapping[str, KnownGpu]) -> bool:
        """The same for an event's subject."""
        if subject.kind == "gpu":
            gpu = known.get(subject.id)
            return self.selects_gpu(rule, subject.id, gpu.name if gpu else "")
        return self._selected(rule, subject)

    def _selected(self, rule: Rule, subject: Subject) -> bool:
        only = rule.only
        if only.everything:
            return True
        if subject.kind == "unit":
            return self._selects_unit(rule, subject.id)
        if subject.kind == "workload":
            return not only.workloads or units.matches(subject.id, only.workloads)
        if subject.kind == "filesystem":
            return not only.filesystems or units.matches(subject.id, only.filesystems)
        return subject.kind != "sensor" or not only.sensors or units.matches(subject.id, only.sensors)

    def _selects_unit(self, rule: Rule, unit: str) -> bool:
        only = rule.only
        workload = workload_of(unit, self._settings)
        named = not only.workloads or (workload is not None and units.matches(workload.name, only.workloads))
        return named and (not only.units or units.matches(unit, only.units))


def _units_on(attribution: Optional[Attribution]) -> frozenset[str]:
    if attribution is None or attribution.unknown:
        return frozenset()
    return frozenset(owner.unit for owner in attribution.owners if owner.kind == "unit" and owner.unit)


def event_subject(event: Event, by_pci: Mapping[str, str], known: Mapping[str, KnownGpu]) -> tuple[Subject, str]:
    """Whom an event is about: a card, a unit, or the host. What anybody could have written names no card (S10)."""
    forgeable = event.fields.get("source_trust") == "user"
    pci = None if forgeable else event.fields.get("pci")
    uuid = event.uuid or (by_pci.get(pci) if isinstance(pci, str) else None)
    if uuid is not None:
        gpu = known.get(uuid)
        return Subject("gpu", uuid), f"GPU {gpu.index}" if gpu else f"GPU {uuid[4:12]}"
    if isinstance(pci, str) and event.kind in OF_GPU:
        return Subject("gpu", pci), f"GPU {pci}"
    unit = event.fields.get("unit")
    of_unit = event.kind in OF_UNIT or event.kind.startswith("unit_")
    if of_unit and isinstance(unit, str) and event.fields.get("scope") != "host" and not forgeable:
        return Subject("unit", unit), unit
    return HOST, "host"


KILL_S = 10.0  # the kernel's lines of one kill are microseconds apart, on a host that thrashes seconds


def victim_of(event: Event, firing: Iterable[Alert], rules: Mapping[str, Rule]) -> Optional[tuple[Subject, str]]:
    """The unit that a further line of a kill is about: only the first says in which cgroup ("oom-kill:constraint=...",
    then "Memory cgroup out of memory: Killed process ..."). None for what stands for itself."""
    if event.kind != "oom_kill" or "cgroup" in event.fields or event.fields.get("scope") == "host":
        return None
    units = [alert for alert in firing if alert.subject.kind == "unit" and _of_kind(rules.get(alert.rule), "oom_kill")]
    for alert in sorted(units, key=lambda each: -each.sample.boottime_s):
        age = event.seen.since(alert.sample)
        if age is not None and age <= KILL_S:
            return alert.subject, alert.label
    return None


def _of_kind(rule: Optional[Rule], kind: str) -> bool:
    return rule is not None and rule.event is not None and rule.event.kind == kind


# Kinds whose PCI address is a GPU's even before its UUID is known; others name bridges and switches.
OF_GPU = frozenset({"xid", "gpu_lost", "gpu_init_failed", "gsp_timeout"})
