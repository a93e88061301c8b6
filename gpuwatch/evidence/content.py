"""What goes into the core of a bundle, as values; and the files that they become. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Optional

from gpuwatch.evidence.redact import redact_tree
from gpuwatch.model import codec
from gpuwatch.model.event import Event, Scalar
from gpuwatch.model.gpu import Attribution
from gpuwatch.model.instant import Instant
from gpuwatch.system.protocols import UnitFacts

SCHEMA = 1


@dataclass(frozen=True)
class BundleContent:
    """Everything the core holds. Taken by the caller before; writing it reads nothing more.

    `trigger` says why (rule, subject, incident, action, reason), `decision` holds what was decided
    (an intent, a wish: dataclasses are fine), `host_facts` what system/host_facts.py read.
    """

    at: Instant
    host: str
    version: str  # of gpuwatch
    local_offset_s: int = 0  # of local time from UTC, at that moment
    zone: str = "UTC"
    trigger: Mapping[str, Scalar] = field(default_factory=dict)
    samples: Mapping[str, object] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    processes: tuple[Attribution, ...] = ()
    unit: Optional[UnitFacts] = None
    host_facts: Mapping[str, object] = field(default_factory=dict)
    decision: Mapping[str, object] = field(default_factory=dict)

    @property
    def at_utc(self) -> str:
        """2026-11-30T05:45:32.123456Z"""
        return _moment(self.at.utc_s, 0).replace("+00:00", "Z")

    @property
    def at_local(self) -> str:
        """2026-11-30T13:45:32.123456+08:00"""
        return _moment(self.at.utc_s, self.local_offset_s)


def render(content: BundleContent) -> tuple[dict[str, bytes], int]:
    """The files of the core by name, without secrets; and how many secrets were removed.

    GPU processes come with what gpu.Owner has: no command line is ever among it.
    """
    parts: dict[str, Any] = {
        "decision.json": codec.encode(content.decision),
        "events.json": {"events": codec.encode(content.events)},
        "host.json": codec.encode(content.host_facts),
        "processes.json": {"gpus": codec.encode(content.processes)},
        "samples.json": content.samples,  # JSON-able as it is: numbers by the hundred thousand
        "unit.json": {"unit": codec.encode(content.unit)},
    }
    files: dict[str, bytes] = {}
    removed = 0
    for name, part in parts.items():
        data, count = redact_tree(part)
        files[name] = as_lines({"schema": SCHEMA, **data})
        removed += count
    return files, removed


def as_lines(data: Mapping[str, Any]) -> bytes:
    """JSON with one line an entry, of lists one line an element: for grep and for people, and fast to write."""
    lines = []
    for key, entry in data.items():
        if isinstance(entry, list) and entry and isinstance(entry[0], dict):
            lines.append(f"{json.dumps(key)}:[\n" + ",\n".join(map(_compact, entry)) + "\n]")
        else:
            lines.append(f"{json.dumps(key)}:{_compact(entry)}")
    return ("{" + ",\n".join(lines) + "}\n").encode()


def _compact(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))


def as_json(data: Mapping[str, Any]) -> bytes:
    """Readable, the same for the same data; text that is no text (lone surrogates) is escaped."""
    return json.dumps(data, indent=1, ensure_ascii=True).encode() + b"\n"


def _moment(utc_s: float, offset_s: int) -> str:
    zone = timezone(timedelta(seconds=offset_s))
    return datetime.fromtimestamp(round(utc_s, 6), zone).isoformat(timespec="microseconds")
