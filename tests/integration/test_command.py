"""The gate through which programs are run."""

from __future__ import annotations

import os
import sys
import time

import pytest

from gpuwatch.model.errors import SourceError
from gpuwatch.system.command import MINIMAL_ENV, run
from tests.lab.waiting import wait_for

SH = "/bin/sh"


def test_output_and_exit_code() -> None:
    result = run((SH, "-c", "echo out; echo err >&2; exit 3"), 5.0)
    assert (result.returncode, result.stdout, result.stderr, result.ok) == (3, "out\n", "err\n", False)
    assert result.problem() == "err"
    assert run((SH, "-c", "exit 4"), 5.0).problem() == "/bin/sh ended with 4"
    assert run(("/bin/true",), 5.0).ok


def test_the_environment_is_ours_and_stdin_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWATCH_TEST_SECRET", "hidden")
    result = run((SH, "-c", "env; cat; pwd"), 5.0)
    assert "hidden" not in result.stdout
    names = {line.partition("=")[0] for line in result.stdout.splitlines() if "=" in line}
    assert set(MINIMAL_ENV) <= names <= set(MINIMAL_ENV) | {"PWD", "OLDPWD", "SHLVL", "_"}
    assert result.stdout.splitlines()[-1] == "/"


def test_a_program_that_hangs_is_killed_with_its_children() -> None:
    began = time.monotonic()
    result = run((SH, "-c", "sleep 1000 & echo $!; trap '' TERM; wait"), 0.3)
    assert time.monotonic() - began < 3.0
    assert result.returncode is None and "in time" in result.problem()
    child = int(result.stdout)
    wait_for(lambda: not _alive(child), what="the child is gone")


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def test_output_without_end_is_cut_and_still_bounded_in_time() -> None:
    result = run((SH, "-c", "yes"), 0.3, most_bytes=1000)
    assert len(result.stdout) == 1000 and result.cut and result.returncode is None
    long = run((sys.executable, "-c", "print('x' * 3_000_000)"), 20.0)
    assert long.ok and long.cut and len(long.stdout) == 1 << 20


def test_a_program_that_closes_its_output_and_hangs() -> None:
    assert run((SH, "-c", "exec >&- 2>&-; sleep 1000"), 0.3).returncode is None


def test_what_is_not_there() -> None:
    with pytest.raises(SourceError, match="can't run gpuwatch-no-such-program: No such file"):
        run(("gpuwatch-no-such-program",), 1.0)


def test_bytes_that_are_no_text() -> None:
    assert run((SH, "-c", "printf '\\377x'"), 5.0).stdout == "\ufffdx"
    assert os.getcwd() != "/"  # only the child's directory is changed
