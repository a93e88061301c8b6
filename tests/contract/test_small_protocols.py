"""Clock, Worker, Doorbell, Courier, Manager, DurableFiles, Log: what callers may rely on, of the stand-in and of the
real one."""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from gpuwatch.alerts.courier import SenderCourier
from gpuwatch.alerts.pipeline import request as delivery
from gpuwatch.model.notification import Message, SpoolEntry
from gpuwatch.model.rule import Severity
from gpuwatch.model.settings import Channel
from gpuwatch.simulation.journal import JournalWorld, SimulatedDoorbell, SimulatedJournal
from gpuwatch.simulation.receiver import KEY, Receiver
from gpuwatch.system import protocols
from gpuwatch.system.clock import SystemClock
from gpuwatch.system.files import RealFiles
from gpuwatch.system.kmsg import KmsgDoorbell
from gpuwatch.system.log import JournalLog, NullLog, StderrLog
from gpuwatch.system.notify import NullManager, SystemdManager
from gpuwatch.system.worker import InlineWorker, ThreadWorker
from tests.fakes.clock import FakeClock
from tests.fakes.courier import FakeCourier
from tests.fakes.manager import FakeManager
from tests.fakes.recorded_files import RecordedFiles
from tests.lab.waiting import wait_for
from tests.scenarios.bench import FakeLog

# -- Clock: (the clock, let some time go by)

Clocked = tuple[protocols.Clock, Callable[[], None]]


@pytest.fixture(params=["fake", "real"])
def clocked(request: pytest.FixtureRequest) -> Clocked:
    if request.param == "fake":
        fake = FakeClock()
        return fake, lambda: fake.advance(0.05)
    return SystemClock(), lambda: time.sleep(0.05)


def test_clock_goes_on_in_all_its_parts(clocked: Clocked) -> None:
    clock, pass_time = clocked
    first, waited = clock.now(), clock.monotonic()
    pass_time()
    second = clock.now()
    assert 0.04 < (second.since(first) or 0.0) < 5.0
    assert 0.04 < clock.monotonic() - waited < 5.0
    assert 0.04 < second.utc_s - first.utc_s < 5.0


def test_clock_names_the_boot_as_the_journal_does(clocked: Clocked) -> None:
    clock, _ = clocked
    assert re.fullmatch("[0-9a-f]{32}", clock.now().boot_id)
    assert clock.now().boot_id == clock.now().boot_id
    assert clock.now().boottime_s > 0 and clock.now().utc_s > 1.7e9


# -- Worker


@pytest.fixture(params=["inline", "thread"])
def worker(request: pytest.FixtureRequest) -> protocols.Worker:
    return InlineWorker() if request.param == "inline" else ThreadWorker("contract")


def test_worker_runs_jobs_in_order(worker: protocols.Worker) -> None:
    ran: list[int] = []
    tasks = [worker.submit(lambda number=number: ran.append(number)) for number in range(20)]  # type: ignore[misc]
    assert worker.wait(tasks[-1], 10.0)
    assert ran == list(range(20)) and all(task.done() for task in tasks)


def test_worker_gives_what_a_job_returned_or_raised(worker: protocols.Worker) -> None:
    good, bad = worker.submit(lambda: 7), worker.submit(lambda: 1 // 0)
    assert worker.wait(good, 10.0) and worker.wait(bad, 10.0)
    assert good.result() == 7 and good.result() == 7
    with pytest.raises(ZeroDivisionError):
        bad.result()
    after = worker.submit(lambda: "still at work")
    assert worker.wait(after, 10.0) and after.result() == "still at work"


def test_worker_tells_the_age_of_a_task(worker: protocols.Worker) -> None:
    task = worker.submit(lambda: None)
    assert worker.wait(task, 10.0) and 0.0 <= task.age_s() < 10.0


def test_a_job_that_hangs_is_left_behind() -> None:  # S7; what runs inline can't be left
    release = threading.Event()
    worker = ThreadWorker("hangs")
    task = worker.submit(lambda: release.wait(20.0))
    began = time.monotonic()
    behind = worker.submit(lambda: "later")
    assert not worker.wait(task, 0.05) and not behind.done()
    assert time.monotonic() - began < 5.0 and task.age_s() >= 0.05
    release.set()
    assert worker.wait(behind, 10.0) and task.result() is True


def test_a_thread_wakes_whoever_waits_for_it() -> None:
    woken = threading.Event()
    ThreadWorker("wakes", woken.set).submit(lambda: None)
    assert woken.wait(10.0)


# -- Doorbell: (the bell, the kernel says something)

Belled = tuple[protocols.Doorbell, Callable[[], object]]


@pytest.fixture(params=["simulated", "fifo"])
def belled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Belled]:
    if request.param == "simulated":
        world = JournalWorld()
        journal = SimulatedJournal(FakeClock(), world=world)
        journal.kernel("before the bell was there")
        yield SimulatedDoorbell(world), lambda: journal.kernel("news")
        return
    os.mkfifo(tmp_path / "kmsg")
    writer = os.open(tmp_path / "kmsg", os.O_RDWR)
    bell = KmsgDoorbell(str(tmp_path / "kmsg"))
    yield bell, lambda: os.write(writer, b"3,1,1,-;news\n")
    bell.close()
    os.close(writer)


