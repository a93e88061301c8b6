"""Debian roots for the lab: made once by mmdebstrap, kept outside the tree, never changed (an overlay lies above)."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RECIPE = "1"  # raise it when make_root() itself changes
MAKE_TIMEOUT_S = 900


@dataclass(frozen=True)
class Root:
    """What a root is made of."""

    suite: str
    packages: tuple[str, ...]

    @property
    def key(self) -> str:
        """Names the cached directory."""
        text = "\n".join([RECIPE, self.suite, *sorted(self.packages)])
        return f"{self.suite}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


# Everything that gpuwatch's deb depends on is inside, so that apt can install the deb without a network.
BOOKWORM = Root(
    "bookworm",
    (
        "systemd", "systemd-sysv", "dbus", "python3", "python3-systemd", "python3-psutil", "python3-yaml",
        "python3-requests", "python3-jeepney", "procps",
    ),
)  # fmt: skip


class LabError(RuntimeError):
    """The lab itself failed, not what it tests."""


def cache_directory() -> Path:
    """$XDG_CACHE_HOME/gpuwatch-lab or ~/.cache/gpuwatch-lab."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuwatch-lab"


def ready_root(root: Root = BOOKWORM) -> Path:
    """The directory of this root; made (half a minute, from the distribution's mirror) when it is not there yet."""
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / root.key
    with _locked(cache / f"{root.key}.lock"):
        if not place.is_dir():
            _make(root, place)
    return place


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(root: Root, place: Path) -> None:
    growing = place.with_name(place.name + ".new")
    shutil.rmtree(growing, ignore_errors=True)
    included = f"--include={','.join(root.packages)}"
    done = subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", included, root.suite, str(growing)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=MAKE_TIMEOUT_S,
    )  # fmt: skip
    if done.returncode != 0:
        shutil.rmtree(growing, ignore_errors=True)
        raise LabError(f"mmdebstrap made no {root.suite} root:\n{done.stdout[-2000:]}")
    growing.rename(place)
