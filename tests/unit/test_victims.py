"""Whom an action may hit, for every kind of resource, and what is said of the others (S2, S11)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.model import reason
from gpuwatch.model.container import Container
from gpuwatch.model.gpu import Attribution, Owner
from gpuwatch.model.host import SubjectReadings
from gpuwatch.model.incident import Subject
from gpuwatch.model.reading import failed, value
from gpuwatch.model.settings import Settings, Workload
from gpuwatch.policy.victims import (
    CAME_BACK,
    CHOSEN,
    GPU,
    GPU_MEMORY,
    HIGHER_PRIORITY,
    HOST_MEMORY,
    LATER_NAME,
    LOST_LIST,
    MPS_SERVER,
    NEGLIGIBLE,
    NOT_UNITS,
    OF_UNIT,
    OF_WORKLOAD,
    PROTECTED,
    RULED_OUT,
    SMALLER,
    VERDICTS,
    Choice,
    Resource,
    Seen,
    choose,
    owner_workload,
    workload_of,
)
from tests.fakes.story import NEXT_BOOT, at, attribution, owner, uuid

GIB = 1 << 30
NOW = at(100)
TRAINING = Workload("training", ("train@*.service",), priority=5)
SERVING = Workload("serving", ("serve*.service",), priority=20, gpu_memory_limit=30 * GIB)
CONFIG = Settings(workloads=(TRAINING, SERVING), protect=("train@holy.service",))
CARD = Resource(GPU_MEMORY, uuid(0), 80.0 * GIB)
HOST = Resource(HOST_MEMORY, "", 512.0 * GIB)


def on_card(*owners: Owner, config: Settings = CONFIG, index: int = 0, age: float = 0.0, **more: Any) -> Seen:
    return Seen(NOW, config, {uuid(index): attribution(at(100 - age), *owners, index=index, **more)})


def in_host(config: Settings = CONFIG, age: float = 0.0, **gib: Optional[float]) -> Seen:
    """Units by name ("train@a" is written train_a) with the GiB that they use; None: it can't be read."""
    found = []
    for name, used in gib.items():
        unit = f"{name.replace('_', '@')}.service"
        reading = failed("no such file") if used is None else value(used * GIB)
        subject = Subject("unit", unit)
        found.append(SubjectReadings(subject, unit, at(100 - age), {"unit.memory_used": reading}))
    return Seen(NOW, config, {}, tuple(found))


def verdicts(choice: Choice) -> dict[str, str]:
    return {each.unit: each.verdict for each in choice.considered}


def order(choice: Choice) -> list[str]:
    return [each.unit for each in choice.candidates]


# The order, and why


def test_lowest_priority_first_then_the_largest_user_then_by_name() -> None:
    choice = choose(HOST, in_host(serve=90, train_b=60, train_a=60, train_c=80))
    assert order(choice) == ["train@c.service", "train@a.service", "train@b.service", "serve.service"]
    assert verdicts(choice) == {
        "train@c.service": CHOSEN,
        "train@a.service": SMALLER,
        "train@b.service": SMALLER,
        "serve.service": HIGHER_PRIORITY,
    }
    assert choice.considered[0].used_bytes == 80 * GIB
    assert verdicts(choose(HOST, in_host(train_b=60, train_a=60)))["train@b.service"] == LATER_NAME


@pytest.mark.parametrize(
    ("gib", "because"),
    [
        ({"train_a": 60}, "only"),
        ({"train_a": 60, "train_b": 50}, "largest"),
        ({"train_a": 60, "serve": 90}, "lowest_priority"),
        ({"train_a": 60, "train_b": 50, "serve": 90}, "lowest_priority largest"),
        ({"train_a": 60, "train_b": 60}, ""),
    ],
)
def test_a_message_can_say_why_it_was_this_one(gib: dict[str, Any], because: str) -> None:
    facts = choose(HOST, in_host(**gib)).facts()
    assert facts["victim_because"] == because
    assert (facts["victim"], facts["victim_workload"]) == ("train@a.service", "training")
    assert (facts["victim_priority"], facts["victim_bytes"]) == (5, 60 * GIB)


