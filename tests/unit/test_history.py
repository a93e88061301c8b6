"""History on disk: what was there, what it was like, when nobody looked; clocks, crashes and disks that misbehave."""

from __future__ import annotations

import os
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from gpuwatch.model.errors import StoreError
from gpuwatch.model.event import Event, Scalar
from gpuwatch.model.gpu import DriverState, GpuReport
from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import failed, value
from gpuwatch.store import history as recording
from gpuwatch.store import history_schema as schema
from gpuwatch.store.history import History
from gpuwatch.store.history_query import at, read_events, read_history
from gpuwatch.store.history_read import open_history
from gpuwatch.store.history_retention import PAGES, give_back
from gpuwatch.store.history_rows import EventFilter, Gap, Keep
from gpuwatch.system.worker import InlineWorker, ThreadWorker
from tests.fakes.clock import FakeClock
from tests.fakes.recorder import ROOMY, Recorder
from tests.fakes.story import BROKEN, NEXT_BOOT, PCI, gpu, report, uuid, xid

EVER = (0.0, 9e9)
ALL = EventFilter()


def gaps(recorder: Recorder) -> list[Gap]:
    with open_history(recorder.path) as reader:
        return list(reader.gaps(*EVER))


def reasons(recorder: Recorder) -> list[str]:
    return [gap.reason for gap in gaps(recorder)]


def rows(recorder: Recorder, card: str = "0", *metrics: str) -> list[Any]:
    return list(read_history(recorder.path, card, *EVER, metrics or None))


def value_then(recorder: Recorder, seconds_ago: float, metric: str) -> Optional[float]:
    row = recorder.at(seconds_ago).row
    assert row is not None
    return row.values[metric]


# What is kept


