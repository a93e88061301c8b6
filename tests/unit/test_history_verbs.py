"""`gpuwatch history` and `gpuwatch event`: sentences and tables for people, data for programs. No daemon runs."""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

import pytest

from gpuwatch.cli import event as event_verb
from gpuwatch.cli import history as history_verb
from gpuwatch.cli.output import width
from gpuwatch.model.errors import StoreError
from gpuwatch.model.event import Event, Scalar
from gpuwatch.model.gpu import DriverState, GpuReport
from gpuwatch.model.reading import value
from tests.fakes.clock import FakeClock
from tests.fakes.recorder import Recorder
from tests.fakes.story import gpu, uuid, xid

Verb = Callable[..., tuple[int, str, str]]


@pytest.fixture
def verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Runs a verb over the history in tmp_path, seen from Shanghai on a terminal of 80 columns."""
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    monkeypatch.setenv("COLUMNS", "80")

    def run(module: ModuleType, *words: str) -> tuple[int, str, str]:
        parser = argparse.ArgumentParser(prog="gpuwatch", add_help=False)
        module.add_parser(parser.add_subparsers(dest="verb"))
        name = module.__name__.rsplit(".", 1)[1]
        try:
            code = module.run(parser.parse_args([name, *words, "--state-dir", str(tmp_path)]))
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty minutes until now; GPU 1 was lost for five of them, gpuwatch was down for two."""
    folder = tmp_path_factory.mktemp("lately")
    clock = FakeClock()
    clock.utc_s = time.time() - 1200
    recorder = Recorder(folder, clock)
    host = {"host.load_1m": value(7), "host.memory_available": value(64 << 30)}
    for second in range(1200):
        if 480 <= second < 600:
            clock.advance(1)
            continue
        if second == 600:
            recorder.start()
        cards = (gpu(0, 60 + second % 3), gpu(1, lost="gone") if 120 <= second < 420 else gpu(1, 70))
        recorder.cycle(*cards, host=host)
    recorder.history.close()
    return folder


@pytest.fixture
def lately(tmp_path: Path, made_once: Path) -> None:
    """A copy of it."""
    shutil.copyfile(made_once / "history.db", tmp_path / "history.db")


def test_was_the_card_there_ten_minutes_ago(lately: None, verb: Verb) -> None:
    code, out, _ = verb(history_verb, "--gpu", "0", "--at", "-5m")
    assert code == 0
    assert re.match(
        r"GPU 0 was there at (\S+ )?\d\d:\d\d:\d\d CST \(5 min ago\)\.\n  62 C, 27 C to slowdown, 650 W", out
    )
    assert uuid(0) in out


def test_it_was_not(lately: None, verb: Verb) -> None:
    code, out, _ = verb(history_verb, "--gpu", uuid(1)[:12], "--at", "15 min ago")
    assert code == 0
    assert re.match(r"GPU 1 was NOT there at .*: the driver had lost it\.\n  Before: there at .*70 C.*\n  After: ", out)


def test_nobody_can_say(lately: None, verb: Verb) -> None:
    code, out, _ = verb(history_verb, "--gpu", "0", "--at", "11 min ago")
    assert code == 1
    assert out.startswith("Nobody can say whether GPU 0 was there at ")
    assert "gpuwatch was not running from " in out and "Before: there at" in out and "After: there at" in out


def test_all_cards_at_once(lately: None, verb: Verb) -> None:
    assert verb(history_verb, "--at", "-1m")[1].startswith("All 2 GPUs were there at ")
    code, out, _ = verb(history_verb, "--at", "-15m")
    assert code == 0
    assert out.startswith("1 of 2 GPUs were there at ") and "GPU 1  NOT there: the driver had lost it" in out
    code, out, _ = verb(history_verb, "--at", "-11m")
    assert code == 1
    assert out.startswith("Nobody can say which GPUs were there at ") and "gpuwatch was not running" in out