def test_a_message_can_say_who_else_was_considered() -> None:
    considered = choose(HOST, in_host(train_a=60, serve=None)).facts()["considered"]
    assert considered == f"train@a.service=chosen:{60 * GIB} serve.service=no_reading:"
    assert choose(HOST, in_host()).facts() == {}
    assert choose(HOST, in_host(serve=None)).facts() == {"considered": "serve.service=no_reading:"}


def test_whoever_is_ruled_out_makes_room_for_the_next() -> None:
    choice = choose(HOST, in_host(train_a=60, train_b=50, serve=90))
    left = choice.without({"train@a.service"})
    assert order(left) == ["train@b.service", "serve.service"]
    assert verdicts(left) == {
        "train@a.service": RULED_OUT,
        "train@b.service": CHOSEN,
        "serve.service": HIGHER_PRIORITY,
    }
    assert choice.without(set(order(choice))).why_none == RULED_OUT


def test_one_that_came_back_is_the_last_choice() -> None:
    choice = choose(HOST, in_host(train_a=60, train_b=50)).without((), {"train@a.service"})
    assert order(choice) == ["train@b.service", "train@a.service"]
    assert verdicts(choice) == {"train@a.service": CAME_BACK, "train@b.service": CHOSEN}
    alone = choose(HOST, in_host(train_a=60)).without((), {"train@a.service"})
    assert verdicts(alone) == {"train@a.service": CHOSEN}


def test_ruling_out_changes_no_reason_that_was_there_before() -> None:
    nobody = choose(CARD, on_card(unknown="pid 0 in the list"))
    assert nobody.without({"train@a.service"}) == nobody


# Nobody


@pytest.mark.parametrize("kind", [GPU, GPU_MEMORY])
@pytest.mark.parametrize(
    ("seen", "because"),
    [
        (Seen(NOW, CONFIG), reason.ATTRIBUTION_UNKNOWN),
        (on_card(unknown="pid 0 in the list"), reason.ATTRIBUTION_UNKNOWN),
        (on_card(owner("train@a.service"), age=11), reason.ATTRIBUTION_UNKNOWN),
        (on_card(owner("train@a.service"), index=1), reason.ATTRIBUTION_UNKNOWN),
        (on_card(), reason.NOBODY_THERE),
        (on_card(owner("nginx.service")), reason.NO_WORKLOAD),
        (on_card(owner("train@a.service", kind="docker")), reason.NO_WORKLOAD),
        (on_card(owner("train@holy.service")), reason.NO_WORKLOAD),
        (on_card(owner("train@a.service"), confirmed=False), reason.NOT_CONFIRMED),
        (on_card(owner("train@a.service"), config=replace(CONFIG, workloads=())), reason.NO_WORKLOAD),
    ],
)
def test_s2_s11_on_a_card(kind: str, seen: Seen, because: str) -> None:
    choice = choose(Resource(kind, uuid(0), 80.0 * GIB), seen)
    assert (choice.candidates, choice.why_none) == ((), because)


def test_a_list_of_another_boot_names_nobody() -> None:
    seen = Seen(NOW, CONFIG, {uuid(0): attribution(at(99, NEXT_BOOT), owner("train@a.service"))})
    assert choose(CARD, seen).why_none == reason.ATTRIBUTION_UNKNOWN


@pytest.mark.parametrize(
    ("seen", "because"),
    [
        (in_host(train_a=60, age=15), ""),
        (in_host(train_a=60, age=16), reason.NO_READING),
        (in_host(train_a=None), reason.NO_READING),
        (in_host(train_holy=60), reason.NO_WORKLOAD),
        (in_host(nginx=60), reason.NO_WORKLOAD),
    ],
)
def test_s2_s3_in_the_hosts_memory(seen: Seen, because: str) -> None:
    assert choose(HOST, seen).why_none == because


