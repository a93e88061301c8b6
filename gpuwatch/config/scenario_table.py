"""The settings of a story, declared once: what checking and the JSON Schema are made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from gpuwatch.config.document import Node
from gpuwatch.config.kinds import Choice, Count, Duration, Flag, Found, Kind, ListOf, Schema, an
from gpuwatch.config.report import Report
from gpuwatch.config.scenario_kinds import (
    ANY_TEXT,
    LINE,
    ByName,
    Each,
    Facts,
    Figure,
    Figures,
    Gpus,
    Moments,
    Number,
    Order,
    Ramps,
    Shift,
    Size,
)
from gpuwatch.config.table import Fields, Record, Section, Setting
from gpuwatch.model import gpu_change
from gpuwatch.model.metric import METRICS
from gpuwatch.simulation import scenario as seen
from gpuwatch.simulation.scenario import Bystander, Card, Cooling, Job, Scenario
from gpuwatch.simulation.systemd import SimulatedUnit

MOST_S = 30 * 86400.0


class _Settings(Kind):
    """A whole gpuwatch.yaml, read later against its own table."""

    def check(self, node: Node, path: str, report: Report) -> Optional[Found]:
        """The node itself."""
        if node.kind != "table":
            report.error(node.place, path, f"expected the settings of a gpuwatch.yaml, not {an(node)}")
            return None
        return Found(node, node.place)

    def schema(self) -> Schema:
        """Any object."""
        return {"type": "object"}


# The host ---------------------------------------------------------------------------------------


def _build_card(fields: Fields, _path: str, _report: Report) -> tuple[Card, ...]:
    readings = {f"gpu.{name}": fields.value(name) for name in _GPU_METRICS if fields.value(name) is not None}
    cools = fields.value("cools", seen.COOLS_WHEN_IDLE)
    return (Card(fields.value("model", Card.model), readings, cools),) * int(fields.value("count", 1))


def _build_cooling(fields: Fields, _path: str, _report: Report) -> Optional[Cooling]:
    if "while" not in fields.found:
        return None
    return Cooling(fields.value("while"), fields.value("to", 45.0), fields.value("per_second", 1.0))


def _build_job(fields: Fields, _path: str, _report: Report) -> tuple[Job, Optional[int]]:
    unit = SimulatedUnit(
        name="",
        stops_in_s=fields.value("stops_in", 2.0),
        ignores_sigterm=fields.value("ignores_sigterm", False),
        survives_sigkill=fields.value("survives_sigkill", False),
        stop_timeout_s=fields.value("stop_timeout", 90.0),
        restart=fields.value("restarts", "no") == "always",
        comes_back_after_s=fields.value("comes_back_after"),
        refuses_stop=fields.value("refuses_stop", ""),
        loses_answer=fields.value("loses_answer", False),
        refuse_manual_stop=fields.value("refuse_manual_stop", False),
        takes_along=fields.value("takes_along", ()),
        containers=fields.value("containers", ()),
        inner_units=fields.value("inner_units", ()),
    )
    job = Job(
        unit,
        fields.value("gpus", ()),
        fields.value("user", Job.user),
        int(fields.value("gpu_memory", Job.gpu_memory)),
        fields.value("memory", Job.memory),
        fields.value("memory_max"),
        fields.value("process", Job.process),
        fields.value("active", True),
        fields.value("can_be_held", True),
    )
    return job, fields.value("pid")


_CGROUPS = {
    "docker": "/system.slice/docker-" + "c0ffee" * 10 + "c0ff.scope",
    "session": "/user.slice/user-1001.slice/session-7.scope",
    "user_unit": "/user.slice/user-1001.slice/user@1001.service/app.slice/jupyter.service",
    "slurm": "/system.slice/slurmstepd.scope/job_815/step_0/user/task_0",
    "kubepods": "/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + "beef" * 16 + ".scope",
    "other": "/",
}


def _build_process(fields: Fields, _path: str, _report: Report) -> Optional[Bystander]:
    if "pid" not in fields.found:
        return None
    return Bystander(
        fields.value("pid"),
        fields.value("cgroup", _CGROUPS[fields.value("kind", "session")]),
        fields.value("gpus", ()),
        fields.value("user", "wang"),
        int(fields.value("gpu_memory", 4 << 30)),
        fields.value("process", "python3"),
        fields.value("active", True),
    )


_GPU_METRICS = {name[4:]: metric for name, metric in METRICS.items() if metric.scope == "gpu" and name != "gpu.lost"}

_COOLING = Record(
    (
        Setting("while", Choice((seen.IDLE, seen.THROTTLED)), "When it cools.", required=True),
        Setting("to", Number(-40, 125), "Down to so many degrees Celsius.", default=45.0),
        Setting("per_second", Number(0, 100), "By so much a second.", default=1.0),
    ),
    _build_cooling,
)
_CARD = Record(
    (
        Setting("model", Choice(tuple(seen.MODELS)), "What kind of card.", default=Card.model),
        Setting("count", Count(1, 16), "So many of them.", default=1),
        Setting("cools", ListOf(_COOLING, most=4), "What lowers its temperature. Left out: being idle does."),
        *(Setting(name, Figure(metric), metric.text) for name, metric in _GPU_METRICS.items()),
    ),
    _build_card,
)
_ON_GPUS = (
    Setting("gpus", Gpus(), "The GPUs that it uses.", default=()),
    Setting("user", ANY_TEXT, "Whose it is."),
    Setting("gpu_memory", Size(), "Memory on each of its GPUs."),
    Setting("process", ANY_TEXT, "Name of its process."),
    Setting("pid", Count(2, 4_194_304), "Of its process."),
    Setting("active", Flag(), "false: it is not there yet.", default=True),
)
_UNIT = Record(
    (
        *_ON_GPUS,
        Setting("memory", Size(), "Memory of the host that it uses."),
        Setting("memory_max", Size(), "Its own limit (MemoryMax=). Left out: none."),
        Setting("stops_in", Duration(), "From SIGTERM to gone.", default=2.0),
        Setting("stop_timeout", Duration(), "Its TimeoutStopSec=.", default=90.0),
        Setting("ignores_sigterm", Flag(), "Only SIGKILL ends it.", default=False),
        Setting("survives_sigkill", Flag(), "It hangs in the kernel.", default=False),
        Setting("restarts", Choice(("no", "always")), "Its Restart=.", default="no"),
        Setting("comes_back_after", Duration(), "Somebody starts it again so long after it was stopped."),
        Setting("refuses_stop", ANY_TEXT, "What systemd answers to a stop."),
        Setting("loses_answer", Flag(), "The stop works, its answer is lost.", default=False),
        Setting("refuse_manual_stop", Flag(), "RefuseManualStop=yes", default=False),
        Setting("can_be_held", Flag(), "It has the drop-in that looks for the hold file.", default=True),
        Setting("takes_along", ListOf(ANY_TEXT), "Units that its stop would stop."),
        Setting("containers", ListOf(ANY_TEXT), "Foreign containers in its cgroup."),
        Setting("inner_units", ListOf(ANY_TEXT), "Units of another manager in its cgroup."),
    ),
    _build_job,
)
_PROCESS = Record(
    (
        *_ON_GPUS,
        Setting("kind", Choice(tuple(_CGROUPS)), "Whose process it is.", default="session"),
        Setting("cgroup", ANY_TEXT, "Its control group, instead of one of that kind."),
    ),
    _build_process,
)
_HOST = Section(
    (
        Setting("gpus", Each(_CARD, most=16), "The cards, in the order of their indices."),
        Setting("units", ByName(ANY_TEXT, _UNIT), "Services and scopes by name."),
        Setting("processes", Each(_PROCESS, most=100), "Processes on GPUs that are no unit's."),
        Setting("readings", Figures(), "Of the host itself, e.g. {memory_available: 3GiB}."),
        Setting("uptime", Duration(), "Since the host was booted.", default=Scenario.uptime_s),
        Setting("gpuwatch_up", Duration(), "Since gpuwatch was started.", default=Scenario.up_s),
    )
)


# What happens -----------------------------------------------------------------------------------


def _kept(fields: Fields, path: str, _report: Report) -> tuple[Fields, str]:
    return fields, path  # judged once it is known which GPUs and rules there are


_REFUSALS = ("no", gpu_change.UNSUPPORTED, gpu_change.NO_PERMISSION, gpu_change.GONE, gpu_change.FAILED)
WHAT = (
    Setting("set", Figures(), "Readings from now on: of the gpu, unit, filesystem or sensor."),
    Setting("ramp", Ramps(), "Readings that change in a straight line until `to`; of the host where nothing is named."),
    Setting("lost", Flag(), "The driver says that the card is gone (false: it is back)."),
    Setting("listed", Flag(), "false: the driver lists the card no longer."),
    Setting("driver", Choice(("ok", "silent", "absent", "mismatch")), "The driver as a whole."),
    Setting("power_limit", Number(1, 5000), "Somebody else sets the card's power limit, in watts."),
    Setting("refuses", Choice(_REFUSALS), "How the card answers when gpuwatch sets something."),
    Setting("attribution", Choice(("known", "unknown")), "Whether the list of processes can be read."),
    Setting("state", Choice(("active", "inactive", "failed")), "Of the unit or process."),
    Setting("kernel", LINE, "A line of the kernel log; {pci} is the card's address as the kernel writes it."),
    Setting("manager", LINE, "A line of systemd."),
    Setting("output", LINE, "A line that the unit prints."),
    Setting("host", Figures(), "Readings of the host from now on."),
    Setting("event", Facts(), "A fact of another source: {kind: ..., and its fields}."),
    Setting("gap", Duration(), "Nothing is sampled for so long."),
    Setting("restart", Choice(("daemon",)), "gpuwatch is started anew (with gap: so much later)."),
    Setting("reboot", Flag(), "The host is restarted (with gap: so much later; else a minute)."),
    Setting("clock", Shift(), "Somebody sets the wall clock."),
    Setting("order", Order(), "What somebody tells gpuwatch: disarm, arm, {what: maintenance-on, for: 2h}, ..."),
    Setting("reload", _Settings(), "A whole gpuwatch.yaml that takes the place of `config`."),
)
_HAPPENING = Record(
    (
        Setting("at", Duration(high_s=MOST_S), "When, since the story began.", example="10s", required=True),
        Setting("to", Duration(high_s=MOST_S), "Until when a ramp or its noise lasts."),
        Setting("gpu", Gpus(), "Which cards.", example="0"),
        Setting("unit", ANY_TEXT, "Which unit."),
        Setting("process", Count(2, 4_194_304), "Which process, by its pid."),
        Setting("filesystem", ANY_TEXT, "Which file system, by its mount point."),
        Setting("sensor", ANY_TEXT, "Which sensor of the host, by its key."),
        *WHAT,
        Setting("noise", Number(0, 1e12), "A ramp is up to so much higher or lower, in its unit.", default=0.0),
        Setting("age", Duration(), "How old the line is."),
        Setting("fields", Facts(), "Further fields of the line."),
    ),
    _kept,
)

# Expectations -----------------------------------------------------------------------------------

RULE_VERBS = (seen.FIRES, seen.CLEARS)
GPU_VERBS = (seen.THROTTLES,)
_ACTION_VERBS = (seen.UNDONE, seen.REFUSED, seen.FAILED, seen.WITHDRAWN, seen.UNKNOWN, seen.OVERTAKEN)
_ACTIONS = ("stop", "throttle", "hold", "snapshot")
VERBS: Mapping[str, tuple[Kind, str]] = {
    seen.FIRES: (ANY_TEXT, "A rule fires."),
    seen.CLEARS: (ANY_TEXT, "A rule no longer holds."),
    seen.STOPS: (ANY_TEXT, "A unit is asked to stop."),
    seen.KILLS: (ANY_TEXT, "A unit gets SIGKILL after its grace."),
    seen.STOPPED: (ANY_TEXT, "A unit is gone, and still was some seconds later."),
    seen.HOLDS: (ANY_TEXT, "A unit is kept from starting."),
    seen.THROTTLES: (ANY_TEXT, "The power limit of a card is lowered, e.g. GPU 0."),
    **{verb: (Choice(_ACTIONS), f"What became of an action: {verb}.") for verb in _ACTION_VERBS},
    seen.WOULD: (ANY_TEXT, "Observe mode: what would have been done, e.g. stop train@a.service"),
    seen.SAVES: (ANY_TEXT, "Evidence is saved about this."),
    seen.OPENS: (ANY_TEXT, "An incident on this begins."),
    seen.CLOSES: (ANY_TEXT, "An incident on this is closed."),
    seen.REFUSES: (ANY_TEXT, "An order is refused."),
    seen.TELLS: (ANY_TEXT, "People are told: firing, escalated, update, resolved."),
}
NEVER = {
    "fire": seen.FIRES,
    "stop": seen.STOPS,
    "kill": seen.KILLS,
    "throttle": seen.THROTTLES,
    "hold": seen.HOLDS,
    "would": seen.WOULD,
    "tell": seen.TELLS,
}
_EXPECTATION = Record(
    (
        *(Setting(verb, kind, text) for verb, (kind, text) in VERBS.items()),
        Setting("never", ANY_TEXT, "An action (stop, throttle, hold, kill, would, tell), fire, or a rule."),
        Setting("reason", ANY_TEXT, "The reason code; alone: why nothing is done."),
        Setting("on", ANY_TEXT, "What it is about: GPU 0, host, a unit, a mount point."),
        Setting("rule", ANY_TEXT, "For which rule it is done."),
        Setting("level", Count(0, 20), "Of a throttle."),
        Setting("within", Moments(), "Between these two moments of the story."),
        Setting("by", Duration(high_s=MOST_S), "Until this moment."),
        Setting("after", Duration(high_s=MOST_S), "From this moment on."),
    ),
    _kept,
)

STORY = (
    Setting("story", ANY_TEXT, "What it tells, in a line.", required=True),
    Setting("config", _Settings(), "A whole gpuwatch.yaml. Left out: the defaults, mode enforce, workload train@*."),
    Setting("interval", Duration(low_s=0.1, high_s=60), "Time between two samples, instead of the config's."),
    Setting("until", Duration(high_s=MOST_S), "When the story ends. Left out: 30s after the last moment in it."),
    Setting("strict", Flag(), "false: what fires or is done without being expected is no failure.", default=True),
    Setting("host", _HOST, "What there is."),
    Setting("timeline", Each(_HAPPENING), "What happens, by time."),
    Setting("expect", Each(_EXPECTATION), "What gpuwatch is to make of it, by time."),
)
