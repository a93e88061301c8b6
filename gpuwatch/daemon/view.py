"""The daemon's frozen view of itself as JSON-able data (schema 1) and as one status line.

The control socket serves it, /run keeps a copy for when the daemon is down, `gpuwatch status` draws it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Optional

from gpuwatch import __version__
from gpuwatch.daemon.cycle import Seen
from gpuwatch.model.codec import encode
from gpuwatch.model.container import workload_of as workload_of_container
from gpuwatch.model.gpu import Attribution, DriverState, GpuSample, Owner
from gpuwatch.model.incident import Incident, IncidentState
from gpuwatch.model.intent import IntentState
from gpuwatch.model.orders import Orders
from gpuwatch.model.settings import Mode, Settings
from gpuwatch.policy.state import STALE_S
from gpuwatch.policy.victims import workload_of
from gpuwatch.sources.owner_names import granted

SCHEMA = 1
METRICS = (
    "gpu.temperature",
    "gpu.slowdown_margin",
    "gpu.shutdown_margin",
    "gpu.power",
    "gpu.power_limit",
    "gpu.memory_used",
    "gpu.memory_total",
    "gpu.utilisation",
)


@dataclass(frozen=True)
class Process:
    """Facts about the daemon itself that don't change."""

    host: str
    pid: int
    started_utc_s: float
    simulated: bool
    state_dir: str


def view(seen: Seen, settings: Settings, process: Process, bundles: int, bundle_bytes: int) -> dict[str, Any]:
    """Everything `gpuwatch status` shows."""
    report = seen.report
    return {
        "schema": SCHEMA,
        "version": __version__,
        "host": process.host,
        "simulated": process.simulated,
        "pid": process.pid,
        "started_utc_s": process.started_utc_s,
        "state_dir": process.state_dir,
        "utc_s": seen.now.utc_s,
        "boot_id": seen.now.boot_id,
        "boottime_s": seen.now.boottime_s,
        "mode": host_mode(settings),
        "orders": encode(seen.orders),
        "workloads": [workload.name for workload in settings.workloads],
        "language": settings.language,
        "interval_s": settings.interval_s,
        "cycles": seen.cycles,
        "driver": {
            "state": report.state.value,
            "reason": report.reason,
            "version": report.driver_version,
            "sampled_utc_s": None if report.taken is None else report.taken.utc_s,
            "stuck_pids": list(report.stuck_pids),
            "resumes_utc_s": None if report.resumes is None else report.resumes.utc_s,
        },
        "gpus": [_gpu(sample, seen, settings) for sample in report.samples],
        "incidents": [_incident(incident) for incident in seen.policy.incidents.values()],
        "actions": [
            {
                "id": each.id,
                "incident": each.incident,
                "action": each.action,
                "target": each.target,
                "label": each.label,
                "workload": each.workload,
                "rule": each.rule,
                "observe": each.observe,
                "state": each.state.value,
                "reason": each.reason,
                "since_utc_s": (each.applied or each.created).utc_s,
            }
            for each in seen.intents
            if each.open
        ],
        "history": {"problem": seen.history_problem},
        "journal": {
            "read_utc_s": None if seen.journal_read is None else seen.journal_read.utc_s,
            "problem": seen.journal_problem,
        },
        "alerts": {
            "queued": seen.queued,
            "refused": seen.refused,
            "failing": {
                name: {"since_utc_s": since, "problem": why} for name, (since, why) in seen.undelivered.items()
            },
            "channels": [each.name for each in settings.channels],
        },
        "machine": _machine(seen),
        "fabric_manager": None if seen.fabric is None else encode(seen.fabric),
        "containers": {} if seen.containers is None else _containers(seen),
        "evidence": {"bundles": bundles, "bytes": bundle_bytes},
        "store": {
            "durable": seen.committed.durable,
            "degraded": seen.committed.degraded,
            "problem": seen.committed.problem,
        },
    }


def _machine(seen: Seen) -> dict[str, Any]:
    """The host's own figures, and those of the units of workloads."""
    host, units = seen.host, seen.units
    if host is None:
        return {}
    return {
        "readings": {name: {"value": each.value, "problem": each.problem} for name, each in host.readings.items()},
        "filesystems": encode(host.filesystems),
        "sensors": encode(host.sensors),
        "stuck": encode(host.stuck),
        "problems": dict(host.problems),
        "units": {} if units is None else {each.unit: encode(each.readings) for each in units.units},
    }


def _containers(seen: Seen) -> dict[str, Any]:
    """The engines and what runs in them."""
    assert seen.containers is not None
    visible = [(sample.index, sample.uuid) for sample in seen.report.samples if not sample.lost]
    return {
        "engines": encode(seen.containers.engines),
        "containers": [
            {**encode(each), "gpus_granted": None if each.gpus is None else encode(granted(each.gpus, visible))}
            for each in seen.containers.containers
        ],
        "exits": encode(seen.containers.exits),
    }


def host_mode(settings: Settings) -> str:
    """enforce when anything at all is enforced; observe otherwise."""
    enforced = any(settings.workload_mode(workload) is Mode.ENFORCE for workload in settings.workloads)
    return "enforce" if enforced else "observe"


def status_line(seen: Seen, settings: Settings, simulated: bool) -> str:
    """One line for `systemctl status`."""
    open_ones = [each for each in seen.policy.incidents.values() if each.state is IncidentState.OPEN]
    incidents = f"{len(open_ones)} incident{'' if len(open_ones) == 1 else 's'}"
    enforced = sum(settings.workload_mode(workload) is Mode.ENFORCE for workload in settings.workloads)
    mode = f"enforce: {enforced} workload{'' if enforced == 1 else 's'}" if enforced else "observe"
    parts = [*_order_words(seen.orders), _driver_words(seen), incidents, mode]
    if seen.committed.degraded or not seen.committed.durable:
        parts.append("state can't be written to disk")
    if seen.refused:
        parts.append("messages are refused")
    return ("SIMULATED: " if simulated else "") + ", ".join(parts)


