"""May gpuwatch touch this unit or container at all? Pure: facts in, a reason out (S2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from gpuwatch.catalog import cgroup
from gpuwatch.model import units
from gpuwatch.model.container import matches
from gpuwatch.model.target import is_container, unit_of
from gpuwatch.system.protocols import UnitFacts

# Reason codes, one for each way in which a target can be wrong.
SLICE = "slice"
SESSION = "session"
NOT_LEAF = "not_leaf"
NEVER = "never"
OWN = "own"
PROTECTED = "protected"
NOT_LISTED = "not_listed"
NOT_LOADED = "not_loaded"
REFUSES_STOP = "refuses_stop"
HAS_CONTAINERS = "has_containers"
TAKES_ALONG = "takes_along"
KUBERNETES = "kubernetes"
RUN_BY_UNIT = "run_by_unit"

CODES = (
    SLICE,
    SESSION,
    NOT_LEAF,
    NEVER,
    OWN,
    PROTECTED,
    NOT_LISTED,
    NOT_LOADED,
    REFUSES_STOP,
    HAS_CONTAINERS,
    TAKES_ALONG,
    KUBERNETES,
    RUN_BY_UNIT,
)
_NAMED = 3  # how many names a sentence holds


@dataclass(frozen=True)
class Refusal:
    """Why not: `code` is one of CODES, `text` a sentence without its end, fit for people."""

    code: str
    text: str


def refusal(
    unit: UnitFacts,
    workload_units: tuple[str, ...],
    protect: tuple[str, ...] = (),
    own_units: tuple[str, ...] = (),
    workload_containers: tuple[str, ...] = (),
) -> Optional[Refusal]:
    """The first reason against stopping `unit`, or None when it may be stopped.

    `workload_units` are the globs of the workloads that it may belong to, `workload_containers` their patterns of
    containers, `protect` the globs of the config's protect section, `own_units` the units, and ids of containers,
    that gpuwatch itself runs in. The facts must be fresh; the name judged is the one systemd, or the engine, gives
    (an alias stands for its unit).
    """
    if is_container(unit.name):
        return _of_container(unit, workload_containers, protect, own_units)
    return (
        _by_name(unit.name, own_units)
        or _by_config(unit.name, workload_units, protect)
        or _by_facts(unit)
        or _by_company(unit, workload_units, protect)
    )


def _of_container(
    facts: UnitFacts, patterns: tuple[str, ...], protect: tuple[str, ...], own: tuple[str, ...]
) -> Optional[Refusal]:
    found = facts.container
    if found is None:
        return Refusal(NOT_LOADED, f"the engine knows no container {facts.name.partition(':')[2][:12]}")
    name = f"container {found.name or found.id[:12]}"
    if any(found.id in each for each in own):
        return Refusal(OWN, f"gpuwatch itself runs in {name}")
    if found.kubernetes:
        return Refusal(KUBERNETES, f"{name} is managed by Kubernetes")
    if not any(matches(found, pattern) for pattern in patterns):
        return Refusal(NOT_LISTED, f"{name} belongs to no configured workload")
    scope = cgroup.parse(facts.control_group).unit
    if scope is not None and units.matches(scope, protect):
        return Refusal(PROTECTED, f"{name} runs in {scope}, which is protected by the configuration (protect.units)")
    unit = unit_of(found, scope)
    if unit:
        if units.matches(unit, protect):
            return Refusal(PROTECTED, f"{name} is run by {unit}, which is protected by the configuration")
        return Refusal(RUN_BY_UNIT, f"{name} is run by {unit}; name that unit in the workload instead")
    return None


def _by_name(name: str, own_units: tuple[str, ...]) -> Optional[Refusal]:
    if name in own_units:
        return Refusal(OWN, f"{name} is gpuwatch's own unit")
    why = units.refusal(name)
    if why is None:
        return None
    if name.endswith(".slice"):
        code = SLICE
    elif name.startswith("session-") and name.endswith(".scope"):
        code = SESSION
    elif name.endswith((".service", ".scope")):
        code = NEVER
    else:
        code = NOT_LEAF
    return Refusal(code, f"{name} {why}")


def _by_config(name: str, workload_units: tuple[str, ...], protect: tuple[str, ...]) -> Optional[Refusal]:
    if units.matches(name, protect):
        return Refusal(PROTECTED, f"{name} is protected by the configuration (protect.units)")
    if not units.matches(name, workload_units):
        return Refusal(NOT_LISTED, f"{name} belongs to no configured workload")
    return None


def _by_facts(unit: UnitFacts) -> Optional[Refusal]:
    if unit.load_state != "loaded":
        state = unit.load_state or "unknown"
        return Refusal(NOT_LOADED, f"{unit.name} is not a loaded unit (systemd says: {state})")
    if unit.refuse_manual_stop:
        return Refusal(REFUSES_STOP, f"{unit.name} refuses to be stopped by hand (RefuseManualStop=yes)")
    return None


def _by_company(unit: UnitFacts, workload_units: tuple[str, ...], protect: tuple[str, ...]) -> Optional[Refusal]:
    if unit.containers:
        return Refusal(
            HAS_CONTAINERS, f"stopping {unit.name} would kill containers in its cgroup: {_names(unit.containers)}"
        )
    if unit.inner_units:
        return Refusal(NOT_LEAF, f"{unit.name} has other units in its cgroup: {_names(unit.inner_units)}")
    foreign = tuple(name for name in unit.takes_along if not _may_go_along(name, workload_units, protect))
    if foreign:
        return Refusal(TAKES_ALONG, f"stopping {unit.name} would also stop {_names(foreign)}, outside the workload")
    return None


def _may_go_along(name: str, workload_units: tuple[str, ...], protect: tuple[str, ...]) -> bool:
    """A unit that depends on the target is fine only where it could be a target itself."""
    return _by_name(name, ()) is None and _by_config(name, workload_units, protect) is None


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(name.rsplit("/", 1)[-1][:80] for name in names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"
