"""A bundle's content, as the daemon would hand it over."""

from __future__ import annotations

from gpuwatch.evidence.content import BundleContent
from gpuwatch.model.event import Event
from gpuwatch.model.gpu import Attribution, Owner
from gpuwatch.model.instant import Instant
from gpuwatch.system.protocols import UnitFacts

NOW = Instant("0123456789abcdef" * 2, 5000.0, 1796017532.123456)  # 2026-11-30T05:45:32.123456Z
ID = "20261130T054532Z-gpu-critical-3d9a7c10"
UUID = "GPU-3d9a7c10-1111-2222-3333-444455556666"
OWNER = Owner(41872, 77, 12.5, "python3.11", 1000, "ml", "unit", "train@llama.service")
CONTENT = BundleContent(
    at=NOW,
    host="gpu-07",
    version="0.1.0",
    local_offset_s=8 * 3600,
    zone="CST",
    trigger={"rule": "gpu-critical", "incident": "gpu-07#17", "action": "stop", "target": "train@llama.service"},
    samples={"utc_s": [1.0, 2.0], "gpus": {UUID: {"gpu.temperature": [91.0, None]}}},
    events=(
        Event("xid", NOW, NOW, "journal", {"xid": 79}, UUID, "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off"),
    ),
    processes=(
        Attribution(
            UUID, NOW, (Owner(41872, 77, 12.5, "python3.11", 1000, "ml", "unit", "train@llama.service"),), (41872,)
        ),
    ),
    unit=UnitFacts("train@llama.service", "loaded", "active", "running", "f" * 32, 41872, "/system.slice/x", 90.0),
    host_facts={"meminfo_kb": {"MemTotal": 123}, "pressure": {"memory": "some avg10=0.00"}},
    decision={"intent": "a17-1"},
)
