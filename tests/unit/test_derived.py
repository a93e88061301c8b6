"""Metrics made of other readings: when they speak, when they keep silent, and that a missing input is never a 0."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Callable, Optional

import pytest

from gpuwatch.model.container import Container, ContainerReport
from gpuwatch.model.gpu import Attribution, DriverState, GpuReport, GpuSample, Owner
from gpuwatch.model.host import HostReport, SubjectReadings, UnitReadings, WorkloadReport
from gpuwatch.model.instant import Instant
from gpuwatch.model.metric import METRICS, NOT_GROWING_S
from gpuwatch.model.reading import UNSUPPORTED, Reading, value
from gpuwatch.model.settings import Settings, Workload
from gpuwatch.policy.victims import workload_of
from gpuwatch.sources.derived import Derived, Enriched, Sight
from gpuwatch.sources.fabric import FabricManager
from tests.fakes.story import BROKEN, NEXT_BOOT, at, attribution, gpu, owner, report, uuid

GIB = 1024**3
TRAINING = Workload("training", units=("train@*.service",), containers=("trainer-*",), gpu_memory_limit=40 * GIB)
SETTINGS = Settings(workloads=(TRAINING, Workload("serving", units=("serve@*.service",))))


class Bench:
    """Cycles of a second; `at` is where it is."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.settings = settings
        self.derived = Derived(workload_of)
        self.at = 100.0

    def see(
        self,
        seen: Optional[GpuReport] = None,
        host: Optional[dict[str, Reading]] = None,
        units: Optional[WorkloadReport] = None,
        now: Optional[Instant] = None,
        **more: Any,
    ) -> Enriched:
        now = now or at(self.at)
        return self.derived.observe(
            Sight(
                now,
                GpuReport(DriverState.ABSENT) if seen is None else seen,
                HostReport(now, host or {}),
                units or WorkloadReport(now),
                **more,
            ),
            self.settings,
        )

    def card(self, *samples: GpuSample, seconds: float = 1.0, **more: Any) -> GpuSample:
        """The first card of a new report, `seconds` later."""
        self.at += seconds
        return self.see(report(at(self.at), *samples), **more).report.samples[0]

    def cards(self, seconds: int, **readings: Any) -> GpuSample:
        """So many seconds of the same readings; the last sample."""
        for _ in range(seconds):
            sample = self.card(gpu(0, **readings))
        return sample


@pytest.fixture
def bench() -> Bench:
    return Bench()


def number(sample: GpuSample, metric: str) -> Optional[float]:
    reading = sample.reading(metric)
    return None if reading is None else reading.value


# Forecasts


def full_in(bench: Bench, used: Callable[[int], float], seconds: int, total: float = 1000.0) -> Optional[float]:
    """The forecast after so many seconds of a card whose used memory goes by `used`."""
    for second in range(seconds):
        sample = bench.card(gpu(0, memory_used=used(second), memory_total=total))
    return number(sample, "gpu.memory_full_in")


def test_a_card_that_fills_at_a_steady_rate(bench: Bench) -> None:
    assert full_in(bench, lambda second: 100.0 + 10 * second, 31) == pytest.approx(60, abs=1)


def test_nothing_is_said_of_less_than_20_seconds(bench: Bench) -> None:
    assert full_in(bench, lambda second: 10.0 * second, 20) is None


def test_reserved_memory_is_no_room(bench: Bench) -> None:
    for second in range(31):
        sample = bench.card(gpu(0, memory_used=100 + 10 * second, memory_reserved=300, memory_total=1000))
    assert number(sample, "gpu.memory_full_in") == pytest.approx(30, abs=1)


