"""How long the client waits for what, and what it remembers while it waits."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Protocol

from gpuwatch.model.gpu import GpuSample
from gpuwatch.model.instant import Instant


@dataclass(frozen=True)
class Patience:
    """Seconds. A child may take `start_s` to say hello; a question is late after `silent_s`; a child that
    is silent is asked to end after `end_s` and killed `kill_s` later. The child waits `prompt_s` for a GPU before
    it gives the others, and `gpu_s` for one that has never answered; a GPU that owes an answer for `gpu_s` does
    not answer. Before another child there is a pause, `pause_s` at first, doubled each time up to
    `longest_pause_s`. `minute_s`: how often the slow readings are due. `probe_s`: how often a paused driver
    is probed."""

    start_s: float = 10.0
    silent_s: float = 3.0
    end_s: float = 120.0
    kill_s: float = 60.0
    gpu_s: float = 2.0
    prompt_s: float = 0.25
    pause_s: float = 1.0
    longest_pause_s: float = 60.0
    minute_s: float = 60.0
    probe_s: float = 30.0


@dataclass(frozen=True)
class Asked:
    """When a question was asked."""

    at: Instant
    monotonic: float


@dataclass
class Question:
    """One that the child owes an answer to."""

    number: int
    asked: Asked
    with_minute: bool = False
    probe: bool = False
    samples: list[GpuSample] = field(default_factory=list)


@dataclass
class Stuck:
    """Since when nothing, or nothing from some GPUs, was heard."""

    since: Instant
    since_monotonic: float
    who: str = "the driver"  # the subject of "... does not answer"
    whole: bool = True
    ladder_from: float = 0.0  # from when on its culprit is silent; another one starts anew
    asked_to_end_at: Optional[float] = None
    killed: bool = False

    def another_culprit(self, now: float) -> None:
        """The child that is silent now is another one than before."""
        self.ladder_from, self.asked_to_end_at, self.killed = now, None, False

    def words(self) -> str:
        """GPU 6 does not answer"""
        return f"{self.who} {'do' if ', ' in self.who else 'does'} not answer"


class Child(Protocol):
    """What the client needs of system.child.JsonChild."""

    broken: str

    @property
    def pid(self) -> int: ...
    @property
    def fd(self) -> int: ...
    @property
    def end(self) -> str: ...
    def alive(self) -> bool: ...
    def send(self, message: Mapping[str, Any]) -> None: ...
    def receive(self) -> list[dict[str, Any]]: ...
    def wait_readable(self, timeout_s: float) -> bool: ...
    def hang_up(self) -> None: ...
    def signal(self, number: signal.Signals) -> None: ...
    def reap(self, wait_s: float) -> bool: ...
    def release(self) -> None: ...


class Rest:
    """When the driver is left alone: paused after an Xid 119 or 120, or released for a repair."""

    def __init__(self) -> None:
        self.why = ""  # of the pause; "" when there is none
        self.next_probe = 0.0
        self.released_at = 0.0
        self.released_until = 0.0

    def pause(self, why: str, now: float, probe_s: float) -> None:
        """Until a probe is answered; one that runs already goes on, or it would never be probed."""
        if not self.why:
            self.next_probe = now + probe_s
        self.why = why

    def release(self, now: float, for_s: float) -> None:
        """Until the time is over."""
        self.released_at, self.released_until = now, now + for_s

    def end(self) -> None:
        """Both."""
        self.why, self.released_until = "", 0.0

    def released(self, now: float) -> bool:
        """True while nobody may talk to the driver."""
        return now < self.released_until

    def resting(self, now: float) -> bool:
        """True when nothing is to be asked now."""
        return self.released(now) or (bool(self.why) and now < self.next_probe)
