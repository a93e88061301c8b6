"""The values that go into history.db and come out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from gpuwatch.model.event import Event
from gpuwatch.model.instant import Instant

Values = tuple[Optional[float], ...]

# `state` of a GPU in a row; of several the highest is kept
READ, UNREADABLE, LOST = 0, 1, 2
STATES = ("read", "unreadable", "lost")  # in words, by number

# Why nobody looked, or nothing was written. A driver's state has "driver_" in front of it.
GPUWATCH_DOWN = "gpuwatch_down"  # same boot: stopped, killed or restarted
HOST_DOWN = "host_down"  # another boot came between
NOT_LOOKING = "not_looking"  # gpuwatch ran but made no cycle: a suspend, or a machine at its limit
NOT_WRITTEN = "not_written"  # the disk did not take it
CLOCK_SET = "clock_set"  # no time is missing: somebody set the wall clock
PUT_ASIDE = "put_aside"  # what was before is in another, broken file


@dataclass(frozen=True)
class Keep:
    """Retention. Every row for `full_s`; then a row a minute, with the worst values of that minute, until `all_s`.

    Over `most_bytes` the oldest goes, whatever its age. With less than `free_bytes` left on the file system
    nothing is recorded: the state of the daemon and evidence need the space more.
    """

    full_s: float = 7 * 86_400.0
    all_s: float = 90 * 86_400.0
    most_bytes: int = 1 << 30
    free_bytes: int = 512 << 20


@dataclass(frozen=True)
class GpuRow:
    """One GPU at one tick, as it is written. `slow` is () where it is not new."""

    uuid: str
    index: int
    name: str
    pci: str
    state: int
    values: Values
    slow: Values = ()


@dataclass(frozen=True)
class Tick:
    """One moment. `driver` is "" where the driver answered; then `gpus` are all that it lists."""

    at: Instant
    driver: str
    detail: str
    host: Values
    gpus: tuple[GpuRow, ...]


@dataclass(frozen=True)
class NotedEvent:
    """An event with the number of the incident that it belongs to."""

    event: Event
    incident: Optional[int] = None


@dataclass(frozen=True)
class Batch:
    """What is written at once. `lost` ticks before it could not be written, because of `why_lost`."""

    ticks: tuple[Tick, ...] = ()
    events: tuple[NotedEvent, ...] = ()
    lost: int = 0
    why_lost: str = ""


@dataclass(frozen=True)
class KnownGpu:
    """A GPU that is in the history, with its newest index."""

    uuid: str
    index: int
    name: str
    pci: str


@dataclass(frozen=True)
class Gap:
    """Why nobody can say what was between two moments. `until_utc_s` is None while it lasts."""

    from_utc_s: float
    until_utc_s: Optional[float]
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class Row:
    """What was known at one tick; it covers the time since the one before.

    Values by metric name; None was not read, or is not offered by the card. `state`: read | lost | unreadable (the
    driver answered, but not for this card) | not_listed; or the driver's state where it did not answer ("silent",
    "absent", ...); "" where no GPU was asked for.
    `index` is the card's at that moment.
    """

    at: Instant
    state: str
    values: Mapping[str, Optional[float]] = field(default_factory=dict)
    index: Optional[int] = None


@dataclass(frozen=True)
class Known:
    """The answer to "was the card there?".

    `there`: True, False, or None: nobody can say. `why` is then the reason: that of a gap, the driver's state
    ("driver_silent"), "unreadable", "before_history", "after_history", "not_recorded" or "never_seen";
    otherwise it is the state of `row`.
    `row` covers the moment, and `age_s` is 0; or it is the newest one before, `age_s` seconds earlier.
    `before` and `after`: the nearest rows that were read. `twice`: the clock was set back, so that this
    time of day came twice, and the answer is about the second time.
    """

    gpu: KnownGpu
    asked_utc_s: float
    there: Optional[bool]
    why: str
    row: Optional[Row] = None
    age_s: Optional[float] = None
    gap: Optional[Gap] = None
    before: Optional[Row] = None
    after: Optional[Row] = None
    twice: bool = False


@dataclass(frozen=True)
class EventFilter:
    """Which events. `uuid` or `pci` match, where given, one or the other; `unit` is a glob over units and containers.
    Of more than `most` the newest are taken."""

    since_utc_s: Optional[float] = None
    until_utc_s: Optional[float] = None
    kinds: tuple[str, ...] = ()
    uuid: Optional[str] = None
    pci: Optional[str] = None
    unit: Optional[str] = None
    incident: Optional[int] = None
    most: int = 1000
