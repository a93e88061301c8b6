"""What a bundle says of itself, and whether that is true."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from gpuwatch.evidence.content import SCHEMA
from gpuwatch.model import codec
from gpuwatch.model.errors import EvidenceError
from gpuwatch.model.event import Scalar

NAME = "manifest.json"
_MOST_BYTES = 1 << 20
_ID = re.compile(r"\d{8}T\d{6}Z-[A-Za-z0-9][A-Za-z0-9._-]{0,150}")


@dataclass(frozen=True)
class FileEntry:
    """A file of the bundle."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Written last. `removed` counts the secrets that were taken out of the texts."""

    schema: int
    id: str
    host: str
    boot_id: str
    at_utc: str
    at_local: str
    zone: str
    version: str
    trigger: Mapping[str, Scalar] = field(default_factory=dict)
    removed: int = 0
    files: tuple[FileEntry, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Of all files but the manifest."""
        return sum(entry.size_bytes for entry in self.files)


@dataclass(frozen=True)
class BundleInfo:
    """A bundle on disk; `problem` when its manifest can't be read."""

    id: str
    path: str
    manifest: Optional[Manifest] = None
    problem: str = ""


def valid_id(bundle_id: str) -> bool:
    """True for what new_id makes: nothing that leaves the evidence directory."""
    return _ID.fullmatch(bundle_id) is not None


def list_bundles(root: str) -> tuple[BundleInfo, ...]:
    """All bundles, newest first. Raises EvidenceError when the directory can't be read; a missing
    one holds none."""
    try:
        names = os.listdir(root)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise EvidenceError(f"can't read {root}: {error.strerror}") from error
    found = []
    for name in sorted((name for name in names if valid_id(name)), reverse=True):
        path = os.path.join(root, name)
        try:
            found.append(BundleInfo(name, path, load_manifest(path)))
        except EvidenceError as error:
            found.append(BundleInfo(name, path, None, str(error)))
    return tuple(found)


def load_manifest(path: str) -> Manifest:
    """The manifest of the bundle at `path`. Raises EvidenceError, saying what is wrong."""
    try:
        data = json.loads(_read(os.path.join(path, NAME)))
        manifest = codec.decode(Manifest, data)
    except FileNotFoundError as error:
        raise EvidenceError(f"{NAME} is missing") from error
    except OSError as error:
        raise EvidenceError(f"{NAME} can't be read: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise EvidenceError(f"{NAME} is damaged") from error
    if manifest.schema > SCHEMA:
        raise EvidenceError(f"{NAME} has schema {manifest.schema}; this gpuwatch knows {SCHEMA}")
    return manifest


def verify(path: str) -> tuple[str, ...]:
    """What is wrong with the bundle at `path`, in words; nothing if every file is as it was written.

    Follows no links and opens nothing but regular files.
    """
    path = os.path.abspath(path)
    try:
        manifest = load_manifest(path)
        present = set(os.listdir(path))
    except EvidenceError as error:
        return (str(error),)
    except OSError as error:
        return (f"the directory can't be read: {error.strerror}",)
    problems = []
    if manifest.id != os.path.basename(path):
        problems.append(f"{NAME} is that of {manifest.id!r}")
    names = [entry.name for entry in manifest.files]
    if len(set(names)) != len(names):
        problems.append(f"{NAME} names a file twice")
    for entry in manifest.files:
        problem = _check(path, entry)
        if problem:
            problems.append(problem)
    extra = present - set(names) - {NAME}
    problems += [f"{name!r} is not in {NAME}" for name in sorted(extra)]
    return tuple(problems)


def _check(path: str, entry: FileEntry) -> str:
    if entry.name in ("", ".", "..", NAME) or "/" in entry.name or "\0" in entry.name:
        return f"{NAME} names {entry.name!r}, which is no file of this bundle"
    try:
        size, digest = _digest(os.path.join(path, entry.name))
    except FileNotFoundError:
        return f"{entry.name} is missing"
    except OSError as error:
        return f"{entry.name} can't be read: {error.strerror or error}"
    if (size, digest) != (entry.size_bytes, entry.sha256):
        return f"{entry.name} was changed"
    return ""


def _open(path: str) -> int:
    """A descriptor of a regular file. Not blocking: a FIFO in its place must not hang us."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError("not a regular file")
    return fd


def _read(path: str) -> bytes:
    with open(_open(path), "rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError("too long")
    return data


def _digest(path: str) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with open(_open(path), "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()
