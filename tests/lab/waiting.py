"""Waiting for a condition with a deadline, as tests do instead of sleeping."""

from __future__ import annotations

import time
from typing import Callable, Optional, TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], Optional[T]], timeout_s: float = 10.0, what: str = "", every_s: float = 0.02) -> T:
    """The first true value of `condition()`; AssertionError with the last one after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            name = what or getattr(condition, "__qualname__", "the condition")
            raise AssertionError(f"still not so after {timeout_s:g} s: {name} (last: {value!r})")
        time.sleep(every_s)
