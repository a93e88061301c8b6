"""The composition root: builds everything, injects it, and runs the daemon, one pass, or one look."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from gpuwatch import __version__
from gpuwatch.actions.changes import PowerLimit, UnitHold
from gpuwatch.actions.executor import Executor
from gpuwatch.actions.router import Containers, Router
from gpuwatch.alerts.channels.options import channel_types
from gpuwatch.alerts.courier import SenderCourier
from gpuwatch.alerts.desk import Desk
from gpuwatch.alerts.outcome import announcement
from gpuwatch.alerts.words import Words
from gpuwatch.catalog import cgroup
from gpuwatch.config.load import Loaded, load
from gpuwatch.daemon.control import Control
from gpuwatch.daemon.cycle import Cycle, Ports
from gpuwatch.daemon.ledger import encode_policy
from gpuwatch.daemon.loop import Flags, Loop, Waker
from gpuwatch.daemon.notes import inventory_of, released_until
from gpuwatch.daemon.once import run_pass
from gpuwatch.daemon.probe import probe
from gpuwatch.daemon.scene import Scene
from gpuwatch.daemon.turn import Turn
from gpuwatch.daemon.view import Process
from gpuwatch.evidence.bundle import Bundles
from gpuwatch.model.errors import ConfigError, EvidenceError, GpuwatchError, SourceError, StoreError
from gpuwatch.model.settings import KeySource, Settings
from gpuwatch.policy.state import PolicyState
from gpuwatch.sources.containers import ContainerSource
from gpuwatch.sources.fabric import FabricSource
from gpuwatch.sources.host import HostSource
from gpuwatch.sources.owner_names import OwnerNames
from gpuwatch.sources.unit_groups import UnitGroups
from gpuwatch.sources.workloads import WorkloadSource
from gpuwatch.store.database import DamagedError, Documents
from gpuwatch.store.history import PERIOD_S, History
from gpuwatch.store.memory import Snapshot, from_documents
from gpuwatch.store.writer import Writer
from gpuwatch.system.clock import SystemClock, local_zone
from gpuwatch.system.command import run as run_command
from gpuwatch.system.containers import SOCKETS, DockerApi
from gpuwatch.system.control_socket import ControlServer
from gpuwatch.system.errands import Errands
from gpuwatch.system.files import RealFiles
from gpuwatch.system.holds import HoldFiles
from gpuwatch.system.host import RealHost
from gpuwatch.system.host_facts import read_host_facts
from gpuwatch.system.journal_client import JournalClient
from gpuwatch.system.kmsg import KmsgDoorbell
from gpuwatch.system.lock import HostLock
from gpuwatch.system.log import open_log
from gpuwatch.system.notify import manager
from gpuwatch.system.nvml.client import DRIVER_PATH, NvmlClient
from gpuwatch.system.procfs import ProcFs
from gpuwatch.system.protocols import (
    Clock,
    ContainerEngine,
    Courier,
    Doorbell,
    DurableFiles,
    GpuDriver,
    HostFiles,
    Journal,
    Log,
    Processes,
    Systemd,
    UnitFiles,
    Worker,
)
from gpuwatch.system.secrets import read_key
from gpuwatch.system.systemctl import SystemctlFallback
from gpuwatch.system.systemd import FailoverSystemd, SystemdBus
from gpuwatch.system.unit_facts import find_cgroup_root
from gpuwatch.system.unit_files import CgroupFiles
from gpuwatch.system.wall import wall
from gpuwatch.system.worker import InlineWorker, ThreadWorker

ONCE_PERIOD_S = 60.0
CRITICAL, ERROR, WARNING, NOTICE, INFO = 2, 3, 4, 5, 6
OK, FAILURE, BAD_CONFIG = 0, 1, 78


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    config: str
    state_dir: str
    run_dir: str
    kmsg: str = "/dev/kmsg"


@dataclass
class World:
    """The edges: everything that touches the host. The rest is the same for a real and a simulated one."""

    clock: Clock
    gpus: GpuDriver
    processes: Processes
    systemd: Systemd
    courier: Courier
    log: Log
    files: DurableFiles
    open_journal: Callable[[str], Journal]
    doorbell: Doorbell
    hands: Worker
    scribe: Worker
    clerk: Worker
    archivist: Worker  # writes history, where a slow disk delays nothing else
    engine_talk: Worker
    engines: Sequence[ContainerEngine]
    namespaced_pid: Callable[[int], Optional[int]]
    working_directory: Callable[[int], Optional[str]]
    host_files: HostFiles
    unit_files: UnitFiles
    host: str
    simulated: bool = False
    resident: bool = True
    wall: Callable[[str], None] = lambda text: None
    host_wait_s: float = 0.0  # how long a cycle waits for slow figures of the host
    own_units: tuple[str, ...] = ()  # and the id of the container that this runs in
    errands: Worker = field(default_factory=InlineWorker)  # calls to engines about one container each


@dataclass
class Assembly:
    """A cycle with what belongs to it."""

    cycle: Cycle
    scene: Scene
    writer: Writer
    journal: Journal
    world: World

    def close(self) -> None:
        """In the order in which things are needed: messages first, the disk last."""
        if self.world.resident:
            self.cycle.stop()
        self.world.courier.close(0.5)
        self.journal.close()
        self.cycle.ports.host.close()
        self.world.gpus.close(1.0)
        self.cycle.ports.history.close()
        self.writer.close()
        self.world.systemd.close()


def assemble(world: World, options: Options, settings: Settings, period_s: float) -> Assembly:
    """Everything behind the edges. Raises StoreError."""
    writer = Writer(options.state_dir, os.path.join(options.run_dir, "waiting.jsonl"), world.clerk, world.clock)
    stored = _open_store(writer, world)
    zone = local_zone()
    bundles = Bundles(world.files, os.path.join(options.state_dir, "evidence"))
    _clean_evidence(bundles, world)
    scene = Scene(bundles, world.clock, zone, world.host, read_host_facts)
    executor = Executor(
        world.clock,
        Router(world.systemd, world.hands, Containers(world.engines, world.processes), world.errands),
        world.scribe,
        scene.preserve,
        bundles.has,
        bundles.new_id,
        own_units=world.own_units,
        changes={
            "throttle": PowerLimit(world.gpus),
            "hold": UnitHold(world.clock, HoldFiles(os.path.join(options.run_dir, "hold"))),
        },
        announce=lambda intent: world.wall(
            announcement(Words(cycle.settings.language, zone, world.clock.now()), intent)
        ),
    )
    desk = Desk(world.courier, zone, _read_key, world.simulated)
    journal = world.open_journal(str(stored.state.get("cursor", "")))
    own_directories = tuple(
        os.path.abspath(path) for path in (options.state_dir, os.path.join(options.state_dir, "evidence"))
    )
    ports = Ports(
        clock=world.clock,
        gpus=world.gpus,
        journal=journal,
        processes=world.processes,
        writer=writer,
        executor=executor,
        courier=world.courier,
        desk=desk,
        log=world.log,
        host=HostSource(world.host_files, world.clock, own_directories, _rounds_worker),
        units=WorkloadSource(world.unit_files),
        unit_groups=UnitGroups(world.systemd, world.hands),
        containers=ContainerSource(world.engines, world.engine_talk, world.clock, stored.state),
        owner_names=OwnerNames(world.namespaced_pid),
        fabric=FabricSource(world.systemd, _fabric_manager_version, world.hands, world.engine_talk),
        working_directory=world.working_directory,
        own_directories=own_directories,
        history=History(
            os.path.join(options.state_dir, "history.db"), world.archivist, world.clock, max(PERIOD_S, period_s)
        ),
    )
    cycle = Cycle(ports, settings, stored, settings.host or world.host, period_s, world.host_wait_s, world.resident)
    scene.attach(cycle)
    return Assembly(cycle, scene, writer, journal, world)


def _fabric_manager_version() -> str:
    result = run_command(["nv-fabricmanager", "--version"], 3.0)
    return result.stdout if result.ok else ""


def _rounds_worker() -> Worker:
    """For questions to file systems and sensors, which may hang in every mode of running."""
    return ThreadWorker("rounds")


def _clean_evidence(bundles: Bundles, world: World) -> None:
    """A disk that can't be cleaned stops no start: without durable evidence nothing destructive follows (S1)."""
    cleaning = world.scribe.submit(bundles.clean)
    if not world.scribe.wait(cleaning, 10.0):
        world.log.write(CRITICAL, f"{bundles.root}: the disk does not answer; nothing will be stopped until it does")
        return
    try:
        removed = cleaning.result()
    except EvidenceError as error:
        world.log.write(CRITICAL, f"evidence: {error}; nothing will be stopped until it can be written")
        return
    for name in removed:
        world.log.write(NOTICE, f"evidence: removed {name}, which an earlier gpuwatch left unfinished")


