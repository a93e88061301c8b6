"""Real .journal files with chosen content, written by systemd-journal-remote; no journald needed.

Entries are dicts of journal fields; the addresses __REALTIME_TIMESTAMP, __MONOTONIC_TIMESTAMP (us)
and _BOOT_ID (32 hex digits) are needed, a list repeats a field, bytes are taken as they are.
"""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Optional, Union

REMOTE = "/lib/systemd/systemd-journal-remote"
MACHINE = "a" * 32

Value = Union[str, int, bytes, Sequence[Union[str, int, bytes]]]
Entry = Mapping[str, Value]


def why_no_journal_remote() -> str:
    """Why no journal files can be made here; "" if they can."""
    return "" if os.access(REMOTE, os.X_OK) else "needs systemd-journal-remote"


def entry(fields: Mapping[str, Value], realtime_us: int, monotonic_us: int, boot_id: str) -> dict[str, Value]:
    """An entry of any kind."""
    return {
        "__REALTIME_TIMESTAMP": realtime_us,
        "__MONOTONIC_TIMESTAMP": monotonic_us,
        "_BOOT_ID": boot_id,
        "_MACHINE_ID": MACHINE,
        "_HOSTNAME": "gpu01",
        **fields,
    }


def export(fields: Entry) -> bytes:
    """One entry in the journal's export format."""
    lines = []
    for name, value in fields.items():
        for one in value if isinstance(value, (list, tuple)) else (value,):
            data = one if isinstance(one, bytes) else str(one).encode("utf-8", "surrogateescape")
            if isinstance(one, bytes) or b"\n" in data:
                lines.append(name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n")
            else:
                lines.append(name.encode() + b"=" + data + b"\n")
    return b"".join(lines) + b"\n"


def write_journal(path: Union[str, os.PathLike[str]], entries: Iterable[Entry]) -> None:
    """Write a file, or append to it. Raises AssertionError with what the writer said."""
    with JournalWriter(path) as writer:
        for fields in entries:
            writer.append(fields)


class JournalWriter:
    """Keeps a file open and appends to it, as journald does. Ends when its standard input does."""

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        self._process = subprocess.Popen(
            [REMOTE, "--seal=no", "-o", os.fspath(path), "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def append(self, fields: Entry) -> None:
        """Hand over one entry; it is in the file some milliseconds later."""
        assert self._process.stdin is not None
        self._process.stdin.write(export(fields))
        self._process.stdin.flush()

    def close(self) -> None:
        """Finish the file."""
        said, _ = self._process.communicate(timeout=30)
        assert self._process.returncode == 0, said.decode(errors="replace")


class LiveJournal:
    """A directory with an active file that is rotated and vacuumed as journald would."""

    def __init__(self, directory: Union[str, os.PathLike[str]]) -> None:
        self.directory = os.fspath(directory)
        self._writer: Optional[JournalWriter] = None
        self._archived = 0

    @property
    def active(self) -> str:
        """Path of the file that is being written."""
        return os.path.join(self.directory, "system.journal")

    def append(self, fields: Entry) -> None:
        """Write one entry to the active file."""
        if self._writer is None:
            self._writer = JournalWriter(self.active)
        self._writer.append(fields)

    def rotate(self) -> str:
        """Archive the active file; the next entry begins a new one. Returns the archive's path."""
        self.close()
        self._archived += 1
        archive = os.path.join(self.directory, f"system@{'0' * 32}-{self._archived:016x}-{self._archived:016x}.journal")
        os.rename(self.active, archive)
        return archive

    def vacuum(self) -> None:
        """Remove everything that was written so far."""
        self.rotate()
        for name in os.listdir(self.directory):
            if "@" in name:
                os.unlink(os.path.join(self.directory, name))

    def close(self) -> None:
        """Finish the active file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
