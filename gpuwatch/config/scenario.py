"""Stories for `gpuwatch simulate`, from YAML; every problem at once, with its place, as in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Optional

from gpuwatch.catalog.default_rules import default_rules_text
from gpuwatch.config.document import Node, parse
from gpuwatch.config.kinds import Choice, Count, Duration, Flag, Found, Kind, ListOf, Schema, an
from gpuwatch.config.load import _check_whole, _default_values, _settings
from gpuwatch.config.merge import Values, merge
from gpuwatch.config.report import Place, Report, did_you_mean, in_order, quoted
from gpuwatch.config.root import root_table
from gpuwatch.config.scenario_kinds import (
    ALL_GPUS,
    ANY_TEXT,
    LINE,
    ByName,
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
    ramps_of,
    readings_of,
)
from gpuwatch.config.secrets import refuse_secrets
from gpuwatch.config.table import (
    ChannelType,
    Fields,
    Record,
    Section,
    Setting,
    fields_schema,
    join,
    read_fields,
    require,
)
from gpuwatch.model import gpu_change
from gpuwatch.model.errors import ConfigError
from gpuwatch.model.metric import METRICS
from gpuwatch.model.settings import Mode, Settings, Workload
from gpuwatch.simulation import scenario as seen
from gpuwatch.simulation.scenario import Bystander, Card, Cooling, Expectation, Happening, Job, Scenario
from gpuwatch.simulation.systemd import SimulatedUnit

AFTER_S = 30.0  # a story goes on for so long after the last moment that it mentions
MOST_S = 30 * 86400.0
FIRST_PID = 4242
TRAINING = Workload("training", units=("train@*.service",))


class ScenarioReader:
    """`channel_types` as for the configuration, which a story may hold as a whole. One reader reads many stories."""

    def __init__(self, channel_types: Mapping[str, ChannelType]) -> None:
        self._root = root_table(channel_types)
        self._defaults: Optional[Values] = None

    def read(self, data: bytes, file: str, settings: Optional[Settings] = None) -> tuple[Scenario, Settings]:
        """The story and the settings that it is played with: its own, or those that are given (its `config` is checked
        all the same). Raises ConfigError with every problem."""
        report = Report(file)
        node = parse(data, report)
        found: Optional[tuple[Scenario, Settings]] = None
        if node is not None and node.kind == "table":
            refuse_secrets(node, "", report)
            fields = read_fields(_STORY, {}, node, "", report)
            require(_STORY, fields, "", report)
            own = self._settings(fields, report)
            settings = own if settings is None else replace(settings, interval_s=own.interval_s)
            found = _scenario(fields, settings, report), settings
        elif not report.problems:
            said = "nothing" if node is None else an(node)
            report.error(Place(file), "", f"expected a story (story: ..., host: ..., timeline: ...), not {said}")
        if report.problems or found is None:
            raise ConfigError(in_order(report.problems, (file,)))
        return found

    def schema(self) -> Schema:
        """The JSON Schema of a story, for editors and other tools."""
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "gpuwatch story",
            "description": "For gpuwatch simulate, which checks more than a schema can.",
            **fields_schema(_STORY),
            "required": ["story"],
        }

    def _settings(self, fields: Fields, report: Report) -> Settings:
        if self._defaults is None:
            self._defaults = _default_values(self._root, default_rules_text(), report)
        values = self._defaults
        node: Optional[Node] = fields.value("config")
        if node is not None:
            own = read_fields(self._root.settings, self._root.absent, node, "config", report).found
            values = merge(self._root, values, own, "config", report, False)
            _check_whole(values, report, False)
        settings = _settings(values)
        if node is None:
            settings = replace(settings, mode=Mode.ENFORCE, workloads=(TRAINING,))
        return replace(settings, interval_s=fields.value("interval", settings.interval_s))


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
        Setting("gpus", ListOf(_CARD, most=16), "The cards, in the order of their indices."),
        Setting("units", ByName(ANY_TEXT, _UNIT), "Services and scopes by name."),
        Setting("processes", ListOf(_PROCESS), "Processes on GPUs that are no unit's."),
        Setting("readings", Figures(), "Of the host itself, e.g. {memory_available: 3GiB}."),
        Setting("uptime", Duration(), "Since the host was booted.", default=Scenario.uptime_s),
        Setting("gpuwatch_up", Duration(), "Since gpuwatch was started.", default=Scenario.up_s),
    )
)


# What happens -----------------------------------------------------------------------------------


def _kept(fields: Fields, path: str, _report: Report) -> tuple[Fields, str]:
    return fields, path  # judged once it is known which GPUs and rules there are


_REFUSALS = ("no", gpu_change.UNSUPPORTED, gpu_change.NO_PERMISSION, gpu_change.GONE, gpu_change.FAILED)
_WHAT = (
    Setting("set", Figures(), "Readings from now on: of the gpu, unit, filesystem or sensor."),
    Setting("ramp", Ramps(), "Readings that change in a straight line until `to`."),
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
        *_WHAT,
        Setting("noise", Number(0, 1000), "A ramp is up to so much higher or lower, another each time.", default=0.0),
        Setting("age", Duration(), "How old the line is."),
        Setting("fields", Facts(), "Further fields of the line."),
    ),
    _kept,
)

# Expectations -----------------------------------------------------------------------------------

_RULE_VERBS = (seen.FIRES, seen.CLEARS)
_GPU_VERBS = (seen.THROTTLES,)
_ACTION_VERBS = (seen.UNDONE, seen.REFUSED, seen.FAILED, seen.WITHDRAWN, seen.UNKNOWN, seen.OVERTAKEN)
_ACTIONS = ("stop", "throttle", "hold", "snapshot")
_VERBS: Mapping[str, tuple[Kind, str]] = {
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
_NEVER = {
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
        *(Setting(verb, kind, text) for verb, (kind, text) in _VERBS.items()),
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

_STORY = (
    Setting("story", ANY_TEXT, "What it tells, in a line.", required=True),
    Setting("config", _Settings(), "A whole gpuwatch.yaml. Left out: the defaults, mode enforce, workload train@*."),
    Setting("interval", Duration(low_s=0.1, high_s=60), "Time between two samples, instead of the config's."),
    Setting("until", Duration(high_s=MOST_S), "When the story ends. Left out: 30s after the last moment in it."),
    Setting("strict", Flag(), "false: what fires or is done without being expected is no failure.", default=True),
    Setting("host", _HOST, "What there is."),
    Setting("timeline", ListOf(_HAPPENING, most=1000), "What happens, by time."),
    Setting("expect", ListOf(_EXPECTATION, most=1000), "What gpuwatch is to make of it, by time."),
)


# From checked fields to the story ---------------------------------------------------------------


def _scenario(fields: Fields, settings: Settings, report: Report) -> Scenario:
    host: Mapping[str, Any] = fields.value("host", {})
    cards = tuple(card for entry in host.get("gpus", ()) for card in entry) or (Card(), Card())
    count = len(cards)
    jobs = []
    for number, (name, (job, pid)) in enumerate(host.get("units", {}).items()):
        unit = replace(job.unit, name=name, pid=pid or FIRST_PID + 1000 * number)
        jobs.append(replace(job, unit=unit, gpus=_indices(job.gpus, count)))
    bystanders = [replace(each, gpus=_indices(each.gpus, count)) for each in host.get("processes", ())]
    _check_gpus("host.units", fields, [index for each in (*jobs, *bystanders) for index in each.gpus], count, report)
    readings = {}
    if host.get("readings") is not None:
        found = readings_of(host["readings"], "host", "host.readings", report)
        readings = {name: reading for name, reading in found.items() if reading is not None}
    known = {each.unit.name for each in jobs}
    happenings = [_happening(each, path, count, known, report) for each, path in fields.value("timeline", ())]
    expect = [_expectation(each, path, settings, count, report) for each, path in fields.value("expect", ())]
    timeline = tuple(sorted((each for each in happenings if each is not None), key=lambda each: each.at_s))
    expected = tuple(each for each in expect if each is not None)
    last = max([0.0, *(_end(each) for each in timeline), *(each.to_s or each.from_s for each in expected)])
    return Scenario(
        fields.value("story", ""),
        cards,
        tuple(jobs),
        tuple(bystanders),
        readings,
        timeline,
        expected,
        fields.value("until", last + AFTER_S),
        host.get("uptime", Scenario.uptime_s),
        min(host.get("gpuwatch_up", Scenario.up_s), host.get("uptime", Scenario.uptime_s)),
        fields.value("strict", True),
    )


def _end(happening: Happening) -> float:
    return max(happening.at_s + happening.gap_s, happening.to_s or 0.0)


def _indices(gpus: tuple[int, ...], count: int) -> tuple[int, ...]:
    return tuple(range(count)) if gpus == ALL_GPUS else gpus


def _check_gpus(path: str, fields: Fields, gpus: list[int], count: int, report: Report) -> None:
    for index in sorted({index for index in gpus if index >= count}):
        place = fields.place_of("gpu") if path != "host.units" else fields.place_of("host")
        report.error(place, path, f"there is no GPU {index}; the host has {count} (GPU 0 to GPU {count - 1})")


_SUBJECTS = ("gpu", "unit", "filesystem", "sensor")


def _happening(fields: Fields, path: str, count: int, units: set[str], report: Report) -> Optional[Happening]:
    gpus = _indices(fields.value("gpu", ()), count)
    _check_gpus(path, fields, list(gpus), count, report)
    unit = fields.value("unit", "")
    if unit and unit not in units:
        text = f"host.units has no {quoted(unit)}{did_you_mean(unit, units)}"
        report.error(fields.place_of("unit"), join(path, "unit"), text)
    if not fields.given(*(each.name for each in _WHAT)):
        known = ", ".join(each.name for each in _WHAT)
        report.error(fields.place, path, f"says nothing that happens; there is {known}")
    scope = _scope(fields, path, report)
    readings = _figures(fields, "set", scope, path, report)
    readings = {**readings, **_figures(fields, "host", "host", path, report)}
    ramps: Mapping[str, tuple[float, float]] = {}
    if "ramp" in fields.found and scope:
        ramps = ramps_of(fields.value("ramp"), scope, join(path, "ramp"), report)
    if "ramp" in fields.found and fields.value("to", 0.0) <= fields.value("at", 0.0):
        report.error(fields.place_of("ramp"), join(path, "ramp"), "needs a moment `to` that is later than `at`")
    event = fields.value("event", {})
    if "event" in fields.found and not isinstance(event.get("kind"), str):
        report.error(fields.place_of("event"), join(path, "event"), "'kind' is missing, e.g. kind: log_gap")
    if "at" not in fields.found:
        return None
    return Happening(
        at_s=fields.value("at"),
        to_s=fields.value("to"),
        gpus=gpus,
        unit=unit,
        pid=fields.value("process", 0),
        subject=fields.value("filesystem", fields.value("sensor", "")),
        readings=readings,
        ramps=ramps,
        noise=fields.value("noise", 0.0),
        lost=fields.value("lost"),
        listed=fields.value("listed"),
        driver=fields.value("driver", ""),
        power_limit_w=fields.value("power_limit"),
        refuses=fields.value("refuses"),
        attribution=fields.value("attribution", ""),
        state=fields.value("state", ""),
        kernel=fields.value("kernel", ""),
        manager=fields.value("manager", ""),
        output=fields.value("output", ""),
        age_s=fields.value("age", 0.0),
        line_fields={name: str(each) for name, each in fields.value("fields", {}).items()},
        event=event,
        gap_s=fields.value("gap", 0.0),
        restart="restart" in fields.found,
        reboot=fields.value("reboot", False),
        clock_s=fields.value("clock", 0.0),
        order=fields.value("order", {}),
    )


def _scope(fields: Fields, path: str, report: Report) -> str:
    """What `set` and `ramp` are of."""
    said = fields.given(*_SUBJECTS)
    if len(said) > 1:
        report.error(fields.place_of(said[1]), path, f"is about {' and '.join(said)}; one entry is about one of them")
        return ""
    needs = fields.given("set", "ramp")
    if needs and not said:
        report.error(fields.place_of(needs[0]), join(path, needs[0]), f"of what? Name one of {', '.join(_SUBJECTS)}")
    for name, subject in (("lost", "gpu"), ("listed", "gpu"), ("power_limit", "gpu"), ("refuses", "gpu")):
        if name in fields.found and subject not in said:
            report.error(fields.place_of(name), join(path, name), f"needs `{subject}:`")
    if "output" in fields.found and "unit" not in said:
        report.error(fields.place_of("output"), join(path, "output"), "needs `unit:`")
    if "state" in fields.found and "unit" not in said and "process" not in fields.found:
        report.error(fields.place_of("state"), join(path, "state"), "needs `unit:` or `process:`")
    return said[0] if said else ""


def _figures(fields: Fields, name: str, scope: str, path: str, report: Report) -> Mapping[str, Any]:
    return readings_of(fields.value(name), scope, join(path, name), report) if name in fields.found and scope else {}


def _expectation(fields: Fields, path: str, settings: Settings, count: int, report: Report) -> Optional[Expectation]:
    verbs = fields.given(*_VERBS, "never") or fields.given("reason")
    if len(verbs) != 1:
        known = ", ".join((*_VERBS, "never", "reason"))
        said = f"expects {' and '.join(verbs)} at once" if verbs else f"expects nothing; there is {known}"
        report.error(fields.place, path, said)
        return None
    verb, name = verbs[0], str(fields.value(verbs[0], ""))
    rules = {rule.name for rule in settings.rules}
    never = verb == "never"
    if never:
        verb, name = (_NEVER[name], "") if name in _NEVER else (seen.FIRES, name)
    named = [(fields.value("rule"), "rule")]
    if verb in _RULE_VERBS and name:
        named.append((name, verbs[0]))
    for rule, key in named:
        if rule is not None and rule not in rules:
            hint = did_you_mean(rule, [*rules, *_NEVER] if never else rules)
            report.error(fields.place_of(key), join(path, key), f"no rule {quoted(rule)}{hint}")
    if verb in _GPU_VERBS and name and name not in {f"GPU {index}" for index in range(count)}:
        text = f"{quoted(name)} is no GPU of the host (GPU 0 to GPU {count - 1})"
        report.error(fields.place_of(verbs[0]), join(path, verbs[0]), text)
    first, last = fields.value("within", (fields.value("after", 0.0), fields.value("by")))
    return Expectation(
        verb,
        name,
        fields.value("on", ""),
        fields.value("rule", ""),
        fields.value("reason", "") if verb != seen.REASON else "",
        fields.value("level"),
        first,
        last,
        never,
        str(fields.place),
    )
