"""Names for the owners of processes on GPUs, and what a container's GPU request comes to on this host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from gpuwatch.catalog import cgroup
from gpuwatch.model.container import Container, ContainerReport, GpuRequest
from gpuwatch.model.gpu import Attribution, Owner

MOST_PIDS = 1000


class OwnerNames:
    """Puts names on owners: container, compose service, user unit, Slurm job.

    `inside(pid)`: the pid in its innermost namespace, None when it can't be told (ProcFs.namespaced_pid).
    """

    def __init__(self, inside: Callable[[int], Optional[int]]) -> None:
        self._inside = inside
        self._pids: dict[tuple[int, int], Optional[int]] = {}
        self._containers: dict[str, Container] = {}
        self._report = ContainerReport()
        self._said: dict[str, tuple[Attribution, Attribution]] = {}  # by GPU: what came, and the same with names

    def name(self, attributions: Iterable[Attribution], report: ContainerReport) -> tuple[Attribution, ...]:
        """The same attributions with the names that are known. Costs nothing while nothing is new."""
        if report.containers is not self._report.containers or report.exits is not self._report.exits:
            self._report, self._said = report, {}
            self._containers = {one.container.id: one.container for one in report.exits}
            self._containers.update({each.id: each for each in report.containers})
        said: dict[str, tuple[Attribution, Attribution]] = {}
        for each in attributions:
            before = self._said.get(each.uuid)
            same = before is not None and before[0] is each
            said[each.uuid] = before if before is not None and same else (each, self._with_names(each))
        self._said = said
        return tuple(named for _, named in said.values())

    def _with_names(self, attribution: Attribution) -> Attribution:
        if len(self._pids) > MOST_PIDS:
            self._pids.clear()
        return replace(attribution, owners=tuple(map(self._named, attribution.owners)))

    def _named(self, owner: Owner) -> Owner:
        if owner.kind in ("slurm", "user_unit"):
            who = cgroup.parse(owner.cgroup)
            job = ".".join(part for part in (who.slurm_job, who.slurm_step) if part)
            return replace(owner, user_unit=who.user_unit or "", job=job)
        if owner.container is None:
            return owner
        key = (owner.pid, owner.started_ticks)
        if key not in self._pids:  # it never changes in the life of a process
            self._pids[key] = self._inside(owner.pid)
        container = self._containers.get(owner.container)
        owner = replace(owner, container_pid=self._pids[key])
        if container is None:
            return owner
        # The path of a cgroup does not always tell whose container it is; the engine that knows the id does.
        kind = container.engine if owner.kind == "other" and container.engine else owner.kind
        if container.kubernetes:
            kind = "kubepods"  # a kubelet's, through docker: never acted on
        return replace(
            owner, kind=kind, container_name=container.name, compose=container.compose, image=container.image
        )


def container_ids(attributions: Iterable[Attribution]) -> tuple[str, ...]:
    """The containers that have processes on GPUs: what ContainerSource.want() takes."""
    kinds = ("docker", "podman", "other")
    owners = (owner for each in attributions for owner in each.owners if owner.kind in kinds)
    return tuple(dict.fromkeys(owner.container for owner in owners if owner.container))


@dataclass(frozen=True)
class GrantedGpus:
    """What a request comes to on this host.

    `missing`: asked for, and not there. `untold`: what can't be matched from here (MIG names, device files).
    """

    uuids: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()


def granted(request: GpuRequest, gpus: Sequence[tuple[int, str]]) -> GrantedGpus:
    """A request against the GPUs there are (index and UUID of each that is not lost)."""
    by_index = dict(sorted(gpus))
    if request.all:
        return GrantedGpus(tuple(by_index.values()))
    if request.count:  # the runtime takes them from the beginning
        found = tuple(by_index.values())[: request.count]
        short = request.count - len(found)
        return GrantedGpus(found, (f"{short} more",) if short else ())
    if request.via == "devices":
        return GrantedGpus(untold=request.ids)
    uuids: dict[str, None] = {}
    missing: list[str] = []
    untold: list[str] = []
    for name in request.ids:
        matching = _matching(name, by_index)
        if len(matching) == 1:
            uuids[matching[0]] = None
        elif _is_mig(name):
            untold.append(name)
        else:
            missing.append(name)
    return GrantedGpus(tuple(uuids), tuple(missing), tuple(untold))


def _matching(name: str, by_index: dict[int, str]) -> list[str]:
    """An index, a UUID, or the beginning of exactly one UUID (NVIDIA's tools take that too)."""
    if name.isascii() and name.isdigit() and len(name) < 6:
        return [by_index[int(name)]] if int(name) in by_index else []
    if not name.startswith("GPU-") or len(name) < len("GPU-") + 4:
        return []
    return [uuid for uuid in by_index.values() if uuid.lower().startswith(name.lower())]


def _is_mig(name: str) -> bool:
    """MIG-<uuid>, or GPU:INSTANCE by index."""
    return name.startswith("MIG-") or ":" in name
