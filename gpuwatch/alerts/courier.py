"""The daemon's end of the sender child: starts it when there is something to send, never waits for it (S7)."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from gpuwatch.system.child import JsonChild
from gpuwatch.system.protocols import Clock

MODULE = "gpuwatch.alerts.sender"
SILENT_S = 60.0  # no answer for so long while one is owed: it hangs
IDLE_S = 50.0  # hang up before the child ends by itself, so that no message meets a closing door
FIRST_PAUSE_S = 2.0
LAST_PAUSE_S = 60.0
_KEPT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
)


class SenderCourier:
    """protocols.Courier over a JsonChild. A child that ends or hangs costs a retry of what it had."""

    def __init__(self, clock: Clock, module: str = MODULE, silent_s: float = SILENT_S, idle_s: float = IDLE_S) -> None:
        self._clock = clock
        self._module = module
        self._silent_s = silent_s
        self._idle_s = idle_s
        self._child: JsonChild | None = None
        self._leaving: list[JsonChild] = []  # hung up or killed, not reaped yet
        self._owed: list[str] = []  # ids without an answer
        self._told: list[Mapping[str, object]] = []
        self._last_sign_s = 0.0
        self._failures = 0
        self._not_before_s = 0.0

    def send(self, requests: tuple[Mapping[str, object], ...]) -> None:
        """Hand over messages; what can't be handed over is told as a failure that may be retried."""
        self._collect()
        for request in requests:
            problem = self._start()
            if problem or self._child is None:
                self._fail(str(request["id"]), problem)
                continue
            if not self._owed:
                self._last_sign_s = self._clock.monotonic()
            self._owed.append(str(request["id"]))
            self._child.send(request)

    def outcomes(self) -> tuple[Mapping[str, object], ...]:
        """Answers since the last call, and failures for what a broken or silent child had."""
        self._collect()
        self._leaving = [child for child in self._leaving if not _gone(child)]
        told, self._told = tuple(self._told), []
        return told

    def _collect(self) -> None:
        if self._child is None:
            return
        now_s = self._clock.monotonic()
        for answer in self._child.receive():
            self._take(answer, now_s)
        if self._child.broken:
            self._lose(f"the sender {self._child.broken}" if self._owed else "")
        elif self._owed and now_s - self._last_sign_s > self._silent_s:
            self._lose(f"no answer from the sender for {self._silent_s:.0f} s")
        elif not self._owed and now_s - self._last_sign_s > self._idle_s:
            self._part(kill=False)

    def fds(self) -> tuple[int, ...]:
        """The child's output."""
        return () if self._child is None else (self._child.fd,)

    @property
    def pid(self) -> int | None:
        """The child's process id, if there is one."""
        return None if self._child is None else self._child.pid

    def close(self, wait_s: float) -> None:
        """End the child: politely within `wait_s`, else killed. What it owes is told by outcomes() as failed."""
        last = self._child
        self._part(kill=False)
        for child in self._leaving:
            if not child.reap(wait_s if child is last else 0.0):
                child.signal(signal.SIGKILL)
                child.reap(0.5)
            if child is last:
                for answer in child.receive():
                    self._take(answer, self._clock.monotonic())
            child.release()
        self._leaving.clear()
        for name in self._owed:
            self._fail(name, "gpuwatch ended before the answer came")
        self._owed.clear()

    def _start(self) -> str:
        """Start a child if there is none; why not, if not."""
        if self._child is not None:
            return ""
        wait_s = self._not_before_s - self._clock.monotonic()
        if wait_s > 0:
            return f"the sender failed; it is started again in {wait_s:.0f} s"
        try:
            self._child = JsonChild(self._module, env={name: os.environ[name] for name in _KEPT if name in os.environ})
        except OSError as error:
            self._pause()
            return f"the sender can't be started: {error.strerror}"
        self._last_sign_s = self._clock.monotonic()
        return ""

    def _take(self, answer: Mapping[str, object], now_s: float) -> None:
        name = answer.get("id")
        if isinstance(name, str) and name in self._owed:
            self._owed.remove(name)
            self._told.append(answer)
            self._last_sign_s, self._failures, self._not_before_s = now_s, 0, 0.0

    def _lose(self, problem: str) -> None:
        """Give the child up; an idle one that ended by itself is no failure."""
        if problem:
            for name in self._owed:
                self._fail(name, problem)
            self._owed.clear()
            self._pause()
        self._part(kill=True)

    def _part(self, kill: bool) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if kill:
            child.signal(signal.SIGKILL)
        child.hang_up()
        self._leaving.append(child)

    def _pause(self) -> None:
        self._failures += 1
        wait_s = min(LAST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 10))
        self._not_before_s = self._clock.monotonic() + wait_s

    def _fail(self, name: str, problem: str) -> None:
        self._told.append({"id": name, "ok": False, "retryable": True, "problem": problem, "retry_after_s": 0.0})


def _gone(child: JsonChild) -> bool:
    if not child.reap(0.0):
        return False
    child.release()
    return True
