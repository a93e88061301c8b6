"""What the policy wants now. Level-triggered: a wish is repeated for as long as it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuwatch.model.event import Scalar
from gpuwatch.model.incident import Subject
from gpuwatch.model.instant import Instant
from gpuwatch.model.settings import StopSettings


@dataclass(frozen=True)
class Wish:
    """One action on one target for one rung of a rule's ladder.

    `sample` is when the newest sample or event that supports it was taken: an intent is sent
    only when that is later than its evidence (S3, S4).
    """

    incident: int
    rule: str
    step: int
    action: str
    target: str  # unit name or container (model/target.py); of a throttle the GPU's UUID; "" of a snapshot
    workload: str
    gpu: str
    sample: Instant
    observe: bool
    heat: bool = False
    users: tuple[str, ...] = ()
    used_bytes: int = 0
    stop: StopSettings = field(default_factory=StopSettings)  # how, for a stop
    level: int = 0  # of a throttle: 1 is the lightest
    label: str = ""  # what people call the target, where that is not its name: a container's name
    because: Mapping[str, Scalar] = field(default_factory=dict)  # why this target: policy.victims.Choice.facts()

    @property
    def rung(self) -> tuple[int, str, int, str, str]:
        """What an intent shares with the wish that it serves."""
        return (self.incident, self.rule, self.step, self.action, self.target)


@dataclass(frozen=True)
class Decision:
    """Something the policy decided, "nothing, because ..." included; `code` is one of model/reason.py."""

    code: str
    rule: str
    subject: Subject
    label: str
    facts: Mapping[str, Scalar] = field(default_factory=dict)
