"""Writes the core of a bundle so that it survives whatever comes next (S1)."""

from __future__ import annotations

import hashlib
import os
import re
from collections import deque
from collections.abc import Collection
from datetime import datetime, timezone

from gpuwatch.evidence.content import SCHEMA, BundleContent, as_json, render
from gpuwatch.evidence.manifest import NAME, FileEntry, Manifest, list_bundles, load_manifest, valid_id
from gpuwatch.evidence.redact import redact_tree
from gpuwatch.model import codec
from gpuwatch.model.errors import EvidenceError
from gpuwatch.model.instant import Instant
from gpuwatch.system.protocols import DurableFiles

_UNFINISHED = ".tmp-"


class Bundles:
    """The evidence directory. What is there under its final name is whole; what is not is not there.

    clean(), write() and prune() may block on a disk: call them where that is allowed (a Worker), one
    at a time. has() and new_id() ask memory alone, so that a disk that hangs does not stop who asks.
    """

    def __init__(self, files: DurableFiles, root: str) -> None:
        self._files, self.root = files, root
        self._given: deque[str] = deque(maxlen=256)
        self._durable: set[str] = set()

    def new_id(self, now: Instant, rule: str, subject: str) -> str:
        """E.g. 20261130T054532Z-gpu-critical-3d9a7c10: UTC, rule, 8 hex digits of a UUID or a name.

        No two are equal, also within one second, and after a restart once clean() was called.
        """
        base = bundle_id(now, rule, subject)
        found, number = base, 1
        while found in self._given or self.has(found):
            number += 1
            found = f"{base}-{number}"
        self._given.append(found)
        return found

    def has(self, bundle_id: str) -> bool:
        """True when this bundle is known to be durable: written by this process, or found by clean()."""
        return bundle_id in self._durable

    def write(self, bundle_id: str, content: BundleContent) -> Manifest:
        """See write_bundle."""
        manifest = write_bundle(self._files, self.root, bundle_id, content)
        self._durable.add(bundle_id)
        return manifest

    def clean(self) -> tuple[str, ...]:
        """To be called once at start: removes what an earlier process left unfinished and makes
        durable what it had renamed but perhaps not synced. The names removed. Raises EvidenceError."""
        try:
            _make_root(self._files, self.root)
            left = tuple(sorted(name for name in os.listdir(self.root) if name.startswith(_UNFINISHED)))
            for name in left:
                self._files.remove_tree(os.path.join(self.root, name))
            self._files.sync_directory(self.root)
            self._durable.update(name for name in os.listdir(self.root) if valid_id(name))
        except OSError as error:
            raise EvidenceError(f"can't clean {self.root}: {error.strerror}") from error
        return left

    def prune(self, count: int, keep: Collection[str] = ()) -> tuple[str, ...]:
        """Remove the oldest beyond `count`, but none in `keep`. The ids removed. Raises EvidenceError."""
        spare = [info.id for info in list_bundles(self.root)[max(0, count) :] if info.id not in keep]
        for old in spare:
            # Under another name first, so that a half removed one never looks like a damaged one.
            aside = os.path.join(self.root, _UNFINISHED + old)
            self._durable.discard(old)
            try:
                self._files.rename(os.path.join(self.root, old), aside)
                self._files.remove_tree(aside)
            except OSError as error:
                raise EvidenceError(f"can't remove bundle {old}: {error.strerror}") from error
        return tuple(spare)


def bundle_id(now: Instant, rule: str, subject: str) -> str:
    """The id by time, rule and subject alone."""
    moment = datetime.fromtimestamp(now.utc_s, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    uuid = re.fullmatch(r"(?:GPU-|MIG-)?([0-9a-fA-F]{8})-[0-9a-fA-F-]{20,}", subject)
    name = uuid[1].lower() if uuid else _slug(subject) or "host"
    return f"{moment}-{_slug(rule) or 'manual'}-{name}"


def write_bundle(files: DurableFiles, root: str, bundle_id: str, content: BundleContent) -> Manifest:
    """Write the core of a bundle; when this returns, it is on disk under its final name.

    Every file is written and fsynced under a temporary directory, the manifest last; then that
    directory is fsynced, renamed, and the directory above is fsynced. A bundle of this id that is
    there already (an earlier try got as far as the rename) is kept as it is. Raises EvidenceError,
    and then nothing is there under the final name.
    """
    if not valid_id(bundle_id):
        raise EvidenceError(f"{bundle_id[:80]!r} is not the id of a bundle")
    final, unfinished = os.path.join(root, bundle_id), os.path.join(root, _UNFINISHED + bundle_id)
    if os.path.isdir(final):
        return _adopt(files, root, final)
    try:
        _make_root(files, root)
        files.remove_tree(unfinished)
        manifest = _fill(files, unfinished, bundle_id, content)
        files.sync_directory(unfinished)
        files.rename(unfinished, final)
        try:
            files.sync_directory(root)
        except OSError:
            files.rename(final, unfinished)  # not known to be durable, so it is not there
            raise
    except OSError as error:
        try:
            files.remove_tree(unfinished)
        except OSError:
            pass  # clean() of the next start tries again
        raise EvidenceError(f"evidence can't be written to {root}: {error.strerror or error}") from error
    return manifest


def _fill(files: DurableFiles, directory: str, bundle_id: str, content: BundleContent) -> Manifest:
    parts, removed = render(content)
    trigger, in_trigger = redact_tree(codec.encode(content.trigger))
    files.make_directory(directory)
    for name, data in parts.items():
        files.write(os.path.join(directory, name), data)
    manifest = Manifest(
        schema=SCHEMA,
        id=bundle_id,
        host=content.host,
        boot_id=content.at.boot_id,
        at_utc=content.at_utc,
        at_local=content.at_local,
        zone=content.zone,
        version=content.version,
        trigger=trigger,
        removed=removed + in_trigger,
        files=tuple(FileEntry(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in parts.items()),
    )
    files.write(os.path.join(directory, NAME), as_json(codec.encode(manifest)))
    return manifest


def _adopt(files: DurableFiles, root: str, final: str) -> Manifest:
    try:
        files.sync_directory(root)
    except OSError as error:
        raise EvidenceError(f"evidence can't be written to {root}: {error.strerror or error}") from error
    return load_manifest(final)


def _make_root(files: DurableFiles, root: str) -> None:
    if not os.path.isdir(root):
        files.make_directory(root)
        files.sync_directory(os.path.dirname(os.path.abspath(root)))


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower()[:48].strip("-")
