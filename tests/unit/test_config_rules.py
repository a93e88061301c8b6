"""The language of rules: changes, counts, selectors, what a ladder may do, and every mistake in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from gpuwatch.alerts.channels.options import channel_types
from gpuwatch.catalog import judge
from gpuwatch.cli.main import main
from gpuwatch.config.amounts import Percent
from gpuwatch.config.classes import Until
from gpuwatch.config.events import EVENT_KINDS
from gpuwatch.config.ladder import scope_words
from gpuwatch.config.limits import limit, limit_shown
from gpuwatch.config.load import load
from gpuwatch.model.event import Event
from gpuwatch.model.instant import Instant
from gpuwatch.model.metric import METRICS, Metric
from gpuwatch.model.rule import EventMatch, Rule, Selector, Step, Threshold
from gpuwatch.model.settings import XidClass
from gpuwatch.policy.subjects import event_subject
from tests.unit.config_files import loaded, problems, write

WORKLOADS = 'workloads:\n  - {name: training, units: ["train@*.service"], allow: [throttle, hold, stop]}\n'
EVERY_RULE = (
    WORKLOADS
    + """\
rules:
  - name: corrected
    metric: gpu.ecc_corrected
    change_over: 10m
    above: 100
    keep: 5m
    only: {gpus: [GPU-3D9A*], models: ["*H100*"], workloads: [training], units: ["train@*.service"]}
    severity: warning
    ladder: [{do: [throttle]}, {do: [hold, stop], after: 60s, worse: true}]
  - name: shrinking
    metric: gpu.memory_used
    change_over: 1h
    below: -2GiB
    for: 10s
    severity: warning
  - name: users
    event: {kind: xid, classes: [application], count: 3, within: 24h, different: users}
    severity: warning
    ladder: [{do: [throttle]}]
  - name: disk
    metric: host.disk_free_ratio
    below: 0.05
    only: {filesystems: [/var*, /]}
    severity: warning
  - name: board
    metric: host.sensor_temperature
    above: 90
    only: {sensors: ["coretemp@*/Package id 0"]}
    severity: warning
  - name: loop
    event: {kind: unit_restart, count: 5, within: 10m}
    only: {units: ["train@*"], workloads: [training]}
    severity: warning
