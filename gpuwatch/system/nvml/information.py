"""What the kernel module lists in /proc/driver/nvidia/gpus: names a GPU that NVML can no longer ask.

Reading it opens no device, but a sick driver may hold it up, so only the NVML child does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuwatch.model import pci

_MOST_BYTES = 1 << 14


@dataclass(frozen=True)
class Listed:
    """A GPU as the kernel module knows it; `uuid` is "" where it was never initialised (`GPU-????????-...`)."""

    pci: str
    uuid: str
    name: str


def read_information(driver_path: str) -> tuple[Listed, ...]:
    """All of them in the order of their PCI addresses; what can't be read is left out. May block."""
    root = os.path.join(driver_path, "gpus")
    try:
        addresses = sorted(os.listdir(root))
    except OSError:
        return ()
    listed = []
    for address in addresses:
        try:
            with open(os.path.join(root, address, "information"), "rb") as file:
                fields = _parse(file.read(_MOST_BYTES).decode("utf-8", "replace"))
        except OSError:
            fields = {}
        uuid = fields.get("GPU UUID", "")
        canonical = pci.canonical(address) or pci.canonical(fields.get("Bus Location", ""))
        if canonical:
            listed.append(Listed(canonical, "" if "?" in uuid else uuid, fields.get("Model", "unknown")))
    return tuple(listed)


def _parse(text: str) -> dict[str, str]:
    """Lines such as `GPU UUID: \t GPU-3d9a7c10-...`."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): rest.strip() for name, colon, rest in pairs if colon}
