"""What the rest of gpuwatch may ask of the operating system.

Each protocol has one real adapter in this package, one stand-in in simulation/, and a contract
test that runs against both. All calls are made from the daemon's one thread; what can block is
bounded inside the adapter or submitted to a Worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Callable, Generic, Optional, Protocol, TypeVar

from gpuwatch.model.gpu import GpuReport
from gpuwatch.model.instant import Instant

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Clock(Protocol):
    """Time. The daemon waits only through this, so that tests can move it."""

    def now(self) -> Instant:
        """This moment."""

    def monotonic(self) -> float:
        """Seconds for measuring waits (CLOCK_MONOTONIC)."""


class Task(Protocol, Generic[T_co]):
    """A job handed to a Worker."""

    def done(self) -> bool:
        """True when it has returned or raised."""

    def result(self) -> T_co:
        """What it returned; raises what it raised. Only after done()."""

    def age_s(self) -> float:
        """Seconds since it was submitted."""


class Worker(Protocol):
    """Runs jobs one after another where a hanging one can be left behind (S7)."""

    def submit(self, job: Callable[[], T]) -> Task[T]:
        """Queue a job. Never blocks."""

    def wait(self, task: Task[T], timeout_s: float) -> bool:
        """True when the task is done within `timeout_s`."""


class GpuDriver(Protocol):
    """The NVIDIA driver behind a deadline."""

    def sample(self, with_processes: bool, spare_child: bool, wait_s: float) -> GpuReport:
        """Ask for readings and wait at most `wait_s` for them.

        A question that is still unanswered from an earlier call is not asked again and not waited
        for. `spare_child`: don't end or kill a child that hangs now (an Xid 119 or 120 was seen).
        Never raises: what is wrong is in the report.
        """

    def fds(self) -> tuple[int, ...]:
        """Descriptors whose readability means that sample() has something new."""

    def close(self, wait_s: float) -> None:
        """End the child politely, wait at most `wait_s`, leave it behind otherwise."""


@dataclass(frozen=True)
class JournalEntry:
    """A journal entry reduced to the fields that matter. Field values are text (errors replaced);
    of a field that repeats, the first value counts. `monotonic_us` belongs to `boot_id`."""

    cursor: str
    realtime_us: int
    monotonic_us: int
    boot_id: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JournalBatch:
    """`gap` is set once after opening when the entry of the wanted cursor is gone (vacuumed):
    the text says so. `cursor` is where reading goes on, "" if nothing was read ever.
    `more`: the bound was hit, there is more to read now."""

    entries: tuple[JournalEntry, ...] = ()
    cursor: str = ""
    more: bool = False
    gap: str = ""
    problem: str = ""  # reading failed; tried again with back-off


class Journal(Protocol):
    """The system journal, read by cursor, kernel transport and PID 1."""

    def read(self, limit: int, deadline_s: float) -> JournalBatch:
        """Entries since the last read, at most `limit` of them and for at most `deadline_s`.
        Opens the journal when it is not open (at the cursor given at construction, else at the
        tail). Never raises."""

    def fds(self) -> tuple[int, ...]:
        """Descriptors whose readability means that read() may have something new."""

    def close(self) -> None:
        """Release files."""


class Doorbell(Protocol):
    """/dev/kmsg: rings when the kernel says something, half a second before the journal tells."""

    def fds(self) -> tuple[int, ...]:
        """Readable when it rings; empty where it may not be read."""

    def rang(self) -> bool:
        """True if it rang since the last call; takes all waiting records. Never raises."""

    def close(self) -> None:
        """Release the device."""


@dataclass(frozen=True)
class UnitFacts:
    """What systemd says about a unit right now."""

    name: str
    load_state: str  # loaded | not-found | masked | ...
    active_state: str  # active | activating | deactivating | inactive | failed | ...
    sub_state: str
    invocation: str  # InvocationID, 32 hex digits; "" when it has none
    main_pid: int
    control_group: str
    stop_timeout_s: Optional[float]  # TimeoutStopUSec; None: infinity
    result: str = ""
    job: int = 0  # id of a queued job
    refuse_manual_stop: bool = False
    takes_along: tuple[str, ...] = ()  # active units that its stop would stop, recursively
    containers: tuple[str, ...] = ()  # cgroups of containers below its own, that it did not start as its payload
    inner_units: tuple[str, ...] = ()  # cgroups of units of another manager below its own: it is no leaf

    @property
    def running(self) -> bool:
        """True while it has, or may have, processes."""
        return self.active_state in ("active", "activating", "deactivating", "reloading")


class Systemd(Protocol):
    """The service manager over D-Bus, each call bounded by the adapter's own time-out."""

    def unit(self, name: str) -> UnitFacts:
        """The facts of a unit. Raises SourceError when systemd can't be asked; a unit that does
        not exist has load_state "not-found"."""

    def stop_unit(self, name: str) -> None:
        """Queue a stop job (mode "replace") and return once it is queued. Raises ActionError."""

    def kill_unit(self, name: str, signal: int) -> None:
        """Send a signal to every process of the unit. Raises ActionError."""

    def close(self) -> None:
        """Release the connection."""


@dataclass(frozen=True)
class ProcessFacts:
    """A process as /proc shows it."""

    pid: int
    started_ticks: int  # field 22 of /proc/<pid>/stat
    started_boottime_s: float
    state: str  # R S D Z T ...
    name: str  # comm
    uid: int
    user: str  # name of uid, or the number as text
    cgroup: str  # path in the unified hierarchy (else in name=systemd), e.g. /system.slice/a.service


class Processes(Protocol):
    """/proc, one process at a time."""

    def look(self, pid: int) -> Optional[ProcessFacts]:
        """The facts, or None when there is no such process. Raises SourceError when it is hidden."""


class Manager(Protocol):
    """sd_notify: what the daemon tells the service manager that started it."""

    def notify(self, **fields: str) -> None:
        """E.g. notify(READY="1", STATUS="8 GPUs ok"). Never raises; does nothing without systemd."""


class DurableFiles(Protocol):
    """Files that must survive a power cut. One method a system call that matters, so that tests can
    record their order. Raise OSError."""

    def make_directory(self, path: str) -> None:
        """mkdir, mode 0700."""

    def write(self, path: str, data: bytes) -> None:
        """Create a new file with mode 0600, write all, fsync, close."""

    def rename(self, old: str, new: str) -> None:
        """rename(2)."""

    def sync_directory(self, path: str) -> None:
        """fsync of a directory."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and what is in it; missing is fine."""


class Log(Protocol):
    """The daemon's log."""

    def write(self, priority: int, message: str, fields: Optional[Mapping[str, str]] = None) -> None:
        """One line with a syslog priority and journal fields. Never raises."""


class Courier(Protocol):
    """The sender child: takes messages with their key, tells what became of them."""

    def send(self, requests: tuple[Mapping[str, object], ...]) -> None:
        """Hand over messages to be delivered; starts the child when needed. Never blocks."""

    def outcomes(self) -> tuple[Mapping[str, object], ...]:
        """What has been answered since the last call."""

    def fds(self) -> tuple[int, ...]:
        """Descriptors whose readability means that outcomes() has something new."""

    def close(self, wait_s: float) -> None:
        """End the child; what was not answered counts as not delivered."""
