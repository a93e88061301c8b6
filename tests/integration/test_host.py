"""The host for real: a file system that never answers, a process that can't be killed, a service in its sandbox."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Optional

import pytest

from gpuwatch.model.host import FileSystem, HostReport
from gpuwatch.sources.host import HostSource
from gpuwatch.sources.rounds import PATIENCE_S
from gpuwatch.system.clock import SystemClock
from gpuwatch.system.host import RealHost
from gpuwatch.system.worker import ThreadWorker
from tests.conftest import TREE, refuse
from tests.lab.hung_disk import silent_mount, stuck_process
from tests.lab.nspawn import Container
from tests.lab.refusal import why_no_command, why_no_root
from tests.lab.waiting import wait_for


def source_of(host: RealHost, *paths: str) -> HostSource:
    return HostSource(host, SystemClock(), paths, lambda: ThreadWorker("rounds"))


def find(report: HostReport, mount: str) -> Optional[FileSystem]:
    return next((each for each in report.filesystems if each.mount == mount), None)


def test_this_machine(tmp_path: Path) -> None:
    source = source_of(RealHost(), str(tmp_path))
    report = source.observe(SystemClock().now(), wait_s=10.0)
    root = find(report, "/")
    assert root is not None and root.readings["host.disk_free_ratio"].value
    assert any(str(tmp_path) in each.paths for each in report.filesystems)
    assert not [name for name, reading in report.readings.items() if reading.failed]
    source.close()


@pytest.mark.root
@pytest.mark.namespaces
@pytest.mark.slow
def test_a_file_system_that_never_answers(tmp_path: Path) -> None:
    """S7: the cycle goes on, the others are read, and it is said."""
    refuse(why_no_root())
    point = tmp_path / "train"
    point.mkdir()
    clock, host = SystemClock(), RealHost()
    source = source_of(host, str(point / "run1"), str(point / "run2"))
    with silent_mount(point):
        slowest = 0.0

        def silent() -> Optional[HostReport]:
            nonlocal slowest
            began = time.monotonic()
            report = source.observe(clock.now())
            slowest = max(slowest, time.monotonic() - began)
            return report if find(report, str(point)) and find(report, "/") else None

        report = wait_for(silent, PATIENCE_S + 10.0, "the report names it")
        assert slowest < 1.0, "the cycle waits for no disk"
        hung = find(report, str(point))
        assert hung is not None and hung.kind == "fuse"
        assert {reading.problem for reading in hung.readings.values()} == {"does not answer"}
    source.close()


@pytest.mark.root
@pytest.mark.namespaces
def test_a_process_that_hangs_in_the_kernel(tmp_path: Path) -> None:
    refuse(why_no_root() or why_no_command("mke2fs", "fsfreeze"))
    gpu = tmp_path / "nvidia0"
    gpu.touch()
    host = RealHost(gpu_device=str(gpu))
    clock = SystemClock()
    with stuck_process(tmp_path, gpu) as pid:
        (thread,) = host.stuck(()).threads
        assert (thread.pid, thread.thread, thread.uid) == (pid, pid, os.getuid())
        assert thread.wchan or thread.stack
        assert thread.in_driver is not True, "this one hangs in the file system"
        assert [each.pid for each in RealHost(gpu_device="/no/such/device").stuck((pid,)).threads] == [pid]
        source = source_of(host)
        report = source.observe(clock.now(), wait_s=10.0, look_for_stuck=True)
        assert [each.pid for each in report.stuck] == [pid]
        assert report.stuck_looked is not None
        source.close()
    assert host.stuck((pid,)).threads == ()


PROBE = """
import json
from gpuwatch.model.codec import encode
from gpuwatch.sources.host import HostSource
from gpuwatch.system.clock import SystemClock
from gpuwatch.system.host import RealHost
from gpuwatch.system.worker import ThreadWorker
from gpuwatch.system.unit_files import CgroupFiles
host = RealHost()
source = HostSource(host, SystemClock(), ["/var/lib/gwprobe", "/home/x"], lambda: ThreadWorker("rounds"))
report = source.observe(SystemClock().now(), wait_s=10.0, look_for_stuck=True)
print(json.dumps(encode(report)))
"""
SANDBOX = (
    "ProtectSystem=strict", "ProtectHome=read-only", "PrivateTmp=yes", "StateDirectory=gwprobe", "NoNewPrivileges=yes",
    "CapabilityBoundingSet=CAP_SYS_PTRACE CAP_DAC_READ_SEARCH", "ProtectClock=yes", "ProtectControlGroups=yes",
    "ProtectKernelModules=yes", "RestrictNamespaces=yes", "SystemCallFilter=@system-service",
    "SystemCallErrorNumber=EPERM", "DevicePolicy=closed",
)  # fmt: skip


@pytest.mark.root
@pytest.mark.namespaces
@pytest.mark.parametrize("properties", [(), SANDBOX], ids=["plain", "sandboxed"])
def test_a_service_of_a_booted_systemd(booted: Container, properties: tuple[str, ...]) -> None:
    """In a sandbox every mount is read-only and many lie upon one another; the file systems are what they are."""
    target = booted.root / "srv/host-probe"
    if not target.exists():
        for source in (TREE / "gpuwatch").rglob("*.py"):
            copy = target / source.relative_to(TREE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    said = booted.unit(
        "/usr/bin/python3", "-c", PROBE, properties=(*properties, "Environment=PYTHONPATH=/srv/host-probe")
    )
    report: dict[str, Any] = json.loads(said.stdout)
    roots = [each for each in report["filesystems"] if each["mount"] == "/"]
    assert len(roots) == 1, report["filesystems"]
    assert {"/", "/var/lib/gwprobe", "/home/x"} <= set(roots[0]["paths"])
    assert roots[0]["readings"]["host.disk_read_only"] == {"value": 0.0, "problem": None}
    assert roots[0]["readings"]["host.disk_free_ratio"]["value"] > 0
    failed = {
        name: reading["problem"]
        for name, reading in report["readings"].items()
        if reading["problem"] not in (None, "unsupported")
    }
    assert set(failed) <= {"host.clock_synchronised"}, failed
    assert report["problems"] == {}