@pytest.mark.parametrize(
    "unit", ["gpuwatch.service", "sshd.service", "session-3.scope", "docker.service", "user.slice"]
)
def test_s2_no_glob_makes_a_victim_of_what_is_never_touched(unit: str) -> None:
    greedy = replace(CONFIG, workloads=(Workload("all", ("*",)),))
    assert workload_of(unit, greedy) is None
    choice = choose(CARD, on_card(owner(unit), owner("train@a.service", 7), config=greedy))
    assert order(choice) == ["train@a.service"]
    assert verdicts(choice)[unit] == PROTECTED


def test_what_the_config_forbids_is_passed_over_and_said() -> None:
    kept = replace(CONFIG, workloads=(replace(TRAINING, allow=("throttle", "hold")), SERVING))
    seen = in_host(config=kept, train_a=60, serve=50)
    assert order(choose(HOST, seen)) == ["serve.service"]
    assert verdicts(choose(HOST, seen))["train@a.service"] == reason.NOT_ALLOWED
    assert order(choose(HOST, seen, action="hold")) == ["train@a.service", "serve.service"]
    assert choose(HOST, in_host(config=kept, train_a=60)).why_none == reason.NOT_ALLOWED


def test_other_subjects_are_no_units() -> None:
    disk = SubjectReadings(Subject("filesystem", "train@a.service"), "", NOW, {"unit.memory_used": value(300.0 * GIB)})
    assert choose(HOST, Seen(NOW, CONFIG, {}, (disk,))).candidates == ()


# How much is worth it


def test_stopping_a_small_one_beside_a_large_one_brings_nothing() -> None:
    choice = choose(HOST, in_host(train_a=8, serve=100))
    assert order(choice) == ["serve.service"]  # though its priority is higher
    assert verdicts(choice)["train@a.service"] == NEGLIGIBLE
    assert order(choose(HOST, in_host(train_a=10, serve=100)))[0] == "train@a.service"


def test_twenty_equal_jobs_that_fill_a_host_are_worth_stopping() -> None:
    jobs: dict[str, Any] = {f"train_{number}": 24.0 for number in range(20)}
    assert len(choose(HOST, in_host(**jobs)).candidates) == 20  # each has less than 5 %


def test_when_all_of_them_together_are_little_others_fill_the_host() -> None:
    choice = choose(HOST, in_host(train_a=15, serve=10))
    assert (choice.candidates, choice.why_none) == ((), NEGLIGIBLE)
    assert order(choose(HOST, in_host(train_a=16, serve=10)))


def test_one_that_can_not_be_hit_does_not_make_the_others_look_small() -> None:
    assert order(choose(HOST, in_host(train_a=30, train_holy=400))) == ["train@a.service"]


def test_on_a_hot_card_it_does_not_matter_how_much_memory_somebody_has() -> None:
    seen = on_card(owner("train@a.service", 1, GIB), owner("serve.service", 2, 70 * GIB))
    assert order(choose(Resource(GPU, uuid(0)), seen))[0] == "train@a.service"
    assert order(choose(CARD, seen)) == ["serve.service"]


def test_where_the_driver_does_not_tell_the_memory_heat_has_a_victim_and_memory_has_none() -> None:
    seen = on_card(replace(owner("train@a.service"), used_bytes=None))
    assert order(choose(Resource(GPU, uuid(0)), seen)) == ["train@a.service"]
    assert choose(CARD, seen).why_none == reason.NO_READING


# Processes on a card


def test_only_confirmed_processes_count_and_their_owners_are_named() -> None:
    listed = (
        owner("train@a.service", 1, 20 * GIB),
        replace(owner("train@a.service", 2, 10 * GIB), user="guest"),
        owner("train@a.service", 3, 40 * GIB),
    )
    seen = Seen(NOW, CONFIG, {uuid(0): Attribution(uuid(0), NOW, listed, confirmed=(1, 2))})
    (candidate,) = choose(CARD, seen).candidates
    assert (candidate.used_bytes, candidate.users) == (30 * GIB, ("ml-team", "guest"))


