"""What each GPU offers with this start of the driver, found by asking (N12). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from gpuwatch.model.gpu import GpuSample
from gpuwatch.model.reading import Reading

SUPPORTED, UNSUPPORTED, FAILED = "supported", "unsupported", "failed"


class Capabilities:
    """The newest definite answer for each reading; a reading that only ever failed says so."""

    def __init__(self) -> None:
        self.table: Mapping[str, Mapping[str, str]] = {}

    def note(self, sample: GpuSample) -> None:
        """Learn from a sample."""
        found = {name: _word(reading) for name, reading in sample.readings.items()}
        if sample.processes is not None:
            problem = sample.processes.problem
            found["processes"] = SUPPORTED if problem is None else UNSUPPORTED if problem == UNSUPPORTED else FAILED
        self._add(sample.uuid, found)

    def note_slow(self, uuid: str, readings: Mapping[str, Reading]) -> None:
        """Learn from what is read once a minute."""
        found = {name: _word(reading) for name, reading in readings.items()}
        mode: Optional[Reading] = readings.get("gpu.mig_mode")
        if mode is not None:
            found["mig"] = _word(mode)
        self._add(uuid, found)

    def _add(self, uuid: str, found: Mapping[str, str]) -> None:
        old = self.table.get(uuid, {})
        news = {
            name: word for name, word in found.items() if old.get(name) != word and (word != FAILED or name not in old)
        }
        if news:
            # A new table, since the old one is part of reports that others keep.
            self.table = {**self.table, uuid: {**old, **news}}


def _word(reading: Reading) -> str:
    return FAILED if reading.failed else UNSUPPORTED if reading.unsupported else SUPPORTED
