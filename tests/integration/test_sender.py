"""The sender child and its courier against a receiver on loopback: real processes, real HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Optional

import pytest

from gpuwatch.alerts import sender
from gpuwatch.alerts.courier import SenderCourier
from gpuwatch.alerts.pipeline import request
from gpuwatch.model.instant import Instant
from gpuwatch.model.notification import Message, SpoolEntry
from gpuwatch.model.rule import Severity
from gpuwatch.model.settings import Channel
from gpuwatch.simulation.receiver import KEY, Receiver
from gpuwatch.system.http import HttpError, Poster
from tests.lab.waiting import wait_for

TREE = Path(__file__).resolve().parents[2]
WRONG_KEY = "99999999-aaaa-bbbb-cccc-444444444444"
BUNDLE = "20261130T054532Z-gpu-critical-3d9a7c10"


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def now(self) -> Instant:
        return Instant("0" * 32, self.now_s, self.now_s)

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def courier(clock: HandClock) -> Iterator[SenderCourier]:
    running = SenderCourier(clock)
    yield running
    running.close(1.0)


def asked(
    receiver: Receiver,
    name: str = "gpu-07#1/firing/ops",
    key: str = KEY,
    lines: tuple[str, ...] = ("a line",),
    mention: tuple[str, ...] = (),
    done: tuple[str, ...] = (),
    url: Optional[str] = None,
) -> Mapping[str, object]:
    message = Message("[critical] gpu-07 GPU3 hot", lines, Severity.CRITICAL, "firing", bundle=BUNDLE)
    entry = SpoolEntry(name, "ops", message, 0.0, mention=mention, done=done)
    return request(entry, Channel("ops", "wecom", options={"url": url or receiver.url}), key, "en")


def answers(courier: SenderCourier, count: int = 1) -> list[Mapping[str, object]]:
    """The next `count` outcomes."""
    told: list[Mapping[str, object]] = []

    def enough() -> bool:
        told.extend(courier.outcomes())
        return len(told) >= count

    wait_for(enough, 20, f"{count} outcomes")
    return told


def test_delivered(courier: SenderCourier, receiver: Receiver) -> None:
    courier.send((asked(receiver),))
    (answer,) = answers(courier)
    assert answer == {
        "id": "gpu-07#1/firing/ops",
        "ok": True,
        "retryable": False,
        "problem": "",
        "retry_after_s": 0.0,
        "done": ["markdown"],
        "answer": "errcode 0, ok",
    }
    (message,) = receiver.messages
    assert message.content == '**<font color="warning">[critical] gpu-07 GPU3 hot</font>**\na line'


def test_order_is_kept(courier: SenderCourier, receiver: Receiver) -> None:
    courier.send(tuple(asked(receiver, f"n{number}", lines=(str(number),)) for number in range(9)))
    assert [answer["id"] for answer in answers(courier, 9)] == [f"n{number}" for number in range(9)]
    assert [message.content[-1] for message in receiver.messages] == [str(number) for number in range(9)]


def test_child_has_no_privileges(courier: SenderCourier, receiver: Receiver) -> None:
    # By name, so that what Python loads for a look-up has to be there without the right to read it.
    courier.send((asked(receiver, url=receiver.url.replace("127.0.0.1", "localhost")),))
    assert answers(courier)[0]["ok"] is True
    status = Path(f"/proc/{courier.pid}/status").read_text(encoding="ascii")
    facts = {line.split(":")[0]: line.split(":")[1].split() for line in status.splitlines()}
    assert facts["NoNewPrivs"] == ["1"]
    limits = Path(f"/proc/{courier.pid}/limits").read_text(encoding="ascii")
    assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE)
    if os.geteuid() == 0:
        assert "0" not in facts["Uid"] + facts["Gid"]
        assert facts["Groups"] == []
        assert set(facts["CapEff"] + facts["CapPrm"]) == {"0" * 16}


@pytest.mark.parametrize(
    "changes, ok, retryable, words",
    [
        ({"key": WRONG_KEY}, False, False, "errcode 93000: the key belongs to no robot"),
        ({"key": "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=" + KEY}, True, False, ""),
        ({"key": "tooshort"[:5]}, False, False, "neither a robot's key nor its webhook URL"),
        ({"lines": ("卡" * 4000,)}, True, False, ""),
        ({"url": "http://127.0.0.1:1"}, False, True, "127.0.0.1:1: connection refused"),
        ({"url": "https"}, False, True, "no TLS with this server"),
        ({"url": "http://example.com"}, False, False, "neither https:// nor on this host"),
    ],
)
def test_keys_and_limits_w1_w4(
    courier: SenderCourier, receiver: Receiver, changes: dict[str, Any], ok: bool, retryable: bool, words: str
) -> None:
    if changes.get("url") == "https":
        changes = {"url": receiver.url.replace("http:", "https:")}
    courier.send((asked(receiver, **changes),))
    (answer,) = answers(courier)
    assert (answer["ok"], answer["retryable"]) == (ok, retryable)
    assert words in str(answer["problem"])


@pytest.mark.parametrize(
    "how, retryable",
    [
        ({"status": 400}, False),
        ({"status": 403}, False),
        ({"status": 429}, True),
        ({"status": 500, "body": '{"errcode": 0}'}, True),
        ({"status": 302, "location": "/elsewhere"}, True),
        ({"body": '{"errcode": 40058, "errmsg": "exceed max length"}'}, False),
        ({"body": '{"errcode": -1, "errmsg": "system busy"}'}, True),
        ({"body": "<html>"}, True),
        ({"body": ""}, True),
        ({"drop": True}, True),
    ],
)
def test_only_ok_is_delivery_w3_w9(
    courier: SenderCourier, receiver: Receiver, how: dict[str, Any], retryable: bool
) -> None:
    receiver.misbehave(**how)
    courier.send((asked(receiver), asked(receiver, "next")))
    first, second = answers(courier, 2)
    assert (first["ok"], first["retryable"]) == (False, retryable)
    assert first["problem"]
    assert second["ok"] is True
    assert len(receiver.requests) == 2, "no redirect was followed, nothing was tried twice"


def test_too_many_w5(courier: SenderCourier, receiver: Receiver) -> None:
    courier.send(tuple(asked(receiver, f"n{number}") for number in range(21)))
    last = answers(courier, 21)[-1]
    assert (last["ok"], last["retryable"], last["retry_after_s"]) == (False, True, 60.0)


def test_mention_follows_and_a_retry_does_not_repeat_the_message_w6(courier: SenderCourier, receiver: Receiver) -> None:
    courier.send((asked(receiver, "all", mention=("@all",)),))
    assert answers(courier)[0]["done"] == ["markdown", "mention"]
    assert [(each.kind, each.mentioned) for each in receiver.messages] == [("markdown", ()), ("text", ("@all",))]
    courier.send((asked(receiver, "again", mention=("@all",), done=("markdown",)),))
    assert answers(courier)[0]["ok"] is True
    assert [each.kind for each in receiver.messages] == ["markdown", "text", "text"]


def test_half_delivered_is_not_delivered_w6(courier: SenderCourier, receiver: Receiver) -> None:
    receiver.misbehave()  # the usual answer
    receiver.misbehave(status=503)
    courier.send((asked(receiver, mention=("@all",)),))
    (answer,) = answers(courier)
    assert (answer["ok"], answer["retryable"], answer["done"]) == (False, True, ["markdown"])


def test_killed_child_costs_a_retry(courier: SenderCourier, receiver: Receiver, clock: HandClock) -> None:
    receiver.misbehave(wait_s=30)
    courier.send((asked(receiver, "lost"),))
    wait_for(lambda: receiver.requests, what="the request")
    first = courier.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    (answer,) = answers(courier)
    assert (answer["id"], answer["ok"], answer["retryable"]) == ("lost", False, True)
    courier.send((asked(receiver, "soon"),))
    assert "started again in" in str(answers(courier)[0]["problem"])
    clock.now_s += 2.5
    courier.send((asked(receiver, "later"),))
    assert answers(courier)[0]["ok"] is True
    assert courier.pid != first


def test_hanging_child_is_given_up(clock: HandClock, receiver: Receiver) -> None:
    courier = SenderCourier(clock, "tests.fakes.senders.silent")
    courier.send((asked(receiver, "a"), asked(receiver, "b")))
    assert courier.outcomes() == ()
    child = courier.pid
    clock.now_s += 61
    told = courier.outcomes()
    assert [(answer["id"], answer["ok"], answer["retryable"]) for answer in told] == [
        ("a", False, True),
        ("b", False, True),
    ]
    assert told[0]["problem"] == "no answer from the sender for 60 s"
    wait_for(lambda: courier.outcomes() == () and not os.path.exists(f"/proc/{child}"), what="the child's end")
    courier.close(0.0)


@pytest.mark.parametrize("module", ["dying", "babbling"])
def test_broken_child_costs_a_retry_and_pauses_grow(module: str, clock: HandClock, receiver: Receiver) -> None:
    courier = SenderCourier(clock, f"tests.fakes.senders.{module}")
    for pause_s in (2.0, 4.0, 8.0):
        courier.send((asked(receiver),))
        (answer,) = answers(courier)
        assert answer["retryable"] is True
        clock.now_s += pause_s - 0.5
        courier.send((asked(receiver),))
        assert "started again in" in str(answers(courier)[0]["problem"])
        clock.now_s += 0.6
    courier.close(0.0)


def test_answers_that_nobody_asked_for_are_dropped(clock: HandClock, receiver: Receiver) -> None:
    courier = SenderCourier(clock, "tests.fakes.senders.confused")
    courier.send((asked(receiver, "a"),))
    assert answers(courier) == [{"id": "a", "ok": True}]
    courier.send((asked(receiver, "b"),))
    assert answers(courier) == [{"id": "b", "ok": True}]
    courier.close(0.0)


def test_idle_child_is_let_go(courier: SenderCourier, receiver: Receiver, clock: HandClock) -> None:
    courier.send((asked(receiver),))
    answers(courier)
    child = courier.pid
    clock.now_s += 51
    assert courier.outcomes() == ()
    assert courier.fds() == ()
    wait_for(lambda: courier.outcomes() == () and not os.path.exists(f"/proc/{child}"), what="the child's end")
    courier.send((asked(receiver, "next"),))
    assert answers(courier)[0]["ok"] is True


def test_child_that_went_by_itself_is_replaced(courier: SenderCourier, receiver: Receiver) -> None:
    courier.send((asked(receiver),))
    answers(courier)
    assert courier.pid is not None
    os.kill(courier.pid, signal.SIGTERM)
    gone = courier.pid
    wait_for(lambda: courier.outcomes() == () and courier.pid is None, what="noticing it")
    courier.send((asked(receiver, "next"),))
    assert answers(courier)[0]["ok"] is True
    assert courier.pid != gone


def test_message_does_not_meet_a_closing_door(courier: SenderCourier, receiver: Receiver) -> None:
    courier.send((asked(receiver),))
    answers(courier)
    gone = courier.pid
    assert gone is not None
    os.kill(gone, signal.SIGTERM)
    stat = Path(f"/proc/{gone}/stat")
    wait_for(lambda: stat.read_text(encoding="ascii").rpartition(") ")[2].startswith("Z"), what="the child's end")
    courier.send((asked(receiver, "next"),))
    assert answers(courier)[0]["ok"] is True


def test_close_takes_the_last_answer_and_tells_what_is_open(receiver: Receiver, clock: HandClock) -> None:
    courier = SenderCourier(clock)
    receiver.misbehave(wait_s=0.3)
    courier.send((asked(receiver, "in time"),))
    wait_for(lambda: receiver.requests, what="the request")
    courier.close(5.0)
    assert [answer["ok"] for answer in courier.outcomes()] == [True]
    receiver.misbehave(wait_s=30)
    courier.send((asked(receiver, "too slow"),))
    wait_for(lambda: len(receiver.requests) == 2, what="the request")
    courier.close(0.0)
    (answer,) = courier.outcomes()
    assert (answer["id"], answer["retryable"]) == ("too slow", True)


def test_key_is_in_nothing_that_the_child_says(receiver: Receiver) -> None:
    receiver.misbehave(body=f'{{"errcode": 7, "errmsg": "no robot {WRONG_KEY}"}}')
    receiver.misbehave(status=500, body=f"key={WRONG_KEY}")
    receiver.misbehave(drop=True)
    good = dict(asked(receiver, key=WRONG_KEY))
    lines: list[object] = [
        good,
        good,
        good,
        good,
        asked(receiver, key=WRONG_KEY, url="https://127.0.0.1:" + receiver.url.rpartition(":")[2]),
        asked(receiver, key=WRONG_KEY, url="http://127.0.0.1:1"),
        asked(receiver, key=f"https://[x/?key={WRONG_KEY}"),
        asked(receiver, key=f"{WRONG_KEY} {WRONG_KEY}"),
        {**good, "channel": {"type": "pigeon", "options": {}}},
        {**good, "channel": None},
        {**good, "message": {"title": WRONG_KEY}},
        {**good, "mention": 5},
        [WRONG_KEY],
        WRONG_KEY,
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines) + f"{{{WRONG_KEY}\n" + f"{WRONG_KEY}"
    done = subprocess.run(
        [sys.executable, "-m", "gpuwatch.alerts.sender"],
        input=text,
        capture_output=True,
        text=True,
        cwd=TREE,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 12
    assert not any(json.loads(line)["ok"] for line in done.stdout.splitlines())
    assert WRONG_KEY not in done.stdout + done.stderr
    assert "(key)" in done.stdout, "the service's words came through without it"


def test_unexpected_error_is_told_without_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ConnectionError(104, f"https://host/?key={KEY}")
    except ConnectionError as error:
        sender._tell_little(type(error), error, error.__traceback__)
    told = capsys.readouterr().err
    assert "ConnectionError 104 at test_sender.py" in told or "ConnectionResetError 104 at test_sender.py" in told
    assert KEY not in told


def test_child_ends_after_idle_time() -> None:
    reading, writing = os.pipe()
    assert list(sender.requests_of(reading, 0.05)) == []
    os.write(writing, b'{"id": "a"}\nnonsense\n{"id": "b"}')
    assert [each["id"] for each in sender.requests_of(reading, 0.05)] == ["a"]
    os.close(reading)
    os.close(writing)


class _Strange(BaseHTTPRequestHandler):
    """Drips its answer when asked to; remembers the headers it saw."""

    seen: list[Mapping[str, str]]

    def do_POST(self) -> None:
        self.seen.append(dict(self.headers.items()))
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        size = {"/drip": 50, "/flood": 200}.get(self.path, 1)
        pause = threading.Event()
        try:
            for _ in range(size):
                self.wfile.write(b"x" if self.path == "/drip" else b"x" * 1000)
                self.wfile.flush()
                pause.wait(0.1 if self.path == "/drip" else 0)
        except OSError:
            pass  # the other side has had enough

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def strange() -> Iterator[HTTPServer]:
    _Strange.seen = []
    server = HTTPServer(("127.0.0.1", 0), _Strange)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_dripping_answer_ends_at_the_deadline(strange: HTTPServer) -> None:
    poster = Poster(total_s=0.5)
    with pytest.raises(HttpError, match="took too long"):
        poster.post(f"http://127.0.0.1:{strange.server_port}/drip", b"{}", {})
    poster.close()


def test_endless_answer_is_cut(strange: HTTPServer) -> None:
    poster = Poster()
    assert len(poster.post(f"http://127.0.0.1:{strange.server_port}/flood", b"{}", {}).body) == 65536
    poster.close()


def test_silent_service(receiver: Receiver) -> None:
    receiver.misbehave(wait_s=30)
    poster = Poster(read_s=0.2)
    with pytest.raises(HttpError) as caught:
        poster.post(f"{receiver.url}/cgi-bin/webhook/send?key={KEY}", b"{}", {})
    assert str(caught.value) == f"{receiver.url[len('http://') :]}: no answer in time"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    poster.close()


def test_netrc_is_not_read_and_proxies_are(
    strange: HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login root password secret\n", encoding="ascii")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{strange.server_port}")
    monkeypatch.setenv("no_proxy", "")
    poster = Poster()
    assert poster.post("http://127.0.0.2:1/through", b"{}", {"X-Own": "1"}).status == 200
    poster.close()
    (headers,) = _Strange.seen
    assert headers["Host"] == "127.0.0.2:1"
    assert headers["X-Own"] == "1"
    assert "Authorization" not in headers


def test_receiver_script_over_http(receiver: Receiver) -> None:
    poster = Poster()
    poster.post(f"{receiver.url}/script", b'{"status": 500, "times": 2}', {})
    target = f"{receiver.url}/cgi-bin/webhook/send?key={KEY}"
    body = json.dumps({"msgtype": "text", "text": {"content": "x"}}).encode()
    assert [poster.post(target, body, {}).status for _ in range(3)] == [500, 500, 200]
    assert poster.post(f"{receiver.url}/elsewhere", body, {}).status == 404
    poster.close()


@pytest.mark.parametrize(
    "payload, code",
    [
        ({"msgtype": "markdown", "markdown": {"content": "卡" * 1365 + "a"}}, 0),
        ({"msgtype": "markdown", "markdown": {"content": "卡" * 1366}}, 40058),
        ({"msgtype": "text", "text": {"content": "a" * 2049}}, 40058),
        ({"msgtype": "text", "text": {"content": ""}}, 44004),
        ({"msgtype": "poem", "poem": {"content": "x"}}, 40008),
        ({"msgtype": "text"}, 40058),
        ([], 40058),
    ],
)
def test_receiver_answers_like_the_service(receiver: Receiver, payload: Any, code: int) -> None:
    poster = Poster()
    answer = poster.post(f"{receiver.url}/cgi-bin/webhook/send?key={KEY}", json.dumps(payload).encode(), {})
    poster.close()
    assert json.loads(answer.body)["errcode"] == code


def test_receiver_as_a_process(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-m", "gpuwatch.simulation.receiver", "--port", "0", "--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=TREE) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        poster = Poster()
        body = json.dumps({"msgtype": "text", "text": {"content": "x", "mentioned_list": ["@all"]}}).encode()
        poster.post(f"{url}/cgi-bin/webhook/send?key={KEY}", body, {})
        poster.close()
        process.terminate()
    (line,) = log.read_text(encoding="utf-8").splitlines()
    recorded = json.loads(line)
    assert (recorded["content"], recorded["mentioned"], recorded["errcode"]) == ("x", ["@all"], 0)
    assert KEY not in line
