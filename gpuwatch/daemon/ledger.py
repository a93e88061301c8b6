"""What outlives the process: one transaction a cycle, with the journal cursor as its last statement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from gpuwatch.daemon.notes import Notes
from gpuwatch.model.codec import decode, encode
from gpuwatch.model.incident import Incident
from gpuwatch.model.intent import Intent
from gpuwatch.policy.state import Outcome, PolicyState
from gpuwatch.store.database import Write
from gpuwatch.store.memory import Snapshot, differences, put, remove
from gpuwatch.store.writer import Committed, Writer
from gpuwatch.system.protocols import JournalBatch, Log

CRITICAL = 2
KEEP_CLOSED = 500  # incidents


class Ledger:
    """Knows what is stored, so that a cycle writes what is new or different and no more."""

    def __init__(self, stored: Snapshot) -> None:
        self._policy_document = stored.state.get("policy")
        self._policy: Optional[PolicyState] = None
        self._incidents: dict[str, Incident] = dict(stored.incidents)
        self._intents = {each.id: each.incident for each in stored.intents.values()}
        self._cursor = str(stored.state.get("cursor", ""))
        self._notes = Notes(stored.state)

    def commit(
        self,
        writer: Writer,
        outcome: Outcome,
        before: Iterable[Intent],
        intents: Iterable[Intent],
        notes: Mapping[str, Any],
        more: Iterable[Write],
        batches: Sequence[JournalBatch],
    ) -> Committed:
        """Everything that a cycle decided. `notes`: the daemon's small documents; `more`: writes of others."""
        writes = self._of_policy(outcome)
        after = {each.id: each for each in intents}
        self._intents.update({each.id: each.incident for each in after.values()})
        writes += differences("intents", {each.id: each for each in before}, after)
        writes += more
        writes += self.forget_incidents(KEEP_CLOSED)
        writes += self._notes.differences(notes)
        cursor = next((batch.cursor for batch in reversed(batches) if batch.cursor), self._cursor)
        if cursor != self._cursor:
            writes.append(Write("state", "cursor", cursor))  # last: nothing read before it is lost
        self._cursor = cursor
        if not writes and writer.failing_s() == 0.0:
            return Committed(durable=True)
        return writer.commit(writes)

    def _of_policy(self, outcome: Outcome) -> list[Write]:
        writes: list[Write] = []
        kept = replace(outcome.state, incidents={})
        if kept != self._policy:  # much cheaper than to encode it anew
            self._policy, document = kept, encode_policy(outcome.state)
            if document != self._policy_document:
                writes.append(Write("state", "policy", document))
                self._policy_document = document
        for incident in outcome.changed:
            self._incidents[str(incident.number)] = incident
            writes.append(put("incidents", str(incident.number), incident))
        return writes

    def forget_incidents(self, keep: int) -> list[Write]:
        """The writes that remove all closed incidents but the newest, and what was done about them."""
        closed = [number for number, incident in self._incidents.items() if incident.closed is not None]
        writes: list[Write] = []
        for number in sorted(closed, key=int)[: max(0, len(closed) - keep)]:
            del self._incidents[number]
            actions = [name for name, incident in self._intents.items() if str(incident) == number]
            writes += [*remove("incidents", [number]), *remove("intents", actions)]
            for name in actions:
                del self._intents[name]
        return writes


def encode_policy(state: PolicyState) -> object:
    """The policy's document: incidents have a table of their own."""
    return encode(replace(state, incidents={}))


def restore_policy(stored: Snapshot, log: Log) -> PolicyState:
    """A document that can't be read costs the memory of alerts, never the start; incidents stay."""
    policy = PolicyState()
    if "policy" in stored.state:
        try:
            policy = decode(PolicyState, stored.state["policy"])
        except (TypeError, KeyError, ValueError) as error:
            log.write(CRITICAL, f"the stored state of the rules can't be read ({error}): they start anew")
    open_ones = {key: incident for key, incident in stored.incidents.items() if incident.closed is None}
    newest = max((incident.number for incident in stored.incidents.values()), default=0)
    return replace(policy, incidents=open_ones, next_incident=max(policy.next_incident, newest + 1))


def restore_intents(stored: Snapshot) -> tuple[Intent, ...]:
    """In the order in which they were made."""
    return tuple(sorted(stored.intents.values(), key=lambda intent: (intent.incident, _running_number(intent))))


def _running_number(intent: Intent) -> int:
    return int(intent.id.rsplit("-", 1)[1])
