"""The life of a change that is put back, as a pure transition (S5):

    planned -> sent -> applied -> undoing -> undone, or failed | would_have | overtaken | withdrawn | unknown

What was there before is written down (`before`) in the commit that precedes the change, and what was set (`value`)
too. Only what is still as gpuwatch set it is put back: anything else there is somebody else's and stays.

Invariants: no change before its `before` is known; a change in force ends as undone, overtaken, or unknown (the card
is gone), whatever instant the process is killed at; another boot has undone everything by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional

from gpuwatch.actions.effect import Effect
from gpuwatch.model import gpu_change, reason
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.wish import Wish

RETRY_S = 5.0  # an answer may never come (GpuDriver.change); then it is asked again
SAME = 1.0  # watts; cards round
MOST_REAPPLIED = 5  # what keeps reverting by itself is not ours to set

_REASONS = {
    gpu_change.UNSUPPORTED: reason.UNSUPPORTED,
    gpu_change.NO_PERMISSION: reason.NO_PERMISSION,
    gpu_change.GONE: reason.GONE,
    reason.NO_DROP_IN: reason.NO_DROP_IN,
}


@dataclass(frozen=True)
class Held:
    """What is set on a target, as of `at` (when it was asked); with a `problem` (of model/gpu_change.py) unknown."""

    at: Instant
    value: Optional[float] = None
    problem: str = ""
    detail: str = ""
    after: Optional[float] = None  # what was to be set; None: it was only a question


@dataclass(frozen=True)
class Standing:
    """What is known about one change now.

    `held`: the newest answer. `seen`: what is in force as the last sample shows it, None where it shows nothing.
    `target`: what the wish's level comes to, from what was there before; None where no level is lower.
    `waiting`: an answer is due within RETRY_S.
    """

    now: Instant
    wish: Optional[Wish]
    held: Optional[Held] = None
    seen: Optional[float] = None
    target: Optional[float] = None
    waiting: bool = False


def advance(intent: Intent, view: Standing) -> tuple[Intent, Optional[Effect]]:
    """One transition at most. See the module."""
    if not intent.open:
        return intent, None
    if view.now.boot_id != intent.created.boot_id:
        began = intent.state is not IntentState.PLANNED
        state = IntentState.UNDONE if began else IntentState.WITHDRAWN
        return _to(intent, view, state, reason.OTHER_BOOT), None
    wanted = view.wish is not None and (intent.before is None or not view.wish.observe)
    if intent.state is IntentState.PLANNED:
        return _planned(intent, view)
    if intent.state is IntentState.UNDOING:
        return _undoing(intent, view, wanted)
    if not wanted:
        return _to(intent, view, IntentState.UNDOING, reason.CONDITION_ENDED), Effect.ASK
    return _sent(intent, view) if intent.state is IntentState.SENT else _applied(intent, view)


def _to(intent: Intent, view: Standing, state: IntentState, why: str, detail: str = "") -> Intent:
    return replace(intent, state=state, changed=view.now, reason=why, detail=detail)


def _fresh(intent: Intent, view: Standing) -> Optional[Held]:
    """The answer, if it was asked for since the intent's last change."""
    age = None if view.held is None else view.held.at.since(intent.changed)
    return view.held if age is not None and age >= 0 else None


def _again(intent: Intent, view: Standing, effect: Effect) -> tuple[Intent, Optional[Effect]]:
    return intent, None if view.waiting else effect


def _planned(intent: Intent, view: Standing) -> tuple[Intent, Optional[Effect]]:
    if view.wish is None:
        return _to(intent, view, IntentState.WITHDRAWN, reason.CONDITION_ENDED), None
    held = _fresh(intent, view)
    if held is None:
        return _again(intent, view, Effect.ASK)
    if held.problem or held.value is None:
        return _to(intent, view, IntentState.FAILED, _why(held), held.detail), None
    if view.target is None:
        return _to(intent, view, IntentState.FAILED, reason.NO_ROOM), None
    intent = replace(intent, before=held.value, value=view.target, level=view.wish.level)
    if view.wish.observe:
        return _to(intent, view, IntentState.WOULD_HAVE, reason.WOULD_HAVE), None
    return replace(_to(intent, view, IntentState.SENT, reason.SENT), sent=view.now, observe=False), Effect.SET


