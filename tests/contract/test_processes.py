"""protocols.Processes: the simulated one and /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Union

import pytest

from gpuwatch.model.errors import SourceError
from gpuwatch.simulation.gpus import SimulatedProcesses
from gpuwatch.system.procfs import ProcFs
from tests.lab.waiting import wait_for

SLEEPER = "import time; time.sleep(60)"


class SimulatedWorld:
    def __init__(self) -> None:
        self.processes = SimulatedProcesses()
        self._next = 5000

    def start(self) -> int:
        self._next += 1
        self.processes.put(self._next, "/system.slice/a.service", started_boottime_s=10.0 + self._next)
        return self._next

    def make_zombie(self, pid: int) -> None:
        self.processes.put(pid, "/", state="Z")

    def end(self, pid: int) -> None:
        self.processes.end(pid)

    def close(self) -> None:
        """Nothing to end."""


class ProcWorld:
    def __init__(self) -> None:
        self.processes = ProcFs()
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> int:
        child = subprocess.Popen([sys.executable, "-c", SLEEPER])
        self._children[child.pid] = child
        return child.pid

    def make_zombie(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def end(self, pid: int) -> None:
        self._children[pid].kill()
        self._children[pid].wait()

    def close(self) -> None:
        for child in self._children.values():
            child.kill()
            child.wait()


World = Union[SimulatedWorld, ProcWorld]


@pytest.fixture(params=[SimulatedWorld, ProcWorld], ids=["simulated", "proc"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world: World = request.param()
    yield world
    world.close()


def test_a_process_has_facts_that_stay(world: World) -> None:
    pid = world.start()
    first = world.processes.look(pid)
    assert first is not None
    assert first.pid == pid
    assert first.started_ticks > 0
    assert first.started_boottime_s > 0
    assert first.cgroup.startswith("/")
    assert first.user
    again = world.processes.look(pid)
    assert again is not None
    assert (again.started_ticks, again.cgroup, again.name) == (first.started_ticks, first.cgroup, first.name)


def test_an_ended_process_is_none(world: World) -> None:
    pid = world.start()
    world.end(pid)
    assert world.processes.look(pid) is None


@pytest.mark.parametrize("pid", [0, -1, 2**32 - 1])
def test_what_is_no_pid_is_none(world: World, pid: int) -> None:
    assert world.processes.look(pid) is None


def test_a_zombie_is_still_there(world: World) -> None:
    pid = world.start()
    world.make_zombie(pid)

    def state() -> bool:
        facts = world.processes.look(pid)
        return facts is not None and facts.state == "Z"

    wait_for(state, what="state Z")


class TestProcFs:
    """What only the real one has to know."""

    def put(self, root: Path, pid: int, stat: str, cgroup: str = "0::/a.service\n", uid: int = 0) -> ProcFs:
        folder = root / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_bytes(stat.encode("utf-8", "surrogateescape"))
        (folder / "status").write_text(f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        (folder / "cgroup").write_text(cgroup)
        return ProcFs(str(root))

    @pytest.mark.parametrize(
        "name", ["python3.11", "a b", "(sd-pam)", ") S 1 1", "a:b,c", "x) Z 1 (", "naïve", "\udcff\udcfe"]
    )
    def test_names_may_hold_anything(self, tmp_path: Path, name: str) -> None:
        """K13."""
        procfs = self.put(tmp_path, 7, f"7 ({name}) D {' '.join(['0'] * 18)} 4711 0 0\n")
        facts = procfs.look(7)
        assert facts is not None
        assert (facts.state, facts.started_ticks) == ("D", 4711)
        assert facts.name == name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        assert facts.started_boottime_s == pytest.approx(4711 / os.sysconf("SC_CLK_TCK"))

    @pytest.mark.parametrize(
        "content, path",
        [
            ("0::/system.slice/a.service\n", "/system.slice/a.service"),
            ("1:name=systemd:/system.slice/a.service\n0::/system.slice/a.service\n", "/system.slice/a.service"),
            ("12:memory:/m\n1:name=systemd:/system.slice/a.service\n0::/\n", "/system.slice/a.service"),
            ("12:memory:/m\n1:name=systemd:/docker/abc:def\n", "/docker/abc:def"),
            ("0::/\n", "/"),
            ("12:memory:/m\n", ""),
        ],
    )
    def test_the_hierarchy_of_systemd(self, tmp_path: Path, content: str, path: str) -> None:
        facts = self.put(tmp_path, 7, f"7 (x) S {' '.join(['0'] * 18)} 1 0\n", content).look(7)
        assert facts is not None
        assert facts.cgroup == path

    def test_a_user_without_a_name_is_a_number(self, tmp_path: Path) -> None:
        procfs = self.put(tmp_path, 7, f"7 (x) S {' '.join(['0'] * 18)} 1 0\n", uid=3_999_999)
        facts = procfs.look(7)
        assert facts is not None
        assert (facts.uid, facts.user) == (3_999_999, "3999999")

    def test_nonsense_is_an_error(self, tmp_path: Path) -> None:
        procfs = self.put(tmp_path, 7, "7 x S 1\n")
        with pytest.raises(SourceError, match="make sense"):
            procfs.look(7)

    def test_what_can_not_be_read_is_an_error(self, tmp_path: Path) -> None:
        procfs = self.put(tmp_path, 7, f"7 (x) S {' '.join(['0'] * 18)} 1 0\n")
        (tmp_path / "7" / "cgroup").unlink()
        (tmp_path / "7" / "cgroup").mkdir()  # any error but "no such file" stands for "hidden"
        with pytest.raises(SourceError, match="process 7"):
            procfs.look(7)

    def test_start_times_are_on_the_boottime_clock(self) -> None:
        facts = ProcFs().look(os.getpid())
        assert facts is not None
        assert 0 < facts.started_boottime_s < time.clock_gettime(time.CLOCK_BOOTTIME)
        assert facts.uid == os.getuid()


def test_where_a_process_works(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path) as child:
        assert ProcFs().working_directory(child.pid) == str(tmp_path)
        child.kill()
    assert ProcFs().working_directory(child.pid) is None
