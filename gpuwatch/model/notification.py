"""What people are told: one transition of one incident, rendered once, delivered at least once."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Optional

from gpuwatch.model.incident import Incident
from gpuwatch.model.rule import Severity


@dataclass(frozen=True)
class Transition:
    """An incident that people must hear of. `name` is unique within the incident: firing, escalated,
    update, resolved; when it happens again after a recovery, "#2" and so on follows."""

    incident: Incident
    name: str

    @property
    def kind(self) -> str:
        """The name without its counter."""
        return self.name.split("#", 1)[0]


@dataclass(frozen=True)
class Message:
    """A rendered message. The first line is the title; a lock screen shows 22 Chinese characters.

    All of it is plain text: what a channel's markup would read as a command is escaped there.
    """

    title: str
    lines: tuple[str, ...]
    severity: Severity
    tone: str  # firing | escalated | update | resolved | test
    urgent: bool = False  # a person must act: something that should have been stopped was not
    bundle: str = ""  # id of the evidence bundle; stays in the message when it has to be cut


class DeliveryState(str, Enum):
    """queued -> sending -> delivered; queued again with a later `next_try`; or refused for good."""

    QUEUED = "queued"
    SENDING = "sending"
    DELIVERED = "delivered"
    REFUSED = "refused"


@dataclass(frozen=True)
class SpoolEntry:
    """One message for one channel. `key` is unique: "<incident id>/<transition>/<channel>"."""

    key: str
    channel: str
    message: Message
    created_utc_s: float
    state: DeliveryState = DeliveryState.QUEUED
    attempts: int = 0
    next_try_utc_s: float = 0.0
    problem: str = ""  # why the last attempt did not deliver; never holds a secret
    delivered_utc_s: Optional[float] = None
    mention: tuple[str, ...] = field(default_factory=tuple)
    number: int = 0  # counts up: the order of making, whatever the clock says
    done: tuple[str, ...] = ()  # parts that the service already took (a mention may follow its message)
