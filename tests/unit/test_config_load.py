"""Files become settings: defaults, merging, which files are read, and what is only warned about."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from gpuwatch.alerts.channels.options import channel_types
from gpuwatch.catalog.default_rules import default_rules_text
from gpuwatch.catalog.xid import CLASSES
from gpuwatch.config.kinds import duration_s, duration_text
from gpuwatch.config.load import load
from gpuwatch.config.root import root_table
from gpuwatch.config.table import walk
from gpuwatch.model.errors import ConfigError, Problem
from gpuwatch.model.rule import Clear, EventMatch, Rule, Severity, Step, Threshold
from gpuwatch.model.settings import (
    Budget,
    Channel,
    Grace,
    KeySource,
    Mode,
    Settings,
    StopSettings,
    Throttle,
    Workload,
)
from tests.unit.config_files import loaded, problems, write

SHIPPED = Path(__file__).parents[2] / "config" / "gpuwatch.yaml"
EXAMPLES = sorted((SHIPPED.parent / "conf.d").glob("*.example"))

WHOLE = """\
mode: enforce
language: zh
interval: 500ms
host: gpu-07
labels: {site: sh1, u: 12}
workloads:
  - name: training
    units: ["train@*.service"]
    containers: ["trainer-*", "label:team=ml ops", "compose:llama/*"]
    priority: 5
    mode: observe
    allow: [stop]
    stop: {grace: 1m30s}
    gpu_memory_limit: 60GiB
protect: {units: [postgresql.service]}
budget: {destructive: 2, within: 5m, heat_per_gpu: 0}
throttle: {gpus: [GPU-3D9A*], step: 12.5%, lowest: 60 %}
grace: {start: 0s, boot: 5m}
rules:
  - name: memory
    metric: gpu.memory_used
    above: 60GiB
    for: 1h
    severity: warning
    ladder: [{do: [snapshot]}, {do: [stop], after: 60s}]
  - name: bridge
    event: {kind: xid, codes: [74, 79], classes: [link], fatal: yes}
    quiet_for: reboot
    severity: critical
evidence: {keep: {count: 50}}
alerts:
  channels:
    - {name: ops, type: wecom, key: {file: /etc/gpuwatch/key}, severities: [critical], mention: ["@all", "138"]}