def test_s11_an_mps_server_is_never_a_victim_and_its_clients_are() -> None:
    server = replace(owner("train@mps.service", 1), name="nvidia-cuda-mps")
    client = replace(owner("train@a.service", 2), process_kind="mps")
    seen = on_card(server, client)
    choice = choose(CARD, seen)
    assert order(choice) == ["train@a.service"]
    assert verdicts(choice)["train@mps.service"] == MPS_SERVER
    in_memory = replace(in_host(train_mps=300), attributions=seen.attributions)
    assert choose(HOST, in_memory).why_none == MPS_SERVER


@pytest.mark.parametrize(
    ("age", "action", "lost_stop", "because"),
    [
        (5, "stop", False, LOST_LIST),
        (5, "stop", True, ""),
        (60, "hold", False, ""),
        (60, "stop", True, ""),
        (61, "hold", False, reason.ATTRIBUTION_UNKNOWN),
        (61, "stop", True, reason.ATTRIBUTION_UNKNOWN),
    ],
)
def test_s11_the_last_list_of_a_lost_card_serves_a_hold_and_a_stop_only_if_wanted(
    age: float, action: str, lost_stop: bool, because: str
) -> None:
    seen = on_card(owner("train@a.service"), age=age, stale_s=float(age))
    choice = choose(Resource(GPU, uuid(0)), seen, action, lost_stop)
    assert choice.why_none == because
    assert bool(choice.candidates) == (because == "")


# One unit, one workload


def test_a_unit_over_its_own_limit_is_the_only_one_looked_at() -> None:
    seen = in_host(train_a=2, serve=400)
    choice = choose(Resource(OF_UNIT, "train@a.service", 2.0 * GIB), seen)
    assert verdicts(choice) == {"train@a.service": CHOSEN}
    assert choose(Resource(OF_UNIT, "train@holy.service"), in_host(train_holy=2)).why_none == reason.NO_WORKLOAD
    assert choose(Resource(OF_UNIT, "train@a.service"), in_host(serve=2)).why_none == reason.NO_WORKLOAD


LIMITED = Resource(OF_WORKLOAD, "serving", 30.0 * GIB)


def test_of_a_workload_the_largest_unit_goes_on_the_card_where_it_is_over() -> None:
    first = on_card(owner("serve-a.service", 1, 25 * GIB), owner("train@a.service", 2, 50 * GIB))
    second = on_card(owner("serve-b.service", 3, 12 * GIB), owner("serve-c.service", 4, 20 * GIB), index=1)
    choice = choose(LIMITED, replace(first, attributions={**first.attributions, **second.attributions}))
    assert verdicts(choice) == {"serve-c.service": CHOSEN, "serve-b.service": SMALLER}


def test_what_is_over_in_containers_of_nobody_knows_whom_is_not_taken_out_on_units() -> None:
    container = replace(owner("docker.service", 2, 40 * GIB, kind="docker"), container_name="serve-1")
    choice = choose(LIMITED, on_card(owner("serve-a.service", 1, 10 * GIB), container))
    assert (choice.candidates, choice.why_none) == ((), NOT_UNITS)
    assert choose(LIMITED, on_card(container)).why_none == NOT_UNITS


def test_a_card_that_tells_nothing_blames_no_unit_on_another() -> None:
    told = on_card(owner("serve-a.service", 1, 10 * GIB))
    silent = on_card(owner("serve-b.service", 2, 40 * GIB), index=1, age=30)
    choice = choose(LIMITED, replace(told, attributions={**told.attributions, **silent.attributions}))
    assert (choice.candidates, choice.why_none) == ((), reason.ATTRIBUTION_UNKNOWN)
    assert choose(LIMITED, Seen(NOW, CONFIG)).why_none == reason.ATTRIBUTION_UNKNOWN