def _sent(intent: Intent, view: Standing) -> tuple[Intent, Optional[Effect]]:
    held = _fresh(intent, view)
    if held is None or held.after != intent.value:  # a late answer to another request says nothing of this one
        return _again(intent, view, Effect.SET)
    assert intent.before is not None and intent.value is not None
    if held.problem == gpu_change.GONE:
        return _to(intent, view, IntentState.UNKNOWN, reason.GONE, held.detail), None
    if held.problem or held.value is None:
        if intent.applied is not None:  # an earlier level is in force: that one stays
            return _to(intent, view, IntentState.APPLIED, reason.CHANGE_FAILED, held.detail), None
        return _to(intent, view, IntentState.FAILED, _why(held), held.detail), None
    if abs(held.value - intent.before) < SAME and abs(intent.value - intent.before) >= SAME:
        if intent.applied is None:
            return _to(intent, view, IntentState.FAILED, reason.UNSUPPORTED, "the card put it back at once"), None
        return _to(intent, view, IntentState.APPLIED, reason.CHANGE_FAILED), None
    done = _to(intent, view, IntentState.APPLIED, reason.APPLIED)
    return replace(done, value=held.value, earlier=None, applied=view.now), None


def _applied(intent: Intent, view: Standing) -> tuple[Intent, Optional[Effect]]:
    assert view.wish is not None and intent.before is not None and intent.value is not None
    if view.seen is not None and not _ours(intent, view.seen):
        if view.seen < intent.before - SAME:
            return _to(intent, view, IntentState.OVERTAKEN, reason.OVERTAKEN, f"it is {view.seen:g} now"), None
        if intent.reapplied >= MOST_REAPPLIED:
            return _to(intent, view, IntentState.OVERTAKEN, reason.OVERTAKEN, "it keeps being set back"), None
        back = _to(intent, view, IntentState.SENT, reason.REAPPLIED)
        return replace(back, reapplied=intent.reapplied + 1), Effect.SET
    if view.wish.level != intent.level and view.target is not None:
        why = reason.DEEPER if view.wish.level > intent.level else reason.LIGHTER
        moved = _to(intent, view, IntentState.SENT, why)
        return replace(moved, level=view.wish.level, value=view.target, earlier=intent.value), Effect.SET
    return intent, None


def _undoing(intent: Intent, view: Standing, wanted: bool) -> tuple[Intent, Optional[Effect]]:
    if wanted:
        return _to(intent, view, IntentState.SENT, reason.SENT_AGAIN), Effect.SET
    held = _fresh(intent, view)
    if held is None:
        return _again(intent, view, Effect.ASK)
    assert intent.before is not None and intent.value is not None
    if held.problem == gpu_change.GONE:
        return _to(intent, view, IntentState.UNKNOWN, reason.GONE, held.detail), None
    if held.problem or held.value is None:
        return _again(replace(intent, detail=held.detail), view, Effect.ASK)
    if abs(held.value - intent.before) < SAME:
        return _to(intent, view, IntentState.UNDONE, reason.UNDONE), None
    if not _ours(intent, held.value):
        return _to(intent, view, IntentState.OVERTAKEN, reason.OVERTAKEN, f"it is {held.value:g} now"), None
    return _again(intent, view, Effect.RESTORE)


def _ours(intent: Intent, value: float) -> bool:
    """True for what we have set. A process that died between its note and the change left the earlier value."""
    return any(ours is not None and abs(value - ours) <= SAME for ours in (intent.value, intent.earlier))


def _why(held: Held) -> str:
    return _REASONS.get(held.problem, reason.CHANGE_FAILED if held.problem else reason.UNSUPPORTED)
