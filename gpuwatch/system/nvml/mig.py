"""MIG: one GPU divided into instances with memory and processes of their own (N8)."""

from __future__ import annotations

from dataclasses import replace

from gpuwatch.model.gpu import MigInstance
from gpuwatch.system.nvml.calls import Calls, Handle, Trouble, Unsupported
from gpuwatch.system.nvml.lists import read_memory, read_processes


class Mig:
    """The instances of one GPU. They may come and go while the driver runs, without the GPU noticing."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._instances: list[tuple[Handle, MigInstance]] = []
        self.problem = ""  # why the instances can't be told

    def look(self, gpu: Handle) -> None:
        """Find out anew which instances there are. Raises Lost."""
        self._instances, self.problem = [], ""
        try:
            current, _ = gpu.ask("nvmlDeviceGetMigMode")
            most = int(gpu.ask("nvmlDeviceGetMaxMigDeviceCount")) if current else 0
        except Unsupported:
            return
        except Trouble as trouble:
            self.problem = str(trouble)
            return
        for index in range(most):
            try:
                handle = gpu.ask("nvmlDeviceGetMigDeviceHandleByIndex", arguments=(index,))
            except (Unsupported, Trouble):  # there is no instance of this number: numbers may have gaps
                continue
            part = Handle(self._calls, handle)
            self._instances.append((part, _identify(part)))

    def read(self, with_processes: bool) -> tuple[MigInstance, ...]:
        """Memory of each now, processes when asked. Raises Lost."""
        return tuple(
            replace(
                identity,
                readings=read_memory(part)[0],
                processes=read_processes(part) if with_processes else None,
            )
            for part, identity in self._instances
        )


def _identify(part: Handle) -> MigInstance:
    return MigInstance(
        part.text("nvmlDeviceGetUUID"),
        _id(part, "nvmlDeviceGetGpuInstanceId"),
        _id(part, "nvmlDeviceGetComputeInstanceId"),
        part.text("nvmlDeviceGetName") or "unknown",
    )


def _id(part: Handle, name: str) -> int:
    try:
        return int(part.ask(name))
    except (Unsupported, Trouble):
        return -1
