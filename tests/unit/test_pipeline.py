"""Spool, due, after: which message goes when, and what an answer makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Optional

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as some

from gpuwatch.alerts import pipeline
from gpuwatch.alerts.pipeline import LAST_RETRY_S, Bucket, after, due, request, requeue, slow_down, spool
from gpuwatch.model.codec import decode, encode
from gpuwatch.model.incident import Incident
from gpuwatch.model.notification import DeliveryState, Message, SpoolEntry, Transition
from gpuwatch.model.rule import Severity
from gpuwatch.model.settings import Channel
from tests.unit.alert_cases import CST, HEAT, WARM, at, incident, over, settings

NOW_S = 1_796_000_000.0
OPS = Channel("ops", "wecom", mention=("@all",))
NIGHT = Channel("night", "wecom", severities=(Severity.CRITICAL,))


def message(severity: Severity = Severity.WARNING, tone: str = "firing") -> Message:
    return Message("title", ("line",), severity, tone)


def entry(
    key: str,
    age_s: float = 0.0,
    severity: Severity = Severity.WARNING,
    tone: Optional[str] = None,
    mention: tuple[str, ...] = (),
) -> SpoolEntry:
    _, kind, channel = key.split("/")
    told = message(severity, tone or kind.split("#")[0])
    return SpoolEntry(key, channel, told, NOW_S - age_s, next_try_utc_s=NOW_S - age_s, mention=mention)


def keys(entries: tuple[SpoolEntry, ...]) -> list[str]:
    return [each.key for each in entries]


def told(about: Incident, name: str, *channels: Channel) -> tuple[SpoolEntry, ...]:
    return spool((Transition(about, name),), (), settings(channels=channels), at("13:47:12"), CST)


def test_one_entry_a_channel_with_a_unique_key() -> None:
    entries = told(incident(HEAT), "firing", OPS, NIGHT)
    assert keys(entries) == ["gpu-07#17/firing/ops", "gpu-07#17/firing/night"]


def test_channel_hears_only_its_severities() -> None:
    assert keys(told(incident(WARM, severity=Severity.WARNING), "firing", OPS, NIGHT)) == ["gpu-07#17/firing/ops"]
    assert told(incident(WARM, severity=Severity.INFO), "firing", OPS, NIGHT) == ()


@pytest.mark.parametrize(
    "severity, transition, mention",
    [
        (Severity.CRITICAL, "firing", ("@all",)),
        (Severity.CRITICAL, "firing#2", ("@all",)),
        (Severity.CRITICAL, "escalated", ("@all",)),
        (Severity.CRITICAL, "update", ()),
        (Severity.CRITICAL, "resolved", ()),
        (Severity.WARNING, "firing", ()),
    ],
)
def test_people_are_called_only_when_it_is_critical(
    severity: Severity, transition: str, mention: tuple[str, ...]
) -> None:
    about = incident(WARM, "gpu-hot", severity)
    about = over(about, "13:50:00") if transition == "resolved" else about
    (only,) = told(about, transition, OPS)
    assert only.mention == mention


def test_people_are_called_when_the_outcome_needs_them() -> None:
    (only,) = told(incident({**HEAT, "reason": "budget_spent"}), "update", OPS)
    assert only.mention == ("@all",)


def test_facts_of_now_reach_the_message() -> None:
    def facts(about: Incident) -> Mapping[str, float]:
        return {"temperature": 91.0 if about.number == 17 else 0.0}

    firing = (Transition(incident(WARM), "firing"),)
    (only,) = spool(firing, (), settings(channels=(OPS,)), at("13:47:12"), CST, True, facts)
    assert only.message.title.startswith("SIMULATED [critical] gpu-07 GPU3 91 C")


def test_entries_survive_the_store() -> None:
    (only,) = told(incident(HEAT), "firing", OPS)
    marked = replace(only, done=("markdown",))
    assert decode(SpoolEntry, encode(marked)) == marked


def test_critical_first_then_the_oldest_w5() -> None:
    entries = [
        entry("a#1/firing/ops", 30),
        entry("a#2/firing/ops", 40),
        entry("a#3/firing/ops", 10, Severity.CRITICAL),
        entry("a#4/firing/ops", 20, Severity.CRITICAL),
    ]
    order: list[str] = []
    buckets: dict[str, Bucket] = {}
    while len(order) < 3:
        (chosen,), buckets = due(entries, NOW_S, buckets, burst=3)
        assert (chosen.state, chosen.attempts) == (DeliveryState.SENDING, 1)
        order.append(chosen.key)
        entries = [replace(each, state=DeliveryState.DELIVERED) if each.key == chosen.key else each for each in entries]
    assert order == ["a#4/firing/ops", "a#3/firing/ops", "a#2/firing/ops"]
    assert due(entries, NOW_S, buckets, burst=3)[0] == ()


def test_one_at_a_time_a_channel_s8() -> None:
    entries = [entry("a#1/firing/ops", 10), entry("a#2/firing/ops", 5), entry("a#2/firing/mail", 5)]
    chosen, buckets = due(entries, NOW_S, {})
    assert keys(chosen) == ["a#1/firing/ops", "a#2/firing/mail"]
    on_its_way = [chosen[0], entries[1]]
    assert due(on_its_way, NOW_S + 1, buckets)[0] == ()


def test_six_at_once_then_three_a_minute_and_channel_w5() -> None:
    entries = [entry(f"a#{number}/firing/ops", 100 - number) for number in range(8)]
    entries.append(entry("a#1/firing/mail"))
    buckets: dict[str, Bucket] = {}
    sent: list[tuple[float, str]] = []
    for second in range(0, 121):
        chosen, buckets = due(entries, NOW_S + second, buckets)
        for each in chosen:
            sent.append((second, each.channel))
            entries[keys(tuple(entries)).index(each.key)] = replace(each, state=DeliveryState.DELIVERED)
    seconds = [second for second, channel in sent if channel == "ops"]
    assert seconds == pytest.approx([0, 1, 2, 3, 4, 5, 20, 40], abs=1)
    assert [second for second, channel in sent if channel == "mail"] == [0]


def test_a_mention_counts_as_a_message_of_its_own() -> None:
    called = [entry(f"a#{number}/firing/ops", severity=Severity.CRITICAL, mention=("@all",)) for number in range(2)]
    chosen, buckets = due([*called, entry("a#9/firing/ops")], NOW_S, {}, burst=3)
    assert keys(chosen) == ["a#0/firing/ops"], "the rest is saved for the second critical one"
    waiting, _ = due([called[1]], NOW_S + 20, buckets, burst=3)
    assert keys(waiting) == ["a#1/firing/ops"]


def test_what_is_done_is_not_paid_again() -> None:
    half = replace(entry("a#1/firing/ops", mention=("@all",)), done=("markdown",))
    chosen, _ = due([half], NOW_S, {"ops": Bucket(1.0, NOW_S)})
    assert keys(chosen) == ["a#1/firing/ops"]


@pytest.mark.parametrize("state", [DeliveryState.QUEUED, DeliveryState.SENDING])
def test_a_later_message_never_overtakes_an_earlier_one_of_its_incident(state: DeliveryState) -> None:
    first = replace(entry("a#1/firing/ops", 30), state=state, next_try_utc_s=NOW_S + 60)
    last = entry("a#1/resolved/ops")
    assert due([first, last], NOW_S, {})[0] == ()
    for settled in (DeliveryState.DELIVERED, DeliveryState.REFUSED):
        assert keys(due([replace(first, state=settled), last], NOW_S, {})[0]) == ["a#1/resolved/ops"]


def test_made_at_one_moment_the_story_counts() -> None:
    chosen, _ = due([entry("a#1/resolved/ops"), entry("a#1/firing/ops")], NOW_S, {})
    assert keys(chosen) == ["a#1/firing/ops"]


def test_not_before_its_time() -> None:
    later = replace(entry("a#1/firing/ops"), next_try_utc_s=NOW_S + 5)
    assert due([later], NOW_S, {})[0] == ()
    assert keys(due([later], NOW_S + 5, {})[0]) == ["a#1/firing/ops"]


@pytest.mark.parametrize("step_s", [-86400.0 * 365, -3600.0, 3600.0, 86400.0 * 365])
def test_a_clock_that_steps_does_not_stall_the_queue(step_s: float) -> None:
    failed = after(replace(entry("a#1/firing/ops"), attempts=9), {"ok": False, "retryable": True}, NOW_S, 0.5)
    empty = slow_down({}, "ops", {"ok": False, "retry_after_s": 60}, NOW_S)
    waited, buckets = due([failed], NOW_S + step_s, empty)
    if not waited:  # one bucket's filling later at the latest
        waited, _ = due([failed], NOW_S + step_s + 60, buckets)
    assert keys(waited) == ["a#1/firing/ops"]


def test_delivered_only_when_the_service_says_so_w3() -> None:
    sending = replace(entry("a#1/firing/ops"), state=DeliveryState.SENDING, attempts=1)
    assert after(sending, {"ok": True}, NOW_S, 0).state is DeliveryState.DELIVERED
    for outcome in ({}, {"ok": "yes"}, {"ok": 1}, {"ok": False}, {"ok": None, "retryable": "no"}):
        assert after(sending, outcome, NOW_S, 0).state is DeliveryState.REFUSED


def test_permanent_refusal_keeps_its_reason_w4() -> None:
    refused = after(entry("a#1/firing/ops"), {"ok": False, "retryable": False, "problem": "errcode 93000"}, NOW_S, 0)
    assert (refused.state, refused.problem) == (DeliveryState.REFUSED, "errcode 93000")
    assert due([refused], NOW_S + 1e6, {})[0] == ()


def test_retries_back_off() -> None:
    waits = [pipeline.retry_s(attempts, 0.0) for attempts in range(1, 12)]
    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
    assert pipeline.retry_s(3, 1.0) == 12
    assert pipeline.retry_s(10**9, 1.0) == LAST_RETRY_S


def test_rate_limit_backs_off_the_whole_channel_w5() -> None:
    outcome = {"ok": False, "retryable": True, "problem": "errcode 45009", "retry_after_s": 60.0}
    sending = replace(entry("a#1/firing/ops"), state=DeliveryState.SENDING, attempts=1)
    failed = after(sending, outcome, NOW_S, 0.0)
    assert failed.next_try_utc_s == NOW_S + 60
    buckets = slow_down({"ops": Bucket(3.0, NOW_S)}, "ops", outcome, NOW_S)
    others = [entry("a#2/firing/ops"), entry("a#2/firing/mail")]
    assert keys(due(others, NOW_S + 59, buckets)[0]) == ["a#2/firing/mail"]
    assert keys(due(others, NOW_S + 60, buckets)[0]) == ["a#2/firing/ops", "a#2/firing/mail"]


def test_parts_that_were_taken_are_remembered_w6() -> None:
    sending = replace(entry("a#1/firing/ops", mention=("@all",)), state=DeliveryState.SENDING)
    failed = after(sending, {"ok": False, "retryable": True, "done": ["markdown"]}, NOW_S, 0)
    assert failed.done == ("markdown",)
    assert request(failed, OPS, "key", "en")["done"] == ["markdown"]


def test_what_was_being_sent_at_a_crash_is_sent_again() -> None:
    sending = replace(entry("a#1/firing/ops"), state=DeliveryState.SENDING, attempts=1)
    assert keys(due([requeue(sending)], NOW_S, {})[0]) == ["a#1/firing/ops"]
    delivered = replace(sending, state=DeliveryState.DELIVERED)
    assert requeue(delivered) == delivered


@effort(deadline=None)
@given(
    tokens=some.floats(0, 3),
    at_s=some.floats(-1e10, 1e10),
    closed=some.floats(-1e10, 1e10),
    next_try=some.floats(-1e10, 1e10),
)
def test_every_message_is_due_within_eleven_minutes(tokens: float, at_s: float, closed: float, next_try: float) -> None:
    waiting = replace(entry("a#1/firing/ops", mention=("@all",)), next_try_utc_s=next_try)
    buckets: Mapping[str, Bucket] = {"ops": Bucket(tokens, at_s, closed)}
    for second in range(0, 661, 60):
        chosen, buckets = due([waiting], NOW_S + second, buckets)
        if chosen:
            return
    pytest.fail("never due")
