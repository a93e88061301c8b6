"""PCI addresses: one form for NVML, the kernel log and /sys (K4)."""

from __future__ import annotations

from typing import Optional

import pytest

from gpuwatch.model.pci import canonical


@pytest.mark.parametrize(
    "written, wanted",
    [
        ("00000000:C6:00.0", "0000:c6:00.0"),  # NVML
        ("PCI:0000:c6:00", "0000:c6:00.0"),  # the kernel log
        ("0000:c6:00", "0000:c6:00.0"),
        ("0000:C6:00.0", "0000:c6:00.0"),
        ("c6:00.0", "0000:c6:00.0"),
        ("00000008:01:00.0", "0008:01:00.0"),  # a domain that is not zero stays
        ("00010000:01:00.0", "10000:01:00.0"),
        ("0000:c6:1f.7", "0000:c6:1f.7"),
        (" 0000:c6:00.0\n", "0000:c6:00.0"),
        ("0000:c6:20.0", None),  # there are 32 devices on a bus
        ("0000:c6:00.8", None),
        ("", None),
        ("GPU-3d9a7c10", None),
        ("0000:c6:00.0; rm", None),
    ],
)
def test_canonical(written: str, wanted: Optional[str]) -> None:
    assert canonical(written) == wanted
