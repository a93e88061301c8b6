"""Model values to JSON and back."""

from __future__ import annotations

import json

import pytest

from gpuwatch.model.codec import decode, encode
from gpuwatch.model.incident import Incident, IncidentState, Subject
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent
from gpuwatch.model.reading import Reading
from gpuwatch.model.rule import Rule, Severity
from gpuwatch.policy.state import PolicyState
from tests.fakes.story import SETTINGS, Story, at


def test_a_policy_state_comes_back_equal() -> None:
    story = Story()
    story.run(range(0, 8))
    data = json.loads(json.dumps(encode(story.state)))
    assert decode(PolicyState, data) == story.state


def test_rules_and_settings_come_back_equal() -> None:
    for rule in SETTINGS.rules:
        assert decode(Rule, json.loads(json.dumps(encode(rule)))) == rule


def test_what_a_newer_version_added_is_ignored_and_what_is_missing_has_its_default() -> None:
    data = encode(Incident(1, "h#1", Subject("host", ""), "host", IncidentState.OPEN, Severity.WARNING, at(1)))
    data["from_the_future"] = 1
    del data["story"]
    assert decode(Incident, data).story == ()


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Instant, []),
        (Instant, {"boot_id": 1, "boottime_s": 1.0, "utc_s": 1.0}),
        (Instant, {"boot_id": "1"}),
        (Intent, {"id": "x"}),
        (Incident, {"number": "1"}),
        (Reading, {"value": None, "problem": None}),
    ],
)
def test_other_data_is_an_error(kind: type, data: object) -> None:
    with pytest.raises((TypeError, KeyError, ValueError)):
        decode(kind, data)


def test_whole_numbers_are_fine_as_floats() -> None:
    assert decode(Instant, {"boot_id": "1", "boottime_s": 1, "utc_s": 2}) == Instant("1", 1.0, 2.0)
