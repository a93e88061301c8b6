"""Small files in which the kernel tells figures (/proc, /sys, cgroups): read them, and make readings of them."""

from __future__ import annotations

import errno
import os
from typing import Optional

from gpuwatch.model.reading import UNSUPPORTED, Reading, failed

_PIECE = 1 << 15
_MOST_BYTES = 1 << 20
# What a kernel says that lacks a feature, or has it turned off (PSI with psi=0 opens with EOPNOTSUPP).
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.ENODEV, errno.ENXIO)


class KeptFile:
    """A file of /proc that is read again and again through one descriptor."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1

    def read(self) -> bytes:
        """All of it, as it is now. Raises OSError; the next read opens it anew then."""
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            else:
                os.lseek(self._fd, 0, os.SEEK_SET)
            return _read_all(self._fd)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Release the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_file(path: str) -> bytes:
    """All of a small file. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _read_all(fd)
    finally:
        os.close(fd)


def read_text(path: str) -> Optional[str]:
    """A file that holds one name or number, without the space around it; None when it can't be read."""
    try:
        return read_file(path).decode("utf-8", "replace").strip()
    except OSError:
        return None


def _read_all(fd: int) -> bytes:
    # A file of many records comes in pieces of about a page, however large the buffer is. Read on, not pread at
    # an offset: that would have the kernel write everything in front of the offset once more.
    piece = os.read(fd, _PIECE)
    whole = piece
    while piece and len(whole) < _MOST_BYTES:
        piece = os.read(fd, _PIECE)
        whole += piece
    return whole


def unreadable(path: str, error: OSError) -> Reading:
    """The reading of a file that could not be read: unsupported where the kernel does not have it."""
    if error.errno in _ABSENT:
        return UNSUPPORTED
    return failed(f"can't read {path}: {error.strerror}")


def senseless(path: str) -> Reading:
    """The reading of a file that holds something else than expected."""
    return failed(f"can't make sense of {path}")


def number_after(content: bytes, name: bytes) -> Optional[int]:
    """The number in the line that begins with `name`; None without such a line, or with something else in it."""
    start = 0 if content.startswith(name) else content.find(b"\n" + name) + 1
    if start == 0 and not content.startswith(name):
        return None
    end = content.find(b"\n", start)
    words = content[start + len(name) : end if end >= 0 else len(content)].split(None, 1)
    try:
        return int(words[0])
    except (ValueError, IndexError):
        return None


def pressure(content: bytes) -> dict[str, tuple[float, float]]:
    """From "some avg10=1.50 ... total=12": percent over 10 s and microseconds in all, by "some" and "full".

    The line "full" is missing for the CPU before Linux 5.13. Raises ValueError on something else.
    """
    found: dict[str, tuple[float, float]] = {}
    for line in content.split(b"\n"):
        words = line.split()
        if words:
            figures = dict(word.partition(b"=")[::2] for word in words[1:])
            try:
                found[words[0].decode("ascii")] = (float(figures[b"avg10"]), float(figures[b"total"]))
            except KeyError as error:
                raise ValueError("no pressure") from error
    if "some" not in found:
        raise ValueError("no pressure")
    return found
