"""One pass: as many cycles as it takes to judge short rules and to carry an action through, then end."""

from __future__ import annotations

import time
from typing import Callable

from gpuwatch.daemon.cycle import Cycle
from gpuwatch.model.settings import Settings
from gpuwatch.system.protocols import Clock

BURST_S = 30.0  # at most
STEP_S = 1.0


def run_pass(
    cycle: Cycle, settings: Settings, clock: Clock, period_s: float, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Cycles until nothing is left that the next pass could not do as well. How many there were.

    A rule whose `for` is shorter than the period is judged in a burst of samples a second apart; open
    actions and unsent messages are carried on, all of it for at most BURST_S.
    """
    began = clock.monotonic()
    short = {rule.name for rule in settings.rules if rule.metric is not None and rule.for_s < period_s}
    count = 0
    while True:
        seen = cycle.run()
        count += 1
        pending = any(alert.phase == "pending" and alert.rule in short for alert in seen.policy.alerts.values())
        acting = any(intent.open for intent in seen.intents)
        fresh = seen.report.taken is None and seen.report.state.value == "starting"
        wanted = pending or acting or seen.queued > 0 or fresh or _unconfirmed(cycle)
        if not wanted or clock.monotonic() - began >= BURST_S:
            return count
        sleep(STEP_S)


def _unconfirmed(cycle: Cycle) -> bool:
    """A firing rule with a ladder needs a second reading of the process list (S11)."""
    return (
        any(
            alert.phase == "firing" and alert.reason in ("not_confirmed", "attribution_unknown", "waiting", "settling")
            for alert in cycle.seen.policy.alerts.values()
        )
        and cycle.seen.cycles < 5
    )
