"""One pass of the timer: the same cycle over the same state, with a burst for short rules."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest

from gpuwatch.daemon.once import BURST_S, run_pass
from gpuwatch.model.intent import IntentState
from tests.scenarios.bench import CONFIG, TRAIN, Bench
from tests.scenarios.test_throttle import THROTTLE

PERIOD_S = 60.0


def passes(bench: Bench, count: int) -> list[int]:
    """So many passes of the timer, each by a process of its own; how many cycles each took."""
    bench.period_s = PERIOD_S
    cycles = []
    for _ in range(count):
        bench.restart()
        began = bench.clock.boottime_s
        settings = bench.assembly.cycle.settings
        cycles.append(run_pass(bench.assembly.cycle, settings, bench.clock, PERIOD_S, bench.clock.advance))
        bench.assembly.close()
        bench.clock.advance(max(0.0, PERIOD_S - (bench.clock.boottime_s - began)))
    return cycles


def test_a_quiet_pass_is_one_look(tmp_path: Path) -> None:
    assert passes(Bench(tmp_path), 3) == [1, 1, 1]


def test_a_hot_card_takes_a_burst_and_is_carried_through(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    passes(bench, 1)
    bench.heat(94)
    (cycles,) = passes(bench, 1)
    assert 5 < cycles <= BURST_S + 1
    assert bench.calls() == [("stop", TRAIN)]
    assert bench.intents[0].state is IntentState.VERIFIED
    assert len(bench.bundles()) == 1
    bench.heat(70)
    passes(bench, 10)
    assert set(bench.spool) == {"firing", "update", "resolved"}


def test_a_short_peak_ends_the_burst_and_stops_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    passes(bench, 1)
    bench.heat(94)
    bench.host.moment = lambda seconds: bench.heat(60 if bench.clock.boottime_s % 60 > 2 else 94)
    passes(bench, 3)
    assert bench.calls() == []
    assert bench.incidents == []


def hot(bench: Bench, second: int) -> None:
    bench.heat(94 if 5 <= second < 20 else 70)


def warm(bench: Bench, second: int) -> None:
    bench.heat(88 if 5 <= second < 30 else 60)


def lost(bench: Bench, second: int) -> None:
    if second == 10:
        bench.host.cards.lose(5)


def told_by_the_kernel(bench: Bench, second: int) -> None:
    if second in (10, 11):
        pci = bench.host.cards.pci(5)[4:-2].lower()
        bench.host.kernel.kernel(f"NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', GPU has fallen off the bus.")


def silent(bench: Bench, second: int) -> None:
    if second in (10, 70):
        bench.host.cards.silence(second == 10)


def others(bench: Bench, second: int) -> None:
    bench.heat(94 if 5 <= second < 20 else 70, 1)  # nobody whom the configuration names is on that card


@pytest.mark.parametrize("config", [CONFIG, CONFIG.replace("enforce", "observe"), THROTTLE])
@pytest.mark.parametrize("story", [hot, warm, lost, told_by_the_kernel, silent, others])
def test_daemon_and_passes_decide_the_same_for_the_same_samples(
    tmp_path: Path, story: Callable[[Bench, int], None], config: str
) -> None:
    """Every sample goes to both; what is wanted, and what people are told, is the same. A pass has at
    least two samples, since a process list counts only when it was read twice by one process (S11)."""
    told = []
    for name, length in (("daemon", 0), ("five", 5), ("seven", 7)):
        folder = tmp_path / name
        folder.mkdir()
        bench = Bench(folder, config)
        for second in range(90):
            story(bench, second)
            if length and second % length == 0:
                bench.restart()
            bench.run(1)
        fired = [sorted(cause.rule for cause in incident.causes) for incident in bench.incidents]
        done = [(intent.rung, intent.state, intent.reason, intent.value) for intent in bench.intents]
        limits = [bench.host.cards.power_limit_w(card) for card in range(8)]
        told.append((bench.calls(), sorted(bench.stored().spool), fired, done, limits))
    assert told[0] == told[1] == told[2]


def test_a_new_boot_resets_what_is_pending_and_keeps_what_fires(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run(5)
    bench.heat(94)
    bench.run(3)
    assert bench.incidents == []
    bench.clock.reboot("2" * 32)
    bench.restart()
    bench.run(4)
    assert bench.incidents == [], "three seconds before and four after a reboot are not seven"
    bench.run(4)
    assert len(bench.incidents) == 1
    bench.clock.reboot("3" * 32)
    bench.restart()
    bench.run(3)
    assert [incident.state.value for incident in bench.incidents] == ["open"]
