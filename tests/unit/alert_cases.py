"""Incidents as the policy makes them, and the messages that people should get of them.

`python -m tests.unit.alert_cases > tests/unit/golden/messages.txt` writes the golden file anew; read
the difference as somebody who was woken up by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta, timezone
from typing import Any, Optional

from gpuwatch.alerts.render import render
from gpuwatch.model.event import Scalar
from gpuwatch.model.incident import Cause, Incident, IncidentState, Subject, TimelineEntry
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.metric import METRICS
from gpuwatch.model.notification import Message
from gpuwatch.model.rule import Clear, Rule, Severity, Step, Threshold
from gpuwatch.model.settings import Settings

BOOT = "0" * 32
CST = timezone(timedelta(hours=8), "CST")
UUID = "GPU-3d9a7c10-0000-0000-0000-000000000000"
BUNDLE = "20261130T054532Z-gpu-critical-3d9a7c10"
MIDNIGHT_S = 1795968000.0  # 2026-11-30 00:00 in the zone CST


def at(clock: str) -> Instant:
    """A moment of 2026-11-30 in the zone CST, written 13:47:12."""
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    day_s = hours * 3600 + minutes * 60 + seconds
    return Instant(BOOT, 1000.0 + day_s, MIDNIGHT_S + day_s)


HEAT: dict[str, Scalar] = {
    "metric": "gpu.shutdown_margin",
    "unit": "C",
    "value": 2.0,
    "limit": 2.0,
    "direction": "below",
    "for_s": 5.0,
    "temperature": 92.0,
    "others_low": 61.0,
    "others_high": 68.0,
    "others_count": 7,
}
WARM: dict[str, Scalar] = {
    **HEAT,
    "metric": "gpu.slowdown_margin",
    "value": 3.0,
    "limit": 3.0,
    "for_s": 30.0,
    "temperature": 86.0,
}
XID: dict[str, Scalar] = {
    "kind": "xid",
    "xid": 79,
    "count": 1,
    "old": False,
    "pci": "0000:5e:00.0",
    "fatal": True,
    "xid_class": "host_restart",
    "meaning_en": "The driver lost the card on the PCIe bus.",
    "meaning_zh": "驱动在 PCIe 总线上找不到该卡。",
}
XID_13: dict[str, Scalar] = {
    **XID,
    "xid": 13,
    "xid_class": "application",
    "process": "python3",
    "pid": 41872,
    "count": 12,
    "meaning_en": "A program made the graphics engine fail.",
    "meaning_zh": "程序导致图形引擎出错。",
}
SILENT: dict[str, Scalar] = {
    "metric": "host.driver_silent",
    "unit": "s",
    "value": 45.0,
    "limit": 30.0,
    "direction": "above",
    "for_s": 0.0,
    "stuck_pids": "41872 41990",
}

STOP_RULE = Rule(
    "gpu-critical",
    Severity.CRITICAL,
    metric="gpu.shutdown_margin",
    threshold=Threshold(below=2.0),
    for_s=5.0,
    ladder=(Step(("snapshot", "stop")),),
)
_COOL = Clear(Threshold(above=8.0), 60.0)
THROTTLE_RULE = Rule(
    "gpu-heats",
    Severity.WARNING,
    metric="gpu.slowdown_margin",
    threshold=Threshold(below=3.0),
    for_s=30.0,
    clear=_COOL,
    ladder=(Step(("throttle",)), Step(("stop", "hold"), after_s=120.0)),
)
THROTTLE_ONLY = replace(THROTTLE_RULE, name="gpu-heats-only", ladder=(Step(("throttle",)),))
LATER_RULE = replace(THROTTLE_RULE, name="gpu-heats-later", ladder=(Step(("throttle",), after_s=300.0),))
SLOWED_RULE = Rule(
    "gpu-slowed",
    Severity.CRITICAL,
    metric="gpu.hw_thermal_slowdown",
    threshold=Threshold(above=0.5),
    for_s=300.0,
    clear=Clear(Threshold(below=0.5), 60.0),
    ladder=(Step(("throttle",)), Step(("stop",), after_s=120.0, worse=True)),
)
HOLD_RULE = Rule("gpu-lost", Severity.CRITICAL, metric="gpu.lost", ladder=(Step(("snapshot", "hold")),))
RULES = (THROTTLE_RULE, THROTTLE_ONLY, LATER_RULE, SLOWED_RULE, HOLD_RULE)
TELL_RULE = Rule("gpu-hot", Severity.WARNING, metric="gpu.slowdown_margin", threshold=Threshold(below=3.0), for_s=30.0)


def incident(
    facts: dict[str, Scalar],
    rule: str = "gpu-critical",
    severity: Severity = Severity.CRITICAL,
    since: str = "13:47:05",
    gpu: Optional[int] = 3,
    **changes: Any,
) -> Incident:
    """Incident 17 of host gpu-07 with one cause."""
    opened = Incident(
        number=17,
        id="gpu-07#17",
        subject=Subject("host", "") if gpu is None else Subject("gpu", UUID),
        label="host" if gpu is None else f"GPU {gpu}",
        state=IncidentState.OPEN,
        severity=severity,
        opened=at(since),
        causes=(Cause(rule, severity, at(since), facts),),
    )
    return replace(opened, **changes)


def host_incident(metric: str, since: str = "13:50:10", **facts: Scalar) -> Incident:
    """An incident of the host as a whole."""
    return incident({"metric": metric, **facts}, metric.split(".")[1].replace("_", "-"), since=since, gpu=None)


def over(open_incident: Incident, clock: str, how: str = "cleared") -> Incident:
    """The same, recovered."""
    causes = tuple(replace(cause, cleared=at(clock)) for cause in open_incident.causes)
    story = tuple(TimelineEntry(at(clock), how, {"rule": cause.rule}) for cause in causes)
    return replace(open_incident, causes=causes, story=story, state=IncidentState.RECOVERED, recovered=at(clock))


def stop(state: IntentState, reason: str = "", detail: str = "", **changes: Any) -> Intent:
    """The stop of train@llama.service for incident 17."""
    intent = Intent(
        id="a17-1",
        incident=17,
        rule="gpu-critical",
        step=0,
        action="stop",
        target="train@llama.service",
        workload="training",
        gpu=UUID,
        state=state,
        created=at("13:47:10"),
        changed=at("13:47:12"),
        reason=reason,
        detail=detail,
        users=("ml-team",),
        used_bytes=int(60.9 * 1024**3),
    )
    return replace(intent, **changes)


def throttle(state: IntentState, reason: str = "", detail: str = "", **changes: Any) -> Intent:
    """The throttle of GPU 3 for incident 17, from 700 W."""
    numbers: dict[str, Any] = {"id": "a17-1", "rule": "gpu-heats", "action": "throttle", "target": UUID}
    numbers.update(users=(), used_bytes=0, before=700.0, value=595.0, level=1)
    return stop(state, reason, detail, **{**numbers, **changes})


def hold(state: IntentState, reason: str = "", detail: str = "", **changes: Any) -> Intent:
    """The hold of train@llama.service for incident 17."""
    numbers: dict[str, Any] = {"id": "a17-2", "action": "hold", "users": (), "used_bytes": 0}
    return stop(state, reason, detail, **{**numbers, **changes})


def about(kind: str, name: str, **changes: Any) -> dict[str, Any]:
    """The subject of an incident that is about no card."""
    return {"subject": Subject(kind, name), "label": name, "gpu": None, **changes}


def reading(metric: str, value: float, limit: float, below: bool = False, **facts: Scalar) -> dict[str, Scalar]:
    """The facts of a metric's alert."""
    direction = "below" if below else "above"
    unit = METRICS[metric].unit if metric in METRICS else ""
    return {"metric": metric, "unit": unit, "value": value, "limit": limit, "direction": direction, **facts}


