"""From what systemd says of single units to the facts that a decision needs.

How the units are asked (D-Bus or systemctl) is behind UnitReader; what stopping one of them means
is worked out here, once for both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Callable, Optional, Protocol

from gpuwatch.model.errors import ActionError, SourceError
from gpuwatch.model.units import matches
from gpuwatch.system.kernel_files import number_after, read_file
from gpuwatch.system.protocols import CpuLimit, ListedUnit, UnitFacts

RUNNING = ("active", "activating", "deactivating", "reloading")
# Units that a stop job pulls in, from the side of the unit that is stopped (systemd's
# unit-dependency-atom.c: PROPAGATE_STOP). A unit that only Wants= it is not among them.
STOPS_TOO = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo")
LISTED = (".service", ".scope")  # units that have processes of their own
LEAST_QUOTA_US = 10_000  # 1%: of less, systemd's drop-in makes "CPUQuota=0%", which no reload understands
MOST_WEIGHT = 10_000
_MOST_UNITS = 1000
_MOST_CGROUPS = 5000
_NAME = re.compile(
    r"[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\@-]+)?"
    r"\.(service|scope|slice|socket|target|mount|automount|swap|timer|path|device)"
)
# docker and podman with either cgroup driver, CRI-O, containerd, LXC, kubelet. A quadlet's own
# payload (libpod-payload-ID) is what the unit is for, and no foreigner.
_CONTAINER = re.compile(
    r"(docker-|libpod-(?!payload-)|crio-|cri-containerd-|lxc\.payload|lxc-|kubepods|buildkit-)\S*|[0-9a-f]{64}"
)
_UNIT_CGROUP = re.compile(r"\S+\.(service|scope|slice)")


@dataclass(frozen=True)
class RawUnit:
    """One unit's own properties. `stops_too` are the names behind STOPS_TOO."""

    name: str
    load_state: str
    active_state: str
    stops_too: tuple[str, ...] = ()
    sub_state: str = ""
    invocation: str = ""
    main_pid: int = 0
    control_group: str = ""
    stop_timeout_s: Optional[float] = None
    result: str = ""
    job: int = 0
    refuse_manual_stop: bool = False
    freezer: str = ""
    watchdog_s: Optional[float] = None
    absent_paths: tuple[str, ...] = ()


class UnitReader(Protocol):
    """Asks systemd about units; the answer has them in the order asked. Raises SourceError."""

    def read(self, names: Sequence[str]) -> list[RawUnit]:
        """Their properties now."""


def valid_name(name: str) -> bool:
    """True for the full name of a unit: no glob, no template without instance, no path, no option."""
    return len(name) <= 255 and _NAME.fullmatch(name) is not None and not name.startswith("-")


def gather(reader: UnitReader, name: str, cgroup_root: str) -> UnitFacts:
    """The facts of one unit. Raises SourceError when they can't all be had."""
    if not valid_name(name):
        raise SourceError(f"{name[:80]!r} is not the name of a unit")
    unit, containers, inner = _with_cgroup(reader, name, cgroup_root)
    takes_along = _takes_along(reader, unit) if unit.active_state in RUNNING else ()
    return UnitFacts(
        name=unit.name,
        load_state=unit.load_state,
        active_state=unit.active_state,
        sub_state=unit.sub_state,
        invocation=unit.invocation,
        main_pid=unit.main_pid,
        control_group=unit.control_group,
        stop_timeout_s=unit.stop_timeout_s,
        result=unit.result,
        job=unit.job,
        refuse_manual_stop=unit.refuse_manual_stop,
        takes_along=takes_along,
        containers=containers,
        inner_units=inner,
        freezer=_freezer(unit, cgroup_root),
        watchdog_s=unit.watchdog_s,
        absent_paths=unit.absent_paths,
    )


