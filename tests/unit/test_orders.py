"""Orders: how long they hold, whom a silence covers, what is told in spite of it and after it, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Optional

import pytest
from hypothesis import given as examples
from hypothesis import settings as effort
from hypothesis import strategies as some

from gpuwatch.alerts.desk import muted_of
from gpuwatch.alerts.silence import MOST_REMEMBERED, Hush, Muted, hush
from gpuwatch.catalog.texts import TEXTS
from gpuwatch.daemon.orders import Obeyed, Standing, current, obey, orders_of, who
from gpuwatch.model import reason
from gpuwatch.model.codec import decode, encode
from gpuwatch.model.incident import Cause, Incident, IncidentState, Subject
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.notification import Transition
from gpuwatch.model.orders import Mute, Order, Orders, Silence, given
from gpuwatch.model.rule import Severity
from gpuwatch.policy.by_hand import acknowledge, close_incident
from gpuwatch.policy.state import Alert, KnownGpu, PolicyState, Trouble
from tests.unit.alert_cases import HEAT, UUID, XID, at, incident

NOW = at("14:00:00")
CARD = Subject("gpu", UUID)
HOST = Subject("host", "")


def later(seconds: float, boot: str = NOW.boot_id) -> Instant:
    return Instant(boot, NOW.boottime_s + seconds if boot == NOW.boot_id else 30.0, NOW.utc_s + seconds)


def silence(identifier: str = "s1", rule: str = "*", subject: Optional[Subject] = None, for_s: float = 3600) -> Silence:
    return Silence(identifier, given(NOW, for_s, "root", "fan"), rule, subject)


# -- how long -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("for_s", "when", "holds"),
    [
        (None, later(1e8), True),
        (None, later(1e8, "f" * 32), True),
        (60.0, later(59), True),
        (60.0, later(60), False),
        (3600.0, later(3000, "f" * 32), True),
        (3600.0, later(3601, "f" * 32), False),
    ],
)
def test_an_order_holds_for_its_time_and_over_a_reboot_by_utc(
    for_s: Optional[float], when: Instant, holds: bool
) -> None:
    assert given(NOW, for_s, "root", "").holds(when) is holds


def test_a_clock_that_is_set_ends_no_order() -> None:
    assert given(NOW, 60.0, "root", "").holds(replace(later(30), utc_s=NOW.utc_s + 1e6))


def test_hands_are_off_while_disarmed_or_in_maintenance() -> None:
    order = given(NOW, 60.0, "root", "")
    assert Orders(disarmed=order, maintenance=order).hands_off(NOW) == "disarmed"
    assert Orders(maintenance=order).hands_off(NOW) == "maintenance"
    assert Orders(disarmed=order, maintenance=order).hands_off(later(61)) == ""


def test_a_veto_is_of_one_action_or_of_an_incident() -> None:
    orders = Orders(vetoed=("a17-2", "#18"))
    assert [orders.forbids(17, "a17-2"), orders.forbids(17, "a17-3"), orders.forbids(18)] == [True, False, True]


def test_orders_survive_the_store() -> None:
    orders = Orders(given(NOW, None, "root", "x"), given(NOW, 5, "root", ""), (silence(subject=CARD),), ("a1-1",))
    assert orders_of({"orders": encode(orders)}, NOW) == orders
    assert orders_of({}, NOW) == Orders()


@pytest.mark.parametrize("broken", [5, {"disarmed": 3}, {"silences": [{}]}])
def test_orders_that_can_not_be_read_forbid_everything_and_say_so(broken: Any) -> None:
    orders = orders_of({"orders": broken}, NOW)
    assert orders.hands_off(later(1e9)) == "disarmed"
    assert orders.disarmed is not None and "can't be read" in orders.disarmed.comment


def test_what_has_ended_is_dropped() -> None:
    orders = Orders(given(NOW, 5, "root", ""), None, (silence("s1", for_s=5), silence("s2")), ("a1-1",), ("#1", "#2"))
    left = current(orders, later(6), (), PolicyState(incidents={"2": incident(HEAT, number=2)}))
    assert (left.disarmed, [each.id for each in left.silences], left.released, left.vetoed) == (
        None,
        ["s2"],
        (),
        ("#2",),
    )
    assert current(orders, NOW, (intent("a1-1"),), PolicyState()).released == ("a1-1",)


# -- whom a silence covers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_one", "covers"),
    [
        (silence(), True),
        (silence(rule="gpu-critical"), True),
        (silence(rule="gpu-*"), True),
        (silence(rule="xid-*"), False),
        (silence(subject=CARD), True),
        (silence(subject=Subject("gpu", "GPU-x")), False),
        (silence(subject=HOST), False),
        (silence(rule="xid-*", subject=CARD), False),
    ],
)
def test_rule_and_subject_must_both_match(given_one: Silence, covers: bool) -> None:
    found = Orders(silences=(given_one,)).mute(incident(HEAT), NOW)
    assert found == (Mute("s1", "silence s1 (root: fan)") if covers else None)


def test_a_unit_may_be_a_pattern() -> None:
    of_unit = replace(incident(HEAT), subject=Subject("unit", "train@llama.service"))
    assert Orders(silences=(silence(subject=Subject("unit", "train@*")),)).mute(of_unit, NOW)
    assert not Orders(silences=(silence(subject=HOST),)).mute(of_unit, NOW)


def with_cause(about: Incident, rule: str, **more: Any) -> Incident:
    return replace(about, causes=(*about.causes, Cause(rule, Severity.WARNING, NOW, more.pop("facts", {}), **more)))


def test_a_rule_that_nobody_silenced_is_news() -> None:
    two = with_cause(incident(HEAT), "xid-driver")
    orders = Orders(silences=(silence(rule="gpu-critical"),))
    assert orders.mute(two, NOW) is None
    assert replace(orders, silences=(*orders.silences, silence("s2", "xid-*"))).mute(two, NOW)
    assert orders.mute(with_cause(incident(HEAT), "xid-driver", cleared=NOW), NOW), "what has cleared does not count"


def test_maintenance_mutes_all_but_what_gpuwatch_itself_can_not_do() -> None:
    orders = Orders(maintenance=given(NOW, 60, "root (sudo: wang)", "new fans"))
    mute = orders.mute(incident(HEAT), NOW)
    assert mute is not None and mute.why == "maintenance (root (sudo: wang): new fans)"
    assert orders.mute(incident({"metric": "host.store_failing"}, gpu=None), NOW) is None
    assert orders.mute(incident({"metric": "host.driver_silent"}, gpu=None), NOW)
    assert orders.mute(incident(HEAT), later(61)) is None


# -- what is told -------------------------------------------------------------------------------


def intent(identifier: str = "a17-1", state: IntentState = IntentState.VERIFIED, **more: Any) -> Intent:
    given_one = {"action": "stop", "target": "train@llama.service", "sent": NOW, **more}
    return Intent(
        id=identifier,
        incident=17,
        rule="gpu-critical",
        step=0,
        workload="training",
        gpu=UUID,
        state=state,
        created=NOW,
        changed=NOW,
        **given_one,
    )


OPEN = incident(HEAT, notified=("firing",))
OVER = replace(OPEN, state=IncidentState.RECOVERED, causes=tuple(replace(c, cleared=NOW) for c in OPEN.causes))
MUTED = Orders(silences=(silence(),))


class Stage:
    """The stage, cycle by cycle, with its memory going through the store's form."""

    def __init__(self) -> None:
        self.muted: Muted = {}
        self.told: list[str] = []

    def cycle(
        self, orders: Orders, *names: str, about: Incident = OPEN, intents: tuple[Intent, ...] = (), at: Instant = NOW
    ) -> list[str]:
        transitions = [Transition(about, name) for name in names]
        told, muted = hush(transitions, (about,), intents, orders, self.muted, at)
        self.muted = muted_of(encode(muted))
        assert self.muted == muted
        self.told += [each.name for each in told]
        return [each.name for each in told]


