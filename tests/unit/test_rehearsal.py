"""Written stories: how they are read, what the host in them does, what is told of them, and how they are judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest

from gpuwatch.alerts.channels.options import channel_types
from gpuwatch.config.scenario import ScenarioReader
from gpuwatch.daemon.stories import Account, play
from gpuwatch.daemon.told import Entry
from gpuwatch.daemon.verdict import failures, moment, told
from gpuwatch.model.errors import ConfigError
from gpuwatch.model.settings import Mode, Settings
from gpuwatch.simulation import scenario as seen
from gpuwatch.simulation.scenario import Expectation, Scenario
from gpuwatch.simulation.stage import Stage

READER = ScenarioReader(channel_types())
UNIT = "train@a.service"
JOB = "host: {units: {train@a.service: {gpus: [0]}}}\n"
HOT = "timeline: [{at: 5s, gpu: 0, set: {temperature: 94.5}}]\n"


def read(text: str) -> tuple[Scenario, Settings]:
    return READER.read(f"story: a test\n{text}".encode(), "story.yaml")


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        READER.read(text.encode(), "story.yaml")
    return [str(problem) for problem in caught.value.problems]


def played(text: str, **changes: Any) -> Account:
    scenario, settings = read(text)
    return play(replace(scenario, **changes), settings)


def verbs(account: Account, *wanted: str) -> list[tuple[str, str]]:
    return [(each.verb, each.name) for each in account.entries if each.verb in wanted]


def when(account: Account, verb: str, name: str = "") -> Optional[float]:
    return next((each.at_s for each in account.entries if each.verb == verb and name in ("", each.name)), None)


# How they are read


@pytest.mark.parametrize(
    "line, words",
    [
        ("host: {gpus: [{temperture: 61}]}", "2:16: host.gpus[0]: no setting 'temperture' here (did you mean"),
        ("timeline: [{at: 5, gpu: 0, lost: true}]", "2:17: timeline[0].at: '5' is not a duration"),
        ("timeline: [{at: 5s, gpu: 0, set: {power: hot}}]", "2:42: timeline[0].set.power: 'hot' is no reading of gpu."),
        ("timeline: [{at: 5s, gpu: 0, set: {powr: 1}}]", "2:35: timeline[0].set: no metric 'powr' of a GPU (did you"),
        ("timeline: [{at: 5s, set: {power: 1}}]", "2:26: timeline[0].set: of what? Name one of gpu, unit,"),
        ("timeline: [{at: 5s, gpu: 7, lost: true}]", "2:26: timeline[0]: there is no GPU 7; the host has 2"),
        ("timeline: [{at: 5s, unit: b, state: failed}]", "2:27: timeline[0].unit: host.units has no 'b'"),
        ("timeline: [{at: 5s, gpu: 0, unit: a, lost: true}]", "is about gpu and unit; one entry is about one of them"),
        ("timeline: [{at: 5s}]", "2:12: timeline[0]: says nothing that happens; there is set, ramp,"),
        ("timeline: [{at: 5s, gpu: 0, ramp: {power: [1, 2]}}]", "needs a moment `to` that is later than `at`"),
        ("timeline: [{at: 5s, event: {text: x}}]", "timeline[0].event: 'kind' is missing"),
        ("timeline: [{at: 5s, lost: true}]", "timeline[0].lost: needs `gpu:`"),
        ("expect: [{fires: gpu-critcal}]", "2:18: expect[0].fires: no rule 'gpu-critcal' (did you mean gpu-critical"),
        ("expect: [{within: [1s, 2s]}]", "2:10: expect[0]: expects nothing; there is fires,"),
        ("expect: [{stops: a, kills: a}]", "2:10: expect[0]: expects stops and kills at once"),
        ("expect: [{never: stopp}]", "2:18: expect[0].never: no rule 'stopp' (did you mean stop?)"),
        ("expect: [{fires: gpu-hot, within: [9s, 2s]}]", "expect[0].within: 9s is later than 2s"),
        ("expect: [{throttles: GPU 9}]", "expect[0].throttles: 'GPU 9' is no GPU of the host (GPU 0 to GPU 1)"),
        ("config: {mode: enforse}", "2:16: config.mode: 'enforse' is not one of observe, enforce (did you mean enf"),
        ("config: {rules: [{name: x}]}", "config.rules[0]: 'severity' is missing"),
    ],
)
def test_a_mistake_is_told_with_its_place(line: str, words: str) -> None:
    found = mistakes(f"story: a test\n{line}\n")
    assert any(words in each for each in found), found
    assert all(each.startswith("story.yaml:2:") for each in found)


def test_all_mistakes_are_told_at_once() -> None:
    found = mistakes("host: {gpus: [{x: 1}]}\ntimeline: [{at: 1s}, {at: 2}]\nexpect: [{fires: x}]\n")
    assert [each.split(": ")[0] for each in found] == [
        f"story.yaml:{at}" for at in ("1:1", "1:16", "2:12", "2:27", "3:18")
    ]


def test_without_a_config_the_shipped_rules_are_enforced_for_one_workload() -> None:
    _, settings = read("")
    assert settings.mode is Mode.ENFORCE and [each.units for each in settings.workloads] == [("train@*.service",)]
    assert {"gpu-critical", "gpu-lost"} <= {rule.name for rule in settings.rules}


def test_a_config_in_a_story_is_a_whole_one() -> None:
    _, settings = read("config: {rules: [{name: gpu-hot, enabled: false}]}\ninterval: 10s\n")
    assert settings.mode is Mode.OBSERVE and settings.workloads == () and settings.interval_s == 10
    assert [rule.enabled for rule in settings.rules if rule.name == "gpu-hot"] == [False]


# What the host does


def stage(text: str) -> Stage:
    return Stage(read(text)[0])


def reading(host: Stage, metric: str, index: int = 0) -> Optional[float]:
    found = host.gpus.sample(True, False, 0.0).samples[index].reading(metric)
    return None if found is None else found.value


def go(host: Stage, elapsed_s: float) -> None:
    for second in range(int(host.clock.elapsed_s) + 1, int(elapsed_s) + 1):
        host.clock.advance_to(float(second))
        host.play()


@pytest.mark.parametrize("model, slowdown", [("H100", 29.0), ("A100", 32.0), ("RTX 4090", None)])
def test_margins_are_those_of_the_model(model: str, slowdown: Optional[float]) -> None:
    host = stage(f"host: {{gpus: [{{model: {model}, temperature: 60}}]}}\n")
    assert reading(host, "gpu.temperature") == 60 and reading(host, "gpu.slowdown_margin") == slowdown


def test_a_ramp_goes_in_a_straight_line_and_stays_at_its_end() -> None:
    host = stage("timeline: [{at: 10s, to: 20s, gpu: 0, ramp: {temperature: [60, 90]}}]\n")
    at = []
    for second in (10, 15, 20, 30):
        go(host, second)
        at.append(reading(host, "gpu.temperature"))
    assert at == [60, 75, 90, 90]


def test_noise_is_the_same_each_time_and_bounded() -> None:
    text = "timeline: [{at: 0s, to: 50s, gpu: 0, ramp: {temperature: [60, 60]}, noise: 2}]\n"

    def told_by(host: Stage) -> list[Optional[float]]:
        found = []
        for second in range(1, 40):
            go(host, second)
            found.append(reading(host, "gpu.temperature"))
        return found

    first = told_by(stage(text))
    assert first == told_by(stage(text)) and len(set(first)) > 30
    assert all(each is not None and 58 <= each <= 62 for each in first)


def test_a_throttled_card_cools_and_warms_up_again() -> None:
    host = stage("host: {gpus: [{temperature: 90, cools: [{while: throttled, to: 70, per_second: 2}]}], "
                 "units: {train@a.service: {gpus: [0]}}}\n"
                 "timeline: [{at: 5s, gpu: 0, power_limit: 500}, {at: 40s, gpu: 0, power_limit: 700}]\n")  # fmt: skip
    at = []
    for second in (4, 10, 30, 45, 60):
        go(host, second)
        at.append(reading(host, "gpu.temperature"))
    assert at == [90, 78, 70, 82, 90]


def test_when_a_job_ends_its_load_is_gone_and_the_card_cools() -> None:
    host = stage("host: {gpus: [{temperature: 80, power: 640, utilisation: 97}], "
                 "units: {train@a.service: {gpus: [0]}}}\n"
                 "timeline: [{at: 5s, unit: train@a.service, state: inactive}]\n")  # fmt: skip
    assert reading(host, "gpu.power") == 640 and reading(host, "gpu.utilisation") == 97
    go(host, 16)
    assert reading(host, "gpu.power") == 71 and reading(host, "gpu.utilisation") == 0
    assert reading(host, "gpu.temperature") == pytest.approx(69, abs=1)
    assert not host.groups()


def test_after_a_reboot_units_are_new_and_settings_gone() -> None:
    host = stage(JOB + "timeline: [{at: 2s, gpu: 0, power_limit: 400}]\n")
    go(host, 3)
    before, boot = host.systemd.unit(UNIT), host.clock.now().boot_id
    host.reboot()
    host.play()
    after = host.systemd.unit(UNIT)
    assert after.running and after.invocation != before.invocation and host.clock.now().boot_id != boot
    assert reading(host, "gpu.power_limit_set") == 700


def test_a_held_unit_is_not_started() -> None:
    host = stage(JOB + "timeline: [{at: 2s, unit: train@a.service, state: failed}, "
                 "{at: 4s, unit: train@a.service, state: active}]\n")  # fmt: skip
    host.holds.hold(UNIT, "test")
    go(host, 5)
    assert not host.systemd.unit(UNIT).running


def test_memory_of_the_host_keeps_its_ratio() -> None:
    host = stage("timeline: [{at: 1s, host: {memory_available: 256GiB}}]\n")
    go(host, 1)
    assert host.host().readings["host.memory_available_ratio"].value == 0.25


# What gpuwatch makes of it


def test_a_line_of_the_kernel_goes_the_whole_way_to_the_decision() -> None:
    line = 'kernel: "NVRM: Xid (PCI:{pci}): 79, pid=4242, name=python3, GPU has fallen off the bus."'
    account = played(JOB + f"timeline: [{{at: 5s, gpu: 1, {line}}}]\n")
    entry = next(each for each in account.entries if each.verb == seen.FIRES)
    assert (entry.rule, entry.on, entry.facts["xid"]) == ("xid-host-restart", "GPU 1", 79)


def test_a_hot_card_stops_its_job_and_no_other() -> None:
    text = "host: {units: {train@a.service: {gpus: [0]}, train@b.service: {gpus: [1]}}}\n" + HOT
    assert verbs(played(text), seen.STOPS, seen.STOPPED) == [(seen.STOPS, UNIT), (seen.STOPPED, UNIT)]


@pytest.mark.parametrize(
    "more",
    [
        "{at: 1s, attribution: unknown}",
        "{at: 1s, order: disarm}",
        "{at: 1s, driver: silent}",
        "{at: 1s, gap: 5m}",
        "{at: 4s, restart: daemon}",
    ],
)
def test_what_keeps_a_stop_from_being_made(more: str) -> None:
    text = JOB + f"timeline: [{{at: 5s, gpu: 0, set: {{temperature: 94.5}}}}, {more}]\nuntil: 25s\n"
    assert verbs(played(JOB + HOT + "until: 25s\n"), seen.STOPS)
    assert not verbs(played(text), seen.STOPS)


def test_what_a_story_says_of_a_derived_metric_holds() -> None:
    account = played("timeline: [{at: 5s, gpu: 1, set: {fan_stopped: 1}}]\nuntil: 90s\n")
    assert (seen.FIRES, "gpu-fan-stopped") in verbs(account, seen.FIRES)


def test_in_a_gap_there_are_no_cycles() -> None:
    assert played("timeline: [{at: 5s, gap: 30s}]\nuntil: 60s\n").cycles == pytest.approx(31, abs=1)


def test_a_reboot_takes_a_minute_and_time_goes_on() -> None:
    account = played("timeline: [{at: 10s, reboot: true}]\nuntil: 100s\n")
    assert account.cycles == pytest.approx(41, abs=2)  # 0 to 10, and 70 to 100
    moments = [each.at_s for each in account.entries]
    assert moments == sorted(moments)


def test_another_process_of_the_daemon_is_in_grace() -> None:
    account = played(JOB + "timeline: [{at: 5s, gpu: 0, set: {temperature: 94.5}}, {at: 4s, restart: daemon}]\n")
    assert (seen.REASON, "grace") in verbs(account, seen.REASON)
    assert when(account, seen.STOPS) == pytest.approx(34, abs=1.5)


def test_an_order_that_is_refused_is_seen() -> None:
    account = played("timeline: [{at: 1s, order: {what: veto, id: a9-9}}]\n")
    assert verbs(account, seen.REFUSES) == [(seen.REFUSES, "veto")]
    assert "no action a9-9" in account.entries[0].reason


def test_a_unit_that_ignores_sigterm_is_killed() -> None:
    account = played("host: {units: {train@a.service: {gpus: [0], ignores_sigterm: true, stop_timeout: 3m}}}\n"
                     "config: {mode: enforce, workloads: [{name: a, units: [train@*.service], stop: {grace: 10s}}]}\n"
                     + HOT + "until: 60s\n")  # fmt: skip
    assert [name for verb, name in verbs(account, seen.KILLS, seen.STOPPED)] == [UNIT, UNIT]


# How it is judged


def judged(expect: tuple[Expectation, ...], *entries: Entry, strict: bool = True) -> tuple[str, ...]:
    return failures(Scenario("x", expect=expect, strict=strict), entries)


FIRED = Entry(10.0, seen.FIRES, "gpu-hot", "GPU 0", "gpu-hot")
STOPPED = Entry(12.0, seen.STOPS, UNIT, "GPU 0", "gpu-hot")


def test_what_is_expected_and_happens_is_as_expected() -> None:
    wanted = (Expectation(seen.FIRES, "gpu-hot", to_s=10.0), Expectation(seen.STOPS, UNIT, rule="gpu-hot"))
    assert judged(wanted, FIRED, STOPPED) == ()


@pytest.mark.parametrize(
    "wanted, words",
    [
        (Expectation(seen.FIRES, "gpu-hot", to_s=9.0), "expected that gpu-hot fires within 0s to 9s; it was at 10s"),
        (Expectation(seen.FIRES, "gpu-lost"), "expected that gpu-lost fires; it never happened"),
        (Expectation(seen.FIRES, "gpu-hot", on="GPU 1"), "gpu-hot fires on GPU 1; but 10s gpu-hot fires on GPU 0"),
        (Expectation(seen.STOPS, never=True), f"12s {UNIT} is asked to stop on GPU 0 for gpu-hot, and that must never"),
    ],
)
def test_what_is_otherwise_is_told_in_words(wanted: Expectation, words: str) -> None:
    (said,) = judged((wanted,), FIRED, STOPPED, strict=False)
    assert words in said


def test_what_nobody_expected_fails_a_strict_story_alone() -> None:
    assert judged((Expectation(seen.FIRES),), FIRED, STOPPED) == (
        f"not expected: 12s {UNIT} is asked to stop on GPU 0 for gpu-hot",
    )
    assert judged((), FIRED, STOPPED, strict=False) == ()


def test_expectations_are_in_the_order_of_time() -> None:
    wanted = (Expectation(seen.STOPS), Expectation(seen.FIRES))
    assert "in the order of the expectations it is too early" in judged(wanted, FIRED, STOPPED)[0]


def test_each_thing_that_happens_answers_one_expectation() -> None:
    assert len(judged((Expectation(seen.FIRES), Expectation(seen.FIRES)), FIRED)) == 1


def test_every_verb_has_words() -> None:
    for verb in (*seen.STRICT, seen.CLEARS, seen.UNDONE, seen.TELLS, seen.REASON, seen.SAVES, seen.OPENS, seen.CLOSES):
        assert "GPU 0" in told(Entry(0.0, verb, "x", "GPU 0")) or verb in (seen.THROTTLES, seen.REFUSES)


def test_moments_are_short() -> None:
    assert [moment(each) for each in (0.0, 17.25, 143.0, 3725.0)] == ["0s", "17.25s", "2m23s", "1h02m05s"]