def test_doorbell_rings_once_for_all_that_waits(belled: Belled) -> None:
    bell, speak = belled
    assert not bell.rang()
    for _ in range(3):
        speak()
    assert bell.rang() and not bell.rang()
    speak()
    assert bell.rang()


def test_doorbell_shows_what_to_wait_for(belled: Belled) -> None:
    bell, speak = belled
    speak()
    assert all(os.get_blocking(fd) is False for fd in bell.fds())
    bell.rang()
    bell.close()
    assert bell.fds() == ()


# -- Courier


class Post(Protocol):
    """A courier, and the service behind it."""

    @property
    def courier(self) -> protocols.Courier: ...
    def refuse(self) -> None: ...
    def delivered(self) -> int: ...
    def close(self) -> None: ...


class FakePost:
    def __init__(self) -> None:
        self.courier = FakeCourier()
        self._refused = 0

    def refuse(self) -> None:
        self.courier.refusal = {"ok": False, "retryable": False, "problem": "errcode 40058"}
        self._refused = 1

    def delivered(self) -> int:
        return len(self.courier.sent) - self._refused

    def close(self) -> None:
        self.courier.close(1.0)


class RealPost:
    def __init__(self) -> None:
        self.receiver = Receiver()
        self.receiver.__enter__()
        self.courier = SenderCourier(SystemClock())

    def refuse(self) -> None:
        self.receiver.misbehave(body='{"errcode": 40058, "errmsg": "invalid Request Parameter"}')

    def delivered(self) -> int:
        return len(self.receiver.messages)

    def close(self) -> None:
        self.courier.close(1.0)
        self.receiver.close()


@pytest.fixture(params=["fake", "real"])
def post(request: pytest.FixtureRequest) -> Iterator[Post]:
    post: Post = FakePost() if request.param == "fake" else RealPost()
    yield post
    post.close()


def letter(post: Post, name: str) -> Mapping[str, object]:
    url = post.receiver.url if isinstance(post, RealPost) else "http://127.0.0.1:9"
    message = Message("[critical] gpu-07 GPU3 hot", ("a line",), Severity.CRITICAL, "firing")
    return delivery(SpoolEntry(name, "ops", message, 0.0), Channel("ops", "wecom", options={"url": url}), KEY, "en")


def answers(post: Post, count: int) -> list[Mapping[str, object]]:
    told: list[Mapping[str, object]] = []

    def enough() -> bool:
        told.extend(post.courier.outcomes())
        return len(told) >= count

    wait_for(enough, 20, f"{count} outcomes")
    return told


def test_courier_tells_what_became_of_each_message_once(post: Post) -> None:
    assert post.courier.outcomes() == ()
    post.courier.send((letter(post, "one"), letter(post, "two")))
    post.courier.send((letter(post, "three"),))
    told = answers(post, 3)
    assert [answer["id"] for answer in told] == ["one", "two", "three"]
    assert all(answer["ok"] is True for answer in told)
    assert post.courier.outcomes() == () and post.delivered() == 3


def test_courier_tells_a_refusal(post: Post) -> None:
    post.refuse()
    post.courier.send((letter(post, "one"),))
    (answer,) = answers(post, 1)
    assert (answer["id"], answer["ok"], answer["retryable"]) == ("one", False, False)
    assert "40058" in str(answer["problem"]) and post.delivered() == 0


def test_courier_that_is_closed_owes_nothing(post: Post) -> None:
    post.courier.send((letter(post, "one"),))
    post.courier.close(2.0)
    assert post.courier.fds() == ()
    (answer,) = answers(post, 1)
    assert answer["id"] == "one" and (answer["ok"] is True or answer["retryable"] is True)


# -- Manager: (the manager, what it has heard)

Managed = tuple[protocols.Manager, Callable[[], dict[str, str]]]


