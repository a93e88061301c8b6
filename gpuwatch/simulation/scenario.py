"""A written story: what a host is like, what happens on it, what gpuwatch is expected to make of it. Plain data.

gpuwatch/config/scenario.py reads it from YAML, stage.py plays it, gpuwatch/daemon/rehearsal.py watches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from gpuwatch.model.event import Scalar
from gpuwatch.model.reading import UNSUPPORTED, Reading, value
from gpuwatch.model.settings import Settings
from gpuwatch.simulation.systemd import SimulatedUnit

GIB = 1024.0**3
IDLE, THROTTLED = "idle", "throttled"

# What can be seen of gpuwatch in a story, and what the word after it names
FIRES, CLEARS = "fires", "clears"  # a rule
STOPS, KILLS, STOPPED, HOLDS = "stops", "kills", "stopped", "holds"  # a unit
THROTTLES = "throttles"  # a GPU
UNDONE, WOULD, REFUSED, FAILED = "undone", "would", "refused", "failed"  # an action
WITHDRAWN, UNKNOWN, OVERTAKEN = "withdrawn", "unknown", "overtaken"  # an action
SAVES = "saves"  # what the bundle is about
OPENS, CLOSES = "opens", "closes"  # what the incident is about
TELLS = "tells"  # a transition
REASON = "reason"  # a reason code: nothing is done, because
REFUSES = "refuses"  # an order that somebody gave

# Where a story says nothing of these, they must not happen
STRICT = frozenset({FIRES, STOPS, KILLS, HOLDS, THROTTLES, WOULD, REFUSED, FAILED, UNKNOWN, REFUSES})


@dataclass(frozen=True)
class Model:
    """A kind of card: its own points in degrees Celsius (None: it reports none), and what it does not offer."""

    name: str
    points: Optional[tuple[float, float, float]]  # operating, slowdown, shutdown
    readings: Mapping[str, Reading] = field(default_factory=dict)


MODELS = {
    "H100": Model("NVIDIA H100 80GB HBM3", (87.0, 89.0, 95.0)),
    "A100": Model(
        "NVIDIA A100-SXM4-80GB",
        (85.0, 92.0, 95.0),
        {"gpu.nvlinks_up": value(12), "gpu.pcie_generation": value(4), "gpu.pcie_generation_max": value(4)},
    ),
    "RTX 4090": Model(
        "NVIDIA GeForce RTX 4090",
        None,
        {
            "gpu.memory_temperature": UNSUPPORTED,
            "gpu.fan": value(55),
            "gpu.memory_total": value(24 * GIB),
            "gpu.nvlinks_up": UNSUPPORTED,
            "gpu.nvlinks_down": UNSUPPORTED,
            "gpu.ecc_enabled": UNSUPPORTED,
            "gpu.pcie_generation": value(4),
            "gpu.pcie_generation_max": value(4),
        },
    ),
}


@dataclass(frozen=True)
class Cooling:
    """While this lasts the card is that much cooler each second than the story says, never below `to_c`; afterwards
    it warms up again at the same rate."""

    when: str  # IDLE (its work has ended, and the story has not said how hot it is since) | THROTTLED
    to_c: float
    per_second: float


COOLS_WHEN_IDLE = (Cooling(IDLE, 45.0, 1.0),)


@dataclass(frozen=True)
class Card:
    """One GPU as the story begins; readings by full name."""

    model: str = "H100"
    readings: Mapping[str, Reading] = field(default_factory=dict)
    cools: tuple[Cooling, ...] = COOLS_WHEN_IDLE


@dataclass(frozen=True)
class Job:
    """A unit with one process, on GPUs or on none. `gpu_memory` in bytes on each of them."""

    unit: SimulatedUnit
    gpus: tuple[int, ...] = ()
    user: str = "ml-team"
    gpu_memory: int = 60 << 30
    memory: float = 40 * GIB  # of the host
    memory_max: Optional[float] = None
    process: str = "python3.11"
    active: bool = True
    can_be_held: bool = True  # it has the drop-in that looks for gpuwatch's hold file


@dataclass(frozen=True)
class Bystander:
    """A process on GPUs that is not a unit's: a container's, a session's, anybody's."""

    pid: int
    cgroup: str
    gpus: tuple[int, ...]
    user: str
    gpu_memory: int
    name: str
    active: bool = True


@dataclass(frozen=True)
class Happening:
    """One entry of the timeline; an entry may say several things at once. None and empty: it says nothing of that."""

    at_s: float
    to_s: Optional[float] = None
    gpus: tuple[int, ...] = ()
    unit: str = ""
    pid: int = 0  # of a bystander, for `state`
    subject: str = ""  # filesystem or sensor that `readings` are of
    readings: Mapping[str, Optional[Reading]] = field(default_factory=dict)  # None: as the simulation has it
    ramps: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    noise: float = 0.0
    lost: Optional[bool] = None
    listed: Optional[bool] = None
    driver: str = ""  # ok | silent | absent | mismatch
    power_limit_w: Optional[float] = None  # somebody else sets it
    refuses: Optional[str] = None  # how the card answers changes from now on: GpuChanged.problem, or "no"
    attribution: str = ""  # known | unknown
    state: str = ""  # of the unit (or of the bystander): active | inactive | failed
    kernel: str = ""
    manager: str = ""
    output: str = ""
    age_s: float = 0.0  # of the line
    line_fields: Mapping[str, str] = field(default_factory=dict)
    event: Mapping[str, Scalar] = field(default_factory=dict)
    gap_s: float = 0.0
    restart: bool = False
    reboot: bool = False
    clock_s: float = 0.0
    order: Mapping[str, Scalar] = field(default_factory=dict)  # as on the control socket: what, for_s, comment, ...
    settings: Optional[Settings] = None  # the configuration is read anew


@dataclass(frozen=True)
class Expectation:
    """What is to be seen, or (`never`) not to be seen, between two moments of the story."""

    verb: str  # of gpuwatch/daemon/told.py
    name: str = ""  # rule, unit or GPU that the verb is about; "" any
    on: str = ""
    rule: str = ""
    reason: str = ""
    level: Optional[int] = None
    from_s: float = 0.0
    to_s: Optional[float] = None
    never: bool = False
    place: str = ""  # file:line


@dataclass(frozen=True)
class Scenario:
    """A whole story. `strict`: what fires or is done and is not expected fails it."""

    story: str
    cards: tuple[Card, ...] = ()
    jobs: tuple[Job, ...] = ()
    bystanders: tuple[Bystander, ...] = ()
    readings: Mapping[str, Reading] = field(default_factory=dict)  # of the host
    timeline: tuple[Happening, ...] = ()
    expect: tuple[Expectation, ...] = ()
    until_s: float = 60.0
    uptime_s: float = 3600.0
    up_s: float = 600.0  # how long the daemon has run
    strict: bool = True
