"""Intents: what gpuwatch decided to do, written down before it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Optional

from gpuwatch.model.event import Scalar
from gpuwatch.model.instant import Instant


class IntentState(str, Enum):
    """planned -> preserved -> sent -> gone -> verified, or one of the other ends."""

    PLANNED = "planned"  # decided; target identified; evidence being written
    PRESERVED = "preserved"  # the bundle is durable (S1)
    SENT = "sent"  # written down as sent; the call follows this commit
    GONE = "gone"  # the invocation is no longer there
    VERIFIED = "verified"  # and still was not, some seconds later
    WITHDRAWN = "withdrawn"  # the wish ended before it was sent
    REFUSED = "refused"  # a safety promise forbids it; reason says which
    FAILED = "failed"  # it did not work; reason says how
    UNKNOWN = "unknown"  # nobody can say (another boot, lost answer)
    WOULD_HAVE = "would_have"  # observe mode: everything but the last call
    # What can be put back (throttle, hold): planned -> sent -> applied -> undoing -> undone
    APPLIED = "applied"  # in force, and watched
    UNDOING = "undoing"  # no longer wanted; being put back
    UNDONE = "undone"  # as it was before
    OVERTAKEN = "overtaken"  # somebody else has changed it since: theirs stays (S5)


FINAL = frozenset(
    {
        IntentState.VERIFIED,
        IntentState.WITHDRAWN,
        IntentState.REFUSED,
        IntentState.FAILED,
        IntentState.UNKNOWN,
        IntentState.WOULD_HAVE,
        IntentState.UNDONE,
        IntentState.OVERTAKEN,
    }
)


@dataclass(frozen=True)
class Intent:
    """One action on one target. `id` is unique per host: "a17-1" (incident number, running number)."""

    id: str
    incident: int
    rule: str
    step: int
    action: str  # of model/rule.py's ACTIONS
    target: str  # unit name or container (model/target.py); of a throttle the GPU's UUID; "" of a snapshot
    workload: str
    gpu: str  # UUID of the GPU it is for; "" for host rules
    state: IntentState
    created: Instant
    changed: Instant
    reason: str = ""  # reason code of the last change
    detail: str = ""  # the same in words, for people
    invocation: str = ""  # InvocationID of the target when it was planned, 32 hex digits; of a container ID@STARTED
    main_pid: int = 0
    bundle: str = ""  # evidence bundle id
    preserved: Optional[Instant] = None
    sent: Optional[Instant] = None
    gone: Optional[Instant] = None
    killed: Optional[Instant] = None  # SIGKILL sent after the grace
    warned: Optional[Instant] = None  # people at the host were told what comes
    due_s: float = 0.0  # and so long after that it is sent
    checkpointed: Optional[Instant] = None  # the job was told to write its checkpoint; not told again after a crash
    grace_s: float = 90.0
    observe: bool = False
    heat: bool = False
    users: tuple[str, ...] = ()  # owners of the processes, for messages
    used_bytes: int = 0
    level: int = 0  # how deep a throttle is wanted
    before: Optional[float] = None  # the value before our first change; watts
    value: Optional[float] = None  # what we set last; watts
    earlier: Optional[float] = None  # what we set before `value`: until `value` is confirmed either may be in force
    applied: Optional[Instant] = None
    reapplied: int = 0  # how often it had reverted by itself
    because: Mapping[str, Scalar] = field(default_factory=dict)  # why this target, as in the wish
    label: str = ""  # what people call the target, as in the wish

    @property
    def rung(self) -> tuple[int, str, int, str, str]:
        """What the wish that it serves has in common with it."""
        return (self.incident, self.rule, self.step, self.action, self.target)

    @property
    def name(self) -> str:
        """The target, as people call it."""
        return self.label or self.target

    @property
    def open(self) -> bool:
        """True while something is still to be done or watched."""
        return self.state not in FINAL
