"""The installed product: one boot and one `apt-get install` a session, a clean state for each test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import TREE, refuse
from tests.lab.gpu_host import GpuHost
from tests.lab.refusal import why_no_booted_systemd
from tests.lab.roots import ready_root
from tests.lab.wecom import Robot


@pytest.fixture(scope="session")
def nvml_library() -> Path:
    """The fake libnvidia-ml.so.1."""
    subprocess.run(["make", "--no-print-directory", "-s", "fakes"], cwd=TREE, check=True)
    return TREE / "tests/fakes/nvml/build/libnvidia-ml.so.1"


@pytest.fixture(scope="session")
def installed(deb: Path, nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuHost]:
    """The host that all tests of the tier share."""
    refuse(why_no_booted_systemd())
    with Robot() as robot:
        host = GpuHost(ready_root(), deb, nvml_library, robot, tmp_path_factory.mktemp("gpu-host"))
        with host.running():
            yield host


@pytest.fixture
def host(installed: GpuHost) -> GpuHost:
    """The host, reset."""
    installed.reset()
    return installed
