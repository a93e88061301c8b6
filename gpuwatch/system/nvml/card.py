"""Readings of one GPU through pynvml, each isolated from the failures of the others."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gpuwatch.model import pci
from gpuwatch.model.gpu import GpuProcess, GpuSample, ProcessList
from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import UNSUPPORTED, Reading, failed, value
from gpuwatch.system.nvml.wire import UNIDENTIFIED

# Return codes of nvml.h.
NOT_SUPPORTED, FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH = 3, 13, 15, 16, 25
_INVALID_ARGUMENT = 2
_LOST = {
    GPU_IS_LOST: "the driver can no longer reach it (NVML error 15, GPU is lost)",
    RESET_REQUIRED: "the driver wants it reset (NVML error 16, reset required)",
}
# What a binding that does not fit its library, or text that is no text, may raise (N1, N2).
FOREIGN = (ValueError, TypeError, AttributeError, KeyError, OverflowError, OSError, ctypes.ArgumentError)

_HW_THERMAL_SLOWDOWN = 0x40  # nvmlClocksEventReasonHwThermalSlowdown
_SM_CLOCK = 1  # NVML_CLOCK_SM
_MEMORY_TEMPERATURE, _SHUTDOWN_TLIMIT, _SLOWDOWN_TLIMIT = 82, 193, 194  # NVML_FI_DEV_*
_SHUTDOWN, _SLOWDOWN = 0, 1  # NVML_TEMPERATURE_THRESHOLD_*
_NO_MEMORY_FIGURE = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE


class Unsupported(Exception):
    """The card, the driver or the binding does not offer this."""


class Trouble(Exception):
    """It should have worked and did not; the text is fit for people."""


class Lost(Exception):
    """The driver says that the card is gone."""


class Calls:
    """The library as it is for one start of the driver: a function that is missing is asked for once (N4, N12)."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self._missing: set[str] = set()

    def __call__(self, name: str, *arguments: Any, **options: Any) -> Any:
        """What `api.name(...)` returns. Raises Unsupported, Lost or Trouble."""
        known_as = name + ("/v2" if options else "")
        function = getattr(self.api, name, None)
        if function is None or known_as in self._missing:
            raise Unsupported(name)
        try:
            return function(*arguments, **options)
        except self.api.NVMLError as error:
            self._translate(known_as, error)
        except FOREIGN as error:
            raise Trouble(f"{name}: {type(error).__name__}: {error}") from error

    def _translate(self, name: str, error: Any) -> None:
        code = getattr(error, "value", 999)
        if code in (FUNCTION_NOT_FOUND, VERSION_MISMATCH):
            self._missing.add(name)
            raise Unsupported(name) from error
        if code == NOT_SUPPORTED:
            raise Unsupported(name) from error
        if code in _LOST:
            raise Lost(_LOST[code]) from error
        raise Trouble(f"{name}: {error} (NVML error {code})") from error


