"""Keys are read from private files and never told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuwatch.model.errors import SourceError
from gpuwatch.model.settings import KeySource
from gpuwatch.system.secrets import MOST_BYTES, Secret, read_key

KEY = "693a91f6-7000-4bc4-97a0-0ec2aaaa5aaa"


def written(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_file(tmp_path: Path) -> None:
    path = written(tmp_path / "key", f"  {KEY}\n".encode())
    assert read_key(KeySource(file=str(path)), {}).reveal() == KEY


def test_credential(tmp_path: Path) -> None:
    written(tmp_path / "wecom-ops", KEY.encode(), 0o440)
    found = read_key(KeySource(credential="wecom-ops"), {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert found.reveal() == KEY


def test_secret_does_not_show_itself() -> None:
    secret = Secret(KEY)
    assert KEY not in f"{secret} {secret!r} {[secret]}"


@pytest.mark.parametrize(
    "data, mode, words",
    [
        (KEY.encode(), 0o640, "mode 0640"),
        (KEY.encode(), 0o604, "mode 0604"),
        (KEY.encode(), 0o4600, "mode 4600"),
        (b"", 0o600, "empty"),
        (b" \n ", 0o600, "empty"),
        (f"{KEY}\n{KEY}".encode(), 0o600, "more than one line"),
        (KEY.encode() + b"\xff", 0o600, "ASCII"),
        (KEY.encode() * 200, 0o600, f"larger than {MOST_BYTES} bytes"),
    ],
)
def test_unfit_file_is_named_and_not_quoted(tmp_path: Path, data: bytes, mode: int, words: str) -> None:
    path = written(tmp_path / "key", data, mode)
    with pytest.raises(SourceError) as caught:
        read_key(KeySource(file=str(path)), {})
    assert str(path) in str(caught.value)
    assert words in str(caught.value)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None


def test_no_fifo_no_directory_no_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    for name, words in (("fifo", "not a regular file"), (".", "not a regular file"), ("none", "No such file")):
        with pytest.raises(SourceError, match=words):
            read_key(KeySource(file=f"{tmp_path}/{name}"), {})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_other_users_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "key", KEY.encode())
    os.chown(path, 12345, -1)
    with pytest.raises(SourceError, match="belongs to user 12345"):
        read_key(KeySource(file=str(path)), {})


@pytest.mark.parametrize(
    "source, words",
    [
        (KeySource(), "no key is configured"),
        (KeySource(file="key"), "not an absolute path"),
        (KeySource(file="/a\0b"), "not a path"),
        (KeySource(credential="../shadow"), "holds no '/'"),
        (KeySource(credential=".."), "holds no '/'"),
        (KeySource(credential="wecom-ops"), "LoadCredential=wecom-ops"),
    ],
)
def test_source_that_leads_nowhere(source: KeySource, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        read_key(source, {})
