"""The desk where messages are written down, handed to the courier, and crossed off: the pipeline with its memory."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any, Callable

from gpuwatch.alerts import pipeline
from gpuwatch.alerts.silence import Hush, Muted, hush
from gpuwatch.model.codec import decode, encode
from gpuwatch.model.errors import SourceError
from gpuwatch.model.event import Scalar
from gpuwatch.model.incident import Incident
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent
from gpuwatch.model.notification import DeliveryState, SpoolEntry, Transition
from gpuwatch.model.orders import Orders
from gpuwatch.model.settings import Channel, KeySource, Settings
from gpuwatch.store.database import Write
from gpuwatch.store.memory import put
from gpuwatch.system.protocols import Courier

NO_ORDERS = Orders()
Facts = Callable[[Incident], Mapping[str, Scalar]]


@dataclass
class Desk:
    """One a daemon. `read_key` gives a channel's secret when it is needed; raises SourceError."""

    courier: Courier
    zone: tzinfo
    read_key: Callable[[KeySource], str]
    simulated: bool = False
    jitter: Callable[[], float] = random.random
    _number: int = 0
    _entries: dict[str, SpoolEntry] = field(default_factory=dict)
    _buckets: dict[str, pipeline.Bucket] = field(default_factory=dict)
    _failing: dict[str, tuple[float, str]] = field(default_factory=dict)
    _changed: dict[str, SpoolEntry] = field(default_factory=dict)
    _muted: Muted = field(default_factory=dict)
    _muted_changed: bool = False

    def restore(self, spool: Mapping[str, SpoolEntry], muted: Any = None) -> None:
        """Take over what is stored; what was being sent is sent again."""
        self._muted = muted_of(muted)
        self._entries = dict(spool)
        self._number = max((entry.number for entry in spool.values()), default=0)
        for entry in spool.values():
            self._note(pipeline.requeue(entry))

    def spool(
        self,
        transitions: Iterable[Transition],
        intents: tuple[Intent, ...],
        settings: Settings,
        now: Instant,
        facts: Facts,
        incidents: Iterable[Incident] = (),
        orders: Orders = NO_ORDERS,
    ) -> None:
        """Write down a message for each transition and channel, silenced ones left out; one that is there already is
        left alone. `incidents`: all that are not closed."""
        transitions, muted = hush(transitions, incidents, intents, orders, self._muted, now)
        if muted != self._muted:
            self._muted, self._muted_changed = muted, True
        for entry in pipeline.spool(transitions, intents, settings, now, self.zone, self.simulated, facts):
            if entry.key not in self._entries:
                self._number += 1
                self._note(replace(entry, number=self._number))

    def collect(self, now: Instant) -> None:
        """Take the courier's answers into account."""
        for outcome in self.courier.outcomes():
            entry = self._entries.get(str(outcome.get("id")))
            if entry is not None and entry.state is DeliveryState.SENDING:
                self._settle(entry, outcome, now)
                self._buckets = pipeline.slow_down(self._buckets, entry.channel, outcome, now.utc_s)

    def due(self, settings: Settings, now: Instant) -> tuple[SpoolEntry, ...]:
        """What is to be sent now, marked so; of channels that the configuration (still) has."""
        channels = {channel.name for channel in settings.channels}
        waiting = [entry for entry in self._entries.values() if entry.channel in channels]
        chosen, self._buckets = pipeline.due(waiting, now.utc_s, self._buckets)
        for entry in chosen:
            self._note(entry)
        return chosen

    def writes(self) -> list[Write]:
        """What has changed since the last call, for the cycle's transaction."""
        changed, self._changed = self._changed, {}
        writes = [put("spool", key, entry) for key, entry in changed.items()]
        if self._muted_changed:
            self._muted_changed = False
            writes.append(Write("state", "muted", encode(self._muted)))
        return writes

    def hand_over(self, due: Iterable[SpoolEntry], settings: Settings, now: Instant) -> None:
        """Give messages to the courier. Call only after they were committed as being sent."""
        channels = {channel.name: channel for channel in settings.channels}
        requests = []
        for entry in due:
            channel: Channel = channels[entry.channel]
            try:
                key = self.read_key(channel.key)
            except SourceError as error:
                problem = {"ok": False, "retryable": True, "problem": str(error)}
                self._settle(entry, problem, now)
                self._buckets = pipeline.give_back(self._buckets, entry)  # nothing has left the host
                continue
            requests.append(pipeline.request(entry, channel, key, settings.language))
        if requests:
            self.courier.send(tuple(requests))

    def expire(self, now: Instant, keep_s: float) -> list[str]:
        """Keys of entries that were settled long ago, forgotten here."""
        old = [
            key
            for key, entry in self._entries.items()
            if entry.state in (DeliveryState.DELIVERED, DeliveryState.REFUSED)
            and now.utc_s - entry.created_utc_s > keep_s
        ]
        for key in old:
            del self._entries[key]
        return old

    def take_back(self, entries: Iterable[SpoolEntry]) -> None:
        """Entries whose marking could not be written down are not sent now."""
        for entry in entries:
            self._note(replace(entry, state=DeliveryState.QUEUED, attempts=entry.attempts - 1))

    def queued(self) -> int:
        """How many messages wait or are on their way."""
        return sum(entry.state in (DeliveryState.QUEUED, DeliveryState.SENDING) for entry in self._entries.values())

    def refused(self) -> str:
        """Why the newest message was refused for good, "" if it was not."""
        settled = [
            each for each in self._entries.values() if each.state in (DeliveryState.DELIVERED, DeliveryState.REFUSED)
        ]
        newest = max(settled, key=lambda entry: entry.created_utc_s, default=None)
        return newest.problem if newest is not None and newest.state is DeliveryState.REFUSED else ""

    def failing(self) -> dict[str, tuple[float, str]]:
        """Channels that could not deliver lately: since when (UTC seconds), and why."""
        return dict(self._failing)

    def _settle(self, entry: SpoolEntry, outcome: Mapping[str, object], now: Instant) -> None:
        after = pipeline.after(entry, outcome, now.utc_s, self.jitter())
        self._note(after)
        if after.state is DeliveryState.DELIVERED:
            self._failing.pop(entry.channel, None)
        else:
            since, _ = self._failing.get(entry.channel, (now.utc_s, ""))
            self._failing[entry.channel] = (since, after.problem)

    def _note(self, entry: SpoolEntry) -> None:
        if self._entries.get(entry.key) != entry or entry.key not in self._entries:
            self._entries[entry.key] = entry
            self._changed[entry.key] = entry


def muted_of(document: Any) -> Muted:
    """What is stored of it. One that can't be read costs no start: a message more, and the reason of one not told."""
    try:
        return {str(int(key)): decode(Hush, each) for key, each in (document or {}).items()}
    except (TypeError, KeyError, ValueError, AttributeError):
        return {}
