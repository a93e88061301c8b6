"""The whole chain: from a hot GPU or a kernel line to a stopped unit, a bundle and a message."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.evidence.manifest import verify
from gpuwatch.model import reason
from gpuwatch.model.gpu import GpuProcess
from gpuwatch.model.incident import IncidentState
from gpuwatch.model.intent import IntentState
from gpuwatch.model.notification import DeliveryState
from gpuwatch.model.reading import failed
from gpuwatch.simulation.host import TRAINING
from tests.fakes.story import NEXT_BOOT
from tests.scenarios.bench import CONFIG, QUICK, SERVE, TRAIN, Bench

PLAIN = CONFIG + "rules:\n  - {name: gpu-hot, enabled: false}\n"
OBSERVE = PLAIN.replace("mode: enforce", "mode: observe")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_hot_card_stops_its_job_with_evidence_and_three_messages(bench: Bench) -> None:
    bench.run(5)
    bench.heat(94)
    bench.run(15)
    assert bench.calls() == [("stop", TRAIN)]
    bench.heat(70)
    bench.run(90)
    (intent,) = bench.stops
    assert intent.state is IntentState.VERIFIED
    (bundle,) = bench.bundles()
    assert verify(str(bench.folder / "state" / "evidence" / bundle)) == ()
    assert intent.bundle == bundle
    assert set(bench.spool) == {"firing", "update", "resolved"}
    assert {entry.state for entry in bench.spool.values()} == {DeliveryState.DELIVERED}
    (incident,) = bench.incidents
    assert incident.state is IncidentState.RECOVERED
    bench.run(700)
    assert bench.incidents[0].state is IncidentState.CLOSED
    assert bench.calls() == [("stop", TRAIN)]


def test_the_stop_comes_after_the_evidence_and_a_fresh_sample(bench: Bench) -> None:
    bench.run(5)
    bench.heat(94)
    bench.run(20)
    (intent,) = bench.stops
    assert intent.preserved is not None and intent.sent is not None
    assert intent.created.boottime_s <= intent.preserved.boottime_s < intent.sent.boottime_s


def test_s6_in_observe_the_same_input_stops_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, OBSERVE)
    bench.run(5)
    bench.heat(94)
    bench.run(120)
    assert bench.calls() == []
    (intent,) = bench.stops
    assert intent.state is IntentState.WOULD_HAVE
    assert len(bench.bundles()) == 1
    assert set(bench.spool) == {"firing", "update"}
    words = " ".join(bench.spool["update"].message.lines)
    assert "would have" in words and "Nothing was done" in words


@pytest.mark.parametrize("allowed", [False, True])
def test_s2_only_what_the_config_names_is_touched(tmp_path: Path, allowed: bool) -> None:
    bench = Bench(tmp_path, CONFIG if allowed else CONFIG.replace("train@*", "other@*"))
    bench.run(5)
    bench.heat(94)
    bench.run(20)
    assert bench.calls() == ([("stop", TRAIN)] if allowed else [])


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"takes_along": ("postgresql.service",)}, "takes_along", "would also stop postgresql.service"),
        ({"containers": ("docker-" + "a" * 64 + ".scope",)}, "has_containers", "containers"),
        ({"refuse_manual_stop": True}, "refuses_stop", "refuses to be stopped by hand"),
        ({"inner_units": ("db.service",)}, "not_leaf", "db.service"),
    ],
)
def test_s2_a_wrong_target_is_refused_with_its_reason_and_told(
    bench: Bench, change: dict[str, Any], code: str, words: str
) -> None:
    bench.host.systemd.change(replace(TRAINING.unit, **change))
    bench.run(5)
    bench.heat(94)
    bench.run(30)
    assert bench.calls() == []
    (intent,) = bench.stops
    assert (intent.state, intent.reason) == (IntentState.REFUSED, code)
    assert bench.bundles() == []
    assert set(bench.spool) == {"firing", "update"}
    assert words in " ".join(bench.spool["update"].message.lines)
    assert "NOT stopped" in bench.spool["update"].message.title


def test_s11_nobody_is_stopped_while_the_process_list_is_nonsense(bench: Bench) -> None:
    bench.run(5)
    bench.heat(94)
    bench.host.settle = lambda: None  # type: ignore[method-assign]  # the list stays as it is set here
    bench.host.cards.set_processes(3, [GpuProcess(0, "compute", 1 << 30), GpuProcess(41872, "compute", 1 << 30)])
    bench.run(60)
    assert bench.calls() == []
    assert any(reason.ATTRIBUTION_UNKNOWN in line for _, line in bench.log.lines)


def test_s3_a_card_that_stops_answering_is_not_acted_on(bench: Bench) -> None:
    bench.run(5)
    bench.heat(94)
    bench.host.cards.set_reading(3, "gpu.shutdown_margin", failed("the call failed"))
    bench.run(60)
    assert [cause.rule for cause in bench.incidents[0].causes] == ["gpu-hot"]
    assert bench.stops == []
    bench.host.cards.set_reading(3, "gpu.shutdown_margin", None)
    bench.run(8)
    assert bench.calls() == [("stop", TRAIN)]


def test_s3_silence_after_the_evidence_sends_nothing(bench: Bench) -> None:
    bench.run(5)
    bench.heat(94)
    bench.run(30, until=lambda: bool(bench.bundles()))
    bench.host.cards.silence(True)
    bench.run(200)
    assert bench.calls() == []
    bench.host.cards.silence(False)
    bench.run(3)
    assert bench.calls() == [("stop", TRAIN)]


def test_a_unit_that_ignores_sigterm_is_killed_after_its_grace(bench: Bench) -> None:
    bench.host.systemd.change(replace(TRAINING.unit, ignores_sigterm=True, stop_timeout_s=None))
    bench.write_config(
        CONFIG.replace('units: ["train@*.service"]', 'units: ["train@*.service"]\n    stop: {grace: 20s}')
    )
    bench.reload()
    bench.run(5)
    bench.heat(94)
    bench.run(60)
    assert bench.calls() == [("stop", TRAIN), ("kill", TRAIN)]
    assert bench.intents[0].state is IntentState.VERIFIED


def test_what_survives_sigkill_is_told_and_not_hammered(bench: Bench) -> None:
    bench.host.systemd.change(replace(TRAINING.unit, ignores_sigterm=True, survives_sigkill=True, stop_timeout_s=30))
    bench.run(5)
    bench.heat(94)
    bench.run(200)
    assert bench.calls() == [("stop", TRAIN), ("kill", TRAIN)]
    assert bench.intents[0].reason == reason.NOT_GONE
    assert "update" in bench.spool


def test_a_unit_that_somebody_starts_again_is_told(bench: Bench) -> None:
    bench.host.systemd.change(replace(TRAINING.unit, comes_back_after_s=2.0))
    bench.run(5)
    bench.heat(94)
    bench.run(30)
    assert bench.intents[0].reason == reason.CAME_BACK
    assert bench.calls() == [("stop", TRAIN)]


def test_s1_without_durable_evidence_nothing_is_stopped(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run(5)
    evidence = tmp_path / "state" / "evidence"
    evidence.rmdir()
    evidence.write_text("a file in the way")
    bench.heat(94)
    bench.run(60)
    assert bench.calls() == []
    assert bench.intents[0].reason == reason.NO_BUNDLE
    assert "NOT stopped" in bench.spool["update"].message.title


def test_s4_the_second_job_of_a_card_waits_and_the_budget_ends_it(bench: Bench) -> None:
    settle = bench.host.settle

    def both() -> None:
        settle()
        running = [job for job in (TRAINING.unit,) if bench.host.systemd.unit(job.name).running]
        listed = [GpuProcess(unit.pid, "compute", 1 << 30) for unit in running] + [
            GpuProcess(52110, "compute", 1 << 20)
        ]
        bench.host.cards.set_processes(3, listed)

    bench.host.settle = both  # type: ignore[method-assign]
    bench.write_config(CONFIG.replace('["train@*.service"]', '["train@*.service", "serve@*.service"]'))
    bench.reload()
    bench.run(5)
    bench.heat(94)
    bench.run(300)
    assert bench.calls() == [("stop", TRAIN)]
    assert any(reason.SETTLING in line for _, line in bench.log.lines)
    assert any(reason.BUDGET_SPENT in line for _, line in bench.log.lines)
    assert SERVE not in {unit for _, unit in bench.calls()}


XID79 = "NVRM: Xid (PCI:%s): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def _xid79(bench: Bench, card: int = 5) -> str:
    return XID79 % bench.host.cards.pci(card).rsplit(".", 1)[0]


def test_an_xid_79_of_the_kernel_is_an_incident(bench: Bench) -> None:
    bench.run(3)
    bench.host.kernel.kernel(_xid79(bench))
    bench.run(3)
    assert bench.incidents[0].label == "GPU 5"
    assert "79" in bench.spool["firing"].message.title
    assert bench.calls() == []


@pytest.mark.parametrize("forge", ["user", "user_kmsg"])
def test_s10_what_a_user_writes_is_not_the_kernels_word(bench: Bench, forge: str) -> None:
    bench.run(3)
    getattr(bench.host.kernel, forge)(_xid79(bench))
    bench.run(5)
    assert bench.incidents == []


def test_s9_at_the_first_start_old_lines_are_not_read(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.host.kernel.kernel(_xid79(bench), age_s=10)
    bench.run(5)
    assert bench.incidents == []


def test_s9_after_a_reboot_the_old_boot_is_history_and_this_one_counts(bench: Bench) -> None:
    bench.run(3)
    old_boot = bench.clock.boot_id
    bench.clock.reboot(NEXT_BOOT)
    bench.host.kernel.kernel(_xid79(bench, 1), age_s=40, boot_id=old_boot)
    bench.host.kernel.kernel(_xid79(bench, 5), age_s=20)
    bench.clock.advance(70)
    bench.restart()
    bench.run(5)
    assert [incident.label for incident in bench.incidents] == ["GPU 5"]
    assert bench.incidents[0].causes[0].facts["old"] is True


def test_a_lost_card_is_told_once_and_the_others_go_on(bench: Bench) -> None:
    """K1, N10."""
    bench.run(3)
    bench.host.kernel.kernel(_xid79(bench))
    bench.host.cards.lose(5)
    bench.run(10)
    assert len(bench.incidents) == 1
    assert list(bench.spool) == ["firing"]
    bench.heat(94, 3)
    bench.run(20)
    assert bench.calls() == [("stop", TRAIN)]


def test_a_silent_driver_is_told_and_so_is_its_return(bench: Bench) -> None:
    bench.run(3)
    bench.host.cards.silence(True)
    bench.run(60)
    assert list(bench.spool) == ["firing"]
    assert "not answering" in bench.spool["firing"].message.title
    bench.host.cards.silence(False)
    bench.run(20)
    assert set(bench.spool) == {"firing", "resolved"}


def test_s8_a_message_that_was_refused_for_now_is_delivered_later(bench: Bench) -> None:
    bench.courier.refusal = {"ok": False, "retryable": True, "problem": "HTTP 500"}
    bench.run(5)
    bench.host.kernel.kernel(_xid79(bench))
    bench.run(30)
    assert _state(bench) is DeliveryState.QUEUED
    bench.restart()
    bench.courier.refusal = None
    bench.run(120)
    assert _state(bench) is DeliveryState.DELIVERED


def _state(bench: Bench) -> DeliveryState:
    return bench.spool["firing"].state


def test_withdrawing_enforce_cancels_what_was_not_sent(bench: Bench) -> None:
    bench.run(5)
    bench.heat(94)
    bench.run(30, until=lambda: bool(bench.bundles()))
    bench.write_config(OBSERVE)
    bench.reload()
    bench.run(30)
    assert bench.calls() == []
    assert bench.intents[0].state is IntentState.WOULD_HAVE


def test_every_restart_between_two_cycles_ends_the_same(tmp_path: Path) -> None:
    """Every prefix of the story, restarted from what is on disk, ends as the whole one."""

    def tell(folder: Path, cut: int) -> tuple[object, ...]:
        folder.mkdir()
        bench = Bench(folder, QUICK)
        for second in range(40):
            if second == cut:
                bench.restart()
            bench.heat(94 if 5 <= second < 18 else 70)
            bench.run(1)
        bench.run(10)
        states = [(intent.state, intent.target) for intent in bench.intents]
        return bench.calls(), states, sorted(bench.spool), len(bench.bundles())

    whole = tell(tmp_path / "whole", -1)
    assert whole == ([("stop", TRAIN)], [(IntentState.VERIFIED, TRAIN)], ["firing", "resolved", "update"], 1)
    for cut in range(1, 30):
        assert tell(tmp_path / f"cut{cut}", cut) == whole


def test_enforce_written_while_it_is_hot_is_acted_on(tmp_path: Path) -> None:
    """The admin saw "would have", and now means it."""
    bench = Bench(tmp_path, OBSERVE)
    bench.run(5)
    bench.heat(94)
    bench.run(30)
    assert bench.intents[0].state is IntentState.WOULD_HAVE
    bench.write_config(PLAIN)
    bench.reload()
    bench.run(30)
    assert bench.calls() == [("stop", TRAIN)]
    assert [intent.state for intent in bench.stops] == [IntentState.WOULD_HAVE, IntentState.VERIFIED]
