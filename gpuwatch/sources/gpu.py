"""From the driver's process lists to people: who uses each GPU, and which of them are certain (S11).

A pid counts as confirmed when two readings of the list, at most `CONFIRM_S` apart, and /proc at both times
agree on it: same start time, same cgroup, and started before the first of them. Nothing is kept over a restart;
after one it takes two fresh readings again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Optional

from gpuwatch.catalog import cgroup
from gpuwatch.model.errors import SourceError
from gpuwatch.model.gpu import Attribution, DriverState, GpuProcess, GpuReport, GpuSample, Owner, ProcessList
from gpuwatch.model.instant import Instant
from gpuwatch.system.protocols import Processes, ProcessFacts

CONFIRM_S = 60.0  # the older of two readings may be this old, and a lost GPU's last list too
_NOBODY = (0, 2**32 - 1)  # what a library of another struct layout gives as pids (N3)
_MPS_SERVER = "nvidia-cuda-mps"  # comm is cut after 15 bytes; the server and its control daemon
_DEAD = ("Z", "X")
_KIND_ORDER = ("compute", "graphics", "mps")


@dataclass(frozen=True)
class _Reading:
    """One good reading of a GPU's list."""

    taken: Instant
    owners: tuple[Owner, ...]
    confirmed: tuple[int, ...]


class GpuSource:
    """Keeps the last good reading of each GPU, to compare with."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._good: dict[str, _Reading] = {}
        self._comparable: set[str] = set()  # GPUs with no doubtful reading since the good one
        self._said: dict[str, Attribution] = {}

    def observe(self, report: GpuReport, now: Instant) -> tuple[Attribution, ...]:
        """Who uses each GPU of the report.

        Where the list was not read this time it is what was said before, whose `taken` tells its age.
        A GPU whose list was never read is left out.
        """
        for sample in report.samples:
            attribution = self._attribute(sample, report, now)
            if attribution is not None:
                self._said[sample.uuid] = attribution
        return tuple(self._said[sample.uuid] for sample in report.samples if sample.uuid in self._said)

    def _attribute(self, sample: GpuSample, report: GpuReport, now: Instant) -> Optional[Attribution]:
        """Something new to say, or None."""
        if sample.lost is not None:
            return self._of_lost(sample.uuid, now)
        said = self._said.get(sample.uuid)
        taken = report.taken_of(sample)  # a slow GPU's list may be older than the report, and come twice
        if report.state is not DriverState.OK or taken is None or sample.processes is None:
            return None
        if said is not None and said.taken == taken:
            return None
        return self._read(sample, sample.processes, taken)

    def _read(self, sample: GpuSample, listed: ProcessList, taken: Instant) -> Attribution:
        unknown = _implausible(sample, listed)
        owners: tuple[Owner, ...] = ()
        if unknown is None:
            try:
                owners = tuple(self._owners(listed.processes))
            except SourceError as error:
                unknown = str(error)
        if unknown is None and listed.processes and not owners:
            unknown = "none of the listed processes exists"
        if unknown is not None:
            self._comparable.discard(sample.uuid)  # a doubtful list in between ends what it could have confirmed
            return Attribution(sample.uuid, taken, unknown=unknown)
        earlier = self._good.get(sample.uuid) if sample.uuid in self._comparable else None
        confirmed = _confirmed(owners, earlier, taken)
        self._good[sample.uuid] = _Reading(taken, owners, confirmed)
        self._comparable.add(sample.uuid)
        return Attribution(sample.uuid, taken, owners, confirmed)

    def _of_lost(self, uuid: str, now: Instant) -> Attribution:
        """The last good list, looked up again: who is still the same process."""
        self._comparable.discard(uuid)
        good = self._good.get(uuid)
        age = None if good is None else now.since(good.taken)
        if good is None or age is None or age > CONFIRM_S:
            return Attribution(uuid, now, unknown="the GPU is lost, and its last list of processes is too old")
        try:
            owners = tuple(owner for owner in good.owners if self._still_there(owner))
        except SourceError as error:
            return Attribution(uuid, now, unknown=str(error))
        there = {owner.pid for owner in owners}
        confirmed = tuple(pid for pid in good.confirmed if pid in there)
        return Attribution(uuid, good.taken, owners, confirmed, stale_s=age)

    def _still_there(self, owner: Owner) -> bool:
        facts = self._look(owner.pid)
        return facts is not None and (facts.started_ticks, facts.cgroup) == (owner.started_ticks, owner.cgroup)

    def _owners(self, listed: Iterable[GpuProcess]) -> Iterator[Owner]:
        """Those that exist, one a pid: ended ones are dropped, and a list may be a moment old. Raises SourceError."""
        for process in _one_a_pid(listed):
            facts = self._look(process.pid)
            if facts is not None:
                yield _owner(process, facts)

    def _look(self, pid: int) -> Optional[ProcessFacts]:
        facts = self._processes.look(pid)
        return None if facts is None or facts.state in _DEAD else facts


def _implausible(sample: GpuSample, listed: ProcessList) -> Optional[str]:
    """Why the list can't be believed as a whole."""
    if listed.problem == "unsupported":
        return "the card does not tell who uses it"
    if listed.problem is not None:
        return f"the list of processes could not be read: {listed.problem}"
    nobody = [process.pid for process in listed.processes if process.pid in _NOBODY]
    if nobody:
        return f"the list of processes is implausible: it names pid {nobody[0]}"
    total = sample.readings.get("gpu.memory_total")
    used = sum(process.used_bytes or 0 for process in _one_a_pid(listed.processes))
    if total is not None and total.value is not None and used > total.value:
        return f"the list of processes is implausible: together they use {used} bytes of {total.value:.0f}"
    return None


def _one_a_pid(listed: Iterable[GpuProcess]) -> tuple[GpuProcess, ...]:
    """A process that both computes and draws is in two lists with the same memory."""
    found: dict[int, GpuProcess] = {}
    for process in sorted(listed, key=lambda each: _KIND_ORDER.index(each.kind)):
        first = found.setdefault(process.pid, process)
        if process.used_bytes is not None and process.used_bytes > (first.used_bytes or 0):
            found[process.pid] = replace(first, used_bytes=process.used_bytes)
    return tuple(found.values())


def _owner(process: GpuProcess, facts: ProcessFacts) -> Owner:
    who = cgroup.parse(facts.cgroup)
    return Owner(
        pid=process.pid,
        started_ticks=facts.started_ticks,
        started_boottime_s=facts.started_boottime_s,
        name=facts.name,
        uid=facts.uid,
        user=facts.user,
        kind=who.kind,
        unit=who.unit,
        container=who.container,
        cgroup=facts.cgroup,
        used_bytes=process.used_bytes,
        process_kind=process.kind,
        instance=process.instance,
    )


def _confirmed(owners: tuple[Owner, ...], earlier: Optional[_Reading], taken: Instant) -> tuple[int, ...]:
    age = None if earlier is None else taken.since(earlier.taken)
    if earlier is None or age is None or not 0 < age <= CONFIRM_S:
        return ()
    before = {(owner.pid, owner.started_ticks, owner.cgroup) for owner in earlier.owners}
    return tuple(
        owner.pid
        for owner in owners
        if (owner.pid, owner.started_ticks, owner.cgroup) in before
        and owner.started_boottime_s < earlier.taken.boottime_s
        and not owner.name.startswith(_MPS_SERVER)  # it serves everybody's processes: never a victim
    )
