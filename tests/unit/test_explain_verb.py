"""gpuwatch explain: numbers, lines, and journal entries however broken."""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.catalog.fields import FLAT
from gpuwatch.cli import explain as verb

CORPUS = Path(__file__).resolve().parent.parent / "corpus" / "lines.jsonl"
LINES = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
KERNEL = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel"}
XID = "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."
OWN = ("class", "alert_severity", "meaning", "next_step")


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    verb.add_parser(parser.add_subparsers())
    args = parser.parse_args(["explain", *words])
    return int(args.run(args))


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the verb on standard input; gives what came out, one object a line."""

    def explain(data: bytes, *words: str) -> list[dict[str, Any]]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert run("--journal-json", *words) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return explain


def test_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("79") == 0
    assert capsys.readouterr().out.startswith("Xid 79: ")
    assert run("Xid", "79", "--language", "zh") == 0
    assert capsys.readouterr().out.startswith("Xid 79：")
    assert run("sxid:20034") == 0
    assert capsys.readouterr().out.startswith("SXid 20034: ")


def test_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("Nov 30 13:45:31 gpu-07 kernel: " + XID) == 0
    assert "Device: 0000:5e:00.0" in capsys.readouterr().out
    assert run("Nov 30 13:45:31 gpu-07 systemd[1]: a.service: Failed with result 'oom-kill'.") == 0
    assert "Unit: a.service" in capsys.readouterr().out
    assert run("RuntimeError: CUDA error: an illegal memory access was encountered") == 0
    assert "anybody can" in capsys.readouterr().out
    assert run("nothing", "here") == 1
    assert "no event" in capsys.readouterr().err


@pytest.mark.parametrize(
    "before",
    [
        "",
        "[12345.678901] ",
        "[   12.678901] ",
        "[Mon Nov 30 13:45:31 2026] ",
        "Nov 30 13:45:31 gpu-07 kernel: ",
        "2026-11-30T13:45:31+0800 gpu-07 kernel: ",
        "2026-11-30T13:45:31.123456+08:00 gpu-07 kernel: ",
    ],
)
def test_what_tools_put_before_a_line(before: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", before + "Out of memory: Killed process 12 (a b) total-vm:1kB, anon-rss:1kB") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["pid"], document["process"]) == ("oom_kill", 12, "a b")


def test_json_is_one_flat_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", XID) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["xid"], document["class"]) == (1, 79, "host_restart")
    assert document["pci"] == "0000:5e:00.0" and document["alert_severity"] == "critical"
    assert {*FLAT, *OWN} <= set(document)
    assert not any(isinstance(value, (dict, list)) for value in document.values())
    assert run("--json", "nothing here") == 1
    assert json.loads(capsys.readouterr().out)["kind"] is None


def test_the_corpus_as_entries(feed: Any) -> None:
    """In order, one object an entry, with the facts that the daemon sees."""
    data = "".join(json.dumps({**line.get("fields", KERNEL), "MESSAGE": line["message"]}) + "\n" for line in LINES)
    found = feed(data.encode())
    assert len(found) == len(LINES)
    for line, row in zip(LINES, found):
        expected = {name: value for name, value in line["expect"].items() if value != "absent"}
        assert {name: row[name] for name in expected} == expected, line["id"]
        assert {*FLAT, *OWN} <= set(row)
        assert (row["kind"] is None) == (row["class"] is None) == (row["meaning"] is None)


def test_trusted_fields_decide(feed: Any) -> None:  # S10
    forged = [{"MESSAGE": XID}, {**KERNEL, "SYSLOG_FACILITY": "1", "MESSAGE": XID}, {**KERNEL, "MESSAGE": XID}]
    found = feed("\n".join(map(json.dumps, forged)).encode())
    assert [row["kind"] for row in found] == [None, None, "xid"]


def test_values_in_every_form_of_journalctl(feed: Any) -> None:  # J9
    entries = [
        {**KERNEL, "MESSAGE": list(XID.encode())},
        {**KERNEL, "MESSAGE": list(b"\xff\xfe" + XID.encode())},
        {**{name: [value, "x"] for name, value in KERNEL.items()}, "MESSAGE": [XID, "other"]},
        {**KERNEL, "MESSAGE": [list(XID.encode()), list(b"other")]},
        {**KERNEL, "SYSLOG_FACILITY": 0, "MESSAGE": XID},
        {**KERNEL, "MESSAGE": None},
        {**KERNEL, "MESSAGE": []},
        {**KERNEL, "MESSAGE": {"a": 1}},
        {**KERNEL, "MESSAGE": [[[["a"]]]]},
        {**KERNEL, "MESSAGE": [1, 2, 999]},
        KERNEL,
    ]
    found = feed("\n".join(map(json.dumps, entries)).encode())
    assert [row["kind"] for row in found] == ["xid", None, "xid", "xid", "xid", *[None] * 6]


@pytest.mark.parametrize(
    "broken",
    [
        b"garbage",
        b"{",
        b"[1, 2]",
        b'"text"',
        b"null",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"MESSAGE":' * 50_000,
        b'{"MESSAGE":' + b"9" * 5_000_000 + b"}",
        b'{"MESSAGE": "\\ud800 \\u0000 \\u001b[31m"}',
        b'{"MESSAGE": "' + b"x" * 2_000_000 + b'"}',
        b'{"MESSAGE": NaN, "__REALTIME_TIMESTAMP": "99999999999999999"}',
        b'{"__REALTIME_TIMESTAMP": "-1", "MESSAGE": 1e999}',
        b'{"a": 1, "a": 2}',
    ],
)
def test_broken_input_never_ends_the_run(broken: bytes, feed: Any) -> None:
    good = json.dumps({**KERNEL, "MESSAGE": XID}).encode()
    found = feed(good + b"\n" + broken + b"\n\n" + good)
    assert [row["kind"] for row in found] == ["xid", None, "xid"]


def test_several_lines_in_one_entry_give_one_object(feed: Any) -> None:  # K1
    text = "NVRM: GPU at PCI:0000:5e:00: GPU-3d9a7c10-52be-4f08-91a6-0c7be2d4158f\n" + XID
    (row,) = feed(json.dumps({**KERNEL, "MESSAGE": text}).encode())
    assert (row["kind"], row["xid"], row["kinds"]) == ("xid", 79, "gpu_identity,xid")


def test_time_is_told(feed: Any) -> None:
    (row,) = feed(json.dumps({**KERNEL, "MESSAGE": XID, "__REALTIME_TIMESTAMP": "1796047740334536"}).encode())
    assert row["time"] == "2026-11-30T14:09:00.334536Z"


def test_a_line_joined_over_entries_is_told_where_it_ends(feed: Any) -> None:
    lines = [
        "Root Cause (first observed failure):",
        "  rank      : 5 (local_rank: 1)",
        "  exitcode  : 1 (pid: 7)",
        "=====",
    ]
    lines[-1] = "=" * 60
    found = feed("\n".join(json.dumps({"_TRANSPORT": "stdout", "MESSAGE": line}) for line in lines).encode())
    assert [(row["kind"], row.get("rank")) for row in found] == [(None, None)] * 3 + [("first_failure", 5)]


@pytest.mark.parametrize("words", [(), ("--journal-json", "79")])
def test_wrong_usage(words: tuple[str, ...]) -> None:
    assert run(*words) == 2