"""


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    found = loaded(tmp_path, "")
    assert found.settings == Settings(rules=found.settings.rules)
    assert {rule.origin for rule in found.settings.rules} == {"default"}
    assert found.warnings == ()
    assert loaded(tmp_path, "# nothing\n---\n").settings == found.settings


def test_every_setting_arrives(tmp_path: Path) -> None:
    found = loaded(tmp_path, WHOLE)
    path = f"{tmp_path}/gpuwatch.yaml"
    ours = tuple(rule for rule in found.settings.rules if rule.origin != "default")
    assert found.settings == Settings(
        mode=Mode.ENFORCE,
        language="zh",
        interval_s=0.5,
        host="gpu-07",
        labels={"site": "sh1", "u": "12"},
        workloads=(
            Workload(
                "training",
                ("train@*.service",),
                5,
                Mode.OBSERVE,
                ("stop",),
                StopSettings(90.0),
                ("trainer-*", "label:team=ml ops", "compose:llama/*"),
                60 * 1024**3,
            ),
        ),
        protect=("postgresql.service",),
        budget=Budget(2, 300.0, 0),
        throttle=Throttle(("GPU-3d9a*",), 0.125, 0.6),
        grace=Grace(0.0, 300.0),
        rules=found.settings.rules,
        evidence_count=50,
        channels=(
            Channel(
                "ops",
                "wecom",
                KeySource(file="/etc/gpuwatch/key"),
                (Severity.CRITICAL,),
                ("@all", "138"),
                {"url": "https://qyapi.weixin.qq.com"},
            ),
        ),
    )
    assert ours == (
        Rule(
            name="memory",
            severity=Severity.WARNING,
            metric="gpu.memory_used",
            threshold=Threshold(above=60 * 1024.0**3),
            for_s=3600.0,
            clear=Clear(Threshold(below=60 * 1024.0**3), 60.0),
            ladder=(Step(("snapshot",)), Step(("stop",), 60.0)),
            origin=f"{path}:20",
        ),
        Rule(
            name="bridge",
            severity=Severity.CRITICAL,
            event=EventMatch("xid", (74, 79), ("link",), True),
            quiet_for_s=None,
            origin=f"{path}:26",
        ),
    )


# Several files ----------------------------------------------------------------------------------

TWO = "workloads:\n  - {name: a, units: [a.service], priority: 1}\n  - {name: b, units: [b.service]}\n"


def test_a_named_entry_is_replaced_whole_and_keeps_its_place(tmp_path: Path) -> None:
    found = loaded(tmp_path, TWO, **{"10": "workloads:\n  - {name: a, units: [c.service]}\n"})
    assert found.settings.workloads == (Workload("a", ("c.service",)), Workload("b", ("b.service",)))
    assert found.origins["workloads[a]"] == f"{tmp_path}/conf.d/10.yaml:2"
    assert found.origins["workloads[b]"] == f"{tmp_path}/gpuwatch.yaml:3"


def test_the_later_file_wins_by_name(tmp_path: Path) -> None:
    found = loaded(tmp_path, "language: en\n", **{"20": "language: en\n", "10": "language: zh\ninterval: 2s\n"})
    assert (found.settings.language, found.settings.interval_s) == ("en", 2.0)
    assert [Path(file).name for file in found.files] == ["gpuwatch.yaml", "10.yaml", "20.yaml"]


def test_groups_merge_setting_by_setting(tmp_path: Path) -> None:
    main = "budget: {destructive: 1, within: 5m}\nthrottle: {step: 10%, lowest: 50%}\ngrace: {boot: 1m}\n"
    site = "budget: {within: 20m}\nthrottle: {step: 20%}\ngrace: {start: 1m}\n"
    found = loaded(tmp_path, main, **{"10": site}).settings
    assert found.budget == Budget(1, 1200.0, 1)
    assert (found.throttle, found.grace) == (Throttle((), 0.2, 0.5), Grace(60.0, 60.0))


def test_labels_and_protected_units_add_up(tmp_path: Path) -> None:
    main = "labels: {a: 1, b: 2}\nprotect: {units: [a.service, b.service]}\n"
    found = loaded(tmp_path, main, **{"10": "labels: {b: 3}\nprotect: {units: [b.service, c.service]}\n"})
    assert found.settings.labels == {"a": "1", "b": "3"}
    assert found.settings.protect == ("a.service", "b.service", "c.service")


@pytest.mark.parametrize("entry", ["{name: a, enabled: false}", "{name: a, enabled: off, units: [x.service]}"])
def test_enabled_false_turns_a_workload_off(tmp_path: Path, entry: str) -> None:
    found = loaded(tmp_path, TWO, **{"10": f"workloads:\n  - {entry}\n"})
    assert [workload.name for workload in found.settings.workloads] == ["b"]


def test_a_default_rule_is_turned_off_and_kept_for_the_record(tmp_path: Path) -> None:
    found = loaded(tmp_path, "rules:\n  - {name: gpu-hot, enabled: false}\n")
    (rule,) = (rule for rule in found.settings.rules if rule.name == "gpu-hot")
    assert (rule.enabled, rule.metric, rule.origin) == (False, "gpu.slowdown_margin", f"{tmp_path}/gpuwatch.yaml:2")


def test_an_entry_turned_off_can_come_back(tmp_path: Path) -> None:
    files = {
        "10": "workloads:\n  - {name: a, enabled: false}\n",
        "20": "workloads:\n  - {name: a, units: [z.service]}\n",
    }
    assert loaded(tmp_path, TWO, **files).settings.workloads[0].units == ("z.service",)


def test_a_syntax_error_hides_only_its_own_file(tmp_path: Path) -> None:
    found = problems(tmp_path, "mode: [\n", **{"10": "mode: x\n", "20": "rules:\n  - {name: site, enabled: false}\n"})
    # "site" may well be a rule of the broken file, so nothing is said about it
    assert [problem.split(" ")[0] for problem in found] == ["gpuwatch.yaml:2:1:", "conf.d/10.yaml:1:7:"]


def test_one_unit_in_two_workloads_of_two_files(tmp_path: Path) -> None:
    found = problems(tmp_path, TWO, **{"10": "workloads:\n  - {name: c, units: [b.service]}\n"})
    assert found == ["conf.d/10.yaml:2:5: workloads[c].units: 'b.service' belongs to workload 'b' already"]


# Which files ------------------------------------------------------------------------------------


def test_a_missing_main_file_is_a_problem(tmp_path: Path) -> None:
    assert problems(tmp_path, None) == ["gpuwatch.yaml:1:1: there is no such file"]


def test_a_missing_conf_d_is_fine(tmp_path: Path) -> None:
    path = write(tmp_path, "mode: observe\n")
    (tmp_path / "conf.d").rmdir()
    assert load(path, channel_types()).files == (path,)


def test_backups_are_passed_over_and_yml_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    for name in (".10-a.yaml", "10-a.yaml~", "10-a.yaml.bak", ".10-a.yaml.swp", "README", "10-a.yml"):
        (tmp_path / "conf.d" / name).write_text("mode: nonsense\n")
    found = load(path, channel_types())
    assert found.files == (path,)
    assert [str(one) for one in found.warnings] == [
        f"{tmp_path}/conf.d/10-a.yml:1:1: is not read; the name must end in .yaml"
    ]


@pytest.mark.parametrize("name", ["gpuwatch.yaml", "conf.d/10.yaml", "conf.d"])
def test_what_every_user_may_write_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, "", **{"10": ""})
    (tmp_path / name).chmod(0o777 if name == "conf.d" else 0o666)
    (problem,) = problems(tmp_path, None)
    assert problem.startswith(f"{name}:1:1: every user may ")


def test_a_fifo_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gpuwatch.yaml")
    assert problems(tmp_path, None) == ["gpuwatch.yaml:1:1: is not a regular file"]


def test_a_directory_and_a_loop_are_problems(tmp_path: Path) -> None:
    write(tmp_path, None)
    (tmp_path / "gpuwatch.yaml").mkdir()
    (tmp_path / "conf.d" / "10.yaml").symlink_to("10.yaml")
    first, second = problems(tmp_path, None)
    assert first == "gpuwatch.yaml:1:1: is not a regular file"
    assert second.startswith("conf.d/10.yaml:1:1: can't be read: ")


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"mode: observe\nhost: caf\xe9\n", "2:10: byte 0xe9 is not UTF-8; save the file as UTF-8"),
        ("mode: observe\n".encode("utf-16"), "1:1: byte 0xff is not UTF-8; save the file as UTF-8"),
        (b"mode: observe\nhost: a\x00b\n", "2:8: the control character U+0000 can't stand in a configuration"),
        (b"#" * (1024 * 1024 + 1), "1:1: is larger than 1024 KiB"),
        (b"a: [" + b"[]," * 300_000 + b"]", "1:59996: holds more than 20000 values (aliases count each time)"),
    ],
)
def test_bytes_that_are_no_configuration(tmp_path: Path, data: bytes, expected: str) -> None:
    (tmp_path / "gpuwatch.yaml").write_bytes(data)
    assert problems(tmp_path, None) == [f"gpuwatch.yaml:{expected}"]


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    (tmp_path / "gpuwatch.yaml").write_bytes(b"\xef\xbb\xbfmode: enforce\r\nlanguage: zh\r\n")
    assert load(str(tmp_path / "gpuwatch.yaml"), channel_types()).settings.language == "zh"


def test_aliases_can_be_used_and_can_not_explode(tmp_path: Path) -> None:
    text = "workloads:\n  - {name: a, units: [a.service], stop: &s {grace: 5s}}\n"
    text += "  - {name: b, units: [b.service], stop: *s}\n"
    assert {one.stop.grace_s for one in loaded(tmp_path, text).settings.workloads} == {5.0}
    bomb = "labels:\n  a: &a [" + "x, " * 9 + "]\n"
    bomb += "".join(f"  {chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12))
    (problem,) = problems(tmp_path, bomb)
    assert "holds more than 20000 values" in problem
    chain = "a: &a0 [x]\n" + "".join(f"k{n}: &a{n + 1} [*a{n}]\n" for n in range(300))
    (problem,) = problems(tmp_path, chain)
    assert "nested more than 20 levels deep" in problem


# Warnings ---------------------------------------------------------------------------------------

UNIT = "workloads:\n  - name: w\n    units: [a.service]\n"
TOLD = "alerts: {channels: [{name: ops, type: wecom, key: {credential: ops}}]}\n"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("mode: enforce\n", "1:7: mode: enforce without any workload: nothing can ever be stopped"),
        (UNIT, "1:1: alerts.channels: there is none; gpuwatch can tell nobody what it does"),
        (
            TOLD + UNIT + "    mode: enforce\n    allow: []\n",
            "6:12: workloads[0].allow: is empty, so 'mode: enforce' does",
        ),
        (
            TOLD + UNIT + "protect: {units: ['a*.service']}\n",
            "3:5: workloads[w].units: 'a.service' is protected (protect.units) and is never touched",
        ),
        (
            TOLD + "rules:\n  - name: r\n    metric: gpu.temperature\n    above: 90\n    severity: critical\n"
            "    ladder: [{do: [stop]}]\n",
            "3:5: rules[0]: stops on a single reading of gpu.temperature; a 'for: 5s' would wait for a second opinion",
        ),
    ],
)
def test_what_is_allowed_and_probably_not_meant(tmp_path: Path, text: str, expected: str) -> None:
    (warning,) = loaded(tmp_path, text).warnings
    assert str(warning).startswith(f"{tmp_path}/gpuwatch.yaml:{expected}")


# What ships -------------------------------------------------------------------------------------


def test_the_shipped_file_only_observes(tmp_path: Path) -> None:
    found = load(str(SHIPPED), channel_types(), conf_d=str(tmp_path))
    assert found.settings == Settings(rules=found.settings.rules)
    assert found.warnings == ()


def uncommented(text: str) -> str:
    """The file with every commented setting in use; lines of text begin with "# " and a word."""
    return "\n".join(re.sub(r"^#(?! \S)", "", line) for line in text.splitlines())


def test_the_shipped_file_is_valid_with_everything_in_use(tmp_path: Path) -> None:
    found = loaded(tmp_path, uncommented(SHIPPED.read_text(encoding="utf-8")))
    assert [workload.name for workload in found.settings.workloads] == ["training"]
    assert [channel.name for channel in found.settings.channels] == ["ops"]
    assert found.warnings == ()


def test_the_shipped_file_shows_every_setting_and_its_default() -> None:
    text = uncommented(SHIPPED.read_text(encoding="utf-8"))
    for path, setting in walk(root_table(channel_types()).settings):
        name = re.escape(setting.name)
        assert re.search(rf"(^|[\s{{]){name}:", text), path
        if "[]" not in path and setting.default not in (None, ()):
            shown = re.escape(str(setting.kind.show(setting.default)))
            assert re.search(rf"(^|[\s{{]){name}: {shown}\s*$", text, re.MULTILINE), path


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.name for path in EXAMPLES])
def test_an_example_can_be_used_as_it_is(tmp_path: Path, path: Path) -> None:
    """And not one warning but for what a real host has in its other files."""
    assert path.name.endswith(".yaml.example")
    main = TOLD + 'workloads:\n  - {name: training, units: ["train@*.service"]}\n'
    assert loaded(tmp_path, main, **{"20": path.read_text(encoding="utf-8")}).warnings == ()


def test_the_default_rules_say_why_and_stop_only_for_heat_or_want_of_memory(tmp_path: Path) -> None:
    rules = loaded(tmp_path, "").settings.rules
    stopping = [rule for rule in rules if any("stop" in step.do for step in rule.ladder)]
    assert {rule.metric for rule in stopping if not rule.heat} <= {"host.memory_thrashing"}
    assert any(rule.heat for rule in stopping)
    assert all(rule.severity is Severity.CRITICAL and rule.for_s >= 5 for rule in stopping)
    told = {name for rule in rules if rule.event for name in rule.event.classes}
    assert told == set(CLASSES) - {"informational", "ignore"}
    text = default_rules_text().decode()
    for rule in rules:
        assert f"name: {rule.name}\n" in text


def test_mistakes_in_the_default_rules_are_told_as_theirs(tmp_path: Path) -> None:
    path = write(tmp_path, "mode: x\n")
    with pytest.raises(ConfigError) as caught:
        load(path, channel_types(), defaults=b"rules:\n  - {name: a}\n")
    assert str(caught.value).startswith("rules.yaml (default rules):2:5: rules[0]: 'severity' is missing")
    assert len(caught.value.problems) == 3


# Values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("250ms", 0.25),
        ("30s", 30),
        ("10m", 600),
        ("4h", 14400),
        ("7d", 604800),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("0", 0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "30", "30 s", "-1s", "1e3s", "1S", "infs", "nan", "1s ", "1.s", "9" * 30 + "s"]
)
def test_what_is_no_duration(text: str) -> None:
    assert duration_s(text) is None


@given(st.integers(min_value=0, max_value=366 * 86_400_000))
def test_a_shown_duration_is_the_same_duration(milliseconds: int) -> None:
    seconds = duration_s(duration_text(milliseconds / 1000))
    assert seconds is not None
    assert round(seconds * 1000) == milliseconds


# Anything at all --------------------------------------------------------------------------------

_WORDS = st.sampled_from(
    [
        "mode",
        "observe",
        "workloads",
        "name",
        "units",
        "a.service",
        "rules",
        "metric",
        "gpu.temperature",
        "event",
        "xid",
        "kind",
        "codes",
        "severity",
        "critical",
        "ladder",
        "do",
        "stop",
        "clear",
        "above",
        "below",
        "for",
        "alerts",
        "channels",
        "type",
        "wecom",
        "key",
        "credential",
        "enabled",
        "false",
        "-",
        ":",
        ",",
        "[",
        "]",
        "{",
        "}",
        "&",
        "*",
        "&a",
        "*a",
        "!",
        "!!str",
        "|",
        ">",
        "'",
        '"',
        "#",
        "?",
        "<<",
        "---",
        "...",
        "%",
        "@",
        "`",
        "~",
        "95",
        "30s",
        "[]",
        "{}",
    ]
)
_PIECES = st.lists(st.one_of(_WORDS, st.sampled_from(["\n", "\n  ", "\n    ", " ", ": ", "- "]), st.text(max_size=3)))


@profile(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=_PIECES)
def test_no_text_makes_it_raise_anything_but_problems(tmp_path: Path, pieces: list[str]) -> None:
    text = "".join(pieces).encode("utf-8", "surrogatepass")
    path = tmp_path / "gpuwatch.yaml"
    path.write_bytes(text)
    assert all(one.file and one.line >= 1 and one.column >= 1 and one.text for one in _outcome(str(path)))


def _outcome(path: str) -> tuple[Problem, ...]:
    try:
        return load(path, channel_types(), defaults=b"").warnings
    except ConfigError as error:
        return error.problems or (Problem("", 0, 0, ""),)  # an error without a problem fails the test


_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-5, 200).map(str), _WORDS, st.text(max_size=5))
_NAMES = sorted({setting.name for _, setting in walk(root_table(channel_types()).settings)})
_TREES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4)),
    max_leaves=25,
)


@profile(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=st.dictionaries(st.sampled_from(_NAMES), _TREES, max_size=5))
def test_no_structure_makes_it_raise_anything_but_problems(tmp_path: Path, tree: dict[str, object]) -> None:
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(json.dumps(tree), encoding="utf-8")
    assert all(one.text for one in _outcome(str(path)))
