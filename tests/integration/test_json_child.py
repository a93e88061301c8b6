"""A child process in JSON lines: nothing blocks, every end has a name."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.system.child import JsonChild
from tests.lab.waiting import wait_for


@pytest.fixture
def child() -> Iterator[JsonChild]:
    child = JsonChild("tests.fakes.echo_child", ["one", "two words"])
    yield child
    child.signal(signal.SIGKILL)
    child.reap(10)
    child.release()


def one(child: JsonChild) -> dict[str, Any]:
    return wait_for(child.receive, what="an answer")[0]


def test_questions_and_answers(child: JsonChild) -> None:
    child.send({"n": 1, "text": "过热"})
    assert one(child) == {"n": 1, "text": "过热", "argv": ["one", "two words"]}
    assert (child.broken, child.end) == ("", "")
    assert child.alive()


def test_a_question_larger_than_a_pipe_goes_in_parts(child: JsonChild) -> None:
    child.send({"big": "x" * 1_000_000})
    assert len(one(child)["big"]) == 1_000_000


def test_hanging_up_ends_it(child: JsonChild) -> None:
    child.hang_up()
    assert child.reap(10)
    assert child.end == "exit code 0"
    wait_for(lambda: child.receive() or child.broken, what="the end of output")
    assert child.broken == "ended"


def test_after_hanging_up_nothing_is_written_to_another_file(child: JsonChild, tmp_path: Path) -> None:
    child.hang_up()
    files = [os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT) for _ in range(8)]  # one gets the pipe's old number
    child.send({"n": 1})
    for fd in files:
        os.close(fd)
    assert (tmp_path / "file").read_bytes() == b""
    assert child.broken == "ended"


@pytest.mark.parametrize("what, end", [("die", "signal 9"), ("exit", "exit code 3")])
def test_an_end_has_a_name(child: JsonChild, what: str, end: str) -> None:
    child.send({"do": what})
    assert child.reap(10)
    assert child.end == end
    assert not child.alive()


def test_nonsense_breaks_it(child: JsonChild) -> None:
    child.send({"do": "babble"})
    wait_for(lambda: child.receive() or child.broken, what="the nonsense")
    assert "not JSON" in child.broken


def test_nothing_comes_from_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    child = JsonChild("tests.fakes.echo_child")
    child.send({"n": 1})
    assert one(child)["n"] == 1
    child.hang_up()
    assert child.reap(10)
    child.release()
