"""Questions that may hang: the others go on, threads are bounded, what comes back late may be asked again."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from gpuwatch.model.instant import Instant
from gpuwatch.sources.rounds import MOST_LEFT, PATIENCE_S, Rounds
from gpuwatch.system.protocols import Worker
from gpuwatch.system.worker import InlineWorker, ThreadWorker
from tests.fakes.clock import FakeClock
from tests.lab.waiting import wait_for


class Bench:
    """Rounds over real threads and a clock that stands still, with jobs that hang until they are let go."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.workers = 0
        self.rounds = Rounds(self.make_worker, self.clock)
        self.answers: dict[str, Instant] = {}
        self.asked: list[str] = []
        self.doors: dict[str, threading.Event] = {}

    def make_worker(self) -> Worker:
        self.workers += 1
        return ThreadWorker(f"round-{self.workers}")

    def ask(self, name: str, hangs: bool = False) -> None:
        door = threading.Event()
        if hangs:
            self.doors[name] = door
        else:
            door.set()

        def job() -> str:
            self.asked.append(name)
            door.wait(30.0)
            return name

        self.rounds.ask(name, job, self.take)

    def take(self, name: str, taken: Instant) -> None:
        self.answers[name] = taken

    def collect_until(self, *names: str) -> None:
        def there() -> bool:
            self.rounds.collect()
            return set(names) <= set(self.answers)

        wait_for(there, what=f"answers of {names}")

    def hang(self, name: str) -> None:
        """Let the time pass in which it should have answered."""
        self.rounds.collect()
        wait_for(lambda: name in self.asked, what=f"{name} is asked")
        self.clock.advance(PATIENCE_S + 0.1)
        self.rounds.collect()
        assert name in self.rounds.hung


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    for door in bench.doors.values():
        door.set()


def test_all_are_asked_by_one_worker(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        bench.ask(name)
    bench.collect_until("a", "b", "c")
    assert bench.asked == ["a", "b", "c"]
    assert bench.workers == 1
    assert set(bench.answers.values()) == {bench.clock.now()}
    bench.ask("a")
    bench.collect_until("a")
    assert bench.workers == 1


def test_nothing_is_asked_twice_at_once(bench: Bench) -> None:
    bench.ask("a", hangs=True)
    bench.ask("a")
    bench.rounds.collect()
    wait_for(lambda: bench.asked == ["a"])
    bench.ask("a")
    bench.rounds.collect()
    bench.doors["a"].set()
    bench.collect_until("a")
    bench.ask("z")
    bench.collect_until("z")
    assert bench.asked == ["a", "z"]


def test_what_is_under_way_is_waited_for(bench: Bench) -> None:
    bench.ask("a", hangs=True)
    bench.rounds.collect()
    bench.clock.advance(PATIENCE_S - 0.1)
    bench.rounds.collect()
    assert bench.rounds.hung == ()
    bench.doors["a"].set()
    bench.collect_until("a")


def test_one_that_hangs_does_not_keep_the_others(bench: Bench) -> None:
    bench.ask("before")
    bench.ask("nfs", hangs=True)
    bench.ask("after")
    bench.hang("nfs")
    bench.collect_until("before", "after")
    assert bench.rounds.hung == ("nfs",)
    assert bench.asked == ["before", "nfs", "after"]
    assert bench.workers == 2
    bench.ask("nfs")
    bench.ask("before")
    bench.rounds.collect()
    wait_for(lambda: bench.asked.count("before") == 2)
    assert bench.asked.count("nfs") == 1, "no second thread for what hangs"


def test_what_came_back_is_asked_again_and_its_thread_is_used_again(bench: Bench) -> None:
    bench.ask("nfs", hangs=True)
    bench.ask("after")
    bench.hang("nfs")
    bench.collect_until("after")
    bench.answers.clear()
    bench.doors["nfs"].set()

    def back() -> bool:
        bench.rounds.collect()
        return bench.rounds.hung == ()

    wait_for(back)
    assert bench.answers == {}, "an answer of long ago says nothing about now"
    for number in range(3):
        bench.ask("nfs")
        bench.ask("other")
        bench.answers.clear()
        bench.collect_until("nfs", "other")
        assert bench.asked.count("nfs") == 2 + number
    assert bench.asked.count("after") == 1, "the late thread does not go on with what others have done"
    assert bench.workers == 2


def test_threads_are_bounded(bench: Bench) -> None:
    names = [f"nfs{number}" for number in range(MOST_LEFT + 2)]
    for name in names:
        bench.ask(name, hangs=True)
    for name in names[:MOST_LEFT]:
        bench.hang(name)
    assert bench.rounds.blocked
    bench.ask("good")
    for _ in range(3):
        bench.clock.advance(PATIENCE_S + 1)
        bench.rounds.collect()
    assert bench.workers == MOST_LEFT
    assert bench.asked == names[:MOST_LEFT]
    for door in bench.doors.values():
        door.set()
    bench.collect_until("good", *names[MOST_LEFT:])
    assert not bench.rounds.blocked
    assert bench.workers == MOST_LEFT


def test_a_pass_may_wait(bench: Bench) -> None:
    for name in ("a", "b"):
        bench.ask(name)
    bench.rounds.collect(wait_s=10.0)
    assert set(bench.answers) == {"a", "b"}


def test_an_answer_is_as_old_as_its_question() -> None:
    clock = FakeClock()
    rounds = Rounds(InlineWorker, clock)
    began, found = clock.now(), []
    rounds.ask("slow", lambda: clock.advance(2.0), lambda nothing, taken: found.append(taken))
    rounds.collect()
    assert found == [began]


def test_an_answer_may_raise_another_question() -> None:
    clock = FakeClock()
    rounds = Rounds(InlineWorker, clock)
    found: list[int] = []

    def take(number: int, taken: Instant) -> None:
        found.append(number)
        if number < 3:
            rounds.ask("next", lambda: number + 1, take)

    rounds.ask("first", lambda: 1, take)
    rounds.collect()
    assert found == [1, 2, 3]


def test_a_bug_in_a_job_is_not_hidden() -> None:
    rounds = Rounds(InlineWorker, FakeClock())

    def broken() -> int:
        raise RuntimeError("a bug")

    rounds.ask("good", lambda: 1, lambda number, taken: None)
    rounds.ask("bad", broken, lambda number, taken: None)
    with pytest.raises(RuntimeError, match="a bug"):
        rounds.collect()
    rounds.ask("good", lambda: 1, lambda number, taken: None)
    rounds.collect()  # and goes on