def test_without_orders_everything_is_told() -> None:
    stage = Stage()
    assert stage.cycle(Orders(), "firing", "update", "resolved") == ["firing", "update", "resolved"]
    assert stage.muted == {}


def test_what_is_silenced_is_not_told_but_remembered() -> None:
    stage = Stage()
    assert stage.cycle(MUTED, "firing") == stage.cycle(MUTED, "escalated") == []
    assert stage.muted["17"].names == ("firing", "escalated")
    assert stage.muted["17"].why == "silence s1 (root: fan)"


def test_what_is_still_open_at_the_end_is_told_once() -> None:
    stage = Stage()
    stage.cycle(MUTED, "firing")
    assert stage.cycle(Orders()) == ["firing#after-s1"]
    assert stage.cycle(Orders()) == []
    assert stage.cycle(Orders(), "resolved", about=OVER) == ["resolved"]


def test_the_end_is_by_time_too() -> None:
    stage = Stage()
    stage.cycle(MUTED, "firing")
    assert stage.cycle(MUTED, at=later(3601)) == ["firing#after-s1"]


@pytest.mark.parametrize("orders_at_the_end", [MUTED, Orders()])
def test_what_has_recovered_meanwhile_is_never_told(orders_at_the_end: Orders) -> None:
    stage = Stage()
    stage.cycle(MUTED, "firing")
    assert stage.cycle(orders_at_the_end, "resolved", about=OVER) == []
    assert stage.cycle(Orders(), about=OVER) == []