# Containers

BOXED = Workload("boxed", ("llm.service",), containers=("trainer-*", "label:team=ml"), priority=5)
BOXES = replace(CONFIG, workloads=(BOXED, SERVING))


def box(name: str, number: int = 1, **more: Any) -> Container:
    return Container("docker", f"{number:x}" * 64, name, "running", **more)


def inside(container: Container, pid: int, gib: int = 40, scope: str = "") -> Owner:
    unit = scope or f"docker-{container.id}.scope"
    return replace(owner(unit, pid, gib * GIB, kind=container.engine), container=container.id)


def with_boxes(*owners: Owner, boxes: tuple[Container, ...], config: Settings = BOXES, **more: Any) -> Seen:
    return replace(on_card(*owners, config=config, **more), containers={each.id: each for each in boxes})


def test_a_container_that_a_workload_names_is_a_candidate_by_its_confirmed_processes() -> None:
    trainer = box("trainer-1")
    (found,) = choose(CARD, with_boxes(inside(trainer, 1), inside(trainer, 2), boxes=(trainer,))).candidates
    assert (found.unit, found.label, found.workload.name) == (f"docker:{trainer.id}", "trainer-1", "boxed")
    assert (found.used_bytes, found.users) == (80 * GIB, ("ml-team",))
    unsure = choose(CARD, with_boxes(inside(trainer, 1), boxes=(trainer,), confirmed=False))
    assert (unsure.candidates, unsure.why_none) == ((), reason.NOT_CONFIRMED)


def test_people_are_told_its_name_and_not_its_id() -> None:
    first, second = box("trainer-1"), box("x", 2, labels={"team": "ml"})
    facts = choose(CARD, with_boxes(inside(first, 1), inside(second, 2, 20), boxes=(first, second))).facts()
    assert facts["victim"] == "trainer-1"
    assert facts["considered"] == f"trainer-1=chosen:{40 * GIB} x=smaller:{20 * GIB}"


@pytest.mark.parametrize(
    "container",
    [
        box("other"),
        box("k8s_trainer-1"),
        replace(box("trainer-1"), labels={"io.kubernetes.pod.name": "x"}),
        replace(box("trainer-1"), engine="podman"),  # its process is in a cgroup of docker's
    ],
)
def test_a_container_that_nobody_names_or_that_is_somebody_elses_is_no_candidate(container: Container) -> None:
    process = replace(inside(container, 1), kind="docker")
    assert choose(CARD, with_boxes(process, boxes=(container,))).why_none == reason.NO_WORKLOAD
    assert choose(CARD, with_boxes(process, boxes=())).why_none == reason.NO_WORKLOAD  # no engine has told of it


@pytest.mark.parametrize("scope", ["llm.service", ""])
def test_a7_of_a_container_that_a_named_unit_runs_the_unit_is_the_target(scope: str) -> None:
    trainer = box("trainer-1", unit="" if scope else "llm.service")
    (found,) = choose(CARD, with_boxes(inside(trainer, 1, scope=scope), boxes=(trainer,))).candidates
    assert (found.unit, found.label) == ("llm.service", "")


def test_a_container_of_a_protected_unit_or_in_a_protected_scope_is_protected() -> None:
    trainer = box("trainer-1")
    for guard in ("holy.service", f"docker-{trainer.id}.scope"):
        config = replace(BOXES, protect=(guard,))
        scope = guard if guard == "holy.service" else ""
        choice = choose(CARD, with_boxes(inside(trainer, 1, scope=scope), boxes=(trainer,), config=config))
        assert choice.candidates == () and [each.verdict for each in choice.considered] == [PROTECTED]


def test_a_container_with_an_mps_server_in_it_is_no_victim() -> None:
    trainer = box("trainer-1")
    server = replace(inside(trainer, 1), name="nvidia-cuda-mps-server")
    assert choose(CARD, with_boxes(server, inside(trainer, 2), boxes=(trainer,))).why_none == MPS_SERVER


