"""The control socket: one JSON line each way over a Unix socket, with the peer's user id."""

from __future__ import annotations

import grp
import json
import os
import socket
import struct
import threading
from collections.abc import Mapping
from typing import Any, Callable

from gpuwatch.model.errors import SourceError

MOST_BYTES = 4 << 20
ANSWER_S = 5.0

# Gets the request and the peer's uid, gives the answer.
Handler = Callable[[Mapping[str, Any], int], Mapping[str, Any]]


class ControlServer:
    """Answers in threads of its own, so that it answers while the cycle is late."""

    def __init__(self, path: str, handler: Handler, group: str = "gpuwatch") -> None:
        """Listen at `path`, root:group 0660 (root alone where the group does not exist). Raises OSError."""
        if os.path.exists(path):
            os.unlink(path)
        self._path = path
        self._handler = handler
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.bind(path)
        os.chmod(path, 0o600)
        try:
            os.chown(path, -1, grp.getgrnam(group).gr_gid)
            os.chmod(path, 0o660)
        except (KeyError, PermissionError):
            pass  # a checkout without the group: only its own user asks
        self._socket.listen(16)
        threading.Thread(target=self._serve, name="control", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._answer, args=(peer,), name="control-answer", daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        with peer:
            peer.settimeout(ANSWER_S)
            try:
                credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                _, uid, _ = struct.unpack("3i", credentials)
                request = json.loads(_read_line(peer))
                if not isinstance(request, dict):
                    raise ValueError("not an object")
                answer = self._handler(request, uid)
            except (ValueError, UnicodeDecodeError) as error:
                answer = {"error": f"not a request: {error}"}
            except OSError:
                return
            try:
                peer.sendall(json.dumps(answer).encode() + b"\n")
            except OSError:
                return  # the peer has gone


def ask(path: str, request: Mapping[str, Any], timeout_s: float = ANSWER_S) -> dict[str, Any]:
    """The daemon's answer. Raises SourceError when there is no daemon, no permission or no answer."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
            connection.settimeout(timeout_s)
            connection.connect(path)
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(_read_line(connection))
    except socket.timeout as error:
        raise SourceError(f"{path}: the daemon does not answer within {timeout_s:g} s") from error
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise SourceError("the daemon is not running") from error
    except PermissionError as error:
        raise SourceError(f"{path}: only root and members of the group gpuwatch may ask") from error
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: {error}") from error
    if not isinstance(answer, dict):
        raise SourceError(f"{path}: the answer is not an object")
    return answer


def _read_line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        chunk = connection.recv(1 << 16)
        if not chunk:
            break
        data += chunk
        if len(data) > MOST_BYTES:
            raise ValueError("too long")
    return data
