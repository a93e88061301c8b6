"""Trouble that a tester made: a changed interval, names that are no text, a poisoned document, a disk without room."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.model.errors import EvidenceError
from gpuwatch.model.incident import IncidentState
from gpuwatch.model.intent import IntentState
from gpuwatch.model.notification import DeliveryState
from gpuwatch.simulation.host import TRAINING
from tests.scenarios.bench import CONFIG, TRAIN, Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.run(5)
    return bench


@pytest.mark.parametrize("interval_s", [0.5, 5.0])
def test_another_interval_after_a_reload_still_fires_and_stops(bench: Bench, interval_s: float) -> None:
    bench.write_config(CONFIG + f"interval: {interval_s}s\n".replace("0.5s", "500ms").replace("5.0s", "5s"))
    bench.reload()
    bench.heat(94)
    bench.run(40, interval_s)
    assert bench.calls() == [("stop", TRAIN)]


def test_a_process_name_that_is_no_text_stops_no_cycle(bench: Bench) -> None:
    bench.host.settle = lambda: None  # type: ignore[method-assign]  # the process stays as it is put here
    bench.host.processes.put(41872, cgroup=f"/system.slice/{TRAIN}", name="m\udcfcller", user="m\ufffdller")
    bench.heat(94)
    bench.run(20)
    assert bench.calls() == [("stop", TRAIN)]


def test_a_policy_document_that_can_not_be_read_costs_no_start(bench: Bench) -> None:
    bench.heat(94)
    bench.run(3)
    bench.close()
    with sqlite3.connect(bench.folder / "state" / "state.db") as connection:
        connection.execute("REPLACE INTO state (key, document) VALUES ('policy', '{\"alerts\": [1]}')")
    connection.close()
    bench.start()
    bench.run(20)
    assert any("start anew" in line for _, line in bench.log.lines)
    assert bench.calls() == [("stop", TRAIN)]


def test_evidence_that_fails_is_tried_again_with_pauses(bench: Bench) -> None:
    tries: list[float] = []
    scene = bench.assembly.scene

    def failing(intent: Any, unit: Any) -> Any:
        def job() -> Any:
            tries.append(bench.clock.boottime_s)
            raise EvidenceError("no space left")

        return job

    bench.assembly.cycle.ports.executor.preserve = failing
    bench.heat(94)
    bench.run(30, 0.1)
    assert 2 <= len(tries) <= 7, "each few seconds, not each cycle"
    assert bench.calls() == []
    bench.assembly.cycle.ports.executor.preserve = scene.preserve


def test_no_sigkill_once_the_card_has_cooled_or_the_admin_only_observes(bench: Bench) -> None:
    bench.host.systemd.change(replace(TRAINING.unit, ignores_sigterm=True, stop_timeout_s=None))
    bench.write_config(
        CONFIG.replace('units: ["train@*.service"]', 'units: ["train@*.service"]\n    stop: {grace: 20s}')
    )
    bench.reload()
    bench.heat(94)
    bench.run(15)
    assert bench.calls() == [("stop", TRAIN)]
    bench.write_config(CONFIG.replace("mode: enforce", "mode: observe"))
    bench.reload()
    bench.run(120)
    assert bench.calls() == [("stop", TRAIN)]


def test_a_job_that_starts_on_the_hot_card_is_not_overlooked(bench: Bench) -> None:
    bench.heat(94)
    bench.run(60)
    assert bench.intents[0].state is IntentState.VERIFIED
    bench.host.systemd.start(TRAIN)
    bench.run(700)
    assert bench.calls() == [("stop", TRAIN)] * 2, "the budget for heat allows it ten minutes later"
    assert any("budget_spent" in line for _, line in bench.log.lines), "and until then people are told"


def test_old_incidents_go_with_their_actions(bench: Bench) -> None:
    from gpuwatch.daemon.ledger import KEEP_CLOSED

    assert KEEP_CLOSED == 500
    bench.heat(94)
    bench.run(20)
    bench.heat(70)
    bench.run(800)
    (incident,) = bench.incidents
    assert incident.state is IncidentState.CLOSED
    writes = bench.assembly.cycle.ledger.forget_incidents(keep=0)
    assert {(write.table, write.key) for write in writes} == {
        ("incidents", "1"),
        *(("intents", intent.id) for intent in bench.intents),
    }


def test_messages_come_in_their_order_whatever_the_clock_does(bench: Bench) -> None:
    bench.courier.refusal = {"ok": False, "retryable": True, "problem": "HTTP 500"}
    bench.heat(94)
    bench.run(20)
    bench.clock.step_utc(-3600)
    bench.heat(70)
    bench.run(80)
    bench.courier.refusal = None
    bench.run(1500, 5.0)
    keys = [str(request["id"]).split("/") for request in bench.courier.sent]
    delivered = [name for incident, name, _ in keys if incident == "gpu-07#1"]  # the clock's jump is another
    last = [name for number, name in enumerate(delivered) if name not in delivered[number + 1 :]]
    assert last == ["firing", "update", "resolved"]
    assert {entry.state for entry in bench.spool.values()} == {DeliveryState.DELIVERED}


def test_a_channel_that_can_not_deliver_is_seen(bench: Bench) -> None:
    (bench.folder / "key").unlink()
    bench.heat(94)
    bench.run(20)
    problem = bench.assembly.cycle.seen.undelivered["ops"][1]
    assert "key" in problem and "00000000-1111" not in problem


def test_a_cycle_that_fails_loses_no_event_and_no_message(bench: Bench) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise ZeroDivisionError

    pci = bench.host.cards.pci(5).rsplit(".", 1)[0]
    bench.host.kernel.kernel(f"NVRM: Xid (PCI:{pci}): 79, GPU has fallen off the bus.")
    cycle = bench.assembly.cycle
    executor, broken = cycle.ports.executor, Broken()
    cycle.ports.executor = broken  # type: ignore[assignment]
    with pytest.raises(ZeroDivisionError):
        cycle.run()
    cycle.ports.executor = executor
    bench.run(3)
    assert [incident.label for incident in bench.incidents] == ["GPU 5"]
    assert bench.spool["firing"].state is DeliveryState.DELIVERED


def test_an_entry_that_fails_every_cycle_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fail them all, and nothing would be watched any more."""
    cycle = bench.assembly.cycle
    judge, failed = cycle._judge, []

    def judge_unless_poisoned(look: Any) -> Any:
        if any("poison" in event.text for event in look.events):
            failed.append(look.now)
            raise ValueError("poison")
        return judge(look)

    monkeypatch.setattr(cycle, "_judge", judge_unless_poisoned)
    pci = bench.host.cards.pci(5).rsplit(".", 1)[0]
    bench.host.kernel.kernel(f"NVRM: Xid (PCI:{pci}): 79, poison")
    for _ in range(2):
        with pytest.raises(ValueError, match="poison"):
            cycle.run()
    bench.heat(94)
    bench.run(20)
    assert len(failed) == 2
    assert bench.calls() == [("stop", TRAIN)]
