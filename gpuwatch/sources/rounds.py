"""Questions that may never be answered (a hung NFS, a sensor on a dead bus), asked without waiting for them.

A round of questions is one job of a worker. One that does not answer within its time is left behind together
with the worker's thread, and the rest of its round is asked by a fresh one; it is not asked again until that
thread has come back. So each question that hangs costs one sleeping thread, and at most MOST_LEFT of them: then
nothing is asked any more until one comes back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional, TypeVar

from gpuwatch.model.instant import Instant
from gpuwatch.system.protocols import Clock, Task, Worker

T = TypeVar("T")
PATIENCE_S = 3.0
MOST_LEFT = 4
_Taken = Callable[[Instant], None]


@dataclass(frozen=True)
class _Question:
    name: str
    job: Callable[[], _Taken]  # asks, and returns what takes the answer in


class _Round:
    """One job; `run` is called by the worker's thread, the rest by the daemon's."""

    def __init__(self, questions: list[_Question], clock: Clock) -> None:
        self._questions, self._clock = questions, clock
        self._lock = threading.Lock()
        self._answers: list[tuple[Instant, _Taken]] = []
        self._at = 0
        self._since = clock.monotonic()
        self._left = False
        self.task: Optional[Task[None]] = None

    def run(self) -> None:
        for number, question in enumerate(self._questions):
            with self._lock:
                if self._left:
                    return  # the rest has been given to another
                self._at, self._since = number, self._clock.monotonic()
            taken = self._clock.now()
            answer = question.job()
            with self._lock:
                self._answers.append((taken, answer))

    def answers(self) -> list[tuple[Instant, _Taken]]:
        with self._lock:
            found, self._answers = self._answers, []
        return found

    def leave_if_hung(self) -> Optional[tuple[str, list[_Question]]]:
        """The question that hangs and those behind it, which are this round's no more; None while all is well."""
        with self._lock:
            if self._clock.monotonic() - self._since <= PATIENCE_S:
                return None
            self._left = True
            return self._questions[self._at].name, self._questions[self._at + 1 :]


class Rounds:
    """Asks by name. `make_worker` is called for the first round, and again for each worker left behind."""

    def __init__(self, make_worker: Callable[[], Worker], clock: Clock) -> None:
        self._make_worker, self._clock = make_worker, clock
        self._idle: list[Worker] = []
        self._worker: Optional[Worker] = None
        self._round: Optional[_Round] = None
        self._waiting: dict[str, _Question] = {}
        self._left: dict[str, tuple[_Round, Worker]] = {}
        self._asked: set[str] = set()  # in the round that is under way

    def ask(self, name: str, job: Callable[[], T], take: Callable[[T, Instant], None]) -> None:
        """Have `job` run, and `take` called with its result and when it was begun (by a later `collect`).

        Nothing is done when a question of that name has not been answered yet.
        """

        def ask_and_keep() -> _Taken:
            result = job()
            return lambda taken: take(result, taken)

        if name not in self._waiting and name not in self._asked and name not in self._left:
            self._waiting[name] = _Question(name, ask_and_keep)

    @property
    def hung(self) -> tuple[str, ...]:
        """Names of the questions that were left behind."""
        return tuple(self._left)

    @property
    def blocked(self) -> bool:
        """True when so many hang that nothing is asked any more."""
        return len(self._left) >= MOST_LEFT

    def collect(self, wait_s: float = 0.0) -> None:
        """Take in what was answered, leave behind what hangs, start what waits. Waits at most `wait_s` for it.

        Raises what a job raised.
        """
        self._welcome_back()
        self._take_in()
        self._start()
        while self._round is not None and self._round.task is not None and self._worker is not None:
            if not self._round.task.done():
                if wait_s <= 0.0:
                    break
                # A piece at a time, so that one that hangs is left behind and the others still get their turn.
                piece, began = min(wait_s, PATIENCE_S + 0.1), self._clock.monotonic()
                came = self._worker.wait(self._round.task, piece)
                wait_s -= self._clock.monotonic() - began if came else piece
            self._take_in()
            self._start()

    def _welcome_back(self) -> None:
        for name, (late, worker) in list(self._left.items()):
            if late.task is not None and late.task.done():
                del self._left[name]
                self._idle.append(worker)

    def _take_in(self) -> None:
        current = self._round
        if current is None or current.task is None:
            return
        done = current.task.done()  # looked at first: what is answered after this look comes with the next
        if done:
            self._round = None
            self._asked = set()
        for taken, take in current.answers():
            take(taken)
        if done:
            current.task.result()
            return
        hung = current.leave_if_hung()
        if hung is not None and self._worker is not None:
            name, rest = hung
            self._left[name] = (current, self._worker)
            self._round, self._worker = None, None
            self._asked = set()
            self._waiting = {**{each.name: each for each in rest}, **self._waiting}

    def _start(self) -> None:
        if self._round is not None or not self._waiting or self.blocked:
            return
        if self._worker is None:
            self._worker = self._idle.pop() if self._idle else self._make_worker()
        self._round = _Round(list(self._waiting.values()), self._clock)
        self._asked, self._waiting = set(self._waiting), {}
        self._round.task = self._worker.submit(self._round.run)
