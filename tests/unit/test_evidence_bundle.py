"""The core of a bundle: order of what is made durable, every failure on the way, checks, retention."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Callable

import pytest

from gpuwatch.evidence import manifest as manifests
from gpuwatch.evidence.bundle import Bundles, write_bundle
from gpuwatch.evidence.content import BundleContent, render
from gpuwatch.evidence.manifest import list_bundles, load_manifest, verify
from gpuwatch.model.errors import EvidenceError
from gpuwatch.model.event import Event
from gpuwatch.system.files import RealFiles
from gpuwatch.system.protocols import DurableFiles
from tests.fakes.recorded_files import RecordedFiles, Step, order_problem
from tests.unit.evidence_cases import CONTENT, ID, NOW, UUID


def test_what_a_bundle_holds(tmp_path: Path) -> None:
    written = write_bundle(RealFiles(), str(tmp_path / "evidence"), ID, CONTENT)
    path = tmp_path / "evidence" / ID
    assert sorted(os.listdir(path)) == [
        "decision.json",
        "events.json",
        "host.json",
        "manifest.json",
        "processes.json",
        "samples.json",
        "unit.json",
    ]
    assert load_manifest(str(path)) == written
    assert verify(str(path)) == ()
    assert (written.at_utc, written.at_local) == ("2026-11-30T05:45:32.123456Z", "2026-11-30T13:45:32.123456+08:00")
    owner = json.loads((path / "processes.json").read_text())["gpus"][0]["owners"][0]
    assert (owner["pid"], owner["started_ticks"], owner["name"]) == (41872, 77, "python3.11")
    assert "cmdline" not in owner and "argv" not in owner
    assert json.loads((path / "unit.json").read_text())["unit"]["invocation"] == "f" * 32
    assert json.loads((path / "samples.json").read_text())["gpus"][UUID]["gpu.temperature"] == [91.0, None]
    assert oct(path.stat().st_mode & 0o777) == "0o700"
    assert {oct(file.stat().st_mode & 0o777) for file in path.iterdir()} == {"0o600"}


def test_the_same_content_makes_the_same_bytes() -> None:
    assert render(CONTENT) == render(CONTENT)


def test_everything_is_durable_in_order(tmp_path: Path) -> None:
    files = RecordedFiles()
    os.mkdir(tmp_path / "evidence")
    write_bundle(files, str(tmp_path / "evidence"), ID, CONTENT)
    assert order_problem(files.steps, str(tmp_path / "evidence"), ID) == ""


def _swap_rename_and_sync(steps: list[Step]) -> list[Step]:
    at = next(number for number, step in enumerate(steps) if step[0] == "rename")
    return [*steps[: at - 1], steps[at], steps[at - 1], *steps[at + 1 :]]


def _drop_last(steps: list[Step]) -> list[Step]:
    return steps[:-1]


def _rename_first(steps: list[Step]) -> list[Step]:
    at = next(number for number, step in enumerate(steps) if step[0] == "rename")
    return [steps[at], *steps[:at], *steps[at + 1 :]]


def _manifest_first(steps: list[Step]) -> list[Step]:
    files = [number for number, step in enumerate(steps) if step[0] == "write"]
    return [*steps[: files[0]], steps[files[-1]], *steps[files[0] : files[-1]], *steps[files[-1] + 1 :]]


@pytest.mark.parametrize("reorder", [_swap_rename_and_sync, _drop_last, _rename_first, _manifest_first])
def test_another_order_is_noticed(tmp_path: Path, reorder: Callable[[list[Step]], list[Step]]) -> None:
    files = RecordedFiles()
    os.mkdir(tmp_path / "evidence")
    write_bundle(files, str(tmp_path / "evidence"), ID, CONTENT)
    assert order_problem(reorder(files.steps), str(tmp_path / "evidence"), ID) != ""


class _HastyFiles(RecordedFiles):
    """A writer that forgets to sync directories, as a careless change of it would."""

    def sync_directory(self, path: str) -> None:
        pass


def test_a_writer_that_forgets_to_sync_is_noticed(tmp_path: Path) -> None:
    files = _HastyFiles()
    os.mkdir(tmp_path / "evidence")
    write_bundle(files, str(tmp_path / "evidence"), ID, CONTENT)
    assert order_problem(files.steps, str(tmp_path / "evidence"), ID) != ""


def _calls_of_a_good_write(tmp_path: Path) -> int:
    files = RecordedFiles()
    write_bundle(files, str(tmp_path / "measured"), ID, CONTENT)
    return len(files.steps)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_failure_at_any_call_leaves_nothing_under_the_final_name(tmp_path: Path, code: int) -> None:
    for broken in range(1, _calls_of_a_good_write(tmp_path) + 1):
        root = tmp_path / f"evidence-{broken}"

        def fail(number: int, step: Step, broken: int = broken) -> None:
            if number == broken:
                raise OSError(code, os.strerror(code))

        with pytest.raises(EvidenceError, match=os.strerror(code)):
            write_bundle(RecordedFiles(fail), str(root), ID, CONTENT)
        assert not root.exists() or os.listdir(root) == []
        bundles = Bundles(RealFiles(), str(root))
        bundles.write(ID, CONTENT)  # the next try works
        assert verify(str(root / ID)) == ()


def test_a_disk_that_fails_for_good_is_an_error_each_time(tmp_path: Path) -> None:
    def fail(number: int, step: Step) -> None:
        if number > 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    for _ in range(2):
        with pytest.raises(EvidenceError, match="No space left"):
            write_bundle(RecordedFiles(fail), str(tmp_path / "evidence"), ID, CONTENT)


def test_a_rename_that_happened_is_kept(tmp_path: Path) -> None:
    root = str(tmp_path / "evidence")
    first = write_bundle(RealFiles(), root, ID, CONTENT)
    files = RecordedFiles()
    other = BundleContent(at=NOW, host="another", version="9")
    assert write_bundle(files, root, ID, other) == first
    assert files.steps == [("sync_directory", root)]


def test_clean_removes_what_was_left_unfinished(tmp_path: Path) -> None:
    root = tmp_path / "evidence"
    write_bundle(RealFiles(), str(root), ID, CONTENT)
    left = root / f".tmp-{ID}-2"
    left.mkdir()
    (left / "samples.json").write_text("half")
    files = RecordedFiles()
    assert Bundles(files, str(root)).clean() == (left.name,)
    assert os.listdir(root) == [ID]
    assert files.steps[-1] == ("sync_directory", str(root))


@pytest.mark.parametrize(
    "bundle_id", ["", "..", "../x", "x/y", "20261130T054532Z-", "20261130T054532Z-a/../../b", ".tmp-x"]
)
def test_an_id_never_leaves_the_directory(tmp_path: Path, bundle_id: str) -> None:
    with pytest.raises(EvidenceError, match="not the id"):
        write_bundle(RealFiles(), str(tmp_path), bundle_id, CONTENT)
    assert os.listdir(tmp_path) == []


def test_ids_are_readable_and_never_equal(tmp_path: Path) -> None:
    bundles = Bundles(RealFiles(), str(tmp_path))
    assert bundles.new_id(NOW, "gpu-critical", UUID) == ID
    assert bundles.new_id(NOW, "gpu-critical", UUID) == ID + "-2"
    assert bundles.new_id(NOW, "driver silent!", "host") == "20261130T054532Z-driver-silent-host"
    assert bundles.new_id(NOW, "", "train@llama.service") == "20261130T054532Z-manual-train-llama-service"
    assert bundles.new_id(NOW, "x", "") == "20261130T054532Z-x-host"
    bundles.write(ID, CONTENT)
    restarted = Bundles(RealFiles(), str(tmp_path))
    restarted.clean()
    assert restarted.new_id(NOW, "gpu-critical", UUID) == ID + "-2"


def test_what_is_durable_is_known_without_asking_the_disk(tmp_path: Path) -> None:
    root = tmp_path / "evidence"
    bundles = Bundles(RealFiles(), str(root))
    assert not bundles.has(ID)
    bundles.write(ID, CONTENT)
    assert bundles.has(ID)
    root.rename(tmp_path / "away")
    assert bundles.has(ID)  # no look at the disk
    (tmp_path / "away").rename(root)
    restarted = Bundles(RealFiles(), str(root))
    assert not restarted.has(ID)  # renamed by an earlier process, perhaps not synced
    restarted.clean()
    assert restarted.has(ID)
    restarted.prune(0)
    assert not restarted.has(ID)


def test_retention_keeps_the_newest_and_what_must_stay(tmp_path: Path) -> None:
    bundles = Bundles(RealFiles(), str(tmp_path))
    ids = [f"2026113{day}T000000Z-manual-host" for day in range(6)]
    for each in ids:
        bundles.write(each, CONTENT)
    (tmp_path / "lost+found").mkdir()
    assert bundles.prune(2, keep={ids[1]}) == (ids[3], ids[2], ids[0])
    assert [info.id for info in list_bundles(str(tmp_path))] == [ids[5], ids[4], ids[1]]
    assert bundles.prune(200) == ()
    assert sorted(os.listdir(tmp_path)) == sorted([ids[1], ids[4], ids[5], "lost+found"])


def _remove(path: Path) -> None:
    (path / "events.json").unlink()


def _change(path: Path) -> None:
    data = (path / "events.json").read_bytes()
    (path / "events.json").write_bytes(data[:-2] + b" \n")


def _grow(path: Path) -> None:
    with (path / "unit.json").open("a") as file:
        file.write("\n")


def _add(path: Path) -> None:
    (path / "planted.json").write_text("{}")


def _link(path: Path) -> None:
    copy = path.parent / "elsewhere.json"
    (path / "host.json").rename(copy)
    (path / "host.json").symlink_to(copy)


def _fifo(path: Path) -> None:
    (path / "host.json").unlink()
    os.mkfifo(path / "host.json")


def _no_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


def _half_manifest(path: Path) -> None:
    (path / "manifest.json").write_text((path / "manifest.json").read_text()[:200])


def _edit_manifest(path: Path, **changes: object) -> None:
    data = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**data, **changes}))


def _escape(path: Path) -> None:
    _edit_manifest(path, files=[{"name": "../elsewhere.json", "size_bytes": 1, "sha256": "0"}])


def _of_another(path: Path) -> None:
    _edit_manifest(path, id="20200101T000000Z-x-y")


def _newer(path: Path) -> None:
    _edit_manifest(path, schema=99)


def _twice(path: Path) -> None:
    data = json.loads((path / "manifest.json").read_text())
    _edit_manifest(path, files=[*data["files"], data["files"][0]])


@pytest.mark.parametrize(
    "spoil, problem",
    [
        (_remove, "events.json is missing"),
        (_change, "events.json was changed"),
        (_grow, "unit.json was changed"),
        (_add, "'planted.json' is not in manifest.json"),
        (_link, "host.json can't be read: Too many levels of symbolic links"),
        (_fifo, "host.json can't be read: not a regular file"),
        (_no_manifest, "manifest.json is missing"),
        (_half_manifest, "manifest.json is damaged"),
        (_escape, "manifest.json names '../elsewhere.json', which is no file of this bundle"),
        (_of_another, "manifest.json is that of '20200101T000000Z-x-y'"),
        (_newer, "manifest.json has schema 99; this gpuwatch knows 1"),
        (_twice, "manifest.json names a file twice"),
    ],
)
def test_verify_names_what_is_wrong(tmp_path: Path, spoil: Callable[[Path], None], problem: str) -> None:
    write_bundle(RealFiles(), str(tmp_path), ID, CONTENT)
    spoil(tmp_path / ID)
    assert problem in verify(str(tmp_path / ID))


def test_a_damaged_bundle_is_listed_with_its_problem(tmp_path: Path) -> None:
    write_bundle(RealFiles(), str(tmp_path), ID, CONTENT)
    _half_manifest(tmp_path / ID)
    (info,) = list_bundles(str(tmp_path))
    assert (info.id, info.manifest, info.problem) == (ID, None, "manifest.json is damaged")
    assert list_bundles(str(tmp_path / "none")) == ()


def test_secrets_are_never_written(tmp_path: Path) -> None:
    secret = "693a91f6-7a3c-4bc4-97a0-0ec2sifa5aaa"
    spoiled = BundleContent(
        at=NOW,
        host="gpu-07",
        version="0.1.0",
        trigger={"reason": f"curl https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={secret}"},
        samples={"gpus": {}, "note": f"token={secret}", "api_key": secret},
        events=(
            Event(
                "xid", NOW, NOW, "journal", {"name": f"--password={secret}"}, None, f"Authorization: Bearer {secret}"
            ),
        ),
        host_facts={"password": secret},
        decision={"detail": f"https://user:{secret}@example.com/"},
    )
    written = write_bundle(RealFiles(), str(tmp_path), ID, spoiled)
    everything = b"".join(file.read_bytes() for file in (tmp_path / ID).iterdir())
    assert secret.encode() not in everything
    assert written.removed == 7
    assert json.loads((tmp_path / ID / "samples.json").read_text())["api_key"] == "[removed]"
    assert verify(str(tmp_path / ID)) == ()


def test_the_protocol_is_met() -> None:
    real: DurableFiles = RealFiles()
    recorded: DurableFiles = RecordedFiles()
    assert real and recorded and manifests.NAME == "manifest.json"
