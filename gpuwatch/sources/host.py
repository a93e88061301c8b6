"""The host: what is cheap each cycle, what is slow or may hang now and then and behind a worker.

Each second memory, pressure, load; every 15 s the file systems that matter, every 10 s the sensors. Stuck
processes are looked for only while somebody says that there is a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Callable, Optional

from gpuwatch.model.host import FILESYSTEM, FileSystem, HostReport, Sensor, StuckThread
from gpuwatch.model.instant import Instant
from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import Reading, failed, value
from gpuwatch.sources.every import Every
from gpuwatch.sources.rounds import MOST_LEFT, Rounds
from gpuwatch.system.protocols import Clock, HostFiles, StuckLook, Worker

ALWAYS = ("/", "/var")
MOST_PATHS = 64
MOST_SENSORS = 512
OOM_EVERY_S = METRICS["host.oom_kills"].every_s
CLOCK_EVERY_S = METRICS["host.clock_synchronised"].every_s
DISKS_EVERY_S = METRICS["host.disk_free_ratio"].every_s
SENSORS_EVERY_S = METRICS["host.sensor_temperature"].every_s
STUCK_EVERY_S = METRICS["host.stuck_processes"].every_s
DISK_METRICS = tuple(name for name, metric in METRICS.items() if metric.scope == FILESYSTEM)
STALE_PERIODS = 3.0  # an answer that is older says nothing about now
STUCK_KEPT_S = 60.0  # what the last look found is told for this long
SILENT = "does not answer"
_DISK, _CHIP, _STUCK = "disk ", "chip ", "stuck"  # names of questions begin with these


class HostSource:
    """`paths`: what else must have room, beside / and /var: the state and evidence directories, and the
    working directories of workloads. `make_worker` makes a thread for what may hang; see sources/rounds.py."""

    def __init__(self, host: HostFiles, clock: Clock, paths: Sequence[str], make_worker: Callable[[], Worker]) -> None:
        self._host = host
        self._rounds = Rounds(make_worker, clock)
        self._disks = _Disks(host, self._rounds)
        self._sensors = _Sensors(host, self._rounds)
        self._stuck = _Stuck(host, self._rounds)
        self._slow: dict[str, Reading] = {}
        self._oom, self._clock_kept = Every(OOM_EVERY_S), Every(CLOCK_EVERY_S)
        self.watch(paths)

    def watch(self, paths: Iterable[str]) -> None:
        """Watch the file systems of these paths from now on, beside those of ALWAYS; absolute paths only."""
        self._disks.watch(paths)

    def observe(
        self, now: Instant, wait_s: float = 0.0, look_for_stuck: bool = False, gpu_pids: Sequence[int] = ()
    ) -> HostReport:
        """What is known now. `wait_s`: how long a single pass waits for the slow answers (a daemon does not).

        `look_for_stuck`: the driver is silent, or somebody asked. `gpu_pids`: who was on the GPUs last; others
        that have a GPU open are found, too.
        """
        self._disks.ask(now)
        self._sensors.ask(now)
        if look_for_stuck:
            self._stuck.ask(now, tuple(gpu_pids))
        if self._oom.due(now):
            self._slow["host.oom_kills"] = self._host.oom_kills()
        if self._clock_kept.due(now):
            self._slow["host.clock_synchronised"] = self._host.clock_synchronised()
        self._rounds.collect(wait_s)
        stuck = self._stuck.known(now)
        return HostReport(
            taken=now,
            readings={
                **self._host.quick(),
                **self._slow,
                "host.uptime": value(now.boottime_s),
                **({} if stuck is None else {"host.stuck_processes": value(self._stuck.lasting())}),
            },
            filesystems=self._disks.known(now),
            sensors=self._sensors.known(now),
            stuck=() if stuck is None else stuck.threads,
            stuck_looked=None if stuck is None else self._stuck.looked,
            problems=self._problems(stuck),
        )

    def close(self) -> None:
        """Release files. Threads that hang are left behind."""
        self._host.close()

    def _problems(self, stuck: Optional[StuckLook]) -> dict[str, str]:
        problems = {}
        silent = [name.partition(" ")[2] for name in self._rounds.hung if name.startswith(_CHIP)]
        if silent:
            problems["sensors"] = f"{', '.join(silent)}: {SILENT}"
        if _STUCK in self._rounds.hung:
            problems["stuck"] = "the look for stuck processes hangs itself"
        elif stuck is not None and stuck.problem:
            problems["stuck"] = stuck.problem
        if self._rounds.blocked:
            problems["host"] = f"{MOST_LEFT} questions hang in the kernel; file systems and sensors are asked no more"
        return problems


class _Disks:
    """The file systems behind some paths, each once, under the name of its mount."""

    def __init__(self, host: HostFiles, rounds: Rounds) -> None:
        self._host, self._rounds = host, rounds
        self._every = Every(DISKS_EVERY_S)
        self._paths: tuple[str, ...] = ()
        self._by_letters: Mapping[str, FileSystem] = {}  # where a path lies if it has no links
        self._answers: dict[str, FileSystem] = {}  # by path

    def watch(self, paths: Iterable[str]) -> None:
        wanted = [path for path in (*ALWAYS, *paths) if path.startswith("/")]
        self._paths = tuple(dict.fromkeys(wanted))[:MOST_PATHS]
        self._answers = {path: answer for path, answer in self._answers.items() if path in self._paths}

    def ask(self, now: Instant) -> None:
        """One path a file system first, the others when it has answered: so that one that hangs costs one thread."""
        if not self._every.due(now):
            return
        self._by_letters = self._host.mounts(self._paths)
        firsts: dict[str, str] = {}
        for path in self._paths:
            firsts.setdefault(self._device(path), path)
        for path in firsts.values():
            self._ask(path)

    def _ask(self, path: str) -> None:
        self._rounds.ask(_DISK + path, partial(self._host.space, path), partial(self._take, path))

    def _take(self, path: str, answer: FileSystem, taken: Instant) -> None:
        if path not in self._paths:
            return
        self._answers[path] = replace(answer, taken=taken)
        alike = [each for each in self._paths if self._device(each) == self._device(path)]
        if path == alike[0]:
            for other in alike[1:]:
                self._ask(other)  # a link may lead elsewhere

    def _device(self, path: str) -> str:
        known = self._by_letters.get(path)
        return path if known is None else known.device

    def _hangs(self, path: str) -> bool:
        return _DISK + path in self._rounds.hung

    def known(self, now: Instant) -> tuple[FileSystem, ...]:
        """In the order of the paths. What does not answer has failed readings of now, whatever it said before."""
        found: dict[str, FileSystem] = {}
        for path in self._paths:
            one = self._one(path, now)
            if one is not None:
                key = one.device or one.mount
                there = found.get(key, one)
                found[key] = replace(there, paths=(*there.paths, path))
        return tuple(found.values())

    def _one(self, path: str, now: Instant) -> Optional[FileSystem]:
        answer = self._answers.get(path)
        if self._hangs(path):
            return self._silent(answer or self._unasked(path), SILENT, now)
        if answer is None or answer.taken is None:
            return None
        age = now.since(answer.taken)
        if age is None or age > STALE_PERIODS * DISKS_EVERY_S:
            return self._silent(answer, SILENT, now)
        return answer

    def _unasked(self, path: str) -> FileSystem:
        """What hangs has never said its name: the mount table's, unless that one answers to other paths."""
        bare = self._by_letters.get(path)
        answered = {each.device for each in self._answers.values()}
        return FileSystem(path, "", "", "") if bare is None or bare.device in answered else bare

    def _silent(self, bare: FileSystem, why: str, now: Instant) -> FileSystem:
        return replace(bare, readings=dict.fromkeys(DISK_METRICS, failed(why)), taken=now)


