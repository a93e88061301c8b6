"""Something that a source says happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional, Union

from gpuwatch.model.instant import Instant

Scalar = Union[str, int, float, bool, None]


@dataclass(frozen=True)
class Event:
    """One fact, e.g. an Xid.

    `kind` and the names in `fields` are those of the catalogue (xid, gpu_lost, ...). `at` is when
    it happened by the source's own clock, `seen` when gpuwatch read it. `uuid` is the GPU it
    belongs to where that is known. `text` is the source's line: one line, control characters
    replaced, at most 1,000 characters. `cursor` is the journal's, empty for other sources.
    """

    kind: str
    at: Instant
    seen: Instant
    source: str  # journal | driver | host | containers | gpuwatch
    fields: Mapping[str, Scalar] = field(default_factory=dict)
    uuid: Optional[str] = None
    text: str = ""
    cursor: str = ""
    count: int = 1  # how many equal ones this stands for