def settings(language: str = "en", **changes: Any) -> Settings:
    """Settings with a rule that stops and one that tells."""
    return replace(Settings(language=language, rules=(STOP_RULE, TELL_RULE, *RULES)), **changes)


@dataclass(frozen=True)
class Case:
    """What is known when one message is made."""

    name: str
    incident: Incident
    transition: str
    now: str
    intents: tuple[Intent, ...] = ()
    facts: dict[str, Scalar] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    def message(self, language: str, simulated: bool = False) -> Message:
        """The message."""
        return render(
            self.incident,
            self.transition,
            self.intents,
            settings(language, labels=self.labels),
            at(self.now),
            CST,
            simulated,
            self.facts,
        )


_S = IntentState
_HOT = incident(HEAT, bundle=BUNDLE, peak={"gpu.temperature": 92.0, "gpu.shutdown_margin": 2.0})
_STOPPED = stop(_S.VERIFIED, "verified", sent=at("13:47:12"), gone=at("13:47:23"))
_KILLED = replace(_STOPPED, killed=at("13:48:47"), gone=at("13:48:49"))
_TAKES = "stopping train@llama.service would also stop web.service, outside the workload"


def _throttles() -> tuple[Case, ...]:
    hot = incident({**WARM, "value": 0.0, "temperature": 89.0}, "gpu-heats", Severity.WARNING, "13:45:05")
    now: dict[str, Scalar] = {
        "temperature": 89.0,
        "value": 0.0,
        "others_low": 61.0,
        "others_high": 68.0,
        "others_count": 7,
    }
    sent, applied = at("13:45:09"), at("13:45:10")
    on = throttle(_S.APPLIED, "applied", sent=sent, applied=applied, value=500.0, level=2)
    cold: dict[str, Scalar] = {"temperature": 62.0}
    only = replace(hot, causes=(replace(hot.causes[0], rule="gpu-heats-only"),))
    late = incident({**WARM, "reason": "waiting"}, "gpu-heats-later", Severity.WARNING, "13:42:10")
    slowed = incident(reading("gpu.hw_thermal_slowdown", 1.0, 0.5, temperature=91.0, for_s=300.0), "gpu-slowed")
    held = hold(_S.APPLIED, "applied", applied=at("13:47:24"), before=0.0, value=1.0)
    no_drop_in = hold(_S.FAILED, "no_drop_in")
    rising: dict[str, Scalar] = {**now, "rising": True}
    return (
        Case("throttle, not yet", late, "firing", "13:42:41"),
        Case("throttle, planned", hot, "firing", "13:45:08", (throttle(_S.PLANNED, before=None, value=None),)),
        Case(
            "throttle, planned in observe mode",
            hot,
            "firing",
            "13:45:08",
            (throttle(_S.PLANNED, before=None, value=None, observe=True),),
        ),
        Case("throttle, in force", hot, "update", "13:45:11", (on,), now),
        Case("throttle, nothing after it", only, "update", "13:45:11", (replace(on, rule="gpu-heats-only"),), now),
        Case("throttle, of a shared card", only, "firing", "13:45:11", (replace(on, workload=""),)),
        Case(
            "throttle, for a card that slows itself",
            slowed,
            "update",
            "13:52:11",
            (replace(on, rule="gpu-slowed", sent=at("13:52:09"), applied=at("13:52:10")),),
            now,
        ),
        Case("throttle, no deeper", hot, "update", "13:46:11", (replace(on, reason="change_failed"),), now),
        Case("throttle, would have", hot, "update", "13:45:11", (throttle(_S.WOULD_HAVE, "would_have"),), rising),
        *(
            Case(f"throttle, {why}", hot, "update", "13:45:11", (throttle(_S.FAILED, why, value=None),), now)
            for why in ("unsupported", "no_permission", "no_room")
        ),
        Case(
            "throttle, overtaken",
            hot,
            "update",
            "13:46:11",
            (replace(on, state=_S.OVERTAKEN, reason="overtaken", detail="it is 450 now"),),
            now,
        ),
        Case("throttle, card gone", hot, "update", "13:46:11", (replace(on, state=_S.UNKNOWN, reason="gone"),), now),
        Case("throttle, shared", incident({**WARM, "reason": "shared"}, "gpu-heats"), "firing", "13:47:12"),
        Case("throttle, forbidden", hot, "update", "13:46:11", (replace(on, state=_S.UNDONE),), now),
        Case(
            "throttle, over",
            over(hot, "14:05:00"),
            "resolved",
            "14:05:00",
            (replace(on, state=_S.UNDOING, reason="condition_ended"),),
            cold,
        ),
        Case("throttle, over, restored", over(hot, "14:05:00"), "resolved", "14:05:00", (_restored(on),), cold),
        Case("throttle, then stopped", _HOT, "update", "13:47:30", (on, _STOPPED), {"temperature": 79.0}),
        Case("stopped and held", _HOT, "update", "13:47:30", (_STOPPED, held), {"temperature": 79.0}),
        Case("stopped, not held", _HOT, "update", "13:47:30", (_STOPPED, no_drop_in), {"temperature": 79.0}),
        Case(
            "over, still held",
            over(_HOT, "14:05:00"),
            "resolved",
            "14:05:00",
            (_restored(on), _STOPPED, held),
            cold,
        ),
        Case(
            "over, hold ended",
            over(_HOT, "14:05:00"),
            "resolved",
            "14:05:00",
            (_STOPPED, replace(held, state=_S.UNDONE)),
            cold,
        ),
        Case(
            "lost and held",
            incident(XID, "gpu-lost", since="13:45:32", gpu=5, bundle=BUNDLE),
            "firing",
            "13:45:34",
            (held,),
            facts={"others_count": 7},
        ),
        Case(
            "lost, would have held",
            incident(XID, "gpu-lost", since="13:45:32", gpu=5),
            "update",
            "13:45:34",
            (hold(_S.WOULD_HAVE, "would_have"),),
        ),
        Case(
            "lost, held before",
            incident(XID, "gpu-lost", since="13:45:32", gpu=5),
            "update",
            "13:45:34",
            (hold(_S.FAILED, "no_room"),),
        ),
    )


