"""ProcFs.namespaced_pid over a /proc made by the test; test_container_engine.py has it in a real container."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

import pytest

from gpuwatch.system.procfs import ProcFs


@pytest.mark.parametrize(
    "status, expected",
    [
        ("Name:\tx\nNSpid:\t4711\t17\n", 17),
        ("Name:\tx\nNSpid:\t4711\t80\t1\nNSpgid:\t4711\t80\t1\n", 1),  # a container in a container
        ("Name:\tx\nNSpid:\t4711\n", 4711),  # in no other namespace than ours
        ("Name:\tNSpid:\t1\n", None),  # a kernel without NSpid
        ("Name:\tx\nNSpid:\n", None),
        ("Name:\tx\nNSpid:\tmany\n", None),
        (None, None),
    ],
)
def test_the_innermost_counts(tmp_path: Path, status: Optional[str], expected: Optional[int]) -> None:
    if status is not None:
        (tmp_path / "4711").mkdir()
        (tmp_path / "4711" / "status").write_text(status)
    assert ProcFs(str(tmp_path)).namespaced_pid(4711) == expected


@pytest.mark.parametrize("pid", [0, -1, 2**32 - 1])
def test_what_is_no_pid_is_none(pid: int) -> None:
    assert ProcFs().namespaced_pid(pid) is None


def test_ours_is_ours() -> None:
    assert ProcFs().namespaced_pid(os.getpid()) == os.getpid()
