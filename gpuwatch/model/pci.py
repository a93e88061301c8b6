"""PCI addresses in one form, so that the kernel log, NVML and /sys name the same card alike."""

from __future__ import annotations

import re
from typing import Optional

_ADDRESS = re.compile(r"(?:PCI:)?(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.([0-7]))?")


def canonical(address: str) -> Optional[str]:
    """`0000:c6:00.0` from any spelling of it; None for what is no PCI address.

    Lower case, a domain of at least four digits that is kept when it is not zero, domain and function 0
    where none is given. NVML writes "00000000:C6:00.0", the kernel log "PCI:0000:c6:00".
    """
    match = _ADDRESS.fullmatch(address.strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    if int(device, 16) > 0x1F:
        return None
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function or '0'}"