class _Sensors:
    """Each chip's sensors as it answered last."""

    def __init__(self, host: HostFiles, rounds: Rounds) -> None:
        self._host, self._rounds = host, rounds
        self._every = Every(SENSORS_EVERY_S)
        self._chips: tuple[str, ...] = ()
        self._answers: dict[str, tuple[Sensor, ...]] = {}
        self._told: tuple[Sensor, ...] = ()

    def ask(self, now: Instant) -> None:
        if not self._every.due(now):
            return
        self._chips = self._host.chips()
        self._answers = {chip: self._answers[chip] for chip in self._chips if chip in self._answers}
        for chip in self._chips:
            self._rounds.ask(_CHIP + chip, partial(self._host.sensors, chip), partial(self._take, chip))

    def _take(self, chip: str, answer: tuple[Sensor, ...], taken: Instant) -> None:
        self._answers[chip] = tuple(replace(each, taken=taken) for each in answer)

    def known(self, now: Instant) -> tuple[Sensor, ...]:
        found: list[Sensor] = []
        for chip in self._chips:
            for each in self._answers.get(chip, ()):
                age = None if each.taken is None else now.since(each.taken)
                fresh = age is not None and age <= STALE_PERIODS * SENSORS_EVERY_S
                found.append(each if fresh and _CHIP + chip not in self._rounds.hung else _silent_sensor(each, now))
        return tuple(found[:MOST_SENSORS])


def _silent_sensor(sensor: Sensor, now: Instant) -> Sensor:
    readings = {name: old if old.unsupported else failed(SILENT) for name, old in sensor.readings.items()}
    return replace(sensor, readings=readings, taken=now)


class _Stuck:
    """Looks for stuck threads while asked to, and remembers since when each one hangs."""

    def __init__(self, host: HostFiles, rounds: Rounds) -> None:
        self._host, self._rounds = host, rounds
        self._every = Every(STUCK_EVERY_S)
        self._found = StuckLook()
        self.looked: Optional[Instant] = None

    def ask(self, now: Instant, pids: tuple[int, ...]) -> None:
        if self._every.due(now):
            self._rounds.ask(_STUCK, partial(self._host.stuck, pids), self._take)

    def _take(self, answer: StuckLook, taken: Instant) -> None:
        before = {} if self.known(taken) is None else {_identity(each): each.since for each in self._found.threads}
        threads = tuple(replace(each, since=before.get(_identity(each)) or taken) for each in answer.threads)
        self._found, self.looked = replace(answer, threads=threads), taken

    def known(self, now: Instant) -> Optional[StuckLook]:
        """The last look, while it still says something."""
        age = None if self.looked is None else now.since(self.looked)
        return self._found if age is not None and age <= STUCK_KEPT_S else None

    def lasting(self) -> int:
        """Processes with a thread that two looks have found hanging, and not in somebody else's code."""
        return len(
            {each.pid for each in self._found.threads if each.since != self.looked and each.in_driver is not False}
        )


def _identity(thread: StuckThread) -> tuple[int, int]:
    return thread.thread, thread.started_ticks
