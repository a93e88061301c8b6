"""The policy, one step at a time: conditions, wishes, incidents. Promises are cited by number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest

from gpuwatch.model import reason
from gpuwatch.model.codec import decode, encode
from gpuwatch.model.gpu import Attribution, DriverState, GpuReport
from gpuwatch.model.host import SubjectReadings
from gpuwatch.model.incident import IncidentState, Subject
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.reading import UNSUPPORTED, failed, value
from gpuwatch.model.rule import Clear, Rule, Severity, Threshold
from gpuwatch.model.settings import Mode, Workload
from gpuwatch.policy.state import Inputs, PolicyState
from tests.fakes.story import (
    ACTING_STOPPED,
    HOT,
    HOT_ABSOLUTE,
    NEXT_BOOT,
    PCI,
    SETTINGS,
    WARM,
    Story,
    at,
    attribution,
    gpu,
    owner,
    report,
    uuid,
    xid,
)


def intent(state: IntentState, changed: float = 5, target: str = "train@llama.service", **more: Any) -> Intent:
    given: dict[str, Any] = {
        "id": "a1-1",
        "incident": 1,
        "rule": HOT.name,
        "step": 0,
        "action": "stop",
        "target": target,
        "workload": "training",
        "gpu": uuid(0),
        "state": state,
        "created": at(5),
        "changed": at(changed),
        "heat": True,
    }
    return Intent(**{**given, **more})


# Conditions


def test_a_condition_fires_only_after_it_held_for_its_time() -> None:
    story = Story()
    story.run(range(0, 5))
    assert set(story.codes()) == {reason.PENDING}
    assert story.hot(5).transitions[0].name == "firing"


def test_one_sample_below_the_line_starts_the_time_anew() -> None:
    story = Story()
    story.run(range(0, 4))
    story.hot(4, 60)
    story.run(range(5, 10))
    assert story.told() == []
    story.hot(10)
    assert story.told() == ["firing"]


@pytest.mark.parametrize("gap", [3.5, 60.0])
def test_a_gap_of_more_than_three_periods_resets_what_is_pending(gap: float) -> None:
    story = Story()
    story.run(range(0, 4))
    story.hot(3 + gap)
    assert story.told() == []


def test_a_gap_does_not_end_what_is_firing() -> None:
    story = Story()
    story.run(range(0, 6))
    story.hot(3600)
    assert story.told() == ["firing"]
    assert any(alert.phase == "firing" for alert in story.state.alerts.values())


def test_the_time_to_clear_counts_only_uninterrupted_coolness() -> None:
    story = Story()
    story.run(range(0, 6))
    story.run(range(6, 60), 70)
    story.hot(60, 90)  # between the two thresholds: not hot, not cool
    story.run(range(61, 120), 70)
    assert "resolved" not in story.told()
    story.run(range(120, 122), 70)
    assert story.told() == ["firing", "resolved"]


@pytest.mark.parametrize(
    "bad",
    [
        {"shutdown_margin": failed("the call failed")},
        {"shutdown_margin": value(126)},
        {"shutdown_margin": value(-256)},
        {"shutdown_margin": value(2.0**63)},
    ],
    ids=["failed", "too high", "-256", "2^63"],
)
def test_s3_a_reading_that_says_nothing_neither_fires_nor_clears(bad: dict[str, Any]) -> None:
    story = Story()
    for second in range(0, 30):
        story.step(Inputs(at(second), report(at(second), gpu(0, 94.0, **bad))))
    assert story.told() == []
    firing = Story()
    firing.run(range(0, 6))
    for second in range(6, 300):
        firing.step(Inputs(at(second), report(at(second), gpu(0, 40.0, **bad))))
    assert firing.told() == ["firing"]


def test_s3_a_stale_report_is_not_judged_again() -> None:
    story = Story()
    old = report(at(0), gpu(0, 94.0))
    for second in range(0, 30):
        story.step(Inputs(at(second), replace(old, state=DriverState.SILENT if second > 3 else DriverState.OK)))
    assert story.told() == []


def test_a_rule_for_cards_without_margins_leaves_the_others_alone() -> None:
    story = Story(replace(SETTINGS, rules=(HOT_ABSOLUTE,)))
    story.run(range(0, 10), 97)
    assert story.told() == []
    for second in range(10, 20):
        sample = gpu(0, 97, shutdown_margin=UNSUPPORTED)
        story.step(Inputs(at(second), report(at(second), sample)))
    assert story.told() == ["firing"]


# Wishes


def test_a_firing_rule_wants_the_unit_of_the_workload_stopped() -> None:
    outcome = Story().run(range(0, 6))
    (wish,) = outcome.wishes
    assert (wish.action, wish.target, wish.workload, wish.observe) == ("stop", "train@llama.service", "training", False)
    assert wish.sample == at(5)
    assert wish.users == ("ml-team",)


@pytest.mark.parametrize(
    ("given", "because"),
    [
        ({"attributions": ()}, reason.ATTRIBUTION_UNKNOWN),
        ({"attributions": (attribution(at(5), unknown="pid 0 in the list"),)}, reason.ATTRIBUTION_UNKNOWN),
        ({"attributions": (attribution(at(5)),)}, reason.NOBODY_THERE),
        ({"attributions": (attribution(at(5), owner("nginx.service")),)}, reason.NO_WORKLOAD),
        ({"attributions": (attribution(at(5), owner("train@x.service", kind="docker")),)}, reason.NO_WORKLOAD),
        ({"attributions": (attribution(at(5), owner(), confirmed=False),)}, reason.NOT_CONFIRMED),
        ({"attributions": (attribution(at(5), owner(), index=1),)}, reason.ATTRIBUTION_UNKNOWN),
    ],
)
def test_s2_s11_nobody_else_is_acted_on(given: dict[str, Any], because: str) -> None:
    story = Story()
    story.run(range(0, 5))
    outcome = story.hot(5, **given)
    assert outcome.wishes == ()
    assert because in story.codes()


def test_a_process_list_of_long_ago_names_nobody() -> None:
    story = Story()
    outcome = story.run(range(0, 30), attributions=(attribution(at(0), owner()),))
    assert outcome.wishes == ()
    assert story.codes()[-1] == reason.ATTRIBUTION_UNKNOWN


@pytest.mark.parametrize(
    ("settings", "because"),
    [
        (replace(SETTINGS, protect=("train@llama.service",)), reason.NO_WORKLOAD),
        (replace(SETTINGS, workloads=()), reason.NO_WORKLOAD),
        (replace(SETTINGS, workloads=(Workload("training", ("train@*.service",), allow=()),)), reason.NOT_ALLOWED),
    ],
)
def test_s2_the_config_decides_who_may_be_touched(settings: Any, because: str) -> None:
    story = Story(settings)
    assert story.run(range(0, 6)).wishes == ()
    assert because in story.codes()


@pytest.mark.parametrize(
    ("host", "workload", "observe"),
    [
        (Mode.OBSERVE, None, True),
        (Mode.ENFORCE, None, False),
        (Mode.ENFORCE, Mode.OBSERVE, True),
        (Mode.OBSERVE, Mode.ENFORCE, False),
    ],
)
def test_s6_nothing_is_enforced_unless_the_admin_wrote_so(host: Mode, workload: Optional[Mode], observe: bool) -> None:
    settings = replace(SETTINGS, mode=host, workloads=(Workload("training", ("train@*.service",), mode=workload),))
    assert Story(settings).run(range(0, 6)).wishes[0].observe is observe


def test_the_lowest_priority_goes_first_then_the_largest_user() -> None:
    workloads = (
        Workload("serving", ("serve.service",), priority=20),
        Workload("training", ("train@*.service",), priority=10),
    )
    settings = replace(SETTINGS, workloads=workloads)
    owners = (
        owner("serve.service", 1, 70 << 30),
        owner("train@a.service", 2, 1 << 30),
        owner("train@b.service", 3, 2 << 30),
    )
    outcome = Story(settings).run(range(0, 6), attributions=(attribution(at(5), *owners),))
    assert [wish.target for wish in outcome.wishes] == ["train@b.service"]


def test_s4_a_second_target_waits_until_the_first_action_has_settled() -> None:
    settings = replace(SETTINGS, budget=replace(SETTINGS.budget, heat_per_gpu=2))
    story = Story(settings)

    def both(second: float) -> tuple[Attribution, ...]:
        return (attribution(at(second), owner("train@a.service", 1), owner("train@b.service", 2, 1)),)

    story.run(range(0, 6), attributions=both(5))
    gone = intent(IntentState.VERIFIED, changed=10, target="train@a.service", sent=at(6))
    outcome = story.hot(20, intents=(gone,), attributions=both(20))
    assert outcome.wishes == ()
    assert reason.SETTLING in story.codes()
    outcome = story.hot(41, intents=(gone,), attributions=both(41))
    assert [wish.target for wish in outcome.wishes] == ["train@b.service"]


def test_s4_one_stop_for_heat_a_gpu_is_the_budget() -> None:
    story = Story()
    story.run(range(0, 6))
    gone = intent(IntentState.VERIFIED, changed=10, target="train@a.service", sent=at(6))
    now = at(60)
    outcome = story.hot(60, intents=(gone,), attributions=(attribution(now, owner("train@b.service")),))
    assert outcome.wishes == ()
    assert reason.BUDGET_SPENT in story.codes()
    later = story.hot(700, intents=(gone,), attributions=(attribution(at(700), owner("train@b.service")),))
    assert [wish.target for wish in later.wishes] == ["train@b.service"]


def test_s4_one_action_in_flight_for_two_rules_on_one_card() -> None:
    second = replace(HOT, name="site-hot")
    story = Story(replace(SETTINGS, rules=(HOT, second)))
    assert len(story.run(range(0, 6)).wishes) == 1


def test_in_observe_an_action_that_would_have_been_is_said_once() -> None:
    story = Story(replace(SETTINGS, mode=Mode.OBSERVE))
    story.run(range(0, 6))
    said = intent(IntentState.WOULD_HAVE, changed=7, observe=True)
    assert story.run(range(8, 700), intents=(said,)).wishes == ()
    assert story.told() == ["firing", "update"]


def test_a_wish_of_an_unknown_list_is_kept_but_never_gets_newer() -> None:
    story = Story()
    story.run(range(0, 6))
    planned = intent(IntentState.PRESERVED)
    outcome = story.hot(9, intents=(planned,), attributions=(attribution(at(9), unknown="nonsense"),))
    assert [wish.sample for wish in outcome.wishes] == [at(5)]


def test_a_target_that_left_the_card_is_no_longer_wanted() -> None:
    story = Story()
    story.run(range(0, 6))
    outcome = story.hot(9, intents=(intent(IntentState.PRESERVED),), attributions=(attribution(at(9)),))
    assert outcome.wishes == ()


# Events


def test_an_xid_opens_an_incident_at_once() -> None:
    story = Story()
    outcome = story.step(Inputs(at(100), report(at(100), gpu(0)), events=(xid(79, at(99.5), at(100)),)))
    (transition,) = outcome.transitions
    assert transition.name == "firing"
    assert transition.incident.label == "GPU 0"
    assert transition.incident.subject.id == uuid(0)


def test_the_xid_and_the_lost_card_are_one_incident() -> None:
    """K1: merged forms of one loss."""
    story = Story()
    story.step(Inputs(at(0), report(at(0), gpu(0), gpu(1))))
    story.step(Inputs(at(1), report(at(1), gpu(0), gpu(1)), events=(xid(79, at(1)),)))
    story.step(Inputs(at(2), report(at(2), gpu(0, lost="GPU is lost"), gpu(1))))
    assert story.told() == ["firing"]
    (incident,) = story.state.incidents.values()
    assert [cause.rule for cause in incident.causes] == ["xid-host-restart", "gpu-lost"]


def test_an_xid_of_a_card_that_was_never_seen_is_kept_under_its_address() -> None:
    story = Story()
    absent = GpuReport(DriverState.ABSENT)
    outcome = story.step(Inputs(at(1), absent, events=(xid(79, at(1)),)))
    assert outcome.transitions[0].incident.subject.id == PCI
    story.step(Inputs(at(2), report(at(2), gpu(0)), events=(xid(79, at(2)),)))
    assert story.told() == ["firing"]


def test_s9_an_event_of_an_older_boot_is_history() -> None:
    story = Story()
    outcome = story.step(
        Inputs(at(10, NEXT_BOOT), report(at(10, NEXT_BOOT), gpu(0)), events=(xid(79, at(5), at(10, NEXT_BOOT)),))
    )
    assert outcome.transitions == ()
    assert story.codes() == [reason.HISTORY]


@pytest.mark.parametrize(("age", "acts"), [(10, True), (61, False)])
def test_s9_an_event_older_than_a_minute_is_told_but_not_acted_on(age: float, acts: bool) -> None:
    rule = replace(SETTINGS.rules[2], ladder=HOT.ladder)
    story = Story(replace(SETTINGS, rules=(rule,)))
    now = at(100)
    outcome = story.step(
        Inputs(now, report(now, gpu(0)), (attribution(now, owner()),), events=(xid(79, at(100 - age), now),))
    )
    assert story.told() == ["firing"]
    assert bool(outcome.wishes) is acts
    assert (reason.OLD_EVENT in story.codes()) is not acts


def test_a_reboot_ends_what_an_event_said() -> None:
    story = Story()
    story.step(Inputs(at(100), report(at(100), gpu(0)), events=(xid(79, at(100)),)))
    story.step(Inputs(at(20, NEXT_BOOT), report(at(20, NEXT_BOOT), gpu(0))))
    assert story.told() == ["firing", "resolved"]


# Incidents


def test_a_graver_rule_escalates_the_incident() -> None:
    story = Story()
    story.run(range(0, 40), 87)
    story.run(range(40, 50), 94)
    assert story.told() == ["firing", "escalated"]


def test_the_outcome_is_told_once_and_the_end_once() -> None:
    story = Story()
    story.run(range(0, 6))
    done = intent(IntentState.VERIFIED, changed=12, sent=at(7), gone=at(9), bundle="b", preserved=at(6))
    story.run(range(13, 100), 60, intents=(done,))
    assert story.told() == ["firing", "update", "resolved"]
    (incident,) = story.state.incidents.values()
    assert incident.state is IncidentState.RECOVERED
    assert incident.bundle == "b"
    story.run(range(100, 800, 50), 60, intents=(done,))
    assert story.state.incidents == {}
    closed = story.outcomes[-1].changed or [each for out in story.outcomes for each in out.changed]
    assert closed[-1].state is IncidentState.CLOSED


def test_trouble_that_comes_back_soon_reopens_the_incident() -> None:
    story = Story()
    story.run(range(0, 6))
    story.run(range(6, 70), 60)
    story.run(range(100, 110))
    assert story.told() == ["firing", "resolved", "firing#2"]
    assert len(story.state.incidents) == 1


def test_a_silent_driver_is_told_once_and_its_return_once() -> None:
    story = Story()
    for second in range(0, 60):
        silent = value(max(0.0, second - 3.0)) if second < 40 else value(0.0)
        story.step(Inputs(at(second), GpuReport(DriverState.SILENT), host={"host.driver_silent": silent}))
    assert story.told() == ["firing", "resolved"]


def test_spent_budget_is_itself_told() -> None:
    story = Story(replace(SETTINGS, rules=(HOT, ACTING_STOPPED)))
    story.run(range(0, 6))
    gone = intent(IntentState.VERIFIED, changed=10, target="train@a.service", sent=at(6), incident=99, id="a99-1")
    story.hot(60, intents=(gone,), attributions=(attribution(at(60), owner("train@b.service")),))
    labels = [incident.label for incident in story.state.incidents.values()]
    assert labels == ["GPU 0", "host"]


# Reload and restart


def test_a_changed_rule_ends_its_alert_and_an_unchanged_one_lives_on() -> None:
    story = Story()
    story.run(range(0, 6))
    story.settings = replace(SETTINGS, rules=(replace(HOT, origin="gpuwatch.yaml:7"), WARM))
    story.hot(6)
    assert story.told() == ["firing"]
    story.settings = replace(SETTINGS, rules=(replace(HOT, for_s=600), WARM))
    story.hot(7)
    assert reason.RULE_CHANGED in story.codes()
    assert story.told() == ["firing", "resolved"]


def test_every_prefix_restarted_from_its_stored_state_decides_the_same() -> None:
    whole = Story()
    temperatures = [94.0] * 8 + [80.0] * 70 + [94.0] * 8
    for second, temperature in enumerate(temperatures):
        whole.hot(second, temperature)
    for cut in range(len(temperatures)):
        broken = Story()
        for second, temperature in enumerate(temperatures):
            if second == cut:
                stored = decode(PolicyState, encode(broken.state))
                broken = Story(state=stored)
                broken.outcomes = whole.outcomes[:cut]
            broken.hot(second, temperature)
        assert broken.told() == whole.told()
        assert encode(broken.state) == encode(whole.state)


# Other subjects


def test_a_file_system_is_a_subject_of_its_own_and_read_more_slowly() -> None:
    full = Rule(
        "disk-full",
        Severity.WARNING,
        metric="host.disk_free_ratio",
        threshold=Threshold(below=0.05),
        for_s=60,
        clear=Clear(Threshold(above=0.1), 30),
    )
    story = Story(replace(SETTINGS, rules=(full,)))
    for second in range(0, 120, 15):
        mounts = tuple(
            SubjectReadings(Subject("filesystem", mount), mount, at(second), {"host.disk_free_ratio": value(free)})
            for mount, free in (("/", 0.5), ("/var", 0.01))
        )
        for later in range(0, 15, 5):  # the same look is handed in again and again until the next one
            story.step(Inputs(at(second + later), GpuReport(DriverState.ABSENT), subjects=mounts))
    assert [incident.label for incident in story.state.incidents.values()] == ["/var"]
    assert story.told() == ["firing"]


def test_a_reading_of_this_minute_is_judged_with_its_own_time() -> None:
    pending = Rule(
        "row-pending",
        Severity.WARNING,
        metric="gpu.row_remap_pending",
        threshold=Threshold(above=0.5),
        clear=Clear(Threshold(below=0.5), 60),
        for_s=100,
    )
    story = Story(replace(SETTINGS, rules=(pending,)))
    for second in range(0, 130, 10):
        slow = at(second - second % 60)
        sample = replace(gpu(0), slow={"gpu.row_remap_pending": value(1)}, slow_taken=slow)
        story.step(Inputs(at(second), report(at(second), sample)))
    assert story.told() == ["firing"]
