"""Memory and processes of a GPU or of a MIG instance: both answer the same calls."""

from __future__ import annotations

from typing import Any

from gpuwatch.model.gpu import GpuProcess, ProcessList
from gpuwatch.model.reading import UNSUPPORTED, Reading, failed, value
from gpuwatch.system.nvml.calls import FOREIGN, Handle, Trouble, Unsupported, all_checked, attempt_any, checked, ratio

_NO_MEMORY_FIGURE = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE
_NO_INSTANCE = 2**32 - 1


def read_memory(gpu: Handle) -> tuple[dict[str, Reading], str]:
    """Total, reserved and used memory in bytes, and which version of the call told them. Raises Lost.

    The first version counts what the driver reserves as used, some 900 MB on an idle card (N5).
    """
    source = "v2"
    try:
        info = gpu.ask("nvmlDeviceGetMemoryInfo", version=_version(gpu))
        figures = (value(info.total), value(info.reserved), value(info.used))
    except Unsupported:
        source = "v1"
        old = attempt_any(lambda: gpu.ask("nvmlDeviceGetMemoryInfo"))
        figures = (old,) * 3 if isinstance(old, Reading) else (value(old.total), UNSUPPORTED, value(old.used))
    except Trouble as trouble:
        figures = (failed(str(trouble)),) * 3
    readings = all_checked(dict(zip(("gpu.memory_total", "gpu.memory_reserved", "gpu.memory_used"), figures)))
    used = ratio(readings["gpu.memory_used"], readings["gpu.memory_total"])
    readings["gpu.memory_used_ratio"] = checked("gpu.memory_used_ratio", used)
    return readings, source


def read_processes(gpu: Handle) -> ProcessList:
    """The compute, graphics and MPS lists as one; without a compute list there is none at all. Raises Lost."""
    found: list[GpuProcess] = []
    for kind, name in (("compute", "Compute"), ("graphics", "Graphics"), ("mps", "MPSCompute")):
        call = f"nvmlDeviceGet{name}RunningProcesses"
        try:
            # Drivers before 510 have only the second form, old bindings only the third.
            entries = gpu.ask(f"{call}_v3", f"{call}_v2", call)
            found.extend(_process(kind, entry) for entry in entries)
        except Unsupported:
            if kind == "compute":
                return ProcessList(problem="unsupported")
        except Trouble as trouble:
            return ProcessList(problem=str(trouble))
        except FOREIGN as error:
            return ProcessList(problem=f"{call}: {type(error).__name__}: {error}")
    return ProcessList(tuple(found))


def _version(gpu: Handle) -> int:
    version = getattr(gpu.calls.api, "nvmlMemory_v2", None)
    if not isinstance(version, int):
        raise Unsupported("nvmlMemory_v2")
    return version


def _process(kind: str, entry: Any) -> GpuProcess:
    used, instance = entry.usedGpuMemory, getattr(entry, "gpuInstanceId", None)
    return GpuProcess(
        int(entry.pid),
        kind,
        None if used is None or used == _NO_MEMORY_FIGURE else int(used),
        None if instance is None or instance == _NO_INSTANCE else int(instance),
    )
