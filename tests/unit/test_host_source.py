"""The host as the cycle sees it: cadence, file systems by mount, what hangs, stuck processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Optional

import pytest

from gpuwatch.model.codec import decode, encode
from gpuwatch.model.host import FileSystem, HostReport, Sensor, StuckThread
from gpuwatch.model.incident import Subject
from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import Reading, value
from gpuwatch.simulation.host_readings import SimulatedHostFiles
from gpuwatch.sources.host import HostSource
from gpuwatch.sources.rounds import MOST_LEFT, PATIENCE_S
from gpuwatch.system.protocols import StuckLook, Worker
from gpuwatch.system.worker import InlineWorker, ThreadWorker
from tests.fakes.clock import FakeClock
from tests.lab.waiting import wait_for

STATE = "/var/lib/gpuwatch"
VAR = FileSystem("/var", "xfs", "/dev/nvme1n1", "259:3")
NFS = FileSystem("/train", "nfs4", "store:/export", "0:50")
GIB = 1024**3


class CountingHost(SimulatedHostFiles):
    """Notes what it is asked, and hangs where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.doors: dict[str, threading.Event] = {}
        self.links: dict[str, str] = {}

    def hang(self, name: str) -> None:
        self.doors[name] = threading.Event()

    def _note(self, name: str) -> None:
        self.asked.append(name)
        if name in self.doors:
            self.doors[name].wait(30.0)

    def quick(self) -> Mapping[str, Reading]:
        self._note("quick")
        return super().quick()

    def oom_kills(self) -> Reading:
        self._note("oom")
        return super().oom_kills()

    def clock_synchronised(self) -> Reading:
        self._note("clock")
        return super().clock_synchronised()

    def space(self, path: str) -> FileSystem:
        self._note(path)
        return super().space(self.links.get(path, path))

    def sensors(self, chip: str) -> tuple[Sensor, ...]:
        self._note(chip)
        return super().sensors(chip)

    def stuck(self, pids: Sequence[int]) -> StuckLook:
        self._note(f"stuck {list(pids)}")
        return super().stuck(pids)


class Bench:
    def __init__(self, *paths: str, threads: bool = False) -> None:
        self.clock, self.host = FakeClock(), CountingHost()
        self.threads = 0
        self._with_threads = threads
        self.source = HostSource(self.host, self.clock, paths, self.make_worker)

    def make_worker(self) -> Worker:
        self.threads += 1
        return ThreadWorker(f"host-{self.threads}") if self._with_threads else InlineWorker()

    def observe(self, after_s: float = 0.0, stuck: bool = False, pids: Sequence[int] = ()) -> HostReport:
        self.clock.advance(after_s)
        return self.source.observe(self.clock.now(), look_for_stuck=stuck, gpu_pids=pids)

    def observe_until_asked(self, name: str) -> None:
        def there() -> bool:
            self.observe()
            return name in self.host.asked

        wait_for(there, what=f"{name} is asked")

    def close(self) -> None:
        for door in self.host.doors.values():
            door.set()
        self.source.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench(STATE, f"{STATE}/evidence", threads=True)
    yield bench
    bench.close()


def one(report: HostReport, mount: str) -> FileSystem:
    found = [each for each in report.filesystems if each.mount == mount]
    return found[0] if found else FileSystem(mount, "", "", "")


def test_everything_in_one_pass() -> None:
    report = Bench(STATE).observe()
    of_host = {name for name, metric in METRICS.items() if metric.scope == "host"}
    own = {name for name in of_host if METRICS[name].derived}
    assert of_host - own - set(report.readings) <= {"host.stuck_processes"}
    assert report.readings["host.uptime"] == value(1000)
    assert [(each.mount, each.paths, each.taken) for each in report.filesystems] == [
        ("/", ("/", "/var", STATE), report.taken)
    ]
    assert [each.key for each in report.sensors] == ["coretemp@coretemp.0/Package id 0"]
    assert (report.stuck, report.stuck_looked, dict(report.problems)) == ((), None, {})


def test_a_thread_answers_later(bench: Bench) -> None:
    def there() -> Optional[HostReport]:
        report = bench.observe()
        return report if report.sensors and len(one(report, "/").paths) == 4 else None

    assert bench.observe().readings["host.memory_available_ratio"] == value(700 / 1024)
    assert one(wait_for(there), "/").paths == ("/", "/var", STATE, f"{STATE}/evidence")


def test_cadence() -> None:
    bench = Bench(STATE)
    for _ in range(120):
        bench.observe(after_s=1.0)
    counts = {name: bench.host.asked.count(name) for name in set(bench.host.asked)}
    assert counts == {
        "quick": 120, "oom": 24, "clock": 2, "/": 8, "/var": 8, STATE: 8, "coretemp@coretemp.0": 12,
    }  # fmt: skip


def test_what_is_asked_now_and_then_is_told_each_time() -> None:
    bench = Bench(STATE)
    before = bench.observe()
    after = bench.observe(after_s=1.0)
    assert after.filesystems == before.filesystems
    assert after.filesystems[0].taken == before.taken
    assert after.readings["host.oom_kills"] == value(0)