def test_a_moment_as_data(lately: None, verb: Verb) -> None:
    _, out, _ = verb(history_verb, "--gpu", "1", "--at", "-15m", "--json")
    said = json.loads(out)
    (card,) = said["gpus"]
    assert said["schema"] == 1 and (card["there"], card["why"], card["uuid"]) == (False, "lost", uuid(1))
    assert card["before"]["values"]["gpu.temperature"] == 70
    _, out, _ = verb(history_verb, "--gpu", "0", "--at", "-11m", "--json")
    card = json.loads(out)["gpus"][0]
    assert card["there"] is None and card["gap"]["reason"] == "gpuwatch_down"
    _, out, _ = verb(history_verb, "--gpu", "0", "--at", "-5m", "--json", "--metric", "power")
    assert json.loads(out)["gpus"][0]["row"]["values"] == {"gpu.power": 650}


def test_a_range_as_a_table_with_its_gaps(lately: None, verb: Verb) -> None:
    code, out, _ = verb(history_verb, "--gpu", "1", "--since", "-21m")
    lines = out.rstrip("\n").split("\n")
    assert code == 0 and len(lines) <= 70
    assert max(map(width, lines)) <= 80
    assert "TIME (CST)" in out and "TO LIMIT" in out
    lost = next(place for place, line in enumerate(lines) if "lost: the driver can't reach it" in line)
    down = next(place for place, line in enumerate(lines) if "gpuwatch was not running" in line)
    assert 0 < lost < down < len(lines) - 10
    assert " to " in lines[lost] and " to " in lines[down]


def test_every_row_of_a_short_range(lately: None, verb: Verb) -> None:
    _, out, _ = verb(history_verb, "--gpu", "0", "--since", "-60s")
    assert 8 <= out.count("650 W") <= 13 and "one line:" not in out


def test_one_metric_of_all_cards_side_by_side(lately: None, verb: Verb) -> None:
    _, out, _ = verb(history_verb, "--since", "-21m")
    assert "GPU 0  GPU 1" in out and "gpu.temperature: GPU core temperature" in out
    assert re.search(r"62 C +-\n", out) and re.search(r"62 C +70 C\n", out)
    code, _, err = verb(history_verb, "--metric", "power,temperature")
    assert code == 2 and "--gpu" in err


def test_the_hosts_metrics_alone_and_beside_a_cards(lately: None, verb: Verb) -> None:
    _, out, _ = verb(history_verb, "--metric", "host.load_1m,host.memory_available", "--since", "-1m")
    assert "LOAD 1M  MEMORY AVAILABLE" in out and re.search(r" 7 +64\.0 GiB\n", out)
    _, out, _ = verb(
        history_verb, "--gpu", "0", "--metric", "temperature", "--metric", "host.load_1m", "--since", "-1m"
    )
    assert "TEMP  LOAD 1M" in out and re.search(r"62 C +7\n", out)


def test_a_range_as_csv_and_json(lately: None, verb: Verb) -> None:
    _, out, _ = verb(history_verb, "--since", "-60s", "--csv", "--metric", "temperature,power")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {row["gpu"] for row in rows} == {"0", "1"} and 16 <= len(rows) <= 26
    assert rows[0]["gpu.power"] == "650" and rows[0]["state"] == "read"
    _, out, _ = verb(history_verb, "--gpu", "1", "--since", "-21m", "--json")
    said = json.loads(out)
    assert len(said["gpus"][0]["rows"]) == 216
    assert [gap["reason"] for gap in said["gaps"]] == ["gpuwatch_down"]
    _, out, _ = verb(history_verb, "--metric", "host.load_1m", "--since", "-60s", "--json")
    assert json.loads(out)["host"][0]["values"] == {"host.load_1m": 7}


def test_a_clock_set_back_is_a_line_of_the_table(tmp_path: Path, verb: Verb) -> None:
    clock = FakeClock()
    clock.utc_s = time.time() - 300
    recorder = Recorder(tmp_path, clock)
    recorder.run(300, gpu(0, 50))
    clock.step_utc(-300)
    recorder.run(300, gpu(0, 80))
    _, out, _ = verb(history_verb, "--gpu", "0", "--since", "-10m")
    assert out.index("50 C") < out.index("the clock was set (-300 s)") < out.index("80 C")
    _, out, _ = verb(history_verb, "--gpu", "0", "--at", "-2m")
    assert "The clock was set back" in out and "80 C" in out