def _open_store(writer: Writer, world: World) -> Snapshot:
    """A store that is damaged is put aside, never overwritten; one that can't be read or written now ends no start."""
    try:
        stored = _decoded(writer.open())
    except DamagedError as error:
        stored = _start_over(writer, world, error)
    if writer.problem:
        world.log.write(CRITICAL, f"{writer.problem}; going on")
    if writer.blind and "policy" not in stored.state:
        # Nothing is known of what is stored: numbers that no earlier incident has, so that none is overwritten.
        first = int(world.clock.now().utc_s) // 60
        stored = replace(stored, state={**stored.state, "policy": encode_policy(PolicyState(next_incident=first))})
    return stored


def _start_over(writer: Writer, world: World, error: DamagedError) -> Snapshot:
    """Twice: the first time, what is damaged may come back from what waited in /run."""
    for _ in range(2):
        if writer.failing:
            break
        try:
            aside = writer.put_aside(str(int(world.clock.now().utc_s)))
        except StoreError as second:
            return _decoded(writer.open_without(f"{error}; it can't be put aside ({second})"))
        world.log.write(CRITICAL, f"{error}; put aside as {aside}, starting without memory of earlier incidents")
        try:
            return _decoded(writer.open())
        except DamagedError as again:
            error = again
    return _decoded(writer.open_without(str(error)))


