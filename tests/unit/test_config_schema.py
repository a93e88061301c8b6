"""The JSON Schema is made from the table, is what lies in the tree, and agrees with the loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gpuwatch.alerts.channels.options import channel_types
from gpuwatch.catalog.default_rules import default_rules_text
from gpuwatch.cli.config import schema_text
from gpuwatch.config.root import json_schema, root_table
from gpuwatch.config.table import walk
from tests.unit.test_config_load import SHIPPED, WHOLE, uncommented
from tests.unit.test_config_mistakes import MISTAKES

KEPT = Path(__file__).parents[2] / "gpuwatch" / "config" / "gpuwatch.schema.json"


@pytest.fixture(scope="module")
def validator() -> Any:
    """The schema, itself checked."""
    schema = json_schema(channel_types())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_schema_in_the_tree_is_the_one_that_is_made() -> None:
    assert KEPT.read_text(encoding="utf-8") == schema_text(), (
        "run: gpuwatch config schema > gpuwatch/config/gpuwatch.schema.json"
    )


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "rules:\nworkloads:\nlabels:\n",
        "rules: [{name: gpu-hot, enabled: false}]",
        WHOLE,
        default_rules_text().decode(),
        SHIPPED.read_text(encoding="utf-8"),
        uncommented(SHIPPED.read_text(encoding="utf-8")),
    ],
)
def test_it_accepts_what_the_loader_accepts(validator: Any, text: str) -> None:
    assert [error.message for error in validator.iter_errors(yaml.safe_load(text))] == []


# What a schema can't say: ranges of durations and of metrics, what fits together, names of units, secrets.
BEYOND = (
    "is outside",
    "would clear while",
    "clears on the side",
    "not a number of degrees",
    "not a ratio",
    "not a size",
    "not a duration such as 30s; ",
    "no reading can",
    "is a slice",
    "names every unit",
    "login session",
    "gpuwatch never touches",
    "has no unit suffix",
    "is a .timer unit",
    "in the list already",
    "in this file already",
    "belongs to workload",
    "to turn off",
    "needs 'above' or 'below'",
    "rule's own metric",
    "can't stop anything",
    "nobody is told",
    "has no codes",
    "has no",
    "needs one of 'credential'",
    "holds a key",
    "given twice",
    "without their",
    "'long' is not a duration",
    "'90C'",
    "rules[0].clear",
)


@pytest.mark.parametrize("text", [text for text, problem in MISTAKES if not any(words in problem for words in BEYOND)])
def test_it_rejects_what_the_loader_rejects(validator: Any, text: str) -> None:
    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return  # no schema is asked about what is not YAML
    if isinstance(data, dict) and "<<" not in text and "&a" not in text and "---" not in text:
        assert not validator.is_valid(data), data


def test_every_setting_is_described() -> None:
    for path, setting in walk(root_table(channel_types()).settings):
        assert setting.help.endswith(".") or ":" in setting.help, path
