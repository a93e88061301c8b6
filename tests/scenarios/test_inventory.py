"""Which GPUs belong into the host, and letting go of them: over restarts, by hand, and after an Xid 119."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuwatch.model.gpu import DriverState
from tests.scenarios.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.run(3)
    return bench


def test_n10_a_card_that_is_missing_after_a_restart_is_lost(bench: Bench) -> None:
    bench.host.cards.unlist(5)
    bench.restart()
    bench.run(3)
    assert [incident.label for incident in bench.incidents] == ["GPU 5"]
    assert bench.incidents[0].causes[0].rule == "gpu-lost"


def test_forgetting_a_card_that_was_taken_out_ends_its_incident(bench: Bench) -> None:
    bench.host.cards.unlist(5)
    bench.run(3)
    assert "firing" in bench.spool
    assert bench.assembly.cycle.settle_inventory("forget", bench.host.cards.uuid(5)) == ""
    bench.run(5)
    assert "resolved" in bench.spool
    bench.restart()
    bench.run(3)
    assert len(bench.incidents) == 1


@pytest.mark.parametrize(
    ("what", "uuid", "words"),
    [("accept", "GPU-x", "lists no GPU"), ("forget", "GPU-x", "not in the inventory"), ("steal", "GPU-x", "expected")],
)
def test_a_wrong_word_changes_nothing(bench: Bench, what: str, uuid: str, words: str) -> None:
    assert words in bench.assembly.cycle.settle_inventory(what, uuid)


def test_s14_a_release_survives_a_restart_and_ends_by_itself(bench: Bench) -> None:
    bench.assembly.cycle.release(60)
    bench.run(10)
    assert _state(bench) is DriverState.RELEASED
    bench.restart()
    bench.run(10)
    assert _state(bench) is DriverState.RELEASED
    bench.run(50)
    assert _state(bench) is DriverState.OK
    assert bench.incidents == []


def test_resume_ends_a_release(bench: Bench) -> None:
    bench.assembly.cycle.release(3600)
    bench.run(3)
    bench.assembly.cycle.resume()
    bench.run(3)
    assert _state(bench) is DriverState.OK


def test_after_an_xid_119_the_driver_is_left_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[str] = []
    gpus: Any = bench.assembly.cycle.ports.gpus
    monkeypatch.setattr(gpus, "pause", paused.append, raising=False)
    pci = bench.host.cards.pci(2).rsplit(".", 1)[0]
    bench.host.kernel.kernel(
        f"NVRM: Xid (PCI:{pci}): 119, pid=1154, name=x, Timeout after 45s of waiting for RPC response"
    )
    bench.run(2)
    assert paused == ["after an Xid 119"]


def _state(bench: Bench) -> DriverState:
    return bench.assembly.cycle.seen.report.state
