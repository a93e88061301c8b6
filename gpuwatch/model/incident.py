"""Everything about one trouble on one GPU or on the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Optional

from gpuwatch.model.event import Scalar
from gpuwatch.model.instant import Instant
from gpuwatch.model.rule import Severity


@dataclass(frozen=True)
class Subject:
    """What a rule judged: kind "gpu" with a UUID (or a PCI address while the UUID is unknown), or "host"."""

    kind: str  # gpu | host | filesystem | sensor | unit | workload
    id: str  # UUID, pci address, name, or "" for the host


@dataclass(frozen=True)
class Mark:
    """What a person said about an incident: seen and being worked on."""

    at: Instant
    by: str
    comment: str = ""


class IncidentState(str, Enum):
    """open -> recovered -> closed; recovered means that every condition has cleared."""

    OPEN = "open"
    RECOVERED = "recovered"
    CLOSED = "closed"


@dataclass(frozen=True)
class Cause:
    """A rule that is part of an incident. `facts` are what a message needs, by name."""

    rule: str
    severity: Severity
    since: Instant
    facts: Mapping[str, Scalar] = field(default_factory=dict)
    cleared: Optional[Instant] = None


@dataclass(frozen=True)
class TimelineEntry:
    """One line of an incident's story. `what` is a reason code, `facts` its parameters."""

    at: Instant
    what: str
    facts: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Incident:
    """`number` counts per host; `id` is how people name it, "gpu-07#17"."""

    number: int
    id: str
    subject: Subject
    label: str  # "GPU 3" or "host": the display name when it was opened
    state: IncidentState
    severity: Severity
    opened: Instant
    causes: tuple[Cause, ...] = ()
    story: tuple[TimelineEntry, ...] = ()
    peak: Mapping[str, float] = field(default_factory=dict)  # worst value seen, by metric
    recovered: Optional[Instant] = None
    closed: Optional[Instant] = None
    close_reason: str = ""
    bundle: str = ""  # id of the newest evidence bundle
    notified: tuple[str, ...] = ()  # transitions already told: firing, escalated, update, resolved
    told_actions: int = 0  # how many ended actions the updates have covered
    acknowledged: Optional[Mark] = None
    related: tuple[str, ...] = ()  # ids of incidents of the same job or host, not long before
