"""A loopback HTTP server that answers like WeCom's group robot: for the demo and for tests.

    python3 -m gpuwatch.simulation.receiver --port 0 --log FILE

prints one line with the address to use as the channel's `url`, then serves until it is ended. It
listens on 127.0.0.1 only. What it accepts, and what it refuses with which code, follows the service's
documentation: HTTP 200 with an errcode, 4096 bytes of markdown, 2048 of text, 20 messages a minute.

A test may script it: Receiver.misbehave(...), or POST /script with the same arguments as JSON;
GET /messages answers with what was accepted.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Optional
from urllib.parse import parse_qs, urlsplit

MARKDOWN_BYTES = 4096
TEXT_BYTES = 2048
MOST_A_MINUTE = 20
MOST_REQUEST_BYTES = 1 << 20
KEY = "00000000-1111-2222-3333-444444444444"
PATH = "/cgi-bin/webhook/send"


@dataclass(frozen=True)
class Received:
    """One request and how it was answered. The key is not kept."""

    at_s: float  # time.time()
    kind: str  # markdown | text | ...
    content: str
    mentioned: tuple[str, ...]
    status: int
    errcode: Optional[int]


@dataclass(frozen=True)
class Misbehaviour:
    """What the next `times` requests meet instead of an answer; the message is not accepted."""

    times: int = 1
    status: int = 200
    body: Optional[str] = None  # None with status 200: the usual answer
    wait_s: float = 0.0  # before the answer; long enough, and the sender gives up
    drop: bool = False  # close the connection without an answer
    location: str = ""  # of a redirect


class Receiver:
    """The server; use it as a context manager. `url` is what the channel's `url` option takes."""

    def __init__(
        self,
        port: int = 0,
        key: str = KEY,
        log: Optional[str] = None,
        per_minute: int = MOST_A_MINUTE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.key = key
        self._log = log
        self._per_minute = per_minute
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._requests: list[Received] = []
        self._script: deque[Misbehaviour] = deque()
        self._recent: deque[float] = deque()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.receiver = self
        self._thread = threading.Thread(target=self._serve, name="receiver", daemon=True)

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and wait for the thread."""
        self._closing.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(5)
        self._server.server_close()

    @property
    def url(self) -> str:
        """http://127.0.0.1:PORT"""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def requests(self) -> tuple[Received, ...]:
        """Everything that came in, refused or not."""
        with self._lock:
            return tuple(self._requests)

    @property
    def messages(self) -> tuple[Received, ...]:
        """What was accepted: what people see."""
        return tuple(each for each in self.requests if each.errcode == 0)

    def misbehave(self, **how: Any) -> None:
        """Add a Misbehaviour for the next requests."""
        with self._lock:
            self._script.append(Misbehaviour(**how))

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def answer(self, key: str, data: bytes) -> tuple[Misbehaviour, bytes]:
        """How to answer one request; it is recorded."""
        kind, content, mentioned, payload = _read(data)
        with self._lock:
            planned = self._next()
            if planned is not None and (planned.status != 200 or planned.body is not None or planned.drop):
                self._record(Received(time.time(), kind, content, mentioned, planned.status, None))
                return planned, (planned.body or "").encode()
            code, words = self._judge(key, kind, content, payload)
            self._record(Received(time.time(), kind, content, mentioned, 200, code))
            return planned or Misbehaviour(), json.dumps({"errcode": code, "errmsg": words}).encode()

    def wait(self, seconds: float) -> None:
        """Wait as scripted, but not beyond the end of the server."""
        self._closing.wait(seconds)

    def _next(self) -> Optional[Misbehaviour]:
        if not self._script:
            return None
        planned = self._script[0]
        if planned.times <= 1:
            self._script.popleft()
        else:
            self._script[0] = Misbehaviour(**{**asdict(planned), "times": planned.times - 1})
        return planned

    def _judge(self, key: str, kind: str, content: str, payload: Optional[Mapping[str, Any]]) -> tuple[int, str]:
        if key != self.key:
            return (
                93000,
                "invalid webhook url, hint: [0], more info at https://open.work.weixin.qq.com/devtool/query?e=93000",
            )
        now = self._monotonic()
        while self._recent and now - self._recent[0] >= 60:
            self._recent.popleft()
        if len(self._recent) >= self._per_minute:
            return 45009, "api freq out of limit, hint: [0]"
        if payload is None:
            return 40058, "invalid Request Parameter"
        if kind not in ("markdown", "text"):
            return 40008, "invalid message type, hint: [0]"
        limit = MARKDOWN_BYTES if kind == "markdown" else TEXT_BYTES
        if len(content.encode()) > limit:
            return 40058, f"{kind}.content exceed max length {limit}. invalid Request Parameter"
        if not content:
            return 44004, "empty content, hint: [0]"
        self._recent.append(now)
        return 0, "ok"

    def _record(self, received: Received) -> None:
        self._requests.append(received)
        if self._log is not None:
            with open(self._log, "a", encoding="utf-8") as log:
                log.write(json.dumps(asdict(received), ensure_ascii=False) + "\n")


def _read(data: bytes) -> tuple[str, str, tuple[str, ...], Optional[Mapping[str, Any]]]:
    """Kind, content, who is mentioned, and the payload; None for a payload that is no message."""
    try:
        payload = json.loads(data)
        kind = str(payload["msgtype"])
        body = payload[kind]
        content = body["content"]
        mentioned = (*body.get("mentioned_list", ()), *body.get("mentioned_mobile_list", ()))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", "", (), None
    if not isinstance(content, str):
        return kind, "", (), None
    return kind, content, tuple(str(who) for who in mentioned), payload


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    receiver: Receiver


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    server: _Server

    def do_POST(self) -> None:
        receiver = self.server.receiver
        target = urlsplit(self.path)
        data = self._body()
        if data is None:
            return
        if target.path == "/script":
            receiver.misbehave(**json.loads(data))
            self._send(200, b"{}")
        elif target.path == PATH:
            how, body = receiver.answer((parse_qs(target.query).get("key") or [""])[0], data)
            receiver.wait(how.wait_s)
            if how.drop:
                self.close_connection = True
                return
            self._send(how.status, body, how.location)
        else:
            self._send(404, b"")

    def do_GET(self) -> None:
        if self.path == "/messages":
            seen = [asdict(each) for each in self.server.receiver.messages]
            self._send(200, json.dumps(seen, ensure_ascii=False).encode())
        else:
            self._send(404, b"")

    def _body(self) -> Optional[bytes]:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MOST_REQUEST_BYTES:
            self.close_connection = True
            self._send(413, b"")
            return None
        return self.rfile.read(length)

    def _send(self, status: int, body: bytes, location: str = "") -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the sender did not wait for the answer

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the request line holds the key."""


def main(arguments: Optional[list[str]] = None) -> int:
    """Serve until ended."""
    parser = argparse.ArgumentParser(
        prog="gpuwatch.simulation.receiver", description="answers like a WeCom group robot"
    )
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--key", default=KEY, help="the key that it accepts")
    parser.add_argument("--log", help="write every request to this file, one JSON object a line")
    parser.add_argument("--per-minute", type=int, default=MOST_A_MINUTE)
    given = parser.parse_args(arguments)
    with Receiver(given.port, given.key, given.log, given.per_minute) as receiver:
        print(receiver.url, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass  # that is how a person ends it
    return 0


if __name__ == "__main__":
    sys.exit(main())
