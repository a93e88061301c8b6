"""DurableFiles that note every call and can fail, or stop the world, at any of them."""

from __future__ import annotations

import os
from typing import Callable, Optional

from gpuwatch.system.files import RealFiles

Step = tuple[str, ...]


class RecordedFiles:
    """RealFiles with a list of what was done: ("write", path), ("rename", old, new), ...

    `before(number, step)` is called ahead of each call, counted from 1; what it raises comes out.
    """

    def __init__(self, before: Optional[Callable[[int, Step], None]] = None) -> None:
        self.steps: list[Step] = []
        self._before, self._real = before, RealFiles()

    def make_directory(self, path: str) -> None:
        self._note("make_directory", path)
        self._real.make_directory(path)

    def write(self, path: str, data: bytes) -> None:
        self._note("write", path)
        self._real.write(path, data)

    def rename(self, old: str, new: str) -> None:
        self._note("rename", old, new)
        self._real.rename(old, new)

    def sync_directory(self, path: str) -> None:
        self._note("sync_directory", path)
        self._real.sync_directory(path)

    def remove_tree(self, path: str) -> None:
        self._note("remove_tree", path)
        self._real.remove_tree(path)

    def _note(self, *step: str) -> None:
        self.steps.append(step)
        if self._before is not None:
            self._before(len(self.steps), step)


def order_problem(steps: list[Step], root: str, bundle: str) -> str:
    """Why this order of calls does not make a bundle durable before it is announced; "" if it does.

    write() creates and fsyncs a file. Files, then their directory, then the rename, then the
    directory above, and nothing after.
    """
    final = os.path.join(root, bundle)
    renames = [number for number, step in enumerate(steps) if step[0] == "rename" and step[2] == final]
    if len(renames) != 1:
        return f"{len(renames)} renames to the final name"
    at = renames[0]
    unfinished = steps[at][1]
    files = [number for number, step in enumerate(steps) if step[0] == "write"]
    if not files or max(files) > at:
        return "a file is written after the rename"
    if os.path.basename(steps[max(files)][1]) != "manifest.json":
        return "the manifest is not the last file"
    if any(os.path.dirname(steps[number][1]) != unfinished for number in files):
        return "a file is written outside the unfinished directory"
    inner = [number for number, step in enumerate(steps) if step == ("sync_directory", unfinished)]
    if not any(max(files) < number < at for number in inner):
        return "the directory is not synced between the files and the rename"
    if steps[at + 1 :] != [("sync_directory", root)]:
        return "the rename is not followed by a sync of the directory above"
    return ""
