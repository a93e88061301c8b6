"""Closes what tests of this tier leave open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scenarios.bench import OPEN


@pytest.fixture(autouse=True)
def _close_benches() -> Iterator[None]:
    """A kill -9 leaves files open on purpose; the test's own process should not."""
    yield
    while OPEN:
        OPEN.pop().close()