def _order_words(orders: Orders) -> list[str]:
    """Who tied gpuwatch's hands, before anything else."""
    parts = []
    for words, order in (("DISARMED", orders.disarmed), ("MAINTENANCE", orders.maintenance)):
        if order is not None:
            end = order.until
            until = "" if end is None else time.strftime(" until %m-%d %H:%M", time.localtime(end.utc_s))
            parts.append(f"{words} by {order.by}{until}")
    return parts


def _driver_words(seen: Seen) -> str:
    report = seen.report
    if report.state is DriverState.ABSENT:
        return "no NVIDIA driver"
    if report.state is DriverState.SILENT:
        return "GPU driver not answering"
    if report.state is not DriverState.OK:
        return f"GPU driver {report.state.value.replace('_', ' ')}"
    lost = [sample for sample in report.samples if sample.lost]
    there = [sample for sample in report.samples if not sample.lost]
    words = f"{len(there)} GPU{'' if len(there) == 1 else 's'} read"
    if lost:
        words += ", " + " ".join(f"GPU {sample.index}" for sample in lost) + " lost"
    hottest: Optional[tuple[float, int]] = max(
        (
            (reading.value, sample.index)
            for sample in there
            if (reading := sample.readings.get("gpu.temperature")) is not None and reading.value is not None
        ),
        default=None,
    )
    return words if hottest is None else f"{words}, max {hottest[0]:.0f} C (GPU {hottest[1]})"


def _gpu(sample: GpuSample, seen: Seen, settings: Settings) -> dict[str, Any]:
    attribution = next((each for each in seen.attributions if each.uuid == sample.uuid), None)
    incidents = [
        incident.number
        for incident in seen.policy.incidents.values()
        if incident.subject.id in (sample.uuid, sample.pci) and incident.state is IncidentState.OPEN
    ]
    mine = [each for each in seen.intents if each.gpu == sample.uuid and each.open and not each.observe]
    stopped = [each.name for each in mine if each.action == "stop" and each.incident in incidents]
    throttled = [each for each in mine if each.action == "throttle" and each.state is IntentState.APPLIED]
    age = None if seen.report.taken is None else seen.now.since(seen.report.taken)
    return {
        "index": sample.index,
        "uuid": sample.uuid,
        "name": sample.name,
        "pci": sample.pci,
        "lost": sample.lost,
        "stale": age is None or age > STALE_S,
        "new": sample.uuid in seen.report.new,
        "missing": sample.uuid in seen.report.missing,
        "unified_memory": sample.unified_memory,
        "instances": [
            {
                "uuid": each.uuid,
                "gpu_instance": each.gpu_instance,
                "compute_instance": each.compute_instance,
                "name": each.name,
            }
            for each in sample.instances
        ],
        "capabilities": seen.report.capabilities.get(sample.uuid, {}),
        "readings": {name: _reading(sample, name) for name in (*METRICS, *_others(sample))},
        "incidents": incidents,
        "stopping": stopped,
        "throttled_w": throttled[-1].value if throttled else None,
        "processes": None if attribution is None else _owners(attribution, seen, settings),
        "processes_unknown": None if attribution is None else attribution.unknown,
    }


def _others(sample: GpuSample) -> list[str]:
    """What else this card tells."""
    return sorted({*sample.readings, *sample.slow} - set(METRICS))


def _reading(sample: GpuSample, name: str) -> dict[str, Any]:
    reading = sample.reading(name)
    if reading is None:
        return {"value": None, "problem": "not read"}
    return {"value": reading.value, "problem": reading.problem}


def _owners(attribution: Attribution, seen: Seen, settings: Settings) -> list[dict[str, Any]]:
    return [
        {
            "pid": owner.pid,
            "name": owner.name,
            "user": owner.user,
            "kind": owner.kind,
            "unit": owner.unit,
            "container": owner.container,
            "workload": _workload_name(owner, seen, settings),
            "used_bytes": owner.used_bytes,
            "confirmed": owner.pid in attribution.confirmed,
            "container_name": owner.container_name,
            "container_pid": owner.container_pid,
            "image": owner.image,
            "compose": owner.compose,
            "user_unit": owner.user_unit,
            "job": owner.job,
            "instance": owner.instance,
            "started_boottime_s": owner.started_boottime_s,
        }
        for owner in attribution.owners
    ]


def _workload_name(owner: Owner, seen: Seen, settings: Settings) -> Optional[str]:
    workload = None
    if owner.kind == "unit" and owner.unit is not None:
        workload = workload_of(owner.unit, settings)
    elif owner.container is not None and seen.containers is not None:
        container = seen.containers.of(owner.container)
        workload = None if container is None else workload_of_container(container, settings.workloads)
    return None if workload is None else workload.name


def _incident(incident: Incident) -> dict[str, Any]:
    return {
        "number": incident.number,
        "id": incident.id,
        "label": incident.label,
        "state": incident.state.value,
        "severity": incident.severity.value,
        "opened_utc_s": incident.opened.utc_s,
        "rules": [cause.rule for cause in incident.causes if cause.cleared is None],
        "bundle": incident.bundle,
        "acknowledged": None if incident.acknowledged is None else encode(incident.acknowledged),
    }
