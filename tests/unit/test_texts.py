"""Both languages say the same things, and there is a text for everything that may have to be said."""

from __future__ import annotations

import string
from typing import Any

import pytest
import yaml

from gpuwatch.actions.targets import CODES
from gpuwatch.alerts.topics import topic_of
from gpuwatch.catalog.default_rules import default_rules_text
from gpuwatch.catalog.judge import next_step
from gpuwatch.catalog.texts import LANGUAGES, TEXTS, text
from gpuwatch.model import reason
from gpuwatch.model.metric import METRICS
from gpuwatch.policy.plausibility import SUSPECTS, WITNESSES
from gpuwatch.policy.victims import LOST_LIST, NOT_UNITS, VERDICTS

# Progress, not an answer to "why not": these never end a sentence.
PROGRESS = {
    reason.PENDING,
    reason.FIRED,
    reason.AGAIN,
    reason.CLEARED,
    reason.HISTORY,
    reason.PLANNED,
    reason.PRESERVED,
    reason.WARNED,
    reason.CHECKPOINTED,
    reason.SENT,
    reason.SENT_AGAIN,
    reason.KILLED,
    reason.GONE,
    reason.VERIFIED,
}
ENDINGS = {reason.RULE_CHANGED, reason.REBOOTED}


def names(template: str) -> list[str]:
    return sorted(name for _, name, _, _ in string.Formatter().parse(template) if name)


@pytest.mark.parametrize("key", sorted(TEXTS))
def test_languages_agree(key: str) -> None:
    entry = TEXTS[key]
    assert len(entry) == len(LANGUAGES)
    assert all(each.strip() for each in entry)
    assert names(entry[0]) == names(entry[1])
    assert all(name.isidentifier() for name in names(entry[0])), "no attribute or index access in a template"


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_every_metric_has_a_name(metric: str) -> None:
    assert f"metric.{metric}" in TEXTS


@pytest.mark.parametrize(
    "code", sorted({value for name, value in vars(reason).items() if name.isupper()} - PROGRESS - ENDINGS)
)
def test_every_reason_has_words(code: str) -> None:
    assert f"reason.{code}" in TEXTS


@pytest.mark.parametrize("code", [*VERDICTS, LOST_LIST, NOT_UNITS])
def test_every_verdict_on_a_victim_has_words(code: str) -> None:
    assert f"verdict.{code}" in TEXTS or f"reason.{code}" in TEXTS


@pytest.mark.parametrize("key", [*(f"suspect.{each}" for each in SUSPECTS), *(f"witness.{each}" for each in WITNESSES)])
def test_every_doubt_and_witness_has_words(key: str) -> None:
    assert key in TEXTS


@pytest.mark.parametrize("rule", yaml.safe_load(default_rules_text())["rules"], ids=lambda rule: str(rule["name"]))
def test_every_shipped_rule_has_a_title_and_a_first_advice(rule: dict[str, Any]) -> None:
    event = rule.get("event", {})
    kind = event["kind"] if isinstance(event, dict) and event else event
    topic = topic_of({"metric": rule.get("metric"), "kind": kind, kind or "": 1})
    if topic == "metric":
        assert f"title.{rule['metric']}" in TEXTS and f"next.{rule['metric']}" in TEXTS
    elif topic == "event":
        assert f"title.event.{kind}" in TEXTS
        assert f"next.event.{kind}" in TEXTS or next_step({"kind": kind}, "zh")
    else:
        assert topic != "rule"


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_refusal_has_words(code: str) -> None:
    assert f"reason.{code}" in TEXTS


@pytest.mark.parametrize("code", sorted(ENDINGS))
def test_every_early_end_has_words(code: str) -> None:
    assert f"closed.{code}" in TEXTS


def test_parameters_are_not_templates() -> None:
    assert text("en", "title.rule", rule="{0.__class__}") == "rule {0.__class__}"
