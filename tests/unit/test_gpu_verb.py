"""`gpuwatch gpu`: what is shown, which card is meant, what is asked of the daemon."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli import gpu as verb
from gpuwatch.model.errors import SourceError
from gpuwatch.system.control_socket import ControlServer


def card(index: int, uuid: str, **more: Any) -> dict[str, Any]:
    place = f"0000:{0x18 + 16 * index:02x}:00.0"
    return {"index": index, "uuid": uuid, "name": "H100", "pci": place, "lost": None, "stale": False, **more}


FIRST = "GPU-3d9a7c10-5b1e-4c27-9d40-000000000000"
SECOND = "GPU-3d9affff-5b1e-4c27-9d40-000000000001"
THIRD = "GPU-71c8d6e2-5b1e-4c27-9d40-000000000002"
CARDS = [card(0, FIRST), card(1, SECOND, new=True), card(2, THIRD, lost="it is not listed", missing=True)]


@pytest.mark.parametrize("text", [FIRST, "GPU-3d9a7", "3d9a7", "gpu-3D9A7C"])
def test_the_beginning_of_a_uuid_is_enough(text: str) -> None:
    assert verb.find(CARDS, text) == FIRST


@pytest.mark.parametrize(
    "text, says", [("GPU-3d9a", "2 GPUs"), ("GPU-9", "no GPU"), ("", "no GPU"), ("GPU-", "no GPU")]
)
def test_one_that_is_not_clear(text: str, says: str) -> None:
    with pytest.raises(SourceError, match=says):
        verb.find(CARDS, text)


def test_the_screen() -> None:
    lines = verb.draw(CARDS).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert [line.split()[-1] for line in lines[1:4]] == ["ok", "new", "missing"]
    assert lines[4].endswith("gpuwatch gpu accept GPU-3d9affff")
    assert lines[5].endswith("gpuwatch gpu forget GPU-71c8d6e2")
    assert verb.draw(CARDS[:1]).count("\n") == 1


def test_names_are_made_safe() -> None:
    assert "\x1b" not in verb.draw([card(0, "GPU-\x1b[31m", new=True)])


class Daemon:
    """Answers on a real control socket."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.answer: Mapping[str, Any] = {"done": True}
        self.server = ControlServer(str(folder / "control.sock"), self.handle)

    def handle(self, request: Mapping[str, Any], uid: int) -> Mapping[str, Any]:
        self.asked.append(request)
        return {"view": {"gpus": CARDS}} if request["verb"] == "status" else self.answer


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.server.close()


def call(folder: Path, *argv: str) -> int:
    parser = argparse.ArgumentParser()
    verb.add_parser(parser.add_subparsers(dest="verb"))
    return verb.run(parser.parse_args(["gpu", *argv, "--run-dir", str(folder)]))


@pytest.mark.parametrize("what, uuid", [("accept", SECOND), ("forget", THIRD)])
def test_the_daemon_is_asked(
    daemon: Daemon, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, uuid: str
) -> None:
    assert call(tmp_path, what, uuid[:12]) == 0
    assert daemon.asked[-1] == {"verb": "gpu", "what": what, "uuid": uuid}
    assert capsys.readouterr().out.startswith(uuid)


def test_what_it_refuses_is_said(daemon: Daemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.answer = {"error": "only root may do that"}
    assert call(tmp_path, "accept", SECOND) == 1
    assert "only root" in capsys.readouterr().err


def test_json(daemon: Daemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(tmp_path, "list", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["schema"], shown["live"], len(shown["gpus"])) == (1, True, 3)
    assert shown["gpus"][1]["new"] is True


def test_with_the_daemon_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "status.json").write_text(json.dumps({"gpus": CARDS}))
    assert call(tmp_path, "list") == 1
    assert "not running" in capsys.readouterr().out
    with pytest.raises(SourceError, match="only the daemon can accept"):
        call(tmp_path, "accept", SECOND)
