"""A card's own temperature points and the degrees left to them, from whichever interface it has (margins.py)."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwatch.model.reading import UNSUPPORTED, Reading, failed, value
from gpuwatch.system.nvml.calls import Handle, checked, difference
from gpuwatch.system.nvml.margins import Belief, Witnesses

_SHUTDOWN_TLIMIT, _SLOWDOWN_TLIMIT, _GPU_MAX_TLIMIT = 193, 194, 196  # NVML_FI_DEV_*
_FIELDS = (_SHUTDOWN_TLIMIT, _SLOWDOWN_TLIMIT, _GPU_MAX_TLIMIT)
_SHUTDOWN, _SLOWDOWN, _MEMORY_MAX, _GPU_MAX = range(4)  # NVML_TEMPERATURE_THRESHOLD_*
_OFFSETS_C = (-40.0, 10.0)

# name of the point, of the margin to it, its field and its threshold
_KINDS = (
    ("gpu.slowdown_point", "gpu.slowdown_margin", _SLOWDOWN_TLIMIT, _SLOWDOWN),
    ("gpu.shutdown_point", "gpu.shutdown_margin", _SHUTDOWN_TLIMIT, _SHUTDOWN),
    ("gpu.operating_point", "gpu.operating_margin", _GPU_MAX_TLIMIT, _GPU_MAX),
)


class Heat:
    """The points of one card, which do not change, and its belief in T.Limit. Raises Lost."""

    def __init__(self, gpu: Handle) -> None:
        self._gpu = gpu
        self._belief = Belief()
        self._max_sm_clock = UNSUPPORTED
        self._temperature = self._tlimit = UNSUPPORTED
        self.refresh()

    def refresh(self) -> None:
        """Ask for the points; at first, and once a minute."""
        gpu = self._gpu
        self._thresholds = {which: self._threshold(which) for which in (_SHUTDOWN, _SLOWDOWN, _MEMORY_MAX, _GPU_MAX)}
        self._offsets = {field: _plausible(offset) for field, offset in gpu.fields(_FIELDS).items()}
        if self._offsets[_GPU_MAX_TLIMIT].unsupported:
            self._offsets[_GPU_MAX_TLIMIT] = value(0.0)  # the zero of the scale is this point
        self._max_sm_clock = gpu.number("nvmlDeviceGetMaxClockInfo", arguments=(1,))

    def margins(self, readings: Mapping[str, Reading], sources: dict[str, str]) -> dict[str, Reading]:
        """Degrees left, given what else was read just now; says into `sources` which interface told them."""
        if any(reading.failed for reading in (*self._thresholds.values(), *self._offsets.values())):
            self.refresh()
        told = checked("gpu.operating_margin", self._gpu.number("nvmlDeviceGetMarginTemperature"))
        self._temperature = readings["gpu.temperature"]
        self._tlimit = self._belief.judge(told, self._witnesses(readings))
        margins = {}
        for _, name, field, which in _KINDS:
            offset, point = self._offsets[field], self._thresholds[which]
            if not self._tlimit.unsupported and not offset.unsupported:
                left, sources[name] = difference(self._tlimit, offset), "tlimit"
            elif point.unsupported and told.value is not None and self._tlimit.unsupported:
                left, sources[name] = UNSUPPORTED, "nonsense"
            else:
                left, sources[name] = difference(point, self._temperature), "threshold"
            margins[name] = checked(name, left)
        return margins

    def points(self) -> dict[str, Reading]:
        """The points in degrees Celsius; those of a T.Limit card follow from its last sample."""
        zero = self._temperature.value, self._tlimit.value
        points = {"gpu.memory_operating_point": self._thresholds[_MEMORY_MAX]}
        for name, _, field, which in _KINDS:
            point, offset = self._thresholds[which], self._offsets[field].value
            if point.unsupported and offset is not None and zero[0] is not None and zero[1] is not None:
                point = value(zero[0] + zero[1] - offset)
            points[name] = checked(name, point)
        return points

    def _threshold(self, which: int) -> Reading:
        celsius = self._gpu.number("nvmlDeviceGetTemperatureThreshold", arguments=(which,))
        return checked("gpu.shutdown_point", celsius)

    def _witnesses(self, readings: Mapping[str, Reading]) -> Witnesses:
        return Witnesses(
            temperature=readings["gpu.temperature"],
            memory_temperature=readings["gpu.memory_temperature"],
            operating_point=self._thresholds[_GPU_MAX],
            slowdown_point=self._thresholds[_SLOWDOWN],
            hw_thermal_slowdown=readings["gpu.hw_thermal_slowdown"],
            sw_thermal_slowdown=readings["gpu.sw_thermal_slowdown"],
            utilisation=readings["gpu.utilisation"],
            sm_clock=readings["gpu.sm_clock"],
            max_sm_clock=self._max_sm_clock,
            power_ratio=readings["gpu.power_ratio"],
        )


def _plausible(offset: Reading) -> Reading:
    if offset.value is None or _OFFSETS_C[0] <= offset.value <= _OFFSETS_C[1]:
        return offset
    return failed(f"implausible: {offset.value:g} C as an offset to T.Limit")
