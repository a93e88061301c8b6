"""sd_notify over a real socket, named by path or abstract."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.system.notify import NullManager, SystemdManager, manager
from gpuwatch.system.protocols import Manager


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5.0)
        name = str(tmp_path / "notify") if request.param == "path" else f"@gpuwatch-test-{os.getpid()}"
        sock.bind(name.replace("@", "\0", 1))
        yield sock, name


def test_fields_arrive_as_lines(listener: tuple[socket.socket, str]) -> None:
    sock, name = listener
    told: Manager = SystemdManager({"NOTIFY_SOCKET": name})
    told.notify(READY="1", STATUS="8 GPUs ok\nREADY=0")
    assert sock.recv(4096).decode() == "READY=1\nSTATUS=8 GPUs ok READY=0"


def test_reloading_says_when(listener: tuple[socket.socket, str]) -> None:
    sock, name = listener
    before = time.monotonic()
    SystemdManager({"NOTIFY_SOCKET": name}).notify(RELOADING="1")
    fields = dict(line.split("=") for line in sock.recv(4096).decode().splitlines())
    assert fields["RELOADING"] == "1"
    assert before - 1e-3 <= int(fields["MONOTONIC_USEC"]) / 1e6 <= time.monotonic()


def test_a_manager_that_does_not_listen_is_no_trouble(tmp_path: Path) -> None:
    SystemdManager({"NOTIFY_SOCKET": str(tmp_path / "none")}).notify(WATCHDOG="1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "full"))
        began = time.monotonic()
        for _ in range(2000):  # its queue is full long before
            SystemdManager({"NOTIFY_SOCKET": str(tmp_path / "full")}).notify(WATCHDOG="1")
        assert time.monotonic() - began < 5.0


def test_without_systemd_nothing_is_sent() -> None:
    assert isinstance(manager({}), NullManager)
    manager({}).notify(READY="1")
    assert isinstance(manager({"NOTIFY_SOCKET": "/x"}), SystemdManager)


@pytest.mark.parametrize(
    "environ, seconds",
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({}, None),
        ({"WATCHDOG_USEC": "x"}, None),
    ],
)
def test_the_watchdog_that_is_meant_for_us(environ: dict[str, str], seconds: float) -> None:
    assert SystemdManager(environ).watchdog_s == seconds
