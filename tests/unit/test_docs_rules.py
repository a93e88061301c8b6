"""The documents on rules: those that ship, how to write one, what is doubted, chosen, held back, and how to try one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from gpuwatch.alerts.channels.options import channel_types
from gpuwatch.catalog import xid
from gpuwatch.catalog.texts import TEXTS
from gpuwatch.catalog.xid import CLASSES
from gpuwatch.cli import main, places
from gpuwatch.config.events import EVENT_KINDS
from gpuwatch.config.load import load
from gpuwatch.config.root import json_schema
from gpuwatch.config.scenario import ScenarioReader
from gpuwatch.model.metric import METRICS
from gpuwatch.model.rule import ACTIONS, Selector
from gpuwatch.policy.plausibility import SUSPECTS, WITNESSES
from gpuwatch.system.holds import HoldFiles
from tests.unit.documents import (
    READMES,
    TREE,
    blocks,
    condition,
    default_rules,
    does,
    man_section,
    marked,
    over,
    raw_table,
    reason_codes,
    row_of,
    rule_line,
    table,
    words_of,
)


@pytest.mark.parametrize("name", READMES)
def test_default_rules_are_those_of_the_catalogue(name: str, tmp_path: Path) -> None:
    rows = [row[:6] for row in table(name, "Rule")]
    assert rows == [row_of(rule) for rule in default_rules(tmp_path).values()]


@pytest.mark.parametrize("name", READMES)
def test_configuration_in_the_readme_is_accepted(name: str, tmp_path: Path) -> None:
    (tmp_path / "gpuwatch.yaml").write_text("mode: observe\n", encoding="utf-8")
    (tmp_path / "conf.d").mkdir()
    for number, block in enumerate(blocks(name, "yaml")):
        (tmp_path / "conf.d" / f"{number}.yaml").write_text(block, encoding="utf-8")
    settings = load(str(tmp_path / "gpuwatch.yaml"), channel_types()).settings
    assert [workload.mode and workload.mode.value for workload in settings.workloads] == ["enforce"]
    assert f"{{file: {settings.channels[0].key.file}}}" in blocks(name, "yaml")[0]
    assert [rule.name for rule in settings.rules if not rule.enabled] == ["xid-link"]
    assert [len(each) for each in (settings.patterns, settings.xid_classes)] == [1, 1]
    rules = {rule.name: rule for rule in settings.rules}
    assert rules["gpu-hot"].only.models == ("*H100*",)
    assert does(rules["gpu-hot"]) == "throttle; after 2m, if no better: stop, hold"
    assert condition(rules["replays"]) == "gpu.pcie_replays grows > 100 in 10m"
    assert condition(rules["fails-often"]) == "unit_failed, 5 in 1h, only units train@*.service"
    assert {"data-full", "loader-waits"} <= rules.keys()


@pytest.mark.parametrize("file", sorted((TREE / "config/conf.d").glob("*.example")), ids=lambda file: file.name)
def test_the_examples_of_conf_d_are_accepted(file: Path, tmp_path: Path) -> None:
    """As copies, beside a workload of that name, as their README says to use them."""
    (tmp_path / "gpuwatch.yaml").write_text('workloads: [{name: training, units: ["train@*.service"]}]\n', "utf-8")
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / file.name.removesuffix(".example")).write_bytes(file.read_bytes())
    before = default_rules(tmp_path / "conf.d")
    loaded = load(str(tmp_path / "gpuwatch.yaml"), channel_types())
    assert {rule.name: rule for rule in loaded.settings.rules} != before


@pytest.mark.parametrize("name", READMES)
def test_the_settings_of_a_rule_are_all_described(name: str) -> None:
    described = [word for row in raw_table(name, words_of(name, "Setting")) for word in marked(row[0])]
    known = set(json_schema(channel_types())["properties"]["rules"]["items"]["properties"])
    assert sorted(described) == sorted(known)


@pytest.mark.parametrize("name", READMES)
def test_what_the_readme_says_about_steps_and_selectors_is_complete(name: str) -> None:
    rows = {row[0]: set(re.findall(r"[a-z_]+", row[1])) for row in table(name, words_of(name, "Setting"))}
    narrows = {word for kind in EVENT_KINDS.values() for word in kind.fields}
    assert {each.name for each in fields(Selector)} <= rows["only"]
    assert {"do", "after", "worse", *ACTIONS} <= rows["ladder"]
    assert {"kind", "count", "within", "different", *narrows} <= rows["event"]


@pytest.mark.parametrize("name", READMES)
def test_reasons_for_doubt_and_witnesses_are_all_described(name: str) -> None:
    suspects, witnesses = (table(name, words_of(name, word)) for word in ("Suspect", "Witness"))
    assert [row[0] for row in suspects] == list(SUSPECTS)
    assert [word for row in witnesses for word in row[0].split(", ")] == list(WITNESSES)


@pytest.mark.parametrize("name", READMES)
def test_reason_codes_in_the_readme_are_ones_that_the_program_gives(name: str) -> None:
    rows = table(name, words_of(name, "What"))
    named = {code for row in rows if len(row) == 2 and row[1] for code in row[1].split(", ")}
    assert len(named) > 10
    assert named - reason_codes() == set()


@pytest.mark.parametrize("name", READMES)
def test_xid_families_are_those_of_the_table(name: str, tmp_path: Path) -> None:
    rules = default_rules(tmp_path)
    rows = table(name, words_of(name, "Class"))
    assert {klass for row in rows for klass in row[0].split(", ")} == set(CLASSES)
    for classes, numbers, rule, ends in rows:
        assert {xid.lookup(int(number)).klass for number in numbers.split(", ")} == set(classes.split(", "))
        mine = [each for each in rules.values() if each.event is not None and classes in each.event.classes]
        first = next((each for each in mine if each.event is not None and each.event.count == 1), None)
        if first is None:
            assert ends == "-"
        else:
            assert (rule, ends) == (first.name, over(first))


@pytest.mark.parametrize("name", READMES)
def test_the_story_of_the_readme_goes_as_it_says(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (story,) = blocks(name, "yaml story")
    (tmp_path / "hot-card.yaml").write_text(story, encoding="utf-8")
    assert main.main(["simulate", str(tmp_path / "hot-card.yaml")]) == main.OK
    assert capsys.readouterr().out == blocks(name, "text")[2]


@pytest.mark.parametrize("name", READMES)
def test_the_parts_of_a_story_are_all_described(name: str) -> None:
    rows = {word: set(marked(row[1])) for row in raw_table(name, words_of(name, "Part")) for word in marked(row[0])}
    schema = ScenarioReader(channel_types()).schema()
    assert list(schema["required"]) == ["story"]
    assert rows.keys() == schema["properties"].keys()
    for part in ("timeline", "expect"):
        assert rows[part] - schema["properties"][part]["items"]["properties"].keys() == set()
    assert schema["properties"]["host"]["properties"].keys() <= rows["host"]


@pytest.mark.parametrize("name", READMES)
def test_drop_ins_are_the_ones_that_are_looked_for(name: str) -> None:
    """What the shell of the admin writes: printf makes % of %%."""
    written = {
        where: text.replace("%%", "%").replace("\\n", "\n")
        for block in blocks(name, "sh")
        for text, where in re.findall(r"^printf '(.*)' > (\S+)$", block, flags=re.MULTILINE)
    }
    hold = written["/etc/systemd/system/train@.service.d/gpuwatch-hold.conf"]
    looked_for = HoldFiles(f"{places.RUN_DIR}/hold").path("%n")
    assert hold == f"[Unit]\nConditionPathExists=!{looked_for}\n"
    throttle = written["/etc/systemd/system/gpuwatch.service.d/throttle.conf"]
    assert throttle == "[Service]\nCapabilityBoundingSet=CAP_SYS_ADMIN\n"


def test_the_unit_lacks_the_capability_that_the_documents_say_it_lacks() -> None:
    unit = (TREE / "systemd/gpuwatch.service").read_text(encoding="utf-8")
    (bounding,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, flags=re.MULTILINE)
    assert "CAP_SYS_ADMIN" not in bounding


def test_what_can_not_be_done_to_containers_is_said() -> None:
    assert "Holding containers" in "".join(row[0] for row in table("README.md", "Not there"))


@pytest.mark.parametrize(
    "title, words",
    [
        ("METRICS", {name: metric.text for name, metric in METRICS.items()}),
        ("EVENTS", {name: kind.text for name, kind in EVENT_KINDS.items()}),
    ],
)
def test_the_man_page_has_all_that_a_rule_can_name(title: str, words: Mapping[str, str]) -> None:
    lines = man_section(title).splitlines()
    heads = {line.split(" (")[0]: after for line, after in zip(lines, lines[1:]) if line.split(" (")[0] in words}
    assert heads == {name: f"{text[:1].upper()}{text[1:]}." for name, text in words.items()}
    if title == "METRICS":
        slow = {name for name, metric in METRICS.items() if metric.every_s != 1}
        assert {line.split(" ")[0] for line in lines if re.search(r"\d s\)$", line)} == slow


def test_the_man_page_has_every_default_rule(tmp_path: Path) -> None:
    lines = man_section("RULES").splitlines()
    rules = default_rules(tmp_path)
    heads = {line: after for line, after in zip(lines, lines[1:]) if line in rules}
    assert heads == {name: rule_line(rule) for name, rule in rules.items()}


def test_the_man_page_has_every_reason_code_in_the_words_of_the_messages() -> None:
    lines = man_section("REASONS").splitlines()
    heads = {line: after for line, after in zip(lines, lines[1:]) if line in reason_codes()}
    assert heads.keys() == reason_codes()
    for code, said in heads.items():
        text = next((TEXTS[key][0] for key in (f"reason.{code}", f"verdict.{code}") if key in TEXTS), said)
        assert said == f"{text[:1].upper()}{text[1:].rstrip('.')}."
