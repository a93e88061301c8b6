"""The kernel's lines about memory that ran out, in the forms of old and new kernels (K11, K12). Pure."""

from __future__ import annotations

import re
from typing import Optional

from gpuwatch.catalog import cgroup
from gpuwatch.catalog.text import clean
from gpuwatch.model.event import Scalar

# A process name is any 15 bytes (K13); what stands behind it is fixed, so the last match counts.
_SUMMARY = re.compile(
    r"oom-kill:constraint=([A-Z_]{1,40}),(.*),task=(.{0,16}),pid=([0-9]{1,10}),uid=([0-9]{1,10})\s*", re.DOTALL
)
_TASK_CGROUP = re.compile(r"(?:^|,)task_memcg=(/[^\n]*)$")
_KILLED = re.compile(
    r"(Memory cgroup out of memory: |Out of memory(?: \([a-z_]{1,40}\))?: )?"
    r"Kill(?:ed)? process ([0-9]{1,10}) \((.{0,32})\),? (?:total-vm:|score |UID )",
    re.DOTALL,
)
_INVOKED = re.compile(r"(.{1,32}) invoked oom-killer: ", re.DOTALL)
_REAPED = re.compile(r"oom_reaper: reaped process ([0-9]{1,10}) \((.{0,32})\), now ", re.DOTALL)
_LIMIT = re.compile(r"Task in (/[^\n]{0,2000}?) killed as a result of limit of (/[^\n]{0,2000})")
_GROUP = re.compile(r"Tasks in (/[^\n]{0,2000}?) are going to be killed due to memory\.oom\.group set")
_OOMD = re.compile(r"Killed (/[^\n]{1,2000}?) due to memory (?:pressure|used)")
# How runtimes name the cgroups of containers, and of the processes that watch over one.
_RUNTIMES = {
    "docker": "docker",
    "libpod": "podman",
    "libpod-payload": "podman",
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
    "crio": "crio",
}
_RUNTIME = re.compile(r"/(docker|libpod|libpod-payload|cri-containerd|nerdctl|crio)-[0-9a-f]{64}(?:\.scope)?(?:/|$)")
_MONITOR = re.compile(r"/(libpod|crio)-conmon-([0-9a-f]{64})(?:\.scope)?(?:/|$)")

Facts = dict[str, Scalar]


def parse(line: str) -> Optional[Facts]:
    """Facts of one line (see catalog.kernel), or None."""
    if line.startswith("oom-kill:"):
        return _parse_summary(line)
    if line.startswith(("Memory cgroup out of memory: ", "Out of memory", "Killed process ", "Kill process ")):
        return _parse_killed(line)
    if line.startswith("oom_reaper: "):
        match = _REAPED.match(line)
        return {"kind": "oom_context", "pid": int(match[1]), "process": clean(match[2])} if match else None
    if line.startswith(("Task in /", "Tasks in /")):
        match = _LIMIT.match(line) or _GROUP.match(line)
        return {"kind": "oom_context", "scope": "cgroup", **_owner(match[1])} if match else None
    if " invoked oom-killer: " in line[:64]:  # who asked for memory, not who was killed (K14)
        match = _INVOKED.match(line)
        return {"kind": "oom_invoked", "process": clean(match[1])} if match else None
    return None


def _parse_summary(line: str) -> Optional[Facts]:
    match = _SUMMARY.fullmatch(line)
    if match is None:
        return None
    middle = match[2]
    path = _TASK_CGROUP.search(middle)
    limited = match[1] == "CONSTRAINT_MEMCG" or "oom_memcg=" in middle
    return {
        "kind": "oom_kill",
        "scope": "cgroup" if limited else "host",
        "pid": int(match[4]),
        "process": clean(match[3]),
        **_owner(path[1] if path else "/"),
        "uid": int(match[5]),
    }


def _parse_killed(line: str) -> Optional[Facts]:
    match = _KILLED.match(line)
    if match is None:
        return None
    scope = None if match[1] is None else "cgroup" if match[1].startswith("Memory cgroup") else "host"
    return {"kind": "oom_kill", "scope": scope, "pid": int(match[2]), "process": clean(match[3])}


def parse_oomd(line: str) -> Optional[Facts]:
    """A line of systemd-oomd about what it killed."""
    match = _OOMD.match(line)
    return {"kind": "oomd_kill", "count": None, **_owner(match[1])} if match else None


def _owner(path: str) -> Facts:
    owner = cgroup.parse(path)
    user_unit = owner.user_unit
    if owner.kind == "user_unit":  # terminals put scopes into scopes: the innermost names the job
        inner = [part for part in path.split("/") if part.endswith((".service", ".scope"))]
        user_unit = inner[-1] if inner[-1] != owner.unit else user_unit
    return {
        "cgroup": clean(path),
        "unit": owner.unit,
        "user_unit": user_unit and clean(user_unit),
        **_container(path, owner),
        "slurm_job": int(owner.slurm_job[:18]) if owner.slurm_job else None,
        "slurm_step": owner.slurm_step,
    }


def _container(path: str, owner: cgroup.CgroupOwner) -> Facts:
    """Container, the runtime that made it, and whether the path is that of its monitor instead of itself."""
    monitor = _MONITOR.search(path)
    if monitor:
        return {"container": monitor[2], "runtime": _RUNTIMES[monitor[1]], "role": "monitor"}
    named = _RUNTIME.search(path) if owner.container else None
    runtime = _RUNTIMES[named[1]] if named else owner.kind if owner.kind in ("docker", "podman") else None
    return {"container": owner.container, "runtime": runtime, "role": None}
