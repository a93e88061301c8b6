"""One gpuwatch acts on a host; the others say why not."""

from __future__ import annotations

import json

from tests.lab.gpu_host import GpuHost


def test_second_daemon_says_who_is_there(host: GpuHost) -> None:
    host.start()
    pid = host.container.show("gpuwatch.service", "MainPID")["MainPID"]
    done = host.container.run("gpuwatch", "run", check=False, timeout_s=20)
    assert done.returncode == 1
    assert pid in done.stderr
    assert host.container.show("gpuwatch.service", "ActiveState")["ActiveState"] == "active"


def test_one_pass_beside_the_daemon_does_nothing(host: GpuHost) -> None:
    host.start()
    pid = host.container.show("gpuwatch.service", "MainPID")
    host.container.run("systemctl", "start", "gpuwatch-once.service", check=False)
    assert host.container.show("gpuwatch.service", "MainPID") == pid
    assert pid["MainPID"] in host.container.journal("-u", "gpuwatch-once.service", "-n", "20")


def test_one_pass_alone_samples_and_decides(host: GpuHost) -> None:
    host.scenario.lose(2)
    host.container.run("systemctl", "start", "gpuwatch-once.service", timeout_s=60)
    assert host.container.show("gpuwatch-once.service", "Result")["Result"] == "success"
    assert [cause["rule"] for cause in host.incident("gpu-lost")["incident"]["causes"]] == ["gpu-lost"]


def test_timer_runs_passes_and_leaves_the_daemon_alone(host: GpuHost) -> None:
    host.start()
    host.container.run("systemctl", "start", "gpuwatch-once.timer")
    listed = host.container.run("systemctl", "list-timers", "--no-pager", "gpuwatch-once.timer").stdout
    assert "gpuwatch-once.service" in listed
    assert host.container.show("gpuwatch.service", "ActiveState")["ActiveState"] == "active"


def test_check_answers_beside_the_daemon_and_never_writes(host: GpuHost) -> None:
    host.start()
    done = host.container.run("gpuwatch", "check", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    host.scenario.lose(2)
    host.incident("gpu-lost", timeout_s=20)
    assert host.container.run("gpuwatch", "check", check=False).returncode == 2


def test_status_works_with_the_daemon_down(host: GpuHost) -> None:
    host.start()
    host.container.run("systemctl", "stop", "gpuwatch.service")
    done = host.container.run("gpuwatch", "status", "--json", check=False)
    assert json.loads(done.stdout)["gpus"]


def test_group_reads_the_socket_and_only_root_writes(host: GpuHost) -> None:
    host.start()
    box = host.container
    assert box.run("stat", "-c", "%a %U:%G", "/run/gpuwatch/control.sock").stdout == "660 root:gpuwatch\n"
    member = ("setpriv", "--reuid=nobody", "--regid=gpuwatch", "--clear-groups")
    assert json.loads(box.run(*member, "gpuwatch", "status", "--json").stdout)["gpus"]
    assert box.run(*member, "gpuwatch", "snapshot", check=False).returncode != 0
    host.gpuwatch("snapshot", "--reason", "by hand")
    (bundle,) = host.bundles()
    host.gpuwatch("evidence", "verify", bundle)
