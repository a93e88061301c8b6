"""Workloads and protected units: what may be acted on, and what never."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from gpuwatch.config.kinds import NAME, Choice, Count, Duration, Flag, Found, ListOf, ScalarKind, Schema
from gpuwatch.config.report import Report, quoted
from gpuwatch.config.rules import LATER_ACTIONS
from gpuwatch.config.table import Fields, Named, NamedList, Record, Setting, later
from gpuwatch.model.rule import ACTIONS
from gpuwatch.model.settings import Mode, StopSettings, Workload
from gpuwatch.model.units import catches_all, matches, refusal

_UNIT = re.compile(r"[A-Za-z0-9:_.@\\*?\[\]!-]{1,255}")


class _UnitText(ScalarKind):
    """What both kinds of unit globs have in common."""

    @property
    def words(self) -> str:
        """With an example."""
        return "a unit name such as train@*.service"

    def parse(self, text: str) -> str:
        """The glob."""
        if not _UNIT.fullmatch(text):
            raise ValueError(f"{quoted(text)} is not {self.words}")
        problem = self.problem(text)
        if problem:
            raise ValueError(f"{quoted(text)} {problem}")
        return text

    def problem(self, text: str) -> Optional[str]:
        """Why it can't stand here; completes a sentence that begins with the name."""
        raise NotImplementedError

    def schema(self) -> Schema:
        """A string."""
        return {"type": "string", "pattern": f"^{_UNIT.pattern}$"}


@dataclass(frozen=True)
class WorkloadUnit(_UnitText):
    """A leaf unit that may be acted on (S2)."""

    def problem(self, text: str) -> Optional[str]:
        """As systemd and S2 see it."""
        if catches_all(text):
            return "names every unit of the host; name the workload's own units, e.g. train@*.service"
        return refusal(text)


@dataclass(frozen=True)
class ProtectedUnit(_UnitText):
    """A unit that is never acted on. Refused when it would protect nothing, and only seem to."""

    def problem(self, text: str) -> Optional[str]:
        """Only services and scopes are ever acted on, so anything else here is a misunderstanding."""
        if text.endswith(".slice"):
            return "is a slice and would protect nothing; name the units in it"
        if "." not in text and not text.endswith("*"):
            return f"has no unit suffix and would protect nothing (did you mean '{text}.service'?)"
        return None


STOP = Record(
    (
        Setting(
            "grace",
            Duration(low_s=1, high_s=86400),
            "Time from the stop to SIGKILL. Left out: the unit's own TimeoutStopSec.",
            example="60s",
        ),
    ),
    lambda fields, _path, _report: StopSettings(fields.value("grace")),
    absent={
        "checkpoint": later("a stop is the unit's own stop; put the checkpoint into its ExecStop="),
        "warn_before": later("a stop is sent as soon as the evidence is on disk"),
        "signal": "is a setting of the unit itself: KillSignal=",
    },
)


def _build_workload(fields: Fields, path: str, report: Report) -> Optional[Workload]:
    mode, allow = fields.value("mode"), fields.value("allow")
    if mode == Mode.ENFORCE.value and allow == ():
        report.warn(fields.place_of("allow"), f"{path}.allow", "is empty, so 'mode: enforce' does nothing here")
    if "name" not in fields.found or "units" not in fields.found:
        return None
    return Workload(
        name=fields.value("name"),
        units=fields.value("units"),
        priority=fields.value("priority", Workload.priority),
        mode=Mode(mode) if mode else None,
        allow=allow,
        stop=fields.value("stop", StopSettings()),
    )


WORKLOADS = NamedList(
    noun="workload",
    settings=(
        Setting("name", NAME, "What the workload is called in messages.", example="training", required=True),
        Setting("enabled", Flag(), "false turns the entry off: its units are not touched.", default=True),
        Setting(
            "units",
            ListOf(WorkloadUnit(), least=1),
            "Services and scopes by name; * and ? match as in a shell. No slices, no sessions.",
            example='["train@*.service"]',
            required=True,
        ),
        Setting("priority", Count(0, 1000), "The lowest is acted on first.", default=Workload.priority),
        Setting("mode", Choice(("observe", "enforce")), "Left out: as the whole host.", example="enforce"),
        Setting(
            "allow",
            ListOf(Choice(ACTIONS, LATER_ACTIONS)),
            "Only these actions. Left out: every action; []: none.",
            example="[stop]",
        ),
        Setting("stop", STOP, "How it is stopped."),
    ),
    build=_build_workload,
    absent={
        "containers": later("it acts on systemd units only (units); nothing would guard these containers"),
        "gpu_memory_limit": later("no rule watches memory against a limit of the workload"),
        "resume": later("what was stopped stays as systemd leaves it, and people start it again"),
        "logs": later("bundles hold no logs of applications"),
        "throttle": later("the only action on a workload is stop"),
    },
)

PROTECT_UNITS = Setting(
    "units",
    ListOf(ProtectedUnit(), adds=True),
    "Units that are never touched, even if a workload names them. The lists of all files add up.",
    default=(),
    example="[postgresql.service]",
)


def check_overlaps(workloads: Iterable[Found], protect: tuple[str, ...], report: Report) -> None:
    """One unit glob in two workloads is an error (whose mode would hold?); a protected one is told."""
    owner: dict[str, str] = {}
    for found in workloads:
        named: Named = found.value
        if not isinstance(named.thing, Workload):
            continue
        for glob in named.thing.units:
            path = f"workloads[{named.name}].units"
            if owner.get(glob, named.name) != named.name:
                report.error(found.place, path, f"'{glob}' belongs to workload '{owner[glob]}' already")
            owner.setdefault(glob, named.name)
            if glob in protect or matches(glob, protect):
                report.warn(found.place, path, f"'{glob}' is protected (protect.units) and is never touched")
