"""The configuration after it was read, merged and checked. Durations in seconds, sizes in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Optional

from gpuwatch.model.rule import Rule, Severity


class Mode(str, Enum):
    """observe: the same decisions, told as "would have". enforce: the admin wrote so."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


@dataclass(frozen=True)
class Checkpoint:
    """A word to the job before its stop: `signal` to the unit's main process, then `wait_s` for it to write."""

    signal: str
    wait_s: float


@dataclass(frozen=True)
class StopSettings:
    """How to stop a workload. `grace_s` None: the unit's own TimeoutStopSec. `warn_before_s`: people are told so long
    before, and may forbid it."""

    grace_s: Optional[float] = None
    warn_before_s: float = 0.0
    checkpoint: Optional[Checkpoint] = None


@dataclass(frozen=True)
class Workload:
    """What gpuwatch may act on: leaf units by glob, and containers. `mode` None: as the whole host.

    `containers`: by name glob, "label:KEY=VALUE" or "compose:PROJECT/SERVICE" (model/container.py).
    """

    name: str
    units: tuple[str, ...] = ()
    priority: int = 10  # the lowest is acted on first
    mode: Optional[Mode] = None
    allow: Optional[tuple[str, ...]] = None  # None: every action; () : none
    stop: StopSettings = field(default_factory=StopSettings)
    containers: tuple[str, ...] = ()
    gpu_memory_limit: Optional[int] = None  # bytes on any one GPU


@dataclass(frozen=True)
class Throttle:
    """How a GPU's power limit is lowered: by `step` of the limit it had, a level deeper while it still heats,
    never below `lowest` of it (nor below what the card takes)."""

    gpus: tuple[str, ...] = ()  # UUID globs that may be throttled although others work on them too
    step: float = 0.15
    lowest: float = 0.4

    @property
    def levels(self) -> int:
        """The deepest level."""
        return max(1, round((1 - self.lowest) / self.step))


@dataclass(frozen=True)
class Grace:
    """Nothing destructive for so long after the daemon's start and after the host's."""

    start_s: float = 30.0
    boot_s: float = 120.0


@dataclass(frozen=True)
class Budget:
    """At most `destructive` ladders within `within_s` seconds; `heat_per_gpu` stops for heat a GPU."""

    destructive: int = 3
    within_s: float = 600.0
    heat_per_gpu: int = 1


@dataclass(frozen=True)
class KeySource:
    """Where a secret is read from when it is needed; the secret itself is never a setting."""

    credential: Optional[str] = None  # name below $CREDENTIALS_DIRECTORY (LoadCredential=)
    file: Optional[str] = None  # absolute path of a file with mode 0600 or stricter


@dataclass(frozen=True)
class Channel:
    """A way to reach people. `options` are the channel type's own settings (alerts/channels)."""

    name: str
    type: str  # wecom
    key: KeySource = field(default_factory=KeySource)
    severities: tuple[Severity, ...] = (Severity.WARNING, Severity.CRITICAL)
    mention: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SitePattern:
    """Lines of the journal that this site wants to know about; catalog/user_patterns.py says which are allowed."""

    name: str
    literal: str  # is in every such line
    pattern: Optional[str] = None  # regular expression that begins with the literal; None: the literal alone
    severity: Severity = Severity.INFO  # of the event; what people are told is a rule's to say
    meaning: str = ""
    units: tuple[str, ...] = ()  # globs of the units that print it; empty: every line that is read


@dataclass(frozen=True)
class XidClass:
    """What this site takes an Xid number for, in place of the table, and why."""

    xid: int
    klass: str  # of catalog.xid.CLASSES
    reason: str
    until_utc_s: Optional[float] = None  # from then on the table counts again; None: no end


@dataclass(frozen=True)
class Settings:
    """Everything the configuration says. The defaults here are the ones that ship."""

    mode: Mode = Mode.OBSERVE
    language: str = "en"  # en | zh
    interval_s: float = 1.0
    labels: Mapping[str, str] = field(default_factory=dict)
    workloads: tuple[Workload, ...] = ()
    protect: tuple[str, ...] = ()  # unit globs
    budget: Budget = field(default_factory=Budget)
    rules: tuple[Rule, ...] = ()
    channels: tuple[Channel, ...] = ()
    evidence_count: int = 200  # bundles kept
    host: str = ""  # how messages call this host; empty: the host name
    patterns: tuple[SitePattern, ...] = ()
    xid_classes: tuple[XidClass, ...] = ()
    throttle: Throttle = field(default_factory=Throttle)
    grace: Grace = field(default_factory=Grace)

    def workload_mode(self, workload: Workload) -> Mode:
        """The mode that holds for one workload: its own where it has one, else the host's (S6)."""
        return workload.mode or self.mode

    def class_overrides(self, utc_s: Optional[float] = None) -> dict[int, str]:
        """Class by Xid number, for catalog.judge.judge and catalog.xid.judge, without those that ended by `utc_s`."""
        return {
            each.xid: each.klass
            for each in self.xid_classes
            if utc_s is None or each.until_utc_s is None or utc_s < each.until_utc_s
        }