def test_each_file_system_once_by_its_mount() -> None:
    bench = Bench(STATE, "/train/run1", "/train/run2", "relative", "/train/run1")
    bench.host.put_disk(VAR, size=100 * GIB, free=10 * GIB)
    bench.host.put_disk(NFS, size=1000 * GIB, free=500 * GIB)
    report = bench.observe()
    assert {each.mount: each.paths for each in report.filesystems} == {
        "/": ("/",),
        "/var": ("/var", STATE),
        "/train": ("/train/run1", "/train/run2"),
    }
    assert one(report, "/var").readings["host.disk_free_ratio"] == value(0.1)
    bench.source.watch(("/train/run2",))
    assert {each.mount: each.paths for each in bench.observe(after_s=15.0).filesystems} == {
        "/": ("/",),
        "/var": ("/var",),
        "/train": ("/train/run2",),
    }


def test_a_link_leads_to_another_file_system() -> None:
    bench = Bench("/srv/data")
    bench.host.put_disk(NFS, size=1000 * GIB, free=500 * GIB)
    bench.host.links["/srv/data"] = "/train"
    assert {each.mount: each.paths for each in bench.observe().filesystems} == {
        "/": ("/", "/var"),
        "/train": ("/srv/data",),
    }


def test_a_hung_file_system_fails_and_the_others_go_on(bench: Bench) -> None:
    """One thread is spent on it, however many paths lie on it."""
    bench.host.put_disk(NFS, size=1000 * GIB, free=500 * GIB)
    bench.source.watch((STATE, "/train/a", "/train/b"))
    bench.host.hang("/train/a")
    bench.observe_until_asked("/train/a")
    bench.observe(after_s=PATIENCE_S + 0.1)

    def there() -> Optional[HostReport]:
        report = bench.observe()
        return report if {each.mount for each in report.filesystems} >= {"/", "/train"} and report.sensors else None

    report = wait_for(there)
    silent = one(report, "/train")
    assert silent.kind == "nfs4"
    assert {reading.problem for reading in silent.readings.values()} == {"does not answer"}
    assert set(silent.readings) == {name for name, metric in METRICS.items() if metric.scope == "filesystem"}
    assert one(report, "/").readings["host.disk_free_ratio"].value == 0.5
    for _ in range(5):
        bench.clock.advance(15.0)
        bench.host.asked.clear()
        bench.observe_until_asked(STATE)
        wait_for(lambda: one(bench.observe(), "/").taken == bench.clock.now())
    assert bench.threads == 2
    assert not {"/train/a", "/train/b"} & set(bench.host.asked)
    bench.host.doors["/train/a"].set()

    def back() -> bool:
        there = one(bench.observe(after_s=0.2), "/train")
        return there.paths == ("/train/a", "/train/b") and there.readings["host.disk_free_ratio"] == value(0.5)

    wait_for(back)
    assert bench.threads == 2


def test_one_that_hung_later_is_not_believed_any_more(bench: Bench) -> None:
    bench.host.put_disk(VAR, size=100 * GIB, free=10 * GIB)

    def answered() -> bool:
        return len(bench.observe().filesystems) == 2

    wait_for(answered)
    bench.host.hang("/var")
    bench.host.asked.clear()
    bench.clock.advance(15.0)
    bench.observe_until_asked("/var")
    report = bench.observe(after_s=PATIENCE_S + 0.1)
    assert one(report, "/var").readings["host.disk_free_ratio"].problem == "does not answer"
    assert one(report, "/var").kind == "xfs"


def test_a_link_into_a_hung_file_system_does_not_blame_the_one_it_lies_on(bench: Bench) -> None:
    bench.source.watch(("/srv/link",))
    bench.host.hang("/srv/link")
    bench.observe_until_asked("/srv/link")
    report = bench.observe(after_s=PATIENCE_S + 0.1)
    assert one(report, "/").readings["host.disk_free_ratio"].value == 0.5
    assert one(report, "/srv/link").readings["host.disk_free_ratio"].failed


def test_a_chip_that_hangs(bench: Bench) -> None:
    bench.host.put_temperature("ipmi@0", "CPU", 40.0, 90.0)
    wait_for(lambda: len(bench.observe().sensors) == 2)
    bench.host.hang("ipmi@0")
    bench.host.asked.clear()
    bench.clock.advance(10.0)
    bench.observe_until_asked("ipmi@0")
    report = bench.observe(after_s=PATIENCE_S + 0.1)
    readings = {each.key: each.readings["host.sensor_temperature"] for each in report.sensors}
    assert readings["coretemp@coretemp.0/Package id 0"] == value(58)
    assert readings["ipmi@0/CPU"].problem == "does not answer"
    assert report.problems == {"sensors": "ipmi@0: does not answer"}


