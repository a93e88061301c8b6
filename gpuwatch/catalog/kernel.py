"""What lines of the kernel log mean. Pure; no line makes it raise or take long.

The caller vouches that the line really comes from the kernel (S10). Names of processes in it are
still chosen by users: at most 15 bytes of anything, so they are looked for from the right or
between fixed words, and never decide anything (S11).

The lines are those of patterns_kernel.yaml; here is what needs more than one expression. An Xid has xid, pci,
gpu_instance, compute_instance, pid, process, and where the line says so link, fatal, caused_by, recovery_from,
recovery_to, nvlink_unit, error_status and intr_info; xid_unparsed has the number if that can be read.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Optional

from gpuwatch.catalog import oom, patterns
from gpuwatch.catalog.fields import Facts
from gpuwatch.catalog.patterns import MOST_CHARACTERS
from gpuwatch.catalog.text import clean
from gpuwatch.model import pci as pci_addresses

MOST_LINES = 64

canonical = lru_cache(maxsize=256)(pci_addresses.canonical)  # storms name the same few cards

_DEVICE = re.compile(r"(?:PCI:)?([0-9A-Fa-f:.]{7,20})(?: GPU-I:([0-9]{1,4}))?(?: GPU-CI:([0-9]{1,4}))?")
_XID = re.compile(r"NVRM: Xid \(([^()]{1,80})\): ([0-9]{1,6})(?:, ?|$)(.*)", re.DOTALL)
_XID_NUMBER = re.compile(r"NVRM: Xid[^0-9]{0,4}: ([0-9]{1,6})\b")
_PID = re.compile(r"pid=(?:([0-9]{1,10})|'?<unknown>'?)(?:, |$)")
_NAME = re.compile(r"name=")
# How the driver's own text goes on behind a process name; tells a comma in the name from the one after it.
_DETAIL = re.compile(
    r"Ch |[Cc]hannel |Graphics |GPU |An uncorrectable|Row Remapper|Contained|Uncontained|NVLink|Timeout |errorString"
    r"|GSP |MMU |engine|Engine |SM |ESR|RC |ECC |DBE|SBE|Dynamic|Page|PBDMA|CE |intr |Info |caused by|0x[0-9a-f]"
)
_CAUSED_BY = re.compile(r"caused by previous Xid ([0-9]{1,6})\b")
_RECOVERY = re.compile(r"changed from 0x([0-9A-Fa-f]{1,8})\b.{0,80}? to 0x([0-9A-Fa-f]{1,8})\b", re.DOTALL)
_LINK = re.compile(r"\b[Ll]ink ([0-9]{1,4})\b")
_FATALITY = re.compile(r"\b([Nn]on-?)?[Ff]atal\b")
_LINK_XIDS = frozenset({74, *range(144, 151), 155})
_REGISTERS = re.compile(r"([A-Z][A-Z0-9_]{2,30}) .{0,60}?\((0x[0-9A-Fa-f]{1,8}) (0x[0-9A-Fa-f]{1,8})\b", re.DOTALL)
_REGISTER_XIDS = frozenset(range(144, 151))

_ANY_PCI = re.compile(r"\b(?:PCI:)?((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?)(?![0-9A-Fa-f:])")
_INIT_FAILED = re.compile(r"(?:RmInitAdapter|rm_init_adapter)\b.{0,40}?failed", re.DOTALL)
_INIT_CODE = re.compile(r"failed!? ?\((0x[0-9A-Fa-f:x]{1,40})\)")
_INIT_MINOR = re.compile(r"device minor number ([0-9]{1,6})")
# The driver wraps long messages inside one record; what follows a wrap starts in lower case or with a parenthesis.
_WRAP = re.compile(r"[ \t\r]*\n[ \t]*NVRM:[ \t]+(?=[a-z(])")


def parse_entry(message: str) -> tuple[Facts, ...]:
    """What one record says: the lines of a record that holds several are read one by one (K1)."""
    if "\n" not in message:
        facts = parse(message)
        return () if facts is None else (facts,)
    lines = _WRAP.sub(" ", message[: MOST_CHARACTERS * 4]).split("\n")[:MOST_LINES]
    found = [facts for facts in map(parse, lines) if facts is not None]
    # A line break may be part of a process name: what hardly parses behind one is not worth an event.
    return tuple(facts for number, facts in enumerate(found) if number == 0 or facts["kind"] != "xid_unparsed")


def parse(message: str) -> Optional[Facts]:
    """What one line says: `kind` and the kind's fields, or None when it is of no interest."""
    return table().read(message if len(message) <= MOST_CHARACTERS else message[:MOST_CHARACTERS])


