"""Who is on the GPUs, as different parts of a cycle need to know it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from gpuwatch.model.event import Event
from gpuwatch.model.gpu import Attribution, Owner
from gpuwatch.model.settings import Settings
from gpuwatch.policy.state import PolicyState
from gpuwatch.policy.victims import workload_of
from gpuwatch.store.history import IncidentOf


def owners_at_work(attributions: Iterable[Attribution], settings: Settings) -> list[Owner]:
    """The processes on GPUs that belong to units of workloads."""
    owners = [owner for attribution in attributions for owner in attribution.owners if owner.kind == "unit"]
    ours = {unit for unit in {owner.unit for owner in owners} if unit and workload_of(unit, settings)}
    return [owner for owner in owners if owner.unit in ours]


def control_groups(owners: Iterable[Owner]) -> dict[str, str]:
    """The control group of each unit: its processes may sit in groups below."""
    return {
        owner.unit: owner.cgroup[: owner.cgroup.find(owner.unit) + len(owner.unit)] for owner in owners if owner.unit
    }


def units_on_cards(attributions: Iterable[Attribution]) -> dict[str, tuple[str, ...]]:
    """By UUID."""
    return {
        each.uuid: tuple(dict.fromkeys(owner.unit for owner in each.owners if owner.kind == "unit" and owner.unit))
        for each in attributions
    }


def pids(attributions: Iterable[Attribution]) -> tuple[int, ...]:
    """Of all processes on GPUs."""
    return tuple(sorted({owner.pid for attribution in attributions for owner in attribution.owners}))


def incident_of(policy: PolicyState) -> IncidentOf:
    """Finds the open incident of an event's card."""
    by_pci = {gpu.pci: uuid for uuid, gpu in policy.gpus.items()}
    numbers = {incident.subject.id: incident.number for incident in policy.incidents.values()}

    def find(event: Event) -> Optional[int]:
        pci = str(event.fields.get("pci") or "")
        uuid = event.uuid or by_pci.get(pci, pci)
        return numbers.get(uuid) if uuid else None

    return find
