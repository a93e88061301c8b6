"""RealFiles: what is synced when, and what it never writes through."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gpuwatch.system.files import RealFiles


class Syncs:
    """Notes each fsync: whether a directory, and how many bytes were there by then."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def __call__(self, fd: int) -> None:
        status = os.fstat(fd)
        self.seen.append(("directory", 0) if stat.S_ISDIR(status.st_mode) else ("file", status.st_size))
        os.fsync(fd)


def test_a_file_is_synced_when_all_of_it_is_written(tmp_path: Path) -> None:
    syncs = Syncs()
    RealFiles(syncs).write(str(tmp_path / "a"), b"x" * 3_000_000)
    assert syncs.seen == [("file", 3_000_000)]
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o600


def test_a_directory_is_synced(tmp_path: Path) -> None:
    syncs = Syncs()
    files = RealFiles(syncs)
    files.make_directory(str(tmp_path / "d"))
    files.sync_directory(str(tmp_path / "d"))
    assert syncs.seen == [("directory", 0)]
    assert (tmp_path / "d").stat().st_mode & 0o7777 == 0o700


def test_nothing_is_overwritten_and_no_link_followed(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    files = RealFiles()
    for name in ("there", "link"):
        with pytest.raises(FileExistsError):
            files.write(str(tmp_path / name), b"x")
    assert (tmp_path / "there").read_text() == "precious"
    assert not (tmp_path / "elsewhere").exists()


def test_removing_a_tree_stays_inside_it(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_text("x")
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "link").symlink_to(tmp_path / "outside")
    files = RealFiles()
    files.remove_tree(str(tmp_path / "tree"))
    files.remove_tree(str(tmp_path / "tree"))  # missing is fine
    assert os.listdir(tmp_path) == ["outside"] and (tmp_path / "outside" / "kept").exists()


def test_errors_pass(tmp_path: Path) -> None:
    files = RealFiles()
    with pytest.raises(FileNotFoundError):
        files.write(str(tmp_path / "no" / "a"), b"x")
    with pytest.raises(FileNotFoundError):
        files.sync_directory(str(tmp_path / "no"))
    with pytest.raises(FileNotFoundError):
        files.rename(str(tmp_path / "no"), str(tmp_path / "b"))
