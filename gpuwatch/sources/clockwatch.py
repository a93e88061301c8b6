"""Jumps of the wall clock, and restarts of the host: from the clocks alone and what was stored of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Optional

from gpuwatch.model.event import Event, Scalar
from gpuwatch.model.instant import Instant

JUMP_S = 1.0  # less is drift: NTP slews by at most half a millisecond a second
HEARTBEAT_S = 60.0  # the stored sign of life is at most so old: each one is a write to the disk
RESTART_S = 900.0  # an orderly restart takes no longer from the daemon's stop to the next boot

RUNNING, STOPPED, BETWEEN = "running", "stopped", "between"


class ClockWatch:
    """Call observe() each cycle, and store state() when it changes, in the cycle's transaction.

    Events: time_jump (seconds, direction forward|back), once two cycles in a row have seen it: the two clocks are not
    read at one instant, and a pause between the reads looks like a jump that is taken back. reboot (clean, last_utc_s,
    away_s, uptime_s): clean is True after an orderly stop, False when there was none (power cut, crash, hang), None
    when nobody can say: single passes leave no sign that they still run, and a daemon that was stopped long before
    knows nothing of the rest.
    """

    def __init__(self, stored: Optional[Mapping[str, Any]] = None, resident: bool = True) -> None:
        """`stored`: what state() or stop() gave before; nonsense counts as nothing. `resident`: False for single
        passes (run --once), which must not call stop()."""
        self._phase = RUNNING if resident else BETWEEN
        self._last: Optional[Instant] = None  # sign of life
        self._last_phase = BETWEEN
        self._drift_s: Optional[float] = None  # UTC less CLOCK_BOOTTIME, at the last cycle
        self._stored_drift_s: Optional[float] = None  # at the last sign of life: it must not change each cycle
        self._doubt_s: Optional[float] = None  # another drift, seen once
        self._doubt_at: Optional[Instant] = None
        self._restore(stored or {})

    def observe(self, now: Instant) -> tuple[Event, ...]:
        """What the clocks say now."""
        events: list[Event] = []
        if self._last is not None and self._last.boot_id != now.boot_id:
            events.append(self._reboot(self._last, now))
            self._drift_s = self._doubt_s = self._doubt_at = None
            self._last = None
        jumps = self._jump(now)
        age_s = None if self._last is None else now.since(self._last)
        beat = age_s is None or not 0 <= age_s < HEARTBEAT_S or self._last_phase != self._phase
        if beat or jumps:
            self._last, self._last_phase = now, self._phase
            self._stored_drift_s = self._drift_s
        return (*events, *jumps)

    def stop(self, now: Instant) -> Mapping[str, Scalar]:
        """The state to store when the daemon is stopped in order."""
        self._last, self._last_phase = now, STOPPED
        return self.state()

    def state(self) -> Mapping[str, Scalar]:
        """What the next start needs. JSON; changes once a minute, and after a jump."""
        if self._last is None:
            return {}
        return {
            "boot_id": self._last.boot_id,
            "boottime_s": self._last.boottime_s,
            "utc_s": self._last.utc_s,
            "phase": self._last_phase,
            "drift_s": self._stored_drift_s,
            "doubt_s": self._doubt_s,
        }

    def _restore(self, stored: Mapping[str, Any]) -> None:
        boot_id, phase = stored.get("boot_id"), stored.get("phase")
        boottime_s, utc_s = _number(stored.get("boottime_s")), _number(stored.get("utc_s"))
        if not isinstance(boot_id, str) or boottime_s is None or utc_s is None:
            return
        self._last = Instant(boot_id, boottime_s, utc_s)
        self._last_phase = phase if phase in (RUNNING, STOPPED) else BETWEEN
        self._drift_s = self._stored_drift_s = _number(stored.get("drift_s"))
        self._doubt_s = _number(stored.get("doubt_s"))

    def _jump(self, now: Instant) -> list[Event]:
        drift_s = now.utc_s - now.boottime_s
        known_s, doubt_s, doubt_at = self._drift_s, self._doubt_s, self._doubt_at
        self._doubt_s = self._doubt_at = None
        if known_s is None or abs(drift_s - known_s) <= JUMP_S:
            self._drift_s = drift_s
            return []
        if doubt_s is None or abs(drift_s - doubt_s) > JUMP_S:
            self._doubt_s, self._doubt_at = drift_s, now
            return []
        self._drift_s = drift_s
        seconds = drift_s - known_s
        fields: dict[str, Scalar] = {
            "seconds": round(abs(seconds), 3),
            "direction": "forward" if seconds > 0 else "back",
        }
        text = f"the clock was set {fields['direction']} by {_span(abs(seconds))}"
        return [Event("time_jump", doubt_at or now, now, "host", fields, text=text)]

    def _reboot(self, last: Instant, now: Instant) -> Event:
        booted_utc_s = now.utc_s - now.boottime_s
        away_s = booted_utc_s - last.utc_s
        clean: Optional[bool] = {RUNNING: False, STOPPED: True}.get(self._last_phase)
        if clean and not -RESTART_S <= away_s <= RESTART_S:
            clean = None
        fields: dict[str, Scalar] = {
            "clean": clean,
            "last_utc_s": last.utc_s,
            "away_s": round(away_s, 3) if away_s >= 0 else None,  # the clock was wrong at one end
            "uptime_s": round(now.boottime_s, 3),
        }
        text = {
            True: "the host was restarted in order",
            False: "the host was restarted, and gpuwatch was not stopped before: a power cut, a crash or a hang",
            None: "the host was restarted; whether in order, nobody here can say",
        }[clean]
        return Event("reboot", Instant(now.boot_id, 0.0, booted_utc_s), now, "host", fields, text=text)


def _number(given: object) -> Optional[float]:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not math.isfinite(given):
        return None
    return float(given)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
