"""From a transition to a message that a service has taken: spool, due, after. Pure; the caller stores what comes back.

    spool   transitions -> one SpoolEntry for each channel that wants to hear of it
    due     entries     -> those to hand to the sender now, marked as being sent
    after   an answer   -> the entry delivered, refused, or queued for a later try

Entries that were being sent when gpuwatch ended are put back with `requeue`: such a message may arrive
twice, it is never lost (S8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo

from gpuwatch.alerts.render import render
from gpuwatch.alerts.words import number_of
from gpuwatch.model.codec import encode
from gpuwatch.model.event import Scalar
from gpuwatch.model.incident import Incident
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent
from gpuwatch.model.notification import DeliveryState, Message, SpoolEntry, Transition
from gpuwatch.model.rule import Severity
from gpuwatch.model.settings import Channel, Settings

FIRST_RETRY_S = 2.0
LAST_RETRY_S = 600.0
BURST = 6  # of them at once after a quiet minute: one incident's messages, mentions included, never wait
PER_MINUTE = 3  # HTTP messages a channel and host: WeCom allows 20 a robot, which a fleet may share (W5)
MENTIONED = ("firing", "escalated", "update")


@dataclass(frozen=True)
class Bucket:
    """Tokens of one channel. `closed_until_utc_s`: the service said "too many" (W5)."""

    tokens: float
    at_utc_s: float
    closed_until_utc_s: float = 0.0


Buckets = Mapping[str, Bucket]


def spool(
    transitions: Iterable[Transition],
    intents: tuple[Intent, ...],
    settings: Settings,
    now: Instant,
    zone: tzinfo,
    simulated: bool = False,
    facts: Callable[[Incident], Mapping[str, Scalar]] = lambda incident: {},
) -> tuple[SpoolEntry, ...]:
    """One entry for each transition and channel. `facts` tells what is known now about an incident's subject."""
    entries = []
    for transition in transitions:
        incident = transition.incident
        wanting = [channel for channel in settings.channels if incident.severity in channel.severities]
        if not wanting:
            continue
        message = render(incident, transition.name, intents, settings, now, zone, simulated, facts(incident))
        for channel in wanting:
            entries.append(
                SpoolEntry(
                    key=f"{incident.id}/{transition.name}/{channel.name}",
                    channel=channel.name,
                    message=message,
                    created_utc_s=now.utc_s,
                    next_try_utc_s=now.utc_s,
                    mention=_mention(message, channel),
                )
            )
    return tuple(entries)


def _mention(message: Message, channel: Channel) -> tuple[str, ...]:
    """Whom to call: only for what is critical, when it begins, and when its outcome needs a person."""
    if message.severity is not Severity.CRITICAL or message.tone not in MENTIONED:
        return ()
    return channel.mention if message.tone != "update" or message.urgent else ()


def due(
    entries: Sequence[SpoolEntry], now_utc_s: float, buckets: Buckets, burst: int = BURST
) -> tuple[tuple[SpoolEntry, ...], dict[str, Bucket]]:
    """The entries to send now, marked as being sent, and the buckets after that.

    Critical first, then the oldest; within an incident a later message never overtakes an earlier one.
    One at a time a channel: whatever instant gpuwatch is killed at, one message can come twice (S8).
    """
    filled = {channel: _fill(bucket, now_utc_s, burst) for channel, bucket in buckets.items()}
    waiting = sorted(
        (entry for entry in entries if entry.state is DeliveryState.QUEUED and _time_has_come(entry, now_utc_s)),
        key=lambda entry: (-entry.message.severity.rank, entry.created_utc_s),
    )
    chosen = []
    done = {entry.channel for entry in entries if entry.state is DeliveryState.SENDING}
    for entry in waiting:
        bucket = filled.get(entry.channel, Bucket(float(burst), now_utc_s))
        cost = min(float(_cost(entry)), float(burst))
        if entry.channel in done or _closed(bucket, now_utc_s) or _behind(entry, entries):
            continue
        if bucket.tokens < cost:
            done.add(entry.channel)  # what comes later and costs less must not eat up what this one saves for
            continue
        filled[entry.channel] = replace(bucket, tokens=bucket.tokens - cost)
        done.add(entry.channel)
        chosen.append(replace(entry, state=DeliveryState.SENDING, attempts=entry.attempts + 1))
    return tuple(chosen), filled


def _fill(bucket: Bucket, now_utc_s: float, burst: int) -> Bucket:
    elapsed = max(0.0, now_utc_s - bucket.at_utc_s)  # a clock set back adds nothing and takes nothing
    return replace(bucket, tokens=min(float(burst), bucket.tokens + elapsed * PER_MINUTE / 60), at_utc_s=now_utc_s)


