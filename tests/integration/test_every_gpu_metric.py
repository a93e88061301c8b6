"""No rule may be about a metric that nothing feeds: the driver's client reads each metric of a GPU as a number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.model.gpu import DriverState, GpuReport
from gpuwatch.model.metric import METRICS
from tests.conftest import refuse
from tests.fakes.nvml.bench import NvmlBench, sample_until, why_no_library


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[NvmlBench]:
    refuse(why_no_library())
    bench = NvmlBench(tmp_path)
    yield bench
    bench.close()


def _complete(report: GpuReport) -> bool:
    return report.state is DriverState.OK and len(report.samples) == 8 and all(each.slow for each in report.samples)


def test_every_metric_of_a_gpu_is_read(bench: NvmlBench) -> None:
    # No card has all of it: GPU 0 is a new one in every other respect, GPU 1 is of before T.Limit.
    for key, text in {"fan": "40", "pages": "5 6 1", "nvlink5_errors": "2 1"}.items():
        bench.scenario.set(f"*.{key}", text)
    bench.scenario.set("1.margin", "")
    bench.scenario.set("1.tlimits", "")
    bench.scenario.set("1.thresholds", "95 90 105 85")
    report = sample_until(bench.client(), _complete)
    numbers = {
        name
        for sample in report.samples
        for name, reading in {**sample.readings, **sample.slow}.items()
        if reading.value is not None
    }
    # Those that are derived are the daemon's: tests/scenarios/test_every_metric.py.
    assert numbers == {name for name, metric in METRICS.items() if metric.scope == "gpu" and not metric.derived}
