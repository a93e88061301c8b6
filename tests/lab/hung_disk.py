"""File systems that hang for real: one whose server never answers, and one that is frozen. Both need root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.lab.waiting import wait_for

MNT_FORCE, MNT_DETACH = 1, 2


@contextlib.contextmanager
def silent_mount(point: Path) -> Iterator[None]:
    """A mounted FUSE file system behind which nobody reads the requests: stat and statvfs never return.

    When it ends, those who wait get an error (the connection is closed).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    mounted = False
    try:
        if libc.mount(b"nobody", os.fsencode(point), b"fuse", 0, options) != 0:
            raise OSError(ctypes.get_errno(), "mount")
        mounted = True
        yield
    finally:
        os.close(device)
        if mounted:
            libc.umount2(os.fsencode(point), MNT_DETACH)


@contextlib.contextmanager
def stuck_process(place: Path, open_file: Path) -> Iterator[int]:
    """The pid of a process in state D that can't be killed, with `open_file` open: it writes to a frozen file system.

    When it ends, the file system is thawed and the process is gone.
    """
    image, point = place / "disk.img", place / "disk"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mke2fs", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True)
    code = f"import sys; keep = open({str(open_file)!r}); open({str(point / 'file')!r}, 'w').write('x')"
    process = None
    try:
        subprocess.run(["fsfreeze", "-f", str(point)], check=True)
        process = subprocess.Popen([sys.executable, "-c", code])
        stat = Path(f"/proc/{process.pid}/stat")
        states: list[str] = []

        def hangs() -> bool:
            """For a while: a process that starts on a busy disk is in state D now and then, too."""
            states.append(stat.read_text().rpartition(")")[2].split()[0])
            return len(states) >= 15 and set(states[-15:]) == {"D"}

        wait_for(hangs, what="the process hangs")
        process.kill()  # of no use, as with a driver that hangs
        yield process.pid
    finally:
        subprocess.run(["fsfreeze", "-u", str(point)], check=False)
        if process is not None:
            process.wait(20.0)
        subprocess.run(["umount", str(point)], check=False)
