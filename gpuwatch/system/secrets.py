"""Keys, read when they are needed from where the configuration says, and never told."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuwatch.model.errors import SourceError
from gpuwatch.model.settings import KeySource

MOST_BYTES = 4096


@dataclass(frozen=True)
class Secret:
    """A key that shows itself only when asked to."""

    _text: str = field(repr=False)

    def reveal(self) -> str:
        """The key itself, to be handed to the sender and nowhere else."""
        return self._text

    def __str__(self) -> str:
        return "(secret)"


def read_key(source: KeySource, environment: Mapping[str, str]) -> Secret:
    """The key of a channel: a systemd credential, or a file that only its owner can read.

    Raises SourceError with the path and what is wrong with it, never with what it holds.
    """
    if source.credential:
        return _credential(source.credential, environment)
    if source.file:
        return _read(source.file, private=True)
    raise SourceError("no key is configured (key: {credential: NAME} or {file: PATH})")


def _credential(name: str, environment: Mapping[str, str]) -> Secret:
    if "/" in name or name in (".", ".."):
        raise SourceError(f"credential {name!r}: a credential's name holds no '/'")
    directory = environment.get("CREDENTIALS_DIRECTORY", "")
    if not directory:
        raise SourceError(f"credential {name}: none were passed; add LoadCredential={name}:/PATH to gpuwatch.service")
    # systemd keeps the directory itself private; the modes of what is in it differ by version.
    return _read(os.path.join(directory, name), private=False)


def _read(path: str, private: bool) -> Secret:
    if not os.path.isabs(path):
        raise SourceError(f"{path}: not an absolute path")
    try:
        # O_NONBLOCK: a FIFO in place of the file must not hang the daemon.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: {getattr(error, 'strerror', None) or 'not a path'}") from None
    try:
        _check(path, os.fstat(descriptor), private)
        data = os.read(descriptor, MOST_BYTES + 1)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from None
    finally:
        os.close(descriptor)
    return _parse(path, data)


def _check(path: str, facts: os.stat_result, private: bool) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise SourceError(f"{path}: not a regular file")
    if facts.st_uid not in (0, os.geteuid()):
        raise SourceError(f"{path}: belongs to user {facts.st_uid}, not to root")
    mode = stat.S_IMODE(facts.st_mode)
    if private and mode & ~0o600:
        raise SourceError(f"{path}: mode {mode:04o} lets others read it; chmod 600 {path}")


def _parse(path: str, data: bytes) -> Secret:
    if len(data) > MOST_BYTES:
        raise SourceError(f"{path}: larger than {MOST_BYTES} bytes, no key")
    try:
        key = data.decode("ascii").strip()
    except UnicodeDecodeError:  # its text would repeat the bytes
        raise SourceError(f"{path}: holds other than plain ASCII") from None
    if not key:
        raise SourceError(f"{path}: is empty")
    if not key.isprintable():
        raise SourceError(f"{path}: holds more than one line")
    return Secret(key)