def _time_has_come(entry: SpoolEntry, now_utc_s: float) -> bool:
    """No try is ever planned further ahead than LAST_RETRY_S: one that is was planned before the clock was set back."""
    return not 0 < entry.next_try_utc_s - now_utc_s <= LAST_RETRY_S


def _closed(bucket: Bucket, now_utc_s: float) -> bool:
    return 0 < bucket.closed_until_utc_s - now_utc_s <= LAST_RETRY_S


def _cost(entry: SpoolEntry) -> int:
    """HTTP messages that are left to send: a mention is one of its own (W6)."""
    return max(1, (2 if entry.mention else 1) - len(entry.done))


def _behind(entry: SpoolEntry, entries: Sequence[SpoolEntry]) -> bool:
    """True while an earlier message of the same incident to the same channel is not settled."""
    story = entry.key.split("/", 1)[0]
    return any(
        other.channel == entry.channel
        and other.key != entry.key
        and other.key.split("/", 1)[0] == story
        and other.state in (DeliveryState.QUEUED, DeliveryState.SENDING)
        and _order(other) < _order(entry)
        for other in entries
    )


_KINDS = ("firing", "escalated", "update", "resolved")


def _order(entry: SpoolEntry) -> tuple[int, float, int]:
    """In the order of making; messages made at one moment in the order of a story."""
    tone = entry.message.tone
    return (entry.number, entry.created_utc_s, _KINDS.index(tone) if tone in _KINDS else len(_KINDS))


def after(entry: SpoolEntry, outcome: Mapping[str, object], now_utc_s: float, jitter: float) -> SpoolEntry:
    """The entry after one try. `outcome` is what the courier told (ok, retryable, problem, retry_after_s, done).

    `jitter` is a random number from 0 to 1, so that a fleet does not come back at one moment.
    """
    done = outcome.get("done")
    if isinstance(done, (list, tuple)):
        entry = replace(entry, done=tuple(str(part) for part in done))
    problem = str(outcome.get("problem") or "")
    if outcome.get("ok") is True:
        return replace(entry, state=DeliveryState.DELIVERED, delivered_utc_s=now_utc_s, problem="")
    if outcome.get("retryable") is not True:
        return replace(entry, state=DeliveryState.REFUSED, problem=problem)
    wait_s = max(_asked_s(outcome), retry_s(entry.attempts, jitter))
    return replace(entry, state=DeliveryState.QUEUED, problem=problem, next_try_utc_s=now_utc_s + wait_s)


def retry_s(attempts: int, jitter: float) -> float:
    """Seconds until the next try: 2, 4, 8, ... up to half more by `jitter`, at most ten minutes."""
    doubled: float = FIRST_RETRY_S * 2.0 ** min(max(attempts - 1, 0), 16)
    return min(LAST_RETRY_S, doubled * (1 + 0.5 * jitter))


def _asked_s(outcome: Mapping[str, object]) -> float:
    asked = outcome.get("retry_after_s")
    number = number_of(asked) if isinstance(asked, (int, float)) else None
    return min(LAST_RETRY_S, max(0.0, number or 0.0))


def slow_down(buckets: Buckets, channel: str, outcome: Mapping[str, object], now_utc_s: float) -> dict[str, Bucket]:
    """The buckets after an answer: a service that asks for a pause gets it for the whole channel."""
    pause_s = _asked_s(outcome)
    if outcome.get("ok") is True or pause_s <= 0:
        return dict(buckets)
    bucket = buckets.get(channel, Bucket(0.0, now_utc_s))
    return {**buckets, channel: replace(bucket, tokens=0.0, closed_until_utc_s=now_utc_s + pause_s)}


def give_back(buckets: Buckets, entry: SpoolEntry) -> dict[str, Bucket]:
    """The buckets after a try that never left the host."""
    bucket = buckets.get(entry.channel)
    if bucket is None:
        return dict(buckets)
    return {**buckets, entry.channel: replace(bucket, tokens=min(float(BURST), bucket.tokens + _cost(entry)))}


def requeue(entry: SpoolEntry) -> SpoolEntry:
    """At start: what was being sent when gpuwatch ended is sent again."""
    return replace(entry, state=DeliveryState.QUEUED) if entry.state is DeliveryState.SENDING else entry


def request(entry: SpoolEntry, channel: Channel, key: str, language: str) -> dict[str, object]:
    """What the courier takes. Holds the key: never to be logged or stored."""
    return {
        "id": entry.key,
        "channel": {"type": channel.type, "options": dict(channel.options)},
        "key": key,
        "message": encode(entry.message),
        "mention": list(entry.mention),
        "done": list(entry.done),
        "language": language,
    }