@pytest.fixture(params=["fake", "socket"])
def managed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Managed]:
    if request.param == "fake":
        fake = FakeManager()
        yield fake, lambda: fake.said.pop(0)
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(10.0)

        def next_message() -> dict[str, str]:
            lines = heard.recv(65536).decode().splitlines()
            return dict(line.split("=", 1) for line in lines)

        yield SystemdManager({"NOTIFY_SOCKET": str(tmp_path / "notify")}), next_message


def test_manager_hears_each_word_in_one_message(managed: Managed) -> None:
    manager, heard = managed
    manager.notify(READY="1", STATUS="8 GPUs ok")
    manager.notify(WATCHDOG="1")
    assert heard() == {"READY": "1", "STATUS": "8 GPUs ok"}
    assert heard() == {"WATCHDOG": "1"}


def test_manager_hears_of_a_reload(managed: Managed) -> None:
    manager, heard = managed
    manager.notify(RELOADING="1")
    assert heard()["RELOADING"] == "1"


def test_nobody_to_tell_is_no_trouble(tmp_path: Path) -> None:
    for manager in (NullManager(), SystemdManager({"NOTIFY_SOCKET": str(tmp_path / "none")})):
        manager.notify(READY="1")


# -- DurableFiles


@pytest.fixture(params=["recorded", "real"])
def files(request: pytest.FixtureRequest) -> protocols.DurableFiles:
    return RecordedFiles() if request.param == "recorded" else RealFiles()


def test_files_are_private_and_whole(files: protocols.DurableFiles, tmp_path: Path) -> None:
    inside = tmp_path / "d"
    files.make_directory(str(inside))
    files.write(str(inside / "a"), b"x" * 100_000)
    files.sync_directory(str(inside))
    assert stat.S_IMODE(inside.stat().st_mode) == 0o700
    assert stat.S_IMODE((inside / "a").stat().st_mode) == 0o600
    assert (inside / "a").read_bytes() == b"x" * 100_000


def test_a_directory_is_renamed_into_place(files: protocols.DurableFiles, tmp_path: Path) -> None:
    files.make_directory(str(tmp_path / ".new"))
    files.write(str(tmp_path / ".new" / "a"), b"x")
    files.rename(str(tmp_path / ".new"), str(tmp_path / "done"))
    assert (tmp_path / "done" / "a").read_bytes() == b"x" and not (tmp_path / ".new").exists()


def test_removing_what_is_not_there_is_fine(files: protocols.DurableFiles, tmp_path: Path) -> None:
    files.make_directory(str(tmp_path / "d"))
    files.write(str(tmp_path / "d" / "a"), b"")
    for _ in range(2):
        files.remove_tree(str(tmp_path / "d"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "call, number",
    [
        (lambda files, place: files.write(f"{place}/there", b"x"), errno.EEXIST),
        (lambda files, place: files.write(f"{place}/no/a", b"x"), errno.ENOENT),
        (lambda files, place: files.make_directory(f"{place}/there"), errno.EEXIST),
        (lambda files, place: files.rename(f"{place}/no", f"{place}/b"), errno.ENOENT),
        (lambda files, place: files.sync_directory(f"{place}/no"), errno.ENOENT),
    ],
)
def test_errors_of_files_come_out(
    files: protocols.DurableFiles, tmp_path: Path, call: Callable[[Any, Path], None], number: int
) -> None:
    (tmp_path / "there").write_bytes(b"precious")
    with pytest.raises(OSError, match=re.escape(os.strerror(number))):
        call(files, tmp_path)
    assert (tmp_path / "there").read_bytes() == b"precious"


# -- Log


@pytest.fixture(params=["fake", "null", "stderr", "journal"])
def log(request: pytest.FixtureRequest) -> protocols.Log:
    if request.param == "journal":
        pytest.importorskip("systemd._journal", exc_type=ImportError)
        return JournalLog()
    made: dict[str, Callable[[], protocols.Log]] = {"fake": FakeLog, "null": NullLog, "stderr": StderrLog}
    return made[request.param]()


@pytest.mark.parametrize(
    "text",
    ["a line", "two\nlines", "", "中文 and \x1b[31m", "y" * 300_000],
    ids=["plain", "lines", "empty", "odd", "long"],
)
def test_log_takes_any_line(log: protocols.Log, text: str) -> None:
    for priority in range(8):
        log.write(priority, text)
    log.write(4, text, {"GPUWATCH_INCIDENT": "gpu-07#17", "GPU_UUID": text})
    log.write(4, text, {})
