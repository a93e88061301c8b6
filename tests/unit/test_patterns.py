"""The shipped patterns as data: complete, bounded, and each with its line in the corpus."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.catalog import compile_patterns, entry, judge, kernel, patterns
from gpuwatch.catalog.fields import FIELDS
from gpuwatch.config.events import EVENT_KINDS

CORPUS = Path(__file__).resolve().parent.parent / "corpus" / "lines.jsonl"
LINES = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
ROWS = patterns.shipped()
NAMES = [f"{row['source']}-{row['name']}" for row in ROWS]
HERE = Path(compile_patterns.__file__).parent


def test_the_compiled_files_are_those_of_the_sources() -> None:
    again = "run: python -m gpuwatch.catalog.compile_patterns"
    assert (HERE / "patterns.json").read_text("utf-8") == compile_patterns.dumped(compile_patterns.patterns()), again
    assert (HERE / "kinds.json").read_text("utf-8") == compile_patterns.dumped(compile_patterns.kinds()), again


def test_names_are_unique() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_row(row: dict[str, Any]) -> None:
    known = {
        "name", "source", "kind", "starts", "holds", "pattern", "reader", "units", "bare", "message_id", "fields",
        "values", "set",
    }  # fmt: skip
    assert set(row) <= known
    assert row.get("starts") or row.get("holds") or re.fullmatch("[0-9a-f]{32}", row["message_id"])
    assert len(row.get("starts", "abc")) >= 3 and len(row.get("holds", "abcd")) >= 4
    assert not ("pattern" in row and "reader" in row)
    groups = set(re.compile(row["pattern"]).groupindex) if "pattern" in row else set()
    assert groups - set(row.get("values", {})) <= set(FIELDS)
    assert set(row.get("values", {})) <= groups
    assert set(row.get("fields", {})) | set(row.get("set", {})) <= {*FIELDS, "fatal", "cleared"}
    assert row["kind"] is None or row["kind"] in judge.kinds()


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_repetitions_are_bounded(row: dict[str, Any]) -> None:
    """No line may take long, so no pattern of ours repeats without a limit but for white space."""
    for found in re.finditer(r"(?<!\\)[*+]", re.sub(r"\[[^\]]*\]|\\.|\(\?", "C", row.get("pattern", ""))):
        assert re.sub(r"\[[^\]]*\]|\\.|\(\?", "C", row["pattern"])[found.start() - 1] == " "


def _lines_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines of the corpus that the pattern itself reads."""
    readers = {"xid": kernel.parse, "gpu_init_failed": kernel.parse, "oom": kernel.parse, "oomd": lambda line: None}
    (pattern,) = patterns.build([row], readers)
    found = []
    for line in LINES:
        fields, text = line.get("fields", {"_TRANSPORT": "kernel"}), line["message"]
        if row.get("message_id"):
            hit = fields.get("MESSAGE_ID") == row["message_id"]
            if hit or not row.get("starts"):
                found += [line] * hit
                continue
        if row["source"] == "manager" and not row.get("bare"):
            text = text.partition(": ")[2]
        text = text.replace("\nNVRM: ", " ")
        for part in text.split("\n"):
            if part.startswith(row.get("starts", "")) and row.get("holds", "") in part:
                found += [line] * (row.get("reader") == "oomd" or pattern.read(part) is not None)
    return found


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_every_pattern_has_a_line_in_the_corpus(row: dict[str, Any]) -> None:
    kinds = {line["expect"]["kind"] for line in _lines_of(row)}
    assert kinds
    if row["kind"] is not None:
        derived = {"unit_started": "runtime_restart", "unit_stopping": "runtime_restart"}
        assert row["kind"] in kinds or derived.get(row["kind"]) in kinds


# Kinds ------------------------------------------------------------------------------------------------


def test_kinds_have_words() -> None:
    for kind, row in compile_patterns.kinds().items():
        assert set(row) - {"user"} == {"class", "severity", "en", "zh", "next_en", "next_zh"}, kind
        assert row["class"] in judge.CLASSES and row["severity"] in ("info", "warning", "critical")
        assert row["en"].isascii() and row["en"].endswith(".") and row["zh"].endswith("。")
        assert row["next_en"].isascii() and row["next_zh"]


def test_details_never_alert() -> None:
    for kind, row in compile_patterns.kinds().items():
        if kind.endswith(("_detail", "_context", "_invoked")):
            assert row["severity"] == "info", kind


def test_what_anybody_can_write_has_kinds_of_its_own() -> None:  # S10
    of_users = {row["kind"] for row in ROWS if row["source"] == "workload"}
    of_others = {row["kind"] for row in ROWS if row["source"] != "workload"}
    assert not of_users & of_others
    assert all(judge.is_user_kind(str(kind)) for kind in of_users)
    assert not any(judge.is_user_kind(str(kind)) for kind in of_others)


def test_no_rule_can_name_what_anybody_can_write_and_find_a_victim_by_it() -> None:  # S10
    for name, kind in EVENT_KINDS.items():
        assert not (judge.is_user_kind(name) and kind.of_gpu)


@pytest.mark.parametrize(
    "facts, severity",
    [
        ({"kind": "pcie_aer", "severity": "corrected"}, "info"),
        ({"kind": "pcie_aer", "severity": "nonfatal"}, "warning"),
        ({"kind": "pcie_aer", "severity": "fatal"}, "critical"),
        ({"kind": "pcie_aer", "severity": None}, "warning"),
        ({"kind": "edac", "severity": "corrected"}, "info"),
        ({"kind": "mce", "fatal": True}, "critical"),
        ({"kind": "mce", "fatal": False}, "warning"),
        ({"kind": "cpu_thermal", "cleared": False}, "warning"),
        ({"kind": "cpu_thermal", "cleared": True}, "info"),
        ({"kind": "nfs_stall", "cleared": True}, "info"),
        ({"kind": "fabric_error", "fatal": True}, "critical"),
        ({"kind": "unit_failed", "result": "oom-kill"}, "warning"),
        ({"kind": "unit_failed", "result": "exit-code"}, "info"),
        ({"kind": "log_match", "alert_severity": "critical"}, "critical"),
        ({"kind": "of a later version"}, "warning"),
    ],
)
def test_the_line_says_how_grave_it_is(facts: dict[str, Any], severity: str) -> None:
    assert judge.judge(facts)[1].value == severity


# Dispatch ---------------------------------------------------------------------------------------------


def test_the_first_written_wins() -> None:
    rows = [
        {"name": "a", "source": "x", "kind": "a", "holds": "needle", "pattern": "needle 1"},
        {"name": "b", "source": "x", "kind": "b", "holds": "other"},
        {"name": "c", "source": "x", "kind": "c", "holds": "needle"},
    ]
    table = patterns.Table(patterns.build(rows, {}))
    kinds = [(table.read(text) or {}).get("kind") for text in ("needle 1 other", "needle other", "needle", "none")]
    assert kinds == ["a", "b", "c", None]


def test_a_line_has_both_literals() -> None:
    rows = [{"name": "a", "source": "x", "kind": "a", "starts": "NVRM: ", "holds": "bus"}]
    table = patterns.Table(patterns.build(rows, {}))
    assert table.read("NVRM: the bus") and not table.read("NVRM: the car") and not table.read("the bus")


def test_services_can_be_asked_for() -> None:
    assert {"docker.service", "chronyd.service", "systemd-logind.service"} <= entry.service_units()