@lru_cache(maxsize=1)
def table() -> patterns.Table:
    """The patterns of kernel lines."""
    rows = (row for row in patterns.shipped() if row["source"] == "kernel")
    readers = {"xid": _read_xid, "gpu_init_failed": _read_init_failed, "oom": oom.parse}
    return patterns.Table(patterns.build(rows, readers))


def _read_init_failed(line: str) -> Optional[Facts]:
    if _INIT_FAILED.search(line) is None:
        return None
    code, minor = _INIT_CODE.search(line), _INIT_MINOR.search(line)
    return {
        "kind": "gpu_init_failed",
        "pci": _first_pci(line),
        "code": code[1] if code else None,
        "minor": int(minor[1]) if minor else None,
    }


def _read_xid(line: str) -> Facts:
    match = _XID.match(line)
    device = _DEVICE.fullmatch(match[1]) if match else None
    pci = canonical(device[1]) if device else None
    if match is None or device is None or pci is None:  # K3: never an Xid of "no device"
        number = _XID_NUMBER.match(line) if match is None else None
        return {"kind": "xid_unparsed", "xid": int(match[2]) if match else int(number[1]) if number else None}
    xid = int(match[2])
    pid, process, detail = _split_process(match[3])
    facts: Facts = {
        "kind": "xid",
        "xid": xid,
        "pci": pci,
        "gpu_instance": int(device[2]) if device[2] else None,
        "compute_instance": int(device[3]) if device[3] else None,
        "pid": pid,
        "process": process,
    }
    caused_by = _CAUSED_BY.search(detail)
    if caused_by:
        facts["caused_by"] = int(caused_by[1])
    if xid in _LINK_XIDS:
        _add_link(facts, xid, detail)
    if xid == 154:
        recovery = _RECOVERY.search(detail)  # K10: the numbers; the labels change between drivers
        facts["recovery_from"] = int(recovery[1], 16) if recovery else None
        facts["recovery_to"] = int(recovery[2], 16) if recovery else None
    return facts


def _add_link(facts: Facts, xid: int, detail: str) -> None:
    link, fatality = _LINK.search(detail), _FATALITY.search(detail)
    facts["link"] = int(link[1]) if link else None
    facts["fatal"] = not fatality[1] if fatality else None
    registers = _REGISTERS.match(detail) if xid in _REGISTER_XIDS else None
    if registers:  # the first is intrInfo, the second errorStatus: what catalog.nvlink5 decodes
        facts["nvlink_unit"], facts["intr_info"], facts["error_status"] = registers[1], registers[2], registers[3]


def _split_process(rest: str) -> tuple[Optional[int], Optional[str], str]:
    """pid, name and the driver's own text behind them (K2, K13). What users chose is left out of the latter."""
    pid_match = _PID.match(rest)
    if pid_match is None:
        return None, None, rest
    pid = int(pid_match[1]) if pid_match[1] else None
    if pid is not None and not 0 < pid < 2**32 - 1:
        pid = None
    rest = rest[pid_match.end() :]
    if not _NAME.match(rest):
        return pid, None, rest
    name, detail = _split_name(rest[len("name=") :])
    return pid, None if name in ("", "<unknown>", "'<unknown>'") else clean(name), detail


def _split_name(rest: str) -> tuple[str, str]:
    commas, at = [], rest.find(", ", 0, 18)
    while at >= 0:
        commas.append(at)
        at = rest.find(", ", at + 1, 18)
    for at in commas:
        if _DETAIL.match(rest, at + 2):
            return rest[:at], rest[at + 2 :]
    if commas:
        return rest[: commas[0]], rest[commas[0] + 2 :]
    name, _, detail = rest.partition(", ")
    return name[:32], detail


def _first_pci(line: str) -> Optional[str]:
    match = _ANY_PCI.search(line)
    return canonical(match[1]) if match else None