def _decoded(documents: Documents) -> Snapshot:
    """Raises DamagedError when a later part of the start could not read a document."""
    stored = from_documents(documents)
    try:
        inventory_of(stored.state)
        released_until(stored.state)
    except (TypeError, KeyError, ValueError) as error:
        raise DamagedError(f"a stored note can't be read: {error}") from error
    return stored


def _read_key(source: KeySource) -> str:
    return read_key(source, os.environ).reveal()


def load_settings(path: str) -> Loaded:
    """The configuration with the channel types that exist. Raises ConfigError."""
    return load(path, channel_types=channel_types(), now_utc_s=time.time())


# The real host


def real_world(options: Options, log: Log, wake: Callable[[], None], inline: bool = False) -> World:
    """The edges of this host. Raises SourceError."""
    clock = SystemClock()
    processes = ProcFs()
    mine = processes.look(os.getpid())
    own = cgroup.parse(mine.cgroup) if mine is not None else None

    def worker(name: str, waking: Optional[Callable[[], None]] = None) -> Worker:
        return InlineWorker() if inline else ThreadWorker(name, waking)

    return World(
        clock=clock,
        gpus=NvmlClient(
            clock, os.path.join(options.run_dir, "nvml.lock"), os.environ.get("GPUWATCH_DRIVER_PATH", DRIVER_PATH)
        ),
        processes=processes,
        systemd=FailoverSystemd(SystemdBus(), SystemctlFallback()),
        courier=SenderCourier(clock),
        log=log,
        files=RealFiles(),
        open_journal=lambda cursor: JournalClient(cursor, clock),
        doorbell=KmsgDoorbell(options.kmsg),
        hands=worker("hands"),
        scribe=worker("scribe", wake),
        clerk=worker("clerk"),
        archivist=worker("archivist"),
        engine_talk=worker("containers", wake),
        engines=[DockerApi(socket) for socket in SOCKETS],
        namespaced_pid=processes.namespaced_pid,
        working_directory=processes.working_directory,
        host_files=RealHost(),
        unit_files=CgroupFiles(find_cgroup_root()),
        resident=not inline,
        wall=wall,
        host_wait_s=5.0 if inline else 0.0,
        host=os.uname().nodename,
        own_units=() if own is None else tuple(filter(None, (own.unit, own.container))),
        errands=Errands(),
    )


