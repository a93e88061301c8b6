"""One GPU through pynvml: what is read every second, its processes, its MIG instances; and once a minute the rest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Optional

from gpuwatch.model import pci
from gpuwatch.model.gpu import GpuSample, MigInstance, ProcessList
from gpuwatch.model.reading import UNSUPPORTED, Reading, failed, value
from gpuwatch.system.nvml.calls import (
    Calls,
    Handle,
    Lost,
    Trouble,
    Unsupported,
    all_checked,
    attempt_any,
    checked,
    ratio,
)
from gpuwatch.system.nvml.heat import Heat
from gpuwatch.system.nvml.lists import read_memory, read_processes
from gpuwatch.system.nvml.mig import Mig
from gpuwatch.system.nvml.minute import CLOCKS, read_minute
from gpuwatch.system.nvml.wire import UNIDENTIFIED

_MEMORY_TEMPERATURE = 82  # NVML_FI_DEV_MEMORY_TEMP
# nvmlClocksEventReason*: why the clocks are not higher. The first four are no fault (A18).
REASONS = {
    "gpu.idle": 0x1,
    "gpu.application_clocks": 0x2,
    "gpu.sw_power_cap": 0x4,
    "gpu.sync_boost": 0x10,
    "gpu.hw_slowdown": 0x8,
    "gpu.sw_thermal_slowdown": 0x20,
    "gpu.hw_thermal_slowdown": 0x40,
    "gpu.hw_power_brake": 0x80,
}


class Card:
    """One GPU. All methods may block in the driver; none raises."""

    def __init__(self, calls: Calls, index: int) -> None:
        """A card that can't be identified yet is tried again with each sample."""
        self._calls = calls
        self._gpu: Optional[Handle] = None
        self._heat: Optional[Heat] = None
        self._mig = Mig(calls)
        self._reasons_offered: Any = UNSUPPORTED
        self.identity = GpuSample(f"{UNIDENTIFIED}{index}", index, "unknown", "")

    @property
    def unidentified(self) -> bool:
        """True while nobody knows its UUID."""
        return self.identity.uuid.startswith(UNIDENTIFIED)

    def sample(self, with_processes: bool) -> GpuSample:
        """Everything that is read every second, with the process lists when asked."""
        try:
            gpu = self._identified()
            sample = self._read(gpu)
            if with_processes:
                self._mig.look(gpu)
            instances = self._mig.read(with_processes)
            listed = _processes(gpu, instances) if with_processes else None
        except Lost as lost:
            return replace(self.identity, lost=str(lost))
        except Trouble as trouble:  # no handle: nothing can be read, but nobody said that the card is gone
            return replace(self.identity, readings={"gpu.temperature": failed(str(trouble))})
        return replace(sample, instances=instances, processes=listed)

    def minute(self) -> dict[str, Reading]:
        """Everything that is read once a minute; nothing while the card is lost or has no handle."""
        if self._gpu is None or self._heat is None:
            return {}
        try:
            self._heat.refresh()
            return {**read_minute(self._gpu), **self._heat.points()}
        except Lost:
            return {}  # the next sample says so

    def _identified(self) -> Handle:
        index = self.identity.index
        if self._gpu is None:
            try:
                self._gpu = Handle(self._calls, self._calls("nvmlDeviceGetHandleByIndex", index))
            except Unsupported as error:
                raise Trouble(f"no handle for GPU {index}") from error
        gpu = self._gpu
        if self.unidentified:
            address = gpu.text("nvmlDeviceGetPciInfo", lambda info: info.busId)
            self.identity = GpuSample(
                gpu.text("nvmlDeviceGetUUID") or self.identity.uuid,
                index,
                gpu.text("nvmlDeviceGetName") or "unknown",
                pci.canonical(address) or address,
            )
            # Which reasons this card can tell at all; where it does not say so, all of them.
            self._reasons_offered = attempt_any(
                lambda: int(
                    gpu.ask("nvmlDeviceGetSupportedClocksEventReasons", "nvmlDeviceGetSupportedClocksThrottleReasons")
                )
            )
        return gpu

    def _read(self, gpu: Handle) -> GpuSample:
        sources: dict[str, str] = {}
        readings = self._load(gpu)
        # The first form is of 2025 and later; the second is deprecated but still everywhere.
        celsius = gpu.number("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", arguments=(0,))
        readings["gpu.temperature"] = checked("gpu.temperature", celsius)
        memory_celsius = gpu.fields([_MEMORY_TEMPERATURE])[_MEMORY_TEMPERATURE]
        readings["gpu.memory_temperature"] = checked("gpu.memory_temperature", memory_celsius)
        if self._heat is None:
            self._heat = Heat(gpu)
        readings.update(self._heat.margins(readings, sources))
        memory, sources["gpu.memory_used"] = read_memory(gpu)
        readings.update(memory)
        unified = memory["gpu.memory_total"].unsupported
        return replace(self.identity, readings=readings, sources=sources, unified_memory=unified)

    def _load(self, gpu: Handle) -> dict[str, Reading]:
        rates = attempt_any(lambda: gpu.ask("nvmlDeviceGetUtilizationRates"))
        reasons = attempt_any(
            lambda: int(gpu.ask("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"))
        )
        # What is in force, and what was asked for: the latter tells when somebody else changes it.
        enforced = gpu.number("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit", divisor=1000)
        readings = {
            "gpu.utilisation": rates if isinstance(rates, Reading) else value(rates.gpu),
            "gpu.memory_utilisation": rates if isinstance(rates, Reading) else value(rates.memory),
            "gpu.power": gpu.number("nvmlDeviceGetPowerUsage", divisor=1000),
            "gpu.power_limit": enforced,
            "gpu.power_limit_set": gpu.number("nvmlDeviceGetPowerManagementLimit", divisor=1000),
            "gpu.energy": gpu.number("nvmlDeviceGetTotalEnergyConsumption", divisor=1000),
            "gpu.pstate": gpu.number("nvmlDeviceGetPerformanceState"),
            "gpu.fan": gpu.number("nvmlDeviceGetFanSpeed"),
        }
        readings.update((name, self._reason(reasons, bit)) for name, bit in REASONS.items())
        for which, clock in enumerate(CLOCKS):
            readings[f"gpu.{clock}_clock"] = gpu.number("nvmlDeviceGetClockInfo", arguments=(which,))
        readings = all_checked(readings)
        of_limit = ratio(readings["gpu.power"], readings["gpu.power_limit"])
        readings["gpu.power_ratio"] = checked("gpu.power_ratio", of_limit)
        return readings

    def _reason(self, reasons: Any, bit: int) -> Reading:
        if isinstance(reasons, Reading):
            return reasons
        offered = self._reasons_offered
        if isinstance(offered, int) and offered and not (offered | reasons) & bit:
            return UNSUPPORTED
        return value(1.0 if reasons & bit else 0.0)


def _processes(gpu: Handle, instances: Iterable[MigInstance]) -> ProcessList:
    """The GPU's lists; where it has none, those of its MIG instances."""
    listed = read_processes(gpu)
    if listed.problem != "unsupported":
        return listed
    of_instances = [each.processes for each in instances if each.processes is not None]
    problem = next((each.problem for each in of_instances if each.problem is not None), None)
    if not of_instances or problem is not None:
        return ProcessList(problem=problem or "unsupported")
    return ProcessList(tuple(process for each in of_instances for process in each.processes))
