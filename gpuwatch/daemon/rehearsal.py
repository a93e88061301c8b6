"""The policy and the executor over what is shown to them, with nothing behind: no disk, no SQLite, no host.

The very same step() and Executor as in the cycle, in the cycle's order. What is seen comes from a written story
(daemon/stories.py) or from recorded history (daemon/replay.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from gpuwatch.actions.changes import PowerLimit, UnitHold
from gpuwatch.actions.executor import Executor
from gpuwatch.actions.router import Router
from gpuwatch.daemon.told import Entry, of_step
from gpuwatch.model.codec import decode, encode
from gpuwatch.model.event import Event
from gpuwatch.model.gpu import Attribution, GpuReport
from gpuwatch.model.host import SubjectReadings
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.orders import Orders
from gpuwatch.model.reading import Reading
from gpuwatch.model.reason import ATTRIBUTION_UNKNOWN, NOT_CONFIRMED
from gpuwatch.model.settings import Settings
from gpuwatch.model.trace import Trace
from gpuwatch.policy.state import Inputs, PolicyState
from gpuwatch.policy.step import step
from gpuwatch.system.protocols import Clock, GpuDriver, Holds, Systemd, UnitFacts
from gpuwatch.system.worker import InlineWorker

UNDER_WAY = (IntentState.PLANNED, IntentState.PRESERVED, IntentState.SENT)


@dataclass(frozen=True)
class Shown:
    """What one cycle sees; see policy.state.Inputs."""

    now: Instant
    report: GpuReport
    attributions: tuple[Attribution, ...] = ()
    events: tuple[Event, ...] = ()
    host: Mapping[str, Reading] = field(default_factory=dict)
    subjects: tuple[SubjectReadings, ...] = ()
    traces: Mapping[str, Trace] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    orders: Orders = field(default_factory=Orders)
    started: Optional[Instant] = None
    period_s: Optional[float] = None  # between two of them; None: the settings' interval


@dataclass
class Kept:
    """What outlives the process: the stored state, and the bundles on disk."""

    policy: PolicyState = field(default_factory=PolicyState)
    intents: tuple[Intent, ...] = ()
    bundles: dict[str, Instant] = field(default_factory=dict)

    def through_the_store(self) -> Kept:
        """As the next process finds it."""
        intents = tuple(decode(Intent, _copy(encode(intent))) for intent in self.intents)
        return Kept(decode(PolicyState, _copy(encode(self.policy))), intents, self.bundles)


class Rehearsal:
    """One process of gpuwatch. `kept` is what it finds, and what the next one will find."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        gpus: GpuDriver,
        systemd: Systemd,
        holds: Holds,
        kept: Optional[Kept] = None,
        host_name: str = "gpu-07",
    ) -> None:
        self.settings, self.kept = settings, kept or Kept()
        self._clock, self._host_name = clock, host_name
        self._executor = self._make_executor(gpus, systemd, holds)

    def step(self, at_s: float, shown: Shown) -> tuple[Entry, ...]:
        """One cycle; what came of it."""
        before, earlier = self.kept.policy, self.kept.intents
        outcome = step(before, self._inputs(shown), self.settings)
        self._executor.observe(shown.report)
        planned = self._executor.plan(outcome.wishes, earlier, shown.now)
        everything = (*earlier, *planned)
        later, effects = self._executor.advance(everything, outcome.wishes, self.settings, shown.now, shown.orders)
        kept = frozenset(incident.number for incident in outcome.state.incidents.values())
        self.kept.policy = outcome.state
        self.kept.intents = self._executor.retained(later, kept, shown.now)
        self._executor.carry_out(effects)
        return of_step(at_s, before, outcome, earlier, later)

    def hurries(self) -> bool:
        """As Cycle.hurries()."""
        alerts = self.kept.policy.alerts.values()
        unsure = any(each.phase == "firing" and each.reason in (NOT_CONFIRMED, ATTRIBUTION_UNKNOWN) for each in alerts)
        return unsure or any(each.state in UNDER_WAY for each in self.kept.intents)

    def watches(self) -> bool:
        """True while processes are listed each cycle, as in the cycle."""
        return bool(self.kept.policy.alerts)

    def _inputs(self, shown: Shown) -> Inputs:
        """The one place that knows what the policy takes."""
        return Inputs(
            now=shown.now,
            report=shown.report,
            attributions=shown.attributions,
            events=shown.events,
            intents=self.kept.intents,
            host=shown.host,
            subjects=shown.subjects,
            problems={"host.driver_silent": shown.report.reason},
            stuck_pids=shown.report.stuck_pids,
            period_s=shown.period_s or self.settings.interval_s,
            host_name=self._host_name,
            orders=shown.orders,
            traces=shown.traces,
            groups=shown.groups,
            started=shown.started,
        )

    def _make_executor(self, gpus: GpuDriver, systemd: Systemd, holds: Holds) -> Executor:
        """The one place that knows what the executor takes."""
        return Executor(
            clock=self._clock,
            router=Router(systemd, InlineWorker()),
            scribe=InlineWorker(),
            preserve=self._preserve,
            is_durable=lambda bundle: bundle in self.kept.bundles,
            bundle_id=lambda now, rule, about: f"{now.boottime_s:.3f}-{rule}-{about}",
            changes={"throttle": PowerLimit(gpus), "hold": UnitHold(self._clock, holds)},
        )

    def _preserve(self, intent: Intent, unit: Optional[UnitFacts]) -> Callable[[], Instant]:
        """Evidence that is on disk at once."""
        bundles, clock = self.kept.bundles, self._clock

        def write() -> Instant:
            bundles[intent.bundle] = clock.now()
            return bundles[intent.bundle]

        return write


def _copy(document: Any) -> Any:
    """As JSON would give it back."""
    return json.loads(json.dumps(document))
