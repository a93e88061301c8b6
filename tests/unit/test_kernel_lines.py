"""Lines of the kernel and of PID 1: the corpus, the traps of the field, and lines made to break the parser."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.catalog import entry, judge, kernel
from gpuwatch.catalog.text import clean
from gpuwatch.model.instant import Instant
from gpuwatch.sources.journal import JournalSource
from gpuwatch.system.protocols import JournalBatch, JournalEntry

CORPUS = Path(__file__).resolve().parent.parent / "corpus" / "lines.jsonl"
LINES = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
KERNEL = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel"}
MANAGER = {"_TRANSPORT": "journal", "_PID": "1"}
WRITERS = (
    KERNEL,
    MANAGER,
    {**MANAGER, "UNIT": "a.service", "MESSAGE_ID": "98e322203f7a4ed290d09fe03c09fe15", "EXIT_STATUS": "x\ny"},
    {"_TRANSPORT": "driver"},
    {"_TRANSPORT": "stdout", "_SYSTEMD_UNIT": "docker.service"},
    {"_TRANSPORT": "stdout", "_SYSTEMD_UNIT": "train.service", "_PID": "7"},
)
NOW = Instant("b" * 32, 1000.0, 1_764_500_000.0)


@pytest.mark.parametrize("line", LINES, ids=[line["id"] for line in LINES])
def test_corpus(line: dict[str, Any]) -> None:
    fields = {**line.get("fields", KERNEL), "MESSAGE": line["message"]}
    batch = JournalBatch((JournalEntry("c", 1, 1, "b" * 32, fields),))
    events = JournalSource(interest=lambda unit: True).events(batch, NOW)
    if line["expect"]["kind"] is None:
        assert events == ()
        return
    (event,) = events
    found = {"kind": event.kind, **event.fields}
    assert event.fields["class"] in judge.CLASSES and event.fields["alert_severity"] in ("info", "warning", "critical")
    assert {name: found.get(name, "absent") for name in line["expect"]} == line["expect"]


def test_several_lines_in_one_record() -> None:  # K1
    text = (
        "NVRM: GPU at PCI:0000:5e:00: GPU-3d9a7c10-52be-4f08-91a6-0c7be2d4158f\n"
        "NVRM: GPU Board Serial Number: 1650000000001\n"
        "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.\n"
        "NVRM: GPU 0000:5e:00.0: GPU has fallen off the bus."
    )
    assert [facts["kind"] for facts in kernel.parse_entry(text)] == ["gpu_identity", "gpu_serial", "xid", "gpu_lost"]


@pytest.mark.parametrize("name", ["NVRM: Xid : 79", "\nNVRM: Xid : 79", "x\nNVRM: Xid", "), 79, GPU-I"])
def test_a_process_name_forges_nothing(name: str) -> None:
    line = f"NVRM: Xid (PCI:0000:af:00): 31, pid=48213, name={name}, Ch 00000008, intr 00000000"
    found = kernel.parse_entry(line)
    assert [(facts["kind"], facts["xid"], facts["pci"]) for facts in found] == [("xid", 31, "0000:af:00.0")]


def test_a_process_name_is_no_cause_and_no_recovery() -> None:
    line = "NVRM: Xid (PCI:0000:af:00): 31, pid=1, name=Link 7 Fatal, Ch 00000008"
    facts = kernel.parse(line)
    assert facts is not None and facts["process"] == "Link 7 Fatal" and "fatal" not in facts


@pytest.mark.parametrize("pid", ["0", "4294967295", "9999999999"])
def test_a_pid_that_can_not_be_is_none(pid: str) -> None:
    facts = kernel.parse(f"NVRM: Xid (PCI:0000:af:00): 31, pid={pid}, name=x, Ch 1")
    assert facts is not None and facts["pid"] is None and facts["xid"] == 31


STARTS = st.sampled_from(
    [
        "",
        "NVRM: ",
        "NVRM: Xid ",
        "NVRM: Xid (PCI:0000:5e:00): ",
        "NVRM: Xid (PCI:0000:5e:00): 154, GPU recovery action changed from 0x",
        "NVRM: Xid (PCI:0000:5e:00): 31, pid=1, name=",
        "NVRM: GPU at PCI:",
        "NVRM: GPU 0000:5e:00.0: RmInitAdapter ",
        "nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): ",
        "oom-kill:constraint=CONSTRAINT_MEMCG,",
        "Out of memory: Killed process 1 (",
        "Memory cgroup out of memory: ",
        "Task in /",
        "oom_reaper: reaped process ",
        "a.service: ",
        "Suppressed ",
        "pcieport 0000:00:1c.5: AER: ",
        "mce: [Hardware Error]: CPU ",
        "EXT4-fs (",
        "a[1]: segfault at ",
        "INFO: task ",
        'time="',
        "RuntimeError: CUDA error: ",
        "NCCL error in: ",
        "CUDA out of memory. ",
        "slurmstepd: error: ",
    ]
)
TEXT = st.text(
    st.one_of(st.sampled_from("0123456789abcdefxX:.,()'<>=\n\x00\x1b /"), st.characters(codec="utf-8")), max_size=200
)
# Bytes that are not UTF-8 reach the parser as the journal adapter decodes them.
BYTES = st.binary(max_size=200).map(lambda data: data.decode("utf-8", "replace"))


@given(STARTS, st.one_of(TEXT, BYTES), STARTS, TEXT)
@settings(max_examples=400, deadline=None)
def test_no_line_raises(start: str, middle: str, second: str, end: str) -> None:
    line = start + middle + second + end
    for writer in WRITERS:
        for facts in entry.read({**writer, "MESSAGE": line}):
            assert isinstance(facts["kind"], str)
            assert all(value is None or isinstance(value, (str, int, bool)) for value in facts.values())
            assert all(value.isprintable() for value in facts.values() if isinstance(value, str))
            klass, severity = judge.judge(facts)
            assert klass in judge.CLASSES and judge.meaning(facts, "zh") and judge.next_step(facts, "en") and severity
    shown = clean(line)
    assert len(shown) <= 1000 and shown.isprintable()


@pytest.mark.parametrize(
    "start",
    [
        "",
        "NVRM: ",
        "NVRM: Xid (",
        "NVRM: loading NVIDIA UNIX ",
        "nvidia-nvswitch0: SXid (",
        "oom-kill:constraint=",
        "Task in /",
        "INFO: task ",
        "XFS (",
        "a[1]: segfault at ",
        "nvme nvme0: ",
        "CUDA out of memory ",
        "NCCL error ",
        "NCCL WARN ",
        "Watchdog caught collective operation timeout: WorkNCCL(",
        "OOM when allocating tensor ",
    ],
)
@pytest.mark.parametrize(
    "filler",
    [
        "a",
        "0",
        " ",
        "\n",
        "NVRM: Xid (",
        ", ",
        "(",
        "0000:",
        "GSP RPC ",
        ",task=",
        "Timeout waiting for ",
        "failed! (0x",
        "\x00",
        " in libcuda",
        ", unhandled ",
        "GPU ",
        "OpType=",
        "I/O ",
    ],
)
def test_a_megabyte_takes_no_time(start: str, filler: str) -> None:
    line = start + filler * (1_000_000 // len(filler))
    began = time.process_time()
    for writer in WRITERS:
        entry.read({**writer, "MESSAGE": line})
    clean(line)
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize(
    "dirty, shown",
    [
        ("a\x00b\x1b[31mc", "a\ufffdb\ufffd[31mc"),
        ("  two\r\n lines\t", "two lines"),
        ("a\u202eb\u2028c", "a\ufffdb c"),
        ("显卡", "显卡"),
        ("x" * 1001, "x" * 999 + "…"),
    ],
)
def test_clean(dirty: str, shown: str) -> None:
    assert clean(dirty) == shown