"""
)
RULE = "rules:\n  - name: r\n    severity: warning\n"
HOT = RULE + "    metric: gpu.temperature\n"
DISK = RULE + "    metric: host.disk_free_ratio\n    below: 0.1\n"
UNITS = "workloads:\n  - name: w\n    units: [a.service]\n"
STOP = "    for: 5s\n    ladder: [{do: [stop]}]\n"
EVENT = RULE + "    event: {kind: "


def rules(tmp_path: Path, text: str) -> dict[str, Rule]:
    return {rule.name: rule for rule in loaded(tmp_path, text).settings.rules}


def test_every_setting_of_a_rule_arrives(tmp_path: Path) -> None:
    found = rules(tmp_path, EVERY_RULE)
    corrected = found["corrected"]
    assert (corrected.change_over_s, corrected.keep_s, corrected.threshold) == (600.0, 300.0, Threshold(above=100.0))
    assert corrected.only == Selector(("GPU-3d9a*",), ("*H100*",), ("training",), ("train@*.service",))
    assert corrected.ladder == (Step(("throttle",)), Step(("hold", "stop"), 60.0, True))
    shrinking = found["shrinking"]
    assert shrinking.threshold == Threshold(below=-2 * 1024.0**3)
    assert shrinking.clear is not None and shrinking.clear.threshold == Threshold(above=-2 * 1024.0**3)
    assert found["users"].event == EventMatch(
        "xid", classes=("application",), count=3, within_s=86400.0, different="users"
    )
    assert found["disk"].only == Selector(filesystems=("/var*", "/"))
    assert found["board"].only == Selector(sensors=("coretemp@*/Package id 0",))
    assert found["loop"].only == Selector(units=("train@*",), workloads=("training",))
    assert found["gpu-hot"].only.everything


def test_what_show_prints_is_the_same_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, EVERY_RULE)
    assert main(["config", "show", "--config", path]) == 0
    (tmp_path / "again").mkdir()
    again = load(write(tmp_path / "again", capsys.readouterr().out), channel_types()).settings
    first = load(path, channel_types()).settings
    assert [replace(rule, origin="") for rule in again.rules] == [replace(rule, origin="") for rule in first.rules]


# (text of gpuwatch.yaml, "line:column: path: text", which may be the beginning of a longer one)
MISTAKES = [
    # how much a value changes
    (HOT + "    above: -5\n", "5:12: rules[0].above: '-5' is not a number of degrees Celsius (1 to 125)"),
    (
        HOT + "    above: 124\n    change_over: 1m\n",
        "5:12: rules[0].above: no difference can be above 124: gpu.temperature differs by -124 to 124",
    ),
    (
        HOT + "    below: -200\n    change_over: 1m\n",
        "5:12: rules[0].below: '-200' is not a number of degrees Celsius (-124 to 124)",
    ),
    (
        RULE + "    metric: gpu.memory_used\n    below: -2GiB\n",
        "5:12: rules[0].below: '-2GiB' is not a size such as 60GiB (0 to 4TiB)",
    ),
    (
        RULE + "    metric: gpu.memory_used\n    below: --2GiB\n    change_over: 1m\n",
        "5:12: rules[0].below: '--2GiB' is not a size such as 60GiB (-4TiB to 4TiB)",
    ),
    (
        RULE + "    metric: gpu.ecc_corrected\n    above: 100\n    change_over: 2m\n",
        "6:18: rules[0].change_over: is too short: gpu.ecc_corrected is read every 1m, so 3m or more",
    ),
    (HOT + "    above: 5\n    change_over: 2d\n", "6:18: rules[0].change_over: '2d' is outside 3s to 1d"),
    (
        HOT + "    above: 5\n    change_over: 1m\n    clear: {below: 6}\n",
        "7:20: rules[0].clear.below: would clear while it fires; it must be 5 or less",
    ),
    (
        RULE + "    event: xid\n    change_over: 1m\n",
        "5:18: rules[0].change_over: is for rules about a metric; an event just happens",
    ),
    (RULE + "    event: xid\n    keep: 5m\n", "5:11: rules[0].keep: is for rules about a metric; quiet_for says how"),
    (HOT + "    above: 90\n    keep: long\n", "6:11: rules[0].keep: 'long' is not a duration such as 30s"),
    # which subjects
    (
        HOT + "    above: 90\n    only: [GPU-1*]\n",
        "6:11: rules[0].only: expected settings (gpus, models, workloads, un",
    ),
    (HOT + "    above: 90\n    only: {gpu: [GPU-1*]}\n", "6:12: rules[0].only: no setting 'gpu' here (did you mean gp"),
    (HOT + "    above: 90\n    only: {gpus: GPU-1*}\n", "6:18: rules[0].only.gpus: expected a list: [GPU-1*], not a"),
    (HOT + "    above: 90\n    only: {gpus: ['3']}\n", "6:19: rules[0].only.gpus[0]: '3' is not a GPU's UUID such as"),
    (
        HOT + "    above: 90\n    only: {filesystems: [/var]}\n",
        "6:25: rules[0].only.filesystems: is for rules about a file system; gpu.temperature is about a GPU",
    ),
    (
        DISK + "    only: {gpus: [GPU-1*]}\n",
        "6:18: rules[0].only.gpus: is for rules about a GPU; host.disk_free_ratio is about a file system",
    ),
    (DISK + "    only: {filesystems: [var]}\n", "6:26: rules[0].only.filesystems[0]: 'var' is not a mount point such"),
    (
        RULE + "    metric: host.load_1m\n    above: 9\n    only: {units: [a.service]}\n",
        "6:19: rules[0].only.units: is for rules about a GPU or a unit; host.load_1m is about the host",
    ),
    (
        RULE + "    metric: unit.tasks\n    above: 9\n    only: {models: ['*H100*']}\n",
        "6:20: rules[0].only.models: is for rules about a GPU; unit.tasks is about a unit",
    ),
    (
        UNITS + RULE + "    metric: workload.gpu_memory\n    above: 1GiB\n    only: {units: [a.service]}\n",
        "9:19: rules[0].only.units: is for rules about a GPU or a unit; workload.gpu_memory is about a workload",
    ),
    (
        RULE + "    event: unit_failed\n    only: {gpus: [GPU-1*]}\n",
        "5:18: rules[0].only.gpus: is for rules about a GPU; unit_failed is about a unit",
    ),
    (
        RULE + "    event: reboot\n    only: {units: [a.service]}\n",
        "5:19: rules[0].only.units: is for rules about a GPU or a unit; reboot is about the host",
    ),
    (
        RULE + "    event: unit_failed\n    only: {units: [train]}\n",
        "5:20: rules[0].only.units[0]: 'train' has no unit suffix and would fit nothing (did you mean 'train.serv",
    ),
    (
        RULE + "    event: unit_failed\n    only: {units: ['*.service']}\n",
        "5:20: rules[0].only.units[0]: '*.service' names every unit; leave it out",
    ),
    (
        UNITS
        + "  - {name: training, units: [b.service]}\n"
        + HOT
        + "    above: 90\n    only: {workloads: [trainin]}\n",
        "6:5: rules[r].only.workloads: there is no workload 'trainin' (did you mean training?)",
    ),
    (
        HOT + "    above: 90\n    only: {workloads: ['train*']}\n",
        "6:24: rules[0].only.workloads[0]: 'train*' is not the name of a workload, or * for any of them",
    ),
    # events that happen often
    (EVENT + "xid, count: 3}\n", "4:31: rules[0].event.count: needs a time in which so many happen, e.g. within: 1h"),
    (EVENT + "xid, count: 0}\n", "4:31: rules[0].event.count: '0' is not a whole number from 1 to 10000"),
    (EVENT + "xid, within: 1h}\n", "4:32: rules[0].event.within: says nothing about one event; it goes with count: 2"),
    (
        EVENT + "xid, different: users}\n",
        "4:35: rules[0].event.different: says nothing about one event; it goes with count: 2 or more",
    ),
    (
        EVENT + "xid, count: 2, within: 1h, different: pids}\n",
        "4:57: rules[0].event.different: 'pids' is not users",
    ),
    (
        EVENT + "oom_kill, count: 2, within: 1h, different: users}\n",
        "4:62: rules[0].event.different: can't be told: an event of kind oom_kill names no GPU whose users there could",
    ),
    (EVENT + "xid, count: 2, within: 30d}\n", "4:42: rules[0].event.within: '30d' is outside 1s to 7d"),
    # what is done
    (
        HOT + "    above: 90\n    for: 5s\n    ladder: [{do: [stop], worse: true}]\n",
        "7:34: rules[0].ladder[0].worse: is for later steps: there is no step before the first to compare with",
    ),
    (
        RULE + "    event: xid\n    ladder: [{do: [throttle]}, {do: [stop], worse: true}]\n",
        "5:52: rules[0].ladder[1].worse: is for rules about a metric; an event has no value that gets worse",
    ),
    (
        RULE + "    metric: host.driver_silent\n    above: 10s\n" + STOP,
        (
            "7:13: rules[0].ladder: can't stop anything: host.driver_silent is about the host, and what to stop is"
            " found by a GPU, a unit, a workload or the host's memory"
        ),
    ),
    (DISK + STOP, "7:13: rules[0].ladder: can't stop anything: host.disk_free_ratio is about a file system, and what"),
    (
        RULE + "    metric: host.memory_total\n    above: 1GiB\n" + STOP,
        "7:13: rules[0].ladder: can't stop anything: host.memory_total is about the host, and what to stop is found by",
    ),
    (
        RULE + "    metric: host.swap_used_ratio\n    above: 0.9\n" + STOP,
        (
            "7:13: rules[0].ladder: can't stop anything: host.swap_used_ratio is about the host, and swap in use is no"
            " want of memory; use host.memory_available or host.memory_pressure_full"
        ),
    ),
    (
        RULE + "    metric: unit.tasks\n    above: 10\n    ladder: [{do: [throttle]}]\n",
        "6:13: rules[0].ladder: can't throttle anything: unit.tasks is about a unit, and only a GPU can be throttled",
    ),
    (
        RULE + "    event: unit_failed\n    ladder: [{do: [hold]}]\n",
        "5:13: rules[0].ladder: can't hold anything: unit_failed names no GPU, and what to hold is found by its GPU",
    ),
    (
        RULE + "    event: sxid\n    ladder: [{do: [throttle]}]\n",
        "5:13: rules[0].ladder: can't throttle anything: sxid names no GPU, and only a GPU can be throttled",
    ),
    (
        "rules:\n  - {name: r, event: xid, severity: info, ladder: [{do: [throttle]}]}\n",
        "2:51: rules[0].ladder: slows a GPU down, and nobody is told at severity info",
    ),
    (
        "rules:\n  - {name: r, event: xid, severity: info, ladder: [{do: [hold]}]}\n",
        "2:51: rules[0].ladder: keeps something from starting, and nobody is told at severity info",
    ),
    # workloads, throttle, grace
    (UNITS + "    gpu_memory_limit: 60G\n", "4:23: workloads[0].gpu_memory_limit: '60G' is not a size such as 60GiB"),
    (
        UNITS + "    gpu_memory_limit: 60\n",
        "4:23: workloads[0].gpu_memory_limit: '60' is outside 16MiB to 4TiB (its unit is missing)",
    ),
    ("throttle: {gpus: ['3']}\n", "1:19: throttle.gpus[0]: '3' is not a GPU's UUID such as GPU-3d9a7c10* (the index"),
    ("throttle: {step: 0.15}\n", "1:18: throttle.step: '0.15' is not a share from 1% to 50%; write 15%"),
    ("throttle: {step: 15}\n", "1:18: throttle.step: '15' is not a share from 1% to 50%; 15% is written with its sign"),
    ("throttle: {lowest: 100%}\n", "1:20: throttle.lowest: '100%' is not a share from 10% to 95%"),
    (
        "throttle: {step: 50%, lowest: 60%}\n",
        "1:18: throttle.step: a step of 50% is more than the 40% down to the lowest",
    ),
    ("throttle: {lowest: 90%}\n", "1:20: throttle.lowest: a step of 15% is more than the 10% down to the lowest"),
    ("throttle: {enabled: yes}\n", "1:12: throttle: 'enabled' is not a setting: only a rule with do: [throttle]"),
    ("grace: {start: 2h}\n", "1:16: grace.start: '2h' is outside 0s to 1h"),
    ("grace: {restart: 2m}\n", "1:9: grace: no setting 'restart' here (did you mean start?)"),
    # classes of Xids that end
    (
        "xid_classes: [{xid: 31, class: link, reason: x, until: tomorrow}]\n",
        "1:56: xid_classes[0].until: 'tomorrow' is not a date such as 2027-01-31 (from 00:00 UTC) or a time such as",
    ),
    (
        "xid_classes: [{xid: 31, class: link, reason: x, until: 2027-01-31 08:00}]\n",
        "1:56: xid_classes[0].until: '2027-01-31 08:00' has no zone; write 2027-01-31T08:00Z (UTC), or +08:00 behind",
    ),
    (
        "xid_classes: [{xid: 31, class: link, reason: x, until: 2027-02-30}]\n",
        "1:56: xid_classes[0].until: '2027-02-30': day",
    ),
]


@pytest.mark.parametrize("text, expected", MISTAKES, ids=[expected[:60] for _, expected in MISTAKES])
def test_a_mistake_is_told_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    found = problems(tmp_path, text)
    assert len(found) == 1, found
    assert found[0].startswith(f"gpuwatch.yaml:{expected}")


def test_all_mistakes_of_one_rule_come_at_once(tmp_path: Path) -> None:
    text = HOT + "    above: 90C\n    keep: x\n    only: {gpus: [x], models: []}\n    change_over: 1s\n"
    text += "    ladder: [{do: [stop], worse: maybe}, {do: [boil]}]\n"
    assert [problem.split(": ")[0] + ": " + problem.split(": ")[1] for problem in problems(tmp_path, text)] == [
        "gpuwatch.yaml:5:12: rules[0].above",
        "gpuwatch.yaml:6:11: rules[0].keep",
        "gpuwatch.yaml:7:19: rules[0].only.gpus[0]",
        "gpuwatch.yaml:7:31: rules[0].only.models",
        "gpuwatch.yaml:8:18: rules[0].change_over",
        "gpuwatch.yaml:9:34: rules[0].ladder[0].worse",
        "gpuwatch.yaml:9:48: rules[0].ladder[1].do[0]",
    ]


def test_each_thing_that_a_ladder_cannot_do_is_told(tmp_path: Path) -> None:
    found = problems(tmp_path, RULE + "    event: reboot\n    ladder: [{do: [throttle]}, {do: [hold, stop]}]\n")
    assert [problem.split(": ")[2].split(":")[0] for problem in found] == [
        "can't stop anything",
        "can't hold anything",
        "can't throttle anything",
    ]


@pytest.mark.parametrize(
    "about",
    [
        "metric: gpu.memory_used_ratio\n    above: 0.9",
        "metric: unit.memory_used_ratio\n    above: 0.9",
        "metric: workload.gpu_memory_ratio\n    above: 1",
        "metric: host.memory_available_ratio\n    below: 0.03",
        "metric: host.memory_pressure_full\n    above: 50",
        "metric: host.memory_full_in\n    below: 30s",
    ],
)
@pytest.mark.parametrize("do", ["stop", "hold"])
def test_what_can_be_stopped_and_held(tmp_path: Path, about: str, do: str) -> None:
    assert problems(tmp_path, RULE + f"    {about}\n    for: 5s\n    ladder: [{{do: [{do}]}}]\n") == []


@pytest.mark.parametrize("kind", EVENT_KINDS)
@pytest.mark.parametrize("do", ["throttle", "hold", "stop"])
def test_only_an_event_of_a_gpu_makes_anything_happen(tmp_path: Path, kind: str, do: str) -> None:
    found = problems(tmp_path, RULE + f"    event: {kind}\n    ladder: [{{do: [{do}]}}]\n")
    assert bool(found) is not EVENT_KINDS[kind].of_gpu
    assert all(f"can't {do} anything" in problem for problem in found)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_can_stand_in_a_rule(tmp_path: Path, name: str) -> None:
    """Whatever its scope and unit; a limit shown is the limit again, also that of a difference."""
    metric = METRICS[name]
    third = min((metric.high - metric.low) / 3, 1e6)
    for number in (third, -third):
        text = limit_shown(metric, round(number, 3))
        assert limit(text, metric, True, change=True) == pytest.approx(number, abs=0.001)
    assert scope_words(metric.scope)
    with pytest.raises(ValueError, match="is not a"):
        limit("x", metric, True)


def test_a_scope_and_a_unit_that_come_later_have_words() -> None:
    metric = Metric("rack.noise", "dB", "rack", 0, 200, "how loud it is")
    assert scope_words(metric.scope) == "a rack"
    with pytest.raises(ValueError, match=r"'loud' is not a number of dB \(0 to 200\)"):
        limit("loud", metric, True)


# Several files ----------------------------------------------------------------------------------


def test_a_rule_may_name_a_workload_of_another_file(tmp_path: Path) -> None:
    rule = HOT + "    above: 90\n    only: {workloads: [w]}\n"
    assert loaded(tmp_path, rule, **{"10": UNITS}).settings.rules[-1].only.workloads == ("w",)
    assert loaded(tmp_path, rule.replace("[w]", "['*']")).settings.rules[-1].only.workloads == ("*",)
    assert problems(tmp_path, rule, **{"10": "workloads: [\n"}) == [
        "conf.d/10.yaml:2:1: not valid YAML: a value, a list or a '{' is not continued"
    ]


def test_a_step_and_a_lowest_of_two_files_have_to_fit(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "throttle: {lowest: 80%}\n", **{"10": "throttle: {step: 30%}\n"})
    assert problem.startswith("conf.d/10.yaml:1:18: throttle.step: a step of 30% is more than the 20% down to")


# Warnings ---------------------------------------------------------------------------------------

TOLD = "alerts: {channels: [{name: ops, type: wecom, key: {credential: ops}}]}\n"


@pytest.mark.parametrize(
    "text, expected",
    [
        (HOT + "    above: 90\n    only: {}\n", "6:11: rules[0].only: is empty, so the rule is about everything"),
        (
            HOT + "    above: 90\n    only: {models: [H100, NVIDIA L4]}\n",
            "6:20: rules[0].only.models: 'H100' is hardly the whole name of a card; '*H100*' finds it in one",
        ),
        (
            TOLD
            + UNITS
            + "  - {name: v, enabled: false, units: [b.service]}\n"
            + HOT
            + "    above: 90\n    only: {workloads: [v, w]}\n",
            "7:5: rules[r].only.workloads: workload 'v' is turned off",
        ),
    ],
)
def test_what_is_allowed_and_probably_not_meant(tmp_path: Path, text: str, expected: str) -> None:
    (warning,) = loaded(tmp_path, text).warnings
    assert str(warning) == f"{tmp_path}/gpuwatch.yaml:{expected}"


# Classes of Xids that end -----------------------------------------------------------------------

JANUARY = 1_801_353_600.0  # 2027-01-31 00:00 UTC


@pytest.mark.parametrize(
    "text, utc_s",
    [
        ("2027-01-31", JANUARY),
        ("2027-01-31T08:00Z", JANUARY + 8 * 3600),
        ("2027-01-31 08:00:01 UTC", JANUARY + 8 * 3600 + 1),
        ("2027-01-31T08:00+08:00", JANUARY),
    ],
)
def test_an_end_is_the_same_moment_wherever_it_is_read(tmp_path: Path, text: str, utc_s: float) -> None:
    found = loaded(tmp_path, f"xid_classes: [{{xid: 31, class: link, reason: x, until: '{text}'}}]\n")
    assert found.settings.xid_classes == (XidClass(31, "link", "x", utc_s),)
    assert Until().parse(Until().show(utc_s)) == utc_s


def test_an_end_in_the_past_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, "xid_classes:\n  - {xid: 31, class: link, reason: x, until: 2027-01-31}\n")
    assert load(path, channel_types(), now_utc_s=JANUARY - 1).warnings == ()
    ended = load(path, channel_types(), now_utc_s=JANUARY)
    assert [str(one).rpartition("/")[2] for one in ended.warnings] == [
        "gpuwatch.yaml:2:5: xid_classes[31].until: has ended (2027-01-31); the class of the table counts again"
    ]
    assert ended.settings.class_overrides(JANUARY - 1) == {31: "link"}
    assert ended.settings.class_overrides(JANUARY) == {}


@profile(max_examples=100, deadline=None)
@given(st.integers(100, 5000))
def test_a_shown_share_is_the_same_share(hundredths: int) -> None:
    kind = Percent(1, 50)
    ratio = kind.parse(f"{hundredths / 100}%")
    assert kind.parse(kind.show(ratio)) == ratio == pytest.approx(hundredths / 10_000)


# Kinds of events --------------------------------------------------------------------------------

OF_SOURCES = {"reboot", "time_jump", "container_die", "container_oom"}  # the host, the engines; not the catalogue


def test_every_kind_is_made_by_something() -> None:
    assert {kind for kind in EVENT_KINDS if kind not in judge.kinds()} == OF_SOURCES


@pytest.mark.parametrize("kind", EVENT_KINDS)
def test_the_policy_files_an_event_where_its_kind_says(kind: str) -> None:
    """A rule may select by GPU or unit only what the policy files under one."""
    now = Instant("boot", 1.0, 1.0)
    event = Event(kind, now, now, "journal", {"pci": "0000:5e:00.0", "unit": "a.service"})
    told = {"gpu": EVENT_KINDS[kind].of_gpu, "unit": EVENT_KINDS[kind].of_unit}
    subject, _ = event_subject(event, {}, {})
    assert subject.kind == next((name for name, is_so in told.items() if is_so), "host")
