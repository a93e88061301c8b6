"""Workloads and protected units: what may be acted on, and what never."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from gpuwatch.config.amounts import Size
from gpuwatch.config.kinds import NAME, Choice, Count, Duration, Flag, Found, ListOf, ScalarKind, Schema
from gpuwatch.config.ladder import LATER_ACTIONS
from gpuwatch.config.report import Report, quoted
from gpuwatch.config.table import Fields, Named, NamedList, Record, Setting, later
from gpuwatch.model.rule import ACTIONS
from gpuwatch.model.settings import Checkpoint, Mode, StopSettings, Workload
from gpuwatch.model.units import catches_all, matches, refusal

_UNIT = re.compile(r"[A-Za-z0-9:_.@\\*?\[\]!-]{1,255}")
_CONTAINER_SCOPE = re.compile(r"(?:docker|libpod|cri-containerd|crio|nerdctl)-.*\.scope")
_CONTAINER_NAME = r"[A-Za-z0-9*?\[][A-Za-z0-9_.*?\[\]!-]{0,254}"
_CONTAINER_LABEL = r"label:[A-Za-z0-9][A-Za-z0-9_./-]{0,254}=[^\x00-\x1f\x7f]{0,255}"
_COMPOSE_SERVICE = r"compose:[a-z0-9*?\[][a-z0-9_*?\[\]!-]{0,254}/[A-Za-z0-9*?\[][A-Za-z0-9_.*?\[\]!-]{0,254}"
_CONTAINER = re.compile(f"{_CONTAINER_LABEL}|{_COMPOSE_SERVICE}|{_CONTAINER_NAME}")


class UnitText(ScalarKind):
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
class WorkloadUnit(UnitText):
    """A leaf unit that may be acted on (S2)."""

    def problem(self, text: str) -> Optional[str]:
        """As systemd and S2 see it."""
        if catches_all(text):
            return "names every unit of the host; name the workload's own units, e.g. train@*.service"
        if _CONTAINER_SCOPE.fullmatch(text):
            return "is the scope of a container, which only its engine may touch; name the container below containers"
        return refusal(text)


@dataclass(frozen=True)
class WorkloadContainer(ScalarKind):
    """Containers by name, label or compose service. Which forms there are: model/container.py."""

    @property
    def words(self) -> str:
        """The forms."""
        return "a container's name such as trainer-*, label:KEY=VALUE or compose:PROJECT/SERVICE"

    def parse(self, text: str) -> str:
        """The pattern."""
        kind, colon, rest = text.partition(":")
        if colon and kind not in ("label", "compose"):
            hint = " (images are not matched, only containers)" if "/" in text else ""
            raise ValueError(f"{quoted(text)} is not {self.words}{hint}")
        if kind == "compose" and colon and rest and "/" not in rest:
            raise ValueError(f"{quoted(text)} names no service; compose:PROJECT/* means all of a project's")
        if not _CONTAINER.fullmatch(text):
            raise ValueError(f"{quoted(text)} is not {self.words}")
        project = rest.partition("/")[0] if kind == "compose" else text
        if project.strip("*?") == "":
            raise ValueError(f"{quoted(text)} names every container of the host; name the workload's own")
        if text.startswith("k8s_") or text.startswith("label:io.kubernetes."):
            raise ValueError(f"{quoted(text)} names containers of Kubernetes, which gpuwatch never touches")
        return text

    def schema(self) -> Schema:
        """A string."""
        return {"type": "string", "pattern": f"^(?:{_CONTAINER.pattern})$"}


@dataclass(frozen=True)
class ProtectedUnit(UnitText):
    """A unit that is never acted on. Refused when it would protect nothing, and only seem to."""

    def problem(self, text: str) -> Optional[str]:
        """Only services and scopes are ever acted on, so anything else here is a misunderstanding."""
        if text.endswith(".slice"):
            return "is a slice and would protect nothing; name the units in it"
        if "." not in text and not text.endswith("*"):
            return f"has no unit suffix and would protect nothing (did you mean '{text}.service'?)"
        return None


SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGINT", "SIGALRM", "SIGCONT", "SIGWINCH")

CHECKPOINT = Record(
    (
        Setting(
            "signal",
            Choice(SIGNALS),
            "Sent to the main process of the unit or container.",
            example="SIGUSR1",
            required=True,
        ),
        Setting("wait", Duration(low_s=1, high_s=3600), "Time for the job to write.", example="30s", required=True),
    ),
    lambda fields, _path, _report: (
        Checkpoint(fields.value("signal"), fields.value("wait")) if {"signal", "wait"} <= set(fields.found) else None
    ),
    absent={"command": later("the checkpoint is asked for by a signal")},
)

STOP = Record(
    (
        Setting(
            "grace",
            Duration(low_s=1, high_s=86400),
            "Time from the stop to SIGKILL. Left out: the unit's TimeoutStopSec, the container's StopTimeout.",
            example="60s",
        ),
        Setting(
            "warn_before",
            Duration(high_s=3600),
            "People are told so long before it stops, in the chat and on the host's terminals, and may forbid it.",
            default=0.0,
            example="60s",
        ),
        Setting("checkpoint", CHECKPOINT, "A signal to the job, and time to write its checkpoint, before the stop."),
    ),
    lambda fields, _path, _report: StopSettings(
        fields.value("grace"), fields.value("warn_before", 0.0), fields.value("checkpoint")
    ),
    absent={
        "signal": "is a setting of the unit itself: KillSignal=",
    },
)


_GIB = 1024**3


def _build_workload(fields: Fields, path: str, report: Report) -> Optional[Workload]:
    mode, allow = fields.value("mode"), fields.value("allow")
    if mode == Mode.ENFORCE.value and allow == ():
        report.warn(fields.place_of("allow"), f"{path}.allow", "is empty, so 'mode: enforce' does nothing here")
    if not fields.given("units", "containers"):
        report.error(fields.place, path, "needs 'units' or 'containers', e.g. units: [\"train@*.service\"]")
        return None
    if "name" not in fields.found:
        return None
    return Workload(
        name=fields.value("name"),
        units=fields.value("units", ()),
        containers=fields.value("containers", ()),
        priority=fields.value("priority", Workload.priority),
        mode=Mode(mode) if mode else None,
        allow=allow,
        stop=fields.value("stop", StopSettings()),
        gpu_memory_limit=fields.value("gpu_memory_limit"),
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
        ),
        Setting(
            "containers",
            ListOf(WorkloadContainer(), least=1),
            "Containers by name (* and ? as in a shell), label:KEY=VALUE or compose:PROJECT/SERVICE.",
            example='["trainer-*"]',
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
        Setting(
            "gpu_memory_limit",
            Size(_GIB // 64, 4096 * _GIB),
            "What it may use on any one GPU; rules about workload.gpu_memory_ratio judge it. Left out: no limit.",
            example="60GiB",
        ),
    ),
    build=_build_workload,
    conditions=({"anyOf": [{"required": ["units"]}, {"required": ["containers"]}]},),
    absent={
        "resume": later("what was stopped stays as systemd leaves it, and people start it again"),
        "logs": later("bundles hold no logs of applications"),
        "throttle": "is written once for the host, throttle: {step: 15%, lowest: 40%}, and a rule's ladder says when",
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
    """One pattern in two workloads is an error (whose mode would hold?); a protected unit is told."""
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
        for pattern in named.thing.containers:
            path = f"workloads[{named.name}].containers"
            if owner.get(f"container {pattern}", named.name) != named.name:
                text = f"{quoted(pattern)} belongs to workload '{owner[f'container {pattern}']}' already"
                report.error(found.place, path, text)
            owner.setdefault(f"container {pattern}", named.name)
