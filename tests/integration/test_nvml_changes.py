"""Power limits and locked clocks through the child: what a real driver refuses, rounds, puts back, or hangs over."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Optional

import pytest

from gpuwatch.model.gpu import DriverState, GpuReport
from gpuwatch.model.gpu_change import GpuChange, GpuChanged
from gpuwatch.model.pci import canonical
from gpuwatch.system.nvml.client import NvmlClient
from tests.conftest import refuse
from tests.fakes.nvml.bench import QUICK, NvmlBench, number, sample_until, why_no_library
from tests.fakes.nvml.scenario import pci, uuid

SET, CONSTRAINTS = "nvmlDeviceSetPowerManagementLimit", "nvmlDeviceGetPowerManagementLimitConstraints"
LOCK, RESET = "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"
# Changes that the driver is to get round to are given time for it, on a machine that is busy too.
CALM = replace(QUICK, silent_s=3.0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[NvmlBench]:
    refuse(why_no_library())
    bench = NvmlBench(tmp_path, CALM)
    yield bench
    bench.close()


def ok(report: GpuReport) -> bool:
    return report.state is DriverState.OK and report.taken is not None and not report.reason


def change(index: int, watts: Optional[float] = None, lock: Optional[tuple[int, int]] = None) -> GpuChange:
    return GpuChange(f"c{index}", uuid(index), canonical(pci(index)) or "", watts, lock)


def made(client: NvmlClient, wanted: GpuChange) -> GpuChanged:
    """The answer to it; the driver has answered before."""
    client.change(wanted)
    (answer,) = sample_until(client, lambda report: bool(report.changed)).changed
    assert (answer.id, answer.uuid) == (wanted.id, wanted.uuid)
    return answer


def silence_after(client: NvmlClient, samples: int = 10) -> None:
    """No (further) answer comes."""
    seen = client.sample(False, False, 0.2).taken
    for _ in range(samples):
        report = sample_until(client, lambda report, seen=seen: ok(report) and report.taken != seen)  # type: ignore[misc]
        assert report.changed == ()
        seen = report.taken


@pytest.mark.parametrize(
    "code, problem, says",
    [
        (3, "unsupported", "Not Supported"),
        (13, "unsupported", "Function Not Found"),
        (4, "no_permission", "Insufficient Permissions (NVML error 4)"),
        (15, "gone", "GPU is lost"),
        (16, "gone", "reset required"),
        (2, "failed", "NVML error 2"),
        (999, "failed", "NVML error 999"),
    ],
)
@pytest.mark.parametrize("call", [SET, LOCK, CONSTRAINTS])
def test_a16_what_the_driver_refuses_is_said_in_its_words(
    bench: NvmlBench, call: str, code: int, problem: str, says: str
) -> None:
    client = bench.client()
    sample_until(client, ok)
    bench.scenario.error(code, call, 1)
    answer = made(client, change(1, lock=(210, 1200)) if call == LOCK else change(1, 300))
    assert answer.problem == problem
    assert says in answer.detail
    assert bench.scenario.written() == []
    assert ok(sample_until(client, ok))


def test_an_old_binding_has_no_such_function(bench: NvmlBench, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    import pynvml

    (folder / "pynvml.py").write_text(_OLD_BINDING.replace("PATH", repr(pynvml.__file__)))
    bench.environment["PYTHONPATH"] = str(folder)
    client = bench.client()
    assert str(folder) in sample_until(client, ok).binding
    answer = made(client, change(1, lock=(210, 1200)))
    assert (answer.problem, answer.power_limit_w) == ("unsupported", 700)
    assert LOCK in answer.detail


def test_parts_of_a_change_stand_alone(bench: NvmlBench) -> None:
    client = bench.client()
    sample_until(client, ok)
    bench.scenario.error(4, SET, 2)
    answer = made(client, change(2, 300, (210, 1200)))
    assert (answer.problem, answer.power_limit_w) == ("no_permission", 700)
    assert bench.scenario.written() == ["2.locked = 210 1200"]
    bench.scenario.error(None, SET, 2)
    bench.scenario.error(3, RESET, 2)
    undo = replace(change(2, 700), unlock_clocks=True)
    answer = made(client, undo)
    assert (answer.problem, answer.power_limit_w) == ("unsupported", 700)
    assert bench.scenario.written()[1:] == ["2.limit = 700000"]


@pytest.mark.parametrize(
    "key, text, read_back, then",
    [
        ("limit_step", "35000", 280, 280),  # rounded by the card
        ("limit_step", "450000", 0, 0),  # below its own minimum
        ("limit_reverts", "1", 300, 700),
        ("limit_reverts", "0", 700, 700),
        ("limits", "100000 250500 250500", 250.5, 250.5),  # clamped in mW
    ],
)
def test_a15_a16_the_limit_is_told_as_it_is_read_back(
    bench: NvmlBench, key: str, text: str, read_back: float, then: float
) -> None:
    bench.scenario.set(f"0.{key}", text)
    client = bench.client()
    sample_until(client, ok)
    answer = made(client, change(0, 300))
    assert (answer.problem, answer.power_limit_w) == ("", read_back)
    sample_until(client, lambda report: ok(report) and number(report, 0, "gpu.power_limit_set") == then)


@pytest.mark.parametrize("limits", ["0 0 0", "700000 200000 700000"])
def test_a_range_that_makes_no_sense_is_not_written_to(bench: NvmlBench, limits: str) -> None:
    bench.scenario.set("0.limits", limits)
    client = bench.client()
    sample_until(client, ok)
    answer = made(client, change(0, 300))
    assert (answer.problem, "implausible" in answer.detail) == ("failed", True)
    assert bench.calls(SET) == []


def test_a_limit_that_can_not_be_read_back_is_a_problem(bench: NvmlBench) -> None:
    client = bench.client()
    sample_until(client, ok)
    bench.scenario.error(999, "nvmlDeviceGetPowerManagementLimit", 0)
    for wanted in (change(0, 300), change(0)):
        answer = made(client, wanted)
        assert (answer.problem, answer.power_limit_w, answer.power_limit_max_w) == ("failed", None, 700)
    assert made(client, change(0, lock=(210, 1200))).problem == ""  # not what was asked for
    assert bench.scenario.written() == ["0.limit = 300000", "0.locked = 210 1200"]


def test_n17_cards_that_swap_places_are_not_mistaken(bench: NvmlBench) -> None:
    client = bench.client()
    sample_until(client, ok)
    bench.scenario.set("0.uuid", uuid(3))
    bench.scenario.set("3.uuid", uuid(0))
    answer = made(client, change(0, 300))
    assert answer.problem == "gone"
    assert (canonical(pci(3)) or "") in answer.detail
    bench.scenario.set("3.pci", None)
    assert made(client, change(0, 300)).problem == "failed"  # where it is can't be told
    assert bench.calls(SET) == []


def test_many_changes_at_once_each_have_an_answer(bench: NvmlBench) -> None:
    client = bench.client()
    asked = sample_until(client, ok).taken
    for index in range(8):
        client.change(change(index, 300 + index))
    client.change(change(0, 350))
    answers: list[GpuChanged] = []
    while len(answers) < 9:
        answers += sample_until(client, lambda report: bool(report.changed)).changed
    limits = sorted((answer.uuid, answer.power_limit_w) for answer in answers)
    assert limits == sorted([(uuid(0), 350), *((uuid(index), 300 + index) for index in range(8))])
    assert asked is not None
    assert all((answer.at.since(asked) or 0) > 0 for answer in answers)
    silence_after(client, 3)
    assert len(bench.calls(SET)) == 9


def test_s7_a_write_that_hangs_holds_up_nobody_else_and_its_answer_comes_when_it_ends(bench: NvmlBench) -> None:
    client = bench.client()
    sample_until(client, ok)
    bench.scenario.hang(60, SET, 2)
    client.change(change(2, 300))
    bench.scenario.heat(2, 77)
    bench.scenario.heat(5, 88)
    # The readings that were asked for with it are there, also those of its own card.
    report = sample_until(client, lambda report: number(report, 2, "gpu.temperature") == 77)
    stuck = sample_until(client, lambda report: report.stuck_since is not None)
    assert (stuck.state, stuck.reason) == (DriverState.OK, "GPU 2 does not answer")
    assert number(stuck, 5, "gpu.temperature") == 88
    # More for that card is given up, and for the others it is done.
    client.change(replace(change(2, 250), id="second"))
    assert made(client, change(5, 300)).problem == ""
    bench.scenario.hang(None, SET, 2)
    report = sample_until(client, lambda report: bool(report.changed))
    (answer,) = report.changed
    assert (answer.id, answer.problem, answer.power_limit_w) == ("c2", "", 300)
    sample_until(client, ok)
    silence_after(client, 3)
    assert bench.scenario.written() == ["5.limit = 300000", "2.limit = 300000"]


def test_s7_a_write_that_comes_too_late_is_not_begun(bench: NvmlBench) -> None:
    client = bench.client(replace(CALM, silent_s=0.4))
    sample_until(client, ok)
    bench.scenario.hang(60, CONSTRAINTS, 2)
    client.change(change(2, 300))
    sample_until(client, lambda report: report.stuck_since is not None)
    until = time.monotonic() + 0.5
    sample_until(client, lambda report: time.monotonic() > until)
    bench.scenario.hang(None, CONSTRAINTS, 2)
    sample_until(client, ok)
    silence_after(client)
    assert bench.calls(SET) == []


def test_s7_a_driver_that_hangs_before_it_looks_at_the_change_does_not_make_it_later(bench: NvmlBench) -> None:
    client = bench.client(replace(CALM, silent_s=0.4))
    sample_until(client, ok)
    bench.scenario.hang(60, "nvmlDeviceGetCount_v2")
    client.change(change(2, 300))
    sample_until(client, lambda report: report.state is DriverState.SILENT)
    bench.scenario.hang(None, "nvmlDeviceGetCount_v2")
    sample_until(client, ok)
    silence_after(client)
    assert bench.calls(SET) == []


def test_s7_a_change_whose_child_ends_is_not_made_by_the_next_one(bench: NvmlBench) -> None:
    client = bench.client()
    pid = sample_until(client, ok).child_pid
    bench.scenario.hang(60, SET, 2)
    client.change(change(2, 300))
    sample_until(client, lambda report: bool(bench.calls(SET)))
    client.change(change(5, 300))  # still waits for the next sample
    os.kill(pid, signal.SIGKILL)
    sample_until(client, lambda report: report.state is DriverState.FAILED)
    bench.scenario.hang(None, SET, 2)
    assert sample_until(client, ok).child_pid != pid
    silence_after(client)
    assert bench.calls(SET) == [f"{pid} {SET} 2"]
    assert made(client, change(2, 300)).power_limit_w == 300  # who still wants it asks again


def test_a_card_that_is_lost_is_gone_also_for_a_child_that_never_saw_it(bench: NvmlBench) -> None:
    client = bench.client()
    pid = sample_until(client, ok).child_pid
    bench.scenario.lose(6)
    assert made(client, change(6, 300)).problem == "gone"
    os.kill(pid, signal.SIGKILL)
    sample_until(client, lambda report: ok(report) and report.child_pid not in (0, pid))
    answer = made(client, change(6, 300))
    assert (answer.problem, uuid(6) in answer.detail) == ("gone", True)
    assert bench.scenario.written() == []


def test_a_card_that_has_not_told_its_name_yet_is_not_said_to_be_gone(bench: NvmlBench) -> None:
    bench.scenario.hang(60, index=6)
    client = bench.client()
    stuck = sample_until(client, lambda report: report.stuck_since is not None)
    assert stuck.state is DriverState.OK
    client.change(change(6, 300))
    assert made(client, change(5, 300)).problem == ""
    bench.scenario.hang(None, index=6)
    sample_until(client, ok)
    silence_after(client, 3)
    assert bench.scenario.written() == ["5.limit = 300000"]


def test_the_fake_asks_for_the_capability_that_the_real_driver_asks_for(bench: NvmlBench) -> None:
    """CAP_SYS_ADMIN (number 21) in the effective set."""
    status = Path("/proc/self/status").read_text("utf-8")
    effective = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    bench.scenario.set("needs_admin", 1)
    client = bench.client()
    sample_until(client, ok)
    assert made(client, change(0, 300)).problem == ("" if effective >> 21 & 1 else "no_permission")


_OLD_BINDING = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("newer", PATH)
newer = sys.modules["newer"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(newer)
globals().update({name: each for name, each in vars(newer).items() if not name.startswith("__")})
del nvmlDeviceSetGpuLockedClocks
"""
