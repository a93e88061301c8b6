"""What NVIDIA's Xid numbers mean. Data: xid.json, loaded at first use.

Facts per number, from NVIDIA's public Xid catalogue: mnemonic, whether current drivers still use
it, immediate action, investigatory action. Class and severity are our reading:

  1. a code's own "class"/"severity" in xid.json, where NVIDIA's action alone would mislead
     (48 and 64 lose data, 92 and 93 wear out, links are told apart, 162-172 have no action yet);
  2. else the class and severity of its immediate action (table "actions" in xid.json):
     RESTART_APP -> application, RESET_GPU -> gpu_reset, RESTART_BM and RESTART_VM -> host_restart,
     CHECK_MECHANICALS -> hardware, NVLink workflows -> link, UPDATE_SWFW and CHECK_UVM -> driver,
     IGNORE -> informational, CONTACT_SUPPORT and none -> unknown;
  3. a number that is not in the table is class unknown, severity warning: kept and shown.

A site may put a number into another class: that stands in for 1 to 3, with the severity that 2 gives
to the class ("ignore": info). The line itself outranks all of it: the recovery action named by an
Xid 154 (K10), and the word fatal or nonfatal of the NVLink 5 codes (K7). See `judge`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Optional

from gpuwatch.catalog import nvlink5
from gpuwatch.model.event import Scalar
from gpuwatch.model.rule import Severity

CLASSES = (
    "application",
    "gpu_reset",
    "host_restart",
    "hardware",
    "link",
    "driver",
    "informational",
    "ignore",
    "unknown",
)
RECOVERY_CHANGED = 154  # names the driver's own advice, which is what decides its class


@dataclass(frozen=True)
class Xid:
    """One number. `action` and `investigate` are NVIDIA's words; `meaning` is ours, by language."""

    number: int
    known: bool
    mnemonic: str
    in_use: bool
    action: str
    investigate: str
    klass: str  # of CLASSES
    severity: Severity
    meaning: Mapping[str, str]

    def sentence(self, language: str) -> str:
        """What it means, in one plain sentence."""
        return self.meaning.get(language, self.meaning["en"])


def lookup(number: int) -> Xid:
    """The entry of a number; one of class unknown for a number that is not in the table."""
    row = _table()["codes"].get(str(number))
    known = row is not None
    row = row or {"mnemonic": "", "in_use": False, "action": "", "investigate": ""}
    action = _table()["actions"][row["action"]]
    klass = row.get("class", action["class"])
    meaning = row if "en" in row else _table()["classes"][klass]
    return Xid(
        number=number,
        known=known,
        mnemonic=row["mnemonic"],
        in_use=row["in_use"],
        action=row["action"],
        investigate=row["investigate"],
        klass=klass,
        severity=Severity(row.get("severity", action["severity"])),
        meaning={"en": meaning["en"], "zh": meaning["zh"]},
    )


def numbers() -> tuple[int, ...]:
    """Every number in the table, in order."""
    return tuple(int(number) for number in _table()["codes"])


def class_name(klass: str, language: str) -> str:
    """A class in words."""
    return str(_table()["classes"][klass]["name_" + language])


def action_text(action: str, language: str) -> str:
    """NVIDIA's immediate action in words; the word itself when it is a new one."""
    row = _table()["actions"].get(action)
    return str(row[language]) if row else action


def next_step(entry: Xid, language: str) -> str:
    """The one thing to do first."""
    own = _table()["codes"].get(str(entry.number), {})
    return str(own.get("next_" + language) or _table()["actions"][entry.action]["next_" + language])


def recovery(action: Scalar) -> Optional[Mapping[str, str]]:
    """A recovery action by its number (K10: labels change between drivers; the numbers are those of NVML's
    GpuRecoveryAction): class, severity, en, zh, next_en, next_zh. None for a number that is not known."""
    found: Optional[Mapping[str, str]] = _table()["recovery"].get(str(action)) if isinstance(action, int) else None
    return found


def cause(facts: Mapping[str, Scalar]) -> Optional[nvlink5.Cause]:
    """What the registers of an NVLink 5 line say, if it has any."""
    return nvlink5.decode_facts(*(facts.get(name) for name in ("xid", "nvlink_unit", "intr_info", "error_status")))


def judge(facts: Mapping[str, Scalar], overrides: Optional[Mapping[int, str]] = None) -> tuple[str, Severity]:
    """Class and severity of one Xid line, from its number and from what the line itself says.

    `overrides`: the site's own classes by number (Settings.class_overrides), in place of the table's.
    """
    number = facts.get("xid")
    entry = lookup(number if isinstance(number, int) else -1)
    klass = (overrides or {}).get(entry.number, entry.klass)
    if klass != entry.klass:
        entry = replace(entry, klass=klass, severity=_severity_of(klass))
    if facts.get("recovery_to") is not None:
        action = recovery(facts["recovery_to"])
        return (action["class"], Severity(action["severity"])) if action else ("unknown", Severity.WARNING)
    if entry.klass == "link":
        return entry.klass, _judge_link(entry, facts)
    return entry.klass, entry.severity


def _judge_link(entry: Xid, facts: Mapping[str, Scalar]) -> Severity:
    """K7: the word in the line, then the table of registers, then the number."""
    found = cause(facts)
    fatal = facts.get("fatal")
    if fatal is None and found is not None:
        fatal = found.fatal
    if fatal is None:
        return entry.severity
    if fatal:
        return Severity.CRITICAL
    return Severity.INFO if found is not None and found.of_no_concern else Severity.WARNING


def _severity_of(klass: str) -> Severity:
    """What the table gives to the first action of a class; info where no action has it ("ignore")."""
    actions = _table()["actions"].values()
    return Severity(next((action["severity"] for action in actions if action["class"] == klass), "info"))


@lru_cache(maxsize=1)
def _table() -> Any:
    with open(os.path.join(os.path.dirname(__file__), "xid.json"), encoding="utf-8") as file:
        return json.load(file)
