"""The loop only schedules: a cycle each interval, earlier when the kernel speaks or evidence has become durable."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable
from types import FrameType
from typing import Callable, Optional, Protocol

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.system.protocols import Clock, Doorbell, Log, Manager

RING_S = 1.0  # after the doorbell rang, the journal has it within this time
RING_STEP_S = 0.02
HURRY_S = 0.05
MOST_HURRIED = 20  # early cycles in a row; what takes longer can wait for its second
WARNING, INFO = 4, 6


class Waker:
    """A pipe that ends a wait: written by signal handlers and worker threads."""

    def __init__(self) -> None:
        self.fd, self._in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def wake(self) -> None:
        """End the wait. Safe from any thread and from a signal handler."""
        try:
            os.write(self._in, b"!")
        except BlockingIOError:
            pass  # it is full: the wait ends anyway

    def drain(self) -> None:
        """Forget what has been written."""
        try:
            while os.read(self.fd, 4096):
                pass
        except BlockingIOError:
            pass


class Flags:
    """What signals ask for. Handlers only set flags."""

    def __init__(self, waker: Waker) -> None:
        self.stop = False
        self.reload = False
        self._waker = waker

    def end(self) -> None:
        """Stop the loop after this cycle."""
        self.stop = True

    def install(self) -> None:
        """Take SIGTERM, SIGINT and SIGHUP."""
        signal.signal(signal.SIGTERM, self._ask_to_stop)
        signal.signal(signal.SIGINT, self._ask_to_stop)
        signal.signal(signal.SIGHUP, self._ask_to_reload)

    def _ask_to_stop(self, number: int, frame: Optional[FrameType]) -> None:
        self.stop = True
        self._waker.wake()

    def _ask_to_reload(self, number: int, frame: Optional[FrameType]) -> None:
        self.reload = True
        self._waker.wake()


class Turn(Protocol):
    """What the loop drives."""

    def run(self) -> str:
        """One cycle; the status line."""

    def listen(self) -> bool:
        """Read the journal; True when there was something."""

    def hurries(self) -> bool:
        """True when the next cycle should not wait for its time: something is half done."""

    def reload(self) -> None:
        """Read the configuration again."""


class Loop:
    """Runs a Turn until a flag says stop."""

    def __init__(
        self,
        turn: Turn,
        clock: Clock,
        manager: Manager,
        log: Log,
        doorbell: Doorbell,
        waker: Waker,
        flags: Flags,
        listen_fds: Callable[[], Iterable[int]],
        interval_s: Callable[[], float],
    ) -> None:
        self._turn, self._clock, self._manager, self._log = turn, clock, manager, log
        self._doorbell, self._waker, self._flags = doorbell, waker, flags
        self._listen_fds, self._interval_s = listen_fds, interval_s
        self._failures = 0

    def run(self) -> None:
        """READY after the first completed cycle, WATCHDOG after each one."""
        ready = False
        hurried = 0
        due = self._clock.monotonic()
        while not self._flags.stop:
            if self._flags.reload:
                self._flags.reload = False
                self._manager.notify(RELOADING="1")
                self._turn.reload()
                self._manager.notify(READY="1")
            status = self._cycle()
            if status is not None:
                ready_field = {} if ready else {"READY": "1"}
                self._manager.notify(WATCHDOG="1", STATUS=status, **ready_field)
                ready = True
            due = self._next(due)
            hurried = hurried + 1 if self._turn.hurries() else 0
            self._wait(min(due, self._clock.monotonic() + HURRY_S) if 0 < hurried <= MOST_HURRIED else due)

    def _cycle(self) -> Optional[str]:
        """The one place for a broad except: a cycle that failed is counted, told, and tried again."""
        try:
            status = self._turn.run()
        except GpuwatchError as error:
            self._failed(str(error))
            return None
        except Exception as error:
            self._failed(f"{type(error).__name__}: {error}")
            self._log.write(INFO, _traceback(error))
            return None
        self._failures = 0
        return status

    def _failed(self, why: str) -> None:
        """A failed cycle sends no WATCHDOG=1: if it lasts, systemd restarts the daemon."""
        self._failures += 1
        self._log.write(WARNING, f"the cycle failed ({self._failures} in a row): {why}")

    def _next(self, due: float) -> float:
        interval = self._interval_s()
        if self._clock.monotonic() < due:
            return due  # an early cycle moves no schedule
        late = self._clock.monotonic() - due
        if late > interval:
            self._log.write(INFO, f"the cycle is {late:.1f} s late")
            return self._clock.monotonic() + interval
        return due + interval

    def _wait(self, due: float) -> None:
        """Until the next cycle is due, or something is worth an earlier one."""
        while not self._flags.stop and not self._flags.reload:
            left = due - self._clock.monotonic()
            if left <= 0:
                return
            ready = self._poll((self._waker.fd, *self._doorbell.fds(), *self._listen_fds()), left)
            if self._waker.fd in ready:
                self._waker.drain()
                return
            if ready & set(self._doorbell.fds()) and self._doorbell.rang() and self._answer(min(left, RING_S)):
                return
            if ready & set(self._listen_fds()) and self._turn.listen():
                return

    def _answer(self, within_s: float) -> bool:
        """The kernel said something: journald passes it on within moments. True when it came."""
        until = self._clock.monotonic() + within_s
        while self._clock.monotonic() < until and not self._flags.stop:
            if self._turn.listen():
                return True
            self._poll((self._waker.fd,), RING_STEP_S)
        return False

    def _poll(self, fds: Iterable[int], timeout_s: float) -> set[int]:
        poll = select.poll()
        for fd in fds:
            poll.register(fd, select.POLLIN)
        return {fd for fd, _ in poll.poll(max(0, int(timeout_s * 1000)))}


def _traceback(error: BaseException) -> str:
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return "  in " + " < ".join(reversed(frames))
