"""A hot card is slowed down before its job is stopped, and gets its power back."""

from __future__ import annotations

from pathlib import Path

from gpuwatch.model.intent import IntentState
from tests.scenarios.bench import CONFIG, TRAIN, Bench

THROTTLE = (
    CONFIG
    + """
rules:
  - name: gpu-hot
    metric: gpu.slowdown_margin
    below: 3
    for: 3s
    clear: {above: 8, for: 5s}
    severity: warning
    ladder:
      - do: [throttle]
      - {after: 60s, do: [stop]}
"""
)


def test_a_hot_card_is_throttled_deeper_and_gets_its_power_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path, THROTTLE)
    before = bench.host.cards.power_limit_w(3)
    bench.run(3)
    bench.heat(88)
    bench.run(8)
    first = bench.host.cards.power_limit_w(3)
    assert first < before
    bench.run(40)
    assert bench.host.cards.power_limit_w(3) < first
    bench.heat(70)
    bench.run(12)
    assert bench.host.cards.power_limit_w(3) == before
    (intent,) = bench.intents
    assert (intent.action, intent.state, intent.before) == ("throttle", IntentState.UNDONE, before)
    assert bench.calls() == []


def test_when_it_does_not_help_the_job_is_stopped_while_the_throttle_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path, THROTTLE)
    before = bench.host.cards.power_limit_w(3)
    bench.heat(88)
    bench.run(90, until=lambda: ("stop", TRAIN) in bench.calls())
    assert ("stop", TRAIN) in bench.calls()
    assert bench.host.cards.power_limit_w(3) < before
    bench.heat(65)
    bench.run(30)
    assert bench.host.cards.power_limit_w(3) == before


def test_a_killed_daemon_finds_its_throttle_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, THROTTLE)
    before = bench.host.cards.power_limit_w(3)
    bench.heat(88)
    bench.run(8)
    assert bench.host.cards.power_limit_w(3) < before
    bench.restart()
    bench.heat(60)
    bench.run(12)
    assert bench.host.cards.power_limit_w(3) == before


def test_a_rule_that_is_taken_out_takes_its_throttle_along(tmp_path: Path) -> None:
    bench = Bench(tmp_path, THROTTLE)
    before = bench.host.cards.power_limit_w(3)
    bench.heat(88)
    bench.run(8)
    assert bench.host.cards.power_limit_w(3) < before
    bench.write_config(CONFIG + "\nrules:\n  - {name: gpu-hot, enabled: false}\n")
    bench.reload()
    bench.run(5)
    assert bench.host.cards.power_limit_w(3) == before


def test_observe_mode_says_what_it_would_have_set(tmp_path: Path) -> None:
    bench = Bench(tmp_path, THROTTLE.replace("mode: enforce", "mode: observe"))
    before = bench.host.cards.power_limit_w(3)
    bench.heat(88)
    bench.run(20)
    assert bench.host.cards.power_limit_w(3) == before
    (intent,) = bench.intents
    assert (intent.state, intent.before) == (IntentState.WOULD_HAVE, before)
    assert intent.value is not None and intent.value < before


WARNED = (
    CONFIG.replace(
        '    units: ["train@*.service"]\n',
        '    units: ["train@*.service"]\n    stop: {warn_before: 20s, checkpoint: {signal: SIGUSR1, wait: 10s}}\n',
    )
    + "rules:\n  - {name: gpu-hot, enabled: false}\n"
)


def test_people_are_warned_and_the_job_told_before_it_is_stopped(tmp_path: Path) -> None:
    said: list[str] = []
    bench = Bench(tmp_path, WARNED, wall=said.append)
    bench.heat(94)
    bench.run(30)
    (intent,) = bench.stops
    assert f"gpuwatch action veto {intent.id}" in said[0] and len(said) == 1
    assert f"gpuwatch action veto {intent.id}" in "\n".join(bench.spool["firing"].message.lines)
    assert bench.calls() == [("kill", TRAIN)]
    bench.run(15)
    assert bench.calls() == [("kill", TRAIN), ("stop", TRAIN)]


def order(bench: Bench, what: str, **arguments: object) -> dict[str, object]:
    return dict(bench.assembly.cycle.order({"what": what, **arguments}, "root").answer)


def test_a_person_puts_a_throttle_back_and_it_stays_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path, THROTTLE)
    before = bench.host.cards.power_limit_w(3)
    bench.heat(88)
    bench.run(8)
    (intent,) = bench.intents
    assert bench.host.cards.power_limit_w(3) < before
    assert "error" not in order(bench, "revert", id=intent.id)
    bench.run(30)
    assert bench.host.cards.power_limit_w(3) == before
    assert "over already" in str(order(bench, "revert", id=intent.id)["error"])
