"""The Xid table and its explanation."""

from __future__ import annotations

import argparse
import json
import re

import pytest

from gpuwatch.catalog import xid
from gpuwatch.catalog.explain import explain_line, explain_xid
from gpuwatch.cli import explain as verb
from gpuwatch.model.rule import Severity

LANGUAGES = ("en", "zh")


def test_the_table_is_complete() -> None:
    assert xid.numbers() == tuple(range(1, 173))


@pytest.mark.parametrize("number", xid.numbers())
def test_every_code_has_facts_and_words(number: int) -> None:
    entry = xid.lookup(number)
    assert entry.known and entry.klass in xid.CLASSES and re.fullmatch(r"[A-Z0-9_]+( / [A-Z0-9_]+)?", entry.mnemonic)
    assert xid.action_text(entry.action, "en") != entry.action
    assert entry.sentence("en").isascii() and entry.sentence("en").endswith(".")
    assert entry.sentence("zh").endswith("。") and not entry.sentence("zh").isascii()
    for language in LANGUAGES:
        assert xid.class_name(entry.klass, language)
        assert len(explain_xid(number, language).lines()) >= 4


@pytest.mark.parametrize(
    "number, klass, severity",
    [
        (13, "application", Severity.INFO),
        (31, "application", Severity.INFO),
        (45, "application", Severity.INFO),
        (48, "gpu_reset", Severity.CRITICAL),
        (63, "informational", Severity.INFO),
        (64, "hardware", Severity.CRITICAL),
        (74, "link", Severity.CRITICAL),
        (79, "host_restart", Severity.CRITICAL),
        (94, "application", Severity.WARNING),
        (95, "gpu_reset", Severity.CRITICAL),
        (106, "ignore", Severity.INFO),
        (119, "gpu_reset", Severity.CRITICAL),
        (120, "gpu_reset", Severity.CRITICAL),
        (145, "link", Severity.WARNING),
        (171, "hardware", Severity.CRITICAL),
        (173, "unknown", Severity.WARNING),
        (0, "unknown", Severity.WARNING),
    ],
)
def test_well_known_codes(number: int, klass: str, severity: Severity) -> None:
    entry = xid.lookup(number)
    assert (entry.klass, entry.severity) == (klass, severity)


def test_explain_a_number() -> None:
    lines = explain_xid(79).lines()
    assert lines[0] == 'Xid 79: the GPU is no longer reachable over PCIe ("fallen off the bus").'
    assert lines[1] == "Class: reboot required · NVIDIA's immediate action: restart the bare-metal host"
    assert explain_xid(79, "zh").lines()[1] == "类别：需要重启主机 · NVIDIA 建议的立即处理：重启物理机"


def test_an_unknown_number_is_explained_as_unknown() -> None:
    explanation = explain_xid(4711)
    assert (explanation.known, explanation.klass, explanation.severity) == (False, "unknown", Severity.WARNING)


@pytest.mark.parametrize("before", ["", "Nov 30 13:45:31 gpu-07 kernel: ", "[12345.678901] "])
def test_explain_a_line(before: str) -> None:
    line = before + "NVRM: Xid (PCI:0000:61:00): 45, pid=59620, name=py, Ch 0000000a, caused by previous Xid 109"
    explanation = explain_line(line)
    assert explanation is not None and explanation.number == 45
    text = "\n".join(explanation.lines())
    assert "0000:61:00.0" in text and "py (pid 59620); a hint only" in text and "Xid 109" in text


def test_the_line_outranks_the_table() -> None:
    line = "NVRM: Xid (PCI:0000:9c:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    explanation = explain_line(line)
    assert explanation is not None and explanation.klass == "host_restart"


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    verb.add_parser(parser.add_subparsers())
    args = parser.parse_args(["explain", *words])
    return int(args.run(args))


def test_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("79") == 0
    assert capsys.readouterr().out.startswith("Xid 79: ")
    assert run("Xid", "79", "--language", "zh") == 0
    assert capsys.readouterr().out.startswith("Xid 79：")
    assert run("--json", "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["xid"], document["class"]) == (1, 79, "host_restart")
    assert document["facts"]["pci"] == "0000:5e:00.0"
    assert run("nothing", "here") == 1
    assert "no Xid" in capsys.readouterr().err
