"""Makes patterns.json and kinds.json from the YAML files in which they are written. For developers:

python -m gpuwatch.catalog.compile_patterns
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
SOURCES = ("kernel", "manager", "journald", "service", "workload")
_DEV = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
MACROS = {
    "{PCI}": r"(?:PCI:)?(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?",
    "{DEV}": _DEV,
    "{GPULIB}": "(?:cuda|nccl|cublas|cudnn|cufft|curand|cusolver|cusparse|cupti|nvidia|nvrtc|nvjpeg|nvshmem|nvinfer"
    "|torch|c10_cuda|tensorflow|xla)",
}


def patterns() -> list[dict[str, Any]]:
    """Every pattern of every file, in order."""
    found = []
    for source in SOURCES:
        rows = yaml.safe_load((HERE / f"patterns_{source}.yaml").read_text(encoding="utf-8"))
        found += [_expanded({"source": source, **row}) for row in rows]
    return found


def _expanded(row: dict[str, Any]) -> dict[str, Any]:
    for macro, text in MACROS.items():
        if "pattern" in row:
            row["pattern"] = row["pattern"].replace(macro, text)
    return row


def kinds() -> dict[str, Any]:
    """Kinds with their words."""
    loaded: dict[str, Any] = yaml.safe_load((HERE / "kinds.yaml").read_text(encoding="utf-8"))
    return loaded


def dumped(data: Any) -> str:
    """The JSON text: one row a line, so that changes can be read."""
    if isinstance(data, list):
        return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in data) + "\n]\n"
    rows = (f"{json.dumps(key)}: {json.dumps(row, ensure_ascii=False)}" for key, row in data.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


def main() -> int:
    """Write both files."""
    (HERE / "patterns.json").write_text(dumped(patterns()), encoding="utf-8")
    (HERE / "kinds.json").write_text(dumped(kinds()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
