"""Temperatures, fans and power of the host, through hwmon and thermal zones.

Sources: the kernel's Documentation/hwmon/sysfs-interface.rst and driver-api/thermal/sysfs-api.rst. Chips are
known by `name` and device, zones by `type`: their numbers change with the order in which modules are loaded.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from gpuwatch.model.host import Sensor
from gpuwatch.model.reading import UNSUPPORTED, Reading, failed, value
from gpuwatch.system.kernel_files import read_file, read_text

_MOST_PER_CHIP = 256
_INPUT = re.compile(r"(temp|fan|power)(\d+)_(input|average)")
_KINDS = {  # metric and what one unit of the file is
    "temp": ("host.sensor_temperature", 1e-3),
    "fan": ("host.fan_speed", 1.0),
    "power": ("host.sensor_power", 1e-6),
}
_COLDEST_C, _HOTTEST_C = -40.0, 150.0  # an open input of a Super I/O chip says -128 or 255
_LOWEST_CRITICAL_C = 30.0  # boards leave 0 and the like in limits that nobody set


@dataclass(frozen=True)
class _Input:
    """One file to read, and what does not change about it."""

    key: str
    label: str
    path: str
    kind: str  # temp | fan | power
    critical_c: Optional[float] = None
    fault: str = ""  # file that says whether the sensor is connected


@dataclass(frozen=True)
class _Chip:
    """What was found about a chip; `inode` tells whether its directory is still the same one."""

    inode: int
    name: str
    inputs: tuple[_Input, ...]


class Sensors:
    """Reads below `sys`/class. What does not change (labels, limits) is read once a chip."""

    def __init__(self, sys: str = "/sys") -> None:
        self._root = f"{sys}/class"
        self._places: dict[str, str] = {}  # directory, by name of the chip
        self._known: dict[str, _Chip] = {}

    def chips(self) -> tuple[str, ...]:
        """See protocols.HostFiles."""
        names: Counter[str] = Counter()
        places: dict[str, str] = {}
        for name, place in [*self._hwmons(), *self._zones()]:
            names[name] += 1
            places[name if names[name] == 1 else f"{name}#{names[name]}"] = place
        self._places = places  # replaced, never changed: the reading thread may be at it
        return tuple(places)

    def read(self, chip: str) -> tuple[Sensor, ...]:
        """See protocols.HostFiles."""
        place = self._places.get(chip, "")
        try:
            inode = os.stat(place).st_ino
        except OSError:
            self._known.pop(chip, None)
            return ()  # it is gone, as when a disk is pulled out
        known = self._known.get(chip)
        if known is None or known.inode != inode:
            known = _zone(chip, place, inode) if chip.startswith("thermal:") else _hwmon(chip, place, inode)
            self._known[chip] = known
        return tuple(Sensor(each.key, known.name, each.label, _readings(each)) for each in known.inputs)

    def _hwmons(self) -> Iterator[tuple[str, str]]:
        for entry in _numbered(f"{self._root}/hwmon", "hwmon"):
            name = read_text(f"{entry}/name")
            device = os.path.basename(os.path.realpath(f"{entry}/device")) if os.path.exists(f"{entry}/device") else ""
            # A zone's twin says nothing new; and no reading of ours goes to a GPU's driver (it may hang).
            if name and not device.startswith("thermal_zone") and not name.startswith("nvidia"):
                yield f"{name}@{device}" if device else name, entry

    def _zones(self) -> Iterator[tuple[str, str]]:
        for entry in _numbered(f"{self._root}/thermal", "thermal_zone"):
            kind = read_text(f"{entry}/type")
            if kind and read_text(f"{entry}/mode") != "disabled":
                yield f"thermal:{kind}", entry


def _numbered(directory: str, prefix: str) -> list[str]:
    """The entries PREFIX0, PREFIX1, ... in that order."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    numbers = sorted(int(name[len(prefix) :]) for name in names if re.fullmatch(prefix + r"\d{1,6}", name))
    return [f"{directory}/{prefix}{number}" for number in numbers]


