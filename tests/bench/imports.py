"""What each module costs the resident process when it is imported: time and memory, and whom it is there for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bench.table import Row

TREE = Path(__file__).resolve().parents[2]
SHOWN = 25
PROGRAM = """
import builtins, resource, sys, time
def anon():
    for line in open("/proc/self/smaps_rollup"):
        if line.startswith("Anonymous"):
            return int(line.split()[1])
real, stack, cost = builtins.__import__, [], {}
def counted(name, globals=None, locals=None, fromlist=(), level=0):
    known = set(sys.modules)
    before, began, inner = anon(), time.perf_counter(), [0, 0.0]
    stack.append(inner)
    try:
        return real(name, globals, locals, fromlist, level)
    finally:
        stack.pop()
        kib, spent = anon() - before, time.perf_counter() - began
        if set(sys.modules) - known:
            by = (globals or {}).get("__name__", "?")
            own = (kib - inner[0], spent - inner[1])
            old = cost.get(name, (0, 0.0, by))
            cost[name] = (old[0] + own[0], old[1] + own[1], old[2])
        if stack:
            stack[-1][0] += kib
            stack[-1][1] += spent
start = anon()
builtins.__import__ = counted
import gpuwatch.daemon.app
builtins.__import__ = real
print("total", anon() - start, 0, "")
for name, (kib, spent, by) in cost.items():
    print(name or ".", kib, spent * 1000, by)
"""


def run() -> Sequence[Row]:
    """The dearest ones by anonymous memory (their own imports not counted)."""
    subprocess.run([sys.executable, "-c", "import gpuwatch.daemon.app"], cwd=TREE, check=True)  # makes .pyc files
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=TREE, check=True, capture_output=True, text=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    total = int(rows[0][1])
    rows = sorted(rows[1:], key=lambda row: -int(row[1]))[:SHOWN]
    shown = [
        Row(row[0], int(row[1]), "KiB anon", None, f"{float(row[2]):.0f} ms, for {row[3] if len(row) > 3 else '?'}")
        for row in rows
    ]
    return [Row("everything", total, "KiB anon"), *shown]
