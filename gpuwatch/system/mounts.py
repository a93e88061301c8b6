"""Mounted file systems and their space. Sources: proc_pid_mountinfo(5), statvfs(3), and how df(1) counts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from gpuwatch.model.host import FileSystem
from gpuwatch.model.reading import UNSUPPORTED, Reading, failed, value
from gpuwatch.system.kernel_files import read_file

METRICS = (
    "host.disk_size",
    "host.disk_free",
    "host.disk_free_ratio",
    "host.inodes_free_ratio",
    "host.disk_read_only",
)
# Full and read-only by nature, or nothing that fills.
_IMAGES = frozenset({"squashfs", "erofs", "iso9660", "udf", "cramfs", "romfs", "autofs", "proc", "sysfs", "cgroup2"})
_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo."""

    number: int
    parent: int  # number of the mount that it is mounted on
    point: str
    root: str  # which directory of the file system is mounted there: "/" for all of it
    device: str
    kind: str
    source: str
    read_only: bool  # the file system itself; a mount may be read-only of its own (a sandbox makes it so)

    def bare(self) -> FileSystem:
        """As a file system that has not been asked."""
        return FileSystem(self.point, self.kind, self.source, self.device)


class MountTable:
    """All mounts at one moment."""

    def __init__(self, mounts: Sequence[Mount]) -> None:
        self._mounts = tuple(mounts)
        numbers = {mount.number for mount in mounts}
        self._upon: dict[int, list[Mount]] = {}
        for mount in mounts:
            self._upon.setdefault(mount.parent, []).append(mount)
        self._root = next((each for each in mounts if each.point == "/" and each.parent not in numbers), None)

    def at(self, path: str) -> Optional[Mount]:
        """The mount that a path without links lies on, found as the kernel does: from the root, over each
        mount point on the way. So what lies hidden below a later mount is not found."""
        here = self._root
        crossed: set[int] = set()
        while here is not None and here.number not in crossed:
            crossed.add(here.number)
            onward = [each for each in self._upon.get(here.number, ()) if _lies_below(path, each.point)]
            if not onward:
                return here
            here = min(onward, key=lambda each: len(each.point))
        return here

    def named(self, mount: Mount) -> Mount:
        """The mount that people know this file system by: where all of it is visible, else `mount` itself.

        Bind mounts (of containers, of a sandbox) show a part of a file system that has a place of its own.
        """
        whole = (other for other in self._mounts if other.device == mount.device and other.root == "/")
        visible = [other for other in whole if self.at(other.point) is other]
        return min(visible, key=lambda other: len(other.point)) if visible else mount


def parse_mountinfo(content: bytes) -> MountTable:
    """The table from /proc/<pid>/mountinfo; lines that don't look like one are passed over."""
    return MountTable([mount for mount in map(_parse_line, content.split(b"\n")) if mount is not None])


def _parse_line(line: bytes) -> Optional[Mount]:
    # 36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw,errors=continue
    front, _, back = line.partition(b" - ")
    head, tail = front.split(b" "), back.split(b" ")
    try:
        return Mount(
            number=int(head[0]),
            parent=int(head[1]),
            device=_text(head[2]),
            root=_text(head[3]),
            point=_text(head[4]),
            kind=_text(tail[0]),
            source=_text(tail[1]),
            read_only=b"ro" in tail[2].split(b","),
        )
    except (ValueError, IndexError):
        return None


class Mounts:
    """The mount table of this process, and the space on what is mounted."""

    def __init__(self, mountinfo: str = "/proc/self/mountinfo") -> None:
        self._mountinfo = mountinfo

    def table(self) -> MountTable:
        """As it is now. Raises OSError."""
        return parse_mountinfo(read_file(self._mountinfo))

    def of(self, paths: Iterable[str]) -> Mapping[str, FileSystem]:
        """See protocols.HostFiles.mounts."""
        try:
            table = self.table()
        except OSError:
            return {}
        found = {path: table.at(path) for path in paths}
        return {path: table.named(mount).bare() for path, mount in found.items() if mount is not None}

    def space(self, path: str) -> FileSystem:
        """See protocols.HostFiles.space."""
        try:
            table = self.table()
        except OSError as error:
            return without_answer(FileSystem(path, "", "", ""), f"can't read {self._mountinfo}: {error.strerror}")
        # What does not exist yet lies where it will be made. May hang on the way: every part is looked at.
        mount = table.at(os.path.realpath(path))
        if mount is None:
            return without_answer(FileSystem(path, "", "", ""), "is on no mounted file system")
        mount = table.named(mount)
        bare = mount.bare()
        if mount.kind in _IMAGES:
            return _with(bare, dict.fromkeys(METRICS, UNSUPPORTED))
        try:
            return _with(bare, space_readings(os.statvfs(mount.point), mount.read_only))
        except OSError as error:
            return without_answer(bare, f"can't ask the file system: {error.strerror}")


def space_readings(stat: os.statvfs_result, read_only: bool) -> dict[str, Reading]:
    """host.disk_* and host.inodes_* from what statvfs(3) says."""
    # As df counts: what is reserved for root is neither free nor part of the whole.
    blocks = stat.f_blocks - stat.f_bfree + stat.f_bavail
    files = stat.f_files - stat.f_ffree + stat.f_favail
    return {
        "host.disk_size": value(stat.f_blocks * stat.f_frsize) if stat.f_blocks else UNSUPPORTED,
        "host.disk_free": value(stat.f_bavail * stat.f_frsize) if stat.f_blocks else UNSUPPORTED,
        "host.disk_free_ratio": _ratio(stat.f_bavail, blocks if stat.f_blocks else 0),
        # Where inodes are made as needed (btrfs, FAT, some network file systems) there is no number of them.
        "host.inodes_free_ratio": _ratio(stat.f_favail, files if stat.f_files else 0),
        "host.disk_read_only": value(1.0 if read_only else 0.0),
    }


def _ratio(free: int, whole: int) -> Reading:
    if whole == 0:
        return UNSUPPORTED
    if not 0 <= free <= whole:
        return failed(f"the file system says that {free} of {whole} are free")
    return value(free / whole)


def without_answer(bare: FileSystem, why: str) -> FileSystem:
    """A file system whose readings have all failed."""
    return _with(bare, dict.fromkeys(METRICS, failed(why)))


def _with(bare: FileSystem, readings: Mapping[str, Reading]) -> FileSystem:
    return FileSystem(bare.mount, bare.kind, bare.source, bare.device, readings)


def _lies_below(path: str, point: str) -> bool:
    return path == point or path.startswith(point if point.endswith("/") else point + "/")


def _text(field: bytes) -> str:
    """Space, tab, newline and backslash are written in octal."""
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match.group(1), 8)]), field))
