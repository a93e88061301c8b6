"""What the rest of gpuwatch may ask of the operating system.

Each protocol has one real adapter in this package, one stand-in in simulation/, and a contract
test that runs against both. All calls are made from the daemon's one thread; what can block is
bounded inside the adapter or submitted to a Worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Callable, Generic, Optional, Protocol, TypeVar

from gpuwatch.model.container import Container
from gpuwatch.model.gpu import GpuIdentity, GpuReport
from gpuwatch.model.gpu_change import GpuChange
from gpuwatch.model.host import FileSystem, Sensor, StuckThread
from gpuwatch.model.instant import Instant
from gpuwatch.model.reading import Reading
from gpuwatch.model.units import matches

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

    def expect(self, gpus: Sequence[GpuIdentity]) -> None:
        """The GPUs that belong into this host, in place of what was said before; none: whatever is found first.

        One of them that the driver does not list is a lost sample, also after a restart (N10).
        """

    def change(self, change: GpuChange) -> None:
        """Set something on a GPU, or ask what is set. Never blocks.

        It goes to the driver with the next sample(), after the readings, so that it can't hold them up; the answer
        is in GpuReport.changed of a later sample(), once. It may never come: while the state is not OK nothing is
        sent, and what waits is dropped; so is what the driver leaves unanswered when the child ends, and what it
        can't begin within seconds, since a late write is worse than none. Who wants it still asks again: setting
        the same twice does no harm.
        """

    def pause(self, why: str) -> None:
        """Ask nothing but a light probe every 30 s, until one is answered. `why`: "after an Xid 119"."""

    def release(self, for_s: float) -> None:
        """End the child and start none for so long: somebody repairs (S14)."""

    def resume(self) -> None:
        """End a pause and a release."""

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


@dataclass(frozen=True)
class Interest:
    """Whose output a Journal reads beside the trusted sources: globs of unit names and of container names."""

    units: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()  # of containers whose lines come through the journal (log driver journald)

    def __call__(self, name: str) -> bool:
        """`name` is a unit's, or "container:" and a container's. Case counts."""
        if name.startswith("container:"):
            return matches(name[len("container:") :], self.containers)
        return matches(name, self.units)


NOBODY = Interest()


class Journal(Protocol):
    """The system journal, read by cursor: kernel, journald, PID 1, container runtimes, and the output of those
    units and containers that are of interest. An entry of the latter has _SYSTEMD_UNIT and is never of a trusted
    source (S10). A container's line that was logged in parts comes as one entry."""

    def watch(self, interest: Interest) -> None:
        """From the next read on, another interest."""

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
    """What systemd says about a unit right now, or an engine about a container (actions/router.py), in the same
    words."""

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
    absent_paths: tuple[str, ...] = ()  # it starts only while none of these exists (ConditionPathExists=!PATH)
    # "running", "frozen", or on the way "freezing", "thawing"; "" where it does not run or nobody can tell. Whether it
    # is frozen is the kernel's word (cgroup.events): systemd keeps FreezerState=frozen for a unit killed while frozen.
    freezer: str = ""
    watchdog_s: Optional[float] = None  # WatchdogUSec; None: it has none
    container: Optional[Container] = None  # where it is no unit but a container: what its engine says

    @property
    def paused(self) -> bool:
        """True for a container whose processes are frozen: no signal but SIGKILL reaches them."""
        return self.container is not None and self.container.status == "paused"

    @property
    def running(self) -> bool:
        """True while it has, or may have, processes."""
        return self.active_state in ("active", "activating", "deactivating", "reloading")


@dataclass(frozen=True)
class ListedUnit:
    """A service or scope that runs. `control_group` is "" while it has none."""

    name: str
    active_state: str  # active | activating | deactivating | reloading
    control_group: str


@dataclass(frozen=True)
class CpuLimit:
    """How much CPU a unit may use (man 5 systemd.resource-control)."""

    quota_us_per_s: Optional[int] = None  # CPUQuotaPerSecUSec: 500_000 is half a core; None: no quota
    weight: Optional[int] = None  # CPUWeight, 1 to 10000, 0 for "idle" (since systemd 252); None: the default


class Systemd(Protocol):
    """The service manager over D-Bus, each call bounded by the adapter's own time-out."""

    def unit(self, name: str) -> UnitFacts:
        """The facts of a unit. Raises SourceError when systemd can't be asked; a unit that does
        not exist has load_state "not-found"."""

    def stop_unit(self, name: str) -> None:
        """Queue a stop job (mode "replace") and return once it is queued. Raises ActionError."""

    def kill_unit(self, name: str, signal: int, main: bool = False) -> None:
        """Send a signal to every process of the unit, or to its main process alone. Raises ActionError."""

    def units(self, globs: Sequence[str]) -> tuple[ListedUnit, ...]:
        """The running services and scopes whose name (no alias) matches one of the globs, in name order. Nobody is
        asked without a glob. Raises SourceError."""

    def cpu_limit(self, name: str) -> CpuLimit:
        """What holds for a unit now, as systemd knows it. Raises SourceError."""

    def set_cpu_limit(self, name: str, limit: CpuLimit) -> None:
        """Have both values of `limit` hold for a running unit until the next boot, and read them back; what holds
        already is not written again. Raises ActionError, unknown=True where it was sent and could not be read back.

        Refused (S13): where the unit's cgroup holds containers or other units, and where systemd would first have to
        enable the cpu controller in a slice above that has containers below it.

        Each property that was ever written leaves a drop-in in /run/systemd/system.control until the next boot, also
        once it is back to what it was: it goes on to outrank the unit's own file. systemd 252 writes whole percents
        there (257 two decimals), so of a quota of 33.33% somebody's later daemon-reload makes 33%.
        """

    def freeze_unit(self, name: str) -> None:
        """Stop every process of an active unit from running, and return when they do. Raises ActionError,
        unknown=True when that takes longer than the time-out, as with a process in state D: it then still happens
        when that process comes back, unless the unit is thawed (which systemd 247 refuses meanwhile, not 252 and
        257). Needs the unified cgroup hierarchy, and a bus."""

    def thaw_unit(self, name: str) -> None:
        """Let them run again; nothing to do is no error. Raises ActionError, also while a job is queued for the unit;
        unknown=True where systemd does not answer, as for a unit that ends the moment it is thawed.

        Thaw before a stop or SIGKILL: systemd up to 255 thaws a unit that it stops, 257 takes the request and then
        leaves the unit as it is, and won't start one again that was killed frozen (until reset-failed).
        """

    def close(self) -> None:
        """Release the connection."""


