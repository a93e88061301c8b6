"""The daemon's side of the NVML child: ask, wait a little, and say what is stale, stuck or gone (S7)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional, Protocol

from gpuwatch.model.gpu import DriverState, GpuReport, GpuSample
from gpuwatch.model.instant import Instant
from gpuwatch.model.reading import failed
from gpuwatch.system.child import JsonChild
from gpuwatch.system.lock import Holder, HostLock
from gpuwatch.system.nvml.orphan import signal_orphan
from gpuwatch.system.nvml.wire import UNIDENTIFIED, from_wire
from gpuwatch.system.protocols import Clock

MODULE = "gpuwatch.system.nvml.child"
DRIVER_PATH = "/proc/driver/nvidia"

_SETTLED_S = 60.0  # a child that lived this long was a good one: the pauses begin anew
_STATES = {
    "absent": DriverState.ABSENT,
    "no_library": DriverState.NO_LIBRARY,
    "mismatch": DriverState.MISMATCH,
    "failed": DriverState.FAILED,
}
# What belongs to the daemon alone: its talk with systemd, and anything that may hold a secret.
_PRIVATE = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "CREDENTIALS_DIRECTORY")
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")


@dataclass(frozen=True)
class Patience:
    """Seconds. A child may take `start_s` to say hello; a question is late after `silent_s`; a child that
    is silent is asked to end after `end_s` and killed `kill_s` later. `gpu_s`: how long the child waits for
    one GPU before it gives the others. Before another child there is a pause, `pause_s` at first, doubled each
    time up to `longest_pause_s`."""

    start_s: float = 10.0
    silent_s: float = 3.0
    end_s: float = 120.0
    kill_s: float = 60.0
    gpu_s: float = 2.0
    pause_s: float = 1.0
    longest_pause_s: float = 60.0


@dataclass
class _Question:
    number: int
    asked: Instant
    asked_monotonic: float
    samples: list[GpuSample] = field(default_factory=list)


@dataclass
class _Stuck:
    """Since when nothing, or nothing from some GPUs, was heard."""

    since: Instant
    since_monotonic: float
    who: str = "the driver"  # the subject of "... does not answer"
    whole: bool = True
    ladder_from: float = 0.0  # from when on its culprit is silent; another one starts anew
    asked_to_end_at: Optional[float] = None
    killed: bool = False

    def another_culprit(self, now: float) -> None:
        self.ladder_from, self.asked_to_end_at, self.killed = now, None, False


class Child(Protocol):
    """What the client needs of system.child.JsonChild."""

    broken: str

    @property
    def pid(self) -> int: ...
    @property
    def fd(self) -> int: ...
    @property
    def end(self) -> str: ...
    def alive(self) -> bool: ...
    def send(self, message: Mapping[str, Any]) -> None: ...
    def receive(self) -> list[dict[str, Any]]: ...
    def wait_readable(self, timeout_s: float) -> bool: ...
    def hang_up(self) -> None: ...
    def signal(self, number: signal.Signals) -> None: ...
    def reap(self, wait_s: float) -> bool: ...
    def release(self) -> None: ...


def spawn_child(arguments: Sequence[str]) -> JsonChild:
    """The real child, without what belongs to the daemon alone. Raises OSError."""
    environment = {
        name: text
        for name, text in os.environ.items()
        if name not in _PRIVATE and not any(word in name.upper() for word in _SECRET)
    }
    return JsonChild(MODULE, arguments, environment)


class NvmlClient:
    """Implements protocols.GpuDriver.

    At most one child lives on the host: the child holds the lock at `lock_path` until it is really gone,
    and while anybody holds it no other is started, not even by a later start of gpuwatch.
    """

    def __init__(
        self,
        clock: Clock,
        lock_path: str,
        driver_path: str = DRIVER_PATH,
        spawn: Callable[[Sequence[str]], Child] = spawn_child,
        patience: Optional[Patience] = None,
    ) -> None:
        """Starts nothing; the first sample() does."""
        self._clock, self._lock_path, self._driver_path = clock, lock_path, driver_path
        self._spawn, self._patience = spawn, patience or Patience()
        self._child: Optional[Child] = None
        self._child_started = 0.0
        self._hello: Optional[float] = None
        self._question: Optional[_Question] = None
        self._number = 0
        self._processes_owed = False
        self._failures = 0
        self._next_start = float("-inf")
        self._problem: Optional[tuple[DriverState, str]] = None
        self._stuck: Optional[_Stuck] = None
        self._holder: Optional[Holder] = None  # of the lock, when that is not our child
        self._known: dict[str, GpuSample] = {}
        self._last = GpuReport(DriverState.STARTING)  # with the last good samples

    # protocols.GpuDriver

    def sample(self, with_processes: bool, spare_child: bool, wait_s: float) -> GpuReport:
        """See protocols.GpuDriver."""
        taken = self._last.taken
        self._processes_owed |= with_processes
        self._receive(0.0)
        self._bury()
        if self._child is None:
            self._start()
        if self._child is not None and self._question is None and not self._ending():
            self._ask(self._processes_owed)
            self._receive(wait_s)
            self._bury()
        self._judge(spare_child)
        if self._last.taken != taken and any(sample.processes is not None for sample in self._last.samples):
            self._processes_owed = False
        return self._report()

    def fds(self) -> tuple[int, ...]:
        """See protocols.GpuDriver."""
        return () if self._child is None or self._child.broken else (self._child.fd,)

    def close(self, wait_s: float) -> None:
        """See protocols.GpuDriver."""
        if self._child is not None:
            self._child.hang_up()
            self._child.reap(wait_s)
            self._child.release()
            self._child = self._question = None

    # The child's life

    def _start(self) -> None:
        now = self._clock.monotonic()
        if now < self._next_start:
            return
        before, self._holder = self._holder, HostLock(self._lock_path).holder()
        if self._holder is not None:
            self._be_stuck(self._clock.now(), now, "an earlier process of gpuwatch that talks to the driver")
            if before is not None and before.pid != self._holder.pid and self._stuck is not None:
                self._stuck.another_culprit(now)
            return
        if not os.path.exists(self._driver_path):
            # Not even a child: nvmlInit would load the module (S14), and whatever hung before is gone.
            self._stuck = None
            self._problem = (DriverState.ABSENT, f"no NVIDIA driver is loaded ({self._driver_path} does not exist)")
            return
        arguments = (self._lock_path, self._driver_path, str(self._patience.gpu_s))
        try:
            self._child = self._spawn(arguments)
        except OSError as error:
            self._problem = (DriverState.FAILED, f"can't start a process that talks to the driver: {error.strerror}")
            self._back_off()
            return
        self._child_started, self._hello = now, None
        if self._stuck is not None:
            self._stuck.another_culprit(now)

    def _bury(self) -> None:
        """Forget a child that has ended, and say why if it did not do so itself."""
        child = self._child
        if child is None or not child.broken or (child.alive() and not child.reap(0.0)):
            return
        if self._clock.monotonic() - self._child_started >= _SETTLED_S:
            self._failures = 0
        if not self._ending() and self._problem is None:
            self._problem = (DriverState.FAILED, f"the process that talks to the driver has ended ({child.end})")
        child.release()
        self._child = self._question = None
        self._back_off()

    def _back_off(self) -> None:
        pause_s = min(self._patience.longest_pause_s, self._patience.pause_s * 2.0**self._failures)
        self._next_start = self._clock.monotonic() + pause_s
        self._failures = min(self._failures + 1, 10)

    def _ending(self) -> bool:
        return self._stuck is not None and self._stuck.asked_to_end_at is not None

    # Questions and answers

    def _ask(self, with_processes: bool) -> None:
        assert self._child is not None
        self._number += 1
        self._question = _Question(self._number, self._clock.now(), self._clock.monotonic())
        self._child.send({"op": "sample", "id": self._number, "processes": with_processes})

    def _receive(self, wait_s: float) -> None:
        """Take what has come; with `wait_s`, until the question is answered."""
        deadline = self._clock.monotonic() + wait_s
        while self._child is not None:
            for message in self._child.receive():
                try:
                    self._take(message)
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    self._problem = (DriverState.FAILED, f"the driver's child makes no sense: {error!r}")
                    self._child.hang_up()
            left = deadline - self._clock.monotonic()
            if self._question is None or self._child.broken or left <= 0 or not self._child.wait_readable(left):
                return

    def _take(self, message: dict[str, Any]) -> None:
        if "hello" in message:
            self._hello = self._clock.monotonic()
            self._last = replace(self._last, binding=str(message["hello"]["binding"]))
            return
        question = self._question
        if message.get("done", "ok") != "ok":
            self._refused(str(message["done"]), str(message.get("reason", "")))
        elif question is None or message["id"] != question.number:
            return  # the late answer to a question that was given up
        elif "gpu" in message:
            question.samples.append(from_wire(message["gpu"]))
        else:
            self._question = None
            unanswered = [int(index) for index in message["unanswered"]]
            self._answered(question, unanswered, str(message["driver"]), str(message["library"]))

    def _refused(self, state: str, reason: str) -> None:
        """The child can't read anything and ends."""
        self._question = None
        if state == "locked":  # taken between our look at it and the child's; the next look tells more
            self._problem = self._problem or (DriverState.STARTING, reason)
            return
        self._problem = (_STATES.get(state, DriverState.FAILED), reason)
        self._stuck = None

    def _answered(self, question: _Question, unanswered: list[int], driver: str, library: str) -> None:
        if self._clock.monotonic() - question.asked_monotonic > self._patience.silent_s:
            return  # it answers again, but these readings may be as old as the question: ask anew
        self._problem = None
        if unanswered and not question.samples:
            self._be_stuck(question.asked, question.asked_monotonic, "the driver")
            return
        if unanswered:
            names = ", ".join(f"GPU {index}" for index in unanswered)
            self._be_stuck(question.asked, question.asked_monotonic, names, whole=False)
        else:
            self._stuck = None
        samples = self._complete(question.samples, unanswered)
        self._last = replace(
            self._last, taken=question.asked, samples=samples, driver_version=driver, library_path=library
        )

    def _complete(self, answered: list[GpuSample], unanswered: list[int]) -> tuple[GpuSample, ...]:
        """With the GPUs that did not answer, and those that the driver no longer lists (N10)."""
        samples = list(answered)
        listed = {sample.uuid for sample in samples}
        missing = {uuid: known for uuid, known in self._known.items() if uuid not in listed}
        by_index = {known.index: known for known in missing.values()}
        for position, sample in enumerate(samples):
            if sample.uuid.startswith(UNIDENTIFIED) and sample.index in by_index:
                known = missing.pop(by_index[sample.index].uuid, None)
                if known is not None:
                    samples[position] = replace(sample, uuid=known.uuid, name=known.name, pci=known.pci)
        for index in unanswered:
            known = by_index.get(index, GpuSample(f"{UNIDENTIFIED}{index}", index, "unknown", ""))
            missing.pop(known.uuid, None)
            silent = failed("the driver does not answer for this GPU")
            readings = {name: silent for name, reading in known.readings.items() if not reading.unsupported}
            samples.append(replace(known, readings=readings or {"gpu.temperature": silent}, processes=None))
        for known in missing.values():
            why = known.lost or "it is not listed by the driver any more"
            samples.append(replace(known, readings={}, processes=None, lost=why))
        self._known.update((sample.uuid, sample) for sample in samples if not sample.uuid.startswith(UNIDENTIFIED))
        return tuple(sorted(samples, key=lambda sample: (sample.index, sample.uuid)))

    # Silence

    def _be_stuck(self, since: Instant, since_monotonic: float, who: str, whole: bool = True) -> None:
        if self._stuck is None:
            self._stuck = _Stuck(since, since_monotonic, who, whole, since_monotonic)
        elif whole and not self._stuck.whole:
            self._stuck.another_culprit(since_monotonic)
        self._stuck.who, self._stuck.whole = who, whole

    def _judge(self, spare_child: bool) -> None:
        """Notice silence, and end a child that stays silent: asked first, killed last."""
        now = self._clock.monotonic()
        question = self._question
        if question is not None:
            waits_since = max(question.asked_monotonic, self._hello or 0.0)
            limit = self._patience.silent_s if self._hello is not None else self._patience.start_s
            if now - waits_since > limit:
                self._be_stuck(question.asked, question.asked_monotonic, "the driver")
        stuck = self._stuck
        # A child in which only some GPUs hang still serves the others: it is left alone.
        if stuck is None or not stuck.whole or spare_child:
            return
        if stuck.asked_to_end_at is None:
            if now - stuck.ladder_from > self._patience.end_s:
                stuck.asked_to_end_at = now
                if self._child is not None:
                    self._child.hang_up()
                self._signal(signal.SIGTERM)
        elif not stuck.killed and now - stuck.asked_to_end_at > self._patience.kill_s:
            stuck.killed = True
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.signal(number)
        elif self._holder is not None:
            signal_orphan(self._holder, MODULE, number)

    # What is said

    def _report(self) -> GpuReport:
        child = self._child
        report = replace(self._last, child_pid=0 if child is None else child.pid)
        stuck = self._stuck
        if stuck is not None:
            silent_for = self._clock.monotonic() - stuck.since_monotonic
            if silent_for > self._patience.silent_s or not stuck.whole:
                pids = {pid for pid in (report.child_pid, self._holder.pid if self._holder else 0) if pid}
                state = DriverState.SILENT if stuck.whole else DriverState.OK
                return replace(
                    report,
                    state=state,
                    reason=_does_not_answer(stuck.who),
                    stuck_since=stuck.since,
                    stuck_pids=tuple(sorted(pids)),
                )
        if self._problem is not None:
            return replace(report, state=self._problem[0], reason=self._problem[1])
        if report.taken is None:
            return replace(report, state=DriverState.STARTING, reason="waiting for the driver's first answer")
        return replace(report, state=DriverState.OK)


def _does_not_answer(who: str) -> str:
    return f"{who} {'do' if ', ' in who else 'does'} not answer"
