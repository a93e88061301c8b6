"""From the Docker-compatible API's JSON to facts. Everything in it was written by others: bounded, cleaned, optional.

Sources: the Docker Engine API reference (v1.41 to v1.52) and what podman 4.3 answers to the same questions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, Optional

from gpuwatch.model.container import COMPOSE_PROJECT, COMPOSE_SERVICE, Container, GpuRequest, Mount
from gpuwatch.system.protocols import EngineEvent, ListedContainer

MOST_MOUNTS, MOST_LABELS, MOST_GPUS = 64, 64, 64
MOST_TEXT, MOST_LABEL = 255, 512
ENDLESS_STOP_S = 600  # docker's StopTimeout -1 waits for ever

_ID = re.compile("[0-9a-f]{64}")
_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9})\d*)?(?:Z|([+-])(\d{2}):?(\d{2}))", re.ASCII
)
_SECRET = re.compile(r"passw|secret|token|credential|auth|api[._-]?key|private[._-]?key|webhook", re.IGNORECASE)
_USERINFO = re.compile(r"//[^/\s]*@")
_PODMAN_PROJECT = "io.podman.compose.project"
_PODMAN_UNIT = "PODMAN_SYSTEMD_UNIT"
_FIRST = (COMPOSE_PROJECT, COMPOSE_SERVICE, _PODMAN_PROJECT, _PODMAN_UNIT, "io.kubernetes.")  # kept of many labels
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_NO_GPUS = ("", "none", "void")
_GPU_FILE = re.compile(r"/dev/nvidia\d+")
_SIGNALS = {"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGABRT": 6, "SIGKILL": 9, "SIGUSR1": 10, "SIGUSR2": 12}
_SIGNALS["SIGTERM"] = 15
# What stands among an event's labels and is none
_NO_LABELS = frozenset({"name", "image", "exitCode", "containerExitCode", "execDuration", "execID", "podId", "signal"})
# podman's own words for what docker calls otherwise
_ACTIONS = {"died": "die", "remove": "destroy", "exec_died": "exec_die"}


class NonsenseError(ValueError):
    """What came is not what the API says."""


def utc_ns(text: Any) -> Optional[int]:
    """Nanoseconds since the epoch of an RFC 3339 time such as 2026-11-30T05:45:32.123456789Z.

    None for the zero time (year 1, "never") and for what is no time.
    """
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    day, clock, fraction, sign, hours, minutes = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    seconds = (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds()
    offset = (int(hours) * 3600 + int(minutes) * 60) * (-1 if sign == "-" else 1) if sign else 0
    whole = int(seconds) - offset
    return whole * 10**9 + int((fraction or "0").ljust(9, "0")) if whole > 0 else None


def listed(data: Any) -> tuple[ListedContainer, ...]:
    """GET /containers/json?all=1. Raises NonsenseError."""
    if not isinstance(data, list):
        raise NonsenseError("the list of containers is no list")
    return tuple(
        ListedContainer(each["Id"], _text(each.get("State")))
        for each in data
        if isinstance(each, dict) and _is_id(each.get("Id"))
    )


def container(data: Any, engine: str) -> Container:
    """GET /containers/ID/json of a `engine` (docker or podman). Raises NonsenseError."""
    if not isinstance(data, dict) or not _is_id(data.get("Id")) or not isinstance(data.get("State"), dict):
        raise NonsenseError("the facts of a container have no Id or no State")
    state, config, host = data["State"], _table(data, "Config"), _table(data, "HostConfig")
    labels = _labels(config.get("Labels"))
    status = _text(state.get("Status"))
    started, finished = utc_ns(state.get("StartedAt")), utc_ns(state.get("FinishedAt"))
    policy, log = _table(host, "RestartPolicy"), _table(host, "LogConfig")
    timeout = _number(config.get("StopTimeout")) or 0
    timeout = ENDLESS_STOP_S if timeout < 0 else timeout
    return Container(
        engine=engine,
        id=data["Id"],
        name=_text(data.get("Name")).lstrip("/"),
        status=status,
        image=_text(config.get("Image")),
        image_id=_text(data.get("Image")),
        created_ns=utc_ns(data.get("Created")),
        started_ns=started,
        finished_ns=finished,
        exit_code=_exit_code(state, status, finished),
        oom_killed=_oom_killed(state.get("OOMKilled"), engine),
        error=_text(state.get("Error")),
        pid=max(0, _number(state.get("Pid")) or 0),
        restart_count=_number(data.get("RestartCount")) or 0,
        restart_policy=_text(policy.get("Name")),
        stop_signal=_text(config.get("StopSignal")),
        # podman's compat API says 0 for "not given"
        stop_timeout_s=float(timeout) if timeout > 0 else None,
        log_driver=_text(log.get("Type")),
        runtime=_text(host.get("Runtime")),
        gpus=gpu_request(host, config, engine),
        mounts=tuple(_mounts(data.get("Mounts"))),
        compose_project=labels.get(COMPOSE_PROJECT) or labels.get(_PODMAN_PROJECT, ""),
        compose_service=labels.get(COMPOSE_SERVICE, ""),
        unit=labels.get(_PODMAN_UNIT, ""),
        labels=labels,
    )


def _exit_code(state: Mapping[str, Any], status: str, finished: Optional[int]) -> Optional[int]:
    """Engines say 0 for "none"; one that could not even be started (error, no end) has a code all the same."""
    code = _number(state.get("ExitCode"))
    ended = finished is not None and status not in ("running", "paused", "created")
    return code if ended or (code and state.get("Error")) else None


def _oom_killed(said: Any, engine: str) -> Optional[bool]:
    """podman's "no" says nothing: below the container's own cgroup (crun) it sees no OOM kill."""
    if said is True or (said is False and engine == "docker"):
        return bool(said)
    return None


def gpu_request(host: Mapping[str, Any], config: Mapping[str, Any], engine: str) -> Optional[GpuRequest]:
    """Which GPUs it asked for, from HostConfig and Config; None when none.

    DeviceRequests (docker --gpus, and CDI) come first. NVIDIA_VISIBLE_DEVICES, which CUDA images bring along as
    "all", counts only where something reads it: docker with a runtime of NVIDIA, podman through its hook.
    """
    for request in _list(host.get("DeviceRequests"))[:MOST_GPUS]:
        found = _device_request(request) if isinstance(request, dict) else None
        if found is not None:
            return found
    if engine != "docker" or "nvidia" in _text(host.get("Runtime")):
        found = _from_environment(_list(config.get("Env")))
        if found is not None:
            return found
    paths = (_text(each.get("PathOnHost")) for each in _list(host.get("Devices")) if isinstance(each, dict))
    files = tuple(path for path in paths if _GPU_FILE.fullmatch(path))[:MOST_GPUS]
    return GpuRequest("devices", ids=files) if files else None


def _device_request(request: Mapping[str, Any]) -> Optional[GpuRequest]:
    driver = _text(request.get("Driver"))
    ids = tuple(_text(each) for each in _list(request.get("DeviceIDs"))[:MOST_GPUS])
    if driver == "cdi":
        names = tuple(each.partition("=")[2] for each in ids if each.startswith("nvidia.com/gpu="))
        return _of_names("cdi", names)
    capabilities = [name for group in _list(request.get("Capabilities")) for name in _list(group)]
    if driver not in ("", "nvidia") or (driver == "" and "gpu" not in capabilities):
        return None
    if ids:
        return _of_names("device_requests", ids)
    count = _number(request.get("Count")) or 0
    return GpuRequest("device_requests", all=count < 0, count=max(0, count)) if count else None


def _from_environment(environment: list[Any]) -> Optional[GpuRequest]:
    texts = [each.partition("=") for each in environment if isinstance(each, str)]
    values = [value for name, _, value in texts if name == _VISIBLE]
    if not values or values[-1].strip() in _NO_GPUS:
        return None
    return _of_names("environment", tuple(_text(name.strip()) for name in values[-1].split(",")[:MOST_GPUS]))


def _of_names(via: str, names: tuple[str, ...]) -> Optional[GpuRequest]:
    if "all" in names:
        return GpuRequest(via, all=True)
    ids = tuple(name for name in names if name not in _NO_GPUS)
    return GpuRequest(via, ids=ids) if ids else None


def message(body: bytes) -> str:
    """What an engine says was wrong, "" when it says nothing."""
    try:
        data = load(body)
    except NonsenseError:
        return ""
    return _text(data.get("message")) if isinstance(data, dict) else ""


def events(lines: bytes) -> tuple[EngineEvent, ...]:
    """GET /events: one JSON object a line. What is no event of a container is left out, and so is a broken line.

    Raises NonsenseError when no line is what it should be.
    """
    found: list[EngineEvent] = []
    good, broken = 0, 0
    for line in lines.splitlines():
        try:
            event = _event(load(line)) if line.strip() else None
            good += 1
        except NonsenseError:
            broken += 1
            continue
        if event is not None:
            found.append(event)
    if broken and not good:
        raise NonsenseError("the events are no lines of JSON")
    return tuple(sorted(found, key=lambda event: event.at_ns))


def _event(data: Any) -> Optional[EngineEvent]:
    if not isinstance(data, dict):
        raise NonsenseError("an event is no object")
    actor = _table(data, "Actor")
    attributes = _table(actor, "Attributes")
    at_ns = _number(data.get("timeNano")) or (_number(data.get("time")) or 0) * 10**9
    if data.get("Type") != "container" or not _is_id(actor.get("ID")) or at_ns <= 0:
        return None
    # "exec_create: sh -c ..." holds a command line, which may hold anything; "health_status: unhealthy" is wanted.
    action, _, rest = _text(data.get("Action")).partition(":")
    return EngineEvent(
        at_ns=at_ns,
        container=actor["ID"],
        action=_ACTIONS.get(action, action),
        name=_text(attributes.get("name")),
        image=_text(attributes.get("image")),
        exit_code=_digits(attributes.get("exitCode")) if action in ("die", "died") else None,
        signal=_signal(attributes.get("signal")),
        health=rest.strip() if action == "health_status" else "",
        labels={key: value for key, value in _labels(attributes).items() if key not in _NO_LABELS},
    )


def _signal(said: Any) -> Optional[int]:
    return _SIGNALS.get(_text(said)) or _digits(said)


def _digits(said: Any) -> Optional[int]:
    return int(said) if isinstance(said, str) and re.fullmatch(r"[0-9]{1,9}", said) else _number(said)


def _mounts(data: Any) -> Iterator[Mount]:
    for each in _list(data)[:MOST_MOUNTS]:
        if isinstance(each, dict):
            # A volume has a name beside its place on the host; the place is what can be looked at.
            source = _text(each.get("Source"), 1024) or _text(each.get("Name"))
            yield Mount(source, _text(each.get("Destination"), 1024), each.get("RW") is True, _text(each.get("Type")))


def _labels(data: Any) -> dict[str, str]:
    """Labels without what may be a secret: people put passwords and tokens there too."""
    kept: dict[str, str] = {}
    items = data.items() if isinstance(data, dict) else ()
    for key, value in sorted(items, key=lambda item: (not item[0].startswith(_FIRST), item[0])):
        if len(kept) == MOST_LABELS:
            break
        if not isinstance(value, str) or len(value) > MOST_LABEL:
            continue
        if not _SECRET.search(key) and not _USERINFO.search(value):
            kept[_text(key)] = _text(value, MOST_LABEL)
    return kept


def load(data: bytes) -> Any:
    """JSON whose numbers are short. Raises NonsenseError."""
    try:
        return json.loads(data, parse_int=_short, parse_float=_no_float, parse_constant=_no_float)
    except (ValueError, RecursionError) as error:
        raise NonsenseError(f"what came is no JSON ({type(error).__name__})") from error


def _short(digits: str) -> int:
    # A Python before 3.9.14 takes minutes for a number of a million digits, in which nothing else runs.
    if len(digits) > 20:
        raise NonsenseError("a number is too long")
    return int(digits)


def _no_float(text: str) -> float:
    return float(text) if len(text) < 40 and text not in ("NaN", "Infinity", "-Infinity") else 0.0


def _is_id(thing: Any) -> bool:
    return isinstance(thing, str) and _ID.fullmatch(thing) is not None


def _table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    thing = data.get(name)
    return thing if isinstance(thing, dict) else {}


def _list(thing: Any) -> list[Any]:
    return thing if isinstance(thing, list) else []


def _number(thing: Any) -> Optional[int]:
    return thing if isinstance(thing, int) and not isinstance(thing, bool) and abs(thing) < 2**63 else None


def _text(thing: Any, most: int = MOST_TEXT) -> str:
    """One printable line; "" for what is no text."""
    if not isinstance(thing, str):
        return ""
    cut = thing[:most]
    return cut if cut.isprintable() else "".join(each if each.isprintable() else "\ufffd" for each in cut)
