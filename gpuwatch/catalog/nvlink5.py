"""What the registers in an Xid 144-150 line say (NVLink 5). Data: nvlink5.json, loaded at first use.

Such a line names a unit and six registers. The first (intrInfo) tells where the interrupt came from; its bits are given
in the table as a pattern, in two versions for two generations of the driver. The second (errorStatus) tells what
happened: one bit each for most units, a number for the rest. Facts from NVIDIA's public catalogue of Xid errors: what
to do, what to look into, and whether it is fatal. The word in the line outranks the table (K7).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional

NON_FATAL = "Non-fatal"


@dataclass(frozen=True)
class Cause:
    """One row: NVIDIA's words for what to do at once and what to look into.

    `severity`: Non-fatal | Fatal | Link Fatal.
    """

    unit: str
    status: int
    action: str
    investigate: str
    severity: str

    @property
    def fatal(self) -> bool:
        """True for an error after which the card, or the link, is lost until a reset."""
        return self.severity != NON_FATAL

    @property
    def of_no_concern(self) -> bool:
        """True where nothing is to be done and nothing to be looked into."""
        return self.action == "IGNORE" and self.investigate == "IGNORE"

    def text(self, language: str) -> str:
        """What to do, in words."""
        words = _table()["words"]
        column = 1 if language == "zh" else 0
        steps = dict.fromkeys((self.action, self.investigate))
        if len(steps) > 1:
            steps.pop("IGNORE", None)
        return ("；" if column else "; ").join(words[step][column] for step in steps)


def decode(xid: int, unit: str, intr_info: int, status: int) -> tuple[Cause, ...]:
    """What the registers mean, the gravest first; empty when the table does not know them."""
    found = [row for row in _table()["rows"] if row[0] == xid and _fits(row, intr_info)]
    named = [row for row in found if unit in row[1]]
    found = named or found
    exact = [row for row in found if row[4] == status]
    if not exact and all(_is_bit(row[4]) for row in found):
        exact = [row for row in found if row[4] & status]  # several errors at once
    if not exact:
        exact = [row for row in found if row[4] == 0 and len({other[4] for other in found}) == 1]
    causes = {Cause(row[1][0], row[4], row[5], row[6], row[7]) for row in exact}
    return tuple(sorted(causes, key=lambda cause: (not cause.fatal, cause.of_no_concern, cause.status, cause.action)))


def decode_facts(xid: object, unit: object, intr_info: object, status: object) -> Optional[Cause]:
    """The gravest cause by the fields of an Xid event; None without registers."""
    if not isinstance(xid, int) or not all(isinstance(text, str) for text in (unit, intr_info, status)):
        return None
    causes = decode(xid, str(unit), int(str(intr_info), 16), int(str(status), 16))
    return causes[0] if causes else None


def rows() -> int:
    """How many rows the table has."""
    return len(_table()["rows"])


def _is_bit(number: int) -> bool:
    return number != 0 and number & (number - 1) == 0


def _fits(row: Any, intr_info: int) -> bool:
    return any(intr_info & mask == bits for mask, bits in (_mask(row[2]), _mask(row[3])))


@lru_cache(maxsize=256)
def _mask(pattern: str) -> tuple[int, int]:
    """`--01`: bits that don't count, and bits that must be as they are written; the highest first."""
    mask = int("".join("0" if bit == "-" else "1" for bit in pattern), 2)
    return mask, int(pattern.replace("-", "0"), 2)


@lru_cache(maxsize=1)
def _table() -> Any:
    with open(os.path.join(os.path.dirname(__file__), "nvlink5.json"), encoding="utf-8") as file:
        return json.load(file)
