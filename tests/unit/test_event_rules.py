"""Rules about events: counted, of whom, explained by another, repeated; and rules about changes and selections."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import pytest

from gpuwatch.model.event import Event, Scalar
from gpuwatch.model.host import SubjectReadings
from gpuwatch.model.incident import Subject
from gpuwatch.model.reading import value
from gpuwatch.model.rule import Clear, EventMatch, Rule, Selector, Severity, Threshold
from gpuwatch.model.settings import Settings, XidClass
from gpuwatch.policy.by_hand import close_incident
from gpuwatch.policy.state import Inputs, Outcome
from tests.fakes.story import (
    BOOT,
    LOST,
    NEXT_BOOT,
    NO_GRACE,
    TRAINING,
    XID,
    Story,
    at,
    attribution,
    gpu,
    owner,
    report,
    uuid,
    xid,
)

SUSPECTED = Rule(
    "gpu-suspected",
    Severity.WARNING,
    event=EventMatch("xid", classes=("application",), count=3, within_s=3600, different="users"),
)
HARDWARE = Rule("xid-hardware", Severity.CRITICAL, event=EventMatch("xid", classes=("hardware",)))


def story(*rules: Rule, **more: object) -> Story:
    return Story(replace(Settings(rules=rules, workloads=(TRAINING,), grace=NO_GRACE), **more))  # type: ignore[arg-type]


def second(told: Story, seconds: float, *events: Event, boot: str = BOOT, user: str = "ml-team") -> Outcome:
    now = at(seconds, boot)
    who = replace(owner(), user=user)
    return told.step(Inputs(now, report(now, gpu(0)), (attribution(now, who),), events=events))


def fault(seconds: float, number: int = 31, boot: str = BOOT, **fields: Scalar) -> Event:
    event = xid(number, at(seconds, boot))
    return replace(event, fields={**event.fields, "pid": 4242, **fields})


def fires(told: Story) -> list[str]:
    return [decision.rule for outcome in told.outcomes for decision in outcome.decisions if decision.code == "fired"]


def test_programs_of_different_users_that_fail_on_one_card_accuse_the_card() -> None:
    told = story(SUSPECTED)
    for seconds, user in ((10, "ann"), (20, "bob"), (30, "bob"), (40, "cyd")):
        assert fires(told) == []
        second(told, seconds, fault(seconds), user=user)
    assert fires(told) == ["gpu-suspected"]
    (incident,) = told.state.incidents.values()
    assert incident.causes[0].facts["users"] == "ann, bob, cyd"


def test_one_user_with_a_bad_program_accuses_nobody() -> None:
    told = story(SUSPECTED)
    for seconds in range(10, 100, 10):
        second(told, seconds, fault(seconds))
    assert fires(told) == []


@pytest.mark.parametrize(("gap", "expected"), [(100, True), (301, False)])
def test_a_count_is_of_its_window(gap: int, expected: bool) -> None:
    rule = Rule("loop", Severity.WARNING, event=EventMatch("xid", codes=(31,), count=3, within_s=600))
    told = story(rule)
    for index in range(3):
        second(told, 10 + index * gap, fault(10 + index * gap))
    assert bool(fires(told)) is expected


def test_equal_lines_that_came_as_one_event_count_as_many() -> None:
    rule = Rule("loop", Severity.WARNING, event=EventMatch("xid", codes=(31,), count=3, within_s=600))
    told = story(rule)
    second(told, 10, replace(fault(10), count=3))
    assert fires(told) == ["loop"]


def test_a_count_survives_a_restart_of_the_daemon_but_not_of_the_host() -> None:
    rule = Rule("loop", Severity.WARNING, event=EventMatch("xid", codes=(31,), count=2, within_s=600))
    told = story(rule)
    second(told, 10, fault(10))
    again = Story(told.settings, told.state)
    second(again, 20, fault(20))
    assert fires(again) == ["loop"]
    anew = Story(told.settings, told.state)
    second(anew, 20, fault(20, boot=NEXT_BOOT), boot=NEXT_BOOT)
    assert fires(anew) == []


def test_the_owner_of_a_failed_program_is_named() -> None:
    rule = Rule("xid-application", Severity.INFO, event=EventMatch("xid", classes=("application",)))
    told = story(rule)
    outcome = second(told, 10, fault(10), user="ann")
    (decision,) = (each for each in outcome.decisions if each.code == "fired")
    assert (decision.facts["user"], decision.facts["unit"]) == ("ann", "train@llama.service")


def test_a_child_joins_its_cause_and_is_not_told_by_itself() -> None:
    child = Rule("child", Severity.CRITICAL, event=EventMatch("xid", codes=(45,)))
    told = story(XID, child)
    second(told, 10, fault(10, 79))
    second(told, 11, replace(fault(11, 45, caused_by=79), count=800))
    assert fires(told) == ["xid-host-restart"]
    (incident,) = told.state.incidents.values()
    assert incident.story[-1].facts == {"xid": 45, "pci": "0000:5e:00.0", "count": 800}
    second(told, 12, fault(12, 45, caused_by=48))
    assert fires(told) == ["xid-host-restart", "child"], "a cause that nobody has seen explains nothing"


def test_an_xid_that_is_back_after_a_restart_is_the_hardware() -> None:
    told = story(XID, HARDWARE)
    second(told, 10, fault(10, 79))
    second(told, 20, fault(20, 79))
    assert fires(told) == ["xid-host-restart"]
    second(told, 50, fault(50, 79, boot=NEXT_BOOT), boot=NEXT_BOOT)
    assert fires(told)[1:] == ["xid-hardware"]


def test_an_xid_that_is_back_after_somebody_said_reset_done_is_the_hardware() -> None:
    reset = Rule("xid-gpu-reset", Severity.CRITICAL, event=EventMatch("xid", classes=("gpu_reset",)))
    told = story(reset, HARDWARE)
    second(told, 10, fault(10, 95))
    told.state = close_incident(told.state, 1, at(11), "wang", "reset done").state
    second(told, 20, fault(20, 95))
    assert fires(told) == ["xid-gpu-reset", "xid-hardware"]


def test_a_class_of_the_site_ends_when_it_says_so() -> None:
    told = story(XID, xid_classes=(XidClass(79, "ignore", "known bad riser", until_utc_s=at(50).utc_s),))
    second(told, 10, fault(10, 79))
    assert fires(told) == []
    second(told, 60, fault(60, 79))
    assert fires(told) == ["xid-host-restart"]


def test_the_parts_of_one_kill_for_memory_are_one_incident_of_the_unit() -> None:
    rules = [Rule(kind, Severity.WARNING, event=EventMatch(kind), quiet_for_s=600) for kind in ("oom_kill", "unit_oom")]
    told = story(*rules)
    kernel = Event(
        "oom_kill", at(10), at(10), "journal", {"scope": "cgroup", "unit": "train@llama.service", "pid": 4242}
    )
    second(told, 10, kernel)
    second(told, 11, Event("unit_oom", at(11), at(11), "journal", {"unit": "train@llama.service"}))
    (incident,) = told.state.incidents.values()
    assert incident.subject == Subject("unit", "train@llama.service")
    assert told.told() == ["firing"]


def test_a_kill_for_want_of_the_whole_hosts_memory_is_the_hosts_and_linked() -> None:
    rule = Rule("oom", Severity.WARNING, event=EventMatch("oom_kill"))
    unit = Rule("unit-oom", Severity.WARNING, event=EventMatch("unit_oom"))
    told = story(rule, unit)
    second(told, 10, Event("oom_kill", at(10), at(10), "journal", {"scope": "host", "unit": "train@llama.service"}))
    second(told, 11, Event("unit_oom", at(11), at(11), "journal", {"unit": "train@llama.service"}))
    host, job = told.state.incidents.values()
    assert host.subject == Subject("host", "")
    assert job.related == (host.id,)


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (Selector(gpus=(uuid(0)[:12] + "*",)), True),
        (Selector(gpus=("GPU-ffff*",)), False),
        (Selector(models=("*H100*",)), True),
        (Selector(models=("*4090*",)), False),
        (Selector(workloads=("training",)), True),
        (Selector(workloads=("*",)), True),
        (Selector(workloads=("serving",)), False),
        (Selector(units=("train@*",)), True),
        (Selector(units=("serve@*",)), False),
    ],
)
def test_a_selector_leaves_other_cards_out(only: Selector, expected: bool) -> None:
    told = story(
        replace(LOST, metric="gpu.temperature", threshold=Threshold(above=90), only=only), replace(XID, only=only)
    )
    now = at(10)
    told.step(Inputs(now, report(now, gpu(0, 95)), (attribution(now, owner()),), events=(xid(79, now),)))
    assert len(fires(told)) == (2 if expected else 0)


@pytest.mark.parametrize(
    ("kind", "name", "only", "expected"),
    [
        ("filesystem", "/data1", Selector(filesystems=("/data*",)), True),
        ("filesystem", "/", Selector(filesystems=("/data*",)), False),
        ("unit", "train@a.service", Selector(workloads=("training",)), True),
        ("unit", "nginx.service", Selector(workloads=("*",)), False),
        ("workload", "training", Selector(workloads=("training",)), True),
        ("workload", "serving", Selector(workloads=("training",)), False),
    ],
)
def test_a_selector_of_other_subjects(kind: str, name: str, only: Selector, expected: bool) -> None:
    metric = {
        "filesystem": "host.inodes_free_ratio",
        "unit": "unit.memory_used_ratio",
        "workload": "workload.gpu_memory_ratio",
    }[kind]
    rule = replace(LOST, metric=metric, threshold=Threshold(above=0.5), clear=Clear(Threshold(below=0.5), 0), only=only)
    told = story(rule)
    now = at(10)
    readings = (SubjectReadings(Subject(kind, name), name, now, {metric: value(0.9)}),)
    told.step(Inputs(now, report(now), subjects=readings))
    assert bool(fires(told)) is expected


def counter(told: Story, seconds: float, errors: Optional[float]) -> None:
    now = at(seconds)
    card = gpu(0) if errors is None else gpu(0, ecc_corrected=errors)
    told.step(Inputs(now, report(now, card)))


RISE = Rule(
    "ecc",
    Severity.WARNING,
    metric="gpu.ecc_corrected",
    threshold=Threshold(above=100),
    clear=Clear(Threshold(below=10), 120),
    change_over_s=3600,
)


def test_a_change_is_judged_not_the_value() -> None:
    told = story(RISE)
    counter(told, 0, 1e6)
    counter(told, 300, 1e6 + 90)
    assert fires(told) == []
    counter(told, 360, 1e6 + 101)
    assert fires(told) == ["ecc"]


def test_a_slow_rise_never_adds_up_to_a_quick_one() -> None:
    told = story(RISE)
    for minute in range(600):
        counter(told, minute * 60, 1e6 + minute)
    assert fires(told) == []


def test_a_change_ends_when_the_rise_lies_further_back() -> None:
    told = story(RISE)
    counter(told, 0, 0)
    counter(told, 60, 200)
    for minute in range(2, 70):
        counter(told, minute * 60, 200)
    assert "resolved" in told.told()


def test_what_lies_before_a_long_gap_is_no_rate() -> None:
    told = story(RISE)
    counter(told, 0, 0)
    counter(told, 3000, 5000)
    assert fires(told) == []
    for index in range(40):
        counter(told, 3060 + index * 60, None)
    assert fires(told) == []


def test_an_absolute_limit_is_capped_by_the_cards_own_point() -> None:
    hot = replace(LOST, metric="gpu.temperature", threshold=Threshold(above=95), clear=Clear(Threshold(below=90), 5))
    told = story(hot)
    now = at(10)
    told.step(Inputs(now, report(now, gpu(0, 88, slowdown_point=89.0), gpu(1, 88))))
    assert fires(told) == ["gpu-lost"]
    (incident,) = told.state.incidents.values()
    assert (incident.subject.id, incident.causes[0].facts["limit"]) == (uuid(0), 87.0)
