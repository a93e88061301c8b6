"""A connection to a D-Bus message bus on which nothing waits without a deadline.

jeepney gives the messages (it does no I/O here). Its own blocking connection has no deadline for
Hello and for sending, and a bus that has hung must not hang us (S7).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import time
from typing import Any, Optional

SYSTEM_BUS = "unix:path=/run/dbus/system_bus_socket"
_BUS = {"bus_name": "org.freedesktop.DBus", "interface": "org.freedesktop.DBus"}


class BusDown(Exception):
    """There is no bus to talk to; the request was not sent."""


class BusSilent(Exception):
    """The request was sent, at least in part, and no answer came."""


class BusRefused(Exception):
    """The other side answered with an error."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text or name)
        self.name = name  # e.g. org.freedesktop.systemd1.NoSuchUnit


class BusConnection:
    """One connection; not for use by two threads at a time."""

    def __init__(self, address: str, deadline: float) -> None:
        """Connect, authenticate and say Hello until `deadline` (CLOCK_MONOTONIC). Raises BusDown."""
        self._serials = itertools.count(1)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._until(deadline)
            self._socket.connect(socket_path(address))
            self._authenticate(deadline)
            self.call("/org/freedesktop/DBus", _BUS["bus_name"], _BUS["interface"], "Hello", deadline=deadline)
        except (OSError, BusSilent, BusRefused) as error:
            self.close()
            raise BusDown(f"no D-Bus at {address}: {_words(error)}") from error
        except BusDown:
            self.close()
            raise

    def call(
        self,
        path: str,
        bus_name: str,
        interface: str,
        method: str,
        signature: Optional[str] = None,
        body: tuple[Any, ...] = (),
        *,
        deadline: float,
    ) -> tuple[Any, ...]:
        """The body of the reply. Raises BusDown, BusSilent or BusRefused; after the first two the
        connection is closed and of no more use."""
        import jeepney  # a quiet daemon does not need it

        address = jeepney.DBusAddress(path, bus_name=bus_name, interface=interface)
        serial = next(self._serials)
        message = jeepney.new_method_call(address, method, signature, body)
        self._send(message.serialise(serial=serial), deadline)
        while True:
            reply = self._receive(deadline)
            if reply.header.fields.get(jeepney.HeaderFields.reply_serial, -1) != serial:
                continue  # a signal to us (NameAcquired), or the answer to an older question
            if reply.header.message_type is jeepney.MessageType.error:
                name = str(reply.header.fields.get(jeepney.HeaderFields.error_name, ""))
                raise BusRefused(name, str(reply.body[0]) if reply.body else "")
            return tuple(reply.body)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _send(self, data: bytes, deadline: float) -> None:
        sent = 0
        try:
            while sent < len(data):
                self._until(deadline)
                sent += self._socket.send(data[sent:], socket.MSG_NOSIGNAL)
        except OSError as error:
            self.close()
            # A message that is not there as a whole is never acted on by the bus.
            raise BusDown(f"the D-Bus connection is gone: {_words(error)}") from error

    def _receive(self, deadline: float) -> Any:
        try:
            while not self._inbox:
                self._until(deadline)
                data = self._socket.recv(1 << 16)
                if not data:
                    raise ConnectionResetError("the bus hung up")
                self._inbox.extend(self._parser.feed(data))
        except OSError as error:
            self.close()
            raise BusSilent(f"no answer over D-Bus: {_words(error)}") from error
        return self._inbox.pop(0)

    def _authenticate(self, deadline: float) -> None:
        """SASL EXTERNAL: the bus sees our user id by the socket's credentials."""
        from jeepney.low_level import Parser

        self._socket.sendall(b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\n")
        answer = b""
        while not answer.endswith(b"\r\n"):
            self._until(deadline)
            chunk = self._socket.recv(512)
            if not chunk or len(answer) > 4096:
                raise ConnectionResetError("no authentication")
            answer += chunk
        if not answer.startswith(b"OK "):
            raise PermissionError("authentication refused")
        self._until(deadline)
        self._socket.sendall(b"BEGIN\r\n")
        self._parser = Parser()
        self._inbox: list[Any] = []

    def _until(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout("timed out")
        with contextlib.suppress(OSError):  # a socket that is closed says so at the next call
            self._socket.settimeout(left)


def socket_path(address: str) -> str:
    """The socket behind "unix:path=P" or "unix:abstract=N" (with "," options); raises BusDown for others."""
    kind, _, rest = address.partition(":")
    options = dict(option.partition("=")[::2] for option in rest.split(","))
    if kind == "unix" and "path" in options:
        return options["path"]
    if kind == "unix" and "abstract" in options:
        return "\0" + options["abstract"]
    raise BusDown(f"{address!r} is not the address of a unix socket")


def _words(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