def _restored(intent: Intent) -> Intent:
    return replace(intent, state=_S.UNDONE, reason="undone", changed=at("14:05:02"))


DOUBT: dict[str, Scalar] = {
    "reason": "suspect",
    "suspect": "hot_while_idle",
    "cooling": False,
    "witnesses_for": "",
    "witnesses_against": "power=68 utilisation=0",
    "witnesses_silent": "memory_temperature fan",
}
CHOICE: dict[str, Scalar] = {
    "victim": "train@llama.service",
    "victim_workload": "training",
    "victim_priority": 10,
    "victim_bytes": 44023414784,
    "victim_because": "lowest_priority largest",
    "considered": "train@llama.service=chosen:44023414784 train@b.service=smaller:1073741824 "
    "serve.service=higher_priority:42949672960 mps.service=mps_server:",
}


def _judgements() -> tuple[Case, ...]:
    frozen: dict[str, Scalar] = {**DOUBT, "suspect": "frozen", "witnesses_for": "memory_temperature=96 rising=4"}
    warm: dict[str, Scalar] = {"others_low": 84.0, "others_high": 91.0, "others_count": 7}
    cooling: dict[str, Scalar] = {"reason": "cooling", "suspect": "", "cooling": True}
    return (
        Case("in doubt", incident({**HEAT, **DOUBT}), "firing", "13:47:12"),
        Case("in doubt, frozen", incident({**HEAT, **frozen}), "firing", "13:47:12"),
        Case("in doubt, jumped", incident({**HEAT, **DOUBT, "suspect": "jump"}), "firing", "13:47:12"),
        Case("cooling by itself", incident({**HEAT, **cooling}), "firing", "13:47:12"),
        *(
            Case(f"nothing done, {why}", incident({**HEAT, "reason": why}), "firing", "13:47:12")
            for why in ("grace", "inhibited", "not_worse", "vetoed", "lost_list", "negligible")
        ),
        Case("chosen among four", incident(HEAT), "firing", "13:47:12", (stop(_S.PLANNED, because=CHOICE),)),
        Case("stop with a warning", incident(HEAT), "firing", "13:47:12", (_kind(_S.PLANNED),)),
        Case("stop, people warned", _HOT, "update", "13:47:20", (_kind(_S.PRESERVED, warned=at("13:47:15")),)),
        Case("stop, job warned", _HOT, "update", "13:48:20", (_kind(_S.PRESERVED, checkpointed=at("13:48:15")),)),
        Case("all cards hot", incident({**WARM, **warm}, "gpu-hot", Severity.WARNING), "firing", "13:47:12"),
    )


