"""Names of what is acted on: a unit by its name, a GPU by its UUID, a container as "docker:ID" or "podman:ID"."""

from __future__ import annotations

import re
from typing import Optional

from gpuwatch.model.container import Container

_CONTAINER = re.compile("(docker|podman):([0-9a-f]{64})")


def of_container(container: Container) -> str:
    """The target that a container is."""
    return f"{container.engine}:{container.id}"


def container_of(target: str) -> tuple[str, str]:
    """The engine's kind and the full id, both "" for what is no container."""
    match = _CONTAINER.fullmatch(target)
    return (match[1], match[2]) if match else ("", "")


def is_container(target: str) -> bool:
    """True for a container. No unit's name looks like one."""
    return _CONTAINER.fullmatch(target) is not None


def unit_of(container: Container, scope: Optional[str]) -> str:
    """The unit whose payload a container is, "" for none: by podman's word, or because its processes are in the unit's
    own cgroup. `scope`: the unit in whose cgroup they are. Such a container is stopped with its unit or not at all:
    behind its back, the unit removes it with its log, or starts it again (A7)."""
    return container.unit or ("" if scope is None or container.id in scope else scope)
