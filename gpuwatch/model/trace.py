"""The last two minutes of one GPU: what a single sample can't tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from gpuwatch.model.instant import Instant


@dataclass(frozen=True)
class TracePoint:
    """One sample reduced to what witnesses of heat say; None: not supported, or not read."""

    taken: Instant
    temperature: Optional[float] = None  # C
    memory_temperature: Optional[float] = None  # C
    power: Optional[float] = None  # W
    energy: Optional[float] = None  # J
    sm_clock: Optional[float] = None  # MHz
    memory_clock: Optional[float] = None  # MHz
    utilisation: Optional[float] = None  # %
    fan: Optional[float] = None  # %


@dataclass(frozen=True)
class Trace:
    """Oldest first, one a sample, at most 120 s; empty after a start of the daemon."""

    points: tuple[TracePoint, ...] = field(default_factory=tuple)