def _kind(state: IntentState, **changes: Any) -> Intent:
    """A stop that people hear of a minute before."""
    return stop(state, due_s=60.0, **changes)


def _xids() -> tuple[Case, ...]:
    owned = {**XID_13, "user": "wang", "unit": "train@a.service", "count": 1}
    counted = {**owned, "total": 3, "within_s": 86400.0, "users": "chen, li, wang"}
    again = {**XID, "xid": 95, "xid_class": "hardware", "repeated": True}
    asked = {**XID, "xid": 154, "xid_class": "gpu_reset", "recovery_to": 1}
    return (
        Case("xid of an owner", incident(owned, "xid", Severity.WARNING, gpu=5), "firing", "13:47:06"),
        Case("users of one card", incident(counted, "gpu-suspected", Severity.WARNING), "firing", "13:47:06"),
        Case("xid back after a reset", incident(again, "xid-hardware"), "firing", "13:47:06"),
        Case("driver's own advice", incident(asked, "xid-gpu-reset"), "firing", "13:47:06"),
        Case("lost, driver's advice", incident({**XID, "recovery_to": 2}, "gpu-lost"), "firing", "13:47:06"),
        Case("xid by our own stop", incident({**owned, "after_own_action": "a16-1"}, "xid"), "firing", "13:47:06"),
        *(
            Case(
                f"recovery {action}",
                incident(reading("gpu.recovery_action", float(action), 0.5), "gpu-needs-recovery"),
                "firing",
                "13:47:06",
            )
            for action in (1, 2, 4, 5, 9)
        ),
    )