@pytest.mark.parametrize("state", [state for state in DriverState if state is not DriverState.STARTING])
def test_every_state_of_the_driver_has_words(tmp_path: Path, verb: Verb, state: DriverState) -> None:
    clock = FakeClock()
    clock.utc_s = time.time() - 120
    recorder = Recorder(tmp_path, clock)
    recorder.run(60)
    taken = clock.now()
    for _ in range(60):
        recorder.cycle(given=GpuReport(state, "reason", taken=replace(taken, boottime_s=0), samples=(gpu(0),)))
    _, out, _ = verb(history_verb, "--gpu", "0", "--at", "-20s")
    assert out.startswith("Nobody can say") and "driver" in out.split("\n")[0] and "driver_" not in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--at", "10m"), "write '10m ago' or 'in 10m'"),
        (("--at", "soon"), "accepted:"),
        (("--metric", "temprature"), "did you mean gpu.temperature?"),
        (("--metric", "unit.memory"), "has no history"),
        (("--at", "now", "--since", "-1h"), "--at is one moment"),
        (("--since", "now", "--until", "-1h"), "is later than"),
        (("--json", "--csv"), "not allowed with"),
    ],
)
def test_mistakes_are_told_with_exit_2(lately: None, verb: Verb, words: tuple[str, ...], says: str) -> None:
    code, _, err = verb(history_verb, *words)
    assert code == 2 and says in err


def test_no_history_is_a_clear_error(verb: Verb) -> None:
    for module, words in ((history_verb, ("--at", "now")), (event_verb, ("list",))):
        with pytest.raises(StoreError, match="has gpuwatch run on this host"):
            verb(module, *words)


def test_a_range_without_anything_says_so(lately: None, verb: Verb) -> None:
    code, out, _ = verb(history_verb, "--gpu", "0", "--since", "2001-01-01", "--until", "2001-01-02")
    assert code == 0 and "nothing is recorded from 2001-01-01 00:00:00 CST to 2001-01-02 00:00:00 CST" in out


# Events


def _event(clock: FakeClock, kind: str, text: str = "", count: int = 1, **fields: Scalar) -> Event:
    now = clock.now()
    return Event(kind, now, now, "journal", fields, text=text, count=count)


@pytest.fixture
def eventful(tmp_path: Path) -> Recorder:
    """A storm on GPU 1, an OOM kill with a hostile name, a failed unit, a card that only the log knows."""
    clock = FakeClock()
    clock.utc_s = time.time() - 600
    recorder = Recorder(tmp_path, clock)
    line = "NVRM: Xid (PCI:0000:5f:00): 95, Uncontained ECC error"
    for _ in range(29):
        storm = _event(clock, "xid", line, 1000, xid=95, pci="0000:5f:00.0", alert_severity="critical")
        recorder.cycle(events=[storm])
        clock.advance(9)
    evil = "Killed process 7 (\x1b[2Jpy\u202e\n) in memory"
    recorder.cycle(events=[_event(clock, "oom_kill", evil, pid=7, alert_severity="warning")])
    failed = "train@llama.service: Failed with result 'oom-kill'."
    recorder.cycle(events=[_event(clock, "unit_failed", failed, unit="train@llama.service", result="oom-kill")])
    recorder.cycle(events=[xid(79, clock.now(), pci="0000:99:00.0")])
    return recorder


def test_the_list_is_a_table_that_a_person_can_read(eventful: Recorder, verb: Verb) -> None:
    code, out, _ = verb(event_verb, "list")
    lines = out.rstrip("\n").split("\n")
    assert code == 0 and len(lines) == 5
    assert lines[0].split() == ["TIME", "(CST)", "WHERE", "WHAT", "TEXT"]
    assert max(map(width, lines)) <= 80
    assert re.search(r"GPU 1 +xid 95 +29,000 times until \d\d:\d\d:\d\d: ", lines[1])
    assert "train@llama.service  unit failed  Failed with result" in lines[3]
    assert re.search(r"0000:99:00\.0 +xid 79 +[A-Z][a-z]+ ", lines[4])  # what it means: the line says no more