def test_a_workload_over_its_limit_in_containers_loses_the_largest_of_them() -> None:
    config = replace(BOXES, workloads=(replace(BOXED, gpu_memory_limit=30 * GIB),))
    first, second = box("trainer-1"), box("trainer-2", 2)
    seen = with_boxes(inside(first, 1, 10), inside(second, 2, 25), boxes=(first, second), config=config)
    choice = choose(Resource(OF_WORKLOAD, "boxed", 30.0 * GIB), seen)
    assert [each.label for each in choice.candidates] == ["trainer-2", "trainer-1"]


def test_a_container_of_an_engine_that_does_not_answer_holds_up_no_other_candidate() -> None:
    trainer = box("trainer-1")
    alone = replace(with_boxes(inside(trainer, 1), boxes=(trainer,)), silent_engines=("docker",))
    assert (choose(CARD, alone).candidates, choose(CARD, alone).why_none) == ((), reason.ENGINE_SILENT)
    both = with_boxes(inside(trainer, 1), owner("serve.service", 2, 20 * GIB), boxes=(trainer,))
    assert order(choose(CARD, replace(both, silent_engines=("docker",)))) == ["serve.service"]
    assert order(choose(CARD, replace(both, silent_engines=("podman",))))[0] == f"docker:{trainer.id}"


def test_whose_process_it_is_for_a_throttle() -> None:
    trainer, other = box("trainer-1"), box("other", 2)
    known = {each.id: each for each in (trainer, other)}
    named = [owner_workload(inside(each, 1), BOXES, known) for each in (trainer, other)]
    assert named == [BOXED, None]
    assert owner_workload(owner("llm.service"), BOXES, {}) == BOXED
    assert owner_workload(owner("llm.service"), replace(BOXES, protect=("llm.service",)), {}) is None


# Always

NAMES = ["train@a.service", "train@b.service", "train@holy.service", "serve.service", "nginx.service", "sshd.service"]
OWNERS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.one_of(st.none(), st.integers(0, 80 * GIB)),
        st.sampled_from(["unit", "docker", "session"]),
        st.sampled_from(["python3", "nvidia-cuda-mps"]),
        st.booleans(),
    ),
    max_size=6,
)
KINDS = st.sampled_from([(GPU, uuid(0)), (GPU_MEMORY, uuid(0)), (OF_WORKLOAD, "training"), (OF_WORKLOAD, "serving")])


@settings(max_examples=100, deadline=None)
@given(OWNERS, KINDS, st.one_of(st.none(), st.floats(1, 1e12)), st.sampled_from(["stop", "hold"]))
def test_a_victim_is_configured_confirmed_and_explained(
    owners: Any, kind: tuple[str, str], total: Optional[float], action: str
) -> None:
    listed = tuple(
        replace(owner(unit, pid, 0, sort), used_bytes=used, name=name)
        for pid, (unit, used, sort, name, _) in enumerate(owners)
    )
    confirmed = tuple(pid for pid, each in enumerate(owners) if each[4])
    seen = Seen(NOW, CONFIG, {uuid(0): Attribution(uuid(0), NOW, listed, confirmed)})
    choice = choose(Resource(*kind, total), seen, action)
    assert bool(choice.candidates) != bool(choice.why_none)
    assert {each.verdict for each in choice.considered} <= set(VERDICTS)
    assert [each.unit for each in choice.considered if each.verdict == CHOSEN] == order(choice)[:1]
    for candidate in choice.candidates:
        assert workload_of(candidate.unit, CONFIG) == candidate.workload
        mine = [each for each in listed if each.unit == candidate.unit and each.kind == "unit"]
        assert any(each.pid in confirmed for each in mine)
        assert not any(each.name.startswith("nvidia-cuda-mps") for each in mine)
    assert len(set(verdicts(choice))) == len(choice.considered)
