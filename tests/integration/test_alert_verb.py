"""`gpuwatch alert`: a test message through the real sender, and the queue from a real store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.cli import alert
from gpuwatch.cli.main import main
from gpuwatch.model.notification import DeliveryState, Message, SpoolEntry
from gpuwatch.model.rule import Severity
from gpuwatch.simulation.receiver import KEY, Receiver
from gpuwatch.store.database import Database, Transaction
from gpuwatch.store.memory import put

WRONG_KEY = "99999999-aaaa-bbbb-cccc-444444444444"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


def config(directory: Path, receiver: Receiver, keys: dict[str, str]) -> str:
    """A configuration with a channel for each key."""
    lines = ["language: zh", "alerts:", "  channels:"]
    for name, key in keys.items():
        file = directory / f"{name}.key"
        if key:
            file.write_text(key, encoding="ascii")
            file.chmod(0o600)
        lines.append(f"    - {{name: {name}, type: wecom, key: {{file: {file}}}, url: '{receiver.url}'}}")
    path = directory / "gpuwatch.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_every_channel_is_tested_and_told(
    tmp_path: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, receiver, {"ops": KEY, "old": WRONG_KEY, "new": ""})
    assert main(["alert", "test", "--config", path]) == 1
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert lines[0] == "ops: delivered; wecom answered: errcode 0, ok"
    assert lines[1].startswith("old: NOT delivered: errcode 93000: the key belongs to no robot")
    assert lines[2].startswith(f"new: NOT delivered: {tmp_path}/new.key: No such file or directory")
    assert KEY not in told.out + told.err
    assert WRONG_KEY not in told.out + told.err
    (message,) = receiver.messages
    assert "gpuwatch 测试消息" in message.content


def test_one_channel(tmp_path: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    path = config(tmp_path, receiver, {"ops": KEY, "old": WRONG_KEY})
    assert main(["alert", "test", "ops", "--json", "--config", path]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(each["channel"], each["ok"]) for each in told["channels"]] == [("ops", True)]


@pytest.mark.parametrize(
    "channel, words", [("opps", "no channel 'opps'; there is ops"), (None, "no channel is config")]
)
def test_no_such_channel(
    tmp_path: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str], channel: str, words: str
) -> None:
    path = config(tmp_path, receiver, {"ops": KEY} if channel else {})
    assert main(["alert", "test", *([channel] if channel else []), "--config", path]) == 1
    assert words in capsys.readouterr().err


def test_no_answer_is_a_failure(
    tmp_path: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert, "ANSWER_S", 0.5)
    receiver.misbehave(wait_s=30)
    assert main(["alert", "test", "--config", config(tmp_path, receiver, {"ops": KEY})]) == 1
    assert "NOT delivered: no answer within" in capsys.readouterr().out


def entry(key: str, state: DeliveryState, problem: str = "") -> SpoolEntry:
    message = Message("[warning] gpu-07 GPU3 86 C", (), Severity.WARNING, "firing")
    return SpoolEntry(key, "ops", message, 1_796_000_000.0, state, attempts=2, problem=problem)


def test_queue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = Database(str(tmp_path / "state.db"))
    entries = [
        entry("gpu-07#1/firing/ops", DeliveryState.QUEUED, "HTTP 500: the service has trouble"),
        entry("gpu-07#2/firing/ops", DeliveryState.REFUSED, "errcode 93000"),
        entry("gpu-07#3/firing/ops", DeliveryState.DELIVERED),
    ]
    database.apply([Transaction(1, tuple(put("spool", each.key, each) for each in entries))])
    assert main(["alert", "queue", "--state-dir", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "refused" in told
    assert "gpu-07#1/firing/ops: HTTP 500: the service has trouble" in told
    assert told.count("[warning] gpu-07 GPU3 86 C") == 2
    assert main(["alert", "queue", "--all", "--json", "--state-dir", str(tmp_path)]) == 0
    assert len(json.loads(capsys.readouterr().out)["messages"]) == 3
    database.close()