def _hwmon(chip: str, place: str, inode: int) -> _Chip:
    found = []
    for kind, number, which in _inputs(place):
        base = f"{place}/{kind}{number}"
        label = read_text(f"{base}_label") or f"{kind}{number}"
        critical = _critical(read_text(f"{base}_crit") or read_text(f"{base}_emergency")) if kind == "temp" else None
        fault = f"{base}_fault" if os.path.exists(f"{base}_fault") else ""
        found.append(_Input(f"{chip}/{label}", label, f"{base}_{which}", kind, critical, fault))
    return _Chip(inode, read_text(f"{place}/name") or chip, _apart(found))


def _inputs(place: str) -> list[tuple[str, int, str]]:
    """Kind, number, and "input" or "average" (a power meter may have but one of them; the average is steadier)."""
    try:
        matches = [match for match in map(_INPUT.fullmatch, os.listdir(place)) if match is not None]
    except OSError:
        return []
    found: dict[tuple[str, int], str] = {}
    for match in matches:
        kind, number, which = match.group(1), int(match.group(2)), match.group(3)
        if (kind == "power" and which == "average") or (which == "input" and (kind, number) not in found):
            found[kind, number] = which
    return [(kind, number, which) for (kind, number), which in sorted(found.items())][:_MOST_PER_CHIP]


def _zone(chip: str, place: str, inode: int) -> _Chip:
    critical = None
    for path in _numbered_files(place):
        if read_text(f"{path}_type") == "critical":
            critical = _critical(read_text(f"{path}_temp"))
    name = read_text(f"{place}/type") or chip
    return _Chip(inode, name, (_Input(chip, "", f"{place}/temp", "temp", critical),))


def _numbered_files(place: str) -> list[str]:
    try:
        names = os.listdir(place)
    except OSError:
        return []
    return sorted(f"{place}/{name[:-5]}" for name in names if re.fullmatch(r"trip_point_\d+_type", name))


def _critical(text: Optional[str]) -> Optional[float]:
    try:
        degrees = int(text or "") * 1e-3
    except ValueError:
        return None
    return degrees if _LOWEST_CRITICAL_C <= degrees <= _HOTTEST_C else None


def _apart(inputs: list[_Input]) -> tuple[_Input, ...]:
    """Two inputs with one label get "#2" behind the second."""
    seen: Counter[str] = Counter()
    result = []
    for each in inputs:
        seen[each.key] += 1
        number = seen[each.key]
        key = each.key if number == 1 else f"{each.key}#{number}"
        result.append(_Input(key, each.label, each.path, each.kind, each.critical_c, each.fault))
    return tuple(result)


def _readings(of: _Input) -> dict[str, Reading]:
    metric, scale = _KINDS[of.kind]
    reading = _read(of, scale)
    readings = {metric: reading}
    if of.kind == "temp":
        readings["host.sensor_margin"] = _margin(reading, of.critical_c)
    return readings


def _read(of: _Input, scale: float) -> Reading:
    if of.fault and read_text(of.fault) == "1":
        return failed("the chip says that this sensor is broken or not connected")
    try:
        number = int(read_file(of.path)) * scale
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODATA, errno.EOPNOTSUPP):
            return UNSUPPORTED  # nothing to measure now, as with a device that sleeps
        return failed(f"can't read {of.path}: {error.strerror}")
    except ValueError:
        return failed(f"can't make sense of {of.path}")
    if of.kind == "temp" and not _COLDEST_C <= number <= _HOTTEST_C:
        return failed(f"{number:g} C is no temperature of a host")
    return value(number)


def _margin(reading: Reading, critical_c: Optional[float]) -> Reading:
    if critical_c is None:
        return UNSUPPORTED
    return reading if reading.value is None else value(critical_c - reading.value)
