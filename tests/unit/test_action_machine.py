"""The life of one intent, transition by transition, and its invariants over random histories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.actions.effect import Effect
from gpuwatch.actions.machine import (
    BUNDLE_WAIT_S,
    FRESH_WAIT_S,
    KILL_AFTER_S,
    KILLED_S,
    VERIFY_S,
    Refused,
    View,
    advance,
)
from gpuwatch.model import reason
from gpuwatch.model.intent import FINAL, Intent, IntentState
from gpuwatch.model.settings import Checkpoint, StopSettings
from gpuwatch.model.wish import Wish
from gpuwatch.system.protocols import UnitFacts
from tests.fakes.story import BOOT, NEXT_BOOT, at, uuid

INVOCATION, OTHER = "a" * 32, "b" * 32
PLANNED = Intent(
    id="a1-1",
    incident=1,
    rule="gpu-critical",
    step=0,
    action="stop",
    target="train@llama.service",
    workload="training",
    gpu=uuid(0),
    state=IntentState.PLANNED,
    created=at(0),
    changed=at(0),
    bundle="20261130T054532Z-gpu-critical-00000000",
)
PRESERVED = replace(
    PLANNED, state=IntentState.PRESERVED, preserved=at(1), invocation=INVOCATION, grace_s=30.0, main_pid=4242
)
SENT = replace(PRESERVED, state=IntentState.SENT, sent=at(2), changed=at(2))
GONE = replace(SENT, state=IntentState.GONE, gone=at(4), changed=at(4))


def wish(sample: float = 10, observe: bool = False, grace_s: Optional[float] = None) -> Wish:
    return Wish(
        1,
        "gpu-critical",
        0,
        "stop",
        "train@llama.service",
        "training",
        uuid(0),
        at(sample),
        observe,
        stop=StopSettings(grace_s),
    )


def unit(active: str = "active", invocation: str = INVOCATION, **more: Any) -> UnitFacts:
    given: dict[str, Any] = {"stop_timeout_s": 90.0, "load_state": "loaded", "sub_state": "running", "main_pid": 4242}
    return UnitFacts(
        "train@llama.service",
        active_state=active,
        invocation=invocation,
        control_group="/system.slice/train@llama.service",
        **{**given, **more},
    )


def view(now: float = 10, boot: str = BOOT, **more: Any) -> View:
    given: dict[str, Any] = {
        "now": at(now, boot),
        "wish": wish(now),
        "refusal": lambda facts: None,
        "unit": unit(),
        "unit_seen": at(now),
    }
    return View(**{**given, **more})


FORBIDDEN = {"refusal": lambda facts: Refused("slice", "it is a slice")}

TABLE = [
    # planned: who is it, is it allowed, is the evidence durable
    ("nothing known of the unit yet", PLANNED, {"unit": None}, IntentState.PLANNED, "", None),
    ("evidence first (S1)", PLANNED, {}, IntentState.PLANNED, "", Effect.PRESERVE),
    ("evidence is being written", PLANNED, {"preserving": True}, IntentState.PLANNED, "", None),
    ("evidence is durable", PLANNED, {"preserved": at(9)}, IntentState.PRESERVED, reason.PRESERVED, None),
    ("forbidden (S2)", PLANNED, FORBIDDEN, IntentState.REFUSED, "slice", None),
    ("no longer wanted", PLANNED, {"wish": None}, IntentState.WITHDRAWN, reason.CONDITION_ENDED, None),
    ("not running any more", PLANNED, {"unit": unit("inactive")}, IntentState.WITHDRAWN, reason.ALREADY_GONE, None),
    ("evidence failed, try again", PLANNED, {"bundle_problem": "disk full"}, IntentState.PLANNED, "", Effect.PRESERVE),
    (
        "evidence failed for good (S1)",
        PLANNED,
        {"bundle_problem": "disk full", "now": BUNDLE_WAIT_S},
        IntentState.REFUSED,
        reason.NO_BUNDLE,
        None,
    ),
    # preserved: is it still wanted on a sample newer than the evidence, is it still the same unit
    ("a newer sample wants it", PRESERVED, {}, IntentState.SENT, reason.SENT, Effect.STOP),
    ("the sample is older than the evidence (S4)", PRESERVED, {"wish": wish(1)}, IntentState.PRESERVED, "", None),
    ("the unit was not asked since", PRESERVED, {"unit_seen": at(1)}, IntentState.PRESERVED, "", None),
    ("systemd does not answer", PRESERVED, {"unit": None}, IntentState.PRESERVED, "", None),
    ("no longer wanted now", PRESERVED, {"wish": None}, IntentState.WITHDRAWN, reason.CONDITION_ENDED, None),
    ("started anew", PRESERVED, {"unit": unit(invocation=OTHER)}, IntentState.WITHDRAWN, reason.REPLACED, None),
    ("ended by itself", PRESERVED, {"unit": unit("failed")}, IntentState.WITHDRAWN, reason.ALREADY_GONE, None),
    ("forbidden at the last moment (S2)", PRESERVED, FORBIDDEN, IntentState.REFUSED, "slice", None),
    ("observe (S6)", PRESERVED, {"wish": wish(observe=True)}, IntentState.WOULD_HAVE, reason.WOULD_HAVE, None),
    (
        "the driver has gone silent for long",
        PRESERVED,
        {"wish": wish(1), "now": 1 + FRESH_WAIT_S},
        IntentState.WITHDRAWN,
        reason.NO_FRESH_SAMPLE,
        None,
    ),
    # sent: is it gone, does it need more
    ("stopping", SENT, {"called": True, "unit": unit("deactivating")}, IntentState.SENT, "", None),
    ("a job is queued", SENT, {"called": True, "unit": unit(job=7)}, IntentState.SENT, "", None),
    ("gone", SENT, {"unit": unit("inactive")}, IntentState.GONE, reason.GONE, None),
    ("gone, with a failure", SENT, {"unit": unit("failed")}, IntentState.GONE, reason.GONE, None),
    ("another invocation", SENT, {"unit": unit(invocation=OTHER)}, IntentState.GONE, reason.GONE, None),
    (
        "after a crash, same invocation active (S8)",
        SENT,
        {"called": False},
        IntentState.SENT,
        reason.SENT_AGAIN,
        Effect.STOP,
    ),
    (
        "after a crash, already stopping",
        SENT,
        {"called": False, "unit": unit("deactivating")},
        IntentState.SENT,
        "",
        None,
    ),
    (
        "the answer was lost",
        SENT,
        {"called": True, "call_problem": "?", "call_unknown": True},
        IntentState.SENT,
        reason.SENT_AGAIN,
        Effect.STOP,
    ),
    ("systemd refused", SENT, {"called": True, "call_problem": "denied"}, IntentState.FAILED, reason.STOP_FAILED, None),
    ("the facts are of before", SENT, {"unit_seen": at(2), "unit": unit("inactive")}, IntentState.SENT, "", None),
    (
        "ignores the signal beyond its grace",
        SENT,
        {"called": True, "now": 32 + KILL_AFTER_S, "unit_seen": at(40), "unit": unit("deactivating")},
        IntentState.SENT,
        reason.KILLED,
        Effect.KILL,
    ),
    (
        "survives SIGKILL: D state",
        replace(SENT, killed=at(40)),
        {"called": True, "now": 40 + KILLED_S, "unit_seen": at(50), "unit": unit("deactivating")},
        IntentState.FAILED,
        reason.NOT_GONE,
        None,
    ),
    # gone: and still so some time later
    ("too early to say", GONE, {"now": 5, "unit_seen": at(5), "unit": unit("inactive")}, IntentState.GONE, "", None),
    (
        "verified",
        GONE,
        {"now": 4 + VERIFY_S, "unit_seen": at(9), "unit": unit("inactive", "")},
        IntentState.VERIFIED,
        reason.VERIFIED,
        None,
    ),
    (
        "somebody started it again (A6)",
        GONE,
        {"now": 4 + VERIFY_S, "unit_seen": at(9), "unit": unit(invocation=OTHER)},
        IntentState.FAILED,
        reason.CAME_BACK,
        None,
    ),
    # another boot
    ("planned before a reboot", PLANNED, {"now": 3, "boot": NEXT_BOOT}, IntentState.WITHDRAWN, reason.OTHER_BOOT, None),
    ("sent before a reboot", SENT, {"now": 3, "boot": NEXT_BOOT}, IntentState.UNKNOWN, reason.OTHER_BOOT, None),
]


@pytest.mark.parametrize(
    ("intent", "given", "state", "why", "effect"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_transition(
    intent: Intent, given: dict[str, Any], state: IntentState, why: str, effect: Optional[Effect]
) -> None:
    after, done = advance(intent, view(**given))
    assert (after.state, done) == (state, effect)
    if why:
        assert after.reason == why
    else:
        assert after.reason == intent.reason


@pytest.mark.parametrize(
    ("configured", "of_the_unit", "grace_s"), [(20.0, 90.0, 20.0), (None, 90.0, 90.0), (None, None, 600.0)]
)
def test_the_grace_is_the_units_own_unless_configured(
    configured: Optional[float], of_the_unit: Optional[float], grace_s: float
) -> None:
    after, _ = advance(PLANNED, view(wish=wish(grace_s=configured), unit=unit(stop_timeout_s=of_the_unit)))
    assert after.grace_s == grace_s


UNITS = st.one_of(
    st.none(),
    st.builds(
        unit,
        st.sampled_from(["active", "activating", "deactivating", "inactive", "failed"]),
        st.sampled_from([INVOCATION, OTHER, ""]),
        job=st.sampled_from([0, 7]),
    ),
)
LOOKS = st.lists(
    st.tuples(
        st.floats(0.1, 60),
        UNITS,
        st.one_of(st.none(), st.booleans()),
        st.sampled_from([None, None, None, FORBIDDEN["refusal"]]),
        st.booleans(),
        st.sampled_from(["", "", "no"]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=40,
)


@given(LOOKS)
def test_no_history_breaks_the_invariants(looks: list[Any]) -> None:
    intent, now, durable, forbidden = PLANNED, 0.0, False, False
    for wait, facts, observe, refusal, lagging, problem, unknown, crashed in looks:
        now += wait
        sample = now - 100 if lagging else now
        before = intent
        look = View(
            now=at(now),
            wish=None if observe is None else wish(sample, observe),
            refusal=refusal or (lambda facts: None),
            unit=facts,
            unit_seen=at(now),
            preserved=at(now) if durable else None,
            called=not crashed,
            call_problem=problem,
            call_unknown=unknown,
        )
        intent, effect = advance(intent, look)
        forbidden = facts is not None and refusal is not None
        if effect is Effect.PRESERVE:
            durable = True
        if effect in (Effect.STOP, Effect.KILL):
            assert intent.preserved is not None, "S1: nothing destructive before the evidence"
            assert intent.state is IntentState.SENT and intent.sent is not None
            if before.state is IntentState.PRESERVED:
                assert not forbidden and observe is False and not lagging, "S2, S6, S4"
                assert (
                    facts is not None and facts.invocation == PLANNED.invocation
                ) or facts.invocation == intent.invocation
        if before.state in FINAL:
            assert intent == before, "an end is an end"


def asking(**more: Any) -> Wish:
    return replace(wish(), stop=StopSettings(**more))


def test_people_are_warned_once_and_have_a_moment_to_forbid_it() -> None:
    wanted = asking(warn_before_s=20)
    warned, effect = advance(PRESERVED, view(wish=wanted, unit=unit(), now=10))
    assert (warned.state, warned.warned, effect) == (IntentState.PRESERVED, at(10), Effect.WARN)
    later = replace(wanted, sample=at(29))
    assert advance(warned, view(wish=later, unit=unit(), now=29.9)) == (warned, None)
    sent, effect = advance(warned, view(wish=later, unit=unit(), now=30))
    assert (sent.state, effect) == (IntentState.SENT, Effect.STOP)
    assert advance(warned, view(wish=None, unit=unit(), now=29))[0].state is IntentState.WITHDRAWN


def test_the_job_is_told_to_write_its_checkpoint_once_and_gets_time() -> None:
    wanted = asking(checkpoint=Checkpoint("SIGUSR1", 30))
    told, effect = advance(PRESERVED, view(wish=wanted, unit=unit(), now=10))
    assert (told.state, told.checkpointed, effect) == (IntentState.PRESERVED, at(10), Effect.CHECKPOINT)
    later = replace(wanted, sample=at(39))
    assert advance(told, view(wish=later, unit=unit(), now=39)) == (told, None)
    assert advance(told, view(wish=later, unit=unit(), now=40))[1] is Effect.STOP
    gone, effect = advance(told, view(wish=later, unit=unit("inactive"), now=20))
    assert (gone.reason, effect) == (reason.ALREADY_GONE, None), "it wrote and ended by itself"


def test_in_observe_mode_nobody_is_warned_and_nothing_signalled() -> None:
    wanted = replace(asking(warn_before_s=20, checkpoint=Checkpoint("SIGUSR1", 30)), observe=True)
    assert advance(PRESERVED, view(wish=wanted, unit=unit(), now=10))[0].state is IntentState.WOULD_HAVE