def test_the_end_of_what_people_know_is_told_under_a_silence() -> None:
    stage = Stage()
    stage.cycle(Orders(), "firing")
    stage.cycle(MUTED)
    assert stage.cycle(MUTED, "resolved", about=OVER) == ["resolved"]
    assert stage.cycle(MUTED, "firing#2") == []
    assert stage.cycle(MUTED, "resolved#2", about=OVER) == [], "of the second time nobody was told"


@pytest.mark.parametrize(
    ("done", "told"),
    [
        (intent(), ["update"]),
        (intent(state=IntentState.FAILED), ["update"]),
        (intent(state=IntentState.UNKNOWN), ["update"]),
        (intent(observe=True, state=IntentState.WOULD_HAVE), []),
        (intent(sent=None, state=IntentState.REFUSED), []),
        (intent(action="throttle", state=IntentState.UNDONE), []),
        (replace(intent(), incident=18), []),
    ],
)
def test_that_a_job_was_stopped_is_told_all_the_same(done: Intent, told: list[str]) -> None:
    stage = Stage()
    stage.cycle(MUTED, "firing")
    assert stage.cycle(MUTED, "update", intents=(done,)) == told
    assert stage.cycle(MUTED, "update#2", intents=(done,)) == [], "the same stop is no news"


def test_after_a_stop_was_told_its_end_is_told() -> None:
    stage = Stage()
    stage.cycle(MUTED, "firing")
    stage.cycle(MUTED, "update", intents=(intent(),))
    assert stage.cycle(MUTED, "resolved", about=OVER, intents=(intent(),)) == ["resolved"]


def test_one_message_when_a_silence_ends_with_news() -> None:
    for name, told in (("update", "firing#after-s1"), ("escalated", "firing#after-s1"), ("firing#2", "firing#2")):
        stage = Stage()
        stage.cycle(MUTED, "firing")
        assert stage.cycle(Orders(), name) == [told]
        assert stage.cycle(Orders()) == []


def test_one_silence_after_another_is_one_long_silence() -> None:
    stage = Stage()
    stage.cycle(MUTED, "firing")
    second = Orders(silences=(silence("s2"),))
    assert stage.cycle(second) == []
    assert stage.cycle(Orders()) == ["firing#after-s2"]
    stage.cycle(second)
    assert stage.cycle(Orders()) == ["firing#after-s2-2"], "a name of its own, or it would be taken for told"


def test_a_repeated_cycle_gives_the_same_names() -> None:
    stage = Stage()
    stage.cycle(MUTED, "firing")
    before = stage.muted
    first = stage.cycle(Orders())
    stage.muted = before
    assert stage.cycle(Orders()) == first


def test_only_so_many_are_remembered() -> None:
    muted: Muted = {str(number): Hush("x") for number in range(MOST_REMEMBERED + 50)}
    _, left = hush((), (), (), MUTED, muted, NOW)
    assert len(left) == MOST_REMEMBERED and "249" in left and "0" not in left


@pytest.mark.parametrize("broken", [None, 5, {"x": {}}, {"1": {}}, {"1": 3}])
def test_a_memory_that_can_not_be_read_is_a_new_one(broken: Any) -> None:
    assert muted_of(broken) == {}