def test_the_whole_line_on_request(eventful: Recorder, verb: Verb) -> None:
    _, out, _ = verb(event_verb, "list", "--full")
    assert "Uncontained ECC error" in out and "Failed with result 'oom-kill'." in out
    assert len(verb(event_verb, "list", "--each")[1].split("\n")) == 34


def test_text_from_outside_can_not_move_the_cursor(eventful: Recorder, verb: Verb) -> None:
    for words in (("list",), ("list", "--full"), ("list", "--json")):
        out = verb(event_verb, *words)[1]
        assert "\x1b" not in out and ("\u202e" not in out or "--json" in words)


def test_colours_on_a_terminal_only(
    eventful: Recorder, verb: Verb, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "\x1b" not in verb(event_verb, "list")[1]
    monkeypatch.setattr("gpuwatch.cli.output.sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out = verb(event_verb, "list")[1]
    assert out.count("\x1b[31m") == 1 and out.count("\x1b[33m") == 1
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in verb(event_verb, "list")[1]


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (("--kind", "oom_kill"), {"oom_kill"}),
        (("--kind", "oom_kill,unit_failed"), {"oom_kill", "unit_failed"}),
        (("--kind", "oom_kill", "--kind", "xid"), {"oom_kill", "xid"}),
        (("--unit", "train@*"), {"unit_failed"}),
        (("--since", "-1h", "--limit", "2"), {"unit_failed", "xid"}),
        (("--until", "2001-01-01"), set()),
        (("--incident", "17"), set()),
    ],
)
def test_filters_of_the_list(eventful: Recorder, verb: Verb, words: tuple[str, ...], kinds: set[str]) -> None:
    said = json.loads(verb(event_verb, "list", "--json", *words)[1])
    assert said["schema"] == 1 and {each["kind"] for each in said["events"]} == kinds


@pytest.mark.parametrize(("card", "codes"), [("1", {95}), (uuid(1), {95}), ("0000:99:00.0", {79}), ("0", set())])
def test_events_of_one_card(eventful: Recorder, verb: Verb, card: str, codes: set[int]) -> None:
    said = json.loads(verb(event_verb, "list", "--json", "--gpu", card)[1])
    assert {each["fields"]["xid"] for each in said["events"]} == codes


def test_an_event_as_data(eventful: Recorder, verb: Verb) -> None:
    said: dict[str, Any] = json.loads(verb(event_verb, "list", "--json", "--gpu", "1", "--limit", "1")[1])["events"][0]
    assert (said["kind"], said["gpu"], said["uuid"], said["count"], said["incident"]) == ("xid", 1, uuid(1), 1000, None)
    assert said["fields"]["alert_severity"] == "critical" and said["text"].endswith("Uncontained ECC error")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", said["time"])


def test_what_is_left_out_is_said(eventful: Recorder, verb: Verb) -> None:
    assert "older ones are not shown: --limit 10" in verb(event_verb, "list", "--limit", "2")[1]
    assert "not shown" not in verb(event_verb, "list")[1]
    assert (
        verb(event_verb, "list", "--kind", "xdi")[1] == "no events; kinds in the history: oom_kill, unit_failed, xid\n"
    )
    assert verb(event_verb, "list", "--limit", "0")[0] == 2
    assert verb(event_verb)[0] == 2


def test_days_and_zones_are_shown_where_they_matter(
    tmp_path: Path, verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    clock = FakeClock()
    clock.utc_s = 1_792_886_400.0  # 2026-10-25 00:00 UTC, an hour before daylight saving ends
    recorder = Recorder(tmp_path, clock)
    recorder.cycle(events=[_event(clock, "unit_failed", "a")])
    clock.advance(7200)
    recorder.cycle(events=[_event(clock, "unit_failed", "b")])
    out = verb(event_verb, "list", "--each")[1]
    assert out.startswith("TIME ") and "10-25 02:00:00 CEST" in out and "10-25 03:00:01 CET" in out
