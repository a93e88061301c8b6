"""What is stored, as model values; and the writes that bring the store from one state to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gpuwatch.model.codec import decode, encode
from gpuwatch.model.incident import Incident
from gpuwatch.model.intent import Intent
from gpuwatch.model.notification import SpoolEntry
from gpuwatch.store.database import DamagedError, Documents, Write

T = TypeVar("T")


@dataclass(frozen=True)
class Snapshot:
    """All of it at one moment. `state` holds single documents by name: policy, cursor, ..."""

    state: Mapping[str, Any] = field(default_factory=dict)
    incidents: Mapping[str, Incident] = field(default_factory=dict)
    intents: Mapping[str, Intent] = field(default_factory=dict)
    spool: Mapping[str, SpoolEntry] = field(default_factory=dict)


def from_documents(documents: Documents) -> Snapshot:
    """Raises DamagedError when a document is not what this version writes."""
    return Snapshot(
        state=documents.get("state", {}),
        incidents=_decode(Incident, documents.get("incidents", {})),
        intents=_decode(Intent, documents.get("intents", {})),
        spool=_decode(SpoolEntry, documents.get("spool", {})),
    )


def put(table: str, key: str, thing: Any) -> Write:
    """Write one value."""
    return Write(table, key, encode(thing))


def remove(table: str, keys: Iterable[str]) -> list[Write]:
    """Remove documents."""
    return [Write(table, key, None) for key in keys]


def differences(table: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Write]:
    """Puts for what is new or different. What is missing in `after` is left where it is: removal is retention's."""
    return [put(table, key, thing) for key, thing in after.items() if before.get(key) != thing]


def decode_state(kind: type[T], document: Any) -> T:
    """A `kind` from one document of `state`. Raises DamagedError when it is none."""
    try:
        return decode(kind, document)
    except (TypeError, KeyError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedError(f"a stored {kind.__name__} can't be read: {error}") from error


def _decode(kind: type[T], documents: Mapping[str, Any]) -> dict[str, T]:
    return {key: decode_state(kind, document) for key, document in documents.items()}
