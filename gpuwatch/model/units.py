"""Names of systemd units: which may be a workload at all (S2). Pure text, no systemd asked."""

from __future__ import annotations

import fnmatch
from typing import Optional

# Units whose loss takes the host, the log, or gpuwatch's own footing away. Globs.
NEVER = (
    "gpuwatch*.service",
    "gpuwatch*.timer",
    "init.scope",
    "*slurmstepd.scope",
    "slurmd.service",
    "slurmctld.service",
    "docker.service",
    "docker.socket",
    "containerd.service",
    "podman.service",
    "podman.socket",
    "crio.service",
    "cri-docker.service",
    "kubelet.service",
    "ssh.service",
    "sshd.service",
    "ssh@*.service",
    "sshd@*.service",
    "ssh.socket",
    "sshd.socket",
    "dbus.service",
    "dbus-broker.service",
    "dbus.socket",
    "systemd-*",
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
    "nvidia-dcgm.service",
    "user@*.service",
    "user-runtime-dir@*.service",
    "getty@*.service",
    "serial-getty@*.service",
)


def matches(name: str, globs: tuple[str, ...]) -> bool:
    """True when a unit name matches one of the globs (case counts, as in systemd)."""
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


def refusal(name: str) -> Optional[str]:
    """Why a unit (or a glob that stands for units) can never be a workload; None if it can.

    The answer completes the sentence "'NAME' ...": a slice, a session, a kind that holds no
    processes of its own, or one of NEVER.
    """
    if "." not in name:
        return f"has no unit suffix (did you mean '{name}.service'?)"
    suffix = name.rsplit(".", 1)[1]
    if suffix == "slice":
        return "is a slice; only leaf units can be workloads"
    if name.startswith("session-") and suffix == "scope":
        return "is a login session; only leaf units can be workloads"
    if suffix not in ("service", "scope"):
        return f"is a .{suffix} unit; only services and scopes run workloads"
    for never in NEVER:
        if fnmatch.fnmatchcase(name, never):
            return f"is one of the units that gpuwatch never touches ({never})"
    return None


def catches_all(glob: str) -> bool:
    """True for globs such as '*' or '*.service' that name nothing in particular."""
    return glob.rsplit(".", 1)[0].strip("*?") == ""
