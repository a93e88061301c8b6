"""kill -9 at every step of writing a bundle: afterwards it is whole, or it is not there."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from gpuwatch.evidence.bundle import Bundles, write_bundle
from gpuwatch.evidence.content import BundleContent
from gpuwatch.evidence.manifest import verify
from gpuwatch.model.instant import Instant
from gpuwatch.system.files import RealFiles
from tests.fakes.recorded_files import RecordedFiles, Step

ID = "20261130T054532Z-gpu-critical-3d9a7c10"
CONTENT = BundleContent(at=Instant("b" * 32, 1.0, 1796017532.0), host="h", version="0")


def _killed_before(number_of_call: int, root: str) -> None:
    """Write in a child process that kills itself before a call."""

    def die(number: int, step: Step) -> None:
        if number == number_of_call:
            os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if pid == 0:
        write_bundle(RecordedFiles(die), root, ID, CONTENT)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def test_killed_at_any_step_and_started_again(tmp_path: Path) -> None:
    measure = RecordedFiles()
    write_bundle(measure, str(tmp_path / "measure"), ID, CONTENT)
    renamed_at = next(number for number, step in enumerate(measure.steps, 1) if step[0] == "rename")
    for number in range(1, len(measure.steps) + 1):
        root = tmp_path / f"killed-{number}"
        _killed_before(number, str(root))
        bundles = Bundles(RealFiles(), str(root))
        bundles.clean()
        assert bundles.has(ID) is (number > renamed_at)
        bundles.write(ID, CONTENT)
        assert verify(str(root / ID)) == ()
        assert os.listdir(root) == [ID]