@effort(deadline=None, max_examples=100)
@examples(some.lists(some.tuples(some.booleans(), some.sampled_from(["hot", "cool", "same", "update"])), max_size=12))
def test_nobody_hears_an_end_without_a_beginning(steps: list[tuple[bool, str]]) -> None:
    """And once nothing is muted any more, people know what is open."""
    stage, hot, count = Stage(), False, 0
    for muted, what in [*steps, (False, "same")]:
        names: list[str] = []
        if what == "hot" and not hot:
            hot, count = True, count + 1
            names = [f"firing#{count}"]
        elif what == "cool" and hot:
            hot = False
            names = [f"resolved#{count}"]
        elif what == "update" and hot:
            names = [f"update#{count}"]
        stage.cycle(MUTED if muted else Orders(), *names, about=OPEN if hot else OVER)
    known = False
    for name in stage.told:
        kind = name.split("#")[0]
        assert kind == "firing" or known
        known = kind != "resolved"
    assert known or not hot


# -- what is ordered ----------------------------------------------------------------------------

KNOWN = {
    UUID: KnownGpu(3, "H100", "0000:5e:00.0"),
    "GPU-71c8d6e2-5b1e-4c27-9d40-000000000002": KnownGpu(4, "H100", "0000:c6:00.0"),
    "GPU-71c8ffff-5b1e-4c27-9d40-000000000002": KnownGpu(5, "H100", "0000:c7:00.0"),
}


def standing(**more: Any) -> Standing:
    policy = PolicyState(gpus=KNOWN, incidents={"17": OPEN})
    return replace(Standing(NOW, Orders(), policy, rules=("gpu-hot",)), **more)


def ordered(what: str, on: Optional[Standing] = None, **arguments: Any) -> Obeyed:
    return obey({"what": what, **arguments}, "root (sudo: wang)", on or standing())


def error(what: str, on: Optional[Standing] = None, **arguments: Any) -> str:
    obeyed = ordered(what, on, **arguments)
    assert (obeyed.orders, obeyed.policy, obeyed.done, obeyed.said) == (
        (on or standing()).orders,
        standing().policy,
        None,
        "",
    )
    return str(obeyed.answer["error"])


def test_disarm_holds_until_arm() -> None:
    disarmed = ordered("disarm", comment="bench\nmark")
    order = disarmed.orders.disarmed
    assert order == Order(NOW, None, "root (sudo: wang)", "bench mark")
    assert disarmed.said == "DISARMED by root (sudo: wang) until it is taken back: bench mark"
    armed = ordered("arm", standing(orders=disarmed.orders))
    assert (armed.orders, armed.answer["was"]) == (Orders(), "disarmed")
    assert ordered("arm").answer["was"] == "armed"


def test_fields_for_the_log() -> None:
    obeyed = ordered("maintenance-on", for_s=60, comment="fans")
    assert obeyed.fields["GPUWATCH_ORDER"] == "maintenance-on"
    assert obeyed.fields["GPUWATCH_BY"] == "root (sudo: wang)"
    assert obeyed.fields["GPUWATCH_UNTIL"] == "2026-11-30T06:01:00Z"
    assert obeyed.fields["GPUWATCH_COMMENT"] == "fans"


def test_maintenance_may_let_go_of_the_gpus() -> None:
    on = ordered("maintenance-on", for_s=60.0, release_gpu=1)
    assert (on.release_s, on.answer["until_utc_s"]) == (60.0, NOW.utc_s + 60)
    assert ordered("maintenance-on", for_s=60.0).release_s is None
    off = ordered("maintenance-off", standing(orders=on.orders))
    assert (off.resume, off.orders.maintenance) == (True, None)


@pytest.mark.parametrize("for_s", [None, 0, -1, float("nan"), float("inf"), "2h", True, 31 * 86400])
def test_a_silence_and_a_window_must_have_an_end(for_s: Any) -> None:
    assert "at most 30 days" in error("silence", for_s=for_s, comment="x", rule="gpu-hot")
    assert "at most 7 days" in error("maintenance-on", for_s=for_s)


def test_silences_are_numbered_and_end() -> None:
    first = ordered("silence", for_s=60, comment="x", rule="gpu-hot", gpu="3")
    second = ordered("silence", standing(orders=first.orders), for_s=60, comment="x", host_only=1)
    assert [each.id for each in second.orders.silences] == ["s1", "s2"]
    assert [each.subject for each in second.orders.silences] == [CARD, HOST]
    ended = ordered("expire", standing(orders=second.orders), id="s1")
    assert [each.id for each in ended.orders.silences] == ["s2"]
    third = ordered("silence", standing(orders=ended.orders), for_s=60, comment="x", unit="train@*")
    assert third.orders.silences[-1] == replace(third.orders.silences[-1], id="s3", subject=Subject("unit", "train@*"))