def run_daemon(options: Options) -> int:
    """The resident daemon; returns after SIGTERM."""
    log = open_log()
    return _guarded(log, lambda: _daemon(options, log, lambda wake: real_world(options, log, wake)))


def run_over(options: Options, world: Callable[[Log, Callable[[], None]], World]) -> int:
    """The same daemon over other edges."""
    log = open_log()
    return _guarded(log, lambda: _daemon(options, log, lambda wake: world(log, wake)))


def _daemon(options: Options, log: Log, make_world: Callable[[Callable[[], None]], World]) -> int:
    loaded = load_settings(options.config)
    for warning in loaded.warnings:
        log.write(WARNING, str(warning))
    _make_directories(options)
    locks = Locks(options)
    other = locks.acquire("daemon")
    if other:
        log.write(ERROR, f"{other} acts on this host; two would act twice. Not started.")
        return FAILURE
    waker = Waker()
    flags = Flags(waker)
    flags.install()
    world = make_world(waker.wake)
    settings = loaded.settings
    assembly = assemble(world, options, settings, settings.interval_s)
    process = Process(
        settings.host or world.host, os.getpid(), time.time(), world.simulated, os.path.abspath(options.state_dir)
    )
    turn = Turn(
        assembly.cycle,
        assembly.scene,
        world.scribe,
        process,
        log,
        lambda: load_settings(options.config).settings,
        options.run_dir,
    )
    control = Control(turn.latest, waker.wake, os.geteuid())
    turn.requests = control.requests
    server = _listen(os.path.join(options.run_dir, "control.sock"), control)
    turn.end = flags.end
    turn.reader_gid = os.stat(os.path.join(options.run_dir, "control.sock")).st_gid
    _say_hello(log, world, settings, options)
    sd = manager()
    try:
        Loop(
            turn,
            world.clock,
            sd,
            log,
            world.doorbell,
            waker,
            flags,
            assembly.journal.fds,
            lambda: assembly.cycle.settings.interval_s,
        ).run()
    finally:
        sd.notify(STOPPING="1", STATUS="stopping")
        server.close()
        assembly.close()
        locks.release()
    if turn.uprooted:
        log.write(CRITICAL, f"{options.run_dir} was removed; ending, so that a new start can make it again")
        return FAILURE
    log.write(INFO, "stopped")
    return OK


class Locks:
    """One gpuwatch acts on a host: a lock in /run, and one beside the state, for when /run was cleared."""

    def __init__(self, options: Options) -> None:
        self._locks = [HostLock(os.path.join(place, "lock")) for place in (options.run_dir, options.state_dir)]

    def acquire(self, kind: str) -> str:
        """Who is there already, in words; "" when both are ours. Raises SourceError."""
        for lock in self._locks:
            if not lock.acquire(kind, time.time()):
                holder = lock.holder()
                self.release()
                return str(holder or "another gpuwatch")
        return ""

    def release(self) -> None:
        """Give both back."""
        for lock in self._locks:
            lock.release()


def _listen(path: str, control: Control) -> ControlServer:
    try:
        return ControlServer(path, control.handle)
    except OSError as error:
        raise SourceError(f"can't listen at {path}: {error.strerror or error}") from error


