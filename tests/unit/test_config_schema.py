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
from tests.unit.config_files import problems
from tests.unit.test_config_load import EXAMPLES, SHIPPED, WHOLE, uncommented
from tests.unit.test_config_rules import EVERY_RULE

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
        EVERY_RULE,
        *(path.read_text(encoding="utf-8") for path in EXAMPLES),
    ],
)
def test_it_accepts_what_the_loader_accepts(validator: Any, text: str) -> None:
    assert [error.message for error in validator.iter_errors(yaml.safe_load(text))] == []


UNIT = "workloads:\n  - name: w\n    units: [a.service]\n"
RULE = "rules:\n  - name: r\n    severity: warning\n"
CHANNEL = "alerts:\n  channels:\n    - name: ops\n      type: wecom\n"


@pytest.mark.parametrize(
    "text",
    [
        "mode: enforse",
        "modee: observe",
        "mode: [observe]",
        "interval: 30",
        "interval: soon",
        "labels: {a: [1]}",
        "labels: {'a b': 1}",
        "budget: {destructive: -1}",
        "budget: {inside: 5m}",
        "throttle: {gpus: ['3']}",
        "throttle: {step: 0.15}",
        "grace: {start: 30}",
        "evidence: {keep: {count: 1}}",
        "workloads: training",
        "workloads: [{name: w}]",
        "workloads: [{units: [a.service]}]",
        "workloads: [{name: w, units: []}]",
        "workloads: [{name: w, enabled: true}]",
        UNIT + "    containers: []",
        UNIT + "    containers: ['a b']",
        UNIT + "    gpu_memory_limit: 60G",
        UNIT + "    allow: [freeze]",
        UNIT + "    priority: high",
        UNIT + "    stop: {checkpoint: {}}",
        RULE,
        RULE + "    event: xidd",
        RULE + "    event: {codes: [79]}",
        RULE + "    event: {kind: xid, classes: [links]}",
        RULE + "    event: xid\n    for: 5s",
        RULE + "    event: xid\n    metric: gpu.temperature\n    above: 90",
        RULE + "    metric: gpu.temperture\n    above: 90",
        RULE + "    metric: gpu.temperature",
        RULE + "    metric: gpu.temperature\n    above: hot",
        RULE + "    metric: gpu.temperature\n    above: 90\n    below: 10",
        RULE + "    metric: gpu.temperature\n    above: 90\n    quiet_for: 5m",
        RULE + "    metric: gpu.temperature\n    above: 90\n    ladder: [stop]",
        RULE + "    metric: gpu.temperature\n    above: 90\n    unless_supported: host.driver_silent",
        "rules: [{name: r, event: xid}]",
        RULE + "    event: xid\n    change_over: 10m",
        RULE + "    event: xid\n    keep: 10m",
        RULE + "    event: {kind: xid, count: 0, within: 1h}",
        RULE + "    event: {kind: xid, count: 2, within: 1h, different: pids}",
        RULE + "    event: xid\n    only: {gpus: ['3']}",
        RULE + "    event: xid\n    only: {cards: [GPU-3d9a*]}",
        RULE + "    event: xid\n    only: {models: []}",
        "patterns: [{name: p}]",
        "patterns: [{name: p, literal: abc}]",
        "patterns: [{name: p, literal: abcd, severity: loud}]",
        "patterns: [{name: p, literal: abcd, units: [a b]}]",
        "patterns: [{name: p, literal: abcd, regex: x}]",
        "patterns: [{name: p, literal: abcd, meaning: ' '}]",
        "xid_classes: [{xid: 31, class: link}]",
        "xid_classes: [{xid: 31, class: links, reason: x}]",
        "xid_classes: [{xid: 0, class: link, reason: x}]",
        "xid_classes: [{xid: 31, enabled: true}]",
        "xid_classes: [{xid: 31, class: link, reason: x, until: tomorrow}]",
        CHANNEL,
        CHANNEL + "      key: 693a91f6-7a3c-4bc4-97a0-0ec2ffa5aaaa",
        CHANNEL + "      key: {credential: 693a91f6-7a3c-4bc4-97a0-0ec2ffa5aaaa}",
        CHANNEL + "      key: {file: wecom.key}",
        CHANNEL + "      key: {file: /k}\n      url: http://example.com",
        CHANNEL + "      key: {file: /k}\n      severities: [info]",
        "alerts: {channels: [{name: m, type: email, key: {file: /k}}]}",
    ],
)
def test_both_reject_it(tmp_path: Path, validator: Any, text: str) -> None:
    assert not validator.is_valid(yaml.safe_load(text))
    assert problems(tmp_path, text)


def test_every_setting_is_described() -> None:
    for path, setting in walk(root_table(channel_types()).settings):
        assert setting.help.endswith(".") or ":" in setting.help, path
