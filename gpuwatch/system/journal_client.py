"""The journal behind a process of its own, so that neither a hanging nor a broken disk takes the daemon along (S7).

libsystemd maps the journal's files into memory. A page that has to come from a disk that hangs stops the thread that
touches it, and systemd-python touches pages (_get, _get_all, _get_cursor) without letting other threads of Python run:
a thread of ours would hold the whole daemon. A page that can't be read at all, or that was cut off from the file, is
SIGBUS, which ends the process. A child costs some MiB (see tests/bench), and ends alone.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any, Callable, Optional

from gpuwatch.system.child import JsonChild
from gpuwatch.system.protocols import NOBODY, Clock, Interest, JournalBatch, JournalEntry

MODULE = "gpuwatch.system.journal_child"
START_S = 2.0  # the first answer of a child is waited for so long: a single pass has no second chance
SILENT_S = 3.0  # without an answer for so long it counts as hanging
KILL_S = 60.0  # and after so long it is killed; what is stuck in the kernel dies when the disk answers
BACK_OFF_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


def start_child() -> JsonChild:
    """The reader of this host's journal. Raises OSError."""
    return JsonChild(MODULE, env={name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ})


class JournalClient:
    """See protocols.Journal. At most one child: while one is stuck in the kernel no other is started."""

    def __init__(
        self,
        cursor: str,
        clock: Clock,
        interest: Interest = NOBODY,
        path: Optional[str] = None,
        start: Callable[[], JsonChild] = start_child,
    ) -> None:
        """Arguments as SystemJournal's. Starts nothing yet."""
        self._cursor, self._clock, self._path, self._start = cursor, clock, path, start
        self._interest, self._interest_is_new = interest, True
        self._child: Optional[JsonChild] = None
        self._asked_at: Optional[float] = None  # a question is open since then
        self._number = 0
        self._killed = False
        self._rows: list[list[Any]] = []  # of an answer that is not complete
        self._batches: list[JournalBatch] = []
        self._problem = ""
        self._failures = 0
        self._retry_at = 0.0

    @property
    def pid(self) -> Optional[int]:
        """The child's, while there is one."""
        return None if self._child is None else self._child.pid

    @property
    def idle(self) -> bool:
        """True when no question is open: the last batch was an answer, not a stop-gap."""
        return self._asked_at is None

    def watch(self, interest: Interest) -> None:
        """See protocols.Journal."""
        self._interest, self._interest_is_new = interest, True

    def fds(self) -> tuple[int, ...]:
        return () if self._child is None else (self._child.fd,)

    def read(self, limit: int, deadline_s: float) -> JournalBatch:
        fresh = self._child is None
        end = self._clock.monotonic() + (max(deadline_s, START_S) if fresh else deadline_s)
        if not self._ready():
            return JournalBatch(cursor=self._cursor, problem=self._problem)
        self._collect()
        if not self._batches and self._asked_at is None and self._child is not None:
            self._ask(limit, deadline_s)
            self._await(end)
        self._watch_silence()
        return self._hand_over()

    def close(self) -> None:
        child, self._child = self._child, None
        self._forget_question()
        if child is None:
            return
        child.hang_up()
        if not child.reap(0.5):
            child.signal(signal.SIGKILL)
            child.reap(0.5)
        child.release()

    # -- the child ----------------------------------------------------------------

    def _ready(self) -> bool:
        """True when there is a child, which may have been started now."""
        if self._child is not None:
            return True
        if self._clock.monotonic() < self._retry_at:
            return False
        try:
            self._child = self._start()
        except OSError as error:
            self._fail(f"its reader can't be started: {error.strerror}")
            return False
        self._killed, self._interest_is_new = False, True
        self._child.send({"cursor": self._cursor, "path": self._path})
        return True

    def _ask(self, limit: int, deadline_s: float) -> None:
        assert self._child is not None
        self._number += 1
        question: dict[str, Any] = {"ask": self._number, "limit": limit, "deadline_s": deadline_s * 0.9}
        if self._interest_is_new:
            self._interest_is_new = False
            question["interest"] = {"units": self._interest.units, "containers": self._interest.containers}
        self._asked_at = self._clock.monotonic()
        self._child.send(question)

    def _await(self, end: float) -> None:
        while not self._batches and self._child is not None:
            left = end - self._clock.monotonic()
            if left <= 0 or not self._child.wait_readable(left):
                return
            self._collect()

    def _collect(self) -> None:
        child = self._child
        if child is None:
            return
        for message in child.receive():
            self._take(message)
        if child.broken:
            child.signal(signal.SIGKILL)  # one that talks nonsense need not have ended
            child.reap(0.2)
            how = child.end or child.broken
            child.release()
            self._child = None
            self._forget_question()
            self._fail(f"its reader ended ({how})")

    def _take(self, message: Mapping[str, Any]) -> None:
        self._rows += message["entries"]
        if "cursor" not in message:
            if self._child is not None:
                self._child.send({"go": True})
            return
        entries = tuple(JournalEntry(*row) for row in self._rows)
        self._rows = []
        if message["ask"] == self._number:
            self._asked_at, self._failures = None, 0
        self._cursor = message["cursor"]
        self._problem = message["problem"]
        self._batches.append(JournalBatch(entries, self._cursor, message["more"], message["gap"], self._problem))

    def _hand_over(self) -> JournalBatch:
        batches, self._batches = self._batches, []
        entries = tuple(entry for batch in batches for entry in batch.entries)
        gap = next((batch.gap for batch in batches if batch.gap), "")
        more = bool(batches) and batches[-1].more
        return JournalBatch(entries, self._cursor, more, gap, self._problem)

    def _watch_silence(self) -> None:
        if self._child is None or self._asked_at is None:
            return
        silent_s = self._clock.monotonic() - self._asked_at
        if silent_s >= SILENT_S:
            self._problem = f"the journal has not answered for {silent_s:.0f} s; its disk may hang"
        if silent_s >= KILL_S and not self._killed:
            self._killed = True
            self._child.signal(signal.SIGKILL)

    def _forget_question(self) -> None:
        self._asked_at, self._rows = None, []

    def _fail(self, why: str) -> None:
        self._problem = f"the journal can't be read: {why}"
        self._retry_at = self._clock.monotonic() + BACK_OFF_S[min(self._failures, len(BACK_OFF_S) - 1)]
        self._failures += 1
