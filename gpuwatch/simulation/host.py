"""A simulated host: eight GPUs, two services on them, a journal. What happens on it is a script over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional

from gpuwatch.model.gpu import GpuIdentity, GpuProcess, GpuReport
from gpuwatch.model.gpu_change import GpuChange
from gpuwatch.simulation.gpus import SimulatedGpus, SimulatedProcesses
from gpuwatch.simulation.journal import JournalWorld, SimulatedDoorbell, SimulatedJournal
from gpuwatch.simulation.systemd import SimulatedSystemd, SimulatedUnit
from gpuwatch.system.protocols import Clock, GpuDriver

GIB = 1 << 30
CALM_C = (61.0, 63.0, 62.0, 66.0, 64.0, 62.0, 65.0, 63.0)
IDLE_C = 34.0


@dataclass(frozen=True)
class Job:
    """A service with one process on some GPUs."""

    unit: SimulatedUnit
    gpus: tuple[int, ...]
    user: str
    used_bytes: int


TRAINING = Job(SimulatedUnit("train@llama.service", pid=41872, stops_in_s=2.0), (0, 1, 2, 3), "ml-team", 61 * GIB)
SERVING = Job(SimulatedUnit("serve@chat.service", pid=52110, stops_in_s=1.0), (4, 5, 6, 7), "web", 40 * GIB)


class SimulatedHost:
    """The edges of a host, each behind its protocol. `moment` is called before each sample with the
    seconds since the start, and may change anything."""

    def __init__(self, clock: Clock, name: str = "gpu-07", world_path: Optional[str] = None) -> None:
        self.clock, self.name = clock, name
        self.cards = SimulatedGpus(clock)
        self.gpus: GpuDriver = _Living(self)
        self.processes = SimulatedProcesses()
        self.systemd = SimulatedSystemd(clock, (TRAINING.unit, SERVING.unit), world_path)
        self.journal_world = JournalWorld()
        self.kernel = SimulatedJournal(clock, world=self.journal_world)  # the pen that writes kernel lines
        self.doorbell = SimulatedDoorbell(self.journal_world)
        self.moment: Callable[[float], None] = lambda seconds: None
        self._began = clock.monotonic()
        for index, celsius in enumerate(CALM_C):
            self.cards.heat(index, celsius)
        self.settle()

    def open_journal(self, cursor: str) -> SimulatedJournal:
        """The journal as the daemon reads it."""
        return SimulatedJournal(self.clock, cursor, self.journal_world)

    def live(self) -> None:
        """Bring processes and load in line with which units run, then let the script do its part."""
        self.settle()
        self.moment(self.clock.monotonic() - self._began)

    def runs(self, job: Job) -> bool:
        """True while the unit of a job has processes."""
        return self.systemd.unit(job.unit.name).running

    def settle(self) -> None:
        """Processes are on the GPUs for as long as their unit runs."""
        for job in (TRAINING, SERVING):
            facts = self.systemd.unit(job.unit.name)
            for index in job.gpus:
                self.cards.work(index, facts.running)
                listed = (
                    [GpuProcess(facts.main_pid or job.unit.pid, "compute", job.used_bytes)] if facts.running else []
                )
                self.cards.set_processes(index, listed)
            if facts.running and facts.main_pid:
                self.processes.put(facts.main_pid, name="python3.11", user=job.user, cgroup=facts.control_group)
            else:
                self.processes.end(job.unit.pid)


class _Living:
    """The GPUs, with life going on between two samples."""

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host

    def sample(self, with_processes: bool, spare_child: bool, wait_s: float) -> GpuReport:
        """See protocols.GpuDriver."""
        self._host.live()
        return self._host.cards.sample(with_processes, spare_child, wait_s)

    def fds(self) -> tuple[int, ...]:
        """See protocols.GpuDriver."""
        return self._host.cards.fds()

    def expect(self, gpus: Sequence[GpuIdentity]) -> None:
        """See protocols.GpuDriver."""
        self._host.cards.expect(gpus)

    def change(self, change: GpuChange) -> None:
        """See protocols.GpuDriver."""
        self._host.cards.change(change)

    def pause(self, why: str) -> None:
        """See protocols.GpuDriver."""
        self._host.cards.pause(why)

    def release(self, for_s: float) -> None:
        """See protocols.GpuDriver."""
        self._host.cards.release(for_s)

    def resume(self) -> None:
        """See protocols.GpuDriver."""
        self._host.cards.resume()

    def close(self, wait_s: float) -> None:
        """See protocols.GpuDriver."""
        self._host.cards.close(wait_s)
