"""The ring: the last minutes, compact, in order, with gaps as gaps."""

from __future__ import annotations

from dataclasses import replace

from gpuwatch.model.reading import failed
from gpuwatch.sources.ring import Ring
from tests.fakes.story import at, gpu, report, uuid


def test_rows_are_in_order_and_old_ones_go() -> None:
    ring = Ring(1.0, window_s=5)
    for second in range(8):
        ring.add(report(at(second), gpu(0, 40 + second)))
    rows = ring.rows(at(8))
    assert rows["gpus"][uuid(0)]["gpu.temperature"] == [43, 44, 45, 46, 47]
    assert rows["utc_s"] == sorted(rows["utc_s"])


def test_a_value_that_was_not_read_is_none_never_zero() -> None:
    ring = Ring(1.0, window_s=5)
    ring.add(report(at(0), gpu(0)))
    ring.add(report(at(1), gpu(0, temperature=50, power=failed("no"))))
    assert ring.rows(at(1))["gpus"][uuid(0)]["gpu.power"] == [650.0, None]


def test_the_same_report_counts_once() -> None:
    ring = Ring(1.0, window_s=5)
    same = report(at(0), gpu(0))
    ring.add(same)
    ring.add(replace(same, reason="again"))
    assert len(ring.rows(at(1))["utc_s"]) == 1


def test_change_over_a_time_and_none_while_nobody_can_say() -> None:
    ring = Ring(1.0, window_s=30)
    for second in range(8):
        ring.add(report(at(second), gpu(0, 40 + 2 * second)))
    assert ring.change(uuid(0), "gpu.temperature", 10) is None
    assert ring.change(uuid(0), "gpu.temperature", 5) == 10
    assert ring.change(uuid(1), "gpu.temperature", 5) is None
    ring.add(report(at(8), gpu(0, temperature=50).__class__(uuid(0), 0, "", "")))
    assert ring.change(uuid(0), "gpu.temperature", 5) is None
