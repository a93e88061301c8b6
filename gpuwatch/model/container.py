"""Containers as their engine (docker, podman) tells of them: facts, the ledger of exits, what one look gave."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Optional

from gpuwatch.model.errors import SourceError
from gpuwatch.model.event import Event
from gpuwatch.model.instant import Instant
from gpuwatch.model.settings import Workload

COMPOSE_PROJECT = "com.docker.compose.project"
COMPOSE_SERVICE = "com.docker.compose.service"
_KUBERNETES = "io.kubernetes."
_KEEPS_NO_LOG = ("none", "passthrough")
LIVE = frozenset({"running", "paused", "restarting", "stopping"})


class EngineState(str, Enum):
    """State of one engine's API."""

    ABSENT = "absent"  # there is no socket
    STARTING = "starting"  # asked, and not answered yet
    OK = "ok"
    DOWN = "down"  # nobody listens on the socket, or we may not speak to it
    SLOW = "slow"  # no whole answer within its time
    FAILED = "failed"  # it answered with an error, or with what makes no sense


class EngineError(SourceError):
    """An engine could not be asked; `state` says in which way."""

    def __init__(self, text: str, state: EngineState) -> None:
        super().__init__(text)
        self.state = state


@dataclass(frozen=True)
class Mount:
    """A directory or volume of the host inside a container."""

    source: str
    target: str
    writable: bool
    kind: str = "bind"  # bind | volume | tmpfs | ...


@dataclass(frozen=True)
class GpuRequest:
    """Which GPUs a container asked for.

    One of: `all`; the first `count`; `ids` (UUIDs or unique beginnings of them, indices as nvidia-smi counts,
    MIG names). `via`: device_requests (docker --gpus), cdi, environment (NVIDIA_VISIBLE_DEVICES where a runtime
    of NVIDIA reads it), devices (device files; `ids` are then their paths, whose numbers are no indices).
    """

    via: str
    all: bool = False
    count: int = 0
    ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Container:
    """One container. Times are nanoseconds of UTC, as the engine gives them; None for "never".

    `started_ns` with the id is the identity of a run. `finished_ns` is the end of the run that ended last: while
    it runs, docker still tells that of the run before, podman doesn't. `exit_code` None: it runs, or never did.
    `oom_killed` None: the engine says no, which proves nothing (podman misses OOM kills below the container's own
    cgroup; and no engine's answer outranks the kernel's record: K15). `unit` is the systemd unit that runs it
    (podman's quadlet): stopping that unit removes container and log (A7). `labels` are bounded, those that look like
    secrets left out; environment variables are never kept.
    """

    engine: str  # docker | podman
    id: str  # 64 hex digits
    name: str  # without the leading slash
    status: str  # created | running | paused | restarting | exited | dead | removing | ... as the engine says
    image: str = ""
    image_id: str = ""
    created_ns: Optional[int] = None
    started_ns: Optional[int] = None
    finished_ns: Optional[int] = None
    exit_code: Optional[int] = None
    oom_killed: Optional[bool] = None
    error: str = ""
    pid: int = 0  # of its first process, as the host counts; 0 when it does not run
    restart_count: int = 0
    restart_policy: str = ""
    stop_signal: str = ""
    stop_timeout_s: Optional[float] = None
    log_driver: str = ""
    runtime: str = ""
    gpus: Optional[GpuRequest] = None
    mounts: tuple[Mount, ...] = ()
    compose_project: str = ""
    compose_service: str = ""
    unit: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def live(self) -> bool:
        """True while it has, or is about to have, processes."""
        return self.status in LIVE

    @property
    def compose(self) -> str:
        """PROJECT/SERVICE, "" outside of compose."""
        return f"{self.compose_project}/{self.compose_service}" if self.compose_project else ""

    @property
    def keeps_log(self) -> bool:
        """False where the engine has no log to give afterwards (log driver none, passthrough)."""
        return self.log_driver not in _KEEPS_NO_LOG

    @property
    def kubernetes(self) -> bool:
        """True for containers that a kubelet runs through docker: recognised, never acted on."""
        return self.name.startswith("k8s_") or any(key.startswith(_KUBERNETES) for key in self.labels)


@dataclass(frozen=True)
class Exit:
    """The end of one run of a container, kept after the container is gone.

    `known_by`: inspect (the engine's own record of the run) | event (the container was gone before it could be
    looked at; then `container` holds what was known before). `oom_event`: the engine told of an OOM kill in it during
    the run. `killed_with`: the last signal that was sent through the engine (stop, kill) during the run, None: none
    was; who sent another one is not known here. `removed_ns`: when the container was deleted.
    """

    container: Container
    finished_ns: int
    exit_code: Optional[int]
    known_by: str
    oom_event: bool = False
    killed_with: Optional[int] = None
    removed_ns: Optional[int] = None


@dataclass(frozen=True)
class Engine:
    """What is known about one engine. `taken`: when its containers were last read as a whole."""

    socket: str
    state: EngineState
    kind: str = ""  # docker | podman; "" while it has not said
    version: str = ""
    problem: str = ""
    taken: Optional[Instant] = None
    left_out: int = 0  # containers beyond the bound, which are not looked at


@dataclass(frozen=True)
class ContainerReport:
    """What the engines said last, and what happened since the report before.

    The same object while nothing changes but `events`, which is empty then. `exits` is the ledger, oldest first.
    """

    engines: tuple[Engine, ...] = ()
    containers: tuple[Container, ...] = ()
    exits: tuple[Exit, ...] = ()
    events: tuple[Event, ...] = ()

    @property
    def silent_kinds(self) -> tuple[str, ...]:
        """The kinds of engines (docker, podman) that have answered before and don't now."""
        answer = {each.kind for each in self.engines if each.state in (EngineState.OK, EngineState.STARTING)}
        return tuple(sorted({each.kind for each in self.engines if each.kind} - answer))

    def of(self, container_id: str) -> Optional[Container]:
        """A container by its full id; also one that is gone, from the ledger's newest entry."""
        found = next((each for each in self.containers if each.id == container_id), None)
        if found is not None:
            return found
        return next((each.container for each in reversed(self.exits) if each.container.id == container_id), None)


# Which containers a workload means: "NAME-GLOB", "label:KEY=VALUE", "compose:PROJECT/SERVICE" (globs there too)


def matches(container: Container, pattern: str) -> bool:
    """True when a workload's pattern names the container. Case counts."""
    if pattern.startswith("label:"):
        key, equals, value = pattern[len("label:") :].partition("=")
        return equals != "" and container.labels.get(key) == value
    if pattern.startswith("compose:"):
        project, _, service = pattern[len("compose:") :].partition("/")
        return (
            container.compose_project != ""
            and fnmatch.fnmatchcase(container.compose_project, project)
            and fnmatch.fnmatchcase(container.compose_service, service)
        )
    return fnmatch.fnmatchcase(container.name, pattern)


def workload_of(container: Container, workloads: Iterable[Workload]) -> Optional[Workload]:
    """The first workload that names the container; None for those of a kubelet, whatever they are called."""
    if container.kubernetes:
        return None
    return next((each for each in workloads if any(matches(container, one) for one in each.containers)), None)
