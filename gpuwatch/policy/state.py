"""What the policy remembers from one step to the next, what goes in, what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from gpuwatch.model.container import Container
from gpuwatch.model.event import Event
from gpuwatch.model.gpu import Attribution, GpuReport
from gpuwatch.model.host import SubjectReadings
from gpuwatch.model.incident import Incident, Subject
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent
from gpuwatch.model.notification import Transition
from gpuwatch.model.orders import Orders
from gpuwatch.model.reading import Reading
from gpuwatch.model.trace import Trace
from gpuwatch.model.wish import Decision, Wish

STALE_S = 3.0  # a sample older than this says nothing about now (S7)
OLD_EVENT_S = 60.0  # an entry older than this when it is read starts no action (S9)
OWN_DOING_S = 60.0  # an Xid this soon after our own stop is marked as such
SETTLE_S = 30.0  # heat needs this long to follow an action (S4)
ATTRIBUTION_S = 10.0  # processes are listed every 5 s; an older list names nobody
CLOSE_AFTER_S = 600.0  # a recovered incident is reopened within this time, closed after it
CAUSE_S = 300.0  # a trouble this much later on a related subject is linked to the earlier one
REPEATED_S = 14 * 86400.0  # the same Xid this soon after a reset or a reboot is the hardware's
MOST_PERIODS = 3  # a longer gap between samples ends what is pending


@dataclass(frozen=True)
class Alert:
    """One rule on one subject: pending, then firing; absent while inactive.

    `since` is the sample with which the condition began to hold, `sample` the newest one judged.
    """

    rule: str
    rule_print: str  # the rule's content, to notice that it was changed
    subject: Subject
    label: str
    phase: str  # pending | firing
    since: Instant
    sample: Instant
    value: Optional[float] = None
    fired: Optional[Instant] = None
    holding: bool = True  # False: between its limit and where it clears
    clear_since: Optional[Instant] = None
    incident: int = 0
    actionable: bool = True  # False: it rests on an old event alone (S9)
    step: int = 0  # the rung of the ladder that is next or under way
    step_ended: Optional[Instant] = None
    reason: str = ""  # why no action is wanted now; "" when one is
    cleared: Optional[Instant] = None  # it has cleared, and is kept
    keep_s: float = 0.0  # Rule.keep_s, longer each time that it came back soon: what was put back too early
    step_badness: Optional[float] = None  # how bad it was when the previous step ended (ladder.badness)
    level: int = 0  # how deep it wants its GPU throttled
    level_since: Optional[Instant] = None
    level_value: Optional[float] = None  # the value when the level was chosen
    level_move: int = 0  # 1: the last change was deeper, -1: lighter
    reheated: bool = False  # it heated again after a lighter level: no lighter one until it clears
    holds: tuple[str, ...] = ()  # the units that it wants kept from starting


@dataclass(frozen=True)
class Window:
    """What a rule remembers of one subject: earlier values of a metric whose change it judges, or earlier events.

    `points` are (CLOCK_BOOTTIME in seconds, value, or how many equal events), `owners` whose events they were.
    """

    rule_print: str
    points: tuple[tuple[float, float], ...] = ()
    owners: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trouble:
    """An Xid that asked for a reset or a restart: when it comes back after that, it is the hardware."""

    boot_id: str
    utc_s: float
    settled: bool = False  # a person has closed its incident since: the card was reset
    repeated: bool = False  # it had come back already


@dataclass(frozen=True)
class KnownGpu:
    """A GPU that has been seen: to name it when it is gone and to find it by PCI address."""

    index: int
    name: str
    pci: str


@dataclass(frozen=True)
class PolicyState:
    """Everything step() carries over. JSON-able by model/codec.py; written in each cycle's transaction."""

    alerts: Mapping[str, Alert] = field(default_factory=dict)
    incidents: Mapping[str, Incident] = field(default_factory=dict)  # open and recovered, by number
    next_incident: int = 1
    gpus: Mapping[str, KnownGpu] = field(default_factory=dict)
    boot_id: str = ""
    windows: Mapping[str, Window] = field(default_factory=dict)
    troubles: Mapping[str, Trouble] = field(default_factory=dict)  # by "UUID Xid number"


@dataclass(frozen=True)
class Inputs:
    """What one cycle saw. `intents`: all open ones, and the ended ones of the last hour."""

    now: Instant
    report: GpuReport
    attributions: tuple[Attribution, ...] = ()
    events: tuple[Event, ...] = ()
    intents: tuple[Intent, ...] = ()
    host: Mapping[str, Reading] = field(default_factory=dict)
    subjects: tuple[SubjectReadings, ...] = ()  # file systems, sensors, units
    problems: Mapping[str, str] = field(default_factory=dict)  # what is wrong, in words, by host metric
    stuck_pids: tuple[int, ...] = ()  # processes that hang in the driver
    period_s: float = 1.0
    host_name: str = "localhost"
    orders: Orders = field(default_factory=Orders)
    traces: Mapping[str, Trace] = field(default_factory=dict)  # the last two minutes, by UUID
    groups: Mapping[str, str] = field(default_factory=dict)  # control group of each running unit of a workload
    containers: tuple[Container, ...] = ()  # as their engines said last
    silent_engines: tuple[str, ...] = ()  # kinds of engines (docker, podman) that don't answer now
    started: Optional[Instant] = None  # when this daemon started; None in a pass of the timer


@dataclass(frozen=True)
class Outcome:
    """`changed` holds the incidents that are new or different, closed ones included."""

    state: PolicyState
    wishes: tuple[Wish, ...] = ()
    transitions: tuple[Transition, ...] = ()
    decisions: tuple[Decision, ...] = ()
    changed: tuple[Incident, ...] = ()
