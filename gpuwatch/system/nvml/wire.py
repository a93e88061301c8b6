"""GPU samples and changes as JSON objects between the NVML child and its client: small, and quick to read."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Optional

from gpuwatch.model.gpu import GpuProcess, GpuSample, MigInstance, ProcessList
from gpuwatch.model.gpu_change import GpuChange
from gpuwatch.model.reading import UNSUPPORTED, Reading, failed, value

UNIDENTIFIED = "unidentified-"  # stands for a UUID that could not be read, with the index behind it


def to_wire(sample: GpuSample) -> dict[str, Any]:
    """An object that json can write."""
    return {
        "uuid": sample.uuid,
        "index": sample.index,
        "name": sample.name,
        "pci": sample.pci,
        "readings": readings_to_wire(sample.readings),
        "processes": _list_to_wire(sample.processes),
        "lost": sample.lost,
        "sources": dict(sample.sources),
        "unified": sample.unified_memory,
        "instances": [
            [
                each.uuid,
                each.gpu_instance,
                each.compute_instance,
                each.name,
                readings_to_wire(each.readings),
                _list_to_wire(each.processes),
            ]
            for each in sample.instances
        ],
    }


def from_wire(data: dict[str, Any]) -> GpuSample:
    """The sample again. Raises KeyError, TypeError or ValueError on anything else."""
    return GpuSample(
        str(data["uuid"]),
        int(data["index"]),
        str(data["name"]),
        str(data["pci"]),
        readings_from_wire(data["readings"]),
        _list_from_wire(data["processes"]),
        None if data["lost"] is None else str(data["lost"]),
        {str(name): str(source) for name, source in data["sources"].items()},
        unified_memory=bool(data["unified"]),
        instances=tuple(
            MigInstance(str(uuid), int(gi), int(ci), str(name), readings_from_wire(readings), _list_from_wire(listed))
            for uuid, gi, ci, name, readings, listed in data["instances"]
        ),
    )


def change_to_wire(number: int, change: GpuChange, until: float) -> list[Any]:
    """`number` is the client's; `until` is of CLOCK_MONOTONIC, which is the same in both processes."""
    lock = None if change.graphics_clock_mhz is None else list(change.graphics_clock_mhz)
    return [number, until, change.id, change.uuid, change.pci, change.power_limit_w, lock, change.unlock_clocks]


def change_from_wire(data: list[Any]) -> tuple[int, GpuChange, float]:
    """The same again. Raises TypeError or ValueError on anything else."""
    number, until, name, uuid, address, watts, lock, unlock = data
    mhz = None if lock is None else (int(lock[0]), int(lock[1]))
    return int(number), GpuChange(str(name), str(uuid), str(address), watts, mhz, bool(unlock)), float(until)


def readings_to_wire(readings: Mapping[str, Reading]) -> dict[str, Any]:
    """Values as numbers, problems as text."""
    return {name: each.problem if each.value is None else each.value for name, each in readings.items()}


def readings_from_wire(data: Mapping[str, Any]) -> dict[str, Reading]:
    """Readings again. Raises TypeError or ValueError on anything else."""
    return {sys.intern(name): _reading(entry) for name, entry in data.items()}


def _reading(entry: Any) -> Reading:
    if isinstance(entry, str):
        return UNSUPPORTED if entry == "unsupported" else failed(entry)
    return value(entry)


def _list_to_wire(processes: Optional[ProcessList]) -> Any:
    if processes is None:
        return None
    if processes.problem is not None:
        return processes.problem
    return [[each.pid, each.kind, each.used_bytes, each.instance] for each in processes.processes]


def _list_from_wire(data: Any) -> Optional[ProcessList]:
    if data is None:
        return None
    if isinstance(data, str):
        return ProcessList(problem=data)
    return ProcessList(tuple(GpuProcess(int(pid), str(kind), used, part) for pid, kind, used, part in data))