def test_a_rule_that_does_not_exist_is_warned_of() -> None:
    assert "no rule matches 'gpu-hto'" in ordered("silence", for_s=60, comment="x", rule="gpu-hto").answer["warning"]
    assert "warning" not in ordered("silence", for_s=60, comment="x", rule="gpu-*").answer


@pytest.mark.parametrize("wanted", ["3", "0000:5e:00.0", "PCI:0000:5E:00", "GPU-3d9a7c10", "3d9a"])
def test_a_card_is_named_as_people_know_it(wanted: str) -> None:
    (only,) = ordered("silence", for_s=60, comment="x", gpu=wanted).orders.silences
    assert only.subject == CARD


def test_a_card_that_is_only_an_address_yet() -> None:
    (only,) = ordered("silence", for_s=60, comment="x", gpu="0000:AB:00.0").orders.silences
    assert only.subject == Subject("gpu", "0000:ab:00.0")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"comment": ""}, "needs a comment"),
        ({"rule": ""}, "name what to silence"),
        ({"gpu": "71c8"}, "2 GPUs of that name"),
        ({"gpu": "9"}, "no GPU of that name"),
        ({"gpu": "GPU-"}, "no GPU of that name"),
        ({"gpu": "3", "unit": "x"}, "one of them"),
    ],
)
def test_a_silence_that_is_not_clear_is_refused(arguments: Mapping[str, Any], words: str) -> None:
    assert words in error("silence", **{"for_s": 60, "comment": "x", "rule": "gpu-hot", **arguments})


def test_there_is_an_end_to_silences() -> None:
    full = standing(orders=Orders(silences=tuple(silence(f"s{number}") for number in range(100))))
    assert "100 silences already" in error("silence", full, for_s=60, comment="x", rule="*")


def test_words_that_are_no_orders() -> None:
    assert "no order 'steal'" in error("steal")
    assert "no silence s9" in error("expire", id="s9")
    assert "expected the number" in error("acknowledge", id="x")
    assert "incident 18 is not open" in error("acknowledge", id="18")
    assert "of another host; here it would be gpu-07#17" in error("acknowledge", id="gpu-08#17")
    assert "needs a reason" in error("close", id="17")


@pytest.mark.parametrize(
    ("uid", "sudo", "name"),
    [
        (0, "", "root"),
        (0, "wang", "root (sudo: wang)"),
        (0, "root", "root"),
        (0, "a\x1b[2J\nb", "root (sudo: a\ufffd[2J b)"),
        (1000, None, "uid 1000"),
    ],
)
def test_who_it_was(uid: int, sudo: Optional[str], name: str) -> None:
    assert who(uid, sudo) == name


def held(identifier: str, target: str, state: IntentState = IntentState.APPLIED) -> Intent:
    return replace(intent(identifier, state), action="hold", target=target)


@pytest.mark.parametrize("wanted", ["train@llama.service", "train@llama", "a17-2"])
def test_a_hold_is_released_by_its_unit_or_id(wanted: str) -> None:
    on = standing(intents=(held("a17-2", "train@llama.service"), held("a17-3", "other.service"), intent()))
    assert ordered("release-hold", on, id=wanted).orders.released == ("a17-2",)


@pytest.mark.parametrize("wanted", ["", "a17-1", "gone.service"])
def test_nothing_else_is_released(wanted: str) -> None:
    on = standing(intents=(intent(), held("a17-4", "gone.service", IntentState.UNDONE)))
    assert "nothing is held" in error("release-hold", on, id=wanted)


@pytest.mark.parametrize(
    ("wanted", "vetoed"), [("a17-1", ("a17-1",)), ("17", ("#17",)), ("gpu-07#17", ("#17",))]
)  # fmt: skip
def test_a_veto_in_time(wanted: str, vetoed: tuple[str, ...]) -> None:
    on = standing(intents=(intent(state=IntentState.PLANNED, sent=None),))
    assert ordered("veto", on, id=wanted).orders.vetoed == vetoed


