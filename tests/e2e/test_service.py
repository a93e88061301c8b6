"""gpuwatch.service as systemd sees it."""

from __future__ import annotations

import time

from tests.lab.gpu_host import GpuHost
from tests.lab.waiting import wait_for


def test_ready_after_the_first_cycle_with_a_useful_status_line(host: GpuHost) -> None:
    host.start()
    shown = host.container.show("gpuwatch.service", "ActiveState", "StatusText")
    assert shown["ActiveState"] == "active"
    assert "8" in shown["StatusText"]  # GPUs
    assert "SIMULATED" not in shown["StatusText"]


def test_sandbox_lets_it_see_the_gpus_and_the_doorbell(host: GpuHost) -> None:
    host.start()
    view = host.status()
    assert "SIMULATED" not in str(view)
    assert str(view).count("GPU-0000000") >= 8


def test_gone_within_five_seconds(host: GpuHost) -> None:
    host.start()
    began = time.monotonic()
    host.container.run("systemctl", "stop", "gpuwatch.service")
    assert time.monotonic() - began < 5.5
    assert host.container.show("gpuwatch.service", "Result", "ActiveState") == {
        "Result": "success",
        "ActiveState": "inactive",
    }


def test_bad_configuration_ends_with_78_and_is_not_tried_again(host: GpuHost) -> None:
    host.configure("mode: obey\nworkloads: 5\n")
    assert host.container.run("systemctl", "start", "gpuwatch.service", check=False).returncode != 0
    shown = host.container.show("gpuwatch.service", "ExecMainStatus", "NRestarts", "ActiveState")
    assert shown == {"ExecMainStatus": "78", "NRestarts": "0", "ActiveState": "failed"}
    assert "lab.yaml:1:" in host.log()
    assert "lab.yaml:2:" in host.log()


def test_reload_with_a_bad_configuration_keeps_the_old_one(host: GpuHost) -> None:
    host.start()
    pid = host.container.show("gpuwatch.service", "MainPID")
    host.configure("mode: obey\n")
    assert host.container.run("systemctl", "reload", "gpuwatch.service", check=False).returncode != 0
    assert host.container.show("gpuwatch.service", "MainPID", "ActiveState") == {**pid, "ActiveState": "active"}
    assert "lab.yaml:1:" in host.log()


def test_reload_takes_a_good_configuration(host: GpuHost) -> None:
    host.start()
    pid = host.container.show("gpuwatch.service", "MainPID")
    host.configure("language: zh\n")
    host.container.run("systemctl", "reload", "gpuwatch.service")
    wait_for(lambda: host.container.show("gpuwatch.service", "ActiveState")["ActiveState"] == "active")
    assert host.container.show("gpuwatch.service", "MainPID") == pid