def test_a_row_every_five_seconds_with_what_was_read(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(21)
    found = rows(recorder)
    assert [row.at.boottime_s for row in found] == [1000, 1005, 1010, 1015, 1020]
    assert found[0].at == recorder.clock.now().__class__(found[0].at.boot_id, 1000, found[0].at.utc_s)
    assert found[0].values["gpu.temperature"] == 60 and found[0].values["gpu.slowdown_margin"] == 29
    assert (found[0].state, found[0].index) == ("read", 0)
    assert rows(recorder, "1", "gpu.power")[0].values == {"gpu.power": 650}


def test_a_row_holds_the_worst_of_its_seconds(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    for second in range(11):
        recorder.cycle(gpu(0, 91 if second == 7 else 60, utilisation=100 if second == 7 else 0))
    recorder.cycle(gpu(0, lost="for a second"))
    recorder.run(10, gpu(0, 60))
    found = rows(recorder)
    assert [row.values["gpu.temperature"] for row in found] == [60, 60, 91, 60, 60]
    assert [row.values["gpu.slowdown_margin"] for row in found] == [29, 29, -2, 29, 29]
    assert found[2].values["gpu.utilisation"] == 20
    assert [row.state for row in found] == ["read", "read", "read", "lost", "read"]


def test_a_value_that_was_not_read_is_none_never_zero(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.cycle(gpu(0, temperature=50, power=failed("no"), fan=value(float("nan"))))
    values = rows(recorder)[0].values
    assert (values["gpu.temperature"], values["gpu.power"], values["gpu.fan"]) == (50, None, None)
    assert values["gpu.memory_temperature"] is None


def test_what_changes_seldom_is_written_when_it_changes_and_known_between(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    for errors in (0, 0, 7, 7):
        told = {"gpu.ecc_uncorrected": value(errors)}
        card = replace(gpu(0, 60), slow=told, slow_taken=recorder.clock.now())
        recorder.run(60, card)
    connection = sqlite3.connect(recorder.path)
    assert connection.execute("SELECT count(*) FROM slow").fetchone()[0] == 2
    connection.close()
    assert value_then(recorder, 150, "gpu.ecc_uncorrected") == 0
    assert value_then(recorder, 10, "gpu.ecc_uncorrected") == 7
    found = [row.values["gpu.ecc_uncorrected"] for row in rows(recorder, "0", "gpu.ecc_uncorrected")]
    assert found == [0] * 24 + [7] * 24


def test_the_host_has_a_row_a_tick_of_its_own_also_without_a_driver(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    host = {"host.memory_available": value(64 << 30), "host.load_1m": failed("no")}
    for _ in range(6):
        recorder.cycle(host=host, given=GpuReport(DriverState.ABSENT))
    with open_history(recorder.path) as reader:
        found = list(reader.rows(None, *EVER, ("host.memory_available", "host.load_1m")))
        assert reader.gpus() == ()
    assert [row.values for row in found] == [{"host.memory_available": 64 << 30, "host.load_1m": None}] * 2
    assert {row.state for row in found} == {"absent"}


def test_the_same_answer_of_the_driver_is_not_written_twice(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    same = report(recorder.clock.now(), gpu(0, 60))
    for _ in range(7):
        recorder.cycle(given=same)
    assert [row.state for row in rows(recorder)] == ["read", "late"]


def test_the_same_answer_does_not_count_twice_in_a_row(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    busy = report(recorder.clock.now(), gpu(0, utilisation=100))
    recorder.cycle(given=busy)
    recorder.cycle(given=busy)
    recorder.run(4, gpu(0, utilisation=0))
    assert [row.values["gpu.utilisation"] for row in rows(recorder)] == [100, 0]


def test_nothing_is_written_while_the_driver_is_asked_for_the_first_time(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.silent(3, DriverState.STARTING)
    assert not os.path.exists(recorder.path)
    recorder.cycle()
    assert [row.state for row in rows(recorder)] == ["read"]


def test_the_columns_of_the_tables_are_the_ones_that_are_declared(tmp_path: Path) -> None:
    Recorder(tmp_path).cycle()
    connection = sqlite3.connect(tmp_path / "history.db")
    for table, fixed, columns, insert in (
        ("ticks", 4, schema.HOST_COLUMNS, schema.INSERT_TICK),
        ("samples", 4, schema.GPU_COLUMNS, schema.INSERT_SAMPLE),
        ("slow", 2, schema.SLOW_COLUMNS, schema.INSERT_SLOW),
    ):
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        assert names[fixed:] == [column.name for column in columns]
        written = insert[insert.index("(") + 1 : insert.index(")")].replace("\n", " ").split(",")
        assert [name.strip() for name in written] == names
        assert insert.count("?") == len(names)
        assert all(column.metric in METRICS and column.unit is not None for column in columns)
    assert connection.execute("PRAGMA user_version").fetchone()[0] == schema.SCHEMA
    connection.close()


def test_an_older_schema_is_brought_up_to_date_and_keeps_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(5)
    recorder.history.close()
    newer = (*schema.MIGRATIONS, ("ALTER TABLE gpus ADD COLUMN serial TEXT",))
    monkeypatch.setattr(schema, "MIGRATIONS", newer)
    monkeypatch.setattr(schema, "SCHEMA", len(newer))
    monkeypatch.setattr(schema, "SET_SCHEMA", (*schema.SET_SCHEMA, f"PRAGMA user_version={len(newer)}"))
    recorder.start()
    recorder.run(6)
    assert len(rows(recorder)) == 3
    connection = sqlite3.connect(recorder.path)
    assert connection.execute("PRAGMA user_version").fetchone()[0] == len(newer)
    assert "serial" in [row[1] for row in connection.execute("PRAGMA table_info(gpus)")]
    connection.close()


def test_the_file_is_for_root_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Recorder(tmp_path).cycle()
    finally:
        os.umask(before)
    for name in os.listdir(tmp_path):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0


# Was the card there


def test_it_was_there_and_how_old_the_row_is(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(1200)
    known = recorder.at(602)
    assert (known.there, known.why, known.twice) == (True, "read", False)
    assert known.age_s == 0 and known.row is not None
    assert 0 <= known.row.at.utc_s - known.asked_utc_s < 5
    assert known.row.values["gpu.temperature"] == 60
    assert known.gpu.uuid == uuid(0)


def test_it_was_lost_then_and_is_back_now(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(60)
    recorder.run(60, gpu(0, lost="NVML error 15"), gpu(1, 61))
    recorder.run(60)
    known = recorder.at(90)
    assert (known.there, known.why) == (False, "lost")
    assert known.before is not None and known.after is not None
    assert known.before.at.boottime_s == 1055 and known.after.at.boottime_s == 1125
    assert recorder.at(90, "1").there is True
    assert recorder.at(1).there is True


def test_a_card_that_the_driver_does_not_list_was_not_there(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(60)
    recorder.run(60, gpu(1, 61))
    assert (recorder.at(30).there, recorder.at(30).why) == (False, "not_listed")


def test_a_card_without_any_reading_is_unknown(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(60, replace(gpu(0, 60), readings=dict.fromkeys(gpu(0, 60).readings, BROKEN)))
    assert (recorder.at(30).there, recorder.at(30).why) == (None, "unreadable")


def test_a_silent_driver_says_nothing_about_its_cards(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(60)
    recorder.silent(60)
    recorder.run(60)
    known = recorder.at(90)
    assert (known.there, known.why) == (None, "driver_silent")
    assert known.gap is not None and known.gap.reason == "driver_silent" and known.gap.detail == "no answer"
    assert known.gap.until_utc_s is not None and 50 <= known.gap.until_utc_s - known.gap.from_utc_s <= 60
    assert recorder.at(150).there is True and recorder.at(1).there is True


def test_a_driver_is_silent_until_the_row_in_which_it_speaks_again(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(60)
    recorder.silent(60)
    recorder.run(61)
    spoke = next(row.at.boottime_s for row in rows(recorder) if row.at.boottime_s > 1100 and row.state == "read")
    assert recorder.at(recorder.clock.boottime_s - spoke + 2).why == "driver_silent"
    assert recorder.at(recorder.clock.boottime_s - spoke).there is True


def test_a_silence_that_a_killed_daemon_left_open_ends_with_its_last_row(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(60)
    recorder.silent(60)
    recorder.clock.advance(600)
    recorder.start()
    recorder.run(60)
    silence, down = gaps(recorder)
    assert (silence.reason, down.reason) == ("driver_silent", "gpuwatch_down")
    assert silence.until_utc_s == down.from_utc_s


def test_the_daemon_was_down(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(60)
    recorder.clock.advance(600)
    recorder.start()
    recorder.run(60)
    known = recorder.at(360)
    assert (known.there, known.why) == (None, "gpuwatch_down")
    assert known.before is not None and known.before.at.boottime_s == 1055
    assert known.after is not None and known.after.at.boottime_s == 1660
    assert reasons(recorder) == ["gpuwatch_down"]


def test_a_restart_within_two_periods_is_no_gap(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(60)
    recorder.clock.advance(8)
    recorder.start()
    recorder.run(10)
    assert reasons(recorder) == []


def test_two_boots(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(60)
    recorder.clock.reboot(NEXT_BOOT)
    recorder.start()
    recorder.run(60)
    assert reasons(recorder) == ["host_down"]
    known = recorder.at(90)
    assert (known.there, known.why) == (None, "host_down")
    assert [row.at.boot_id for row in rows(recorder)] == ["1" * 32] * 12 + [NEXT_BOOT] * 12
    newest = recorder.at(1).row
    assert newest is not None and newest.at.boot_id == NEXT_BOOT


def test_a_machine_that_slept_was_not_looked_at(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(60)
    recorder.clock.advance(3600)
    recorder.run(60)
    assert (recorder.at(600).there, recorder.at(600).why) == (None, "not_looking")


def test_a_moment_is_answered_by_the_row_that_covers_it(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(58)
    recorder.cycle(gpu(0, lost="gone"), gpu(1, 61))  # second 1058, in the row of 1060
    recorder.run(42)
    told = {second: recorder.at(recorder.clock.boottime_s - second).there for second in range(1050, 1070)}
    assert told == {second: not 1056 <= second <= 1060 for second in range(1050, 1070)}


def test_the_newest_row_speaks_for_a_few_seconds_more(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(61)
    recorder.clock.advance(5)
    known = recorder.at(0)
    assert known.there is True and known.age_s == pytest.approx(6)
    recorder.clock.advance(20)
    assert recorder.at(0).why == "after_history"


def test_before_the_first_row_and_after_the_last(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(60)
    recorder.clock.advance(300)
    assert (recorder.at(3600).there, recorder.at(3600).why) == (None, "before_history")
    known = recorder.at(100)
    assert (known.there, known.why) == (None, "after_history")
    assert known.before is not None and known.after is None


def test_the_clock_was_set_back_an_hour_and_the_answer_is_about_the_second_time(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(3600, gpu(0, 50), step_s=5)
    recorder.clock.step_utc(-3600)
    recorder.run(1800, gpu(0, 80), step_s=5)
    assert reasons(recorder) == ["clock_set"]
    assert gaps(recorder)[0].detail == "-3600 s"
    known = recorder.at(900)
    assert known.there is True and known.twice and known.row is not None
    assert known.row.values["gpu.temperature"] == 80
    temperatures = [row.values["gpu.temperature"] for row in rows(recorder)]
    assert temperatures == [50] * 720 + [80] * 360  # in the order in which it was
    assert len({row.at.utc_s for row in rows(recorder)}) == 1080
    with open_history(recorder.path) as reader:
        ups = [row.at.boottime_s for row in reader.rows(None, *EVER)]
    assert ups == sorted(ups)
    once = recorder.at(-900)
    assert once.there is True and not once.twice and once.row is not None
    assert once.row.values["gpu.temperature"] == 50


def test_the_clock_was_set_forward(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(60)
    recorder.clock.step_utc(+600)
    recorder.run(60)
    assert reasons(recorder) == ["clock_set"]
    assert recorder.at(300).there is None  # nobody lived through that time
    assert recorder.at(30).there is True


def test_a_time_pass_every_minute_is_no_gap(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, period_s=60)
    for _ in range(10):
        recorder.start()
        recorder.cycle()
        recorder.clock.advance(59)
    assert reasons(recorder) == []
    assert recorder.at(150).there is True


def test_an_index_is_that_of_the_moment(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(60, gpu(0, 60), gpu(1, 61))
    recorder.clock.advance(4000)
    moved = replace(gpu(1, 71), index=0)
    recorder.run(60, moved)
    assert recorder.at(4090, "0").gpu.uuid == uuid(0)
    assert recorder.at(30, "0").gpu.uuid == uuid(1)


@pytest.mark.parametrize("text", ["0", uuid(0), uuid(0)[:12], uuid(0)[4:12], uuid(0).lower(), "0000:5e:00.0", "5E:00"])
def test_a_gpu_by_any_of_its_names(tmp_path: Path, text: str) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(6)
    assert recorder.at(1, text).gpu.uuid == uuid(0)


@pytest.mark.parametrize("text", ["7", "GPU-", "GPU-nope", "0000:99:00.0", "", "0;DROP", "9" * 40])
def test_no_such_gpu_says_which_there_are(tmp_path: Path, text: str) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(6)
    with pytest.raises(StoreError, match=r"GPU of this history; known: 0 \(GPU-00000000"):
        recorder.at(1, text)


# Events


def event(recorder: Recorder, kind: str = "unit_failed", text: str = "", count: int = 1, **fields: Scalar) -> Event:
    now = recorder.clock.now()
    return Event(kind, now, now, "journal", fields, text=text, count=count)


def test_events_come_back_as_they_were(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    given = event(recorder, "oom_kill", "Killed process 4242", 3, pid=4242, scope=None, cgroup="a\u2028b", ok=True)
    recorder.cycle(events=[given])
    (noted,) = read_events(recorder.path, ALL)
    assert noted.event == given and noted.incident is None


def test_an_event_is_on_the_card_that_its_address_names(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.cycle(events=[xid(79, recorder.clock.now())])
    assert read_events(recorder.path, ALL)[0].event.uuid == uuid(0)


def test_s8_an_event_that_is_read_again_after_a_crash_is_one(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    first = event(recorder, text="the same", count=2)
    recorder.cycle(events=[first])
    recorder.start()
    recorder.cycle(events=[replace(first, count=5, cursor="another batch")])
    (noted,) = read_events(recorder.path, ALL)
    assert noted.event.count == 5


def test_an_event_knows_its_incident(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    now = recorder.clock.now()
    recorder.history.record(report(now, gpu(0)), {}, [xid(79, now)], now, lambda each: 17)
    assert read_events(recorder.path, EventFilter(incident=17))[0].incident == 17
    assert read_events(recorder.path, EventFilter(incident=18)) == ()


@pytest.mark.parametrize(
    ("wanted", "kinds"),
    [
        (ALL, ["xid", "unit_failed", "oom_kill", "xid"]),
        (EventFilter(kinds=("xid",)), ["xid", "xid"]),
        (EventFilter(kinds=("oom_kill", "unit_failed")), ["unit_failed", "oom_kill"]),
        (EventFilter(kinds=("xi", "kill")), []),
        (EventFilter(uuid=uuid(0)), ["xid"]),
        (EventFilter(uuid=uuid(7), pci="0000:99:00.0"), ["xid"]),
        (EventFilter(unit="train@*"), ["unit_failed"]),
        (EventFilter(unit="train@"), []),
        (EventFilter(most=2), ["oom_kill", "xid"]),
        (EventFilter(kinds=("xid",), most=1), ["xid"]),
    ],
)
def test_filters(tmp_path: Path, wanted: EventFilter, kinds: list[str]) -> None:
    recorder = Recorder(tmp_path)
    recorder.cycle(events=[xid(79, recorder.clock.now())])
    recorder.cycle(events=[event(recorder, unit="train@llama.service")])
    recorder.cycle(events=[event(recorder, "oom_kill", container_name="trainer-7")])
    recorder.cycle(events=[xid(13, recorder.clock.now(), pci="0000:99:00.0")])
    assert [noted.event.kind for noted in read_events(recorder.path, wanted)] == kinds


def test_events_by_time_and_in_the_order_in_which_they_were(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.cycle(events=[event(recorder, text="1")])
    recorder.clock.advance(100)
    recorder.cycle(events=[event(recorder, text="2")])
    recorder.clock.step_utc(-3600)
    recorder.cycle(events=[event(recorder, text="3")])
    recorder.clock.step_utc(7200)
    recorder.clock.reboot(NEXT_BOOT)
    recorder.cycle(events=[event(recorder, text="4")])
    assert [noted.event.text for noted in read_events(recorder.path, ALL)] == ["1", "2", "3", "4"]
    last = recorder.clock.now().utc_s
    assert [n.event.text for n in read_events(recorder.path, EventFilter(since_utc_s=last - 60))] == ["4"]
    assert [n.event.text for n in read_events(recorder.path, EventFilter(until_utc_s=last - 60))] == ["1", "2", "3"]


def test_a_flood_is_summed_up_not_written_out(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    for second in range(3):
        flood = [event(recorder, "cuda_error", f"line {second}-{number}", 2) for number in range(1000)]
        recorder.cycle(events=flood)
    recorder.run(60)
    found = read_events(recorder.path, EventFilter(most=10_000))
    assert len(found) == recording.EVENTS_A_MINUTE + 1
    assert sum(noted.event.count for noted in found) == 6000
    summed = [noted.event for noted in found if noted.event.fields.get("summed_up")]
    assert [each.count for each in summed] == [6000 - 2 * recording.EVENTS_A_MINUTE]


def test_what_was_summed_up_is_not_lost_at_a_stop(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.cycle(events=[event(recorder, text=f"{number}") for number in range(700)])
    recorder.history.close()
    assert sum(noted.event.count for noted in read_events(recorder.path, EventFilter(most=10_000))) == 700


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "'); DROP TABLE events; --", "\x1b[2J", "x" * 100_000])
def test_no_text_breaks_the_file(tmp_path: Path, text: str) -> None:
    recorder = Recorder(tmp_path)
    recorder.cycle(events=[event(recorder, text=text, process=text, unit=text)])
    assert recorder.history.problem == ""
    assert len(read_events(recorder.path, ALL)) == 1


# Retention


def test_old_rows_become_one_a_minute_with_the_worst_of_it(tmp_path: Path) -> None:
    keep = Keep(full_s=3600, all_s=86_400, free_bytes=0)
    recorder = Recorder(tmp_path, keep=keep)
    recorder.clock.boottime_s, recorder.clock.utc_s = 1020.0, recorder.clock.utc_s + 20
    for tick in range(3 * 720):
        hot = tick == 14  # within the second minute, not on its last tick
        recorder.cycle(gpu(0, 88 if hot else 60, utilisation=100 if tick % 2 else 0), gpu(1, 61))
        recorder.clock.advance(4)
    found = rows(recorder)
    full = [row for row in found if row.at.boottime_s >= 1020 + 2 * 3600]
    assert len(full) == 720
    thin = [row for row in found if row.at.boottime_s <= 1020 + 3600 - 300]
    assert len(thin) <= 62
    second = next(row for row in thin if 1080 <= row.at.boottime_s < 1140)
    assert second.values["gpu.temperature"] == 88 and second.values["gpu.slowdown_margin"] == 1
    assert second.values["gpu.utilisation"] == pytest.approx(50, abs=10)
    assert reasons(recorder) == []
    assert recorder.at(10_700).there is True


def test_a_minute_in_which_the_card_was_lost_stays_one(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, keep=Keep(full_s=600, free_bytes=0))
    recorder.run(300)
    recorder.run(10, gpu(0, lost="gone"), gpu(1, 61))
    recorder.run(10, gpu(1, 61))
    recorder.run(2 * 3600, step_s=5)
    states = [row.state for row in rows(recorder) if row.at.boottime_s < 1400]
    assert states.count("lost") == 1 and set(states) == {"read", "lost"}
    assert all(row.state == "read" for row in rows(recorder, "1"))


def test_a_minute_in_which_the_card_was_not_listed_for_a_while_is_no_good_one(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, keep=Keep(full_s=600, free_bytes=0))
    recorder.run(300)
    recorder.run(10, gpu(1, 61))
    recorder.run(2 * 3600, step_s=5)
    states = [row.state for row in rows(recorder) if row.at.boottime_s < 1500]
    assert states.count("lost") == 1 and len(states) < 15


def test_room_that_is_free_goes_back_to_the_file_system(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(3600, step_s=5)
    recorder.history.close()
    connection = sqlite3.connect(recorder.path, isolation_level=None)
    connection.execute("DELETE FROM samples")
    free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    assert free < 4 * PAGES
    give_back(connection)  # the next hours will need that little
    connection.execute("CREATE TABLE ballast (x BLOB)")
    connection.execute("INSERT INTO ballast VALUES (zeroblob(8000000))")
    connection.execute("DROP TABLE ballast")
    grown = connection.execute("PRAGMA page_count").fetchone()[0]
    give_back(connection)
    assert grown - connection.execute("PRAGMA page_count").fetchone()[0] == PAGES
    connection.close()


def test_an_hour_that_came_twice_is_thinned_as_two(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, keep=Keep(full_s=1200, free_bytes=0))
    recorder.run(1200, gpu(0, 50))
    recorder.clock.step_utc(-1200)
    recorder.run(1200, gpu(0, 80))
    recorder.run(3 * 3600, gpu(0, 60), step_s=5)
    early = [row.values["gpu.temperature"] for row in rows(recorder) if row.at.boottime_s < 3400]
    assert set(early) == {50, 60, 80} or set(early) == {50, 80}
    assert len(early) < 60


def test_what_is_too_old_goes_with_everything_that_belongs_to_it(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, keep=Keep(full_s=600, all_s=1800, free_bytes=0))
    recorder.cycle(events=[event(recorder, text="old")])
    recorder.silent(30)
    recorder.run(3 * 3600, step_s=5)
    recorder.cycle(events=[event(recorder, text="new")])
    oldest = rows(recorder)[0].at
    assert recorder.clock.boottime_s - oldest.boottime_s < 3600 + 1800 + 120
    assert [noted.event.text for noted in read_events(recorder.path, ALL)] == ["new"]
    assert reasons(recorder) == []


def test_over_its_size_the_oldest_goes(tmp_path: Path) -> None:
    keep = Keep(full_s=1e9, all_s=1e9, most_bytes=400_000, free_bytes=0)
    recorder = Recorder(tmp_path, keep=keep)
    cards = [gpu(index, 60 + index, power=650.123) for index in range(8)]
    recorder.run(3 * 3600, *cards, step_s=5)
    recorder.history.close()
    assert os.path.getsize(recorder.path) < 1_600_000
    found = rows(recorder)
    assert 60 < len(found) < 2000 and found[-1].at.boottime_s >= recorder.clock.boottime_s - 6


def test_a_clock_that_is_wrong_by_years_for_a_while_deletes_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, keep=Keep(full_s=7200, all_s=10_000, free_bytes=0))
    recorder.run(7000, step_s=5)
    before = len(rows(recorder))
    recorder.clock.step_utc(10 * 365 * 86_400)
    recorder.run(1800, step_s=5)
    recorder.clock.step_utc(-10 * 365 * 86_400)
    recorder.run(60)
    assert len(rows(recorder)) == before + 1800 // 5 + 12
    assert recorder.at(1900).there is True


def test_a_failing_retention_costs_no_new_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise sqlite3.OperationalError("disk I/O error")

    recorder = Recorder(tmp_path)
    monkeypatch.setattr("gpuwatch.store.history_file.tidy", broken)
    recorder.run(60)
    assert len(rows(recorder)) == 12
    assert "disk I/O error" in recorder.history.problem
    monkeypatch.undo()
    recorder.run(400)
    assert recorder.history.problem == ""


# Disks


class Flaky:
    """A worker whose jobs fail as on a full disk, or wait at a gate as on one that hangs."""

    def __init__(self) -> None:
        self._inline, self._thread = InlineWorker(), ThreadWorker("flaky")
        self.full = False
        self.hangs: Optional[threading.Event] = None

    def submit(self, job: Callable[[], Any]) -> Any:
        if self.hangs is not None:
            gate = self.hangs
            return self._thread.submit(lambda: gate.wait(20) and job())
        return self._inline.submit(self._fail if self.full else job)

    def wait(self, task: Any, timeout_s: float) -> bool:
        return True if task.done() else self._thread.wait(task, min(timeout_s, 0.2))

    def _fail(self) -> Any:
        raise StoreError("history.db: database or disk is full")


def test_a_full_disk_for_a_minute_loses_nothing(tmp_path: Path) -> None:
    worker = Flaky()
    recorder = Recorder(tmp_path, worker=worker)
    recorder.run(60)
    worker.full = True
    recorder.cycle(events=[event(recorder, text="meanwhile")])
    recorder.run(60)
    assert "disk is full" in recorder.history.problem
    worker.full = False
    recorder.run(120)
    assert recorder.history.problem == ""
    assert reasons(recorder) == []
    assert len(rows(recorder)) == 49
    assert [noted.event.text for noted in read_events(recorder.path, ALL)] == ["meanwhile"]


def test_a_full_disk_for_long_is_a_gap_with_its_reason(tmp_path: Path) -> None:
    worker = Flaky()
    recorder = Recorder(tmp_path, worker=worker)
    recorder.run(60)
    worker.full = True
    recorder.run(3600)
    worker.full = False
    recorder.run(120)
    (gap,) = gaps(recorder)
    assert gap.reason == "not_written" and "disk is full" in gap.detail
    assert gap.until_utc_s is not None
    assert 3600 - 5 * recording.MOST_TICKS - 60 < gap.until_utc_s - gap.from_utc_s < 3600
    assert (recorder.at(3000).there, recorder.at(3000).why) == (None, "not_written")


def test_s7_a_hanging_disk_never_stops_the_cycle(tmp_path: Path) -> None:
    worker = Flaky()
    recorder = Recorder(tmp_path, worker=worker)
    recorder.run(60)
    worker.hangs = threading.Event()
    recorder.run(1200)  # no call waits, or this would not end
    recorder.history.close(wait_s=0.1)
    worker.hangs.set()


def test_what_waits_for_the_disk_is_bounded(tmp_path: Path) -> None:
    worker = Flaky()
    recorder = Recorder(tmp_path, worker=worker)
    worker.full = True
    for _ in range(100):
        recorder.cycle(events=[event(recorder, text=f"{number}") for number in range(50)])
        recorder.clock.advance(60)
    assert len(recorder.history._ticks) <= recording.MOST_TICKS
    assert len(recorder.history._events) <= recording.MOST_EVENTS


def test_with_little_space_left_state_and_evidence_come_first(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, keep=Keep(free_bytes=1 << 60))
    recorder.run(10)
    assert "are free; that is left to state and evidence" in recorder.history.problem
    assert not os.path.exists(recorder.path)


def test_a_directory_that_is_not_there_is_a_problem_in_words(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "no")
    recorder.run(10)
    assert "No such file or directory" in recorder.history.problem


@pytest.mark.parametrize("damage", [b"no database at all, but long enough to be looked at" * 100, b""])
def test_a_broken_file_is_put_aside_and_a_new_one_begun(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "history.db").write_bytes(damage)
    recorder = Recorder(tmp_path)
    recorder.run(30)
    assert recorder.history.problem == ""
    assert recorder.at(5).there is True
    if damage:
        assert (tmp_path / "history.db.broken").read_bytes() == damage
        (gap,) = gaps(recorder)
        assert gap.reason == "put_aside" and "history.db.broken" in gap.detail


def test_a_file_that_breaks_while_it_is_used_is_put_aside_too(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(600)
    recorder.history.close()
    with open(recorder.path, "r+b") as file:  # beyond the first page: it opens, and fails later
        file.seek(4096)
        file.write(b"\xff" * 40_000)
    recorder.start()
    recorder.run(600)
    assert recorder.history.problem == ""
    assert "put_aside" in reasons(recorder)
    assert recorder.at(5).there is True


def test_a_newer_schema_is_put_aside_not_written(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(6)
    recorder.history.close()
    connection = sqlite3.connect(recorder.path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StoreError, match="newer gpuwatch"):
        recorder.at(1)
    recorder.start()
    recorder.run(30)
    assert recorder.at(1).there is True
    assert "newer gpuwatch" in gaps(recorder)[0].detail


def test_a_file_that_somebody_removed_is_made_anew(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(30)
    for name in os.listdir(tmp_path):
        os.unlink(tmp_path / name)
    recorder.run(30)
    assert recorder.at(1).there is True


def test_another_process_reads_while_the_daemon_writes(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.run(60)
    child = os.fork()
    if child == 0:
        os._exit(0 if len(read_history(recorder.path, "0", *EVER)) == 12 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_nothing_there_yet_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"history\.db: nothing there; has gpuwatch run on this host\?"):
        at(str(tmp_path / "history.db"), "0", 0)


def test_the_thread_of_a_worker_writes_it_as_well(tmp_path: Path) -> None:
    clock = FakeClock()
    history = History(str(tmp_path / "history.db"), ThreadWorker("historian"), clock, keep=ROOMY)
    for _ in range(30):
        now = clock.now()
        history.record(report(now, gpu(0)), {}, [xid(13, now)], now)
        clock.advance(1)
    history.close(5.0)
    assert history.problem == ""
    assert len(read_history(str(tmp_path / "history.db"), PCI, *EVER)) == 6
    assert len(read_events(str(tmp_path / "history.db"), ALL)) == 30
