"""A child process spoken to in JSON lines over its standard input and output, never blocking on it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Optional

MOST_BYTES = 8 << 20  # a line or a backlog longer than this is a broken child


class JsonChild:
    """`python -m MODULE` with pipes; its standard error goes where ours goes.

    The child ends by itself when its standard input closes, so it does not outlive this process
    (unless it hangs in the driver, where nothing ends it). One question or answer is one line.
    """

    def __init__(self, module: str, arguments: Sequence[str] = (), env: Optional[Mapping[str, str]] = None) -> None:
        """Start it. Raises OSError when it can't be started."""
        self._process = subprocess.Popen(
            [sys.executable, *_isolation(), "-c", _BOOT, module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=None if env is None else dict(env),
            close_fds=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._stdout, False)
        self._unsent: deque[bytes] = deque()
        self._partial = b""
        self.broken = ""  # why nothing more can come; "" while all is well

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def fd(self) -> int:
        """Readable when receive() has something new."""
        return self._stdout

    def alive(self) -> bool:
        """False once it has ended and was reaped."""
        return self._process.poll() is None

    @property
    def end(self) -> str:
        """How it ended, in words; "" while it runs."""
        code = self._process.poll()
        if code is None:
            return ""
        return f"exit code {code}" if code >= 0 else f"signal {-code}"

    def send(self, message: Mapping[str, Any]) -> None:
        """Hand over one object; what the pipe does not take now goes with a later call."""
        self._unsent.append(json.dumps(message).encode() + b"\n")
        self._flush()

    def receive(self) -> list[dict[str, Any]]:
        """The objects that have arrived. Sets `broken` at the end of output or on nonsense."""
        self._flush()
        while not self.broken:
            try:
                chunk = os.read(self._stdout, 1 << 16)
            except BlockingIOError:
                break
            except OSError as error:
                self.broken = error.strerror or "read error"
                break
            if not chunk:
                self.broken = "ended"
                break
            self._partial += chunk
            if len(self._partial) > MOST_BYTES:
                self.broken = "answers without end"
        *lines, self._partial = self._partial.split(b"\n")
        return [message for message in map(self._parse, lines) if message is not None]

    def wait_readable(self, timeout_s: float) -> bool:
        """True when there is something to receive within `timeout_s`."""
        poll = select.poll()
        poll.register(self._stdout, select.POLLIN)
        return bool(poll.poll(max(0, int(timeout_s * 1000))))

    def hang_up(self) -> None:
        """Close its standard input: the polite way to end it."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._unsent.clear()
            self._process.stdin.close()
            self._stdin = -1  # the number may soon name another file

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when it has ended."""
        self._process.send_signal(number)

    def reap(self, wait_s: float) -> bool:
        """True when it has ended within `wait_s`."""
        try:
            self._process.wait(max(0.0, wait_s))
        except subprocess.TimeoutExpired:
            return False
        return True

    def release(self) -> None:
        """Close our ends; for a child that is left behind or has ended."""
        self.hang_up()
        if self._process.stdout is not None:
            self._process.stdout.close()
        # A child left behind is stuck in the kernel: nobody can wait for it, and Popen must not warn.
        self._process.returncode = self._process.poll() if self._process.poll() is not None else -1

    def _parse(self, line: bytes) -> Optional[dict[str, Any]]:
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            self.broken = "answers that are not JSON objects"
            return None
        return message

    def _flush(self) -> None:
        while self._unsent:
            try:
                written = os.write(self._stdin, self._unsent[0])
            except BlockingIOError:
                return
            except (OSError, ValueError):
                self._unsent.clear()
                self.broken = self.broken or "ended"
                return
            if written < len(self._unsent[0]):
                self._unsent[0] = self._unsent[0][written:]
            else:
                self._unsent.popleft()


_PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The child finds the same gpuwatch (and the pynvml that is shipped beside it) whatever the environment says,
# and nothing in the current directory. Its sys.argv is that of a program: [name, *arguments].
_BOOT = f"""import runpy, sys
sys.path[:] = [{_PACKAGE_ROOT!r}, *filter(None, sys.path)]
runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"""


def _isolation() -> list[str]:
    return ["-I"] if sys.flags.isolated else []
