"""What happened to people, by the id under which it is told: the kernel's lines, and errors after our own stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.catalog.kernel import parse
from gpuwatch.model.intent import IntentState
from gpuwatch.policy.state import Inputs
from tests.fakes.story import PCI, Story, at, gpu, report, uuid, xid
from tests.scenarios.bench import Bench
from tests.unit.test_policy import intent

ID = "7c1e4b0d9f2a86355e0c4d1b7a9e3f6028d5c7b1e4f09a3d6b82c5e7f1094a3b"

OOM_KILL = "oom-kill:constraint=CONSTRAINT_"
IN_DOCKER = f"oom_memcg=/docker/{ID},task_memcg=/docker/{ID}"
SCOPE = f"task_memcg=/system.slice/docker-{ID}.scope"


@pytest.mark.parametrize(
    ("words", "pid", "process"),
    [
        (", pid='<unknown>', name=<unknown>", None, None),
        ("", None, None),
        (", pid=1422, name=python3.11", 1422, "python3.11"),
        (", pid=1422", 1422, None),
    ],
)
def test_k2_pid_and_name_are_optional(words: str, pid: object, process: object) -> None:
    facts = parse(f"NVRM: Xid (PCI:0000:5e:00): 79{words}, GPU has fallen off the bus.")
    assert facts is not None
    assert (facts["xid"], facts["pci"], facts.get("pid"), facts.get("process")) == (79, PCI, pid, process)


def test_k2_mig_instances_stand_inside_the_parentheses() -> None:
    facts = parse("NVRM: Xid (PCI:0000:41:00 GPU-I:05 GPU-CI:02): 94, pid=7421, Contained: CE User Channel (0x9).")
    assert facts is not None
    assert (facts["pci"], facts["gpu_instance"], facts["compute_instance"]) == ("0000:41:00.0", 5, 2)


def test_k3_a_device_that_does_not_match_is_visible_and_never_no_device() -> None:
    facts = parse("NVRM: Xid : 32, pid=2280636")
    assert facts is not None and facts["kind"] == "xid_unparsed"


def test_k8_a_child_names_its_cause() -> None:
    facts = parse(
        "NVRM: Xid (PCI:0000:61:00): 45, pid=59620, name=pt_main_thread, Ch 0000000a, caused by previous Xid 31"
    )
    assert facts is not None and facts["caused_by"] == 31


@pytest.mark.parametrize(
    ("line", "scope", "container"),
    [
        ("Memory cgroup out of memory: Kill process 4115 (python) score 1923 or sacrifice child", "cgroup", None),
        (
            f"{OOM_KILL}MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,{IN_DOCKER},task=python3,pid=4115,uid=0",
            "cgroup",
            ID,
        ),
        (
            f"{OOM_KILL}NONE,nodemask=(null),cpuset=x,mems_allowed=0-7,global_oom,{SCOPE},task=python3,pid=4115,uid=0",
            "host",
            ID,
        ),
    ],
    ids=["k11 old form", "k12 a cgroup's limit", "k12 the host"],
)
def test_k11_k12_both_forms_and_whose_limit_it_was(line: str, scope: str, container: object) -> None:
    facts = parse(line)
    assert facts is not None
    assert (facts["kind"], facts["scope"], facts["pid"], facts.get("container")) == ("oom_kill", scope, 4115, container)


def test_k15_the_kernels_record_and_the_engines_word_are_both_kept(tmp_path: Path) -> None:
    """The engine says "Up 5 days" after an OOM kill inside the container."""
    bench = Bench(tmp_path)
    bench.engine.run("trainer-7")
    bench.run(10)
    (container,) = bench.assembly.cycle.seen.containers.containers  # type: ignore[union-attr]
    bench.host.kernel.kernel(
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,"
        f"oom_memcg=/docker/{container.id},task_memcg=/docker/{container.id},task=python3,pid=4115,uid=0"
    )
    bench.run(10)
    (killed,) = [event for event in bench.assembly.cycle.events if event.kind == "oom_kill"]
    assert killed.fields["container"] == container.id
    (after,) = bench.assembly.cycle.seen.containers.containers  # type: ignore[union-attr]
    assert after.status == container.status, "the engine's word is kept beside it"


@pytest.mark.parametrize(("sent", "marked"), [(95.0, True), (10.0, False)])
def test_n18_an_xid_right_after_our_own_stop_is_marked(sent: float, marked: bool) -> None:
    story = Story()
    stopped = intent(IntentState.VERIFIED, changed=sent + 2, sent=at(sent))
    now = at(100)
    story.step(Inputs(now, report(now, gpu(0)), events=(xid(79, now),), intents=(replace(stopped, gpu=uuid(0)),)))
    (incident,) = story.state.incidents.values()
    assert (incident.causes[0].facts.get("after_own_action") == "a1-1") is marked


def test_the_file_systems_that_jobs_work_on_are_watched(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    watched: list[tuple[str, ...]] = []
    bench.assembly.cycle.ports.host.watch = lambda paths: watched.append(tuple(paths))  # type: ignore[method-assign]
    bench.run(10)
    assert watched and "/srv/train" in watched[-1]
    assert str(tmp_path / "state") in watched[-1]
