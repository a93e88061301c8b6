"""The life of one intent, as a pure transition: planned -> preserved -> sent -> gone -> verified, or another end.

advance(intent, view) gives the intent after one look and the effect to carry out once that is
written down. The caller commits the new intent before it carries out the effect, so after a crash
the state says at most one thing too much: `sent` without a call, which is then made again if the
same invocation is still active.

Invariants: no Checkpoint, Stop or Kill leaves before `preserved` (S1); none on a sample older than the bundle
(S3, S4); none on a target that refusal() forbids (S2); an intent of another boot does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Optional

from gpuwatch.actions.effect import Effect
from gpuwatch.model import reason
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.target import is_container
from gpuwatch.model.wish import Wish
from gpuwatch.system.protocols import UnitFacts

VERIFY_S = 5.0  # a stopped unit is looked at again this much later
KILL_AFTER_S = 5.0  # beyond the grace: the unit's own stop should have ended it
KILLED_S = 10.0  # after SIGKILL; what is left then is in D state, and hammering does not help
FRESH_WAIT_S = 300.0  # evidence is there but no fresh sample: the driver has gone silent
BUNDLE_WAIT_S = 30.0  # evidence that can't be made durable is tried again for this long
SYSTEMD_WAIT_S = 300.0  # nobody can say what became of it
ENDLESS_GRACE_S = 600.0  # TimeoutStopSec=infinity
RETRY_S = 5.0
FACTS_S = 3.0  # older facts of a unit say nothing about now


@dataclass(frozen=True)
class Refused:
    """Why a target must not be touched; `code` for programs, `text` for people."""

    code: str
    text: str


@dataclass(frozen=True)
class View:
    """What is known about one intent now.

    `unit` is None while systemd, or a container's engine, has not answered; `unit_seen` is when the question was asked.
    `preserved` is when the bundle became durable, `bundle_problem` why the last try failed.
    `called`: the stop job was queued by this process, `call_problem` that it was refused. `ended`: the reason code for
    there being no wish.
    """

    now: Instant
    wish: Optional[Wish]
    refusal: Callable[[UnitFacts], Optional[Refused]]
    unit: Optional[UnitFacts] = None
    unit_seen: Optional[Instant] = None
    preserved: Optional[Instant] = None
    bundle_problem: str = ""
    preserving: bool = False
    called: bool = False
    call_problem: str = ""
    call_unknown: bool = False
    ended: str = reason.CONDITION_ENDED


def advance(intent: Intent, view: View) -> tuple[Intent, Optional[Effect]]:
    """One transition at most. See the module."""
    if view.now.boot_id != intent.created.boot_id:
        return _of_another_boot(intent, view), None
    if intent.state is IntentState.PLANNED:
        return _planned(intent, view)
    if intent.state is IntentState.PRESERVED:
        return _preserved(intent, view)
    if intent.state is IntentState.SENT:
        return _sent(intent, view)
    if intent.state is IntentState.GONE:
        return _gone(intent, view), None
    return intent, None


def _to(intent: Intent, view: View, state: IntentState, why: str, detail: str = "") -> Intent:
    return replace(intent, state=state, changed=view.now, reason=why, detail=detail)


def _of_another_boot(intent: Intent, view: View) -> Intent:
    began = intent.state in (IntentState.SENT, IntentState.GONE)
    return _to(intent, view, IntentState.UNKNOWN if began else IntentState.WITHDRAWN, reason.OTHER_BOOT)


def _planned(intent: Intent, view: View) -> tuple[Intent, Optional[Effect]]:
    if view.wish is None:
        return _to(intent, view, IntentState.WITHDRAWN, view.ended), None
    if intent.action == "stop":
        if view.unit is None:
            return intent, None
        refused = view.refusal(view.unit)
        if refused is not None:
            return _to(intent, view, IntentState.REFUSED, refused.code, refused.text), None
        if not view.unit.running:
            return _to(intent, view, IntentState.WITHDRAWN, reason.ALREADY_GONE), None
        intent = _identified(intent, view.unit, view.wish)
    if view.preserved is not None:
        end = IntentState.VERIFIED if intent.action == "snapshot" else IntentState.PRESERVED
        return replace(_to(intent, view, end, reason.PRESERVED), preserved=view.preserved), None
    if view.bundle_problem:
        waited = view.now.since(intent.created)
        if waited is None or waited >= BUNDLE_WAIT_S:
            return _to(intent, view, IntentState.REFUSED, reason.NO_BUNDLE, view.bundle_problem), None
    return intent, None if view.preserving else Effect.PRESERVE


def _identified(intent: Intent, unit: UnitFacts, wish: Wish) -> Intent:
    if intent.invocation:
        return intent
    grace_s = wish.stop.grace_s if wish.stop.grace_s is not None else unit.stop_timeout_s
    return replace(
        intent,
        invocation=unit.invocation,
        main_pid=unit.main_pid,
        grace_s=ENDLESS_GRACE_S if grace_s is None else grace_s,
    )


def _preserved(intent: Intent, view: View) -> tuple[Intent, Optional[Effect]]:
    wish, preserved = view.wish, intent.preserved
    assert preserved is not None
    if wish is None:
        return _to(intent, view, IntentState.WITHDRAWN, view.ended), None
    intent = replace(intent, observe=wish.observe)
    newer = wish.sample.since(preserved)
    if newer is None or newer <= 0:
        waited = view.now.since(preserved)
        if waited is None or waited >= FRESH_WAIT_S:
            return _to(intent, view, IntentState.WITHDRAWN, reason.NO_FRESH_SAMPLE), None
        return intent, None
    unit = _seen_after(view, preserved)
    age = None if view.unit_seen is None else view.now.since(view.unit_seen)
    if unit is None or age is None or age > FACTS_S:
        return intent, None
    refused = view.refusal(unit)
    if refused is not None:
        return _to(intent, view, IntentState.REFUSED, refused.code, refused.text), None
    if not unit.running:
        return _to(intent, view, IntentState.WITHDRAWN, reason.ALREADY_GONE), None
    if unit.invocation != intent.invocation:
        return _to(intent, view, IntentState.WITHDRAWN, reason.REPLACED), None
    if wish.observe:
        return _to(intent, view, IntentState.WOULD_HAVE, reason.WOULD_HAVE), None
    first = _before_it(intent, view, wish)
    if first is not None:
        return first
    return replace(_to(intent, view, IntentState.SENT, reason.SENT), sent=view.now), Effect.STOP


def _before_it(intent: Intent, view: View, wish: Wish) -> Optional[tuple[Intent, Optional[Effect]]]:
    """What comes before a stop where the workload asks for it: a warning to people, then a word to the job. Each is
    written down first and never repeated; None when it is time for the stop."""
    if wish.stop.warn_before_s > 0:
        if intent.warned is None:
            warned = replace(_to(intent, view, intent.state, reason.WARNED), warned=view.now)
            return replace(warned, due_s=wish.stop.warn_before_s), Effect.WARN
        if (view.now.since(intent.warned) or 0.0) < wish.stop.warn_before_s:
            return intent, None
    if wish.stop.checkpoint is not None:
        if intent.checkpointed is None:
            told = _to(intent, view, intent.state, reason.CHECKPOINTED)
            return replace(told, checkpointed=view.now), Effect.CHECKPOINT
        if (view.now.since(intent.checkpointed) or 0.0) < wish.stop.checkpoint.wait_s:
            return intent, None
    return None


def _sent(intent: Intent, view: View) -> tuple[Intent, Optional[Effect]]:
    assert intent.sent is not None
    unit = _seen_after(view, intent.sent)
    waited = view.now.since(intent.sent) or 0.0
    if unit is None:
        if waited >= intent.grace_s + SYSTEMD_WAIT_S:
            silent = reason.ENGINE_SILENT if is_container(intent.target) else reason.SYSTEMD_SILENT
            return _to(intent, view, IntentState.UNKNOWN, silent), None
        return intent, None
    if not unit.running or unit.invocation != intent.invocation:
        return replace(_to(intent, view, IntentState.GONE, reason.GONE), gone=view.now), None
    if intent.killed is not None:
        if (view.now.since(intent.killed) or 0.0) >= KILLED_S:
            return _to(intent, view, IntentState.FAILED, reason.NOT_GONE), None
        return intent, None
    in_earnest = _still_meant(view, unit)
    if waited >= intent.grace_s + KILL_AFTER_S and in_earnest:
        return replace(_to(intent, view, IntentState.SENT, reason.KILLED), killed=view.now), Effect.KILL
    if waited >= intent.grace_s + SYSTEMD_WAIT_S:
        return _to(intent, view, IntentState.FAILED, reason.NOT_GONE), None
    stopping = unit.job != 0 or unit.active_state == "deactivating"
    if view.call_problem and not view.call_unknown and not stopping:
        return _to(intent, view, IntentState.FAILED, reason.STOP_FAILED, view.call_problem), None
    # A call that nobody knows of (a crash), or whose answer was lost, and nothing is under way: make it.
    lost = view.call_unknown and (view.now.since(intent.changed) or 0.0) >= RETRY_S
    if not stopping and view.wish is None:
        return _to(intent, view, IntentState.WITHDRAWN, view.ended), None
    if not stopping and in_earnest and (lost or not view.called):
        return _to(intent, view, IntentState.SENT, reason.SENT_AGAIN), Effect.STOP
    return intent, None


def _still_meant(view: View, unit: UnitFacts) -> bool:
    """Another blow needs what the first one needed: the wish, in earnest, on a target that may be touched, seen
    just now. What has cooled down, or is only observed by now, is left to systemd's own stop."""
    age = None if view.unit_seen is None else view.now.since(view.unit_seen)
    seen = age is not None and age <= FACTS_S
    return seen and view.wish is not None and not view.wish.observe and view.refusal(unit) is None


def _gone(intent: Intent, view: View) -> Intent:
    assert intent.gone is not None
    if (view.now.since(intent.gone) or 0.0) < VERIFY_S:
        return intent
    unit = _seen_after(view, intent.gone)
    if unit is None:
        return intent
    if unit.running and unit.invocation != intent.invocation:
        return _to(intent, view, IntentState.FAILED, reason.CAME_BACK)
    return _to(intent, view, IntentState.VERIFIED, reason.VERIFIED)


def _seen_after(view: View, moment: Instant) -> Optional[UnitFacts]:
    """The unit's facts if they are newer than `moment`."""
    if view.unit is None or view.unit_seen is None:
        return None
    newer = view.unit_seen.since(moment)
    return view.unit if newer is not None and newer > 0 else None
