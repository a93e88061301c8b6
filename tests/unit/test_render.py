"""Messages: what people read, in both languages, whatever names and numbers come in."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as effort
from hypothesis import strategies as some

from gpuwatch.alerts.judgement import chosen, considered, doubts
from gpuwatch.alerts.render import MOST_LINE, MOST_LINES, render, render_test
from gpuwatch.alerts.words import Words, columns, foreign
from gpuwatch.catalog.texts import TEXTS
from gpuwatch.model.event import Scalar
from gpuwatch.model.incident import Cause, Subject
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import IntentState
from gpuwatch.model.metric import METRICS
from gpuwatch.model.notification import Message
from gpuwatch.model.rule import Severity
from gpuwatch.model.settings import Workload
from tests.unit.alert_cases import (
    BUNDLE,
    CASES,
    CHOICE,
    CST,
    DOUBT,
    HEAT,
    MIDNIGHT_S,
    XID,
    XID_13,
    Case,
    at,
    incident,
    over,
    settings,
    stop,
)

GOLDEN = Path(__file__).parent / "golden" / "messages.txt"


def golden() -> dict[str, str]:
    pieces = re.split(r"^## ", GOLDEN.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {head: body.strip("\n") for head, _, body in (piece.partition("\n") for piece in pieces)}


def whole(message: Message) -> str:
    return "\n".join([message.title, *message.lines])


def case(name: str) -> Case:
    return next(each for each in CASES if each.name == name)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", [each.name for each in CASES])
def test_message_is_as_agreed(name: str, language: str) -> None:
    assert whole(case(name).message(language)) == golden()[f"{name} ({language})"]


def test_golden_file_holds_nothing_else() -> None:
    assert set(golden()) == {f"{each.name} ({language})" for each in CASES for language in ("en", "zh")}


@pytest.mark.parametrize("each", CASES, ids=lambda each: each.name)
def test_lock_screen_shows_host_card_and_event(each: Case) -> None:
    assert columns(each.message("zh").title) <= 44  # 22 Chinese characters
    assert columns(each.message("en").title) <= 60


@pytest.mark.parametrize("each", CASES, ids=lambda each: each.name)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_simulated_is_the_first_word(each: Case, language: str) -> None:
    message = each.message(language, simulated=True)
    assert message.title == f"SIMULATED {each.message(language).title}"


def test_observe_mode_says_what_would_have_been() -> None:
    message = case("hot, would have").message("en")
    assert "Observe mode: would have stopped train@llama.service at 13:47:12 CST" in message.lines
    assert any(line.startswith("Nothing was done") for line in message.lines)
    assert message.title.startswith("[act now]")
    assert message.urgent


@pytest.mark.parametrize(
    "name, urgent",
    [
        ("hot, stopped", False),
        ("hot, stopping", False),
        ("hot, refused", True),
        ("hot, stop failed", True),
        ("hot, stop unclear", True),
        ("hot, budget spent", True),
        ("hot, left alone", False),
        ("hot, over after a stop", False),
    ],
)
def test_urgent_when_a_person_must_act(name: str, urgent: bool) -> None:
    assert case(name).message("en").urgent is urgent


def test_unknown_reason_falls_back_to_the_detail() -> None:
    refused = stop(IntentState.REFUSED, "brand_new_reason", "because of the moon")
    message = replace(case("hot, refused"), intents=(refused,)).message("zh")
    assert "未停 train@llama.service：because of the moon" in message.lines


def test_of_many_tries_on_a_target_the_last_one_is_told() -> None:
    tries = (stop(IntentState.WITHDRAWN, "replaced"), stop(IntentState.VERIFIED, id="a17-2"))
    message = replace(case("hot, stopped"), intents=tries).message("en")
    assert message.title.endswith("train@llama stopped")
    assert "train@llama.service stopped, verified" in message.lines


def test_a_job_that_was_stopped_does_not_run_on() -> None:
    lines = case("throttle, then stopped").message("en").lines
    assert not any("runs on" in line or "Still hot" in line for line in lines)


@pytest.mark.parametrize("changes", [{"allow": ("throttle",)}, {"allow": ()}])
def test_no_stop_is_announced_that_the_workload_does_not_allow(changes: dict[str, Any]) -> None:
    told = case("throttle, in force")
    own = settings(workloads=(Workload("training", **changes),))
    message = render(told.incident, "update", told.intents, own, at("13:45:11"), CST, False, told.facts)
    assert not any("the job is stopped" in line or "veto" in line for line in message.lines)


def test_a_forecast_began_when_it_was_made() -> None:
    assert case("gpu.memory_full_in").message("en").lines[0] == "Since 13:47:05 CST"


def test_who_was_considered_is_told_with_the_verdict() -> None:
    words = Words("en", CST, at("13:47:12"))
    assert considered(words, CHOICE) == [
        "train@b.service: it uses less (1.0 GiB)",
        "serve.service: its priority is higher (40.0 GiB)",
        "mps.service: it serves the programs of others (MPS)",
    ]
    assert chosen(words, {**CHOICE, "victim_because": "only", "victim_bytes": 0}) == (
        "train@llama.service chosen: the only one that may be stopped"
    )
    assert (chosen(words, {}), considered(words, {}), doubts(words, {})) == (None, [], [])


def test_a_unit_that_nobody_should_paste_is_in_no_advice() -> None:
    facts: dict[str, Scalar] = {"kind": "unit_oom", "count": 1}
    about = incident(facts, subject=Subject("unit", "a b;reboot.service"), label="a b;reboot.service")
    message = render(about, "firing", (), settings(), at("13:47:12"), CST, False, {})
    assert "Next: systemctl status UNIT; raise its MemoryMax or use less memory" in message.lines


def test_other_incidents_actions_are_not_told() -> None:
    other = replace(stop(IntentState.VERIFIED), incident=18)
    assert "llama" not in whole(replace(case("hot, stopped"), intents=(other,)).message("en"))


def test_a_lost_card_goes_by_the_xid_that_told_it() -> None:
    def rule(name: str, facts: dict[str, Scalar]) -> Cause:
        return Cause(name, Severity.CRITICAL, at("13:47:06"), facts)

    lost = incident({"metric": "gpu.lost", "value": 1.0}, "gpu-lost")
    others = (rule("xid-application", XID_13), rule("xid-host-restart", XID))
    message = render(
        replace(lost, causes=(*lost.causes, *others)), "firing", (), settings(), at("13:47:12"), CST, False, {}
    )
    assert message.title.endswith("lost (Xid 79)")
    assert "The driver lost the card on the PCIe bus." in message.lines
    assert not any("python3" in line or "Seen" in line for line in message.lines)


def test_numbers_of_the_past_are_not_told_as_now() -> None:
    late = over(incident(HEAT), "14:05:00")
    message = render(late, "resolved", (), settings(), at("14:05:00"), CST, False, {})
    assert message.title == "[resolved] gpu-07 GPU3 back to normal"


def test_second_firing_is_a_firing() -> None:
    assert replace(case("hot, only told"), transition="firing#2").message("en").tone == "firing"


@pytest.mark.parametrize(
    "host, shown",
    [("gpu-07.rack3.example.com", "gpu-07"), ("10.0.0.7", "10.0.0.7"), ("", "gpu-07"), ("A" * 300, "A" * 39 + "…")],
)
def test_host_name_leaves_room(host: str, shown: str) -> None:
    message = render(incident(HEAT), "firing", (), settings(host=host), at("13:47:12"), CST, False, {})
    assert message.title == f"[critical] {shown} GPU3 92 C, 2 C below shutdown"


def test_test_message() -> None:
    message = render_test("gpu-07", "ops", "zh", at("13:47:12"), CST, simulated=False)
    assert message.title == "【测试】gpu-07 gpuwatch 测试消息"
    assert message.severity is Severity.INFO


@pytest.mark.parametrize(
    "raw, shown",
    [
        ("train@llama.service", "train@llama.service"),
        ("a@all.service", "a＠all.service"),
        ("@ALL", "＠ALL"),
        ("@所有人 快看", "＠所有人 快看"),
        ("x @bob", "x ＠bob"),
        ("a\nb\x1b[31m\u202ec", "a b\ufffd[31m\ufffdc"),
        ("zero\u200bwidth", "zero\ufffdwidth"),
        ("n" * 200, "n" * 63 + "…"),
    ],
)
def test_names_from_outside_are_tamed(raw: str, shown: str) -> None:
    assert foreign(raw) == shown


def test_a_name_that_had_to_be_tamed_is_in_no_command() -> None:
    hostile = stop(IntentState.VERIFIED, target="a@all.service", sent=at("13:47:12"), gone=at("13:47:13"))
    message = replace(case("hot, stopped"), intents=(hostile,)).message("en")
    assert not any("systemctl" in line for line in message.lines)


@pytest.mark.parametrize(
    "seconds, en, zh",
    [
        (0, "0 s", "0 秒"),
        (45.4, "45 s", "45 秒"),
        (120, "2 min", "2 分钟"),
        (3900, "1 h 5 min", "1 小时 5 分"),
        (7200, "2 h", "2 小时"),
        (183600, "2 d 3 h", "2 天 3 小时"),
    ],
)
def test_durations(seconds: float, en: str, zh: str) -> None:
    for language, shown in (("en", en), ("zh", zh)):
        assert Words(language, CST, at("12:00:00")).duration(seconds) == shown


def test_yesterday_comes_with_its_date() -> None:
    words = Words("en", CST, at("00:00:10"))
    assert words.time(at("00:00:05")) == "00:00:05 CST"
    assert words.time(at("00:00:05"), later_s=-10) == "11-29 23:59:55 CST"


@pytest.mark.parametrize(
    "start, end, shown",
    [
        ("13:47:05", "14:05:00", ("13:47", "14:05")),
        ("13:47:05", "13:47:25", ("13:47:05", "13:47:25")),
    ],
)
def test_a_short_span_has_seconds(start: str, end: str, shown: tuple[str, str]) -> None:
    assert Words("en", CST, at("15:00:00")).span(at(start), at(end)) == shown


def test_readings_in_whole_degrees_and_limits_as_written() -> None:
    facts = {**HEAT, "temperature": 92.4, "limit": 2.5}
    message = render(incident(facts), "firing", (), settings(), at("13:47:12"), CST, False, {})
    assert message.title == "[critical] gpu-07 GPU3 92 C, 2 C below shutdown"
    assert "Rule gpu-critical: degrees left to shutdown below 2.5 C for 5 s" in message.lines


def test_duration_over_a_restart_goes_by_the_date() -> None:
    earlier = Instant("f" * 32, 5e5, MIDNIGHT_S)
    assert Words("en", CST, at("00:10:00")).elapsed(earlier) == 600


NASTY = some.one_of(
    some.text(max_size=300),
    some.sampled_from(
        ["@all", "<@all>", "</font>**", "[x](http://evil)", "\n\n# big", "a\x00b", "\u202e", "{0}", "%s"]
    ),
)
FACT_NAMES = (
    *(*HEAT, *XID_13, *DOUBT, *CHOICE, "stuck_pids", "problem", "rising", "lost", "module_version", "library_version"),
    *("user", "unit", "total", "within_s", "users", "repeated", "recovery_to", "change_over_s", "after_own_action"),
)
FACTS = some.dictionaries(
    some.sampled_from(FACT_NAMES),
    some.one_of(NASTY, some.integers(), some.floats(), some.booleans(), some.none()),
    max_size=12,
)
METRIC = some.one_of(some.sampled_from(sorted(METRICS)), NASTY, some.none())


@effort(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    facts=FACTS,
    metric=METRIC,
    fresh=FACTS,
    name=NASTY,
    detail=NASTY,
    state=some.sampled_from(list(IntentState)),
    action=some.sampled_from(["stop", "throttle", "hold", "freeze"]),
    watts=some.one_of(some.none(), some.floats(0, 1000)),
    kind=some.sampled_from(["gpu", "host", "unit", "filesystem", "sensor", "workload"]),
    language=some.sampled_from(["en", "zh"]),
    transition=some.sampled_from(["firing", "escalated", "update", "resolved"]),
)
def test_any_facts_make_a_message_fit_for_a_phone(
    facts: dict[str, Scalar],
    metric: Scalar,
    fresh: dict[str, Scalar],
    name: str,
    detail: str,
    state: IntentState,
    action: str,
    watts: Optional[float],
    kind: str,
    language: str,
    transition: str,
) -> None:
    about = incident({**facts, "metric": metric}, rule=name, bundle=BUNDLE, subject=Subject(kind, name), label=name)
    about = over(about, "14:00:00") if transition == "resolved" else about
    applied = None if watts is None else at("13:50:00")
    numbers: dict[str, Any] = {"action": action, "before": watts, "value": watts, "applied": applied}
    intents = (stop(state, detail, detail, target=name, users=(name, detail), **numbers),)
    message = render(about, transition, intents, settings(language), at("14:00:00"), CST, False, fresh)
    assert 2 <= 1 + len(message.lines) <= MOST_LINES
    for line in (message.title, *message.lines):
        assert line
        assert len(line) <= MOST_LINE
        assert "\n" not in line
        assert not any(unicodedata.category(mark) in ("Cc", "Cf", "Cs") for mark in line)
        assert not re.search(r"@\s*(all|everyone|所有人)", line, re.IGNORECASE)
        line.encode()


def test_every_text_is_used() -> None:
    """A text that nothing says is a text that nobody checks."""
    package = Path(__file__).parents[2] / "gpuwatch"
    source = "\n".join(path.read_text(encoding="utf-8") for path in sorted((package / "alerts").rglob("*.py")))
    computed = (
        *("metric.", "reason.", "tag.", "closed.", "title.", "back.", "next.", "action.", "rule.", "suffix."),
        *("because.", "verdict.", "witness.", "suspect.", "doubt.", "later.", "until."),
    )
    unused = [key for key in TEXTS if f'"{key}"' not in source and not key.startswith(computed)]
    assert unused == []
