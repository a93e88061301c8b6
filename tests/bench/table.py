"""Figures, each beside what it is compared with."""

from __future__ import annotations

import resource
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Row:
    """`figure` in `unit`; `peer` is what `beside` did in the same run. The ratio is figure over peer."""

    name: str
    figure: float
    unit: str
    peer: Optional[float] = None
    beside: str = ""


def seconds(work: Callable[[], object], times: int = 3) -> float:
    """CPU time of this process and of the children that it waited for; the best of some runs.

    Not the time on the wall: all of this work is bound by the CPU, and other work on the machine disturbs it less.
    """
    best = float("inf")
    for _ in range(times):
        began = _cpu_s()
        work()
        best = min(best, _cpu_s() - began)
    return best


def _cpu_s() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def show(title: str, rows: Sequence[Row]) -> None:
    """A table for a terminal."""
    print(f"\n{title}")
    width = max(len(row.name) for row in rows)
    for row in rows:
        line = f"  {row.name:{width}}  {_number(row.figure):>10} {row.unit:10}"
        if row.peer:
            line += f"  {row.figure / row.peer:6.2f} x  {row.beside} ({_number(row.peer)})"
        elif row.beside:
            line += f"  {'':8}  {row.beside}"
        print(line.rstrip(), flush=True)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