@pytest.mark.parametrize(
    "used",
    [
        lambda second: 900.0,
        lambda second: 900.0 - second,
        lambda second: 100.0 if second < 30 else 900.0,  # one big allocation
        lambda second: 100.0 if second < 50 else 900.0,
        lambda second: 500.0 + 30 * (second % 12),  # a sawtooth
        lambda second: 300.0 * (second // 20),  # three allocations
    ],
)
def test_what_does_not_grow_steadily_clears_a_rule(bench: Bench, used: Callable[[int], float]) -> None:
    assert full_in(bench, used, 61) == NOT_GROWING_S == METRICS["gpu.memory_full_in"].high


def test_growth_that_has_just_begun_counts_from_the_last_minute(bench: Bench) -> None:
    assert full_in(bench, lambda second: max(0.0, second - 200.0), 261) == pytest.approx(940, abs=5)


def test_slow_growth_is_capped(bench: Bench) -> None:
    assert full_in(bench, lambda second: 0.001 * second, 61) == NOT_GROWING_S


def test_noise_is_no_growth_and_hides_none() -> None:
    for seed in range(8):
        noise, bench = random.Random(seed), Bench()
        for _ in range(80):
            sample = bench.card(gpu(0, memory_used=950 + noise.gauss(0, 10), memory_total=1000))
            assert number(sample, "gpu.memory_full_in") in (None, NOT_GROWING_S)
        leak = [100 + 8 * second + noise.gauss(0, 10) for second in range(61)]
        assert full_in(Bench(), leak.__getitem__, 61) == pytest.approx(52, rel=0.3)


def test_an_allocation_in_the_midst_of_a_leak_does_not_hasten_it(bench: Bench) -> None:
    left = full_in(bench, lambda second: second + (500.0 if second >= 30 else 0.0), 61)
    assert left == pytest.approx(440, rel=0.05)


def test_a_gap_another_boot_and_a_lost_card_start_a_forecast_anew(bench: Bench) -> None:
    def grown() -> Optional[float]:
        return full_in(bench, lambda second: 10.0 * second, 31)

    assert grown() is not None
    sample = bench.card(gpu(0, memory_used=350, memory_total=1000), seconds=6)
    assert "gpu.memory_full_in" not in sample.readings
    assert grown() is not None
    bench.card(gpu(0, lost="gone"))
    sample = bench.card(gpu(0, memory_used=360, memory_total=1000))
    assert "gpu.memory_full_in" not in sample.readings
    assert grown() is not None
    bench.at += 1
    seen = report(at(bench.at, NEXT_BOOT), gpu(0, memory_used=370, memory_total=1000))
    assert "gpu.memory_full_in" not in bench.see(seen, now=at(bench.at, NEXT_BOOT)).report.samples[0].readings


def test_a_sample_that_comes_again_counts_once_and_says_the_same(bench: Bench) -> None:
    full_in(bench, lambda second: 10.0 * second, 31)
    seen = report(at(bench.at), gpu(0, memory_used=300, memory_total=1000))
    before = bench.see(seen).report.samples[0].readings["gpu.memory_full_in"]
    for _ in range(100):
        bench.at += 1
        again = bench.see(replace(seen, state=DriverState.SILENT))
        assert again.report.samples[0].readings["gpu.memory_full_in"] == before


@pytest.mark.parametrize("problem", [BROKEN, UNSUPPORTED])
@pytest.mark.parametrize("metric", ["memory_used", "memory_total"])
def test_a_forecast_without_its_input_is_none(bench: Bench, metric: str, problem: Reading) -> None:
    assert bench.cards(1, **{metric: problem}).readings["gpu.memory_full_in"] == problem


def test_the_host_s_memory_runs_out(bench: Bench) -> None:
    for second in range(41):
        bench.at += 1
        seen = bench.see(host={"host.memory_available": value(1000.0 - 20 * second)})
    assert seen.host.readings["host.memory_full_in"].value == pytest.approx(10, abs=1)
    assert seen.host.readings["host.memory_available"].value == 200
    bench.at += 1
    assert bench.see(host={"host.memory_available": BROKEN}).host.readings["host.memory_full_in"] == BROKEN


def unit(taken: Instant, used: float, limit: Reading) -> WorkloadReport:
    readings = {"unit.memory_used": value(used), "unit.memory_max": limit}
    return WorkloadReport(taken, (UnitReadings("train@a.service", "/system.slice/train@a.service", readings),))


def test_a_unit_reaches_its_limit_and_is_read_each_5_s(bench: Bench) -> None:
    for second in range(41):
        bench.at += 1
        taken = at(bench.at - second % 5)
        seen = bench.see(units=unit(taken, 100.0 + 10 * (second - second % 5), value(1000.0)))
    assert seen.units.units[0].readings["unit.memory_full_in"].value == pytest.approx(50, abs=1)
    (subject,) = seen.units.subjects()
    assert "unit.memory_full_in" in subject.readings
    bench.at += 5
    endless = bench.see(units=unit(at(bench.at), 500, UNSUPPORTED))
    assert endless.units.units[0].readings["unit.memory_full_in"] == UNSUPPORTED


# Stalls


def test_a_card_that_was_busy_and_idles_with_its_memory_held(bench: Bench) -> None:
    assert number(bench.cards(62, utilisation=98), "gpu.stalled") == 0
    assert number(bench.cards(31, utilisation=0), "gpu.stalled") == 30
    assert number(bench.cards(1, utilisation=20), "gpu.stalled") == 0
    assert number(bench.cards(11, utilisation=4), "gpu.stalled") == 10


def test_idle_from_the_start_or_busy_too_shortly_is_no_stall(bench: Bench) -> None:
    assert number(bench.cards(300, utilisation=0), "gpu.stalled") == 0
    bench.cards(60, utilisation=98)
    assert number(bench.cards(300, utilisation=0), "gpu.stalled") == 0


def test_short_dips_do_not_end_being_busy_and_long_ones_do() -> None:
    for dip, expected in ((10, 9.0), (12, 0.0)):
        bench = Bench()
        for _ in range(3):
            bench.cards(20, utilisation=90)
            bench.cards(dip, utilisation=30)
        assert number(bench.cards(10, utilisation=0), "gpu.stalled") == expected


def test_memory_given_back_ends_it(bench: Bench) -> None:
    bench.cards(62, utilisation=98)
    bench.cards(10, utilisation=0)
    assert number(bench.cards(5, utilisation=0, memory_used=GIB), "gpu.stalled") == 0
    assert number(bench.cards(20, utilisation=0), "gpu.stalled") == 0


def test_memory_that_no_process_holds_is_no_stall(bench: Bench) -> None:
    bench.cards(62, utilisation=98)
    assert number(bench.card(gpu(0, utilisation=0), attributions=(attribution(at(bench.at)),)), "gpu.stalled") == 0
    assert number(bench.cards(20, utilisation=0), "gpu.stalled") == 0


@pytest.mark.parametrize(
    ("total", "used", "counts"), [(80, 2.5, True), (80, 1.5, False), (8, 1, True), (8, 0.5, False)]
)
def test_how_much_memory_must_be_held(bench: Bench, total: float, used: float, counts: bool) -> None:
    memory = {"memory_total": total * GIB, "memory_used": used * GIB}
    bench.cards(62, utilisation=98, **memory)
    assert (number(bench.cards(10, utilisation=0, **memory), "gpu.stalled") == 9) is counts


def test_a_list_that_says_nothing_leaves_the_memory_to_speak(bench: Bench) -> None:
    for load in [98] * 62 + [0] * 11:
        unknown = attribution(at(bench.at), unknown="the card does not tell who uses it")
        sample = bench.card(gpu(0, utilisation=load), attributions=(unknown,))
    assert number(sample, "gpu.stalled") == 10


def test_a_gap_is_neither_busy_nor_idle(bench: Bench) -> None:
    bench.cards(62, utilisation=98)
    bench.cards(10, utilisation=0)
    assert number(bench.card(gpu(0, utilisation=0), seconds=30), "gpu.stalled") == 0
    assert number(bench.cards(7, utilisation=0), "gpu.stalled") == 7


def test_a_card_that_was_lost_starts_anew(bench: Bench) -> None:
    bench.cards(62, utilisation=98)
    bench.card(gpu(0, lost="gone"))
    assert number(bench.cards(20, utilisation=0), "gpu.stalled") == 0


def test_a_stall_does_not_outlive_a_reboot(bench: Bench) -> None:
    bench.cards(62, utilisation=98)
    bench.cards(5, utilisation=0)
    for second in range(1, 20):
        moment = at(second, NEXT_BOOT)
        sample = bench.see(report(moment, gpu(0, utilisation=0)), now=moment).report.samples[0]
    assert number(sample, "gpu.stalled") == 0


@pytest.mark.parametrize("problem", [BROKEN, UNSUPPORTED])
@pytest.mark.parametrize("metric", ["utilisation", "memory_used", "memory_total"])
def test_a_stall_that_nobody_can_see_is_none(bench: Bench, metric: str, problem: Reading) -> None:
    bench.cards(62, utilisation=98)
    sample = bench.cards(20, **{"utilisation": 0, metric: problem})
    assert sample.readings["gpu.stalled"] == problem


# Fans


@pytest.mark.parametrize(
    ("fan", "celsius", "expected"),
    [
        (0, 70, value(1)),
        (0, 69, value(0)),
        (30, 90, value(0)),
        (30, BROKEN, value(0)),
        (0, BROKEN, BROKEN),
        (UNSUPPORTED, 90, UNSUPPORTED),
        (BROKEN, 90, BROKEN),
    ],
)
def test_a_fan_that_stands_still(bench: Bench, fan: Any, celsius: Any, expected: Reading) -> None:
    heat = celsius if isinstance(celsius, Reading) else value(celsius)
    sample = bench.card(replace_reading(gpu(0, fan=fan), "gpu.temperature", heat))
    assert sample.readings["gpu.fan_stopped"] == expected


def replace_reading(sample: GpuSample, metric: str, reading: Reading) -> GpuSample:
    return replace(sample, readings={**sample.readings, metric: reading})


# PCIe and NVLink


def minutes(bench: Bench, *loads: Any, **slow: Any) -> GpuSample:
    """Whole minutes, each with its slow readings at the beginning and a load throughout; the last sample."""
    told = {
        "pcie_width": 8,
        "pcie_width_max": 16,
        "pcie_generation": 4,
        "pcie_generation_max": 5,
        "nvlinks_up": 18,
        **slow,
    }
    readings = {f"gpu.{name}": each if isinstance(each, Reading) else value(each) for name, each in told.items()}
    for load in loads:
        asked = at(bench.at + 2)
        for second in range(60):
            taken = asked if second >= 2 else at(asked.boottime_s - 60)
            sample = bench.card(replace(gpu(0, utilisation=load), slow=readings, slow_taken=taken))
    return sample


def test_lanes_and_generations_are_missed_after_two_minutes_of_load(bench: Bench) -> None:
    sample = minutes(bench, 0, 90)
    assert "gpu.pcie_lanes_missing" not in sample.slow
    sample = minutes(bench, 90)
    assert (number(sample, "gpu.pcie_lanes_missing"), number(sample, "gpu.pcie_generations_missing")) == (8, 1)
    seen = report(at(bench.at), sample)
    assert seen.taken_of(sample, "gpu.pcie_lanes_missing") == sample.slow_taken
    sample = minutes(bench, 10)
    assert {"gpu.pcie_lanes_missing", "gpu.pcie_generations_missing"} & sample.slow.keys() == set()


def test_work_that_begins_with_the_reading_is_no_load(bench: Bench) -> None:
    for load in (90, 0, 0, 90):  # the sample before, and that of the new minute
        for taken in (at(bench.at), None):
            slow = {"gpu.pcie_width": value(8), "gpu.pcie_width_max": value(16)}
            sample = bench.card(
                replace(gpu(0, utilisation=load), slow=slow, slow_taken=taken or at(bench.at)), seconds=30
            )
    assert "gpu.pcie_lanes_missing" not in sample.slow


def test_load_of_an_hour_ago_is_no_load(bench: Bench) -> None:
    known = minutes(bench, 90, 90)
    slow = {name: reading for name, reading in known.slow.items() if not METRICS[name].derived}
    bench.at += 3600
    for taken in (known.slow_taken, at(bench.at)):
        sample = bench.card(replace(gpu(0, utilisation=90), slow=slow, slow_taken=taken))
    assert "gpu.pcie_lanes_missing" not in sample.slow


def test_a_card_with_all_its_lanes_misses_none(bench: Bench) -> None:
    sample = minutes(bench, 90, 90, 90, pcie_width=16, pcie_generation=5)
    assert (number(sample, "gpu.pcie_lanes_missing"), number(sample, "gpu.pcie_generations_missing")) == (0, 0)


@pytest.mark.parametrize("load", [0, 90])
@pytest.mark.parametrize("problem", [BROKEN, UNSUPPORTED])
def test_lanes_that_can_t_be_read_are_not_judged(bench: Bench, load: float, problem: Reading) -> None:
    sample = minutes(bench, load, load, load, pcie_width=problem)
    assert sample.slow["gpu.pcie_lanes_missing"] == problem


def test_a_card_whose_load_can_t_be_told_is_not_judged(bench: Bench) -> None:
    assert minutes(bench, UNSUPPORTED, UNSUPPORTED).slow["gpu.pcie_lanes_missing"] == UNSUPPORTED
    assert "gpu.pcie_lanes_missing" not in minutes(bench, BROKEN, BROKEN, BROKEN).slow


def test_links_are_missed_against_the_most_there_were(bench: Bench) -> None:
    assert number(minutes(bench, 0, nvlinks_up=17), "gpu.nvlinks_missing") == 0
    assert number(minutes(bench, 0, nvlinks_up=18), "gpu.nvlinks_missing") == 0
    assert number(minutes(bench, 0, nvlinks_up=16), "gpu.nvlinks_missing") == 2
    assert minutes(bench, 0, nvlinks_up=UNSUPPORTED).slow["gpu.nvlinks_missing"] == UNSUPPORTED
    assert minutes(bench, 0, nvlinks_up=BROKEN).slow["gpu.nvlinks_missing"] == BROKEN


def test_the_baseline_of_links_outlives_loss_and_restart_until_somebody_forgets_it(bench: Bench) -> None:
    minutes(bench, 0)
    bench.card(gpu(0, lost="gone"))
    assert number(minutes(bench, 0, nvlinks_up=12), "gpu.nvlinks_missing") == 6
    kept, bench.derived = bench.derived.state(), Derived(workload_of)
    assert kept == {uuid(0): 18}
    bench.derived.restore(kept)
    assert number(minutes(bench, 0, nvlinks_up=12), "gpu.nvlinks_missing") == 6
    bench.derived.forget(uuid(0))
    assert bench.derived.state() == {}
    assert number(minutes(bench, 0, nvlinks_up=12), "gpu.nvlinks_missing") == 0


@pytest.mark.parametrize("document", [None, [], "x", {"GPU-1": "many"}, {"GPU-1": 900}, {"GPU-1": None}])
def test_a_baseline_that_makes_no_sense_is_learned_anew(document: Any) -> None:
    derived = Derived(workload_of)
    derived.restore(document)
    assert derived.state() == {}


# The host


def host_number(seen: Enriched, metric: str) -> Optional[float]:
    reading = seen.host.readings.get(metric)
    return None if reading is None else reading.value


def test_the_age_of_the_newest_sample(bench: Bench) -> None:
    seen = report(at(100), gpu(0))
    assert host_number(bench.see(seen), "host.gpu_sample_age") == 0
    for state in (DriverState.SILENT, DriverState.FAILED, DriverState.PAUSED, DriverState.STARTING):
        bench.at += 10
        assert host_number(bench.see(replace(seen, state=state)), "host.gpu_sample_age") == bench.at - 100


@pytest.mark.parametrize("state", [DriverState.ABSENT, DriverState.RELEASED, DriverState.MISMATCH])
def test_no_age_while_no_answer_is_expected_nor_right_after(bench: Bench, state: DriverState) -> None:
    seen = report(at(100), gpu(0))
    bench.see(seen)
    bench.at += 3600
    assert "host.gpu_sample_age" not in bench.see(replace(seen, state=state)).host.readings
    bench.at += 2
    assert host_number(bench.see(replace(seen, state=DriverState.SILENT)), "host.gpu_sample_age") == 2


def test_no_age_before_the_first_answer(bench: Bench) -> None:
    assert "host.gpu_sample_age" not in bench.see(GpuReport(DriverState.STARTING)).host.readings


def test_how_long_the_journal_could_not_be_read(bench: Bench) -> None:
    told = []
    for problem in ("", "no such file", "no such file", ""):
        told.append(host_number(bench.see(journal_problem=problem), "host.journal_behind"))
        bench.at += 5
    assert told == [0, 5, 10, 0]


@pytest.mark.parametrize(
    ("fabric", "joined", "expected"),
    [
        (None, True, None),
        (FabricManager(), True, None),
        (FabricManager("active", "580.65.06", True), True, value(0)),
        (FabricManager("failed", problem="it is failed"), True, value(1)),
        (FabricManager("activating"), True, value(1)),
        (FabricManager("missing", problem="it is not installed"), True, None),
        (FabricManager("missing", problem="it is not installed"), False, value(1)),
    ],
)
def test_the_fabric_manager(
    bench: Bench, fabric: Optional[FabricManager], joined: bool, expected: Optional[Reading]
) -> None:
    sample = replace(gpu(0), slow={"gpu.fabric_state": value(3 if joined else 2)}, slow_taken=at(bench.at))
    seen = bench.see(report(at(bench.at), sample), fabric=fabric)
    assert seen.host.readings.get("host.fabric_manager_down") == expected


def test_a_fabric_manager_that_systemd_says_nothing_of(bench: Bench) -> None:
    seen = bench.see(report(at(bench.at), gpu(0)), fabric=FabricManager(problem="systemd does not answer"))
    assert seen.host.readings["host.fabric_manager_down"].problem == "systemd does not answer"


def test_how_many_cards_are_hot(bench: Bench) -> None:
    bare: dict[str, Any] = {"slowdown_margin": UNSUPPORTED}
    cards = [gpu(0, 84), gpu(1, 83), gpu(2, 85, **bare), gpu(3, 84, **bare), gpu(4, lost="gone"), gpu(5, 99)]
    assert host_number(bench.see(report(at(bench.at), *cards)), "host.gpus_hot") == 3
    assert host_number(bench.see(report(at(bench.at), gpu(0, 60))), "host.gpus_hot") == 0


def test_cards_that_can_t_be_read_are_not_cool(bench: Bench) -> None:
    unread = gpu(1, slowdown_margin=BROKEN)
    assert bench.see(report(at(bench.at), gpu(0), unread)).host.readings["host.gpus_hot"] == BROKEN
    assert host_number(bench.see(report(at(bench.at), gpu(0, 88), unread)), "host.gpus_hot") == 1
    lost = report(at(bench.at), gpu(0, lost="gone"))
    silent = report(at(bench.at), gpu(0), state=DriverState.SILENT)
    for seen in (lost, silent, GpuReport(DriverState.ABSENT)):
        assert "host.gpus_hot" not in bench.see(seen).host.readings


# Workloads


def memory(
    bench: Bench, *attributions: Attribution, name: str = "training", cards: int = 2, **more: Any
) -> Optional[dict[str, Reading]]:
    found = {each.subject.id: each for each in subjects(bench, *attributions, cards=cards, **more)}
    return dict(found[name].readings) if name in found else None


def subjects(bench: Bench, *attributions: Attribution, cards: int = 2, **more: Any) -> tuple[SubjectReadings, ...]:
    seen = report(at(bench.at), *(gpu(index) for index in range(cards)))
    return bench.see(seen, attributions=attributions, **more).workloads


def test_a_workload_s_memory_is_the_most_on_any_one_card(bench: Bench) -> None:
    first = attribution(at(100), owner(used=30 * GIB), owner(pid=2, used=20 * GIB), owner("x.service", 3, 70 * GIB))
    found = subjects(bench, first, attribution(at(99), owner(pid=4, used=40 * GIB), index=1))
    assert [(each.subject.kind, each.subject.id, each.label) for each in found] == [
        ("workload", "training", "training"),
        ("workload", "serving", "serving"),
    ]
    assert found[0].readings == {"workload.gpu_memory": value(50 * GIB), "workload.gpu_memory_ratio": value(1.25)}
    assert found[1].readings == {"workload.gpu_memory": value(0)}  # looked at, nobody there, no limit
    assert found[0].taken == at(100)


def test_only_confirmed_processes_count(bench: Bench) -> None:
    empty = attribution(at(100), index=1)
    unsure = attribution(at(100), owner(), confirmed=False)
    assert memory(bench, unsure, empty) is None
    one_sure = replace(attribution(at(100), owner(used=GIB), owner(pid=5, used=GIB)), confirmed=(5,))
    assert (memory(bench, one_sure, empty) or {})["workload.gpu_memory"] == value(GIB)


def test_a_card_that_does_not_say_who_uses_it_now_spoils_the_figure(bench: Bench) -> None:
    mine = attribution(at(100), owner(used=GIB))
    doubtful = attribution(at(100), index=1, unknown="the list is implausible")
    assert (memory(bench, mine, doubtful) or {})["workload.gpu_memory"].problem == "GPU 1: the list is implausible"
    old = attribution(at(80), index=1)
    assert (memory(bench, mine, old) or {})["workload.gpu_memory_ratio"].failed
    assert memory(bench, mine) is None  # never listed yet


def test_cards_that_never_tell_and_lost_ones_are_left_out(bench: Bench) -> None:
    mine = attribution(at(100), owner(used=GIB))
    mute = attribution(at(100), index=1, unknown="the card does not tell who uses it")
    seen = report(at(100), gpu(0), gpu(1), capabilities={uuid(1): {"processes": "unsupported"}})
    found = bench.see(seen, attributions=(mine, mute)).workloads
    assert found[0].readings["workload.gpu_memory"] == value(GIB)
    lost = report(at(100), gpu(0), gpu(1, lost="gone"))
    stale = attribution(at(60), owner(used=70 * GIB), index=1, stale_s=40.0)
    assert bench.see(lost, attributions=(mine, stale)).workloads[0].readings["workload.gpu_memory"] == value(GIB)
    all_mute = report(at(100), gpu(1), capabilities={uuid(1): {"processes": "unsupported"}})
    assert bench.see(all_mute, attributions=(mute,)).workloads == ()


def test_memory_that_the_driver_does_not_tell_is_unsupported(bench: Bench) -> None:
    mine = attribution(at(100), replace(owner(), used_bytes=None))
    assert set((memory(bench, mine, cards=1) or {}).values()) == {UNSUPPORTED}


def test_nothing_is_said_of_workloads_while_the_driver_is_silent(bench: Bench) -> None:
    silent = report(at(bench.at), gpu(0), state=DriverState.SILENT)
    assert bench.see(silent, attributions=(attribution(at(bench.at), owner()),)).workloads == ()


def boxed(kind: str = "docker", unit: Optional[str] = None) -> Owner:
    return replace(owner(used=GIB, kind=kind), unit=unit, container="c" * 64)


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (Container("docker", "c" * 64, "trainer-7", "running"), GIB),
        (Container("docker", "c" * 64, "other", "running"), 0),
        (Container("docker", "d" * 64, "trainer-7", "running"), 0),
        (Container("podman", "c" * 64, "systemd-x", "running", unit="train@x.service"), GIB),
        (Container("docker", "c" * 64, "trainer-7", "running", labels={"io.kubernetes.pod.name": "x"}), 0),
    ],
)
def test_containers_of_a_workload_count_when_they_can_be_told(
    bench: Bench, container: Container, expected: float
) -> None:
    mine = attribution(at(100), boxed(container.engine))
    found = memory(bench, mine, cards=1, containers=ContainerReport(containers=(container,)))
    assert (found or {})["workload.gpu_memory"] == value(expected)


