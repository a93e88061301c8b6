"""Plays a written story: brings a simulated host to what the story says of each moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Optional
from zlib import crc32

from gpuwatch.model.gpu import DriverState, GpuProcess
from gpuwatch.model.host import FileSystem, HostReport, Sensor
from gpuwatch.model.instant import Instant
from gpuwatch.model.reading import Reading, value
from gpuwatch.simulation.gpus import SimulatedGpus, SimulatedProcesses
from gpuwatch.simulation.host_readings import SimulatedHostFiles, SimulatedUnitFiles
from gpuwatch.simulation.journal import JournalWorld, SimulatedJournal
from gpuwatch.simulation.scenario import Bystander, Happening, Job, Scenario
from gpuwatch.simulation.stage_card import StageCard, StageGpus
from gpuwatch.simulation.systemd import SimulatedSystemd
from gpuwatch.system.protocols import UnitFacts

START_UTC_S = 1_796_000_000.0  # 2026-11-30
REBOOT_S, BOOTED_S = 60.0, 20.0  # away for so long; gpuwatch is there so long after the kernel began
_DRIVER = {
    "absent": (DriverState.ABSENT, "no NVIDIA driver is loaded"),
    "mismatch": (DriverState.MISMATCH, "kernel module 580.65.06, library 580.95.05"),
}


class StageClock:
    """Implements protocols.Clock; moves when it is told to. `elapsed_s` counts from the beginning of the story."""

    def __init__(self, uptime_s: float) -> None:
        self._boot, self._boottime_s, self._utc_s = 1, uptime_s, START_UTC_S
        self.elapsed_s = 0.0

    def now(self) -> Instant:
        """See protocols.Clock."""
        return Instant(f"{self._boot:032x}", self._boottime_s, self._utc_s)

    def monotonic(self) -> float:
        """See protocols.Clock."""
        return self.elapsed_s

    def advance_to(self, elapsed_s: float) -> None:
        """Time goes by."""
        seconds, self.elapsed_s = elapsed_s - self.elapsed_s, elapsed_s
        self._boottime_s += seconds
        self._utc_s += seconds

    def set_back_or_forth(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self._utc_s += seconds

    def reboot(self) -> None:
        """The kernel has begun anew, this long ago."""
        self._boot += 1
        self._boottime_s = BOOTED_S


class StageHolds:
    """Implements protocols.Holds in memory."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def path(self, unit: str) -> str:
        """See protocols.Holds."""
        return f"/run/gpuwatch/hold/{unit}"

    def held(self) -> frozenset[str]:
        """See protocols.Holds."""
        return frozenset(self.files)

    def hold(self, unit: str, why: str) -> None:
        """See protocols.Holds."""
        self.files.setdefault(unit, why)

    def release(self, unit: str) -> None:
        """See protocols.Holds."""
        self.files.pop(unit, None)


class StageSystemd:
    """Implements protocols.Systemd as far as gpuwatch's actions use it: the simulated one, some of its units with the
    drop-in that looks for a hold file."""

    def __init__(self, systemd: SimulatedSystemd, can_be_held: Collection[str]) -> None:
        self._systemd, self._can_be_held = systemd, can_be_held

    def unit(self, name: str) -> UnitFacts:
        """See protocols.Systemd."""
        facts = self._systemd.unit(name)
        if name not in self._can_be_held:
            return facts
        return replace(facts, absent_paths=(f"/run/gpuwatch/hold/{name}",))

    def __getattr__(self, name: str) -> Any:
        """All else is the simulated one's."""
        return getattr(self._systemd, name)


