"""What is read of a GPU once a minute: limits, memory errors, PCIe, NVLink, fabric, what the driver wants done."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

from gpuwatch.model.reading import UNSUPPORTED, Reading, value
from gpuwatch.system.nvml.calls import Field, Handle, Unsupported, all_checked, attempt_any, otherwise

CLOCKS = ("graphics", "sm", "memory", "video")  # NVML_CLOCK_*, in its order

# NVML_FI_DEV_*
_FIELDS = {
    "gpu.ecc_enabled": 1,
    "gpu.ecc_corrected": 3,
    "gpu.ecc_uncorrected": 4,
    "gpu.ecc_corrected_ever": 5,
    "gpu.ecc_uncorrected_ever": 6,
    "gpu.pages_retired_correctable": 29,
    "gpu.pages_retired_uncorrectable": 30,
    "gpu.page_retirement_pending": 31,
    "gpu.pcie_replays": 94,
    "gpu.nvlink_flit_errors": 38,
    "gpu.nvlink_data_errors": 45,
    "gpu.nvlink_replays": 52,
    "gpu.nvlink_recoveries": 59,
    "gpu.recovery_action": 230,
}
_LINK_COUNT = 91
MOST_LINKS = 18
# NVML_NVLINK_ERROR_*: for cards whose totals can't be had
_LINK_COUNTERS = {
    "gpu.nvlink_replays": 0,
    "gpu.nvlink_recoveries": 1,
    "gpu.nvlink_flit_errors": 2,
    "gpu.nvlink_data_errors": 3,
}
# Fields of one link each, on cards with NVLink 5
_LINK_FIELDS = {"gpu.nvlink_effective_errors": 219, "gpu.nvlink_failed_recoveries": 214}
_ECC_CALLS = {
    "gpu.ecc_corrected": (0, 0),
    "gpu.ecc_uncorrected": (1, 0),
    "gpu.ecc_corrected_ever": (0, 1),
    "gpu.ecc_uncorrected_ever": (1, 1),
}
_FABRIC_NOT_SUPPORTED = 0
_DEGRADED = {1: 1.0, 2: 0.0}  # the lowest two bits of the fabric's health mask; 0: not told


def read_minute(gpu: Handle) -> dict[str, Reading]:
    """All of it, each a reading of its own. Raises Lost."""
    fields = gpu.fields([*_FIELDS.values(), _LINK_COUNT])
    readings = {name: fields[number] for name, number in _FIELDS.items()}
    readings.update(_limits(gpu))
    readings.update(_memory_errors(gpu, readings))
    readings.update(_pcie(gpu, readings))
    readings.update(_links(gpu, readings, fields[_LINK_COUNT]))
    readings.update(_fabric(gpu))
    readings["gpu.persistence_mode"] = gpu.number("nvmlDeviceGetPersistenceMode")
    readings["gpu.mig_mode"] = gpu.numbers("nvmlDeviceGetMigMode", 2)[0]
    return all_checked(readings)


def _limits(gpu: Handle) -> dict[str, Reading]:
    least, most = (_watts(reading) for reading in gpu.numbers("nvmlDeviceGetPowerManagementLimitConstraints", 2))
    readings = {
        "gpu.power_limit_min": least,
        "gpu.power_limit_max": most,
        "gpu.power_limit_default": gpu.number("nvmlDeviceGetPowerManagementDefaultLimit", divisor=1000),
    }
    for which, clock in enumerate(CLOCKS):
        readings[f"gpu.max_{clock}_clock"] = gpu.number("nvmlDeviceGetMaxClockInfo", arguments=(which,))
    return readings


def _watts(reading: Reading) -> Reading:
    return reading if reading.value is None else value(reading.value / 1000)


def _memory_errors(gpu: Handle, by_field: dict[str, Reading]) -> dict[str, Reading]:
    correctable, uncorrectable, pending, broken = gpu.numbers("nvmlDeviceGetRemappedRows", 4)
    readings = {
        "gpu.rows_remapped_correctable": correctable,
        "gpu.rows_remapped_uncorrectable": uncorrectable,
        "gpu.row_remap_pending": pending,
        "gpu.row_remap_failed": broken,
    }
    for name, arguments in _ECC_CALLS.items():
        call = partial(gpu.number, "nvmlDeviceGetTotalEccErrors", arguments=arguments)
        readings[name] = otherwise(by_field[name], call)
    readings["gpu.ecc_enabled"] = otherwise(
        by_field["gpu.ecc_enabled"], lambda: gpu.numbers("nvmlDeviceGetEccMode", 2)[0]
    )
    return readings


def _pcie(gpu: Handle, by_field: dict[str, Reading]) -> dict[str, Reading]:
    return {
        "gpu.pcie_generation": gpu.number("nvmlDeviceGetCurrPcieLinkGeneration"),
        "gpu.pcie_generation_max": gpu.number("nvmlDeviceGetMaxPcieLinkGeneration"),
        "gpu.pcie_width": gpu.number("nvmlDeviceGetCurrPcieLinkWidth"),
        "gpu.pcie_width_max": gpu.number("nvmlDeviceGetMaxPcieLinkWidth"),
        "gpu.pcie_replays": otherwise(
            by_field["gpu.pcie_replays"], partial(gpu.number, "nvmlDeviceGetPcieReplayCounter")
        ),
    }


def _links(gpu: Handle, by_field: dict[str, Reading], count: Reading) -> dict[str, Reading]:
    """Links up and down, and errors over all links; unsupported where there is no link."""
    most = MOST_LINKS if count.value is None else min(int(count.value), 64)
    states = [gpu.number("nvmlDeviceGetNvLinkState", arguments=(link,)) for link in range(most)]
    # Past the last link the call is refused as unsupported or as an invalid argument.
    there = [link for link, state in enumerate(states) if state.value is not None]
    readings: dict[str, Reading] = {}
    if not there:
        trouble = next((state for state in states[:1] if state.failed), UNSUPPORTED)
        names = ("gpu.nvlinks_up", "gpu.nvlinks_down", *_LINK_COUNTERS, *_LINK_FIELDS)
        return dict.fromkeys(names, trouble)
    up = sum(states[link].value == 1 for link in there)
    readings["gpu.nvlinks_up"], readings["gpu.nvlinks_down"] = value(up), value(len(there) - up)
    for name, counter in _LINK_COUNTERS.items():
        readings[name] = otherwise(by_field[name], partial(_count_by_link, gpu, there, counter))
    of_links: list[Field] = [(number, link) for number in _LINK_FIELDS.values() for link in there]
    told = gpu.fields(of_links)
    for name, number in _LINK_FIELDS.items():
        readings[name] = _sum([told[(number, link)] for link in there])
    return readings


def _count_by_link(gpu: Handle, links: list[int], counter: int) -> Reading:
    return _sum([gpu.number("nvmlDeviceGetNvLinkErrorCounter", arguments=(link, counter)) for link in links])


def _sum(parts: list[Reading]) -> Reading:
    """Of what all links tell; a link that does not count, or fails, spoils it."""
    missing = next((part for part in parts if part.value is None), None)
    return missing if missing is not None else value(sum(part.value or 0.0 for part in parts))


def _fabric(gpu: Handle) -> dict[str, Reading]:
    info = attempt_any(lambda: _fabric_info(gpu))
    names = ("gpu.fabric_state", "gpu.fabric_status", "gpu.fabric_degraded")
    if isinstance(info, Reading):
        return dict.fromkeys(names, info)
    if int(info.state) == _FABRIC_NOT_SUPPORTED:
        return dict.fromkeys(names, UNSUPPORTED)
    degraded = _DEGRADED.get(int(getattr(info, "healthMask", 0)) & 3)
    return dict(
        zip(names, (value(info.state), value(info.status), UNSUPPORTED if degraded is None else value(degraded)))
    )


def _fabric_info(gpu: Handle) -> Any:
    """The driver fills a structure that the binding defines; the first form has no health mask."""
    api = gpu.calls.api
    for call, kind in (
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
        ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
    ):
        if not hasattr(api, kind):
            continue
        info = getattr(api, kind)()
        try:
            gpu.ask(call, arguments=(ctypes.byref(info),))
        except Unsupported:
            continue
        return info
    raise Unsupported("nvmlDeviceGetGpuFabricInfo")
