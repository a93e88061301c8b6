"""Runs the benches by name, all of them without one."""

from __future__ import annotations

import importlib
import sys

TITLES = {
    "journal": "The journal path",
    "classify": "Lines to events",
    "sampling": "A sampling pass over eight GPUs",
    "history": "A million rows of history",
    "imports": "What the resident process imports",
    "idle": "The idle daemon in a booted systemd, eight GPUs at 1 s",
    "stop": "From a kernel line to a stopped unit",
}


def main(wanted: list[str]) -> int:
    """0 unless a name is unknown."""
    unknown = [name for name in wanted if name not in TITLES]
    if unknown:
        print(f"no bench {', '.join(unknown)}; there are: {', '.join(TITLES)}", file=sys.stderr)
        return 2
    from tests.bench.table import show

    for name in wanted or TITLES:
        show(f"{name}: {TITLES[name]}", importlib.import_module(f"tests.bench.{name}").run())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
