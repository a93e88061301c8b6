"""From what systemd says of single units to the facts that a decision needs.

How the units are asked (D-Bus or systemctl) is behind UnitReader; what stopping one of them means
is worked out here, once for both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Optional, Protocol

from gpuwatch.model.errors import SourceError
from gpuwatch.system.protocols import UnitFacts

RUNNING = ("active", "activating", "deactivating", "reloading")
# Units that a stop job pulls in, from the side of the unit that is stopped (systemd's
# unit-dependency-atom.c: PROPAGATE_STOP). A unit that only Wants= it is not among them.
STOPS_TOO = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo")
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
    )


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
