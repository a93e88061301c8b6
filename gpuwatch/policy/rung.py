"""What one action of a rung comes to: wishes, or the reason for none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent
from gpuwatch.model.rule import Rule
from gpuwatch.model.wish import Wish
from gpuwatch.policy.state import Alert


@dataclass(frozen=True)
class Rung:
    """`ended`: nothing more comes of it, the next rung may follow."""

    wishes: tuple[Wish, ...] = ()
    reason: str = ""
    ended: bool = False


def wish_for(alert: Alert, rule: Rule, step: int, action: str, target: str, sample: Instant, **more: Any) -> Wish:
    """A wish of this rung; `more` are further fields of Wish."""
    given: dict[str, Any] = {
        "workload": "",
        "gpu": alert.subject.id if alert.subject.kind == "gpu" else "",
        "observe": False,
        "heat": rule.heat,
        **more,
    }
    return Wish(alert.incident, rule.name, step, action, target, sample=sample, **given)


def wish_again(intent: Intent, **more: Any) -> Wish:
    """The wish that an open intent serves, with nothing newer to say: its sample is the old one."""
    given: dict[str, Any] = {"sample": intent.created, "observe": intent.observe, "level": intent.level, **more}
    return Wish(
        incident=intent.incident,
        rule=intent.rule,
        step=intent.step,
        action=intent.action,
        target=intent.target,
        workload=intent.workload,
        gpu=intent.gpu,
        heat=intent.heat,
        users=intent.users,
        used_bytes=intent.used_bytes,
        **given,
    )
