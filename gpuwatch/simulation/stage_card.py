"""One card of a story: what the story says of it, over a simulated card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from gpuwatch.model.gpu import GpuIdentity, GpuReport
from gpuwatch.model.gpu_change import GpuChange
from gpuwatch.model.reading import Reading, value
from gpuwatch.simulation.gpu_card import LIMIT_DEFAULT_W
from gpuwatch.simulation.gpus import SimulatedGpus
from gpuwatch.simulation.scenario import IDLE, MODELS, THROTTLED, Card, Happening

CALM_BUSY_C, CALM_IDLE_C = 61.0, 34.0
_MARGINS = ("gpu.operating_margin", "gpu.slowdown_margin", "gpu.shutdown_margin")
_POINTS = ("gpu.operating_point", "gpu.slowdown_point", "gpu.shutdown_point")
# What the story says of these holds for as long as the card has work
_LOAD = (
    "gpu.utilisation",
    "gpu.memory_utilisation",
    "gpu.power",
    "gpu.power_ratio",
    "gpu.sm_clock",
    "gpu.graphics_clock",
)


class StageCard:
    """`live` brings it to a moment; what cools it is in scenario.Cooling."""

    def __init__(self, sim: SimulatedGpus, index: int, card: Card) -> None:
        self._sim, self._index, self._card = sim, index, card
        self.model = MODELS[card.model]
        self.uuid = sim.uuid(index)
        self._celsius: Optional[float] = None  # as the story says; None: it has said nothing
        self._cooler = 0.0
        self._power: Optional[float] = None
        self._said: set[str] = set()
        self._busy: Optional[bool] = None
        self._left_idle = False  # its work has ended, and the story has said nothing of its temperature since
        self._lived_s = 0.0
        if self.model.points is None:
            sim.without_margins(index)
        for metric, point in zip(_POINTS, self.model.points or ()):
            sim.set_reading(index, metric, value(point))
        for metric, reading in {**self.model.readings, **card.readings}.items():
            self.set(metric, reading)

    def set(self, metric: str, reading: Optional[Reading]) -> None:
        """What the story says from now on; None: as the simulation has it."""
        number = None if reading is None else reading.value
        self._said.discard(metric)
        if metric == "gpu.temperature" and (number is not None or reading is None):
            self._celsius, reading = number, None
        elif metric == "gpu.power" and number is not None:
            self._power = number
        elif reading is not None:
            self._said.add(metric)
        if metric == "gpu.power" and number is None:
            self._power = None
        self._sim.set_reading(self._index, metric, reading)
        if metric in ("gpu.memory_used", "gpu.memory_total"):
            self._keep_ratio(number if metric == "gpu.memory_used" else None)

    def _keep_ratio(self, used: Optional[float]) -> None:
        total = self._card.readings.get("gpu.memory_total", self.model.readings.get("gpu.memory_total"))
        whole = 80.0 * 1024**3 if total is None or total.value is None else total.value
        if "gpu.memory_used_ratio" not in self._said:
            ratio = None if used is None else value(min(1.0, used / whole))
            self._sim.set_reading(self._index, "gpu.memory_used_ratio", ratio)

    def happen(self, what: Happening) -> None:
        """What the story says of the card as a whole."""
        if "gpu.temperature" in what.readings or "gpu.temperature" in what.ramps:
            self._cooler, self._left_idle = 0.0, False
        if what.lost is not None:
            (self._sim.lose if what.lost else self._sim.find)(self._index)
        if what.listed is not None:
            (self._sim.find if what.listed else self._sim.unlist)(self._index)
        if what.power_limit_w is not None:
            self._sim.limit_by_hand(self._index, what.power_limit_w)
        if what.refuses is not None:
            problem = "" if what.refuses == "no" else what.refuses
            self._sim.refuse_changes(self._index, problem, f"the driver says: {problem}")

    def work(self, busy: bool) -> None:
        """It has processes, or has none any more: then what was said of its load has ended."""
        if self._busy and not busy:
            self._power, self._left_idle = None, True
            for metric in _LOAD:
                self._said.discard(metric)
                self._sim.set_reading(self._index, metric, None)
        if busy != self._busy:
            self._sim.work(self._index, busy)
        self._busy = busy

    def live(self, elapsed_s: float) -> None:
        """Temperature, margins and power follow the story and what cools the card."""
        seconds, self._lived_s = elapsed_s - self._lived_s, elapsed_s
        share = self._sim.power_limit_w(self._index) / LIMIT_DEFAULT_W
        said = self._celsius if self._celsius is not None else CALM_BUSY_C if self._busy else CALM_IDLE_C
        state = IDLE if self._left_idle and not self._busy else THROTTLED if share < 0.999 else ""
        celsius = said - self._cooler
        cooling = [each for each in self._card.cools if each.when == state and celsius > each.to_c]
        if self._celsius is not None and cooling:
            most = max(cooling, key=lambda each: each.per_second)
            self._cooler = min(self._cooler + most.per_second * seconds, said - most.to_c)
        elif not any(each.when == state for each in self._card.cools):
            back = max((each.per_second for each in self._card.cools), default=1.0)
            self._cooler = max(0.0, self._cooler - back * seconds)
        self._show(said - self._cooler)
        if self._power is not None:
            self._sim.set_reading(self._index, "gpu.power", value(self._power * min(1.0, share)))

    def reboot(self) -> None:
        """A cold start."""
        self._sim.find(self._index)
        self._sim.limit_by_hand(self._index, LIMIT_DEFAULT_W)
        self._busy = None

    def _show(self, celsius: float) -> None:
        self._sim.heat(self._index, celsius)
        if self.model.points is None or self.model.name.startswith("NVIDIA H100"):
            return
        for metric, point in zip(_MARGINS, self.model.points):
            if metric not in self._said:
                self._sim.set_reading(self._index, metric, value(point - celsius))


class StageGpus:
    """Implements protocols.GpuDriver: the simulated one, its cards under the names of their models."""

    def __init__(self, sim: SimulatedGpus, cards: Sequence[StageCard]) -> None:
        self._sim = sim
        self._names = {sim.uuid(index): card.model.name for index, card in enumerate(cards)}
        self._queue: list[GpuChange] = []
        self._deaf = False

    def begin_anew(self) -> None:
        """Another process speaks to the driver: what the earlier one had queued, and answers to it, are gone."""
        self._queue, self._deaf = [], True

    def sample(self, with_processes: bool, spare_child: bool, wait_s: float) -> GpuReport:
        """See protocols.GpuDriver."""
        queue, self._queue = self._queue, []
        for change in queue:
            self._sim.change(change)
        report = self._sim.sample(with_processes, spare_child, wait_s)
        if self._deaf:
            self._deaf, report = False, replace(report, changed=())
        if all(self._names.get(each.uuid, each.name) == each.name for each in report.samples):
            return report
        named = tuple(replace(each, name=self._names.get(each.uuid, each.name)) for each in report.samples)
        return replace(report, samples=named)

    def fds(self) -> tuple[int, ...]:
        """See protocols.GpuDriver."""
        return ()

    def expect(self, gpus: Sequence[GpuIdentity]) -> None:
        """See protocols.GpuDriver."""
        self._sim.expect(gpus)

    def change(self, change: GpuChange) -> None:
        """See protocols.GpuDriver."""
        self._queue.append(change)

    def pause(self, why: str) -> None:
        """See protocols.GpuDriver."""
        self._sim.pause(why)

    def release(self, for_s: float) -> None:
        """See protocols.GpuDriver."""
        self._sim.release(for_s)

    def resume(self) -> None:
        """See protocols.GpuDriver."""
        self._sim.resume()

    def close(self, wait_s: float) -> None:
        """See protocols.GpuDriver."""
        self._sim.close(wait_s)
