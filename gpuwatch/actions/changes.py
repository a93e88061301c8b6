"""What can be changed and put back: a GPU's power limit, and the hold file of a unit. One class a kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional, Protocol

from gpuwatch.actions.reversible import Held
from gpuwatch.model import gpu_change, reason
from gpuwatch.model.gpu import GpuReport
from gpuwatch.model.gpu_change import GpuChange
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent
from gpuwatch.model.settings import Throttle
from gpuwatch.system.protocols import Clock, GpuDriver, Holds, UnitFacts


class Change(Protocol):
    """One kind of change. Nothing here blocks; what is asked is answered by a later answers()."""

    def observe(self, report: GpuReport) -> None:
        """What the driver said in this cycle."""

    def ask(self, intent: Intent, unit: Optional[UnitFacts]) -> None:
        """Find out what is set on the intent's target; `unit` are its facts where it is a unit and they are known."""

    def set(self, intent: Intent, value: float) -> None:
        """Set it; the answer is what is set then."""

    def answers(self) -> Mapping[str, Held]:
        """What has been answered since the last call, by intent id."""

    def seen(self, intent: Intent) -> Optional[float]:
        """What is in force on the target as far as it shows without asking."""

    def target(self, before: float, level: int, throttle: Throttle) -> Optional[float]:
        """What a level comes to from what was there before; None where that is no change."""


class PowerLimit:
    """The management limit of a GPU, in watts, through the driver."""

    def __init__(self, gpus: GpuDriver) -> None:
        self._gpus = gpus
        self._report: Optional[GpuReport] = None
        self._lowest: dict[str, float] = {}
        self._heard: dict[str, Held] = {}

    def observe(self, report: GpuReport) -> None:
        """See Change."""
        self._report = report
        for changed in report.changed:
            if changed.power_limit_min_w is not None:
                self._lowest[changed.uuid] = changed.power_limit_min_w
            name, _, request = changed.id.partition(" ")
            after = float(request) if request else None
            self._heard[name] = Held(changed.at, changed.power_limit_w, changed.problem, changed.detail, after)

    def ask(self, intent: Intent, unit: Optional[UnitFacts]) -> None:
        """See Change."""
        self._change(intent, None)

    def set(self, intent: Intent, value: float) -> None:
        """See Change."""
        self._change(intent, value)

    def _change(self, intent: Intent, value: Optional[float]) -> None:
        sample = (
            None
            if self._report is None
            else next((each for each in self._report.samples if each.uuid == intent.target), None)
        )
        if sample is None:
            return
        watts = None if value is None else max(value, self._lowest.get(intent.target, value))
        name = intent.id if value is None else f"{intent.id} {value!r}"
        self._gpus.change(GpuChange(name, intent.target, sample.pci, power_limit_w=watts))

    def answers(self) -> Mapping[str, Held]:
        """See Change."""
        heard, self._heard = self._heard, {}
        return heard

    def seen(self, intent: Intent) -> Optional[float]:
        """See Change."""
        if self._report is None:
            return None
        for sample in self._report.samples:
            taken = self._report.taken_of(sample, "gpu.power_limit_set")
            later = None if taken is None or intent.applied is None else taken.since(intent.applied)
            if sample.uuid == intent.target and later is not None and later > 0:
                reading = sample.reading("gpu.power_limit_set")
                return None if reading is None else reading.value
        return None

    def target(self, before: float, level: int, throttle: Throttle) -> Optional[float]:
        """See Change. A twentieth less is no throttle."""
        watts = float(round(before * max(throttle.lowest, 1 - throttle.step * level)))
        return watts if watts < before * 0.95 else None


class UnitHold:
    """The hold file of a unit: 1 while it is there. It is made only where the unit looks for it (a drop-in of the
    admin's): elsewhere it would be an empty promise."""

    def __init__(self, clock: Clock, holds: Holds) -> None:
        self._clock, self._holds = clock, holds
        self._heard: dict[str, Held] = {}

    def observe(self, report: GpuReport) -> None:
        """See Change."""

    def ask(self, intent: Intent, unit: Optional[UnitFacts]) -> None:
        """See Change."""
        if intent.before is None and unit is None:
            return  # systemd has not answered yet
        now = self._clock.now()
        if intent.before is None and unit is not None and self._holds.path(intent.target) not in unit.absent_paths:
            self._heard[intent.id] = Held(now, problem=reason.NO_DROP_IN)
            return
        self._look(intent, now)

    def set(self, intent: Intent, value: float) -> None:
        """See Change."""
        now = self._clock.now()
        try:
            if value:
                self._holds.hold(
                    intent.target, f"held by gpuwatch, action {intent.id}: gpuwatch hold release {intent.id}"
                )
            else:
                self._holds.release(intent.target)
        except OSError as error:
            self._heard[intent.id] = Held(now, problem=gpu_change.FAILED, detail=str(error))
            return
        self._look(intent, now, value)

    def _look(self, intent: Intent, now: Instant, after: Optional[float] = None) -> None:
        try:
            held = intent.target in self._holds.held()
        except OSError as error:
            self._heard[intent.id] = Held(now, problem=gpu_change.FAILED, detail=str(error))
            return
        self._heard[intent.id] = Held(now, 1.0 if held else 0.0, after=after)

    def answers(self) -> Mapping[str, Held]:
        """See Change."""
        heard, self._heard = self._heard, {}
        return heard

    def seen(self, intent: Intent) -> Optional[float]:
        """See Change. A person who removes the file has released the unit, which the next answer shows."""
        return None

    def target(self, before: float, level: int, throttle: Throttle) -> Optional[float]:
        """See Change."""
        return 1.0 if before == 0.0 else None
