"""S5, S8: killed before or after any commit and any call to the driver, a throttle ends put back, and is set once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuwatch.model.gpu_change import GpuChange
from gpuwatch.model.intent import IntentState
from gpuwatch.simulation.host import SimulatedHost
from tests.fakes.clock import FakeClock
from tests.scenarios.bench import CONFIG, Bench

STORY = (
    CONFIG
    + """
rules:
  - name: gpu-hot
    metric: gpu.slowdown_margin
    below: 3
    for: 2s
    clear: {above: 8, for: 3s}
    severity: warning
    ladder:
      - do: [throttle]
"""
)
HOT_S, COOL_S, END_S = 2, 8, 20


class KilledError(BaseException):
    """What kill -9 is to code that must not notice it."""


class Moment:
    """Counts what is done, and dies at one of them."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def passes(self) -> None:
        """Before, and after, each."""
        if self.count == self.at:
            self.at = -1
            raise KilledError
        self.count += 1


class MortalGpus:
    """The driver; setting something may be the last thing that is done."""

    def __init__(self, host: SimulatedHost, moment: Moment) -> None:
        self._gpus, self._moment = host.gpus, moment

    def change(self, change: GpuChange) -> None:
        self._moment.passes()
        self._gpus.change(change)
        self._moment.passes()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gpus, name)


def play(folder: Path, at: int) -> tuple[Bench, int]:
    clock = FakeClock()
    host, moment = SimulatedHost(clock), Moment(at)
    bench = Bench(folder, STORY, clock, host=host, gpus=MortalGpus(host, moment))
    _mortal_commits(bench, moment)
    for second in range(END_S):
        bench.heat(88 if HOT_S <= second < COOL_S else 70)
        try:
            bench.run(1)
        except KilledError:
            bench.restart()
            _mortal_commits(bench, moment)
    return bench, moment.count


def _mortal_commits(bench: Bench, moment: Moment) -> None:
    writer = bench.assembly.cycle.ports.writer
    commit = writer.commit

    def mortal(writes: Any) -> Any:
        moment.passes()
        done = commit(writes)
        moment.passes()
        return done

    writer.commit = mortal  # type: ignore[method-assign]


def _count() -> int:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        bench, count = play(Path(folder), -1)
        bench.close()
        return count


MOMENTS = _count()


def test_there_are_enough_moments() -> None:
    assert MOMENTS > 25


@pytest.mark.parametrize("at", range(MOMENTS))
def test_killed_at_any_moment_the_power_is_put_back(tmp_path: Path, at: int) -> None:
    bench, _ = play(tmp_path, at)
    assert bench.host.cards.power_limit_w(3) == bench.host.cards.power_limit_w(2)
    (intent,) = bench.intents
    assert intent.state is IntentState.UNDONE
    assert intent.before == bench.host.cards.power_limit_w(2)
    assert [incident.state.value for incident in bench.incidents] == ["recovered"]