def _metrics() -> tuple[Case, ...]:
    day: dict[str, Any] = {"change_over_s": 86400.0}
    of_card = (
        reading("gpu.fan_stopped", 1.0, 0.5, temperature=74.0, for_s=60.0),
        reading("gpu.stalled", 2100.0, 1800.0),
        reading("gpu.memory_full_in", 90.0, 120.0, below=True),
        reading("gpu.ecc_uncorrected", 2.0, 0.5, **day),
        reading("gpu.ecc_corrected", 140.0, 100.0, change_over_s=3600.0),
        reading("gpu.row_remap_pending", 1.0, 0.5),
        reading("gpu.row_remap_failed", 1.0, 0.5),
        reading("gpu.page_retirement_pending", 1.0, 0.5),
        reading("gpu.pcie_lanes_missing", 8.0, 0.5, for_s=180.0),
        reading("gpu.pcie_generations_missing", 2.0, 0.5, for_s=180.0),
        reading("gpu.nvlinks_missing", 2.0, 0.5, for_s=120.0),
        reading("gpu.memory_temperature", 106.0, 105.0, temperature=78.0, for_s=60.0),
        reading("gpu.sync_boost", 1.0, 0.5),
        reading("gpu.pstate", 8.0, 4.0),
    )
    of_host = (
        reading("host.gpus_hot", 5.0, 1.5, for_s=60.0),
        reading("host.fabric_manager_down", 1.0, 0.5, for_s=120.0),
        reading("host.gpu_sample_age", 42.0, 30.0),
        reading("host.journal_behind", 75.0, 60.0),
        reading("host.memory_available_ratio", 0.04, 0.05, below=True, for_s=30.0),
        reading("host.memory_full_in", 100.0, 120.0, below=True, for_s=20.0),
        reading("host.memory_pressure_full", 34.0, 20.0, for_s=15.0),
        reading("host.clock_synchronised", 0.0, 0.5, below=True),
        reading("host.load_per_core", 9.5, 4.0),
    )
    disk, unit = about("filesystem", "/var"), about("unit", "train@a.service")
    sensor = about("sensor", "coretemp@coretemp.0/Package id 0", label="coretemp Package id 0")
    others = (
        (reading("host.disk_free_ratio", 0.031, 0.05, below=True, for_s=60.0), disk),
        (reading("host.inodes_free_ratio", 0.02, 0.05, below=True, for_s=60.0), disk),
        (reading("host.disk_read_only", 1.0, 0.5, for_s=30.0), disk),
        (reading("host.sensor_temperature", 96.0, 90.0), sensor),
        (reading("host.sensor_margin", 4.0, 5.0, below=True), sensor),
        (reading("unit.memory_used_ratio", 0.97, 0.95, for_s=30.0), unit),
        (reading("unit.memory_full_in", 80.0, 120.0, below=True), unit),
        (reading("unit.memory_pressure_full", 45.0, 20.0, for_s=30.0), unit),
        (reading("unit.tasks_ratio", 0.96, 0.9), unit),
        (reading("workload.gpu_memory_ratio", 1.12, 1.0, for_s=30.0), about("workload", "training")),
    )
    known = [(facts, {}) for facts in of_card] + [(facts, {"gpu": None}) for facts in of_host] + list(others)
    cases = []
    for facts, changes in known:
        metric = str(facts["metric"])
        opened = incident(facts, metric.split(".")[1].replace("_", "-"), Severity.WARNING, **changes)
        cases.append(Case(metric, opened, "firing", "13:47:10"))
    full = incident(others[0][0], "disk-nearly-full", Severity.WARNING, **disk)
    return (*cases, Case("disk has room again", over(full, "14:05:00"), "resolved", "14:05:00"))


