"""Rules: a condition, how long it must hold, how grave it is, what may be done."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Optional


class Severity(str, Enum):
    """info is for the log and the digest only; warning and critical are told to people."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0, 1, 2: for comparison."""
        return (Severity.INFO, Severity.WARNING, Severity.CRITICAL).index(self)


@dataclass(frozen=True)
class Threshold:
    """Value above (`above`) or below (`below`) a limit; exactly one is set. Unit: the metric's."""

    above: Optional[float] = None
    below: Optional[float] = None

    def holds(self, number: float) -> bool:
        """Strictly above or strictly below, as the words say."""
        if self.above is not None:
            return number > self.above
        assert self.below is not None
        return number < self.below


@dataclass(frozen=True)
class Clear:
    """When a firing alert ends: the opposite threshold, held for `for_s` seconds."""

    threshold: Threshold
    for_s: float


@dataclass(frozen=True)
class EventMatch:
    """Which events a rule is about. Empty tuples match everything of the kind."""

    kind: str
    codes: tuple[int, ...] = ()  # Xid or SXid numbers
    classes: tuple[str, ...] = ()  # catalogue classes, e.g. host_restart
    fatal: Optional[bool] = None
    patterns: tuple[str, ...] = ()  # names of the site's patterns (kind log_match)
    count: int = 1  # fires with so many of them on one subject within `within_s`
    within_s: float = 0.0
    different: str = ""  # "users": counts each owner of a process once; events without a known owner don't count


@dataclass(frozen=True)
class Selector:
    """Which subjects a rule is about; an empty tuple leaves that side open. All are globs."""

    gpus: tuple[str, ...] = ()  # UUIDs
    models: tuple[str, ...] = ()  # names of cards, e.g. "*H100*"
    workloads: tuple[str, ...] = ()  # names in the config; of a GPU: one of its processes belongs to it
    units: tuple[str, ...] = ()  # of a GPU: one of its processes belongs to it
    filesystems: tuple[str, ...] = ()  # mount points
    sensors: tuple[str, ...] = ()  # keys of sensors

    @property
    def everything(self) -> bool:
        """True when it selects nothing out."""
        named = self.gpus or self.models or self.workloads or self.units
        return not (named or self.filesystems or self.sensors)


@dataclass(frozen=True)
class Step:
    """One rung of a ladder: actions, `after_s` seconds after the previous step ended."""

    do: tuple[str, ...]  # of ACTIONS
    after_s: float = 0.0
    worse: bool = False  # only while the value is no better than when the previous step ended


ACTIONS = ("snapshot", "throttle", "hold", "stop")  # what this version can do
DESTRUCTIVE = frozenset({"stop"})
REVERSIBLE = frozenset({"throttle", "hold"})  # in force while wanted, then put back (S5)


@dataclass(frozen=True)
class Rule:
    """Either `metric` with `threshold` and `clear`, or `event`. `origin` is file:line or "default"."""

    name: str
    severity: Severity
    metric: Optional[str] = None
    threshold: Optional[Threshold] = None
    for_s: float = 0.0
    clear: Optional[Clear] = None
    event: Optional[EventMatch] = None
    quiet_for_s: Optional[float] = (
        600.0  # an event rule recovers after this long without another match; None: with a reboot
    )
    unless_supported: Optional[str] = None  # applies only to cards that do not report this metric
    ladder: tuple[Step, ...] = ()
    enabled: bool = True
    change_over_s: Optional[float] = None  # judge how much the value changed over so long, not the value itself
    # It goes on firing, and what it did stays in force, for so long after it has cleared; doubled on each return.
    keep_s: float = 0.0
    only: Selector = field(default_factory=Selector)
    origin: str = "default"

    @property
    def heat(self) -> bool:
        """Rules about heat have their own budget of stops (S4)."""
        return self.metric is not None and any(word in self.metric for word in ("temperature", "margin", "thermal"))
