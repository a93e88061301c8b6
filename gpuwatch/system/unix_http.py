"""HTTP over a unix socket: bounded in time and size whatever the other side does.

Import it only where a socket is there: http.client costs 1.5 MiB (it takes ssl and email along).
"""

from __future__ import annotations

import http.client
import io
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuwatch.model.container import EngineError, EngineState

_PIECE = 65536
_MOST_HEAD_BYTES = 65536  # beside the body's own bound: status line, headers, sizes of chunks


@dataclass(frozen=True)
class Answer:
    """What came back. The names of `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class UnsentError(EngineError):
    """The request has not left: nothing has been done about it."""


def request(socket_path: str, method: str, target: str, timeout_s: float, most_bytes: int) -> Answer:
    """The answer to one request without a body, on a connection of its own.

    Ends within about `timeout_s`, however slowly the bytes drip. Raises EngineError: DOWN when nobody listens (or we
    may not speak), SLOW when it took too long, FAILED for what is no HTTP or more than `most_bytes`; UnsentError
    where there was no connection.
    """
    until = time.monotonic() + timeout_s
    plug = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    sent = False
    try:
        plug.settimeout(timeout_s)
        plug.connect(socket_path)
        sent = True
        connection = _Connection(_Wire(plug, until, most_bytes + _MOST_HEAD_BYTES))
        connection.request(method, target, headers={"Accept": "application/json", "Connection": "close"})
        with connection.getresponse() as response:
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, headers, _body(response, most_bytes))
    except (TimeoutError, socket.timeout, BlockingIOError) as error:  # EAGAIN: the listener's queue is full
        kind = EngineError if sent else UnsentError
        raise kind(f"{socket_path} does not answer within {timeout_s:g} s", EngineState.SLOW) from error
    except OSError as error:
        words = os.strerror(error.errno).lower() if error.errno else "the connection broke"
        kind = EngineError if sent else UnsentError
        raise kind(f"{socket_path}: {words}", EngineState.DOWN) from error
    except (http.client.HTTPException, ValueError, _TooMuch) as error:
        words = str(error) if isinstance(error, _TooMuch) else f"answers no HTTP ({type(error).__name__})"
        raise EngineError(f"{socket_path} {words}", EngineState.FAILED) from error
    finally:
        plug.close()


def _body(response: http.client.HTTPResponse, most_bytes: int) -> bytes:
    pieces: list[bytes] = []
    taken = 0
    while piece := response.read(_PIECE):
        pieces.append(piece)
        taken += len(piece)
        if taken > most_bytes:
            raise _TooMuch(most_bytes)
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(pieces)


class _TooMuch(Exception):
    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"answers with more than {most_bytes} bytes")


class _Incoming(io.RawIOBase):
    """Bytes of a socket until a moment and up to a number of them."""

    def __init__(self, plug: socket.socket, until: float, most_bytes: int) -> None:
        self._plug, self._until = plug, until
        self._most, self._left = most_bytes, most_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._plug.settimeout(_left_s(self._until))
        count = self._plug.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise _TooMuch(self._most - _MOST_HEAD_BYTES)
        return count


class _Wire:
    """What http.client wants of a socket. Closing it is left to `request`."""

    def __init__(self, plug: socket.socket, until: float, most_bytes: int) -> None:
        self._plug, self._until = plug, until
        self._incoming = _Incoming(plug, until, most_bytes)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._incoming)

    def sendall(self, data: bytes) -> None:
        self._plug.settimeout(_left_s(self._until))
        self._plug.sendall(data)

    def close(self) -> None:
        """The response may still be read."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, wire: _Wire) -> None:
        super().__init__("localhost")
        self.sock: Any = wire

    def connect(self) -> None:
        """It is connected from the start, and once only."""


def _left_s(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
