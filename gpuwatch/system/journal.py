"""The system journal: what the kernel, journald and PID 1 say, and what workloads print.

Two handles ("tapes") on the same files:

- `trusted` asks libsystemd for kernel, journald and PID 1 alone. On a flood of other output it costs nothing,
  so nobody can delay a kernel line by logging much.
- `output` goes through everything and looks at _TRANSPORT and _SYSTEMD_UNIT before an entry is read. Matches on the
  names of known units would cost less on a flood, but a unit that starts for the first time would be found too late;
  passing over an entry takes half the time that `journalctl -o cat` needs for it.

So there are two positions; callers see one cursor that holds both, and hand it back as they got it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Callable, Optional

from gpuwatch.system.journal_parts import Parts
from gpuwatch.system.journal_tape import Opener, Tape, open_reader
from gpuwatch.system.protocols import NOBODY, Clock, Interest, JournalBatch, JournalEntry

# The kernel, journald itself ("driver"), and PID 1: nobody else can have these. Groups are or-ed.
MATCHES = (("_TRANSPORT=kernel", "_TRANSPORT=driver"), ("_PID=1",))

TRUSTED_FIELDS = frozenset(
    {
        "MESSAGE",
        "MESSAGE_ID",
        "PRIORITY",
        "SYSLOG_FACILITY",
        "SYSLOG_IDENTIFIER",
        "_TRANSPORT",
        "_PID",
        "_KERNEL_DEVICE",
        "_KERNEL_SUBSYSTEM",
        "UNIT",
        "USER_UNIT",
        "INVOCATION_ID",
        "UNIT_RESULT",
        "EXIT_CODE",
        "EXIT_STATUS",
        "JOB_TYPE",
        "JOB_RESULT",
        "N_RESTARTS",
        "N_DROPPED",
        "COMMAND",
    }
)
OUTPUT_FIELDS = frozenset(
    {
        "MESSAGE",
        "MESSAGE_ID",
        "PRIORITY",
        "SYSLOG_FACILITY",
        "SYSLOG_IDENTIFIER",
        "_TRANSPORT",
        "_PID",
        "_UID",
        "_COMM",
        "_SYSTEMD_UNIT",
        "_SYSTEMD_INVOCATION_ID",
        "CONTAINER_NAME",
        "CONTAINER_ID",
        "CONTAINER_ID_FULL",
        "CONTAINER_TAG",
        "IMAGE_NAME",
        "CONTAINER_PARTIAL_MESSAGE",
        "CONTAINER_PARTIAL_ID",
        "CONTAINER_PARTIAL_ORDINAL",
        "CONTAINER_PARTIAL_LAST",
    }
)
# What passes by moves the cursor that is stored only so often: each move is a write to the disk.
REPORT_S = 60.0
MOST_VERDICTS = 4096  # kept; scopes of sessions and runs come without end

# Their coming and going matters to every GPU container.
_RUNTIME = re.compile(rb"(?:docker|containerd|podman|crio|cri-docker|kubelet|k3s|k3s-agent)\.service")
_PASS, _TAKE, _LOOK, _LOOK_OR_TAKE = range(4)  # LOOK: into which container's line it is


class SystemJournal:
    """See protocols.Journal."""

    def __init__(
        self,
        cursor: str,
        clock: Clock,
        interest: Callable[[str], bool] = NOBODY,
        path: Optional[str] = None,
        files: Optional[Sequence[str]] = None,
        opener: Opener = open_reader,
    ) -> None:
        """`cursor`: of the last batch that was handled; "" starts at the tail. `interest`: see protocols.Interest.
        `path`: a directory instead of the host's journal, `files`: named files instead. Opens nothing yet."""
        trusted, _, output = cursor.partition(" ")
        self._clock = clock
        self._trusted = Tape(trusted, clock, TRUSTED_FIELDS, MATCHES, None, path, files, opener)
        # A cursor of one position is of a gpuwatch that read nothing else.
        self._output = Tape(output or trusted, clock, OUTPUT_FIELDS, (), self._wanted, path, files, opener)
        self._interest = interest
        self._verdicts: dict[bytes, int] = {}
        self._parts = Parts(clock)
        self._cursor = cursor
        self._reported_at = clock.monotonic()
        self._level = ""  # both tapes have seen everything up to here, once the trusted one has nothing more

    @property
    def skipped(self) -> int:
        """Entries or files that could not be read."""
        return self._trusted.skipped + self._output.skipped

    @property
    def passed(self) -> int:
        """Entries that were passed over."""
        return self._output.passed

    def watch(self, interest: Callable[[str], bool]) -> None:
        """See protocols.Journal."""
        self._interest = interest
        self._verdicts.clear()

    def fds(self) -> tuple[int, ...]:
        return (*self._trusted.fds(), *self._output.fds())

    def close(self) -> None:
        self._trusted.close()
        self._output.close()

    def read(self, limit: int, deadline_s: float) -> JournalBatch:
        end = self._clock.monotonic() + deadline_s
        entries: list[JournalEntry] = []
        more = self._trusted.read(entries, limit, deadline_s)
        if not more:
            if self._level and not entries and not self._trusted.problem:
                # Else the cursor of a quiet kernel would be vacuumed under a chatty host: a gap that is none.
                self._trusted.at = self._level
            more = self._read_output(entries, limit, end)
        return JournalBatch(tuple(entries), self._report(bool(entries)), more, self._gap(), self._problem())

    def _read_output(self, entries: list[JournalEntry], limit: int, end: float) -> bool:
        left, self._level = end - self._clock.monotonic(), ""
        if left <= 0:
            return True
        printed: list[JournalEntry] = []
        more = self._output.read(printed, limit - len(entries), left)
        if not more and not self._output.problem:
            self._level = self._output.at
        entries += self._parts.join(printed)
        return more

    def _report(self, moved: bool) -> str:
        now = self._clock.monotonic()
        if moved or not self._cursor.strip() or now - self._reported_at >= REPORT_S:
            self._cursor = f"{self._trusted.at} {self._output.at}".strip()
            self._reported_at = now
        return self._cursor

    def _gap(self) -> str:
        trusted, output = self._trusted.take_gap(), self._output.take_gap()
        return trusted or (f"output of workloads: {output}" if output else "")

    def _problem(self) -> str:
        return self._trusted.problem or self._output.problem

    # -- whose entry it is --------------------------------------------------------

    def _wanted(self, reader: Any) -> bool:
        get = reader._get
        try:
            unit = get("_SYSTEMD_UNIT")
        except KeyError:
            return False
        verdict = self._verdicts.get(unit)
        if verdict is None:
            verdict = self._judge(unit)
        if not verdict:
            return False
        if verdict != _TAKE:
            try:
                name = b"container:" + get("CONTAINER_NAME")
            except KeyError:
                if verdict == _LOOK:
                    return False
            else:
                known = self._verdicts.get(name)
                if (self._judge(name) if known is None else known) != _TAKE:
                    return False
        try:
            return get("_TRANSPORT") not in (b"kernel", b"driver")  # the trusted tape has those
        except KeyError:
            return False

    def _judge(self, name: bytes) -> int:
        """Once a unit or container."""
        verdict = _PASS
        if name == b"init.scope":
            pass  # PID 1: the trusted tape has it
        elif self._interest(name.decode("utf-8", "replace")):
            verdict = _TAKE
        elif not name.startswith(b"container:"):
            if _RUNTIME.fullmatch(name):
                verdict = _LOOK_OR_TAKE
            elif not isinstance(self._interest, Interest) or self._interest.containers:
                verdict = _LOOK
        if len(self._verdicts) >= MOST_VERDICTS:
            self._verdicts.clear()
        self._verdicts[name] = verdict
        return verdict