class UnitList:
    """Makes the answer of Systemd.units. A unit's control group is asked for once, and again when it is gone: a unit
    may come back in another slice."""

    def __init__(self, cgroup_root: str) -> None:
        self._cgroup_root = cgroup_root
        self._known: dict[str, str] = {}

    def answer(
        self,
        states: Mapping[str, str],
        globs: Sequence[str],
        ask: Callable[[Sequence[str]], Iterable[tuple[str, str]]],
    ) -> tuple[ListedUnit, ...]:
        """`states`: ActiveState by name. `ask` gives names with their ControlGroup; what it gave before it raised
        stays known."""
        kept = tuple(globs)
        names = sorted(name for name, state in states.items() if state in RUNNING and name.endswith(LISTED))
        names = [name for name in names if matches(name, kept)]
        known = {name: self._known[name] for name in names if name in self._known}
        self._known = {name: group for name, group in known.items() if os.path.isdir(self._cgroup_root + group)}
        for name, group in ask([name for name in names if name not in self._known]):
            if group:
                self._known[name] = group
        return tuple(ListedUnit(name, states[name], self._known.get(name, "")) for name in names)


class LimitKeeper(UnitReader, Protocol):
    """Asks for and writes what CpuLimit holds."""

    def limit_now(self, name: str) -> CpuLimit:
        """What systemd says. Raises SourceError."""

    def write_limit(self, name: str, before: CpuLimit, after: CpuLimit) -> None:
        """Write what differs. Raises ActionError."""


def change_limit(keeper: LimitKeeper, name: str, limit: CpuLimit, cgroup_root: str) -> None:
    """See protocols.Systemd.set_cpu_limit. Raises SourceError while nothing was sent, then ActionError."""
    problem = senseless_limit(limit)
    if problem:
        raise ActionError(f"the CPU limit of {name} was not changed: {problem}")
    before = keeper.limit_now(name)
    if before == limit:
        return
    problem = why_no_cpu_limit(keeper, name, cgroup_root)
    if problem:
        raise ActionError(f"the CPU limit of {name} was not changed: {problem}")
    keeper.write_limit(name, before, limit)
    try:
        after = keeper.limit_now(name)
    except SourceError as error:
        raise ActionError(f"the CPU limit of {name} was sent, but can't be read back: {error}", unknown=True) from error
    if after != limit:
        raise ActionError(f"systemd took another CPU limit for {name}: {after}, not {limit}")


def senseless_limit(limit: CpuLimit) -> str:
    """What is wrong with a limit in itself; "" if nothing."""
    if limit.quota_us_per_s is not None and limit.quota_us_per_s < LEAST_QUOTA_US:
        return f"a CPU quota of {limit.quota_us_per_s} us per second is less than 1% of a core"
    if limit.weight is not None and not 0 <= limit.weight <= MOST_WEIGHT:
        return f"a CPU weight of {limit.weight} is not 0 to {MOST_WEIGHT}"
    return ""


def why_no_cpu_limit(reader: UnitReader, name: str, cgroup_root: str) -> str:
    """Why the CPU limit of a unit must not be changed (S13), "" if it may. Raises SourceError when nobody can tell."""
    unit, containers, inner = _with_cgroup(reader, name, cgroup_root)
    if unit.active_state not in RUNNING or not unit.control_group:
        return f"{name} does not run"
    if containers or inner:
        return f"{len(containers + inner)} containers or other units live in the cgroup of {name}"
    if not unified_hierarchy(cgroup_root):
        return "this host has no unified cgroup hierarchy (cgroup v2)"
    if "cpu" not in _controllers(cgroup_root, "", "cgroup.controllers"):
        return "this kernel gives systemd no cpu controller"
    above = unit.control_group.split("/")[:-1]  # of /system.slice/a.service: "" (the root), system.slice
    for depth in range(1, len(above) + 1):
        place = "/".join(above[:depth])
        if "cpu" in _controllers(cgroup_root, place, "cgroup.subtree_control"):
            continue
        if nested_cgroups(cgroup_root, place)[0]:
            where = place.rsplit("/", 1)[-1] or "the root slice"
            return (
                f"systemd would have to enable the cpu controller in {where} first, where containers run: "
                "they could lose their GPUs"
            )
    return ""


