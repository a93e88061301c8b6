"""Sets power limits and locked clocks, in the NVML child (N17, A15, A16)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

from gpuwatch.model import pci
from gpuwatch.model.gpu_change import FAILED, GONE, NO_PERMISSION, UNSUPPORTED, GpuChange
from gpuwatch.system.nvml import calls as nvml
from gpuwatch.system.nvml.calls import FOREIGN, Calls, Handle, Lost, Trouble, Unsupported

_GPU_NOT_FOUND = 28  # NVML_ERROR_GPU_NOT_FOUND of newer drivers
_NOT_THERE = (nvml.INVALID_ARGUMENT, nvml.NOT_FOUND, _GPU_NOT_FOUND)


class Outcome(NamedTuple):
    """What GpuChanged tells, without what only the client knows."""

    problem: str
    detail: str
    limit_w: Optional[float] = None
    least_w: Optional[float] = None
    most_w: Optional[float] = None
    default_w: Optional[float] = None


class _TooLate(Exception):
    """The driver took so long that nobody may want it any more."""


def carry_out(calls: Calls, change: GpuChange, until: float) -> Optional[Outcome]:
    """Do it and read back; None when a write was not begun `until` then (time.monotonic()). May block, never raises."""
    try:
        return _Attempt(_find(calls, change), until).make(change)
    except Lost as lost:
        return Outcome(GONE, str(lost))
    except (Unsupported, Trouble) as error:
        return Outcome(_problem(error), str(error))
    except _TooLate:
        return None


def not_there(change: GpuChange) -> Outcome:
    """For a UUID that no GPU has."""
    return Outcome(GONE, f"no GPU with the UUID {change.uuid} is listed by the driver")


def _find(calls: Calls, change: GpuChange) -> Handle:
    """The card that is meant, never by its index (N17). Raises Lost, Unsupported or Trouble."""
    try:
        gpu = Handle(calls, calls("nvmlDeviceGetHandleByUUID", change.uuid))
    except Trouble as trouble:
        if trouble.code in _NOT_THERE:
            raise Lost(f"{not_there(change).detail} ({trouble})") from trouble
        raise
    address = gpu.text("nvmlDeviceGetPciInfo", lambda info: info.busId)
    if not address:
        raise Trouble("nvmlDeviceGetPciInfo: the card's address can't be read")
    found, wanted = pci.canonical(address) or address, pci.canonical(change.pci) or change.pci
    if found != wanted:
        raise Lost(f"the card is at {found} and not at {wanted or 'an unknown address'}")
    return gpu


class _Attempt:
    """One card, and what went wrong on the way: a part that fails leaves the others."""

    def __init__(self, gpu: Handle, until: float) -> None:
        self._gpu, self._until = gpu, until
        self._problem = ""
        self._details: list[str] = []

    def make(self, change: GpuChange) -> Outcome:
        """All of it, then read back. Raises Lost or _TooLate."""
        if change.power_limit_w is not None:
            self._try(self._set_limit, change.power_limit_w)
        if change.graphics_clock_mhz is not None:
            self._try(self._write, "nvmlDeviceSetGpuLockedClocks", *change.graphics_clock_mhz)
        if change.unlock_clocks:
            self._try(self._write, "nvmlDeviceResetGpuLockedClocks")
        return self._read_back(change.power_limit_w is not None or change.is_question)

    def _set_limit(self, watts: float) -> None:
        least, most = self._gpu.ask("nvmlDeviceGetPowerManagementLimitConstraints")
        if not 0 <= least <= most or not most:
            raise Trouble(f"implausible: the power limit can be set from {least} to {most} mW")
        self._write("nvmlDeviceSetPowerManagementLimit", min(max(round(watts * 1000), least), most))

    def _write(self, name: str, *arguments: int) -> None:
        if time.monotonic() > self._until:
            raise _TooLate
        self._gpu.ask(name, arguments=arguments)

    def _read_back(self, limit_matters: bool) -> Outcome:
        gpu, limit = self._gpu, "nvmlDeviceGetPowerManagementLimit"
        if limit_matters:
            milliwatts = self._try(gpu.ask, limit)
            now = None if milliwatts is None else float(milliwatts) / 1000
        else:
            now = gpu.number(limit, divisor=1000).value
        least, most = (each.value for each in gpu.numbers("nvmlDeviceGetPowerManagementLimitConstraints", 2))
        default = gpu.number("nvmlDeviceGetPowerManagementDefaultLimit", divisor=1000).value
        return Outcome(self._problem, "; ".join(self._details), now, _watts(least), _watts(most), default)

    def _try(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """What it returns; None when it fails, and then the first problem is the answer's."""
        try:
            return call(*arguments)
        except (Unsupported, Trouble, *FOREIGN) as error:
            self._problem = self._problem or _problem(error)
            self._details.append(str(error))
            return None


def _problem(error: Exception) -> str:
    if isinstance(error, Unsupported):
        return UNSUPPORTED
    return NO_PERMISSION if isinstance(error, Trouble) and error.code == nvml.NO_PERMISSION else FAILED


def _watts(milliwatts: Optional[float]) -> Optional[float]:
    return None if milliwatts is None else milliwatts / 1000
