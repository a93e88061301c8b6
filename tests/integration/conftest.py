"""What the files of this tier share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import refuse
from tests.fakes.nvml.bench import NvmlBench, why_no_library


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[NvmlBench]:
    """The real NVML client over the fake library; nothing of it is left behind."""
    refuse(why_no_library())
    bench = NvmlBench(tmp_path)
    yield bench
    bench.close()
