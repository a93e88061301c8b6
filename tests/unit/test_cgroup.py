"""From a cgroup path to the owner."""

from __future__ import annotations

import pytest

from gpuwatch.catalog.cgroup import CgroupOwner, parse

A = "a1" * 32
B = "b2" * 32


@pytest.mark.parametrize(
    "path, owner",
    [
        # units of the system's manager
        ("/system.slice/train.service", CgroupOwner("unit", "train.service")),
        ("/system.slice/train.service/workers/1", CgroupOwner("unit", "train.service")),
        ("/system.slice/system-train.slice/train@llama.service", CgroupOwner("unit", "train@llama.service")),
        (r"/system.slice/system-train.slice/train@a\x2db.service", CgroupOwner("unit", r"train@a\x2db.service")),
        ("/ml.slice/ml-big.slice/train.service", CgroupOwner("unit", "train.service")),
        ("/system.slice/run-r1f.scope", CgroupOwner("unit", "run-r1f.scope")),
        ("/system.slice/_cpu.service", CgroupOwner("unit", "cpu.service")),
        ("/system.slice/train.service (deleted)", CgroupOwner("unit", "train.service")),
        # what only looks like a unit further down belongs to whoever runs there
        ("/system.slice/box.service/system.slice/inner.service", CgroupOwner("unit", "box.service")),
        ("/machine.slice/machine-box.scope/payload/system.slice/a.service", CgroupOwner("unit", "machine-box.scope")),
        # people
        ("/user.slice/user-1000.slice/session-5.scope", CgroupOwner("session", "session-5.scope", uid=1000)),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service",
            CgroupOwner("user_unit", "user@1000.service", user_unit="jupyter.service", uid=1000),
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-x-1.scope",
            CgroupOwner("user_unit", "user@1000.service", user_unit="app-gnome-x-1.scope", uid=1000),
        ),
        (
            "/user.slice/user-0.slice/user@0.service/init.scope",
            CgroupOwner("user_unit", "user@0.service", user_unit="init.scope", uid=0),
        ),
        # docker
        (f"/system.slice/docker-{A}.scope", CgroupOwner("docker", f"docker-{A}.scope", A)),
        (f"/ml.slice/docker-{A}.scope/sub", CgroupOwner("docker", f"docker-{A}.scope", A)),
        (f"/docker/{A}", CgroupOwner("docker", None, A)),
        (f"/docker/{A}/docker/{B}", CgroupOwner("docker", None, A)),  # the host's docker knows the outer one
        (f"/system.slice/docker-{A}.scope/docker/{B}", CgroupOwner("docker", f"docker-{A}.scope", A)),
        ("/system.slice/docker.service", CgroupOwner("unit", "docker.service")),
        (
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{A}.scope",
            CgroupOwner("docker", "user@1000.service", A, user_unit=f"docker-{A}.scope", uid=1000),
        ),
        # podman
        (f"/machine.slice/libpod-{A}.scope", CgroupOwner("podman", f"libpod-{A}.scope", A)),
        (f"/machine.slice/libpod-{A}.scope/container", CgroupOwner("podman", f"libpod-{A}.scope", A)),
        (
            f"/machine.slice/machine-libpod_pod_{B}.slice/libpod-{A}.scope",
            CgroupOwner("podman", f"libpod-{A}.scope", A),
        ),
        (f"/libpod_parent/libpod-{A}", CgroupOwner("podman", None, A)),
        (f"/system.slice/llm.service/libpod-payload-{A}", CgroupOwner("podman", "llm.service", A)),
        (f"/machine.slice/libpod-conmon-{A}.scope", CgroupOwner("unit", f"libpod-conmon-{A}.scope")),
        (
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{A}.scope/container",
            CgroupOwner("podman", "user@1000.service", A, user_unit=f"libpod-{A}.scope", uid=1000),
        ),
        (f"/system.slice/system.slice:docker:{A}", CgroupOwner("docker", None, A)),  # systemd's path, taken literally
        (f"/system.slice/llm.service/machine.slice:libpod:{A}", CgroupOwner("podman", "llm.service", A)),
        # below a parent of the admin's own: whose it is, its engine knows
        (f"/training/{A}", CgroupOwner("other", None, A)),
        (f"/ml.slice/{A}/sub", CgroupOwner("other", None, A)),
        (f"/system.slice/train.service/{A}", CgroupOwner("unit", "train.service")),
        # another runtime
        (f"/system.slice/nerdctl-{A}.scope", CgroupOwner("other", f"nerdctl-{A}.scope", A)),
        # Slurm
        (
            "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_3",
            CgroupOwner("slurm", "slurmstepd.scope", slurm_job="4711", slurm_step="0"),
        ),
        (
            "/system.slice/node7_slurmstepd.scope/job_4711/step_batch/user/task_0",
            CgroupOwner("slurm", "node7_slurmstepd.scope", slurm_job="4711", slurm_step="batch"),
        ),
        ("/slurm/uid_1000/job_12/step_extern/task_0", CgroupOwner("slurm", slurm_job="12", slurm_step="extern")),
        ("/system.slice/slurmd.service", CgroupOwner("unit", "slurmd.service")),
        # Kubernetes
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-{A}.scope",
            CgroupOwner("kubepods", f"cri-containerd-{A}.scope", A),
        ),
        (f"/kubepods/besteffort/pod1-2/{A}", CgroupOwner("kubepods", None, A)),
        (
            f"/system.slice/containerd.service/kubepods-besteffort-pod1_2.slice:cri-containerd:{A}",
            CgroupOwner("kubepods", "containerd.service", A),
        ),
        (f"/kubepods/burstable/pod1-2/{A}/docker/{B}", CgroupOwner("kubepods", None, A)),  # docker inside a pod
        # nobody
        ("/init.scope", CgroupOwner("other", "init.scope")),
        ("/", CgroupOwner("other")),
        ("", CgroupOwner("other")),
        ("/system.slice", CgroupOwner("other")),
        ("/user.slice/user-1000.slice", CgroupOwner("other")),
        ("/mine/own", CgroupOwner("other")),
        ("/docker/short", CgroupOwner("other")),
    ],
)
def test_parse(path: str, owner: CgroupOwner) -> None:
    assert parse(path) == owner
