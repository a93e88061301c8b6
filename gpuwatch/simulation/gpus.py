"""GPUs and processes that exist only in memory, with figures like those of eight H100 cards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from gpuwatch.model.errors import SourceError
from gpuwatch.model.gpu import DriverState, GpuIdentity, GpuProcess, GpuReport, MigInstance, ProcessList
from gpuwatch.model.gpu_change import GONE, GpuChange, GpuChanged
from gpuwatch.model.instant import Instant
from gpuwatch.model.reading import UNSUPPORTED, Reading
from gpuwatch.simulation.gpu_card import SLOW, SLOWDOWN_C, Card, identity
from gpuwatch.system.nvml.capabilities import Capabilities
from gpuwatch.system.nvml.inventory import Inventory
from gpuwatch.system.protocols import Clock, ProcessFacts

PROBE_S, MINUTE_S = 30.0, 60.0
SILENT_S = 3.0
TICKS_A_SECOND = 100


class SimulatedGpus:
    """Implements protocols.GpuDriver. Answers at once, with the figures of the moment it is asked."""

    def __init__(self, clock: Clock, count: int = 8) -> None:
        self._clock = clock
        self._cards = [Card(identity(index), 56.0 + index % 4) for index in range(count)]
        self._state, self._reason = DriverState.OK, ""
        self._silent = False
        self._stuck_since: Optional[Instant] = None
        self._last = GpuReport(DriverState.STARTING, driver_version="580.65.06")
        self._inventory, self._capabilities = Inventory(), Capabilities()
        self._minute_taken: Optional[Instant] = None
        self._paused = ""
        self._rest_until: Optional[Instant] = None
        self._released_until: Optional[Instant] = None
        self._waiting: list[GpuChange] = []
        self._answers: list[GpuChanged] = []
        self.writes: list[GpuChange] = []  # that reached a card, refused ones too
        self.closed = False

    # protocols.GpuDriver

    def sample(self, with_processes: bool, spare_child: bool, wait_s: float) -> GpuReport:
        """See protocols.GpuDriver."""
        answers, self._answers = tuple(self._answers), []
        known, waiting, self._waiting = self._last.taken is not None, self._waiting, []
        report = self._look(self._clock.now(), with_processes)
        if known and report.state is DriverState.OK:
            self._answers = [self._carry_out(change) for change in waiting]
        return replace(report, changed=answers)

    def _look(self, now: Instant, with_processes: bool) -> GpuReport:
        until, probing = self._rest(now)
        if until is not None:
            state = DriverState.PAUSED if self._paused else DriverState.RELEASED
            reason = f"driver calls are paused {self._paused}" if self._paused else "given up on request, for a repair"
            return replace(self._last, state=state, reason=reason, resumes=until, child_pid=0)
        if self._silent:
            return self._say_nothing(now)
        if probing:
            self._paused = ""
        self._stuck_since = None
        if self._state is not DriverState.OK:
            return replace(self._last, state=self._state, reason=self._reason)
        self._last = self._report(now, with_processes)
        return self._last

    def fds(self) -> tuple[int, ...]:
        """See protocols.GpuDriver."""
        return ()

    def expect(self, gpus: Sequence[GpuIdentity]) -> None:
        """See protocols.GpuDriver."""
        self._inventory.expect(gpus)

    def change(self, change: GpuChange) -> None:
        """See protocols.GpuDriver. The answer comes with the sample after the next."""
        self._waiting.append(change)

    def pause(self, why: str) -> None:
        """See protocols.GpuDriver."""
        if not self._paused:
            self._rest_until = _later(self._clock.now(), PROBE_S)
        self._paused = why

    def release(self, for_s: float) -> None:
        """See protocols.GpuDriver."""
        self._released_until = _later(self._clock.now(), for_s)

    def resume(self) -> None:
        """See protocols.GpuDriver."""
        self._paused, self._released_until, self._rest_until = "", None, None

    def close(self, wait_s: float) -> None:
        """See protocols.GpuDriver."""
        self.closed = True

    # the hand of the test, or of the demo

    def uuid(self, index: int) -> str:
        """The UUID of a GPU."""
        return self._cards[index].identity.uuid

    def pci(self, index: int) -> str:
        """Its canonical PCI address."""
        return self._cards[index].identity.pci

    def heat(self, index: int, celsius: float) -> None:
        """Temperature; margins, clocks and the slowdown bit follow it."""
        self._cards[index].celsius = celsius
        self._cards[index].thermal_slowdown = celsius >= SLOWDOWN_C

    def work(self, index: int, busy: bool) -> None:
        """Load: utilisation, power, clocks and memory follow it."""
        self._cards[index].busy = busy

    def power_limit_w(self, index: int) -> float:
        """The power limit that is set."""
        return self._cards[index].limit_w

    def locked_mhz(self, index: int) -> Optional[tuple[int, int]]:
        """The range that the graphics clock is locked to."""
        return self._cards[index].locked_mhz

    def limit_by_hand(self, index: int, watts: float) -> None:
        """Another tool sets its power limit."""
        self._cards[index].limit_w = watts

    def refuse_changes(self, index: int, problem: str, detail: str = "as told") -> None:
        """What every change of it is answered with (GpuChanged.problem); "" ends that."""
        self._cards[index].refuses = (problem, detail if problem else "")

    def revert_changes(self, index: int) -> None:
        """Let its power limit be back at the old value with the sample after a change (A15)."""
        self._cards[index].reverts = True

    def set_reading(self, index: int, metric: str, reading: Optional[Reading]) -> None:
        """Any reading, whatever the rest says; None ends that. One that is read once a minute is read now."""
        if metric in SLOW:
            self._minute_taken = None
        if reading is None:
            self._cards[index].overrides.pop(metric, None)
        else:
            self._cards[index].overrides[metric] = reading

    def without_margins(self, index: int) -> None:
        """A card that reports no points of its own."""
        for metric in ("slowdown_margin", "shutdown_margin", "operating_margin"):
            self._cards[index].overrides[f"gpu.{metric}"] = UNSUPPORTED
        for metric in ("slowdown_point", "shutdown_point", "operating_point"):
            self._cards[index].overrides[f"gpu.{metric}"] = UNSUPPORTED

    def set_processes(self, index: int, processes: Sequence[GpuProcess], problem: Optional[str] = None) -> None:
        """What the driver lists; with `problem` the list can't be read."""
        self._cards[index].processes = ProcessList(tuple(processes) if problem is None else (), problem)

    def lose(self, index: int) -> None:
        """The card falls off the bus."""
        self._cards[index].lost = "the driver can no longer reach it (NVML error 15, GPU is lost)"

    def unlist(self, index: int) -> None:
        """The driver lists the card no longer."""
        self._cards[index].listed = False

    def find(self, index: int) -> None:
        """The card is back."""
        self._cards[index].lost, self._cards[index].listed = None, True

    def swap(self, index: int, uuid: str) -> None:
        """Another card is put into its slot."""
        self._cards[index].identity = replace(self._cards[index].identity, uuid=uuid)

    def divide(self, index: int, instances: Sequence[MigInstance]) -> None:
        """MIG mode with these instances; none ends it."""
        self._cards[index].instances = tuple(instances)

    def unify_memory(self, index: int) -> None:
        """A card without memory of its own (N6)."""
        for metric in ("total", "reserved", "used", "used_ratio"):
            self._cards[index].overrides[f"gpu.memory_{metric}"] = UNSUPPORTED

    def silence(self, silent: bool) -> None:
        """Let the driver answer nothing, or answer again."""
        self._silent = silent

    def fail(self, state: DriverState, reason: str = "") -> None:
        """The driver as a whole is in some state; OK ends that."""
        self._state, self._reason = state, reason

    def _carry_out(self, change: GpuChange) -> GpuChanged:
        now = self._clock.now()
        card = next((each for each in self._cards if each.identity.uuid == change.uuid and each.listed), None)
        if card is None:
            return GpuChanged(change.id, change.uuid, now, GONE, f"no GPU with the UUID {change.uuid} is listed")
        answer = card.change(change, now)
        if answer.problem != GONE and not change.is_question:
            self.writes.append(change)
        return answer

    def _rest(self, now: Instant) -> tuple[Optional[Instant], bool]:
        """Until when the driver is left alone; True when a probe is due."""
        for until in (self._released_until, self._rest_until if self._paused else None):
            if until is not None and (until.since(now) or 0.0) > 0:
                return until, False
        self._released_until = None
        return None, bool(self._paused)

    def _report(self, now: Instant, with_processes: bool) -> GpuReport:
        answered = []
        age = None if self._minute_taken is None else now.since(self._minute_taken)
        minute_due = age is None or age >= MINUTE_S
        for card in self._cards:
            if not card.listed:
                continue
            sample = card.sample(with_processes)
            answered.append(sample)
            self._capabilities.note(sample)
            if minute_due and sample.lost is None:
                slow = card.slow_readings()
                self._inventory.note_slow(sample.uuid, now, slow)
                self._capabilities.note_slow(sample.uuid, slow)
        self._minute_taken = now if minute_due else self._minute_taken
        return replace(
            self._last,
            state=DriverState.OK,
            reason="",
            taken=now,
            samples=self._inventory.complete(answered, []),
            child_pid=3999,
            capabilities=self._capabilities.table,
            new=self._inventory.new,
            missing=self._inventory.missing,
        )

    def _say_nothing(self, now: Instant) -> GpuReport:
        if self._stuck_since is None:
            self._stuck_since = now
        since = now.since(self._stuck_since)
        if since is None or since <= SILENT_S:
            return self._last
        return replace(
            self._last,
            state=DriverState.SILENT,
            reason="the driver does not answer",
            stuck_since=self._stuck_since,
            stuck_pids=(self._last.child_pid,) if self._last.child_pid else (),
        )


class SimulatedProcesses:
    """Implements protocols.Processes over processes that are put in by hand."""

    def __init__(self) -> None:
        self._there: dict[int, ProcessFacts] = {}
        self._hidden: set[int] = set()

    def look(self, pid: int) -> Optional[ProcessFacts]:
        """See protocols.Processes."""
        if pid in self._hidden:
            raise SourceError(f"can't look at process {pid}: Permission denied")
        return self._there.get(pid)

    def put(
        self,
        pid: int,
        cgroup: str,
        name: str = "python3.11",
        user: str = "ml-team",
        uid: int = 1001,
        started_boottime_s: float = 10.0,
        state: str = "S",
    ) -> None:
        """A process, new or changed."""
        ticks = round(started_boottime_s * TICKS_A_SECOND)
        self._there[pid] = ProcessFacts(pid, ticks, started_boottime_s, state, name, uid, user, cgroup)

    def end(self, pid: int) -> None:
        """It is gone."""
        self._there.pop(pid, None)

    def hide(self, pid: int) -> None:
        """/proc does not let us look at it."""
        self._hidden.add(pid)


def _later(now: Instant, seconds: float) -> Instant:
    return Instant(now.boot_id, now.boottime_s + seconds, now.utc_s + seconds)