def _say_hello(log: Log, world: World, settings: Settings, options: Options) -> None:
    mode = "SIMULATED host, " if world.simulated else ""
    workloads = ", ".join(workload.name for workload in settings.workloads) or "no workloads"
    log.write(NOTICE, f"gpuwatch {__version__}: {mode}{settings.mode.value}, {workloads}, state in {options.state_dir}")
    if not world.simulated and not os.path.exists(os.environ.get("GPUWATCH_DRIVER_PATH", DRIVER_PATH)):
        log.write(
            NOTICE, "no NVIDIA driver is loaded on this host: watching the journal and the host, and waiting for it"
        )
    problem = getattr(world.doorbell, "problem", "")
    if problem:
        log.write(
            INFO, f"no doorbell ({problem}): kernel lines are seen when the journal tells, up to half a second later"
        )


def _make_directories(options: Options) -> None:
    for path, mode in ((options.state_dir, 0o700), (options.run_dir, 0o755)):
        try:
            os.makedirs(path, mode, exist_ok=True)
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror} (as root, or with --state-dir and --run-dir)") from error


def _guarded(log: Log, run: Callable[[], int]) -> int:
    try:
        return run()
    except ConfigError as error:
        for problem in error.problems:
            log.write(ERROR, str(problem))
        count = len(error.problems)
        log.write(
            ERROR,
            f"{count} problem{'' if count == 1 else 's'} in the configuration; not started. Try: gpuwatch config check",
        )
        return BAD_CONFIG
    except GpuwatchError as error:
        log.write(ERROR, str(error))
        return FAILURE


# One pass, one look, one snapshot


def run_once(options: Options) -> int:
    """The timer's pass: the same cycle over the same state, unless a daemon (or another pass) is at work."""
    log = open_log()
    return _guarded(log, lambda: _once(options, log))


def _once(options: Options, log: Log) -> int:
    settings = load_settings(options.config).settings
    _make_directories(options)
    locks = Locks(options)
    other = locks.acquire("once")
    if other:
        log.write(INFO, f"{other} is at work; this pass does nothing")
        return OK
    world = real_world(options, log, lambda: None, inline=True)
    assembly = assemble(world, options, settings, ONCE_PERIOD_S)
    try:
        run_pass(assembly.cycle, settings, world.clock, ONCE_PERIOD_S)
    finally:
        assembly.close()
        locks.release()
    return OK


def look(config: str, run_dir: str, why: str) -> tuple[str, str]:
    """`check` without a daemon: one sample, nothing written, nothing acted on. A Nagios state and a sentence."""
    settings = load_settings(config).settings
    clock = SystemClock()
    gpus = NvmlClient(clock, os.path.join(run_dir, "nvml.lock"), os.environ.get("GPUWATCH_DRIVER_PATH", DRIVER_PATH))
    try:
        return probe(gpus, settings, clock, why)
    finally:
        gpus.close(1.0)


def snapshot_without_daemon(config: str, state_dir: str, run_dir: str, reason: str) -> Mapping[str, Any]:
    """A bundle of what can be seen now. Takes the host's lock. Raises GpuwatchError."""
    options = Options(config, state_dir, run_dir)
    settings = load_settings(config).settings
    _make_directories(options)
    locks = Locks(options)
    other = locks.acquire("cli")
    if other:
        raise SourceError(f"{other} is at work and did not answer")
    try:
        world = real_world(options, open_log(), lambda: None, inline=True)
        bundles = Bundles(world.files, os.path.join(state_dir, "evidence"))
        bundles.clean()
        scene = Scene(bundles, world.clock, local_zone(), settings.host or world.host, read_host_facts)
        scene.look(world.gpus, world.processes)
        bundle_id = bundles.new_id(world.clock.now(), "by-hand", "host")
        scene.by_hand(bundle_id, reason)()
        world.gpus.close(1.0)
    finally:
        locks.release()
    return {"bundle": bundle_id, "path": os.path.join(bundles.root, bundle_id)}