def _events() -> tuple[Case, ...]:
    unit = about("unit", "train@a.service")
    killed = {"process": "python3", "pid": 41872}
    loop: dict[str, Scalar] = {"total": 5, "within_s": 600.0, "unit": "train@a.service"}
    told: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
        ("oom_kill", {**killed, "unit": "train@a.service"}, unit),
        ("unit_oom", {"unit": "train@a.service"}, unit),
        ("oomd_kill", {"unit": "train@a.service"}, unit),
        ("unit_restart", loop, unit),
        ("unit_start_limit", {"unit": "train@a.service"}, unit),
        ("gpu_init_failed", {}, {}),
        ("gsp_timeout", {"recovery_to": 1}, {}),
        ("uvm_fatal", {}, {"gpu": None}),
        ("xid_unparsed", {}, {"gpu": None}),
        ("time_jump", {}, {"gpu": None}),
        ("log_gap", {}, {"gpu": None}),
        ("iommu_fault", {}, {"gpu": None}),
        ("log_match", {"pattern": "lustre-evict", "meaning_en": "Lustre evicted this client.", "meaning_zh": "x"}, {}),
    )
    cases = []
    for kind, more, changes in told:
        opened = incident({"kind": kind, "count": 1, "old": False, **more}, kind, Severity.WARNING, **changes)
        cases.append(Case(f"event {kind}", opened, "firing", "13:47:06"))
    loops = incident({"kind": "unit_restart", "count": 1, **loop}, "workload-restart-loop", Severity.WARNING, **unit)
    return (*cases, Case("restarts no more", over(loops, "14:05:00"), "resolved", "14:05:00"))


