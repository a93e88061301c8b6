"""A group robot of WeCom on loopback, for a product that is installed and knows nothing of tests."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Robot:
    """Takes messages like the service: HTTP 200 with an errcode. Use as a context manager."""

    def __init__(self) -> None:
        self.key = "e2e-robot-key-1234"
        self.errcode = 0
        self.messages: list[dict[str, Any]] = []
        robot = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                known = self.path == f"/cgi-bin/webhook/send?key={robot.key}"
                errcode = robot.errcode if known else 93000
                if errcode == 0:
                    robot.messages.append(body)
                answer = json.dumps({"errcode": errcode, "errmsg": "ok" if errcode == 0 else "no"}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        """What the channel's `url` has to be."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def texts(self) -> list[str]:
        """The markdown of each message taken so far."""
        return [message["markdown"]["content"] for message in self.messages if message["msgtype"] == "markdown"]

    def __enter__(self) -> Robot:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
