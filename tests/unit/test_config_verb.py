"""gpuwatch config check, show and schema, as a person calls them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.alerts.channels.options import channel_types
from gpuwatch.cli.main import main
from gpuwatch.config.load import load
from gpuwatch.config.show import flow
from tests.unit.config_files import write
from tests.unit.test_config_load import WHOLE

Capture = pytest.CaptureFixture[str]


def test_check_says_ok(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, WHOLE, **{"10": ""})
    assert main(["config", "check", "--config", path]) == 0
    said = capsys.readouterr()
    rules = len(load(path, channel_types()).settings.rules)
    assert said.out == f"ok: mode enforce, {rules} rules, workloads: 'training', channels: 'ops' (2 files read)\n"
    assert said.err == ""


def test_check_tells_warnings_unless_quiet(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, "mode: enforce\n")
    assert main(["config", "check", "--config", path]) == 0
    assert capsys.readouterr().err.startswith(f"{path}:1:7: warning: mode: enforce without any workload")
    assert main(["config", "check", "--quiet", "--config", path]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")


@pytest.mark.parametrize("verb", [["check"], ["check", "--quiet"], ["show"], ["show", "--json"]])
def test_problems_go_to_stderr_with_78(tmp_path: Path, capsys: Capture, verb: list[str]) -> None:
    path = write(tmp_path, "mode: x\n", **{"10": "interval: 5\n"})
    assert main(["config", *verb, "--config", path]) == 78
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0].startswith(f"{path}:1:7: mode: 'x' is not one of")
    assert lines[1].startswith(f"{tmp_path}/conf.d/10.yaml:1:11: interval: '5' is not a duration")
    assert lines[2] == "2 problems; nothing was changed, the running configuration stays"


def test_one_problem_is_one_problem(tmp_path: Path, capsys: Capture) -> None:
    assert main(["config", "check", "--config", str(tmp_path / "none.yaml")]) == 78
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "1 problem; nothing was changed, the running configuration stays"


def test_show_says_where_each_setting_comes_from(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, "language: zh\nlabels: {site: sh1}\n", **{"10": "budget: {within: 5m}\n"})
    assert main(["config", "show", "--config", path]) == 0
    lines = {line.strip().split(":")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["mode"].split() == ["mode:", "observe", "#", "default"]
    assert lines["language"].split() == ["language:", "zh", "#", f"{path}:1"]
    assert lines["site"].split() == ["site:", "sh1", "#", f"{path}:2"]
    assert lines["within"].split() == ["within:", "5m", "#", f"{tmp_path}/conf.d/10.yaml:1"]
    assert lines["- name"].endswith("# default")


def test_what_show_prints_is_the_same_configuration(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, WHOLE, **{"10": "rules:\n  - {name: gpu-hot, enabled: false}\n"})
    main(["config", "show", "--config", path])
    (tmp_path / "again").mkdir()
    again = load(write(tmp_path / "again", capsys.readouterr().out), channel_types()).settings
    first = load(path, channel_types()).settings
    assert [str(rule).replace(rule.origin, "") for rule in again.rules] == [
        str(rule).replace(rule.origin, "") for rule in first.rules
    ]
    assert replace(again, rules=()) == replace(first, rules=())


def test_show_as_json(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, WHOLE)
    assert main(["config", "show", "--json", "--config", path]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    assert document["files"] == [path]
    assert document["settings"]["alerts"]["channels"][0]["key"] == {"file": "/etc/gpuwatch/key"}
    assert document["settings"]["rules"][-2]["above"] == "60GiB"
    assert document["origins"]["workloads[training]"] == f"{path}:7"
    assert document["origins"]["rules[gpu-hot]"] == "default"


def test_schema_is_json(capsys: Capture) -> None:
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$schema"].startswith("https://json-schema.org/")


@pytest.mark.parametrize(
    "value, text",
    [
        ("observe", "observe"),
        ("no", '"no"'),
        ("12", '"12"'),
        ("a: b", '"a: b"'),
        ("北京", '"北京"'),
        ("30s", "30s"),
        (True, "true"),
        (0.5, "0.5"),
        (["@all", 3], '["@all", 3]'),
        ({"a": {"b": []}}, "{a: {b: []}}"),
    ],
)
def test_values_on_one_line(value: object, text: str) -> None:
    assert flow(value) == text
