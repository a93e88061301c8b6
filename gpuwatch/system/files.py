"""Files that survive a power cut; see protocols.DurableFiles. Each method lets its OSError pass."""

from __future__ import annotations

import os
import shutil
from typing import Callable


class RealFiles:
    """The file system. `sync` is fsync(2)."""

    def __init__(self, sync: Callable[[int], None] = os.fsync) -> None:
        self._sync = sync

    def make_directory(self, path: str) -> None:
        os.mkdir(path, 0o700)

    def write(self, path: str, data: bytes) -> None:
        # O_EXCL and O_NOFOLLOW: never through a link, never over something that is there.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            self._sync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._sync(fd)
        finally:
            os.close(fd)

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass
