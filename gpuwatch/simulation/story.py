"""The demo's story: GPU 3 loses its cooling and warms up, with less power too; it throws an Xid, and cools down once
its job is gone."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.simulation.host import CALM_C, IDLE_C, TRAINING, SimulatedHost

CARD = 3
FAN_FAILS_S = 4.0
HEATING_C_PER_S = 2.4
THROTTLED_C_PER_S = 0.9  # with less power, and still no air
COOLING_C_PER_S = 3.2
HOTTEST_C = 94.6  # the card would cut its power at 95
XID_S = 17.0
XID = "pid=41872, name=python3.11, Graphics SM Warp Exception on (GPC 3, TPC 1, SM 0): Out Of Range Address"


@dataclass
class Story:
    """Give its `moment` to a SimulatedHost."""

    host: SimulatedHost
    celsius: float = CALM_C[CARD]
    _last_s: float = 0.0
    _spoken: bool = False

    def moment(self, seconds: float) -> None:
        """What the host is like `seconds` after the start."""
        elapsed, self._last_s = max(0.0, seconds - self._last_s), seconds
        running = self.host.runs(TRAINING)
        if not running:
            self.celsius = max(IDLE_C, self.celsius - COOLING_C_PER_S * elapsed)
        elif seconds >= FAN_FAILS_S:
            throttled = self.host.cards.power_limit_w(CARD) < self.host.cards.power_limit_w(CARD - 1)
            rate = THROTTLED_C_PER_S if throttled else HEATING_C_PER_S
            self.celsius = min(HOTTEST_C, self.celsius + rate * elapsed)
        self.host.cards.heat(CARD, self.celsius)
        for index in TRAINING.gpus:
            if index != CARD:
                self.host.cards.heat(index, CALM_C[index] if running else IDLE_C)
        if seconds >= XID_S and running and not self._spoken:
            self._spoken = True
            pci = self.host.cards.pci(CARD).rsplit(".", 1)[0]
            self.host.kernel.kernel(f"NVRM: Xid (PCI:{pci}): 13, {XID}")
