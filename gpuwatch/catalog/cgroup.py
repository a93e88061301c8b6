"""Who a process belongs to, by the path of its cgroup.

The forms are those of systemd 247 to 257, docker and podman with either cgroup driver, Slurm with cgroup v1 and
v2, and the kubelet's two drivers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class CgroupOwner:
    """`unit` is the leaf unit of the system's manager, whatever may lie below it: what systemctl would stop.

    kind: unit | session | docker | podman | user_unit | slurm | kubepods | other. `container` is the full
    id, `uid` the user's whose manager or session it is.
    """

    kind: str
    unit: Optional[str] = None
    container: Optional[str] = None
    user_unit: Optional[str] = None
    uid: Optional[int] = None
    slurm_job: Optional[str] = None
    slurm_step: Optional[str] = None


_ID = "[0-9a-f]{64}"
_DOCKER_SCOPE = re.compile(f"docker-({_ID})\\.scope")
_PODMAN = re.compile(f"libpod-(?:payload-)?({_ID})(?:\\.scope)?")
_OTHER_CONTAINER = re.compile(f"[a-z0-9.-]+-({_ID})\\.scope")
# With a colon: the path that is meant for systemd's driver, taken literally by cgroupfs (SLICE:RUNTIME:ID)
_IN_KUBEPODS = re.compile(f"(?:[^/]*:)?(?:[a-z0-9-]+-)?({_ID})(?:\\.scope)?")
_LITERAL = re.compile(f"[^/:]*:(docker|libpod):({_ID})")
_KUBEPODS = re.compile(r"kubepods(?:[.:-].*)?")
_USER_MANAGER = re.compile(r"user@([0-9]+)\.service")
_USER_SLICE = re.compile(r"user-([0-9]+)\.slice")
_SLURM_JOB = re.compile(r"job_([0-9]+)")
_SLURM_STEP = re.compile(r"step_([0-9a-z]+)")


def parse(path: str) -> CgroupOwner:
    """The owner that a path such as /system.slice/a.service names. Never raises."""
    parts = _parts(path)
    unit, below = _leaf(parts)
    for find in (_kubepods, _slurm, _container, _user):
        owner = find(parts, unit, below)
        if owner is not None:
            return owner
    if unit is None or unit == "init.scope":
        return CgroupOwner("other", unit)
    return CgroupOwner("unit", unit)


def _parts(path: str) -> list[str]:
    # The kernel marks a cgroup that is gone; systemd puts "_" before names that would mean something to cgroupfs.
    if path.endswith(" (deleted)"):
        path = path[: -len(" (deleted)")]
    return [part[1:] if part.startswith("_") else part for part in path.split("/") if part]


def _is_unit(part: str) -> bool:
    return part.endswith((".service", ".scope"))


def _leaf(parts: list[str]) -> tuple[Optional[str], list[str]]:
    """The first service or scope below slices, and what lies below it.

    What is further down belongs to whoever runs in it (a container's own systemd, say), however much it looks
    like a unit.
    """
    for position, part in enumerate(parts):
        if part.endswith(".slice"):
            continue
        if _is_unit(part):
            return part, parts[position + 1 :]
        return None, parts
    return None, []


def _kubepods(parts: list[str], unit: Optional[str], below: list[str]) -> Optional[CgroupOwner]:
    if not any(_KUBEPODS.fullmatch(part) for part in parts):
        return None
    ids = [match[1] for match in map(_IN_KUBEPODS.fullmatch, parts) if match]
    return CgroupOwner("kubepods", unit, ids[0] if ids else None)


def _slurm(parts: list[str], unit: Optional[str], below: list[str]) -> Optional[CgroupOwner]:
    in_scope = unit is not None and unit.endswith("slurmstepd.scope")
    if not in_scope and parts[:1] != ["slurm"]:
        return None
    jobs = [match[1] for match in map(_SLURM_JOB.fullmatch, parts) if match]
    steps = [match[1] for match in map(_SLURM_STEP.fullmatch, parts) if match]
    return CgroupOwner("slurm", unit, slurm_job=jobs[0] if jobs else None, slurm_step=steps[0] if steps else None)


def _container(parts: list[str], unit: Optional[str], below: list[str]) -> Optional[CgroupOwner]:
    """The outermost container: that is the one the host's runtime knows."""
    manager = _USER_MANAGER.fullmatch(unit or "")
    for position, part in enumerate(parts):
        kind, container = _container_of(part, parts[position - 1] if position else "")
        if container is None or (kind == "other" and part == container and unit is not None):
            continue
        if manager is None:
            return CgroupOwner(kind, unit, container)
        return CgroupOwner(kind, unit, container, user_unit=_leaf(below)[0], uid=int(manager[1]))
    return None


def _container_of(part: str, before: str) -> tuple[str, Optional[str]]:
    for kind, pattern in (("docker", _DOCKER_SCOPE), ("podman", _PODMAN), ("other", _OTHER_CONTAINER)):
        match = pattern.fullmatch(part)
        if match:
            return kind, None if part.startswith("libpod-conmon-") else match[1]
    literal = _LITERAL.fullmatch(part)
    if literal:
        return "docker" if literal[1] == "docker" else "podman", literal[2]
    # A bare id is docker's below /docker; outside of units, below a parent of the admin's own (--cgroup-parent), the
    # engine that knows it must say.
    return "docker" if before == "docker" else "other", part if re.fullmatch(_ID, part) else None


def _user(parts: list[str], unit: Optional[str], below: list[str]) -> Optional[CgroupOwner]:
    manager = _USER_MANAGER.fullmatch(unit or "")
    if manager:
        inner = _leaf(below)[0]
        return CgroupOwner("user_unit", unit, user_unit=inner, uid=int(manager[1]))
    if unit is not None and unit.startswith("session-") and unit.endswith(".scope"):
        uids = [match[1] for match in map(_USER_SLICE.fullmatch, parts) if match]
        return CgroupOwner("session", unit, uid=int(uids[0]) if uids else None)
    return None
