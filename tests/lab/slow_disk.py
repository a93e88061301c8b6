"""A file system whose reads hang when told to: FUSE, spoken directly, read-only, over a directory.

    python -m tests.lab.slow_disk SOURCE MOUNT

serves the files of SOURCE (no directories below) at MOUNT until its standard input ends. Lines on standard input:
`hang` holds every read from now on, as a disk that does not answer; `go` answers what waits. Each line is confirmed on
standard output. A process that waits for a page is in D state, and SIGKILL does not end it before the answer.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Optional

from tests.lab.refusal import why_no_namespaces

MS_NOSUID, MS_NODEV, MS_RDONLY, MNT_DETACH = 2, 4, 1, 2
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT = 1, 2, 3, 14, 15, 17, 18, 25, 26
OPENDIR, READDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = 27, 28, 29, 36, 42
HEADER = struct.Struct("<IIQQIIII")
ROOT = 1


def why_no_slow_disk() -> str:
    """Why there can be none here; "" if there can."""
    return why_no_namespaces() or ("" if os.path.exists("/dev/fuse") else "needs /dev/fuse")


class SlowDisk:
    """The server as a process of its own: what waits for a page must not wait for itself."""

    def __init__(self, source: Path, mount: Path) -> None:
        mount.mkdir(exist_ok=True)
        self.mount = mount
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.lab.slow_disk", str(source), str(mount)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        self._expect("ready")

    def __enter__(self) -> SlowDisk:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._process.communicate(timeout=20)

    def say(self, word: str) -> None:
        """`hang` or `go`; returns when it holds."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        self._expect(word)

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line == word, f"the file system said {line!r}"


class Server:
    """Answers the kernel. Node 1 is the directory, the others are its files."""

    def __init__(self, source: str, device: int) -> None:
        self._source, self._device = source, device
        self._names: list[str] = []  # of node number - 2
        self._hanging = False
        self._held: list[tuple[int, int, bytes]] = []

    def run(self) -> None:
        """Until standard input ends."""
        poll = select.poll()
        poll.register(self._device, select.POLLIN)
        poll.register(0, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == 0:
                    data = os.read(0, 4096)
                    if not data:
                        return
                    self._obey(data.decode().split())
                else:
                    self._take(os.read(self._device, 1 << 18))

    def _obey(self, words: list[str]) -> None:
        for word in words:
            self._hanging = word == "hang"
            if not self._hanging:
                held, self._held = self._held, []
                for unique, node, body in held:
                    self._reply(unique, self._read(node, body))
            print(word, flush=True)

    def _take(self, request: bytes) -> None:
        _, opcode, unique, node, *_ = HEADER.unpack_from(request)
        body = request[HEADER.size :]
        if opcode == READ and self._hanging:
            self._held.append((unique, node, body))
        elif opcode not in (FORGET, BATCH_FORGET, INTERRUPT):
            try:
                self._reply(unique, self._answer(opcode, node, body))
            except OSError as error:
                self._reply(unique, b"", -(error.errno or errno.EIO))

    def _reply(self, unique: int, data: bytes, error: int = 0) -> None:
        try:
            os.write(self._device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)
        except FileNotFoundError:
            pass  # nobody waits for it any more

    def _answer(self, opcode: int, node: int, body: bytes) -> bytes:
        if opcode == INIT:
            _, minor = struct.unpack_from("<II", body)
            # No readahead: a page that was not touched before is not in memory.
            return struct.pack("<IIIIHHIIHHI28x", 7, min(minor, 31), 0, 0, 12, 9, 1 << 17, 1, 32, 0, 0)
        if opcode == LOOKUP:
            return self._lookup(body.rstrip(b"\0").decode())
        if opcode == GETATTR:
            return struct.pack("<QII", 1, 0, 0) + self._attributes(node)
        if opcode in (OPEN, OPENDIR):
            return struct.pack("<QII", 0, 0, 0)
        if opcode == READ:
            return self._read(node, body)
        if opcode == READDIR:
            return self._list(body)
        if opcode == STATFS:
            return struct.pack("<QQQQQIII24x", 1 << 20, 1 << 19, 1 << 19, 1000, 1000, 4096, 255, 4096)
        if opcode in (RELEASE, RELEASEDIR, FLUSH):
            return b""
        raise OSError(errno.ENOSYS, "not needed")

    def _path(self, node: int) -> str:
        return self._source if node == ROOT else os.path.join(self._source, self._names[node - 2])

    def _node(self, name: str) -> int:
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name) + 2

    def _lookup(self, name: str) -> bytes:
        os.stat(os.path.join(self._source, name))
        node = self._node(name)
        return struct.pack("<QQQQII", node, 0, 1, 1, 0, 0) + self._attributes(node)

    def _attributes(self, node: int) -> bytes:
        found = os.stat(self._path(node))
        times = (int(found.st_atime), int(found.st_mtime), int(found.st_ctime))
        sizes = struct.pack("<QQQQQQ", node, found.st_size, (found.st_size + 511) // 512, *times)
        return sizes + struct.pack("<IIIIIIIIII", 0, 0, 0, found.st_mode, 1, 0, 0, 0, 4096, 0)

    def _read(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        with open(self._path(node), "rb") as file:
            file.seek(offset)
            return file.read(size)

    def _list(self, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        data = b""
        for number, name in enumerate(sorted(os.listdir(self._source))):
            entry = struct.pack("<QQII", self._node(name), number + 1, len(name.encode()), 8) + name.encode()
            entry += b"\0" * (-len(entry) % 8)
            if number >= offset and len(data) + len(entry) <= size:
                data += entry
        return data


def main(source: str, mount: str) -> int:
    """Mount, serve, unmount."""
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"slow", mount.encode(), b"fuse.slow", MS_NOSUID | MS_NODEV | MS_RDONLY, options) != 0:
        raise OSError(ctypes.get_errno(), "can't mount")
    print("ready", flush=True)
    try:
        Server(source, device).run()
    finally:
        os.close(device)  # what waits gets an error
        libc.umount2(mount.encode(), MNT_DETACH)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