class Stage:
    """The edges of the host of a story, each behind its protocol. Call `play` before each look at them."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.clock = StageClock(scenario.uptime_s)
        self._sim = SimulatedGpus(self.clock, len(scenario.cards))
        self.cards = [StageCard(self._sim, index, card) for index, card in enumerate(scenario.cards)]
        self.gpus = StageGpus(self._sim, self.cards)
        self.processes = SimulatedProcesses()
        self.systemd = SimulatedSystemd(self.clock, [job.unit for job in scenario.jobs])
        self.holds = StageHolds()
        self.manager = StageSystemd(self.systemd, {job.unit.name for job in scenario.jobs if job.can_be_held})
        self.unit_files = SimulatedUnitFiles()
        self.journal_world = JournalWorld()
        self._pen = SimulatedJournal(self.clock, world=self.journal_world)
        host = SimulatedHostFiles()
        self._figures: dict[str, Reading] = {**host.quick(), "host.oom_kills": value(0)}
        self._figures["host.clock_synchronised"] = value(1)
        self._disks: dict[str, FileSystem] = dict(host.disks)
        self._sensors: dict[str, Sensor] = {each.key: each for chip in host.chips() for each in host.sensors(chip)}
        self._set_host(scenario.readings)
        self._unit_readings: dict[str, dict[str, Reading]] = {}
        self._there: dict[str, int] = {}  # main pid of each unit that has a process
        self._started: dict[int, float] = {}
        self._bystanders: dict[int, Bystander] = {each.pid: each for each in scenario.bystanders}
        self._untold: set[int] = set()  # cards whose list of processes can't be read
        self._ramps: list[Happening] = []
        self._next = 0
        for job in scenario.jobs:
            if not job.active:
                self.systemd.change(replace(job.unit, restart=False))
                self.systemd.end(job.unit.name, "success")
        self.play()

    def open_journal(self, cursor: str) -> SimulatedJournal:
        """The journal as gpuwatch reads it."""
        return SimulatedJournal(self.clock, cursor, self.journal_world)

    def play(self) -> tuple[Happening, ...]:
        """Bring the host to what the story says of now; what has happened since the last call."""
        elapsed_s, timeline = self.clock.elapsed_s, self.scenario.timeline
        first = self._next
        while self._next < len(timeline) and timeline[self._next].at_s <= elapsed_s:
            self._happen(timeline[self._next])
            self._next += 1
        self._ramp(elapsed_s)
        self._settle()
        for card in self.cards:
            card.live(elapsed_s)
        return timeline[first : self._next]

    def reboot(self) -> None:
        """The host is back: what runs has been started anew, and nobody's settings are left."""
        for job in self.scenario.jobs:
            for_good = replace(job.unit, restart=False, comes_back_after_s=None)
            self.systemd.change(for_good)
            self.systemd.end(job.unit.name)
            self.systemd.change(for_good)  # what has become of it is kept, for the clock begins anew
        self.clock.reboot()
        for job in self.scenario.jobs:
            self.systemd.change(job.unit)
            self.systemd.start(job.unit.name)
        for card in self.cards:
            card.reboot()
        self.holds.files.clear()
        self._there.clear()
        self._started.clear()

    def host(self) -> HostReport:
        """What the host says now."""
        now = self.clock.now()
        return HostReport(
            now,
            {**self._figures, "host.uptime": value(now.boottime_s)},
            tuple(replace(each, taken=now) for each in self._disks.values()),
            tuple(replace(each, taken=now) for each in self._sensors.values()),
        )

    def groups(self) -> Mapping[str, str]:
        """The control group of each unit that runs."""
        return {name: self._group(name) for name in self._there}

    # What happens

    def _happen(self, what: Happening) -> None:
        if what.ramps:
            self._ramps.append(what)
        for metric, reading in what.readings.items():
            self._set(what, metric, reading)
        for index in what.gpus:
            card = self.cards[index]
            card.happen(what)
            if what.attribution:
                (self._untold.add if what.attribution == "unknown" else self._untold.discard)(index)
        if what.driver:
            self._sim.silence(what.driver == "silent")
            self._sim.fail(*_DRIVER.get(what.driver, (DriverState.OK, "")))
        if what.attribution and not what.gpus:
            self._untold = set(range(len(self.cards))) if what.attribution == "unknown" else set()
        if what.state:
            self._change_state(what)
        self._write(what)
        self.clock.set_back_or_forth(what.clock_s)

    def _change_state(self, what: Happening) -> None:
        if what.pid in self._bystanders:
            self._bystanders[what.pid] = replace(self._bystanders[what.pid], active=what.state == "active")
        elif what.state == "active":
            if self._job(what.unit).can_be_held and what.unit in self.holds.held():
                return
            self.systemd.change(self._job(what.unit).unit)
            self.systemd.start(what.unit)
        else:
            self.systemd.end(what.unit, "success" if what.state == "inactive" else "exit-code")

    def _write(self, what: Happening) -> None:
        if what.kernel:
            for index in what.gpus or (0,):
                pci = self._sim.pci(index).rsplit(".", 1)[0]
                self._pen.kernel(what.kernel.replace("{pci}", pci), what.age_s)
        if what.manager:
            unit = {"UNIT": what.unit} if what.unit else {}
            self._pen.manager(what.manager, **unit, **what.line_fields)
        if what.output:
            self._pen.output(what.unit, what.output, **what.line_fields)

    def _set(self, what: Happening, metric: str, reading: Optional[Reading]) -> None:
        scope = metric.partition(".")[0]
        if scope == "gpu":
            for index in what.gpus:
                self.cards[index].set(metric, reading)
        elif scope == "unit":
            own = self._unit_readings.setdefault(what.unit, {})
            own.pop(metric, None)
            if reading is not None:
                own[metric] = reading
            self._put_unit(what.unit)
        elif reading is not None and metric.startswith(("host.disk_", "host.inodes_")):
            fresh = FileSystem(what.subject, "ext4", "/dev/sdb1", f"8:{len(self._disks)}")
            disk = self._disks.get(what.subject, fresh)
            self._disks[what.subject] = replace(disk, readings={**disk.readings, metric: reading})
        elif reading is not None and what.subject:
            chip, _, label = what.subject.partition("/")
            sensor = self._sensors.get(what.subject) or Sensor(what.subject, chip.partition("@")[0], label)
            self._sensors[what.subject] = replace(sensor, readings={**sensor.readings, metric: reading})
        elif reading is not None:
            self._set_host({metric: reading})

    def _set_host(self, readings: Mapping[str, Reading]) -> None:
        self._figures.update(readings)
        for part, whole, ratio in (
            ("host.memory_available", "host.memory_total", "host.memory_available_ratio"),
            ("host.swap_used", "host.swap_total", "host.swap_used_ratio"),
        ):
            if readings.keys() & {part, whole} and ratio not in readings:
                of, all_of = self._figures[part].value, self._figures[whole].value
                self._figures[ratio] = value(of / all_of) if of is not None and all_of else self._figures[part]

    def _ramp(self, elapsed_s: float) -> None:
        for ramp in list(self._ramps):
            assert ramp.to_s is not None
            done = min(1.0, (elapsed_s - ramp.at_s) / (ramp.to_s - ramp.at_s))
            for metric, (first, last) in ramp.ramps.items():
                number = first + (last - first) * done
                if ramp.noise and done < 1.0:
                    dice = crc32(f"{metric} {ramp.gpus} {elapsed_s:.3f}".encode()) / 2**32
                    number += ramp.noise * (2 * dice - 1)
                self._set(ramp, metric, value(number))
            if done >= 1.0:
                self._ramps.remove(ramp)

    # Who is there

    def _settle(self) -> None:
        """Processes are on the cards for as long as their unit runs."""
        listed: dict[int, list[GpuProcess]] = {index: [] for index in range(len(self.cards))}
        for job in self.scenario.jobs:
            pid = self._live_unit(job)
            for index in job.gpus if pid else ():
                listed[index].append(GpuProcess(pid, "compute", job.gpu_memory))
        for each in self._bystanders.values():
            if not each.active:
                self.processes.end(each.pid)
                continue
            self._put_process(each.pid, each.cgroup, each.name, each.user)
            for index in each.gpus:
                listed[index].append(GpuProcess(each.pid, "compute", each.gpu_memory))
        for index, processes in listed.items():
            self.cards[index].work(bool(processes))
            problem = "the call failed" if index in self._untold else None
            self._sim.set_processes(index, processes, problem)

    def _live_unit(self, job: Job) -> int:
        """The pid of its process, 0 for none."""
        name = job.unit.name
        facts = self.systemd.unit(name)
        pid = facts.main_pid if facts.running else 0
        before = self._there.get(name, 0)
        if before and pid != before:
            self.processes.end(before)
            del self._there[name]
            self._free_memory(name)
        if pid and pid != before:
            self._there[name] = pid
            self._put_process(pid, self._group(name), job.process, job.user)
            self._put_unit(name)
        return pid

    def _free_memory(self, name: str) -> None:
        """What an ended unit has used is available again, and nobody waits for memory."""
        used = self.unit_files.groups[self._group(name)]["unit.memory_used"].value or 0.0
        self.unit_files.end(self._group(name))
        available, total = (self._figures[f"host.memory_{which}"].value for which in ("available", "total"))
        if available is not None and total is not None:
            self._set_host({"host.memory_available": value(min(total, available + used))})
            for which in ("some", "full"):
                self._figures[f"host.memory_pressure_{which}"] = value(0.0)

    def _put_process(self, pid: int, cgroup: str, name: str, user: str) -> None:
        if pid not in self._started:
            now_s = self.clock.now().boottime_s
            self._started[pid] = min(10.0, now_s / 2) if self.clock.elapsed_s == 0.0 else now_s
        self.processes.put(pid, cgroup, name, user, 1001, self._started[pid])

    def _put_unit(self, name: str) -> None:
        if name not in self._there:
            return
        job, group = self._job(name), self._group(name)
        self.unit_files.put(group, job.memory, job.memory_max)
        readings = {**self.unit_files.groups[group], **self._unit_readings.get(name, {})}
        used, most = readings["unit.memory_used"].value, readings["unit.memory_max"].value
        if used is not None and most and "unit.memory_used_ratio" not in self._unit_readings.get(name, {}):
            readings["unit.memory_used_ratio"] = value(used / most)
        self.unit_files.groups[group] = readings

    def _group(self, name: str) -> str:
        return self._job(name).unit.control_group or f"/system.slice/{name}"

    def _job(self, name: str) -> Job:
        return next(job for job in self.scenario.jobs if job.unit.name == name)
