"""Evidence: what the daemon holds in memory at this moment, as the core of a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Callable, Optional

from gpuwatch import __version__
from gpuwatch.daemon.cycle import Cycle
from gpuwatch.evidence.bundle import Bundles
from gpuwatch.evidence.content import BundleContent
from gpuwatch.model.codec import encode
from gpuwatch.model.event import Event, Scalar
from gpuwatch.model.gpu import Attribution
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent
from gpuwatch.sources.gpu import GpuSource
from gpuwatch.sources.ring import Ring
from gpuwatch.system.protocols import Clock, GpuDriver, Processes, UnitFacts

WINDOW_S = 900.0  # of events
LOOK_S = 5.0


@dataclass(frozen=True)
class Memory:
    """What is remembered at one moment: Ring.rows(), recent events, who used the GPUs, open incidents."""

    samples: Mapping[str, object] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    processes: tuple[Attribution, ...] = ()
    incidents: Mapping[str, object] = field(default_factory=dict)
    host: Mapping[str, object] = field(default_factory=dict)


class Scene:
    """Takes the scene in the cycle's thread; the job that it gives writes it, where that may block."""

    def __init__(
        self, bundles: Bundles, clock: Clock, zone: tzinfo, host: str, host_facts: Callable[[], Mapping[str, object]]
    ) -> None:
        self.bundles = bundles
        self._clock, self._zone, self._host, self._host_facts = clock, zone, host, host_facts
        self._recall: Callable[[Instant], Memory] = lambda now: Memory()

    def attach(self, cycle: Cycle) -> None:
        """The cycle whose memory is the evidence."""
        self._recall = lambda now: Memory(
            samples=cycle.ring.rows(now),
            events=tuple(
                event for event in (*cycle.events, *cycle.user_events) if now.utc_s - event.seen.utc_s <= WINDOW_S
            ),
            processes=cycle.seen.attributions,
            host={"host": encode(cycle.seen.host), "units": encode(cycle.seen.units)},
            incidents={number: encode(incident) for number, incident in cycle.seen.policy.incidents.items()},
        )

    def look(self, gpus: GpuDriver, processes: Processes) -> None:
        """Without a daemon: two samples of now are all there is to remember."""
        ring, source = Ring(1.0), GpuSource(processes)
        attributions: tuple[Attribution, ...] = ()
        for _ in range(2):
            report = gpus.sample(True, True, LOOK_S)
            ring.add(report)
            attributions = source.observe(report, self._clock.now())
        self._recall = lambda now: Memory(samples=ring.rows(now), processes=attributions)

    def preserve(self, intent: Intent, unit: Optional[UnitFacts]) -> Callable[[], Instant]:
        """The job that writes the bundle of an intent."""
        trigger: dict[str, Scalar] = {
            "rule": intent.rule,
            "incident": intent.incident,
            "action": intent.action,
            "action_id": intent.id,
            "target": intent.target,
            "gpu": intent.gpu,
            "mode": "observe" if intent.observe else "enforce",
        }
        return self._job(intent.bundle, trigger, {"intent": encode(intent)}, unit)

    def by_hand(self, bundle_id: str, reason: str) -> Callable[[], Instant]:
        """The job that writes a bundle because somebody asked."""
        return self._job(bundle_id, {"rule": "by-hand", "reason": reason}, {}, None)

    def _job(
        self, bundle_id: str, trigger: Mapping[str, Scalar], decision: Mapping[str, object], unit: Optional[UnitFacts]
    ) -> Callable[[], Instant]:
        content = self._content(trigger, decision, unit)

        def write() -> Instant:
            self.bundles.write(bundle_id, content)
            return self._clock.now()

        return write

    def _content(
        self, trigger: Mapping[str, Scalar], decision: Mapping[str, object], unit: Optional[UnitFacts]
    ) -> BundleContent:
        now = self._clock.now()
        memory = self._recall(now)
        local = datetime.fromtimestamp(now.utc_s, self._zone)
        offset = local.utcoffset()
        return BundleContent(
            at=now,
            host=self._host,
            version=__version__,
            local_offset_s=0 if offset is None else int(offset.total_seconds()),
            zone=local.tzname() or "UTC",
            trigger=trigger,
            samples=memory.samples,
            events=memory.events,
            processes=memory.processes,
            unit=unit,
            host_facts={**self._host_facts(), **memory.host},
            decision={**decision, "incidents": memory.incidents},
        )
