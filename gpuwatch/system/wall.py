"""wall(1): a line on every terminal where somebody is logged in."""

from __future__ import annotations

import contextlib

from gpuwatch.model.errors import SourceError
from gpuwatch.system.command import run

DEADLINE_S = 3.0


def wall(text: str) -> None:
    """Best effort: a host without wall, or without anybody logged in, is no error."""
    with contextlib.suppress(SourceError):
        run(["wall", text], DEADLINE_S)
