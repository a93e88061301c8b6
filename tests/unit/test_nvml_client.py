"""The NVML client's patience by the book (3 s, 120 s, 60 s more), over a child made by hand."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

from gpuwatch.model.gpu import DriverState, GpuReport, GpuSample
from gpuwatch.model.gpu_change import GpuChange
from gpuwatch.model.instant import Instant
from gpuwatch.model.reading import value
from gpuwatch.system.nvml.client import NvmlClient
from gpuwatch.system.nvml.wire import change_from_wire, readings_to_wire, to_wire

HELLO = {"hello": {"pid": 1, "binding": "pynvml 1"}}


class HandClock:
    """Moves when told to."""

    def __init__(self) -> None:
        self.second = 5000.0

    def now(self) -> Instant:
        return Instant("b", self.second, self.second)

    def monotonic(self) -> float:
        return self.second


class HandChild:
    """Says what it is told to say."""

    def __init__(self, pid: int) -> None:
        self.broken = ""
        self.pid, self.fd, self.end = pid, 9, "signal 9"
        self.asked: list[Mapping[str, Any]] = []
        self.says: list[dict[str, Any]] = []
        self.answers = True
        self.hung_up = False
        self.signals: list[int] = []
        self.slow_to_die = False

    def alive(self) -> bool:
        return not self.broken

    def send(self, message: Mapping[str, Any]) -> None:
        self.asked.append(message)
        if self.answers:
            self.answer()

    def answer(self, unanswered: Sequence[int] = (), of: int = 2) -> None:
        number = self.asked[-1]["id"]
        if self.asked[-1]["op"] == "probe":
            self.says.append({"id": number, "probe": "ok"})
            return
        for index in range(of):
            if index not in unanswered:
                self.says.append({"id": number, "gpu": to_wire(self.sample(index))})
        self.says.append({"id": number, "done": "ok", "driver": "580", "library": "/l", "unanswered": list(unanswered)})

    def sample(self, index: int) -> GpuSample:
        return GpuSample(f"GPU-{index}", index, "H100", f"0000:0{index}:00.0", {"gpu.temperature": value(40)})

    def receive(self) -> list[dict[str, Any]]:
        said, self.says = self.says, []
        return said

    def wait_readable(self, timeout_s: float) -> bool:
        return False

    def hang_up(self) -> None:
        self.hung_up = True

    def signal(self, number: signal.Signals) -> None:
        self.signals.append(int(number))
        if number == signal.SIGKILL and not self.slow_to_die:
            self.broken = "ended"

    def reap(self, wait_s: float) -> bool:
        return not self.alive()

    def release(self) -> None:
        """Nothing to close."""


class Bench:
    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.children: list[HandChild] = []
        self.silent_from_the_start = False
        self.dies_at_once = False
        self.client = NvmlClient(self.clock, str(folder / "lock"), str(folder), self.spawn)

    def spawn(self, arguments: Sequence[str]) -> HandChild:
        child = HandChild(100 + len(self.children))
        child.says.append(dict(HELLO))
        child.answers = not (self.silent_from_the_start or self.dies_at_once)
        child.broken = "ended" if self.dies_at_once else ""
        self.children.append(child)
        return child

    @property
    def child(self) -> HandChild:
        return self.children[-1]

    def after(self, second: float, spare_child: bool = False, with_processes: bool = False) -> GpuReport:
        """Let time pass, then one sample."""
        self.clock.second += second
        return self.client.sample(with_processes, spare_child, 0.4)

    def cycles(self, until_s: float, spare_child: bool = False) -> GpuReport:
        """A sample a second."""
        report: Optional[GpuReport] = None
        end = self.clock.second + until_s
        while self.clock.second < end:
            report = self.after(1.0, spare_child)
        assert report is not None
        return report


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_silence_begins_after_three_seconds(bench: Bench) -> None:
    good = bench.after(0)
    assert good.state is DriverState.OK
    bench.child.answers = False
    asked_at = bench.after(1).taken
    bench.clock.second += 1
    assert bench.after(1.9).state is DriverState.OK
    silent = bench.after(0.2)
    assert silent.state is DriverState.SILENT
    assert silent.stuck_since is not None
    assert silent.stuck_since.boottime_s == 5001
    assert asked_at == good.taken == silent.taken
    assert len(bench.child.asked) == 2  # not asked again while it owes an answer


def test_asked_to_end_after_two_minutes_killed_one_later(bench: Bench) -> None:
    bench.after(0)
    bench.child.answers = False
    bench.after(1)
    bench.cycles(119)
    assert (bench.child.hung_up, bench.child.signals) == (False, [])
    bench.cycles(3)
    assert (bench.child.hung_up, bench.child.signals) == (True, [signal.SIGTERM])
    bench.cycles(58)
    assert bench.child.signals == [signal.SIGTERM]
    bench.cycles(4)
    assert bench.children[0].signals == [signal.SIGTERM, signal.SIGKILL]
    assert bench.after(2).state is DriverState.OK
    assert len(bench.children) == 2


def test_a_child_that_survives_sigkill_is_the_only_one(bench: Bench) -> None:
    bench.silent_from_the_start = True
    bench.after(0)
    bench.child.slow_to_die = True
    report = bench.cycles(3600)
    assert bench.child.signals == [signal.SIGTERM, signal.SIGKILL]
    assert len(bench.children) == 1
    assert (report.state, report.stuck_pids) == (DriverState.SILENT, (100,))


def test_spared_until_the_wake_is_over(bench: Bench) -> None:
    bench.silent_from_the_start = True
    bench.after(0)
    bench.cycles(600, spare_child=True)
    assert bench.child.signals == []
    bench.cycles(2)
    assert bench.child.signals == [signal.SIGTERM]
    bench.cycles(300, spare_child=True)
    assert bench.child.signals == [signal.SIGTERM]


def test_the_next_child_has_its_own_two_minutes(bench: Bench) -> None:
    bench.silent_from_the_start = True
    bench.after(0)
    bench.cycles(185)
    report = bench.cycles(100)
    assert len(bench.children) == 2
    assert bench.child.signals == []
    assert report.state is DriverState.SILENT
    assert report.stuck_since is not None
    assert report.stuck_since.boottime_s == 5000


def test_pauses_between_children_double_up_to_a_minute(bench: Bench) -> None:
    """N11: not 269 restarts."""
    bench.dies_at_once = True
    starts: list[float] = []
    while bench.clock.second < 5000 + 400:
        before = len(bench.children)
        bench.after(0.5)
        if len(bench.children) > before:
            starts.append(bench.clock.second)
    pauses = [round(later - earlier) for earlier, later in zip(starts, starts[1:])]
    assert pauses[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert set(pauses[6:]) == {60}


def test_pauses_begin_anew_after_a_child_that_lived(bench: Bench) -> None:
    bench.dies_at_once = True
    bench.cycles(40)
    bench.dies_at_once = False
    bench.cycles(150)
    before = len(bench.children)
    assert bench.child.alive()
    bench.child.broken = "ended"
    assert bench.after(1).state is DriverState.FAILED
    assert bench.after(1.1).state is DriverState.OK
    assert len(bench.children) == before + 1


def test_a_late_answer_is_not_taken_as_new(bench: Bench) -> None:
    good = bench.after(0)
    bench.child.answers = False
    bench.after(1)
    silent = bench.after(10)
    assert silent.state is DriverState.SILENT
    bench.child.answer()
    assert bench.after(1).taken == good.taken  # that one is discarded, and it is asked anew
    assert len(bench.child.asked) == 3
    bench.child.answer()
    assert bench.after(0.5).state is DriverState.OK


def test_process_lists_are_not_lost_in_a_slow_answer(bench: Bench) -> None:
    bench.after(0)
    bench.child.answers = False
    bench.after(1, with_processes=True)
    bench.child.answer()
    bench.after(1)
    assert [question["processes"] for question in bench.child.asked] == [False, True, True]


def test_a_gpu_that_hangs_alone_keeps_its_name_and_has_no_values(bench: Bench) -> None:
    bench.after(0)
    bench.child.answers = False
    for _ in range(4):
        bench.after(1)
        bench.child.answer(unanswered=[1])
    report = bench.after(0)
    assert (report.state, report.reason) == (DriverState.OK, "GPU 1 does not answer")
    assert report.stuck_since is not None
    assert report.stuck_since.boottime_s == 5001
    assert [sample.uuid for sample in report.samples] == ["GPU-0", "GPU-1"]
    assert report.samples[0].readings["gpu.temperature"].value == 40
    assert report.samples[1].readings["gpu.temperature"].failed


def test_a_slow_gpu_keeps_the_others_fresh_and_its_own_readings_have_their_age(bench: Bench) -> None:
    """GPU 1 answers each question a second late: never failed, never taken as new, never stuck."""
    bench.after(0)
    bench.child.answers = False
    late: list[int] = []
    ages: list[float] = []
    for second in range(5001, 5011):
        bench.after(1)
        bench.child.says += [{"id": number, "gpu": to_wire(bench.child.sample(1))} for number in late]
        late = [bench.child.asked[-1]["id"]]
        bench.child.answer(unanswered=[1])
        report = bench.after(0)
        assert (report.state, report.stuck_since, report.reason) == (DriverState.OK, None, "")
        fast, slow = report.samples
        assert fast.taken is None
        assert slow.readings["gpu.temperature"].value == 40
        assert report.taken is not None
        assert second - report.taken.boottime_s <= 1
        taken = report.taken_of(slow)
        assert taken is not None
        ages.append(report.taken.boottime_s - taken.boottime_s)
    assert 0 < max(ages) <= 2


def test_readings_from_before_a_long_break_are_not_shown_for_a_gpu_that_is_slow(bench: Bench) -> None:
    bench.after(0)
    bench.child.answers = False
    bench.after(30)
    bench.child.answer(unanswered=[1])
    report = bench.after(0)
    assert report.samples[0].readings["gpu.temperature"].value == 40
    assert report.samples[1].readings["gpu.temperature"].failed


def test_gpus_that_all_hang_are_a_silent_driver(bench: Bench) -> None:
    good = bench.after(0)
    bench.child.answers = False
    for _ in range(5):
        bench.after(1)
        bench.child.answer(unanswered=[0, 1])
    report = bench.after(0.1)
    assert (report.state, report.taken) == (DriverState.SILENT, good.taken)
    assert report.stuck_since is not None
    assert report.stuck_since.boottime_s == 5001
    bench.cycles(130)
    assert bench.child.signals == [signal.SIGTERM]


def test_a_child_that_never_says_hello(bench: Bench) -> None:
    bench.silent_from_the_start = True
    bench.after(0)
    bench.child.broken = "ended"
    spawn = bench.client._spawn

    def spawn_mute(arguments: Sequence[str]) -> HandChild:
        child = spawn(arguments)
        assert isinstance(child, HandChild)
        child.says.clear()
        return child

    bench.client._spawn = spawn_mute
    bench.after(2)
    bench.after(2)
    assert bench.cycles(9).state is not DriverState.SILENT
    assert bench.cycles(3).state is DriverState.SILENT


def test_nonsense_is_a_failed_driver(bench: Bench) -> None:
    bench.after(0)
    bench.child.says.append({"id": 2, "gpu": {"uuid": 1}})
    bench.child.answers = False
    bench.after(1)
    bench.child.says.append({"id": 2, "gpu": {"uuid": 1}})
    report = bench.after(0.1)
    assert (report.state, bench.child.hung_up) == (DriverState.FAILED, True)


def test_what_belongs_to_the_daemon_is_kept_from_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuwatch.system.nvml import client

    kept: dict[str, str] = {}

    class Spy:
        def __init__(self, module: str, arguments: Sequence[str], env: Mapping[str, str]) -> None:
            kept.update(env)

    monkeypatch.setattr(client, "JsonChild", Spy)
    for name in (
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "CREDENTIALS_DIRECTORY",
        "WECOM_KEY",
        "API_TOKEN",
        "LD_LIBRARY_PATH",
    ):
        monkeypatch.setenv(name, "/x")
    client.spawn_child(())
    assert "LD_LIBRARY_PATH" in kept
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "CREDENTIALS_DIRECTORY", "WECOM_KEY", "API_TOKEN"} & set(kept)


class TestAtRest:
    """After an Xid 119 or 120, and for a repair (S14)."""

    def test_a_paused_driver_is_asked_nothing_until_a_probe_is_answered(self, bench: Bench) -> None:
        good = bench.after(0)
        bench.client.pause("after an Xid 119")
        report = bench.cycles(29)
        assert (report.state, report.taken, len(bench.child.asked)) == (DriverState.PAUSED, good.taken, 1)
        assert "after an Xid 119" in report.reason
        assert report.resumes is not None
        assert report.resumes.boottime_s == 5030
        bench.child.answers = False
        assert bench.cycles(2).state is DriverState.PAUSED
        assert [question["op"] for question in bench.child.asked] == ["sample", "probe"]
        bench.child.says.append({"id": bench.child.asked[-1]["id"], "probe": "ok"})
        bench.child.answers = True
        assert bench.after(1).state is DriverState.OK
        assert bench.child.asked[-1]["op"] == "sample"

    def test_a_probe_that_is_not_answered_is_a_silent_driver_and_its_late_answer_ends_the_pause(
        self, bench: Bench
    ) -> None:
        bench.after(0)
        bench.client.pause("after an Xid 119")
        bench.child.answers = False
        report = bench.cycles(40, spare_child=True)
        assert (report.state, report.stuck_pids) == (DriverState.SILENT, (100,))
        assert [question["op"] for question in bench.child.asked] == ["sample", "probe"]
        bench.child.says.append({"id": bench.child.asked[-1]["id"], "probe": "ok"})
        bench.child.answers = True
        assert bench.after(1).state is DriverState.OK

    def test_more_of_the_same_does_not_put_off_the_probe(self, bench: Bench) -> None:
        bench.after(0)
        for _ in range(31):
            bench.client.pause("after an Xid 119")
            bench.after(1)
        assert "probe" in [question["op"] for question in bench.child.asked]

    def test_what_was_asked_before_the_pause_is_still_taken_and_does_not_end_it(self, bench: Bench) -> None:
        bench.after(0)
        bench.child.answers = False
        bench.after(1)
        bench.client.pause("after an Xid 119")
        bench.child.answer()
        report = bench.after(1)
        assert report.taken is not None
        assert (report.state, report.taken.boottime_s) == (DriverState.PAUSED, 5001)

    def test_no_child_is_started_in_a_pause_but_for_the_probe(self, bench: Bench) -> None:
        bench.after(0)
        bench.client.pause("after an Xid 120")
        bench.child.broken = "ended"
        assert bench.cycles(29).state is DriverState.PAUSED
        assert len(bench.children) == 1
        bench.cycles(3)
        assert bench.children[1].asked[0]["op"] == "probe"

    def test_a_child_that_dies_of_the_probe_is_not_followed_by_another_at_once(self, bench: Bench) -> None:
        bench.after(0)
        bench.client.pause("after an Xid 119")
        bench.child.broken = "ended"
        bench.dies_at_once = True
        report = bench.cycles(125)
        assert report.state is DriverState.PAUSED
        assert len(bench.children) == 1 + 4

    def test_s14_a_released_driver_has_no_child_until_the_time_is_over(self, bench: Bench) -> None:
        bench.after(0)
        bench.client.release(600)
        assert bench.child.hung_up
        report = bench.after(1)
        assert (report.state, report.child_pid) == (DriverState.RELEASED, 100)
        bench.child.broken = "ended"
        report = bench.cycles(590)
        assert (report.state, report.child_pid, len(bench.children)) == (DriverState.RELEASED, 0, 1)
        assert report.resumes is not None
        assert report.resumes.boottime_s == 5600
        assert bench.cycles(12).state is DriverState.OK
        assert len(bench.children) == 2

    def test_s14_it_can_be_taken_back_before(self, bench: Bench) -> None:
        bench.after(0)
        bench.client.release(600)
        bench.child.broken = "ended"
        bench.after(5)
        bench.client.resume()
        assert bench.after(1).state is DriverState.OK

    def test_s14_a_child_that_hangs_can_not_be_released_and_that_is_said(self, bench: Bench) -> None:
        bench.after(0)
        bench.child.answers = False
        bench.after(1)
        bench.client.release(600)
        report = bench.cycles(10)
        assert (report.state, report.stuck_pids) == (DriverState.SILENT, (100,))
        bench.child.broken = "ended"
        report = bench.after(1)
        assert (report.state, report.stuck_since) == (DriverState.RELEASED, None)


def test_slow_readings_are_due_at_the_start_and_once_a_minute(bench: Bench) -> None:
    bench.after(0)
    bench.cycles(150)
    due = [number for number, question in enumerate(bench.child.asked) if question["minute"]]
    assert due == [0, 60, 120]


def test_slow_readings_stay_with_their_age(bench: Bench) -> None:
    bench.after(0)
    first = bench.child.asked[-1]["id"]
    readings = readings_to_wire({"gpu.recovery_action": value(1)})
    bench.child.says.append({"id": first, "minute": {"uuid": "GPU-1", "readings": readings}})
    report = bench.cycles(30)
    sample = report.samples[1]
    reading = sample.reading("gpu.recovery_action")
    assert reading is not None
    assert reading.value == 1
    taken = report.taken_of(sample, "gpu.recovery_action")
    assert taken is not None
    assert taken.boottime_s == 5000
    assert report.taken_of(sample, "gpu.temperature") == report.taken != taken
    assert report.capabilities["GPU-1"]["gpu.recovery_action"] == "supported"
    assert "gpu.recovery_action" not in report.capabilities["GPU-0"]


def test_n12_capabilities_are_found_anew_by_the_next_child(bench: Bench) -> None:
    assert bench.after(0).capabilities["GPU-0"] == {"gpu.temperature": "supported"}
    bench.silent_from_the_start = True
    bench.child.broken = "ended"
    bench.after(1)
    bench.after(2)
    assert bench.after(1).capabilities == {}


class TestChanges:
    """Power limits and clocks (A15-A17): sent once, to a driver that answers, or not at all (S7)."""

    CHANGE = GpuChange("c1", "GPU-1", "0000:01:00.0", 300.0, (210, 1200))

    def sent(self, bench: Bench) -> list[GpuChange]:
        orders = (order for question in bench.child.asked for order in question.get("changes", ()))
        return [change_from_wire(order)[1] for order in orders]

    def test_it_goes_with_the_next_question_and_may_be_begun_while_that_is_not_stale(self, bench: Bench) -> None:
        bench.after(0)
        bench.client.change(self.CHANGE)
        assert self.sent(bench) == []
        bench.after(1)
        bench.after(1)
        assert self.sent(bench) == [self.CHANGE]
        assert change_from_wire(bench.child.asked[1]["changes"][0])[2] == 5001 + 3

    def test_it_waits_for_a_question_that_is_a_little_late(self, bench: Bench) -> None:
        bench.after(0)
        bench.child.answers = False
        bench.after(1)
        bench.client.change(self.CHANGE)
        bench.after(1)
        bench.child.answer()
        bench.after(1)
        assert self.sent(bench) == [self.CHANGE]

    def test_its_answer_is_told_once_with_the_time_of_the_question(self, bench: Bench) -> None:
        bench.after(0)
        bench.client.change(self.CHANGE)
        bench.after(1)
        number = bench.child.asked[-1]["changes"][0][0]
        told = {"id": 2, "changed": [number, "", "", 300.0, 200, 700, None]}
        bench.child.says += [told, told, {"id": 2, "changed": [number + 1, "", "", 1, 2, 3, 4]}]
        (answer,) = bench.after(1).changed
        assert (answer.id, answer.uuid, answer.problem, answer.at.boottime_s) == ("c1", "GPU-1", "", 5001)
        assert (answer.power_limit_w, answer.power_limit_min_w, answer.power_limit_max_w) == (300, 200, 700)
        assert answer.power_limit_default_w is None
        assert bench.after(1).changed == ()

    def test_an_answer_that_comes_late_is_told_all_the_same(self, bench: Bench) -> None:
        """The limit is what it says, and nobody else knows."""
        bench.after(0)
        bench.client.change(self.CHANGE)
        bench.child.answers = False
        bench.after(1)
        assert bench.cycles(60).state is DriverState.SILENT
        number = bench.child.asked[-1]["changes"][0][0]
        bench.child.says.append({"id": 2, "changed": [number, "", "", 300.0, 200, 700, 700]})
        report = bench.after(1)
        assert (report.state, [answer.id for answer in report.changed]) == (DriverState.SILENT, ["c1"])

    def test_changes_under_one_id_have_an_answer_each(self, bench: Bench) -> None:
        bench.after(0)
        bench.client.change(self.CHANGE)
        bench.client.change(self.CHANGE)
        bench.after(1)
        for order in bench.child.asked[-1]["changes"]:
            bench.child.says.append({"id": 2, "changed": [order[0], "failed", "why", None, None, None, None]})
        assert [(each.id, each.detail) for each in bench.after(1).changed] == [("c1", "why")] * 2

    def test_nothing_is_sent_before_this_child_has_answered(self, bench: Bench) -> None:
        bench.client.change(self.CHANGE)
        bench.after(0)
        bench.after(1)
        assert self.sent(bench) == []
        bench.client.release(10)
        bench.child.broken = "ended"
        bench.after(1)
        bench.client.resume()
        bench.client.change(self.CHANGE)
        bench.cycles(3)
        assert len(bench.children) == 2
        assert self.sent(bench) == []

    @pytest.mark.parametrize("trouble", ["silent", "paused", "released", "ended"])
    def test_what_waits_is_dropped_when_the_driver_is_in_trouble(self, bench: Bench, trouble: str) -> None:
        bench.after(0)
        if trouble == "silent":
            bench.child.answers = False
            bench.cycles(5)
        elif trouble == "paused":
            bench.client.pause("after an Xid 119")
        elif trouble == "released":
            bench.client.release(600)
        else:
            bench.child.broken = "ended"
        bench.client.change(self.CHANGE)
        assert bench.after(1).state is not DriverState.OK
        if trouble == "silent":
            bench.child.answer()
            bench.child.answers = True
        elif trouble == "released":
            bench.child.broken = "ended"
            bench.after(1)
        bench.client.resume()
        assert bench.cycles(5).state is DriverState.OK
        assert [asked for child in bench.children for asked in child.asked if asked.get("changes")] == []

    def test_an_answer_of_a_child_is_none_of_the_next_one_s(self, bench: Bench) -> None:
        bench.after(0)
        bench.client.change(self.CHANGE)
        bench.after(1)
        number = bench.child.asked[-1]["changes"][0][0]
        bench.child.broken = "ended"
        assert bench.after(1).changed == ()
        bench.cycles(3)
        bench.child.says.append({"id": 9, "changed": [number, "", "", 300, 200, 700, 700]})
        assert bench.after(1).changed == ()

    def test_nonsense_is_a_failed_driver(self, bench: Bench) -> None:
        bench.after(0)
        bench.child.says.append({"id": 1, "changed": [1]})
        assert bench.after(1).taken is not None
        assert bench.children[0].hung_up

    @pytest.mark.parametrize(
        "wrong",
        [
            {"power_limit_w": 0.0},
            {"power_limit_w": -5.0},
            {"power_limit_w": float("nan")},
            {"power_limit_w": float("inf")},
            {"graphics_clock_mhz": (1200, 210)},
            {"graphics_clock_mhz": (0, 210)},
            {"graphics_clock_mhz": (210, 1200), "unlock_clocks": True},
        ],
    )
    def test_what_no_card_could_be_set_to_is_not_even_a_change(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"clock|limit"):
            GpuChange("c", "GPU-1", "0000:01:00.0", **wrong)
