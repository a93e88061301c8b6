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
from gpuwatch.model.notification import Message
from gpuwatch.model.rule import Rule, Severity, Step, Threshold
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


def settings(language: str = "en", **changes: Any) -> Settings:
    """Settings with a rule that stops and one that tells."""
    return replace(Settings(language=language, rules=(STOP_RULE, TELL_RULE)), **changes)


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
