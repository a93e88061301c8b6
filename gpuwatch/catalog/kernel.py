"""What lines of the kernel log mean. Pure; no line makes it raise or take long.

The caller vouches that the line really comes from the kernel (S10). Names of processes in it are
still chosen by users: at most 15 bytes of anything, so they are looked for from the right or
between fixed words, and never decide anything (S11).

Fields, by kind (None where the line does not say):
  xid               xid pci gpu_instance compute_instance pid process link fatal caused_by recovery_from recovery_to
  xid_unparsed      xid (None if unreadable)
  gpu_lost          pci
  gpu_init_failed   pci code minor
  gpu_identity      pci uuid
  gpu_serial        -
  gsp_timeout       pci
  uvm_fatal         pci code
  sxid              sxid pci switch fatal link
  sxid_detail       sxid pci switch
  driver_load       version
  driver_unload     -
  oom_kill          scope pid process uid cgroup + owner (unit user_unit container runtime slurm_job slurm_step)
  oom_invoked       process
  oom_context       scope pid process cgroup + owner
"""

from __future__ import annotations

import re
from typing import Optional

from gpuwatch.catalog import oom
from gpuwatch.catalog.text import clean
from gpuwatch.model.event import Scalar
from gpuwatch.model.pci import canonical

Facts = dict[str, Scalar]

MOST_CHARACTERS = 4096  # the kernel cuts its lines at about 1,000
MOST_LINES = 64

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

_ANY_PCI = re.compile(r"\b(?:PCI:)?((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?)(?![0-9A-Fa-f:])")
_IDENTITY = re.compile(
    r"NVRM: GPU at (?:PCI:)?([0-9A-Fa-f:.]{7,20}): (GPU-[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})"
)
_INIT_FAILED = re.compile(r"(?:RmInitAdapter|rm_init_adapter)\b.{0,40}?failed", re.DOTALL)
_INIT_CODE = re.compile(r"failed!? ?\((0x[0-9A-Fa-f:x]{1,40})\)")
_INIT_MINOR = re.compile(r"device minor number ([0-9]{1,6})")
_UVM = re.compile(r"uvm encountered global fatal error (0x[0-9A-Fa-f]{1,16})")
_GSP = re.compile(
    r"GSP RM heartbeat timed out|GSP RPC .{0,60}?time(?:out|d out)|Timeout .{0,60}?waiting for .{0,60}?GSP", re.DOTALL
)
_SERIAL = re.compile(r"NVRM: GPU (?:Board Serial Number:|is on Board )")
_LOADING = re.compile(r"NVRM: loading NVIDIA UNIX .{0,80}?\s([0-9]{2,5}(?:\.[0-9]{1,5}){1,3})\b")
_SXID = re.compile(
    r"nvidia-nvswitch([0-9]{1,4}): SXid \((?:PCI:)?([0-9A-Fa-f:.]{7,20})\): ([0-9]{1,6})(?:, ?|$)(.*)", re.DOTALL
)
_SXID_FATALITY = re.compile(r"(Non-fatal|Fatal)(?:, |$)")
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
    line = message[:MOST_CHARACTERS]
    if line.startswith("NVRM: "):
        return _parse_nvrm(line)
    if line.startswith("nvidia-"):
        return _parse_nvidia_module(line)
    return oom.parse(line)


def _parse_nvrm(line: str) -> Optional[Facts]:
    if line.startswith("NVRM: Xid"):
        return _parse_xid(line)
    identity = _IDENTITY.match(line)
    if identity:
        return {"kind": "gpu_identity", "pci": canonical(identity[1]), "uuid": "GPU-" + identity[2][4:].lower()}
    if "fallen off the bus" in line:
        return {"kind": "gpu_lost", "pci": _first_pci(line)}
    if _INIT_FAILED.search(line):
        code, minor = _INIT_CODE.search(line), _INIT_MINOR.search(line)
        return {
            "kind": "gpu_init_failed",
            "pci": _first_pci(line),
            "code": code[1] if code else None,
            "minor": int(minor[1]) if minor else None,
        }
    uvm = _UVM.search(line)
    if uvm:
        return {"kind": "uvm_fatal", "pci": _first_pci(line), "code": uvm[1]}
    if _GSP.search(line):
        return {"kind": "gsp_timeout", "pci": _first_pci(line)}
    loading = _LOADING.match(line)
    if loading:
        return {"kind": "driver_load", "version": loading[1]}
    if _SERIAL.match(line):
        return {"kind": "gpu_serial"}
    return None


def _parse_xid(line: str) -> Facts:
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
        link, fatality = _LINK.search(detail), _FATALITY.search(detail)
        facts["link"] = int(link[1]) if link else None
        facts["fatal"] = not fatality[1] if fatality else None
    if xid == 154:
        recovery = _RECOVERY.search(detail)  # K10: the numbers; the labels change between drivers
        facts["recovery_from"] = int(recovery[1], 16) if recovery else None
        facts["recovery_to"] = int(recovery[2], 16) if recovery else None
    return facts


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
    commas = [at for at in range(min(len(rest), 17)) if rest.startswith(", ", at)]
    for at in commas:
        if _DETAIL.match(rest, at + 2):
            return rest[:at], rest[at + 2 :]
    if commas:
        return rest[: commas[0]], rest[commas[0] + 2 :]
    name, _, detail = rest.partition(", ")
    return name[:32], detail


def _parse_nvidia_module(line: str) -> Optional[Facts]:
    if line.startswith("nvidia-nvlink: Unregistered"):
        return {"kind": "driver_unload"}
    match = _SXID.match(line)
    if match is None:
        return None
    facts: Facts = {"kind": "sxid", "sxid": int(match[3]), "pci": canonical(match[2]), "switch": int(match[1])}
    fatality = _SXID_FATALITY.match(match[4])
    if fatality is None:  # severities, registers and raw data: more lines of the same trouble
        return {**facts, "kind": "sxid_detail"}
    link = _LINK.search(match[4])
    return {**facts, "fatal": fatality[1] == "Fatal", "link": int(link[1]) if link else None}


def _first_pci(line: str) -> Optional[str]:
    match = _ANY_PCI.search(line)
    return canonical(match[1]) if match else None