class Card:
    """One GPU. All methods may block in the driver."""

    def __init__(self, calls: Calls, index: int) -> None:
        """Raises nothing; a card that can't be identified yet is tried again with each sample."""
        self._calls = calls
        self._handle: Any = None
        self.identity = GpuSample(f"{UNIDENTIFIED}{index}", index, "unknown", "")

    def sample(self, with_processes: bool) -> GpuSample:
        """Everything that is read every second, with the process lists when asked."""
        try:
            self._identify()
            readings, sources = self._readings()
            processes = self._processes() if with_processes else None
        except Lost as lost:
            return replace(self.identity, lost=str(lost))
        except Trouble as trouble:  # no handle: nothing can be read, but nobody said that the card is gone
            return replace(self.identity, readings={"gpu.temperature": failed(str(trouble))})
        return replace(self.identity, readings=readings, sources=sources, processes=processes)

    def _identify(self) -> None:
        index = self.identity.index
        if self._handle is None:
            try:
                self._handle = self._calls("nvmlDeviceGetHandleByIndex", index)
            except Unsupported as error:
                raise Trouble(f"no handle for GPU {index}") from error
        if not self.identity.uuid.startswith(UNIDENTIFIED):
            return
        address = self._text("nvmlDeviceGetPciInfo", lambda info: info.busId)
        self.identity = GpuSample(
            self._text("nvmlDeviceGetUUID") or self.identity.uuid,
            index,
            self._text("nvmlDeviceGetName") or "unknown",
            pci.canonical(address) or address,
        )

    def _text(self, name: str, part: Callable[[Any], Any] = lambda answer: answer) -> str:
        try:
            text = part(self._calls(name, self._handle))
        except (Unsupported, Trouble, AttributeError):
            return ""
        return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)

    def _number(self, *names: str, arguments: Sequence[Any] = ()) -> Any:
        """The first of several functions that this driver has."""
        for name in names[:-1]:
            try:
                return self._calls(name, self._handle, *arguments)
            except Unsupported:
                pass
        return self._calls(names[-1], self._handle, *arguments)

    def _readings(self) -> tuple[dict[str, Reading], dict[str, str]]:
        readings: dict[str, Reading] = {}
        sources: dict[str, str] = {}
        fields = self._fields()
        readings["gpu.temperature"] = _checked("gpu.temperature", _attempt(self._temperature))
        readings["gpu.memory_temperature"] = _checked("gpu.memory_temperature", fields[_MEMORY_TEMPERATURE])
        self._margins(readings, sources, fields)
        self._memory(readings, sources)
        self._load(readings)
        return readings, sources

    def _temperature(self) -> Any:
        # The first form is of 2025 and later; the second is deprecated but still everywhere.
        return self._number("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", arguments=(0,))

    def _margins(self, readings: dict[str, Reading], sources: dict[str, str], fields: dict[int, Reading]) -> None:
        """Degrees left to the card's own points.

        Ada and later count from T.Limit, the degrees left to the maximum operating temperature, and give
        the points as offsets on that scale: an H100 slows down at -2 and shuts down at -8, so with T.Limit
        54 there are 56 degrees left to slowdown. Older cards give the points in degrees Celsius.
        """
        tlimit = _attempt(lambda: self._calls("nvmlDeviceGetMarginTemperature", self._handle))
        for name, offset, threshold in (
            ("gpu.slowdown_margin", fields[_SLOWDOWN_TLIMIT], _SLOWDOWN),
            ("gpu.shutdown_margin", fields[_SHUTDOWN_TLIMIT], _SHUTDOWN),
        ):
            if tlimit.unsupported or offset.unsupported:
                point = _attempt(self._threshold, threshold)
                readings[name], sources[name] = _difference(name, point, readings["gpu.temperature"]), "threshold"
            else:
                readings[name], sources[name] = _difference(name, tlimit, offset), "tlimit"

    def _threshold(self, which: int) -> float:
        celsius = float(self._calls("nvmlDeviceGetTemperatureThreshold", self._handle, which))
        if not 1 <= celsius <= 150:
            raise Trouble(f"implausible threshold: {celsius:g} C")
        return celsius

    def _memory(self, readings: dict[str, Reading], sources: dict[str, str]) -> None:
        names = ("gpu.memory_total", "gpu.memory_reserved", "gpu.memory_used")
        try:
            # The first version counts what the driver reserves as used, some 900 MB on an idle card (N5).
            info, source = self._calls("nvmlDeviceGetMemoryInfo", self._handle, version=self._memory_v2()), "v2"
            figures = (value(info.total), value(info.reserved), value(info.used))
        except Unsupported:
            source = "v1"
            old = _attempt_any(lambda: self._calls("nvmlDeviceGetMemoryInfo", self._handle))
            if isinstance(old, Reading):
                figures = (old, old, old)
            else:
                figures = (value(old.total), UNSUPPORTED, value(old.used))
        except Trouble as trouble:
            source, figures = "v2", (failed(str(trouble)),) * 3
        for name, figure in zip(names, figures):
            readings[name] = _checked(name, figure)
        sources["gpu.memory_used"] = source
        readings["gpu.memory_used_ratio"] = _ratio(
            "gpu.memory_used_ratio", readings["gpu.memory_used"], readings["gpu.memory_total"]
        )

    def _memory_v2(self) -> int:
        version = getattr(self._calls.api, "nvmlMemory_v2", None)
        if not isinstance(version, int):
            raise Unsupported("nvmlMemory_v2")
        return version

    def _load(self, readings: dict[str, Reading]) -> None:
        rates = _attempt_any(lambda: self._calls("nvmlDeviceGetUtilizationRates", self._handle))
        plain: dict[str, Reading] = {
            "gpu.utilisation": rates if isinstance(rates, Reading) else value(rates.gpu),
            "gpu.memory_utilisation": rates if isinstance(rates, Reading) else value(rates.memory),
            "gpu.power": _attempt(lambda: self._number("nvmlDeviceGetPowerUsage") / 1000),
            "gpu.power_limit": _attempt(
                lambda: self._number("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit") / 1000
            ),
            "gpu.hw_thermal_slowdown": _attempt(self._thermal_slowdown),
            "gpu.sm_clock": _attempt(lambda: self._number("nvmlDeviceGetClockInfo", arguments=(_SM_CLOCK,))),
            "gpu.fan": _attempt(lambda: self._number("nvmlDeviceGetFanSpeed")),
        }
        for name, reading in plain.items():
            readings[name] = _checked(name, reading)
        readings["gpu.power_ratio"] = _ratio("gpu.power_ratio", readings["gpu.power"], readings["gpu.power_limit"])

    def _thermal_slowdown(self) -> float:
        reasons = self._number("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        return 1.0 if int(reasons) & _HW_THERMAL_SLOWDOWN else 0.0

    def _fields(self) -> dict[int, Reading]:
        wanted = [_MEMORY_TEMPERATURE, _SHUTDOWN_TLIMIT, _SLOWDOWN_TLIMIT]
        answer = _attempt_any(lambda: self._calls("nvmlDeviceGetFieldValues", self._handle, wanted))
        if isinstance(answer, Reading):
            return dict.fromkeys(wanted, answer)
        return {number: _field(entry) for number, entry in zip(wanted, answer)}

    def _processes(self) -> ProcessList:
        """All three lists. A card that has no list of compute processes has none at all."""
        found: list[GpuProcess] = []
        for kind, name in (("compute", "Compute"), ("graphics", "Graphics"), ("mps", "MPSCompute")):
            call = f"nvmlDeviceGet{name}RunningProcesses"
            try:
                # Drivers before 510 have only the second form, old bindings only the third.
                entries = self._number(f"{call}_v3", f"{call}_v2", call)
                found.extend(_process(kind, entry) for entry in entries)
            except Unsupported:
                if kind == "compute":
                    return ProcessList(problem="unsupported")
            except Trouble as trouble:
                return ProcessList(problem=str(trouble))
            except FOREIGN as error:
                return ProcessList(problem=f"{call}: {type(error).__name__}: {error}")
        return ProcessList(tuple(found))


def _process(kind: str, entry: Any) -> GpuProcess:
    used = entry.usedGpuMemory
    return GpuProcess(int(entry.pid), kind, None if used is None or used == _NO_MEMORY_FIGURE else int(used))


def _attempt_any(call: Callable[[], Any]) -> Any:
    """What the call returns, or the Reading that says why there is nothing."""
    try:
        return call()
    except Unsupported:
        return UNSUPPORTED
    except Trouble as trouble:
        return failed(str(trouble))
    except FOREIGN as error:
        return failed(f"{type(error).__name__}: {error}")


def _attempt(call: Callable[..., Any], *arguments: Any) -> Reading:
    answer = _attempt_any(lambda: float(call(*arguments)))
    return answer if isinstance(answer, Reading) else value(answer)


def _checked(name: str, reading: Reading) -> Reading:
    """The reading, or a failed one when its value is beyond what is plausible for the metric (N9)."""
    metric = METRICS[name]
    if reading.value is None or metric.low <= reading.value <= metric.high:
        return reading
    return failed(f"implausible: {reading.value:g} {metric.unit}")


def _difference(name: str, left: Reading, right: Reading) -> Reading:
    if left.value is None or right.value is None:
        return left if left.value is None else right
    return _checked(name, value(left.value - right.value))


def _ratio(name: str, part: Reading, whole: Reading) -> Reading:
    if part.value is None or whole.value is None:
        return part if part.value is None else whole
    if whole.value <= 0:
        return failed("implausible: divided by 0")
    return _checked(name, value(part.value / whole.value))


def _field(entry: Any) -> Reading:
    code = int(entry.nvmlReturn)
    if code in _LOST:
        raise Lost(_LOST[code])
    if code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND, _INVALID_ARGUMENT):  # older drivers don't know the number
        return UNSUPPORTED
    if code != 0:
        return failed(f"field {int(entry.fieldId)}: NVML error {code}")
    # nvmlValueType_t. Small numbers may come as unsigned with the sign lost, so 32 bits are read as signed.
    name = {0: "dVal", 1: "siVal", 2: "ulVal", 3: "sllVal", 4: "sllVal", 5: "siVal", 6: "usVal"}.get(entry.valueType)
    if name is None:
        return failed(f"field {int(entry.fieldId)}: a value of unknown type {entry.valueType}")
    return value(getattr(entry.value, name))
