"""Who uses a GPU, from the driver's list to names for people: cases that are taken for one another, told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import pytest

from gpuwatch.model.container import Container, ContainerReport, Exit, GpuRequest
from gpuwatch.model.gpu import Attribution, DriverState, GpuProcess, GpuReport, GpuSample, Owner, ProcessList
from gpuwatch.simulation.gpus import SimulatedProcesses
from gpuwatch.sources.gpu import GpuSource
from gpuwatch.sources.owner_names import GrantedGpus, OwnerNames, container_ids, granted
from tests.fakes.story import at, uuid

A, B, C = "a1" * 32, "b2" * 32, "c3" * 32
TRAINER = Container(
    "docker", A, "llama-trainer-1", "running", "llama:7", compose_project="llama", compose_service="trainer"
)
LLM = Container("podman", B, "llm", "running", "vllm:1")
POD = Container("docker", C, "k8s_train_llama_ns_uid_0", "running")
REPORT = ContainerReport(containers=(TRAINER, LLM, POD))


class Bench:
    """GpuSource and OwnerNames over processes that are put in by hand; `inside`: their pids in their namespace."""

    def __init__(self) -> None:
        self.processes = SimulatedProcesses()
        self.inside: dict[int, Optional[int]] = {}
        self.asked: list[int] = []
        self.source = GpuSource(self.processes)
        self.names = OwnerNames(self._inside)

    def _inside(self, pid: int) -> Optional[int]:
        self.asked.append(pid)
        return self.inside.get(pid)

    def see(
        self, second: float, pids: Sequence[int], report: ContainerReport = REPORT, kinds: Sequence[str] = ()
    ) -> Attribution:
        listed = [GpuProcess(pid, kind) for pid, kind in zip(pids, [*kinds, *["compute"] * len(pids)])]
        sample = GpuSample(uuid(0), 0, "H100", "0000:18:00.0", {}, ProcessList(tuple(listed)))
        seen = self.source.observe(GpuReport(DriverState.OK, taken=at(second), samples=(sample,)), at(second))
        (attribution,) = self.names.name(seen, report)
        return attribution


@pytest.fixture
def bench() -> Bench:
    return Bench()


CASES: list[tuple[str, str, dict[str, object]]] = [
    ("unit", "/system.slice/train@7.service", {"kind": "unit", "unit": "train@7.service", "container_name": ""}),
    (
        "docker, systemd driver",
        f"/system.slice/docker-{A}.scope",
        {"kind": "docker", "container_name": "llama-trainer-1", "compose": "llama/trainer", "image": "llama:7"},
    ),
    ("docker, cgroupfs", f"/docker/{A}", {"kind": "docker", "container_name": "llama-trainer-1"}),
    (
        "docker, parent of the admin's own",
        f"/training/{A}",
        {"kind": "docker", "container_name": "llama-trainer-1", "container": A},
    ),
    ("podman", f"/machine.slice/libpod-{B}.scope/container", {"kind": "podman", "container_name": "llm"}),
    (
        "podman's quadlet",
        f"/system.slice/llm.service/libpod-payload-{B}",
        {"kind": "podman", "unit": "llm.service", "container_name": "llm"},
    ),
    (
        "a container that no engine knows",
        f"/system.slice/docker-{'d4' * 32}.scope",
        {"kind": "docker", "container_name": "", "container_pid": 17},
    ),
    (
        "rootless podman",
        f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{'d4' * 32}.scope",
        {"kind": "podman", "unit": "user@1000.service", "container_name": ""},
    ),
    (
        "a kubelet's",
        f"/kubepods.slice/kubepods-pod1.slice/cri-containerd-{C}.scope",
        {"kind": "kubepods", "container": C},
    ),
    ("a kubelet's through docker", f"/docker/{C}", {"kind": "kubepods", "container_name": POD.name}),
    (
        "a user's own unit",
        "/user.slice/user-1001.slice/user@1001.service/app.slice/jupyter.service",
        {"kind": "user_unit", "unit": "user@1001.service", "user_unit": "jupyter.service"},
    ),
    (
        "a login session",
        "/user.slice/user-1001.slice/session-5.scope",
        {"kind": "session", "unit": "session-5.scope", "user": "ml-team"},
    ),
    (
        "a job of Slurm",
        "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_3",
        {"kind": "slurm", "unit": "slurmstepd.scope", "job": "4711.0"},
    ),
    ("nobody's", "/", {"kind": "other", "unit": None, "container_name": ""}),
]


@pytest.mark.parametrize("cgroup, expected", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_who_it_is(bench: Bench, cgroup: str, expected: dict[str, object]) -> None:
    bench.processes.put(100, cgroup)
    bench.inside[100] = 17
    (owner,) = bench.see(100, [100]).owners
    assert {name: getattr(owner, name) for name in expected} == expected


def test_the_pid_in_the_container_is_asked_for_once(bench: Bench) -> None:
    bench.processes.put(100, f"/docker/{A}")
    bench.processes.put(101, "/system.slice/a.service")
    bench.inside = {100: 17, 101: 101}
    for second in (100, 105, 110):
        first, second_one = bench.see(second, [100, 101]).owners
        assert (first.container_pid, second_one.container_pid) == (17, None)
    assert bench.asked == [100]


def test_a_pid_that_is_another_process_now(bench: Bench) -> None:
    """PID reuse: what was true of the first process is not said of the second."""
    bench.processes.put(100, f"/docker/{A}")
    bench.inside = {100: 17}
    bench.see(100, [100])
    assert bench.see(105, [100]).confirmed == (100,)
    bench.processes.put(100, f"/machine.slice/libpod-{B}.scope", started_boottime_s=107)
    bench.inside = {100: 3}
    again = bench.see(110, [100])
    assert again.confirmed == ()
    (owner,) = again.owners
    assert (owner.container_name, owner.container_pid) == ("llm", 3)


def test_a_process_that_moved_to_another_cgroup_is_not_confirmed(bench: Bench) -> None:
    bench.processes.put(100, f"/docker/{A}")
    bench.see(100, [100])
    bench.processes.put(100, "/system.slice/ssh.service")
    assert bench.see(105, [100]).confirmed == ()


def test_a_zombie_uses_nothing(bench: Bench) -> None:
    bench.processes.put(100, f"/docker/{A}", state="Z")
    bench.processes.put(101, f"/docker/{A}")
    assert [owner.pid for owner in bench.see(100, [100, 101]).owners] == [101]


def test_people_are_told_apart_in_one_container(bench: Bench) -> None:
    bench.processes.put(100, f"/docker/{A}", user="ann", uid=1001)
    bench.processes.put(101, f"/docker/{A}", user="bob", uid=1002)
    assert [(owner.user, owner.container_name) for owner in bench.see(100, [100, 101]).owners] == [
        ("ann", "llama-trainer-1"),
        ("bob", "llama-trainer-1"),
    ]


def test_hidden_is_not_gone(bench: Bench) -> None:
    """hidepid: what may not be seen makes the list unknown; nobody else is blamed for it."""
    bench.processes.put(100, f"/docker/{A}")
    bench.processes.hide(101)
    seen = bench.see(100, [100, 101])
    assert (seen.owners, seen.confirmed) == ((), ())
    assert "Permission denied" in (seen.unknown or "")


def test_the_server_of_mps_is_shown_and_never_confirmed(bench: Bench) -> None:
    bench.processes.put(100, f"/docker/{A}", name="python3")
    bench.processes.put(200, f"/docker/{A}", name="nvidia-cuda-mps")
    bench.see(100, [100, 200], kinds=["mps", "compute"])
    seen = bench.see(105, [100, 200], kinds=["mps", "compute"])
    assert seen.confirmed == (100,)
    assert {owner.pid: owner.process_kind for owner in seen.owners} == {100: "mps", 200: "compute"}


def test_a_container_that_is_gone_still_has_its_name(bench: Bench) -> None:
    ended = ContainerReport(exits=(Exit(TRAINER, 1, 137, "event"),))
    bench.processes.put(100, f"/docker/{A}")
    (owner,) = bench.see(100, [100], ended).owners
    assert owner.container_name == "llama-trainer-1"


def test_whose_containers_are_asked_for() -> None:
    def owner(kind: str, container: Optional[str]) -> Owner:
        return Owner(1, 1, 1.0, "x", 0, "root", kind, container=container)

    first = Attribution("a", at(1), (owner("docker", A), owner("podman", B), owner("unit", None)))
    second = Attribution("b", at(1), (owner("docker", A), owner("kubepods", C), owner("other", "d4" * 32)))
    assert container_ids([first, second]) == (A, B, "d4" * 32)


GPUS = [(1, "GPU-bbbb2222-0"), (0, "GPU-aaaa1111-0"), (2, "GPU-aaaa3333-0")]


@pytest.mark.parametrize(
    "request_, expected",
    [
        (GpuRequest("cdi", all=True), GrantedGpus(("GPU-aaaa1111-0", "GPU-bbbb2222-0", "GPU-aaaa3333-0"))),
        (GpuRequest("device_requests", count=2), GrantedGpus(("GPU-aaaa1111-0", "GPU-bbbb2222-0"))),
        (
            GpuRequest("device_requests", count=5),
            GrantedGpus(("GPU-aaaa1111-0", "GPU-bbbb2222-0", "GPU-aaaa3333-0"), ("2 more",)),
        ),
        (GpuRequest("environment", ids=("1", "0")), GrantedGpus(("GPU-bbbb2222-0", "GPU-aaaa1111-0"))),
        (GpuRequest("environment", ids=("1", "GPU-bbbb2222-0")), GrantedGpus(("GPU-bbbb2222-0",))),
        (GpuRequest("environment", ids=("GPU-bbbb", "7")), GrantedGpus(("GPU-bbbb2222-0",), ("7",))),
        (GpuRequest("environment", ids=("GPU-aaaa",)), GrantedGpus((), ("GPU-aaaa",))),  # two begin like this
        (GpuRequest("environment", ids=("GPU-", "x", "-1", "١")), GrantedGpus((), ("GPU-", "x", "-1", "١"))),
        (GpuRequest("cdi", ids=("0:1", "MIG-77")), GrantedGpus(untold=("0:1", "MIG-77"))),
        (GpuRequest("devices", ids=("/dev/nvidia0",)), GrantedGpus(untold=("/dev/nvidia0",))),
    ],
)
def test_what_a_request_comes_to(request_: GpuRequest, expected: GrantedGpus) -> None:
    assert granted(request_, GPUS) == expected
