"""Intents: what gpuwatch decided to do, written down before it is done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Optional

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


FINAL = frozenset(
    {
        IntentState.VERIFIED,
        IntentState.WITHDRAWN,
        IntentState.REFUSED,
        IntentState.FAILED,
        IntentState.UNKNOWN,
        IntentState.WOULD_HAVE,
    }
)


@dataclass(frozen=True)
class Intent:
    """One action on one target. `id` is unique per host: "a17-1" (incident number, running number)."""

    id: str
    incident: int
    rule: str
    step: int
    action: str  # stop
    target: str  # unit name
    workload: str
    gpu: str  # UUID of the GPU it is for; "" for host rules
    state: IntentState
    created: Instant
    changed: Instant
    reason: str = ""  # reason code of the last change
    detail: str = ""  # the same in words, for people
    invocation: str = ""  # InvocationID of the target when it was planned, 32 hex digits
    main_pid: int = 0
    bundle: str = ""  # evidence bundle id
    preserved: Optional[Instant] = None
    sent: Optional[Instant] = None
    gone: Optional[Instant] = None
    killed: Optional[Instant] = None  # SIGKILL sent after the grace
    grace_s: float = 90.0
    observe: bool = False
    heat: bool = False
    users: tuple[str, ...] = ()  # owners of the processes, for messages
    used_bytes: int = 0

    @property
    def rung(self) -> tuple[int, str, int, str, str]:
        """What the wish that it serves has in common with it."""
        return (self.incident, self.rule, self.step, self.action, self.target)

    @property
    def open(self) -> bool:
        """True while something is still to be done or watched."""
        return self.state not in FINAL
