"""A service manager that exists only in memory, or in a file that outlives the process."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional

from gpuwatch.model import codec
from gpuwatch.model.errors import ActionError, SourceError
from gpuwatch.model.units import matches
from gpuwatch.system.protocols import Clock, CpuLimit, ListedUnit, UnitFacts
from gpuwatch.system.unit_facts import LISTED, RUNNING, senseless_limit, valid_name

_SIGKILL = 9
_STARTS_AGAIN_S = 0.1  # systemd's RestartSec=
_NO_LIMIT = CpuLimit()


@dataclass(frozen=True)
class SimulatedUnit:
    """A unit and how it takes being stopped. Times in seconds of the simulated clock."""

    name: str
    pid: int = 4000  # of its first main process; each later one is one more
    stops_in_s: float = 0.5  # from SIGTERM to gone
    ignores_sigterm: bool = False  # then SIGKILL ends it: systemd's after stop_timeout_s, or ours
    survives_sigkill: bool = False  # stuck in the kernel
    stop_timeout_s: Optional[float] = 90.0  # None: infinity
    restart: bool = False  # Restart=always: comes back when it ends other than by a stop job
    comes_back_after_s: Optional[float] = None  # somebody starts it again this long after it was stopped
    refuses_stop: str = ""  # StopUnit answers with this error
    loses_answer: bool = False  # StopUnit works, but its answer is lost
    refuse_manual_stop: bool = False
    load_state: str = "loaded"
    takes_along: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    inner_units: tuple[str, ...] = ()
    control_group: str = ""  # "": /system.slice/NAME
    watchdog_s: Optional[float] = None
    never_freezes: bool = False  # a process in state D: a freeze is under way until it is taken back
    cpu_limit: CpuLimit = _NO_LIMIT  # of its unit file
    no_cpu_limit: str = ""  # why its CPU limit must not be changed (unit_facts.why_no_cpu_limit)


@dataclass(frozen=True)
class Call:
    """A request that was made: verb stop, kill, freeze, thaw or limit."""

    at_s: float  # CLOCK_BOOTTIME
    verb: str
    unit: str
    invocation: str
    signal: int = 0
    cpu_limit: Optional[CpuLimit] = None


@dataclass(frozen=True)
class _Life:
    """Where one unit is in its life. Absolute times are CLOCK_BOOTTIME; None: not foreseen."""

    unit: SimulatedUnit
    state: str = "active"
    starts: int = 1
    result: str = "success"
    by_job: bool = False  # the end under way is a stop job's
    ends_at: Optional[float] = None
    ends_as: str = "success"
    starts_at: Optional[float] = None
    freezer: str = "running"
    ends_in_s: Optional[float] = None  # while frozen: how long the end that was under way will still take
    cpu_limit: Optional[CpuLimit] = None  # that was set; None: the unit file's


@dataclass(frozen=True)
class _World:
    lives: tuple[_Life, ...] = ()
    calls: tuple[Call, ...] = ()
    silent: bool = False
    seed: str = ""


class SimulatedSystemd:
    """protocols.Systemd over units that are given to it.

    With `path` the whole world lives in that JSON file: it is read before every call and replaced
    after every change, so a process that was killed and started anew (or another one) sees the same
    units. The state moves with the clock, whoever looks.
    """

    def __init__(self, clock: Clock, units: Sequence[SimulatedUnit] = (), path: Optional[str] = None) -> None:
        self._clock, self._path = clock, path
        self._world = _World(seed=path or "")
        if path is None or not os.path.exists(path):
            self._world = replace(self._world, lives=tuple(_Life(unit) for unit in units))
            self._save()

    # -- protocols.Systemd ---------------------------------------------------------------------

    def unit(self, name: str) -> UnitFacts:
        """See protocols.Systemd."""
        if not valid_name(name):
            raise SourceError(f"{name[:80]!r} is not the name of a unit")
        self._load()
        if self._world.silent:
            raise SourceError("systemd does not answer")
        life = self._find(name)
        if life is None:
            return UnitFacts(name, "not-found", "inactive", "dead", "", 0, "", None)
        return self._facts(life)

    def stop_unit(self, name: str) -> None:
        """See protocols.Systemd."""
        life = self._asked(name, "stop")
        unit = life.unit
        if unit.refuse_manual_stop:
            raise ActionError(f"systemd refused StopUnit of {name}: it may be requested by dependency only")
        if unit.refuses_stop:
            raise ActionError(f"systemd refused StopUnit of {name}: {unit.refuses_stop}")
        for other in (life, *(self._find(along) for along in unit.takes_along)):
            if other is not None and other.freezer == "frozen":
                pass  # the job is taken and fails at once, as in systemd 257
            elif other is not None and other.state in RUNNING:
                self._put(self._stopping(other))
            elif other is not None:
                self._put(replace(other, starts_at=None))  # a stop job also ends a restart that is waited for
        self._save()
        if unit.loses_answer:
            raise ActionError(f"StopUnit of {name} was sent, but systemd has not answered", unknown=True)

    def kill_unit(self, name: str, signal: int, main: bool = False) -> None:
        """See protocols.Systemd."""
        life = self._asked(name, "kill", signal=signal)
        if life.state not in RUNNING:
            raise ActionError(f"systemd refused KillUnit of {name}: no matching processes to kill")
        unit, now = life.unit, self._now()
        if main:
            self._save()  # a word to the job, which hears it and goes on
            return
        if signal == _SIGKILL and not unit.survives_sigkill:
            self._put(replace(life, ends_at=now, ends_as="signal"))
        elif signal != _SIGKILL and not unit.ignores_sigterm and life.freezer == "frozen":
            if life.ends_in_s is None:
                self._put(replace(life, ends_in_s=unit.stops_in_s))  # it hears of it when it runs again
        elif signal != _SIGKILL and not unit.ignores_sigterm and life.ends_at is None:
            self._put(replace(life, ends_at=now + unit.stops_in_s, ends_as="success"))
        self._save()

    def units(self, globs: Sequence[str]) -> tuple[ListedUnit, ...]:
        """See protocols.Systemd."""
        self._load()
        if self._world.silent and globs:
            raise SourceError("systemd does not answer")
        names = sorted(life.unit.name for life in self._world.lives if life.unit.name.endswith(LISTED))
        found = [self.unit(name) for name in names if matches(name, tuple(globs))]
        return tuple(ListedUnit(each.name, each.active_state, each.control_group) for each in found if each.running)

    def cpu_limit(self, name: str) -> CpuLimit:
        """See protocols.Systemd."""
        if not name.endswith(LISTED):
            raise SourceError(f"{name[:80]!r} is not the name of a service or scope")
        self.unit(name)
        life = self._find(name)
        return CpuLimit() if life is None else life.cpu_limit or life.unit.cpu_limit

    def set_cpu_limit(self, name: str, limit: CpuLimit) -> None:
        """See protocols.Systemd."""
        try:
            problem = senseless_limit(limit)
            if not problem and self.cpu_limit(name) == limit:
                return
            problem = problem or self._no_limit(self.unit(name))
        except SourceError as error:
            raise ActionError(f"the CPU limit of {name} was not changed: {error}") from error
        if problem:
            raise ActionError(f"the CPU limit of {name} was not changed: {problem}")
        self._put(replace(self._asked(name, "limit", cpu_limit=limit), cpu_limit=limit))
        self._save()

    def freeze_unit(self, name: str) -> None:
        """See protocols.Systemd."""
        life = self._settled(name, "freeze")
        if life.freezer == "frozen":
            return
        if life.unit.never_freezes:
            self._put(replace(life, freezer="freezing"))
            self._save()
            raise ActionError(f"freeze of {name} was sent, but systemd has not answered", unknown=True)
        left = None if life.ends_at is None else life.ends_at - self._now()
        self._put(replace(life, freezer="frozen", ends_at=None, ends_in_s=left))
        self._save()

    def thaw_unit(self, name: str) -> None:
        """See protocols.Systemd."""
        life = self._settled(name, "thaw")
        ends_at = life.ends_at if life.ends_in_s is None else self._now() + life.ends_in_s
        self._put(replace(life, freezer="running", ends_at=ends_at, ends_in_s=None))
        self._save()

    def close(self) -> None:
        """See protocols.Systemd."""

    # -- the hand of the test, or of the demo --------------------------------------------------

    @property
    def calls(self) -> tuple[Call, ...]:
        """Every request that was made, oldest first."""
        self._load()
        return self._world.calls

    def add(self, unit: SimulatedUnit) -> None:
        """A unit that runs from now on."""
        self._load()
        self._put(_Life(unit))
        self._save()

    def change(self, unit: SimulatedUnit) -> None:
        """From now on the unit of this name behaves like this; its state stays."""
        self._load()
        life = self._find(unit.name)
        self._put(_Life(unit) if life is None else replace(life, unit=unit))
        self._save()

    def start(self, name: str) -> None:
        """Somebody starts a unit that does not run: a new invocation."""
        self._load()
        life = self._find(name)
        if life is not None and life.state not in RUNNING:
            self._put(_started(life))
            self._save()

    def end(self, name: str, result: str = "exit-code") -> None:
        """A unit ends by itself."""
        self._load()
        life = self._find(name)
        if life is not None and life.state in RUNNING:
            self._put(replace(life, ends_at=self._now(), ends_as=result))
            self._save()

    def silence(self, silent: bool) -> None:
        """Let systemd answer nothing, or answer again."""
        self._load()
        self._world = replace(self._world, silent=silent)
        self._save()

    # -- inside --------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._clock.now().boottime_s

    def _no_limit(self, facts: UnitFacts) -> str:
        life = self._find(facts.name)
        if life is None or not facts.running:
            return f"{facts.name} does not run"
        if facts.containers or facts.inner_units:
            return f"{len(facts.containers + facts.inner_units)} containers or other units live in the cgroup"
        return life.unit.no_cpu_limit

    def _settled(self, name: str, verb: str) -> _Life:
        """A unit that may be frozen or thawed."""
        life = self._asked(name, verb)
        if life.by_job:
            raise ActionError(f"systemd refused {verb} of {name}: Unit has a pending job.")
        if life.state != "active":
            raise ActionError(f"systemd refused {verb} of {name}: Unit is inactive.")
        return life

    def _asked(self, name: str, verb: str, signal: int = 0, cpu_limit: Optional[CpuLimit] = None) -> _Life:
        """Note a request; the unit it is about."""
        if not valid_name(name):
            raise ActionError(f"{name[:80]!r} is not the name of a unit")
        self._load()
        if self._world.silent:
            raise ActionError(f"{verb} of {name} was sent, but systemd has not answered", unknown=True)
        life = self._find(name)
        if life is None or life.unit.load_state == "not-found":
            raise ActionError(f"systemd refused {verb} of {name}: Unit {name} not loaded.")
        call = Call(self._now(), verb, name, self._invocation(life), signal, cpu_limit)
        self._world = replace(self._world, calls=(*self._world.calls, call))
        self._save()
        return life

    def _stopping(self, life: _Life) -> _Life:
        unit, now = life.unit, self._now()
        if life.by_job and life.state == "deactivating":
            return life
        ends_at: Optional[float] = now + unit.stops_in_s
        ends_as = "success"
        if unit.ignores_sigterm:
            ends_at = None if unit.stop_timeout_s is None else now + unit.stop_timeout_s
            ends_as = "timeout"
        if unit.survives_sigkill:
            ends_at = None
        return replace(
            life,
            state="deactivating",
            by_job=True,
            ends_at=ends_at,
            ends_as=ends_as,
            starts_at=None,
            freezer="running",  # a freeze that is still under way is taken back
        )

    def _find(self, name: str) -> Optional[_Life]:
        """The unit as it is now."""
        for life in self._world.lives:
            if life.unit.name == name:
                return _moved(life, self._now())
        return None

    def _put(self, life: _Life) -> None:
        others = tuple(other for other in self._world.lives if other.unit.name != life.unit.name)
        self._world = replace(self._world, lives=(*others, life))

    def _invocation(self, life: _Life) -> str:
        words = f"{self._world.seed}/{life.unit.name}/{life.starts}"
        return hashlib.sha256(words.encode()).hexdigest()[:32]

    def _facts(self, life: _Life) -> UnitFacts:
        unit, runs = life.unit, life.state in RUNNING
        subs = {"active": "running", "deactivating": "stop-sigterm", "activating": "auto-restart", "failed": "failed"}
        company = tuple(name for name in unit.takes_along if self._runs(name))
        return UnitFacts(
            name=unit.name,
            load_state=unit.load_state,
            active_state=life.state,
            sub_state=subs.get(life.state, "dead"),
            invocation=self._invocation(life) if life.state != "inactive" else "",
            main_pid=unit.pid + life.starts - 1 if life.state in ("active", "deactivating") else 0,
            control_group=(unit.control_group or f"/system.slice/{unit.name}") if runs else "",
            stop_timeout_s=unit.stop_timeout_s,
            result=life.result,
            job=1 if life.by_job and life.state == "deactivating" else 0,
            refuse_manual_stop=unit.refuse_manual_stop,
            takes_along=company if runs else (),
            containers=unit.containers if runs else (),
            inner_units=unit.inner_units if runs else (),
            freezer=life.freezer if runs else "",
            watchdog_s=unit.watchdog_s,
        )

    def _runs(self, name: str) -> bool:
        """A unit that is not part of this world is taken to run."""
        life = self._find(name)
        return life is None or life.state in RUNNING

    def _load(self) -> None:
        if self._path is not None:
            with open(self._path, encoding="utf-8") as file:
                self._world = codec.decode(_World, json.load(file))

    def _save(self) -> None:
        if self._path is None:
            return
        fresh = f"{self._path}.{os.getpid()}"
        with open(fresh, "w", encoding="utf-8") as file:
            json.dump(codec.encode(self._world), file)
        os.replace(fresh, self._path)


def _moved(life: _Life, now: float) -> _Life:
    """What has become of a unit by `now`: at most a few ends and starts, each at its own time."""
    for _ in range(1000):
        if life.ends_at is not None and now >= life.ends_at:
            life = _ended(life)
        elif life.starts_at is not None and now >= life.starts_at:
            life = _started(life)
        else:
            break
    return life


def _ended(life: _Life) -> _Life:
    assert life.ends_at is not None
    unit, starts_at = life.unit, None
    state = "inactive" if life.ends_as == "success" else "failed"
    if life.by_job:
        if unit.comes_back_after_s is not None:
            starts_at = life.ends_at + unit.comes_back_after_s
    elif unit.restart:
        state, starts_at = "activating", life.ends_at + _STARTS_AGAIN_S
    return replace(
        life,
        state=state,
        result=life.ends_as,
        ends_at=None,
        ends_as="success",
        by_job=False,
        starts_at=starts_at,
        freezer="running",
        ends_in_s=None,
    )


def _started(life: _Life) -> _Life:
    return replace(
        life,
        state="active",
        starts=life.starts + 1,
        result="success",
        by_job=False,
        ends_at=None,
        ends_as="success",
        starts_at=None,
    )
