"""GPU samples as JSON objects between the NVML child and its client: small and quick to read, once a second."""

from __future__ import annotations

from typing import Any, Optional

from gpuwatch.model.gpu import GpuProcess, GpuSample, ProcessList
from gpuwatch.model.reading import UNSUPPORTED, Reading, failed, value

UNIDENTIFIED = "unidentified-"  # stands for a UUID that could not be read, with the index behind it


def to_wire(sample: GpuSample) -> dict[str, Any]:
    """An object that json can write."""
    return {
        "uuid": sample.uuid,
        "index": sample.index,
        "name": sample.name,
        "pci": sample.pci,
        "readings": {
            name: reading.problem if reading.value is None else reading.value
            for name, reading in sample.readings.items()
        },
        "processes": _list_to_wire(sample.processes),
        "lost": sample.lost,
        "sources": dict(sample.sources),
    }


def from_wire(data: dict[str, Any]) -> GpuSample:
    """The sample again. Raises KeyError, TypeError or ValueError on anything else."""
    return GpuSample(
        str(data["uuid"]),
        int(data["index"]),
        str(data["name"]),
        str(data["pci"]),
        {name: _reading(entry) for name, entry in data["readings"].items()},
        _list_from_wire(data["processes"]),
        None if data["lost"] is None else str(data["lost"]),
        {str(name): str(source) for name, source in data["sources"].items()},
    )


def _reading(entry: Any) -> Reading:
    if isinstance(entry, str):
        return UNSUPPORTED if entry == "unsupported" else failed(entry)
    return value(entry)


def _list_to_wire(processes: Optional[ProcessList]) -> Any:
    if processes is None:
        return None
    if processes.problem is not None:
        return processes.problem
    return [[each.pid, each.kind, each.used_bytes] for each in processes.processes]


def _list_from_wire(data: Any) -> Optional[ProcessList]:
    if data is None:
        return None
    if isinstance(data, str):
        return ProcessList(problem=data)
    return ProcessList(tuple(GpuProcess(int(pid), str(kind), used) for pid, kind, used in data))
