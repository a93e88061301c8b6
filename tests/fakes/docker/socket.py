"""A unix socket that answers each request with bytes, as slowly and as badly as a test wants."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Optional, Union
from urllib.parse import urlsplit

Reply = Union[bytes, Callable[[], Iterable[bytes]]]


class DockerSocket:
    """Answers by path; whole targets are kept in `asked`. A reply may be pieces that are made on the way."""

    def __init__(self, replies: dict[str, Reply]) -> None:
        self.replies = replies
        self.asked: list[str] = []
        self.ended = threading.Event()  # what hangs waits for this
        self._place = tempfile.TemporaryDirectory(prefix="gpuwatch-docker-")
        self.path = str(Path(self._place.name) / "docker.sock")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(8)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> DockerSocket:
        self._thread.start()
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        self._place.cleanup()

    def hang(self, *first: bytes) -> Callable[[], Iterator[bytes]]:
        """Some bytes, and then nothing."""

        def reply() -> Iterator[bytes]:
            yield from first
            self.ended.wait(30)

        return reply

    def drip(self, data: bytes, every_s: float) -> Callable[[], Iterator[bytes]]:
        """Byte by byte."""

        def reply() -> Iterator[bytes]:
            for byte in data:
                yield bytes([byte])
                if self.ended.wait(every_s):
                    return

        return reply

    def _serve(self) -> None:
        while True:
            try:
                plug, _ = self._listener.accept()
            except OSError:
                return
            with plug:
                self._answer(plug)

    def _answer(self, plug: socket.socket) -> None:
        try:
            request = plug.recv(65536).decode("latin-1")
            target = request.split(" ")[1] if " " in request else ""
            self.asked.append(target)
            reply = self.replies.get(urlsplit(target).path, b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")
            for piece in [reply] if isinstance(reply, bytes) else reply():
                plug.sendall(piece)
        except OSError:
            return  # it went away