def test_protected_units_belong_to_no_workload() -> None:
    bench = Bench(replace(SETTINGS, protect=("train@llama.service",)))
    mine = attribution(at(100), owner(used=GIB))
    assert (memory(bench, mine, cards=1) or {})["workload.gpu_memory"] == value(0)


def test_nothing_that_was_there_is_changed(bench: Bench) -> None:
    seen = report(at(bench.at), gpu(0, utilisation=5), gpu(1, lost="gone"))
    enriched = bench.see(seen).report
    assert enriched.samples[1] == seen.samples[1]
    assert {**enriched.samples[0].readings, **seen.samples[0].readings} == enriched.samples[0].readings
    assert replace(enriched, samples=()) == replace(seen, samples=())
    added = enriched.samples[0].readings.keys() - seen.samples[0].readings.keys()
    assert all(METRICS[name].derived for name in added)


# Thrashing


@pytest.mark.parametrize(
    ("pressure", "available", "expected"),
    [
        (value(60.0), value(0.05), 60.0),
        (value(60.0), value(0.5), 0.0),
        (value(0.0), value(0.05), 0.0),
        (BROKEN, value(0.05), None),
        (value(60.0), BROKEN, None),
        (UNSUPPORTED, value(0.05), None),
    ],
)
def test_pressure_is_thrashing_only_where_memory_is_scarce(
    bench: Bench, pressure: Reading, available: Reading, expected: Optional[float]
) -> None:
    host = {"host.memory_pressure_full": pressure, "host.memory_available_ratio": available}
    assert bench.see(host=host).host.readings["host.memory_thrashing"].value == expected
    used = value(1 - available.value) if available.value is not None else available
    unit = UnitReadings(
        "train@a.service", "/x", {"unit.memory_pressure_full": pressure, "unit.memory_used_ratio": used}
    )
    (seen,) = bench.see(units=WorkloadReport(at(bench.at), (unit,))).units.units
    assert seen.readings["unit.memory_thrashing"].value == expected


def test_a_unit_without_a_limit_does_not_thrash_at_it(bench: Bench) -> None:
    unit = UnitReadings(
        "train@a.service", "/x", {"unit.memory_pressure_full": value(60.0), "unit.memory_used_ratio": UNSUPPORTED}
    )
    (seen,) = bench.see(units=WorkloadReport(at(bench.at), (unit,))).units.units
    assert seen.readings["unit.memory_thrashing"].unsupported
