"""Writes scenario files for the fake NVML library (fakenvml.c): eight cards like an H100 unless told otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Optional, Union

Value = Union[str, int, float]

GIB = 1024**3
LOST, RESET_REQUIRED = 15, 16
DRIVER_VERSION = "580.65.06"


def uuid(index: int) -> str:
    """The UUID that a scenario gives to a GPU."""
    return f"GPU-{index:08x}-1111-2222-3333-444455556666"


def pci(index: int) -> str:
    """Its PCI address, as NVML writes it."""
    return f"00000000:{0x18 + 0x10 * index:02X}:00.0"


class Scenario:
    """A scenario file; every change replaces it at once, so that no call sees half of one."""

    def __init__(self, path: Path, count: int = 8) -> None:
        self.path = path
        self.lines: dict[str, str] = {"count": str(count), "driver": DRIVER_VERSION}
        for name, value in _H100.items():
            self.lines[f"*.{name}"] = value
        for index in range(count):
            self.lines[f"{index}.uuid"] = uuid(index)
            self.lines[f"{index}.pci"] = pci(index)
            self.lines[f"{index}.serial"] = f"16500000000{index:02d}"
        self.write()

    def write(self) -> None:
        """Replace the file."""
        fresh = self.path.with_name(self.path.name + ".new")
        text = "".join(f"{key} = {value}\n" for key, value in self.lines.items())
        fresh.write_bytes(text.encode("utf-8", "surrogateescape"))  # a name may be no text at all (N2)
        os.replace(fresh, self.path)

    def set(self, key: str, value: Optional[Value]) -> None:
        """Set a line by its whole key ("3.temperature", "count"); None takes it out."""
        if value is None:
            self.lines.pop(key, None)
        else:
            self.lines[key] = str(value)
        self.write()

    def heat(self, index: int, celsius: int, max_operating: int = 87) -> None:
        """Temperature and, with it, the margin (T.Limit) of a card."""
        self.lines[f"{index}.temperature"] = str(celsius)
        self.lines[f"{index}.margin"] = str(max_operating - celsius)
        self.write()

    @property
    def set_path(self) -> Path:
        """Where the library keeps what was set; what is in it counts more than the scenario (changes.c)."""
        return self.path.with_name(self.path.name + ".set")

    def written(self) -> list[str]:
        """What was set, oldest first: "2.limit = 300000" (mW), "2.locked = 210 1200" (MHz)."""
        return self.set_path.read_text("utf-8").splitlines() if self.set_path.exists() else []

    def limit_by_hand(self, index: int, watts: int) -> None:
        """Another tool sets a card's power limit."""
        with self.set_path.open("a", encoding="utf-8") as file:
            file.write(f"{index}.limit = {watts * 1000}\n")

    def processes(self, index: int, of: Iterable[tuple[int, Optional[int]]], kind: str = "compute") -> None:
        """The (pid, bytes) of a card's compute, graphics or mps list."""
        self.set(f"{index}.{kind}", " ".join(f"{pid}:{'-' if used is None else used}" for pid, used in of))

    def error(self, code: Optional[int], call: str = "", index: Union[int, str] = "") -> None:
        """NVML error of a call, a GPU, or a GPU's call; None ends it."""
        self.set(_key(index, call, "error"), code)

    def hang(self, seconds: Optional[float], call: str = "", index: Union[int, str] = "") -> None:
        """Let a call, a GPU, or a GPU's call wait; None ends it, also for calls that wait now."""
        self.set(_key(index, call, "hang"), seconds)

    def lose(self, index: int, code: int = LOST) -> None:
        """The card falls off the bus."""
        self.error(code, index=index)

    def write_away(self, path: Optional[str], call: str = "", index: Union[int, str] = "") -> None:
        """Let a call write to a file first; None ends it."""
        self.set(_key(index, call, "write"), path)

    def divide(self, index: int, parts: int) -> None:
        """MIG instances of an eighth of the card each: ids 7, 8, ..., 10 GiB."""
        self.lines[f"{index}.mig"] = "1 1"
        self.lines[f"{index}.utilisation"] = ""  # unsupported under MIG (N7)
        for part in range(parts):
            self.lines[f"{index}.mig{part}.uuid"] = f"MIG-{index:04x}{part:04x}-1111-2222-3333-444455556666"
            self.lines[f"{index}.mig{part}.ids"] = f"{7 + part} 0"
            self.lines[f"{index}.mig{part}.name"] = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
            self.lines[f"{index}.mig{part}.memory"] = f"{10 * GIB} {16 * 1024 * 1024} {(part + 1) * GIB}"
        self.write()

    def bare(self, *keep: str) -> None:
        """Cards that offer nothing but these keys: a virtual GPU, or one with unified memory."""
        kept = {f"*.{name}" for name in ("name", *keep)}
        self.lines = {key: value for key, value in self.lines.items() if not key.startswith("*.") or key in kept}
        self.write()

    def without_margins(self, index: Union[int, str], thresholds: Optional[str] = "95 90 - 85") -> None:
        """An older card: no T.Limit, absolute thresholds (shutdown slowdown memory gpu) or none."""
        for name in ("margin", "tlimits"):
            self.lines.pop(f"{index}.{name}", None)
            self.lines.pop(f"*.{name}", None)
        self.set(f"{index}.thresholds", thresholds)


def _key(index: Union[int, str], call: str, what: str) -> str:
    return ".".join(str(part) for part in (index, call, what) if part != "")


_H100 = {
    "name": "NVIDIA H100 80GB HBM3",
    "temperature": "41",
    "margin": "46",
    "memory_temperature": "50",
    "tlimits": "-8 -2 0 0",
    "memory": f"{80 * GIB - 512 * 1024 * 1024} {580 * 1024 * 1024} {4 * 1024 * 1024}",
    "utilisation": "0 0",
    "power": "71000",
    "limit": "700000",
    "limits": "200000 700000 700000",
    "clocks": "345 345 2619 765",
    "max_clocks": "1980 1980 2619 1545",
    "energy": "123456789000",
    "reasons": "0x1",
    "supported_reasons": "0x1ff",
    "pstate": "0",
    "ecc_mode": "1",
    "ecc": "0 0 0 0",
    "rows": "0 0 0 0",
    "pcie": "5 16 5 16 0",
    "nvlinks": " ".join(["1"] * 18),
    "nvlink_errors": "0 0 0 0",
    "fabric": "3 0 2",
    "persistence": "1",
    "recovery": "0",
    "mig": "0 0",
}
