"""An order while no daemon runs: obeyed on what is stored, under the host's lock, for the next start to find."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Optional

from gpuwatch.alerts import pipeline
from gpuwatch.alerts.desk import muted_of
from gpuwatch.alerts.silence import hush
from gpuwatch.daemon.app import Locks, Options, load_settings
from gpuwatch.daemon.ledger import encode_policy, restore_policy
from gpuwatch.daemon.orders import Obeyed, Standing, current, log_order, obey, orders_of, who
from gpuwatch.model.codec import encode
from gpuwatch.model.errors import SourceError
from gpuwatch.model.instant import Instant
from gpuwatch.model.orders import given
from gpuwatch.store.database import Write
from gpuwatch.store.memory import Snapshot, from_documents, put
from gpuwatch.store.writer import Writer
from gpuwatch.system.clock import SystemClock, local_zone
from gpuwatch.system.log import JournalLog, NullLog
from gpuwatch.system.protocols import Clock, Log
from gpuwatch.system.worker import InlineWorker


def obey_without_daemon(
    options: Options, arguments: Mapping[str, Any], uid: int, clock: Optional[Clock] = None, log: Optional[Log] = None
) -> Mapping[str, Any]:
    """The answer that the daemon would give. Raises GpuwatchError."""
    clock, log = clock or SystemClock(), log or _journal()
    if not os.path.isdir(options.state_dir):
        raise SourceError(f"{options.state_dir}: nothing there; has gpuwatch run on this host?")
    os.makedirs(options.run_dir, 0o755, exist_ok=True)
    locks = Locks(options)
    other = locks.acquire("cli")
    if other:
        raise SourceError(f"{other} is at work and did not answer")
    writer = Writer(options.state_dir, os.path.join(options.run_dir, "waiting.jsonl"), InlineWorker(), clock)
    try:
        stored = from_documents(writer.open())
        if writer.blind:
            raise SourceError(writer.problem)  # nothing is known of what stands
        obeyed = _obey(stored, arguments, who(uid, arguments.get("sudo")), clock.now(), log)
        if "error" in obeyed.answer:
            return obeyed.answer
        committed = writer.commit(_writes(stored, obeyed, options, clock.now()))
        if not committed.durable and not committed.degraded:
            raise SourceError(committed.problem or "it can't be written down")
        log_order(log, obeyed)
        note = "the daemon is not running: in force from its next start on"
        return {**obeyed.answer, "warning": "; ".join(filter(None, (obeyed.answer.get("warning"), note)))}
    finally:
        writer.close()
        locks.release()


def _obey(stored: Snapshot, arguments: Mapping[str, Any], by: str, now: Instant, log: Log) -> Obeyed:
    policy = restore_policy(stored, log)
    intents = tuple(stored.intents.values())
    orders = current(orders_of(stored.state, now), now, intents, policy)
    return obey(arguments, by, Standing(now, orders, policy, intents))


def _writes(stored: Snapshot, obeyed: Obeyed, options: Options, now: Instant) -> list[Write]:
    writes = [Write("state", "orders", encode(obeyed.orders))]
    if obeyed.release_s is not None:
        writes.append(Write("state", "released", encode(given(now, obeyed.release_s, "", "").until)))
    elif obeyed.resume:
        writes.append(Write("state", "released", None))
    if obeyed.done is not None:
        writes.append(Write("state", "policy", encode_policy(obeyed.policy)))
        writes.append(put("incidents", str(obeyed.done.incident.number), obeyed.done.incident))
        writes += _messages(stored, obeyed, options, now)
    return writes


def _messages(stored: Snapshot, obeyed: Obeyed, options: Options, now: Instant) -> list[Write]:
    """What is to be told waits for the daemon to send it."""
    assert obeyed.done is not None
    if obeyed.done.transition is None:
        return []
    settings = load_settings(options.config).settings
    intents = tuple(stored.intents.values())
    open_ones = tuple(obeyed.policy.incidents.values())
    told, muted = hush(
        (obeyed.done.transition,), open_ones, intents, obeyed.orders, muted_of(stored.state.get("muted")), now
    )
    newest = max((entry.number for entry in stored.spool.values()), default=0)
    entries = pipeline.spool(told, intents, settings, now, local_zone())
    writes = [put("spool", each.key, replace(each, number=newest + 1 + count)) for count, each in enumerate(entries)]
    return [*writes, Write("state", "muted", encode(muted))]


def _journal() -> Log:
    """An order is on the record, whoever gives it."""
    try:
        return JournalLog()
    except ImportError:
        return NullLog()