def test_a_chip_that_is_gone() -> None:
    bench = Bench()
    bench.host.put_temperature("nvme@nvme0", "Composite", 40.0, 85.0)
    assert len(bench.observe().sensors) == 2
    del bench.host.chip_sensors["nvme@nvme0"]
    assert [each.chip for each in bench.observe(after_s=10.0).sensors] == ["coretemp"]


def test_so_many_hang_that_nothing_is_asked_any_more(bench: Bench) -> None:
    """What was known grows old, and is not told as if it were new (S3)."""
    wait_for(lambda: bench.observe().sensors and len(one(bench.observe(), "/").paths) == 4)
    paths = [f"/nfs{number}" for number in range(MOST_LEFT)]
    for number, path in enumerate(paths):
        bench.host.put_disk(FileSystem(path, "nfs4", f"store:{path}", f"0:{60 + number}"), size=GIB, free=GIB)
        bench.host.hang(path)
    bench.source.watch(paths)
    bench.clock.advance(15.0)
    for path in paths:
        bench.observe_until_asked(path)
        report = bench.observe(after_s=PATIENCE_S + 0.1)
    assert "asked no more" in report.problems["host"]
    assert one(report, "/").readings["host.disk_free_ratio"] == value(0.5)
    report = bench.observe(after_s=46.0)
    assert one(report, "/").readings["host.disk_free_ratio"].failed
    (package,) = report.sensors
    assert package.readings["host.sensor_temperature"].failed
    assert report.readings["host.memory_available_ratio"].value


HANGS = StuckThread(700, 702, 7000, "python3", 0, "root", "/system.slice/a.service", "nvidia_ioctl", (), True)


def test_nobody_looks_without_a_reason() -> None:
    bench = Bench()
    for _ in range(30):
        report = bench.observe(after_s=1.0)
    assert "host.stuck_processes" not in report.readings
    assert not any(name.startswith("stuck") for name in bench.host.asked)


def test_two_looks_make_a_stuck_process() -> None:
    bench = Bench()
    bench.host.stuck_threads = (HANGS, replace(HANGS, thread=703), replace(HANGS, pid=900, thread=900, in_driver=False))
    first = bench.observe(stuck=True, pids=(700,))
    assert bench.host.asked.count("stuck [700]") == 1
    assert first.readings["host.stuck_processes"] == value(0), "D is normal for a moment"
    assert [each.since for each in first.stuck] == [first.taken] * 3
    assert bench.observe(after_s=1.0, stuck=True).stuck == first.stuck
    later = bench.observe(after_s=9.0, stuck=True)
    assert later.readings["host.stuck_processes"] == value(1), "one process, and not the one that waits for a disk"
    assert {each.since for each in later.stuck} == {first.taken}
    assert later.stuck_looked == later.taken


def test_another_process_with_the_same_number_starts_anew() -> None:
    bench = Bench()
    bench.host.stuck_threads = (HANGS,)
    bench.observe(stuck=True)
    bench.host.stuck_threads = (replace(HANGS, started_ticks=8000),)
    later = bench.observe(after_s=10.0, stuck=True)
    assert later.readings["host.stuck_processes"] == value(0)
    assert later.stuck[0].since == later.taken


def test_a_look_is_forgotten_after_a_minute() -> None:
    bench = Bench()
    bench.host.stuck_threads = (HANGS,)
    bench.observe(stuck=True)
    assert bench.observe(after_s=59.0).stuck
    report = bench.observe(after_s=2.0)
    assert (report.stuck, report.stuck_looked) == ((), None)
    assert "host.stuck_processes" not in report.readings


def test_the_look_itself_may_hang(bench: Bench) -> None:
    bench.host.hang("stuck []")
    bench.observe(stuck=True)
    bench.observe_until_asked("stuck []")
    report = bench.observe(after_s=PATIENCE_S + 0.1)
    assert "hangs itself" in report.problems["stuck"]
    wait_for(lambda: len(bench.observe().sensors) == 1)


def test_a_report_survives_the_codec() -> None:
    bench = Bench(STATE)
    bench.host.stuck_threads = (HANGS,)
    report = bench.observe(stuck=True)
    assert decode(HostReport, encode(report)) == report


def test_subjects_for_rules() -> None:
    bench = Bench(STATE)
    bench.host.put_disk(VAR, size=100 * GIB, free=10 * GIB)
    subjects = {each.subject: each for each in bench.observe().subjects()}
    var, package = Subject("filesystem", "/var"), Subject("sensor", "coretemp@coretemp.0/Package id 0")
    assert set(subjects) == {Subject("filesystem", "/"), var, package}
    assert subjects[var].readings["host.disk_free_ratio"] == value(0.1)
    assert subjects[package].label == "coretemp Package id 0"
    for each in subjects.values():
        assert {METRICS[name].scope for name in each.readings} == {each.subject.kind}


def test_a_clock_of_another_boot_asks_everything_anew() -> None:
    bench = Bench(STATE)
    bench.observe()
    bench.clock.reboot("f" * 32)
    report = bench.observe()
    assert report.filesystems[0].taken == report.taken
