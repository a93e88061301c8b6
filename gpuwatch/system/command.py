"""The one gate through which programs are run: argv, no stdin, a minimal environment, a deadline."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Optional

from gpuwatch.model.errors import SourceError

MINIMAL_ENV: Mapping[str, str] = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "SYSTEMD_COLORS": "0",
    "SYSTEMD_PAGER": "",
}
MOST_BYTES = 1 << 20
_REAP_S = 1.0  # how long a killed program may take to be gone; one stuck in the kernel is left behind


@dataclass(frozen=True)
class CommandResult:
    """What a program did. `returncode` is None when the deadline ended it, negative for a signal."""

    argv: tuple[str, ...]
    returncode: Optional[int]
    stdout: str
    stderr: str
    cut: bool = False  # it wrote more than was kept

    @property
    def ok(self) -> bool:
        """True when it ended by itself with 0."""
        return self.returncode == 0

    def problem(self) -> str:
        """Why it is not ok, in one line: the program's last words, cut at 300 characters."""
        if self.returncode is None:
            return f"{self.argv[0]} did not answer in time"
        words = " ".join(self.stderr.split())[:300]
        return words or f"{self.argv[0]} ended with {self.returncode}"


def run(
    argv: Sequence[str], timeout_s: float, env: Mapping[str, str] = MINIMAL_ENV, most_bytes: int = MOST_BYTES
) -> CommandResult:
    """Run a program and wait at most `timeout_s`; then its whole process group is killed.

    Keeps at most `most_bytes` of each output and throws the rest away. Raises SourceError when it
    can't be started.
    """
    deadline = time.monotonic() + timeout_s
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd="/",
            close_fds=True,
            start_new_session=True,
        )
    except OSError as error:
        raise SourceError(f"can't run {argv[0]}: {error.strerror}") from error
    assert process.stdout is not None and process.stderr is not None
    out, err = _Kept(most_bytes), _Kept(most_bytes)
    try:
        in_time = _drain({process.stdout: out, process.stderr: err}, deadline) and _reap(process, deadline)
        if not in_time:
            _kill_group(process)
    finally:
        process.stdout.close()
        process.stderr.close()
    return CommandResult(
        tuple(argv), process.returncode if in_time else None, out.text(), err.text(), out.cut or err.cut
    )


class _Kept:
    """The first bytes of an output."""

    def __init__(self, most: int) -> None:
        self._data, self._most, self.cut = b"", most, False

    def add(self, chunk: bytes) -> None:
        room = self._most - len(self._data)
        self._data += chunk[:room]
        self.cut = self.cut or len(chunk) > room

    def text(self) -> str:
        return self._data.decode("utf-8", "replace")


def _drain(outputs: Mapping[IO[bytes], _Kept], deadline: float) -> bool:
    """Read until every output has ended; False when the deadline came first."""
    with selectors.DefaultSelector() as selector:
        for stream, kept in outputs.items():
            selector.register(stream, selectors.EVENT_READ, kept)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, 1 << 16)
                if chunk:
                    key.data.add(chunk)
                else:
                    selector.unregister(key.fileobj)
    return True


def _reap(process: subprocess.Popen[bytes], deadline: float) -> bool:
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all of it is gone already
    if not _reap(process, time.monotonic() + _REAP_S):
        process.returncode = -1  # stuck in the kernel: nobody can wait for it, and Popen must not warn