@pytest.mark.parametrize(
    ("wanted", "there", "words"),
    [
        ("a17-9", intent(), "no action a17-9"),
        ("a17-1", intent(), "over already (verified)"),
        ("a17-1", intent(state=IntentState.SENT), "can't be called back"),
        ("18", intent(), "incident 18 is not open"),
        ("x", intent(), "expected the number"),
    ],
)
def test_a_veto_that_comes_too_late(wanted: str, there: Intent, words: str) -> None:
    assert words in error("veto", standing(intents=(there,)), id=wanted)


def test_a_throttle_in_force_can_be_vetoed() -> None:
    there = replace(intent(state=IntentState.APPLIED), action="throttle")
    assert ordered("veto", standing(intents=(there,)), id="a17-1").orders.vetoed == ("a17-1",)


# -- incidents by hand --------------------------------------------------------------------------


def alert(rule: str, **more: Any) -> Alert:
    return Alert(**{"rule": rule, "rule_print": "p", "subject": CARD, "label": "GPU 3", "phase": "firing",
                    "since": NOW, "sample": NOW, "incident": 17, **more})  # fmt: skip


def state(*alerts: Alert, about: Incident = OPEN) -> PolicyState:
    keyed = {f"{each.rule} {each.subject.id} {each.incident}": each for each in alerts}
    return PolicyState(keyed, {str(about.number): about}, troubles={f"{UUID} 79": Trouble("b", 1.0)})


def test_acknowledged_is_a_mark_alone() -> None:
    before = state(alert("gpu-critical"))
    settled = acknowledge(before, 17, NOW, "root", "on it")
    marked = settled.state.incidents["17"]
    assert marked.acknowledged is not None and marked.acknowledged.by == "root"
    assert (marked.state, marked.causes, settled.state.alerts) == (OPEN.state, OPEN.causes, before.alerts)
    assert (marked.story[-1].what, marked.story[-1].facts["comment"]) == ("acknowledged", "on it")
    assert settled.done is not None and (settled.done.incident, settled.done.transition) == (marked, None)
    assert decode(Incident, encode(marked)) == marked


XID_OPEN = incident(XID, "xid-gpu-reset", notified=("firing",))


def test_w10_a_reset_card_is_closed_by_hand() -> None:
    other = replace(alert("gpu-hot"), incident=18)
    settled = close_incident(state(alert("xid-gpu-reset"), other, about=XID_OPEN), 17, NOW, "root", "card was reset")
    assert settled.problem == ""
    assert [each.rule for each in settled.state.alerts.values()] == ["gpu-hot"]
    assert settled.state.incidents == {}
    assert settled.state.troubles[f"{UUID} 79"].settled, "the same Xid after this is the hardware"
    assert settled.done is not None and settled.done.transition is not None
    closed = settled.done.incident
    assert (closed.state, closed.close_reason, closed.closed) == (IncidentState.CLOSED, reason.CLOSED_BY_HAND, NOW)
    assert [entry.what for entry in closed.story[-2:]] == [reason.CLOSED_BY_HAND, "closed"]
    assert closed.story[-1].facts == {"by": "root", "reason": "card was reset"}
    assert settled.done.transition.kind == "resolved" and closed.notified == ("firing", "resolved")


def test_a_condition_that_holds_is_not_closed_away() -> None:
    before = state(alert("gpu-critical"))
    settled = close_incident(before, 17, NOW, "root", "x")
    assert "GPU 3: rule gpu-critical still holds" in settled.problem
    assert (
        "gpuwatch incident ack 17" in settled.problem and "gpuwatch silence add --rule gpu-critical" in settled.problem
    )
    assert (settled.state, settled.done) == (before, None)


def test_one_that_has_cleared_and_is_only_kept_is_closed() -> None:
    assert close_incident(state(alert("gpu-critical", cleared=NOW)), 17, NOW, "root", "x").problem == ""


def test_one_that_had_recovered_is_not_told_again() -> None:
    settled = close_incident(state(about=replace(OVER, notified=("firing", "resolved"))), 17, NOW, "root", "x")
    assert settled.done is not None and settled.done.transition is None


@pytest.mark.parametrize("code", [reason.VETOED, reason.CLOSED_BY_HAND])
def test_every_order_has_words_in_both_languages(code: str) -> None:
    assert all(TEXTS[f"reason.{code}"])
    assert all(TEXTS["closed.closed_by_hand"])
