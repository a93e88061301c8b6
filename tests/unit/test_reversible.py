"""What is changed is put back: the machine transition by transition, and over random histories with crashes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.actions.effect import Effect
from gpuwatch.actions.reversible import MOST_REAPPLIED, Held, Standing, advance
from gpuwatch.model import gpu_change, reason
from gpuwatch.model.intent import FINAL, Intent, IntentState
from gpuwatch.model.wish import Wish
from tests.fakes.story import NEXT_BOOT, at, uuid

PLANNED = Intent(
    "a1-1", 1, "gpu-hot", 0, "throttle", uuid(0), "training", uuid(0), IntentState.PLANNED, created=at(0), changed=at(0)
)
SENT = replace(PLANNED, state=IntentState.SENT, before=700.0, value=595.0, level=1, sent=at(1), changed=at(1))
APPLIED = replace(SENT, state=IntentState.APPLIED, applied=at(2), changed=at(2))
UNDOING = replace(APPLIED, state=IntentState.UNDOING, changed=at(9))


def wish(level: int = 1, observe: bool = False) -> Wish:
    return Wish(1, "gpu-hot", 0, "throttle", uuid(0), "training", uuid(0), at(0), observe, level=level)


def view(seconds: float = 10, wanted: Optional[Wish] = None, **more: Any) -> Standing:
    return Standing(at(seconds), wanted, **more)


def held(seconds: float, watts: Optional[float] = None, problem: str = "", after: Optional[float] = None) -> Held:
    return Held(at(seconds), watts, problem, after=after)


def test_what_was_there_is_asked_for_and_written_down_before_anything_is_set() -> None:
    asked, effect = advance(PLANNED, view(1, wish()))
    assert (asked, effect) == (PLANNED, Effect.ASK)
    assert advance(PLANNED, view(1, wish(), waiting=True)) == (PLANNED, None)
    sent, effect = advance(PLANNED, view(2, wish(), held=held(1, 700), target=595.0))
    assert effect is Effect.SET
    assert (sent.state, sent.before, sent.value) == (IntentState.SENT, 700.0, 595.0)


def test_in_observe_mode_it_is_only_said() -> None:
    said, effect = advance(PLANNED, view(2, wish(observe=True), held=held(1, 700), target=595.0))
    assert (said.state, said.before, said.value, effect) == (IntentState.WOULD_HAVE, 700.0, 595.0, None)


@pytest.mark.parametrize(
    ("answer", "target", "why"),
    [
        (held(1, problem=gpu_change.UNSUPPORTED), None, reason.UNSUPPORTED),
        (held(1, problem=gpu_change.NO_PERMISSION), None, reason.NO_PERMISSION),
        (held(1, problem=gpu_change.GONE), None, reason.GONE),
        (held(1, problem=gpu_change.FAILED), None, reason.CHANGE_FAILED),
        (held(1, problem=reason.NO_DROP_IN), None, reason.NO_DROP_IN),
        (held(1), None, reason.UNSUPPORTED),
        (held(1, 200), None, reason.NO_ROOM),
    ],
)
def test_what_can_not_be_had_ends_at_once(answer: Held, target: Optional[float], why: str) -> None:
    failed, effect = advance(PLANNED, view(2, wish(), held=answer, target=target))
    assert (failed.state, failed.reason, effect) == (IntentState.FAILED, why, None)


def test_what_the_card_made_of_it_counts() -> None:
    done, _ = advance(SENT, view(2, wish(), held=held(2, 600, after=595)))
    assert (done.state, done.value, done.applied) == (IntentState.APPLIED, 600.0, at(2))


def test_a_card_that_puts_it_back_at_once_does_not_support_it() -> None:
    failed, _ = advance(SENT, view(2, wish(), held=held(2, 700, after=595)))
    assert (failed.state, failed.reason) == (IntentState.FAILED, reason.UNSUPPORTED)


def test_a_late_answer_to_a_question_is_none_to_the_change() -> None:
    assert advance(SENT, view(2, wish(), held=held(2, 700))) == (SENT, Effect.SET)


def test_an_unanswered_change_is_made_again() -> None:
    assert advance(SENT, view(8, wish(), held=held(0, 700))) == (SENT, Effect.SET)


def test_deeper_and_lighter() -> None:
    deeper, effect = advance(APPLIED, view(40, wish(level=2), target=490.0, seen=595.0))
    assert (deeper.state, deeper.value, deeper.reason, effect) == (
        IntentState.SENT,
        490.0,
        reason.DEEPER,
        Effect.SET,
    )
    lighter, _ = advance(replace(APPLIED, level=2, value=490.0), view(40, wish(level=1), target=595.0, seen=490.0))
    assert (lighter.value, lighter.before, lighter.reason) == (595.0, 700.0, reason.LIGHTER)


def test_a_deeper_level_that_fails_leaves_the_earlier_one_in_force() -> None:
    back, _ = advance(
        replace(APPLIED, state=IntentState.SENT), view(40, wish(), held=held(39, problem="failed", after=595))
    )
    assert (back.state, back.reason) == (IntentState.APPLIED, reason.CHANGE_FAILED)


def test_what_reverts_by_itself_is_set_again_but_not_for_ever() -> None:
    again, effect = advance(APPLIED, view(40, wish(), seen=700.0))
    assert (again.state, again.reason, again.reapplied, effect) == (
        IntentState.SENT,
        reason.REAPPLIED,
        1,
        Effect.SET,
    )
    worn, _ = advance(replace(APPLIED, reapplied=MOST_REAPPLIED), view(40, wish(), seen=700.0))
    assert worn.state is IntentState.OVERTAKEN


def test_what_somebody_else_set_stays() -> None:
    theirs, effect = advance(APPLIED, view(40, wish(), seen=450.0))
    assert (theirs.state, effect) == (IntentState.OVERTAKEN, None)
    theirs, effect = advance(UNDOING, view(10, held=held(10, 450)))
    assert (theirs.state, effect) == (IntentState.OVERTAKEN, None)


@pytest.mark.parametrize("wanted", [None, wish(observe=True)])
def test_it_is_put_back_when_no_longer_wanted(wanted: Optional[Wish]) -> None:
    undoing, effect = advance(APPLIED, view(9, wanted, seen=595.0))
    assert (undoing.state, effect) == (IntentState.UNDOING, Effect.ASK)
    assert advance(UNDOING, view(10, held=held(10, 595))) == (UNDOING, Effect.RESTORE)
    undone, effect = advance(UNDOING, view(11, held=held(11, 700)))
    assert (undone.state, effect) == (IntentState.UNDONE, None)


def test_a_card_that_went_away_is_said_to_be_unknown() -> None:
    assert advance(UNDOING, view(10, held=held(10, problem=gpu_change.GONE)))[0].state is IntentState.UNKNOWN


def test_another_boot_has_undone_it() -> None:
    now = at(5, NEXT_BOOT)
    assert advance(APPLIED, Standing(now, wish()))[0].state is IntentState.UNDONE
    assert advance(PLANNED, Standing(now, wish()))[0].state is IntentState.WITHDRAWN


class _World:
    """A card with a limit, a driver that may lose requests, and a process that may die between commit and call."""

    def __init__(self) -> None:
        self.watts, self.low = 700.0, 200.0
        self.intent: Intent = PLANNED
        self.held: Optional[Held] = None
        self.now = 0.0

    def cycle(self, wanted: Optional[Wish], lost: bool = False, killed: bool = False) -> None:
        self.now += 6.0
        level = wanted.level if wanted is not None else 1
        before = self.intent.before
        if before is None and self.held is not None:
            before = self.held.value
        target = None if before is None else before * (1 - 0.15 * level)
        seen = self.watts if self.intent.state is IntentState.APPLIED else None
        self.intent, effect = advance(self.intent, Standing(at(self.now), wanted, self.held, seen, target))
        if killed:
            self.held = None
        elif effect is not None and not lost:
            value = {Effect.SET: self.intent.value, Effect.RESTORE: self.intent.before}.get(effect)
            if value is not None:
                self.watts = max(self.low, value)
            self.held = Held(at(self.now + 1), self.watts, after=value)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from([None, 1, 2, 3]), st.booleans(), st.booleans()), max_size=12))
def test_whatever_happens_the_limit_is_put_back_once_it_is_no_longer_wanted(
    story: list[tuple[Optional[int], bool, bool]],
) -> None:
    world = _World()
    for level, lost, killed in story:
        world.cycle(None if level is None else wish(level), lost, killed)
        assert world.watts == 700.0 or world.intent.before == 700.0, "changed before it was written down"
    for _ in range(6):
        world.cycle(None)
    assert world.intent.state in FINAL
    assert world.watts == 700.0