class Holds(Protocol):
    """The files that keep units from being started, where a drop-in of the admin's looks for them:
    ConditionPathExists=!/run/gpuwatch/hold/%n. They are gone with a restart of the host. Raise OSError."""

    def path(self, unit: str) -> str:
        """Where a unit's file is."""

    def held(self) -> frozenset[str]:
        """The units for which there is one."""

    def hold(self, unit: str, why: str) -> None:
        """Make it; `why` is its content, for a person who finds it. One that is there stays."""

    def release(self, unit: str) -> None:
        """Take it away; one that is missing is fine."""


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


class HostFiles(Protocol):
    """The host's own figures: /proc, /sys, mounted file systems. None of the calls raises: what can't be
    read is a failed reading, what this kernel or host does not have is unsupported."""

    def quick(self) -> Mapping[str, Reading]:
        """The host.* readings that come from memory alone and never block: well under 1 ms."""

    def oom_kills(self) -> Reading:
        """host.oom_kills; never blocks, costs as much as the rest of quick() (more on many cores)."""

    def clock_synchronised(self) -> Reading:
        """host.clock_synchronised; one system call."""

    def mounts(self, paths: Sequence[str]) -> Mapping[str, FileSystem]:
        """Which file system each path lies on, from the mount table alone, so by the letters of the path:
        no file system is asked, nothing blocks. Without readings; a path without an answer is left out."""

    def space(self, path: str) -> FileSystem:
        """The file system behind a path (which need not exist), links followed, with its readings.
        Blocks for as long as that file system, or one on the way to it, does not answer."""

    def chips(self) -> tuple[str, ...]:
        """Names of the sensor chips and thermal zones there are now. Does not ask them anything."""

    def sensors(self, chip: str) -> tuple[Sensor, ...]:
        """The sensors of one of chips(), with their readings. May block: some sit behind slow buses."""

    def stuck(self, pids: Sequence[int]) -> StuckLook:
        """Threads in state D of these processes and of all that have a GPU open. Walks all processes, so
        it is asked only when there is a reason. May block."""

    def close(self) -> None:
        """Release files."""


@dataclass(frozen=True)
class StuckLook:
    """What a look for stuck threads found; `problem` says what it could not see."""

    threads: tuple[StuckThread, ...] = ()
    problem: str = ""


class UnitFiles(Protocol):
    """The control groups of units."""

    def readings(self, control_group: str) -> Optional[Mapping[str, Reading]]:
        """unit.* readings of a unit's cgroup (its ControlGroup property), None when there is no such cgroup.
        What needs a controller that is not enabled there is unsupported. Never raises, never blocks."""


@dataclass(frozen=True)
class EngineFacts:
    """Which engine answers, e.g. docker 27.3.1 or podman 4.3.1."""

    kind: str  # docker | podman
    version: str


@dataclass(frozen=True)
class ListedContainer:
    """A line of an engine's list of containers."""

    id: str  # 64 hex digits
    status: str


@dataclass(frozen=True)
class EngineEvent:
    """What an engine says happened to a container. `action` in docker's words (die, destroy, exec_die, ...)."""

    at_ns: int  # UTC, by the engine's clock
    container: str  # full id
    action: str
    name: str = ""
    image: str = ""
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    health: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> str:
        """What tells it from others: an engine may give it twice."""
        return f"{self.at_ns} {self.container} {self.action}"


class ContainerEngine(Protocol):
    """One container engine's API. Calls may take as long as the adapter's own deadline: make them in a Worker only.

    What is asked raises EngineError (model/container.py). What is done (stop, kill, unpause) raises ActionError, with
    unknown=True where nobody can tell whether it was done; a container that is gone is such an error.
    """

    socket: str

    def identity(self) -> str:
        """What tells this engine's socket from others, "" while there is none. Looks at the file only."""

    def facts(self) -> EngineFacts:
        """Who answers."""

    def containers(self) -> tuple[ListedContainer, ...]:
        """All containers, also those that don't run."""

    def inspect(self, container_id: str) -> Optional[Container]:
        """The facts of one, or None when it is gone."""

    def events(self, since_ns: int, until_ns: int) -> tuple[EngineEvent, ...]:
        """What happened to containers in that time, oldest first; what happened at `since_ns` may be among it,
        and what happened a second before. An engine keeps a limited number of events."""

    def stop(self, container_id: str, grace_s: float) -> None:
        """Its stop signal, and SIGKILL after the grace; its restart policy does not start it again. It may take the
        whole grace to return, and may return earlier; one that does not run is no error. Thaw a paused one first."""

    def kill(self, container_id: str, signal: int) -> None:
        """A signal to its first process. One that does not run is an error."""

    def unpause(self, container_id: str) -> None:
        """Let a paused one run on. One that is not paused is an error."""


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
