"""Every rule that ships is proven by stories (tests/scenarios/stories): one in which it fires, one in which it must
not, one in which it clears, so its metric was moved there, too. That they go so is for tests/scenarios/test_stories.py;
here none may be missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from gpuwatch.alerts.channels.options import channel_types
from gpuwatch.catalog.default_rules import default_rules_text
from gpuwatch.config.scenario import ScenarioReader
from gpuwatch.model.rule import Rule
from gpuwatch.simulation.scenario import CLEARS, FIRES, Expectation, Scenario

STORIES = Path(__file__).parents[1] / "scenarios" / "stories"
NAMES: tuple[str, ...] = tuple(rule["name"] for rule in yaml.safe_load(default_rules_text())["rules"])


@cache
def read() -> tuple[tuple[Scenario, dict[str, Rule]], ...]:
    """Every story with the rules that it is played to."""
    reader, found = ScenarioReader(channel_types()), []
    for path in sorted(STORIES.glob("**/*.yaml")):
        scenario, settings = reader.read(path.read_bytes(), path.name)
        found.append((scenario, {rule.name: rule for rule in settings.rules}))
    return tuple(found)


def expectations(rule: str, verb: str, never: bool) -> Iterator[Expectation]:
    """Of stories in which the rule is as it ships."""
    for scenario, rules in read():
        if rules[rule].origin == "default":
            yield from (each for each in scenario.expect if (each.verb, each.name, each.never) == (verb, rule, never))


@pytest.mark.parametrize("rule", NAMES)
def test_each_rule_is_proven_to_fire_not_to_fire_and_to_clear(rule: str) -> None:
    proofs = {
        f"no story has {{fires: {rule}}}": list(expectations(rule, FIRES, False)),
        f"no story has {{never: {rule}}}": list(expectations(rule, FIRES, True)),
        f"no story has {{clears: {rule}}}": list(expectations(rule, CLEARS, False)),
    }
    assert [words for words, found in proofs.items() if not found] == []


@cache
def _rules_of_a_bare_story() -> dict[str, Rule]:
    settings = ScenarioReader(channel_types()).read(b"story: nothing", "bare.yaml")[1]
    return {rule.name: rule for rule in settings.rules}


@pytest.mark.parametrize("rule", [name for name, rule in _rules_of_a_bare_story().items() if rule.quiet_for_s is None])
def test_what_ends_with_a_restart_of_the_host_is_seen_to_end_so(rule: str) -> None:
    assert any(each.reason == "rebooted" for each in expectations(rule, CLEARS, False))


def test_each_rule_says_why_it_is_there() -> None:
    lines = default_rules_text().decode().splitlines()
    mute = []
    for number, line in enumerate(lines):
        name = re.fullmatch(r"  - name: ([\w-]+)", line)
        if name is not None and not lines[number - 1].strip().startswith("#"):
            mute.append(name[1])
    assert mute == []
