"""The daemon's side of the NVML child: ask, wait a little, and say what is stale, stuck or gone (S7)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from gpuwatch.model.gpu import DriverState, GpuIdentity, GpuReport, GpuSample
from gpuwatch.model.gpu_change import GpuChange
from gpuwatch.model.instant import Instant
from gpuwatch.system.child import JsonChild
from gpuwatch.system.lock import Holder, HostLock
from gpuwatch.system.nvml.capabilities import Capabilities
from gpuwatch.system.nvml.information import Listed
from gpuwatch.system.nvml.inventory import Inventory
from gpuwatch.system.nvml.orphan import signal_orphan
from gpuwatch.system.nvml.patience import Asked, Child, Patience, Question, Rest, Stuck
from gpuwatch.system.nvml.pending import PendingChanges
from gpuwatch.system.nvml.wire import from_wire, readings_from_wire
from gpuwatch.system.protocols import Clock

MODULE = "gpuwatch.system.nvml.child"
DRIVER_PATH = "/proc/driver/nvidia"

_SETTLED_S = 60.0  # a child that lived this long was a good one: the pauses begin anew
_REMEMBERED = 16  # questions, to know how old a late answer is
_STATES = {
    "absent": DriverState.ABSENT,
    "no_library": DriverState.NO_LIBRARY,
    "mismatch": DriverState.MISMATCH,
    "failed": DriverState.FAILED,
}
# What belongs to the daemon alone: its talk with systemd, and anything that may hold a secret.
_PRIVATE = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "CREDENTIALS_DIRECTORY")
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")


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
        self._leaving = False  # the child was asked to end, for a release
        self._hello: Optional[float] = None
        self._question: Optional[Question] = None
        self._number = 0
        self._asked: dict[int, Asked] = {}
        self._processes_owed = False
        self._minute_due = float("-inf")
        self._failures = 0
        self._next_start = float("-inf")
        self._problem: Optional[tuple[DriverState, str]] = None
        self._stuck: Optional[Stuck] = None
        self._rest = Rest()
        self._holder: Optional[Holder] = None  # of the lock, when that is not our child
        self._inventory = Inventory()
        self._capabilities = Capabilities()
        self._newest: dict[int, tuple[Asked, GpuSample]] = {}  # by index
        self._owed: dict[int, Asked] = {}  # GPUs that have not answered, by index
        self._changes = PendingChanges()
        self._last = GpuReport(DriverState.STARTING)  # with the last good samples

    # protocols.GpuDriver

    def sample(self, with_processes: bool, spare_child: bool, wait_s: float) -> GpuReport:
        """See protocols.GpuDriver."""
        taken = self._last.taken
        self._processes_owed |= with_processes
        self._receive(0.0)
        self._bury()
        resting = self._rest.resting(self._clock.monotonic())
        if self._child is None and not resting:
            self._start()
        if self._child is not None and self._question is None and not resting and not self._ending():
            self._ask()
            self._receive(wait_s)
            self._bury()
        self._judge(spare_child)
        if self._last.taken != taken and any(sample.processes is not None for sample in self._last.samples):
            self._processes_owed = False
        report = self._report()
        if report.state is not DriverState.OK:
            self._changes.drop()
        return replace(report, changed=self._changes.told())

    def fds(self) -> tuple[int, ...]:
        """See protocols.GpuDriver."""
        return () if self._child is None or self._child.broken else (self._child.fd,)

    def expect(self, gpus: Sequence[GpuIdentity]) -> None:
        """See protocols.GpuDriver."""
        self._inventory.expect(gpus)

    def change(self, change: GpuChange) -> None:
        """See protocols.GpuDriver."""
        self._changes.add(change)

    def pause(self, why: str) -> None:
        """See protocols.GpuDriver. What is under way now is still taken."""
        self._rest.pause(why, self._clock.monotonic(), self._patience.probe_s)

    def release(self, for_s: float) -> None:
        """See protocols.GpuDriver. It has ended when a report's `child_pid` is 0; one that hangs can't be ended."""
        self._rest.release(self._clock.monotonic(), for_s)
        if self._child is not None:
            self._child.hang_up()
            self._leaving = True

    def resume(self) -> None:
        """See protocols.GpuDriver."""
        self._rest.end()

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
        waits = str(self._patience.gpu_s), str(self._patience.prompt_s)
        arguments = (self._lock_path, self._driver_path, *waits)
        try:
            self._child = self._spawn(arguments)
        except OSError as error:
            self._problem = (DriverState.FAILED, f"can't start a process that talks to the driver: {error.strerror}")
            self._back_off()
            return
        self._child_started, self._hello, self._minute_due = now, None, float("-inf")
        self._newest, self._owed = {}, {}
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
        self._changes.forget()
        if self._leaving:
            self._leaving, self._stuck = False, None  # whatever hung is gone
        else:
            self._back_off()
        if self._rest.why:
            self._rest.next_probe = self._clock.monotonic() + self._patience.probe_s

    def _back_off(self) -> None:
        pause_s = min(self._patience.longest_pause_s, self._patience.pause_s * 2.0**self._failures)
        self._next_start = self._clock.monotonic() + pause_s
        self._failures = min(self._failures + 1, 10)

    def _ending(self) -> bool:
        return self._leaving or (self._stuck is not None and self._stuck.asked_to_end_at is not None)

    # Questions and answers

    def _ask(self) -> None:
        assert self._child is not None
        now = self._clock.monotonic()
        self._number += 1
        asked = Asked(self._clock.now(), now)
        self._question = Question(self._number, asked, now >= self._minute_due, bool(self._rest.why))
        if self._question.probe:
            self._child.send({"op": "probe", "id": self._number})
            return
        self._asked[self._number] = asked
        self._asked.pop(self._number - _REMEMBERED, None)
        due: dict[str, Any] = {"processes": self._processes_owed, "minute": self._question.with_minute}
        # Only to a child that has told what is there, about a driver that answers.
        if self._newest and self._report().state is DriverState.OK:
            due["changes"] = self._changes.hand_over(asked, self._patience.silent_s)
        self._changes.drop()
        self._child.send({"op": "sample", "id": self._number, **due})

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
            self._capabilities = Capabilities()
        elif message.get("done", "ok") != "ok":
            self._refused(str(message["done"]), str(message.get("reason", "")))
        elif "gpu" in message:
            self._take_sample(int(message["id"]), from_wire(message["gpu"]))
        elif "minute" in message:
            self._take_minute(int(message["id"]), message["minute"])
        elif "changed" in message:
            self._changes.take(message["changed"])
        elif "listed" in message:
            self._inventory.listed_by_kernel(Listed(str(a), str(b), str(c)) for a, b, c in message["listed"])
        elif self._question is None or message["id"] != self._question.number:
            return  # the late end of a question that was given up
        elif "probe" in message:
            self._question = self._stuck = self._problem = None
            self._rest.end()
        else:
            question, self._question = self._question, None
            unanswered = [int(index) for index in message["unanswered"]]
            self._answered(question, unanswered, str(message["driver"]), str(message["library"]))

    def _take_sample(self, number: int, sample: GpuSample) -> None:
        self._owed.pop(sample.index, None)
        self._capabilities.note(sample)
        if sample.index >= 0 and number in self._asked:
            self._newest[sample.index] = self._asked[number], sample
        if self._question is not None and self._question.number == number:
            self._question.samples.append(sample)

    def _take_minute(self, number: int, minute: Mapping[str, Any]) -> None:
        uuid, readings = str(minute["uuid"]), readings_from_wire(minute["readings"])
        self._capabilities.note_slow(uuid, readings)
        if number in self._asked:
            self._inventory.note_slow(uuid, self._asked[number].at, readings)

    def _refused(self, state: str, reason: str) -> None:
        """The child can't read anything and ends."""
        self._question = None
        if state == "locked":  # taken between our look at it and the child's; the next look tells more
            self._problem = self._problem or (DriverState.STARTING, reason)
            return
        self._problem = (_STATES.get(state, DriverState.FAILED), reason)
        self._stuck = None

    def _answered(self, question: Question, unanswered: list[int], driver: str, library: str) -> None:
        now = self._clock.monotonic()
        if now - question.asked.monotonic > self._patience.silent_s:
            return  # it answers again, but these readings may be as old as the question: ask anew
        self._problem = None
        if question.with_minute:
            self._minute_due = question.asked.monotonic + self._patience.minute_s
        for index in unanswered:
            self._owed.setdefault(index, question.asked)
        owed = {index: self._owed[index] for index in unanswered}
        hanging = {i: asked for i, asked in owed.items() if now - asked.monotonic >= self._patience.gpu_s}
        late = self._late(question, set(owed) - set(hanging))
        if unanswered and not question.samples and not any(map(self._is_news, late)):
            oldest = min(owed.values(), key=lambda asked: asked.monotonic)
            self._be_stuck(oldest.at, oldest.monotonic, "the driver")
            return
        if hanging:
            oldest = min(hanging.values(), key=lambda asked: asked.monotonic)
            names = ", ".join(f"GPU {index}" for index in sorted(hanging))
            self._be_stuck(oldest.at, oldest.monotonic, names, whole=False)
        else:
            self._stuck = None
        silent = sorted(set(owed) - {sample.index for sample in late})
        samples = self._inventory.complete([*question.samples, *late], silent)
        self._last = replace(
            self._last, taken=question.asked.at, samples=samples, driver_version=driver, library_path=library
        )

    def _late(self, question: Question, indexes: Iterable[int]) -> list[GpuSample]:
        """Of GPUs that are slow: the newest readings, with their age, while they are not stale."""
        there = {sample.uuid for sample in question.samples}
        late = []
        for index in indexes:
            asked, sample = self._newest.get(index, (question.asked, None))
            age = question.asked.monotonic - asked.monotonic
            if sample is not None and sample.uuid not in there and age <= self._patience.silent_s:
                late.append(replace(sample, taken=asked.at))
        return late

    def _is_news(self, sample: GpuSample) -> bool:
        """It was in no report yet."""
        told = (self._last.taken_of(each) for each in self._last.samples if each.uuid == sample.uuid)
        return sample.taken not in told

    # Silence

    def _be_stuck(self, since: Instant, since_monotonic: float, who: str, whole: bool = True) -> None:
        if self._stuck is None:
            self._stuck = Stuck(since, since_monotonic, who, whole, since_monotonic)
        elif whole and not self._stuck.whole:
            self._stuck.another_culprit(since_monotonic)
        self._stuck.who, self._stuck.whole = who, whole

    def _judge(self, spare_child: bool) -> None:
        """Notice silence, and end a child that stays silent: asked first, killed last."""
        now = self._clock.monotonic()
        question = self._question
        if question is not None:
            waits_since = max(question.asked.monotonic, self._hello or 0.0)
            limit = self._patience.silent_s if self._hello is not None else self._patience.start_s
            if now - waits_since > limit:
                self._be_stuck(question.asked.at, question.asked.monotonic, "the driver")
        elif self._leaving and now - self._rest.released_at > self._patience.silent_s:
            self._be_stuck(self._clock.now(), now, "the driver")
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
        report = replace(
            self._last,
            child_pid=0 if child is None else child.pid,
            capabilities=self._capabilities.table,
            new=self._inventory.new,
            missing=self._inventory.missing,
        )
        stuck, now = self._stuck, self._clock.monotonic()
        if stuck is not None:
            silent_for = now - stuck.since_monotonic
            if silent_for > self._patience.silent_s or not stuck.whole:
                pids = {pid for pid in (report.child_pid, self._holder.pid if self._holder else 0) if pid}
                report = replace(report, reason=stuck.words(), stuck_since=stuck.since, stuck_pids=tuple(sorted(pids)))
                if stuck.whole:
                    return replace(report, state=DriverState.SILENT)
        if self._rest.released(now):
            why = "given up on request, for a repair"
            return self._at_rest(report, DriverState.RELEASED, why, self._rest.released_until - now)
        if self._rest.why:
            why = f"driver calls are paused {self._rest.why}, until it answers a probe"
            return self._at_rest(report, DriverState.PAUSED, why, max(0.0, self._rest.next_probe - now))
        if stuck is not None and report.stuck_since is not None:
            return replace(report, state=DriverState.OK)
        if self._problem is not None:
            return replace(report, state=self._problem[0], reason=self._problem[1])
        if report.taken is None:
            return replace(report, state=DriverState.STARTING, reason="waiting for the driver's first answer")
        return replace(report, state=DriverState.OK)

    def _at_rest(self, report: GpuReport, state: DriverState, why: str, left_s: float) -> GpuReport:
        now = self._clock.now()
        resumes = Instant(now.boot_id, now.boottime_s + left_s, now.utc_s + left_s)
        return replace(report, state=state, reason=why, resumes=resumes)
