"""Orders on a whole gpuwatch: what is done and told under them, and that they outlive restarts and reboots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.daemon.app import Options
from gpuwatch.daemon.offline import obey_without_daemon
from gpuwatch.daemon.orders import log_order
from gpuwatch.model.errors import SourceError
from gpuwatch.model.gpu import DriverState
from gpuwatch.model.incident import IncidentState
from gpuwatch.system.lock import HostLock
from tests.scenarios.bench import QUICK, TRAIN, Bench, FakeLog

HOT, COOL = 94.0, 70.0


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path, QUICK)
    bench.run(5)
    return bench


def order(bench: Bench, what: str, **arguments: Any) -> Mapping[str, Any]:
    obeyed = bench.assembly.cycle.order({"what": what, **arguments}, "root (sudo: wang)")
    log_order(bench.log, obeyed)
    return obeyed.answer


def silence(bench: Bench, for_s: float = 3600.0) -> None:
    assert order(bench, "silence", rule="gpu-critical", gpu="3", for_s=for_s, comment="fan")["id"] == "s1"


def stopped(bench: Bench) -> bool:
    return ("stop", TRAIN) in bench.calls()


def driver(bench: Bench) -> DriverState:
    return bench.assembly.cycle.seen.report.state


def told(bench: Bench) -> list[str]:
    return sorted(bench.spool)


def test_a_silence_mutes_the_message_and_nothing_else(bench: Bench) -> None:
    silence(bench)
    bench.heat(HOT)
    bench.run(20)
    assert stopped(bench)
    assert told(bench) == ["update"], "that a job was stopped"
    assert bench.incidents[0].state is IncidentState.OPEN
    assert bench.stored().state["muted"]["1"]["names"] == ["firing"]


def test_after_its_time_what_is_open_is_told_once(bench: Bench) -> None:
    silence(bench, for_s=60.0)
    bench.heat(HOT)
    bench.run(10)
    assert "firing" not in told(bench)
    bench.restart()
    bench.run(70)
    assert [name for name in told(bench) if name.startswith("firing")] == ["firing#after-s1"]
    assert bench.stored().state["orders"]["silences"] == []
    assert any(line == "silence s1 is over" for _, line in bench.log.lines)


def test_disarmed_is_observe_mode_over_a_restart_and_a_reboot(bench: Bench) -> None:
    order(bench, "disarm", comment="benchmark")
    bench.run(1)
    bench.restart()
    bench.heat(HOT)
    bench.run(20)
    bench.clock.reboot("f" * 32)
    bench.restart()
    bench.run(20)
    assert not stopped(bench)
    assert [intent.state.value for intent in bench.intents if intent.action == "stop"][:1] == ["would_have"]
    assert "firing" in told(bench)


def test_armed_again_it_acts(bench: Bench) -> None:
    order(bench, "disarm")
    bench.heat(HOT)
    bench.run(15)
    assert not stopped(bench)
    order(bench, "arm")
    bench.run(15)
    assert stopped(bench)


def test_disarm_for_a_time_ends_by_itself(bench: Bench) -> None:
    order(bench, "disarm", for_s=30.0)
    bench.heat(HOT)
    bench.run(25)
    assert not stopped(bench)
    bench.run(25)
    assert stopped(bench)


def test_maintenance_touches_nothing_and_tells_nobody_until_its_end(bench: Bench) -> None:
    order(bench, "maintenance-on", for_s=60.0, comment="fans")
    bench.heat(HOT)
    bench.run(50)
    assert (stopped(bench), told(bench)) == (False, [])
    order(bench, "maintenance-off")
    bench.run(1)
    assert told(bench) == [f"firing#after-m{bench.assembly.cycle.seen.now.utc_s - 50:.0f}"]
    bench.run(15)
    assert stopped(bench)


def test_what_comes_and_goes_in_a_window_is_never_told(bench: Bench) -> None:
    order(bench, "maintenance-on", for_s=100.0)
    bench.heat(HOT)
    bench.run(20)
    bench.heat(COOL)
    bench.run(120)
    assert bench.incidents[0].state is not IncidentState.OPEN
    assert told(bench) == []


def test_s14_a_window_may_let_go_of_the_gpus(bench: Bench) -> None:
    order(bench, "maintenance-on", for_s=60.0, release_gpu=1)
    bench.run(5)
    assert driver(bench) is DriverState.RELEASED
    order(bench, "maintenance-off")
    bench.run(5)
    assert driver(bench) is DriverState.OK


def test_an_acknowledged_incident_is_marked_on_disk(bench: Bench) -> None:
    bench.heat(HOT)
    bench.run(8)
    order(bench, "acknowledge", id="1", comment="on it")
    bench.run(1)
    bench.restart()
    bench.run(2)
    marked = bench.incidents[0].acknowledged
    assert marked is not None and (marked.by, marked.comment) == ("root (sudo: wang)", "on it")


def test_a_condition_that_holds_is_not_closed(bench: Bench) -> None:
    bench.heat(HOT)
    bench.run(8)
    assert "still holds" in order(bench, "close", id="1", comment="x")["error"]
    bench.run(1)
    assert bench.incidents[0].state is IncidentState.OPEN


def xid(bench: Bench) -> None:
    pci = bench.host.cards.pci(2).rsplit(".", 1)[0]
    bench.host.kernel.kernel(f"NVRM: Xid (PCI:{pci}): 95, pid=1154, name=x, Uncontained ECC error")
    bench.run(2)


def test_w10_after_a_reset_an_incident_is_closed_by_hand(bench: Bench) -> None:
    xid(bench)
    assert order(bench, "close", id="1", comment="card was reset") == {"done": True, "incident": 1}
    bench.run(1)
    bench.restart()
    bench.run(2)
    (incident,) = bench.incidents
    assert (incident.state, incident.close_reason) == (IncidentState.CLOSED, "closed_by_hand")
    assert told(bench) == ["firing", "resolved"]
    xid(bench)
    assert [each.number for each in bench.incidents] == [1, 2]


def test_orders_are_logged_with_fields(bench: Bench) -> None:
    order(bench, "disarm", for_s=60.0, comment="benchmark")
    said = dict(zip((line for _, line in bench.log.lines), bench.log.fields))
    (line,) = [line for line in said if line.startswith("DISARMED by root (sudo: wang) until ")]
    assert {"GPUWATCH_ORDER": "disarm", "GPUWATCH_COMMENT": "benchmark"}.items() <= said[line].items()


# -- without a daemon ---------------------------------------------------------------------------


def offline(bench: Bench, what: str, **arguments: Any) -> Mapping[str, Any]:
    return obey_without_daemon(bench.options, {"what": what, **arguments}, 0, bench.clock, bench.log)


def test_without_a_daemon_the_next_start_finds_the_order(bench: Bench) -> None:
    bench.close()
    assert "in force from its next start on" in offline(bench, "disarm", sudo="wang")["warning"]
    bench.start()
    bench.heat(HOT)
    bench.run(15)
    assert not stopped(bench)
    disarmed = bench.assembly.cycle.seen.orders.disarmed
    assert disarmed is not None and disarmed.by == "root (sudo: wang)"
    assert any(line.startswith("DISARMED") for _, line in bench.log.lines)


def test_without_a_daemon_a_window_keeps_the_gpus_free(bench: Bench) -> None:
    bench.close()
    offline(bench, "maintenance-on", for_s=600.0, release_gpu=1)
    bench.start()
    bench.run(3)
    assert driver(bench) is DriverState.RELEASED
    bench.close()
    assert bench.stored().state["released"]
    offline(bench, "maintenance-off")
    assert "released" not in bench.stored().state


def test_without_a_daemon_an_incident_is_closed_and_told_later(bench: Bench) -> None:
    xid(bench)
    bench.close()
    assert "error" in offline(bench, "close", id="9", comment="x")
    offline(bench, "close", id="1", comment="card was reset")
    bench.start()
    bench.run(3)
    assert bench.incidents[0].state is IncidentState.CLOSED
    assert bench.spool["resolved"].state.value == "delivered"
    assert len([title for title in bench.courier.titles() if "gpu" in title]) == 2


def test_without_a_daemon_others_at_work_are_left_alone(bench: Bench) -> None:
    bench.close()
    lock = HostLock(str(bench.folder / "run" / "lock"))
    assert lock.acquire("daemon", 0.0)
    try:
        with pytest.raises(SourceError, match="is at work and did not answer"):
            offline(bench, "disarm")
    finally:
        lock.release()


def test_a_host_on_which_gpuwatch_never_ran(tmp_path: Path, bench: Bench) -> None:
    nowhere = Options(str(bench.config), str(tmp_path / "none"), str(tmp_path / "run"))
    with pytest.raises(SourceError, match="has gpuwatch run on this host"):
        obey_without_daemon(nowhere, {"what": "disarm"}, 0, bench.clock, FakeLog())
