"""S8: kill -9 before and after every external call and commit, then a new start: the story ends the same.

Each case forks a child that lives the story of a hot card and really dies of SIGKILL at one point;
another child lives on from what is on disk. Time, systemd's world and what was delivered are outside
of both. The points are counted by a run that nobody kills.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest

from gpuwatch.evidence.manifest import verify
from gpuwatch.model.incident import IncidentState
from gpuwatch.model.intent import IntentState
from gpuwatch.simulation.host import SERVING, TRAINING, SimulatedHost
from gpuwatch.simulation.systemd import SimulatedSystemd
from gpuwatch.system.files import RealFiles
from tests.fakes.clock import FakeClock
from tests.fakes.courier import FakeCourier
from tests.scenarios.bench import QUICK, TRAIN, Bench

HOT_FROM_S, XID_AT_S, ACTION_S, END_S = 3.0, 6.0, 40.0, 240.0


class SharedClock(FakeClock):
    """A clock in shared memory: time does not go back when a process dies."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        super().__init__()
        stored = struct.unpack_from("d", memory, 0)[0]
        if stored:
            self.utc_s += stored - self.boottime_s
            self.boottime_s = stored

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        struct.pack_into("d", self._memory, 0, self.boottime_s)


class Mortal:
    """Passes calls on, and counts the moments before and after each; at one of them the process dies."""

    def __init__(self, thing: Any, moment: Callable[[], None], watched: tuple[str, ...]) -> None:
        self._thing, self._moment, self._watched = thing, moment, watched

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._thing, name)
        if name not in self._watched:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._moment()
            answer = found(*args, **kwargs)
            self._moment()
            return answer

        return call


class World:
    """What outlives a process: the clock, systemd, the service that takes messages, the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory = mmap.mmap(-1, 16)  # the time, and how many moments have passed
        self.deliveries = folder / "deliveries"
        SharedClock(self.memory).advance(0)

    def moments(self) -> int:
        """How many there were in the last life."""
        return int(struct.unpack_from("q", self.memory, 8)[0])

    def live(self, die_at: Optional[int]) -> int:
        """Fork and live the story from now to its end, or until the given moment; the exit status."""
        struct.pack_into("q", self.memory, 8, 0)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self._story(die_at)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        return os.waitpid(child, 0)[1]

    def _story(self, die_at: Optional[int]) -> None:
        count = 0

        def moment() -> None:
            nonlocal count
            if count == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
            struct.pack_into("q", self.memory, 8, count)

        bench = self.bench(moment)
        while bench.clock.boottime_s < 1000.0 + END_S:
            # All has happened after ACTION_S; what is left are messages that wait for their turn.
            step_s = 1.0 if bench.clock.boottime_s < 1000.0 + ACTION_S else 15.0
            bench.run(step_s, step_s)

    def bench(self, moment: Callable[[], None] = lambda: None) -> Bench:
        """A gpuwatch over this world."""
        clock = SharedClock(self.memory)
        systemd = SimulatedSystemd(clock, (TRAINING.unit, SERVING.unit), str(self.folder / "systemd.json"))
        courier = FakeCourier(self._deliver)
        edges = {
            "systemd": Mortal(systemd, moment, ("stop_unit", "kill_unit")),
            "files": Mortal(
                RealFiles(), moment, ("make_directory", "write", "rename", "sync_directory", "remove_tree")
            ),
        }
        host = SimulatedHost(clock)
        host.systemd = systemd
        _script(host, clock)
        bench = Bench(self.folder, QUICK, clock, courier=Mortal(courier, moment, ("send",)), host=host, **edges)
        writer: Any = Mortal(bench.assembly.writer, moment, ("commit",))
        bench.assembly.cycle.ports.writer = writer
        return bench

    def _deliver(self, key: str) -> None:
        descriptor = os.open(self.deliveries, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, key.encode() + b"\n")
        os.close(descriptor)


def _script(host: SimulatedHost, clock: FakeClock) -> None:
    """The same story whichever process lives it: heat while the job runs, one Xid with a fixed stamp."""
    said = False

    def moment(seconds: float) -> None:
        nonlocal said
        since = clock.boottime_s - 1000.0
        running = host.runs(TRAINING)
        host.cards.heat(3, 94.0 if running and since >= HOT_FROM_S else 70.0)  # 34 C in a second would be no heat
        if since >= XID_AT_S and not said:
            said = True
            pci = host.cards.pci(5).rsplit(".", 1)[0]
            host.kernel.kernel(f"NVRM: Xid (PCI:{pci}): 79, GPU has fallen off the bus.", age_s=since - XID_AT_S)

    host.moment = moment


def _whole(folder: Path) -> tuple[World, int]:
    world = World(folder)
    assert world.live(None) == 0
    return world, world.moments()


def _count() -> int:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return _whole(Path(folder))[1]


MOMENTS = _count()


def test_there_are_enough_moments() -> None:
    """Commits, files, StopUnit and deliveries: were one of them not watched, this number would fall."""
    assert MOMENTS > 60


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_killed_at_any_moment_the_story_ends_the_same(tmp_path: Path, moment: int) -> None:
    world = World(tmp_path)
    assert os.WTERMSIG(world.live(moment)) == signal.SIGKILL
    assert world.live(None) == 0
    bench = world.bench()
    stops = [call for call in bench.calls() if call[0] == "stop"]
    assert stops == [("stop", TRAIN)]
    ended = sorted((intent.action, intent.state) for intent in bench.intents)
    assert ended == [("snapshot", IntentState.VERIFIED), ("stop", IntentState.VERIFIED)]
    assert bench.bundles() == sorted(intent.bundle for intent in bench.intents), "one bundle each, nothing unfinished"
    for bundle in bench.bundles():
        assert verify(str(tmp_path / "state" / "evidence" / bundle)) == ()
    heat, lost = sorted(bench.incidents, key=lambda incident: incident.label)
    assert (heat.state, lost.state) == (IncidentState.RECOVERED, IncidentState.OPEN)
    keys = set(bench.stored().spool)
    assert keys == {f"{heat.id}/{name}/ops" for name in ("firing", "update", "resolved")} | {f"{lost.id}/firing/ops"}
    delivered = world.deliveries.read_text().split()
    assert set(delivered) == keys, "no message lost"
    assert len(delivered) <= len(keys) + 1, "at most the one that was being sent came twice"


def test_two_kills_in_a_row(tmp_path: Path) -> None:
    """Dying again in the recovery is no different."""
    world = World(tmp_path)
    world.live(MOMENTS // 2)
    world.live(3)
    assert world.live(None) == 0
    bench = world.bench()
    assert [call for call in bench.calls() if call[0] == "stop"] == [("stop", TRAIN)]
    assert len(bench.bundles()) == 2
