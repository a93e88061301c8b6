"""Small documents that the daemon keeps beside the policy's: inventory, release, what sources remember."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from gpuwatch.model.codec import decode
from gpuwatch.model.gpu import GpuIdentity, GpuSample
from gpuwatch.model.instant import Instant
from gpuwatch.store.database import Write


class Notes:
    """Writes a document when it has changed."""

    def __init__(self, stored: Mapping[str, Any]) -> None:
        self._written = dict(stored)

    def differences(self, documents: Mapping[str, Any]) -> list[Write]:
        """Writes for what is new or different; None removes a document."""
        changed = {name: each for name, each in documents.items() if self._written.get(name) != each}
        self._written.update(changed)
        return [Write("state", name, each) for name, each in changed.items()]


def identity_of(sample: GpuSample) -> GpuIdentity:
    """How a GPU is remembered."""
    return GpuIdentity(sample.uuid, sample.index, sample.name, sample.pci)


def inventory_of(stored: Mapping[str, Any]) -> tuple[GpuIdentity, ...]:
    """The GPUs that belong into this host; none while nobody has looked. Raises as codec.decode does."""
    return tuple(decode(GpuIdentity, each) for each in stored.get("inventory") or ())


def released_until(stored: Mapping[str, Any]) -> Optional[Instant]:
    """When a release ends."""
    return None if stored.get("released") is None else decode(Instant, stored["released"])