def unified_hierarchy(cgroup_root: str) -> bool:
    """True where systemd has cgroup version 2 alone (no hybrid): without it nothing can be frozen. `cgroup_root` as
    find_cgroup_root gives it."""
    place, hybrid = os.path.join(cgroup_root, "cgroup.controllers"), ("unified", "systemd")
    return os.path.exists(place) and os.path.basename(cgroup_root) not in hybrid


def _controllers(cgroup_root: str, control_group: str, file: str) -> list[str]:
    try:
        return read_file(f"{cgroup_root}{control_group}/{file}").decode().split()
    except OSError as error:
        raise SourceError(f"can't tell which controllers {control_group or '/'} has: {error.strerror}") from error


def _freezer(unit: RawUnit, cgroup_root: str) -> str:
    if unit.active_state not in RUNNING or not unit.control_group:
        return ""
    try:
        frozen = number_after(read_file(f"{cgroup_root}{unit.control_group}/cgroup.events"), b"frozen ")
    except OSError:
        frozen = None  # cgroup version 1, or it has just ended
    if frozen is None:
        return unit.freezer
    if frozen:
        return "frozen"
    return "running" if unit.freezer.startswith("frozen") else unit.freezer


def _with_cgroup(reader: UnitReader, name: str, cgroup_root: str) -> tuple[RawUnit, tuple[str, ...], tuple[str, ...]]:
    """The unit, and who else lives in its cgroup. A unit that ends between the two looks is read again."""
    for last_try in (False, False, True):
        unit = reader.read([name])[0]
        if unit.active_state not in RUNNING or not unit.control_group:
            break
        try:
            return (unit, *nested_cgroups(cgroup_root, unit.control_group))
        except SourceError as error:
            if last_try or not isinstance(error.__cause__, FileNotFoundError):
                raise
    return unit, (), ()


def _takes_along(reader: UnitReader, unit: RawUnit) -> tuple[str, ...]:
    """Running units that a stop job for `unit` would stop, in name order.

    Only running units hand it on: systemd drops the stop job of one that does not run, and with it
    what that job alone had pulled in (transaction.c, seen on 252).
    """
    seen = {unit.name}
    found: set[str] = set()
    level = [name for name in unit.stops_too if name not in seen]
    while level:
        seen.update(level)
        if len(seen) > _MOST_UNITS:
            raise SourceError(f"more than {_MOST_UNITS} units depend on {unit.name}")
        running = [other for other in reader.read(level) if other.active_state in RUNNING]
        found.update(other.name for other in running)
        level = sorted({name for other in running for name in other.stops_too if name not in seen})
    return tuple(sorted(found - {unit.name}))


def find_cgroup_root() -> str:
    """Where systemd's own hierarchy is mounted: unified, hybrid or legacy."""
    for path in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"):
        if os.path.exists(os.path.join(path, "cgroup.procs")):
            return path
    return "/sys/fs/cgroup"


def nested_cgroups(root: str, control_group: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Containers and foreign units whose cgroups lie below a unit's own, as paths from `root`.

    Raises SourceError when the cgroup can't be looked at: then nobody knows who lives there.
    """
    containers: list[str] = []
    units: list[str] = []
    for path in _below(root, control_group):
        name = os.path.basename(path)
        if _CONTAINER.fullmatch(name):
            containers.append(path)
        elif _UNIT_CGROUP.fullmatch(name):
            units.append(path)
    return tuple(sorted(containers)), tuple(sorted(units))


def _below(root: str, control_group: str) -> Iterator[str]:
    waiting = [control_group]
    count = 0
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(root + here) as entries:
                inner = [f"{here}/{entry.name}" for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError as error:
            if isinstance(error, FileNotFoundError) and here != control_group:
                continue  # ended while we looked
            raise SourceError(f"can't look into cgroup {here}: {error.strerror}") from error
        count += len(inner)
        if count > _MOST_CGROUPS:
            raise SourceError(f"more than {_MOST_CGROUPS} cgroups below {control_group}")
        yield from inner
        waiting.extend(inner)
