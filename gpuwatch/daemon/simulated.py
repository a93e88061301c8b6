"""The simulated edges: imported only where a simulated host is asked for."""

from __future__ import annotations

from collections.abc import Callable

from gpuwatch.alerts.courier import SenderCourier
from gpuwatch.daemon.app import Options, World, run_over
from gpuwatch.simulation.containers import SimulatedEngine
from gpuwatch.simulation.host import SimulatedHost
from gpuwatch.simulation.host_readings import SimulatedHostFiles, SimulatedUnitFiles
from gpuwatch.system.clock import SystemClock
from gpuwatch.system.files import RealFiles
from gpuwatch.system.protocols import Log
from gpuwatch.system.worker import ThreadWorker


def run_simulated(options: Options) -> int:
    """The daemon over a simulated host."""
    return run_over(options, lambda log, wake: simulated_world(SimulatedHost(SystemClock()), log, wake))


def simulated_world(host: SimulatedHost, log: Log, wake: Callable[[], None]) -> World:
    """The edges of a simulated host; disk, HTTP and clocks are real."""
    return World(
        clock=host.clock,
        gpus=host.gpus,
        processes=host.processes,
        systemd=host.systemd,
        courier=SenderCourier(host.clock),
        log=log,
        files=RealFiles(),
        open_journal=host.open_journal,
        doorbell=host.doorbell,
        hands=ThreadWorker("hands"),
        scribe=ThreadWorker("scribe", wake),
        clerk=ThreadWorker("clerk"),
        archivist=ThreadWorker("archivist"),
        engine_talk=ThreadWorker("containers", wake),
        engines=[SimulatedEngine(host.clock)],
        namespaced_pid=lambda pid: None,
        working_directory=lambda pid: None,
        host_files=SimulatedHostFiles(),
        unit_files=SimulatedUnitFiles(),
        host=host.name,
        simulated=True,
    )
