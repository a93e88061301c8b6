"""Which threads hang in the kernel, and whether it is the GPU driver that they hang in."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest

from gpuwatch.system.stuck import StuckFinder
from tests.fakes.host_tree import HostTree

ENTRY = "[<0>] do_syscall_64+0x5c/0x90\n"
IOCTL = f"[<0>] os_acquire_rwlock_write+0x32/0x40 [nvidia]\n[<0>] nvidia_ioctl+0x1/0x9 [nvidia]\n{ENTRY}"
NFS = f"[<0>] rpc_wait_bit_killable+0x11/0x70 [sunrpc]\n{ENTRY}"


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


@pytest.fixture
def finder(tree: HostTree) -> StuckFinder:
    return StuckFinder(tree.proc)


def test_a_thread_of_a_holder(tree: HostTree, finder: StuckFinder) -> None:
    tree.process(700, "python3", ((700, "S"), (702, "D")), ("/dev/null", "/dev/nvidia3"), "nvidia_ioctl", IOCTL)
    tree.process(800, "bash", ((800, "D"),), ("/dev/null",), "nfs_wait", NFS)  # nobody's GPU process
    look = finder.look(())
    assert look.problem == ""
    (stuck,) = look.threads
    assert (stuck.pid, stuck.thread, stuck.name, stuck.cgroup) == (700, 702, "python3", "/system.slice/train.service")
    assert (stuck.uid, stuck.user, stuck.started_ticks) == (0, "root", 7000)
    assert stuck.wchan == "nvidia_ioctl"
    assert stuck.stack[1] == "nvidia_ioctl+0x1/0x9 [nvidia]"
    assert stuck.in_driver is True
    assert stuck.since is None


@pytest.mark.parametrize(
    "wchan, stack, expected",
    [
        ("nvidia_ioctl", IOCTL, True),
        ("rpc_wait_bit_killable", NFS, False),
        ("down_write", None, None),  # a lock: whose, only the stack tells
        ("nvidia_ioctl", None, True),
        ("nvme_wait_ready", None, None),
        ("uvm_suspend", "", True),
        ("_nv012345rm", None, True),
        ("0", None, None),
        ("down_write", "[<0>] down_write+0x1/0x9\n" * 20 + IOCTL, True),
    ],
)
def test_whose_code_it_hangs_in(
    tree: HostTree, finder: StuckFinder, wchan: str, stack: Optional[str], expected: Optional[bool]
) -> None:
    tree.process(700, threads=((700, "D"),), wchan=wchan, stack=stack)
    (stuck,) = finder.look((700,)).threads
    assert stuck.in_driver is expected
    assert stuck.wchan == ("" if wchan == "0" else wchan)
    assert len(stuck.stack) <= 12


@pytest.mark.parametrize("name", ["nv_queue", "nvidia-modeset/", "UVM global queu", "irq/126-nvidia"])
def test_threads_of_the_driver(tree: HostTree, finder: StuckFinder, name: str) -> None:
    tree.process(90, name, ((90, "D"),))
    assert [each.name for each in finder.look(()).threads] == [name]


def test_a_killed_process_of_which_one_thread_remains(tree: HostTree, finder: StuckFinder) -> None:
    tree.process(700, threads=((700, "Z"), (701, "D")))
    assert [each.thread for each in finder.look((700,)).threads] == [701]


def test_nobody(tree: HostTree, finder: StuckFinder) -> None:
    tree.process(700, threads=((700, "R"), (701, "S")), links=("/dev/nvidia0", "/dev/nvidiactl"))
    assert finder.look((700, 999999)).threads == ()


@pytest.mark.parametrize("name", [") D 0 0 (", "a b", "(sd-pam)"])
def test_names_may_hold_anything(tree: HostTree, finder: StuckFinder, name: str) -> None:
    """K13."""
    tree.process(700, name, ((700, "S"), (701, "D")))
    assert [(each.thread, each.name) for each in finder.look((700,)).threads] == [(701, name)]


def test_a_process_that_ends_meanwhile(tree: HostTree, finder: StuckFinder) -> None:
    tree.process(700, threads=((700, "D"), (701, "D")), links=("/dev/nvidia0",))
    tree.remove("proc/700/task/701/stat")
    assert [each.thread for each in finder.look(()).threads] == [700]
    tree.remove("proc/700/cgroup")
    (stuck,) = finder.look(()).threads
    assert (stuck.uid, stuck.user, stuck.cgroup) == (-1, "", "")


def test_many_are_cut_off(tree: HostTree, finder: StuckFinder) -> None:
    tree.process(700, threads=tuple((1000 + number, "D") for number in range(100)))
    look = finder.look((700,))
    assert len(look.threads) == 64
    assert "more than 64" in look.problem


def test_no_proc(tmp_path: Path) -> None:
    assert "can't look into" in StuckFinder(str(tmp_path / "none")).look(()).problem