CASES = (
    Case("hot, only told", incident(WARM, "gpu-hot", Severity.WARNING, "13:42:10"), "firing", "13:44:10"),
    Case("hot, stop planned", incident(HEAT), "firing", "13:47:12", (stop(_S.PLANNED),)),
    Case("hot, stop planned in observe mode", incident(HEAT), "firing", "13:47:12", (stop(_S.PLANNED, observe=True),)),
    Case("hot, stopping", _HOT, "firing", "13:47:12", (stop(_S.SENT, sent=at("13:47:12")),)),
    Case("hot, stopped", _HOT, "update", "13:47:30", (_STOPPED,), {"temperature": 79.0}),
    Case("hot, killed", _HOT, "update", "13:49:00", (_KILLED,)),
    Case(
        "hot, would have",
        _HOT,
        "update",
        "13:47:13",
        (stop(_S.WOULD_HAVE, "would_have", observe=True),),
        {"temperature": 92.0, "rising": True},
    ),
    Case("hot, refused", incident(HEAT), "update", "13:47:13", (stop(_S.REFUSED, "takes_along", _TAKES),)),
    Case("hot, no evidence", incident(HEAT), "update", "13:47:22", (stop(_S.REFUSED, "no_bundle", "disk full"),)),
    Case("hot, stop failed", _HOT, "update", "13:49:22", (stop(_S.FAILED, "not_gone"),)),
    Case("hot, stop unclear", _HOT, "update", "13:49:22", (stop(_S.UNKNOWN, "systemd_silent"),)),
    Case("hot, left alone", _HOT, "update", "13:47:22", (stop(_S.WITHDRAWN, "condition_ended"),)),
    Case("hot, nobody to stop", incident({**HEAT, "reason": "no_workload"}), "firing", "13:47:12"),
    Case("hot, budget spent", incident({**HEAT, "reason": "budget_spent"}), "firing", "13:47:12"),
    Case("hot, over after a stop", over(_HOT, "14:05:00"), "resolved", "14:05:00", (_STOPPED,), {"temperature": 62.0}),
    Case("hot, over by itself", over(incident(WARM, "gpu-hot", Severity.WARNING), "14:05:00"), "resolved", "14:05:00"),
    Case("hot, rule gone", over(incident(HEAT), "14:05:00", "rule_changed"), "resolved", "14:05:00"),
    Case(
        "lost",
        incident(XID, "gpu-lost", since="13:45:32", gpu=5, bundle=BUNDLE),
        "firing",
        "13:45:34",
        facts={"others_count": 7},
        labels={"site": "sh1", "rack": "A03", "u": "12"},
    ),
    Case("xid of a program", incident(XID_13, "xid", Severity.WARNING, "13:45:32", 5), "firing", "13:45:34"),
    Case("xid, old", incident({**XID_13, "old": True, "count": 1}, "xid", since="13:45:32"), "firing", "13:59:00"),
    Case(
        "xid, reset needed",
        incident({**XID_13, "xid": 95, "xid_class": "gpu_reset", "count": 1, "process": None, "pid": None}, "xid"),
        "firing",
        "13:47:06",
    ),
    Case("xid, quiet again", over(incident(XID_13, "xid", Severity.WARNING), "13:57:05"), "resolved", "13:57:05"),
    Case("driver silent", incident(SILENT, "driver-silent", since="13:50:40", gpu=None), "firing", "13:50:55"),
    Case(
        "driver back",
        over(incident(SILENT, "driver-silent", since="13:50:40", gpu=None), "13:55:10"),
        "resolved",
        "13:55:10",
    ),
    Case(
        "driver mismatch",
        host_incident("host.driver_mismatch", module_version="580.65.06", library_version="580.82.07"),
        "firing",
        "13:50:55",
    ),
    Case(
        "state not saved",
        host_incident("host.store_failing", value=45.0, limit=30.0, problem="No space left on device"),
        "firing",
        "13:50:55",
    ),
    Case("stopped acting", host_incident("host.acting_stopped", value=1.0), "firing", "13:50:11"),
    Case(
        "memory",
        incident(
            {"metric": "gpu.memory_used_ratio", "value": 0.981, "limit": 0.95, "direction": "above", "for_s": 60.0},
            "gpu-memory",
            Severity.WARNING,
            "13:50:10",
        ),
        "firing",
        "13:55:10",
    ),
    *_throttles(),
    *_judgements(),
    *_xids(),
    *_metrics(),
    *_events(),
    Case("some event", incident({"kind": "aer", "count": 3}, "pcie-errors", Severity.WARNING), "firing", "13:47:06"),
)


def golden() -> str:
    """All messages as one text."""
    pieces = []
    for language in ("en", "zh"):
        for case in CASES:
            message = case.message(language)
            pieces.append("\n".join([f"## {case.name} ({language})", message.title, *message.lines, ""]))
    return "\n".join(pieces)


if __name__ == "__main__":
    print(golden(), end="")
