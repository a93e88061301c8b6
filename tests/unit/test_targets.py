"""Every wrong target is refused, each with its own reason (S2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.actions import targets
from gpuwatch.actions.targets import refusal
from gpuwatch.model.container import Container
from gpuwatch.system.protocols import UnitFacts

GOOD = UnitFacts("train@llama.service", "loaded", "active", "running", "f" * 32, 4000, "/system.slice/t", 90.0)
WORKLOAD = ("train@*.service", "run-*.scope")


def test_a_leaf_unit_of_a_workload_may_be_stopped() -> None:
    assert refusal(GOOD, WORKLOAD, protect=("postgresql.service",), own_units=("gpuwatch.service",)) is None
    assert refusal(replace(GOOD, name="run-1.scope"), WORKLOAD) is None
    assert refusal(replace(GOOD, takes_along=("train@other.service",)), WORKLOAD) is None  # of the same workload


ID = "0123456789abcdef" * 4


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"name": "system.slice"}, targets.SLICE, "system.slice is a slice"),
    ({"name": "system-train.slice"}, targets.SLICE, "only leaf units"),
    ({"name": "session-3.scope"}, targets.SESSION, "session-3.scope is a login session"),
    ({"name": "multi-user.target"}, targets.NOT_LEAF, "is a .target unit"),
    ({"name": "docker.socket"}, targets.NOT_LEAF, "is a .socket unit"),
    ({"name": "init.scope"}, targets.NEVER, "never touches"),
    ({"name": "sshd.service"}, targets.NEVER, "never touches"),
    ({"name": "docker.service"}, targets.NEVER, "never touches"),
    ({"name": "systemd-journald.service"}, targets.NEVER, "never touches"),
    ({"name": "dbus.service"}, targets.NEVER, "never touches"),
    ({"name": "gpu07_slurmstepd.scope"}, targets.NEVER, "never touches"),
    ({"name": "gpuwatch.service"}, targets.NEVER, "never touches"),
    ({"name": "user@1000.service"}, targets.NEVER, "never touches"),
    ({"name": "watcher.service"}, targets.OWN, "watcher.service is gpuwatch's own unit"),
    ({"name": "postgresql.service"}, targets.PROTECTED, "protected by the configuration"),
    ({"name": "train@safe.service"}, targets.PROTECTED, "protected by the configuration"),
    ({"name": "nginx.service"}, targets.NOT_LISTED, "belongs to no configured workload"),
    ({"load_state": "not-found"}, targets.NOT_LOADED, "systemd says: not-found"),
    ({"load_state": "masked"}, targets.NOT_LOADED, "systemd says: masked"),
    ({"load_state": ""}, targets.NOT_LOADED, "systemd says: unknown"),
    ({"refuse_manual_stop": True}, targets.REFUSES_STOP, "RefuseManualStop=yes"),
    ({"containers": (f"/system.slice/t/docker/{ID}",)}, targets.HAS_CONTAINERS, ID),
    ({"inner_units": ("/system.slice/t/init.scope",)}, targets.NOT_LEAF, "other units in its cgroup: init.scope"),
    ({"takes_along": ("nginx.service",)}, targets.TAKES_ALONG, "also stop nginx.service, outside the workload"),
    (
        {"takes_along": ("train@a.service", "train@safe.service")},
        targets.TAKES_ALONG,
        "also stop train@safe.service",
    ),
    (
        {"takes_along": ("a.service", "b.service", "c.service", "d.target")},
        targets.TAKES_ALONG,
        "c.service and 1 more",
    ),
]


@pytest.mark.parametrize("facts, code, words", WRONG)
def test_a_wrong_target_is_refused_with_its_reason(facts: dict[str, Any], code: str, words: str) -> None:
    found = refusal(
        replace(GOOD, **facts), WORKLOAD, protect=("postgresql.service", "*safe*"), own_units=("watcher.service",)
    )
    assert found is not None
    assert (found.code, words in found.text) == (code, True), found
    assert found.code in targets.CODES


def test_a_listing_overrides_nothing() -> None:
    """A glob that catches everything still reaches no slice, no session and none of the never-list."""
    everything = ("*",)
    for name in ("system.slice", "session-1.scope", "sshd.service", "init.scope", "gpuwatch.service", "basic.target"):
        assert refusal(replace(GOOD, name=name), everything) is not None
        assert refusal(replace(GOOD, takes_along=(name,)), everything) is not None


def test_without_workloads_nothing_may_be_touched() -> None:
    found = refusal(GOOD, ())
    assert found is not None and found.code == targets.NOT_LISTED


TRAINER = Container("docker", ID, "trainer-1", "running", pid=4000, labels={"team": "ml"})
SCOPE = f"/system.slice/docker-{ID}.scope"
BOX = UnitFacts(f"docker:{ID}", "loaded", "active", "running", f"{ID}@1", 4000, SCOPE, 10.0, container=TRAINER)
QUADLET = f"/system.slice/llm.service/libpod-payload-{ID}"

WRONG_CONTAINERS: list[tuple[UnitFacts, str, str]] = [
    (replace(BOX, container=None), targets.NOT_LOADED, f"knows no container {ID[:12]}"),
    (replace(BOX, container=replace(TRAINER, name="db")), targets.NOT_LISTED, "container db belongs to no configured"),
    (replace(BOX, container=replace(TRAINER, name="k8s_trainer-1")), targets.KUBERNETES, "managed by Kubernetes"),
    (
        replace(BOX, container=replace(TRAINER, labels={"io.kubernetes.pod.name": "x"})),
        targets.KUBERNETES,
        "managed by Kubernetes",
    ),
    (replace(BOX, container=replace(TRAINER, unit="llm.service")), targets.RUN_BY_UNIT, "is run by llm.service; name"),
    (replace(BOX, control_group=QUADLET), targets.RUN_BY_UNIT, "is run by llm.service; name"),
    (replace(BOX, container=replace(TRAINER, unit="safe.service")), targets.PROTECTED, "is run by safe.service"),
    (replace(BOX, control_group=f"/a.slice/docker-{ID}.scope/safe"), "", ""),
    (replace(BOX, control_group="/safe.service/docker/" + ID), targets.PROTECTED, "runs in safe.service"),
]


@pytest.mark.parametrize("facts, code, words", WRONG_CONTAINERS)
def test_a_wrong_container_is_refused_with_its_reason(facts: UnitFacts, code: str, words: str) -> None:
    found = refusal(facts, ("*",), ("*safe*",), ("gpuwatch.service",), ("trainer-*", "label:team=x", "k8s_*"))
    assert (found.code if found else "", words in (found.text if found else "")) == (code, True), found


@pytest.mark.parametrize("pattern", ["trainer-*", "label:team=ml"])
@pytest.mark.parametrize("group", [SCOPE, f"/docker/{ID}", f"/machine.slice/libpod-{ID}.scope/container", ""])
def test_a_container_that_a_workload_names_may_be_stopped(pattern: str, group: str) -> None:
    assert refusal(replace(BOX, control_group=group), (), workload_containers=(pattern,)) is None


@pytest.mark.parametrize("own", [ID, f"docker-{ID}.scope"])
def test_the_container_that_gpuwatch_runs_in_is_its_own(own: str) -> None:
    found = refusal(BOX, (), own_units=(own,), workload_containers=("trainer-*",))
    assert found is not None and found.code == targets.OWN


def test_a_protected_scope_is_left_alone_and_units_globs_name_no_containers() -> None:
    found = refusal(BOX, (), (f"docker-{ID[:6]}*.scope",), (), ("trainer-*",))
    assert found is not None and found.code == targets.PROTECTED
    listed = refusal(BOX, ("*", "docker:*", "trainer-*"))
    assert listed is not None and listed.code == targets.NOT_LISTED


def test_every_code_is_reached_by_the_tables() -> None:
    assert {each[1] for each in (*WRONG, *WRONG_CONTAINERS) if each[1]} == set(targets.CODES)
