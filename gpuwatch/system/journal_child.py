"""The process that reads the journal for the daemon; see journal_client for why it is one.

Standard input and output carry one JSON object a line. The first line opens the journal: {"cursor", "path"}. A
question is {"ask", "limit", "deadline_s"} with "interest" when that is new. The answer has the question's "ask" and
"entries" as lists in the order of JournalEntry. A long one comes in several lines: each but the last waits for a {"go"}
before the next, and the last has "cursor", "more", "gap" and "problem".

When something of interest is logged and nothing was asked, the same comes with "ask" 0, once until the next question:
so the daemon sleeps through everything else that is logged.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections import deque
from typing import Any, Callable

from gpuwatch.model.instant import Instant
from gpuwatch.system.journal import SystemJournal
from gpuwatch.system.protocols import Interest, Journal, JournalBatch

LINE_CHARACTERS = 256 * 1024
UNASKED_LIMIT, UNASKED_S = 2000, 0.1  # of what is read before it is asked for


class BareClock:
    """protocols.Clock without a boot id, which reading the journal doesn't need."""

    def now(self) -> Instant:
        """See protocols.Clock."""
        return Instant("", time.clock_gettime(time.CLOCK_BOOTTIME), time.time())

    def monotonic(self) -> float:
        """See protocols.Clock."""
        return time.monotonic()


class Server:
    """Answers until standard input ends."""

    def __init__(self, open_journal: Callable[[dict[str, Any]], Journal], stdin: int, stdout: int) -> None:
        self._open, self._stdin, self._stdout = open_journal, stdin, stdout
        self._journal: Journal
        self._partial = b""
        self._waiting: deque[dict[str, Any]] = deque()  # what has been said to us
        self._told = True  # nothing is sent unasked before the first answer
        self._problem = ""

    def run(self) -> None:
        """Until there is nobody to answer to."""
        while True:
            while self._waiting:
                self._take(self._waiting.popleft())
            poll = select.poll()
            poll.register(self._stdin, select.POLLIN)
            for fd in () if self._told else self._journal.fds():
                poll.register(fd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll()}
            if self._stdin in ready:
                self._listen()
            else:
                self._volunteer()

    def _listen(self) -> None:
        """Take in what the daemon says. Raises EOFError when it is gone."""
        data = os.read(self._stdin, 1 << 16)
        if not data:
            raise EOFError
        *lines, self._partial = (self._partial + data).split(b"\n")
        self._waiting += map(json.loads, lines)

    def _take(self, message: dict[str, Any]) -> None:
        if "ask" in message:
            self._answer(message)
        else:
            self._journal = self._open(message)

    def _answer(self, question: dict[str, Any]) -> None:
        interest = question.get("interest")
        if interest is not None:
            self._journal.watch(Interest(tuple(interest["units"]), tuple(interest["containers"])))
        batch = self._journal.read(question["limit"], question["deadline_s"])
        self._told, self._problem = False, batch.problem
        self._send(question["ask"], batch)

    def _volunteer(self) -> None:
        batch = self._journal.read(UNASKED_LIMIT, UNASKED_S)
        if batch.entries or batch.gap or batch.more or batch.problem != self._problem:
            self._told, self._problem = True, batch.problem
            self._send(0, batch)

    def _send(self, ask: int, batch: JournalBatch) -> None:
        entries: list[list[Any]] = []
        size = 0
        for entry in batch.entries:
            row = [entry.cursor, entry.realtime_us, entry.monotonic_us, entry.boot_id, entry.fields]
            entries.append(row)
            size += 200 + sum(map(len, entry.fields.values()))
            if size >= LINE_CHARACTERS:
                self._write({"ask": ask, "entries": entries})
                entries, size = [], 0
                self._await_go()
        end = {"cursor": batch.cursor, "more": batch.more, "gap": batch.gap, "problem": batch.problem}
        self._write({"ask": ask, "entries": entries, **end})

    def _await_go(self) -> None:
        """So that no more than a line is on its way, whatever it holds: control characters take six bytes each."""
        while not any("go" in message for message in self._waiting):
            self._listen()
        self._waiting = deque(message for message in self._waiting if "go" not in message)

    def _write(self, message: dict[str, Any]) -> None:
        rest = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        while rest:
            rest = rest[os.write(self._stdout, rest) :]


def main() -> int:
    """Runs in the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the daemon; this one ends with its input
    try:
        Server(lambda opening: SystemJournal(opening["cursor"], BareClock(), path=opening["path"]), 0, 1).run()
    except (BrokenPipeError, EOFError):
        pass  # the daemon is gone
    return 0


if __name__ == "__main__":
    sys.exit(main())
