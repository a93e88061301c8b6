"""Which GPUs there are, which there should be, and what each of them offers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Optional

from gpuwatch.model.gpu import GpuIdentity, GpuSample
from gpuwatch.model.instant import Instant
from gpuwatch.model.reading import Reading, failed
from gpuwatch.system.nvml.information import Listed
from gpuwatch.system.nvml.wire import UNIDENTIFIED

NOT_LISTED = "it is not listed by the driver any more"
SILENT = failed("the driver does not answer for this GPU")


class Inventory:
    """The GPUs seen by this gpuwatch, and those that an earlier one remembers (N10)."""

    def __init__(self) -> None:
        self._known: dict[str, GpuSample] = {}  # the newest sample of each, or what is remembered of it
        self._expected: Optional[frozenset[str]] = None
        self._listed_by_kernel: tuple[Listed, ...] = ()
        self._slow: dict[str, tuple[Instant, Mapping[str, Reading]]] = {}
        self.new: tuple[str, ...] = ()
        self.missing: tuple[str, ...] = ()

    def expect(self, gpus: Sequence[GpuIdentity]) -> None:
        """These belong here; what is neither among them nor listed now is forgotten."""
        gone = [uuid for uuid, known in self._known.items() if known.lost is not None or uuid in self.missing]
        for uuid in gone:
            del self._known[uuid]
        for gpu in gpus:
            self._known.setdefault(gpu.uuid, GpuSample(gpu.uuid, gpu.index, gpu.name, gpu.pci))
        self._expected = frozenset(gpu.uuid for gpu in gpus) or None
        self.new = tuple(uuid for uuid in self.new if self._expected and uuid not in self._expected)
        self.missing = tuple(uuid for uuid in self.missing if uuid in self._known)

    def listed_by_kernel(self, gpus: Iterable[Listed]) -> None:
        """What /proc/driver/nvidia/gpus says; read when a card can't be identified."""
        self._listed_by_kernel = tuple(gpus)

    def note_slow(self, uuid: str, taken: Instant, readings: Mapping[str, Reading]) -> None:
        """What was read once a minute."""
        self._slow[uuid] = (taken, readings)

    def complete(self, answered: Sequence[GpuSample], unanswered: Sequence[int]) -> tuple[GpuSample, ...]:
        """With names for those that have none, with the GPUs that did not answer, and those not listed any more."""
        samples = self._named(answered)
        missing = {uuid: known for uuid, known in self._known.items() if uuid not in {each.uuid for each in samples}}
        by_index = {known.index: known for known in missing.values()}
        for index in unanswered:
            known = by_index.get(index, GpuSample(f"{UNIDENTIFIED}{index}", index, "unknown", ""))
            missing.pop(known.uuid, None)
            readings = {name: SILENT for name, reading in known.readings.items() if not reading.unsupported}
            samples.append(replace(known, readings=readings or {"gpu.temperature": SILENT}, processes=None, taken=None))
        listed = [sample.uuid for sample in samples if not sample.uuid.startswith(UNIDENTIFIED)]
        at = {sample.pci: sample.uuid for sample in samples if sample.pci}
        for known in missing.values():
            other = at.get(known.pci)
            why = f"another card is in its place ({other})" if other else known.lost or NOT_LISTED
            samples.append(GpuSample(known.uuid, known.index, known.name, known.pci, lost=why))
        if self._expected is None and listed:
            self._expected = frozenset(listed)
        self.missing = tuple(missing)
        self.new = tuple(uuid for uuid in listed if self._expected and uuid not in self._expected)
        self._known.update((sample.uuid, sample) for sample in samples if not sample.uuid.startswith(UNIDENTIFIED))
        samples = [self._with_slow(sample) for sample in samples]
        return tuple(sorted(samples, key=lambda sample: (sample.index, sample.uuid)))

    def _with_slow(self, sample: GpuSample) -> GpuSample:
        if sample.lost is not None or sample.uuid not in self._slow:
            return sample
        taken, readings = self._slow[sample.uuid]
        return replace(sample, slow=readings, slow_taken=taken)

    def _named(self, answered: Sequence[GpuSample]) -> list[GpuSample]:
        """A card that was lost before NVML could name it: by what the kernel lists, or by what is remembered.

        Only where there is no choice: as many cards without a name as names without a card.
        """
        nameless = [sample for sample in answered if sample.uuid.startswith(UNIDENTIFIED)]
        if not nameless:
            return list(answered)
        named = [sample for sample in answered if not sample.uuid.startswith(UNIDENTIFIED)]
        there = {sample.uuid for sample in named} | {sample.pci for sample in named}
        remembered = [known for known in self._known.values() if known.uuid not in there]
        free = [each for each in self._listed_by_kernel if each.pci not in there]
        nameless.sort(key=lambda sample: sample.index)
        if len(free) == len(nameless):
            by_pci = {known.pci: known for known in remembered}
            for sample, listed in zip(nameless, free):
                known = by_pci.get(listed.pci)
                uuid = listed.uuid or (known.uuid if known else sample.uuid)
                named.append(replace(sample, uuid=uuid, name=known.name if known else listed.name, pci=listed.pci))
            return named
        by_index = {known.index: known for known in remembered}
        for sample in nameless:
            known = by_index.pop(sample.index, None)
            named.append(replace(sample, uuid=known.uuid, name=known.name, pci=known.pci) if known else sample)
        return named
