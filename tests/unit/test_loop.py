"""The loop: it schedules, it keeps going, it tells the service manager (S7)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Optional

import pytest

from gpuwatch.daemon.loop import MOST_HURRIED, Flags, Loop, Waker
from gpuwatch.model.errors import SourceError
from gpuwatch.system.clock import SystemClock
from tests.fakes.manager import FakeManager
from tests.scenarios.bench import FakeLog


class Bell:
    """A doorbell over a pipe."""

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)

    def fds(self) -> tuple[int, ...]:
        return (self.read_fd,)

    def rang(self) -> bool:
        return bool(os.read(self.read_fd, 100))

    def close(self) -> None:
        os.close(self.read_fd)
        os.close(self.write_fd)


class Turn:
    """Counts cycles; stops the loop after some; raises or rings when told to."""

    def __init__(self, flags: Flags, cycles: int) -> None:
        self.flags, self.left = flags, cycles
        self.times: list[float] = []
        self.reloads = 0
        self.hurry = 0
        self.errors: dict[int, Exception] = {}
        self.heard = 0
        self.bell: Optional[Bell] = None

    def run(self) -> str:
        self.times.append(SystemClock().monotonic())
        number = len(self.times)
        if number >= self.left:
            self.flags.stop = True
        if self.bell is not None:
            os.write(self.bell.write_fd, b"!")
        if number in self.errors:
            raise self.errors[number]
        return f"cycle {number}"

    def listen(self) -> bool:
        self.heard += 1
        return self.heard >= 3

    def hurries(self) -> bool:
        self.hurry -= 1
        return self.hurry >= 0

    def reload(self) -> None:
        self.reloads += 1


@pytest.fixture
def parts() -> Iterator[dict[str, Any]]:
    waker, bell = Waker(), Bell()
    flags = Flags(waker)
    yield {"waker": waker, "bell": bell, "flags": flags, "manager": FakeManager(), "log": FakeLog()}
    bell.close()
    os.close(waker.fd)


def loop(parts: dict[str, Any], turn: Turn, interval_s: float = 0.02) -> Loop:
    return Loop(
        turn,
        SystemClock(),
        parts["manager"],
        parts["log"],
        parts["bell"],
        parts["waker"],
        parts["flags"],
        lambda: (),
        lambda: interval_s,
    )


def test_ready_comes_after_the_first_cycle_and_watchdog_after_each(parts: dict[str, Any]) -> None:
    loop(parts, Turn(parts["flags"], 3)).run()
    said = parts["manager"].said
    assert said[0] == {"WATCHDOG": "1", "STATUS": "cycle 1", "READY": "1"}
    assert [fields.get("READY") for fields in said] == ["1", None, None]
    assert all(fields["WATCHDOG"] == "1" for fields in said)


@pytest.mark.parametrize("error", [SourceError("no"), ValueError("a bug")])
def test_a_failed_cycle_sends_no_watchdog_and_the_next_one_comes(parts: dict[str, Any], error: Exception) -> None:
    turn = Turn(parts["flags"], 3)
    turn.errors[2] = error
    loop(parts, turn).run()
    assert [fields["STATUS"] for fields in parts["manager"].said] == ["cycle 1", "cycle 3"]
    assert any("the cycle failed (1 in a row)" in line for _, line in parts["log"].lines)


def test_reload_is_announced_and_done_between_cycles(parts: dict[str, Any]) -> None:
    turn = Turn(parts["flags"], 2)
    parts["flags"].reload = True
    loop(parts, turn).run()
    assert turn.reloads == 1
    assert parts["manager"].said[:2] == [{"RELOADING": "1"}, {"READY": "1"}]


def test_a_wake_ends_the_wait(parts: dict[str, Any]) -> None:
    turn = Turn(parts["flags"], 3)
    parts["waker"].wake()
    started = SystemClock().monotonic()
    turn.left = 2
    loop(parts, turn, interval_s=30.0).run()
    assert SystemClock().monotonic() - started < 10


def test_the_doorbell_brings_the_next_cycle_forward(parts: dict[str, Any]) -> None:
    turn = Turn(parts["flags"], 2)
    turn.bell = parts["bell"]
    started = SystemClock().monotonic()
    loop(parts, turn, interval_s=30.0).run()
    assert SystemClock().monotonic() - started < 10
    assert turn.heard == 3, "the journal is read until the line has come"


def test_what_is_half_done_brings_the_next_cycle_forward(parts: dict[str, Any]) -> None:
    turn = Turn(parts["flags"], 4)
    turn.hurry = 3
    started = SystemClock().monotonic()
    loop(parts, turn, interval_s=30.0).run()
    assert SystemClock().monotonic() - started < 10


def test_hurry_has_an_end(parts: dict[str, Any]) -> None:
    turn = Turn(parts["flags"], 1000)
    turn.hurry = 10_000
    began = SystemClock().monotonic()
    turn.left = MOST_HURRIED + 3
    loop(parts, turn, interval_s=1.5).run()
    assert SystemClock().monotonic() - began > 1.0, "the last cycles came at their own time"


def test_many_early_cycles_move_no_schedule(parts: dict[str, Any]) -> None:
    """A storm of kernel lines rings each time; the cycle that is due still comes when it is due."""

    class Storm(Turn):
        def run(self) -> str:
            self.bell = parts["bell"] if len(self.times) < 10 else None
            return super().run()

    turn = Storm(parts["flags"], 12)
    turn.heard = 3  # every ring brings a cycle
    began = SystemClock().monotonic()
    loop(parts, turn, interval_s=0.5).run()
    assert SystemClock().monotonic() - began < 3.0, "ten early cycles would have put off the next one by five seconds"
