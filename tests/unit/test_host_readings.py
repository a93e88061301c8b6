"""From the kernel's files to readings: memory, pressure, OOM kills, load, and what an odd kernel says."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from gpuwatch.model.reading import UNSUPPORTED, value
from gpuwatch.system import timesync
from gpuwatch.system.host import RealHost
from gpuwatch.system.kernel_files import KeptFile, number_after, pressure, unreadable
from tests.fakes.host_tree import HostTree

KIB = 1024


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


@pytest.fixture
def host(tree: HostTree) -> RealHost:
    return RealHost(tree.proc, tree.sys, tree.run)


def test_figures(host: RealHost) -> None:
    readings = host.quick()
    assert readings["host.memory_total"] == value(1056563132 * KIB)
    assert readings["host.memory_available"] == value(792422349 * KIB)
    assert readings["host.memory_available_ratio"] == value(0.75)
    assert readings["host.swap_used"] == value((8388604 - 2097151) * KIB)
    assert readings["host.swap_used_ratio"] == value((8388604 - 2097151) / 8388604)
    assert readings["host.memory_pressure_some"] == value(1.5)
    assert readings["host.io_pressure_full"] == value(0.25)
    assert readings["host.cpu_stalled_some"] == value(2.0)  # seconds; the file has microseconds
    assert readings["host.cpu_stalled_full"] == value(0.5)
    assert [readings[f"host.load_{span}"].value for span in ("1m", "5m", "15m")] == [12.5, 8.0, 4.25]
    assert readings["host.load_per_core"] == value(12.5 / os.sysconf("SC_NPROCESSORS_ONLN"))
    assert host.oom_kills() == value(3)


def test_files_are_read_anew(host: RealHost, tree: HostTree) -> None:
    host.quick()
    tree.put("proc/loadavg", "99.00 8.00 4.25 3/1200 4711\n")  # written in place: the descriptor is kept
    assert host.quick()["host.load_1m"] == value(99)
    tree.put("proc/vmstat", "x 1\n" * 20_000 + "oom_kill 7\n")  # longer than one read
    assert host.oom_kills() == value(7)


def test_no_swap(host: RealHost, tree: HostTree) -> None:
    tree.put("proc/meminfo", "MemTotal: 10 kB\nMemAvailable: 5 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
    readings = host.quick()
    assert readings["host.swap_total"] == value(0)
    assert readings["host.swap_used"] == value(0)
    assert readings["host.swap_used_ratio"] == UNSUPPORTED


@pytest.mark.parametrize("content", ["", "MemTotal: 0 kB\nMemAvailable: 0 kB\n", "MemTotal: x kB\nMemAvailable:\n"])
def test_memory_that_makes_no_sense(host: RealHost, tree: HostTree, content: str) -> None:
    tree.put("proc/meminfo", content)
    assert host.quick()["host.memory_available_ratio"].failed


def test_a_kernel_without_pressure(host: RealHost, tree: HostTree) -> None:
    for kind in ("memory", "cpu", "io"):
        tree.remove(f"proc/pressure/{kind}")
    assert host.quick()["host.memory_pressure_some"] == UNSUPPORTED
    tree.stall("memory", 50.0, 40.0)  # and it comes back when the file does
    assert host.quick()["host.memory_pressure_full"] == value(40)


def test_a_kernel_without_full_cpu_pressure(host: RealHost, tree: HostTree) -> None:
    tree.stall("cpu", 3.0, None)
    readings = host.quick()
    assert readings["host.cpu_pressure_some"] == value(3)
    assert readings["host.cpu_pressure_full"] == readings["host.cpu_stalled_full"] == UNSUPPORTED


def test_files_that_hold_something_else(host: RealHost, tree: HostTree) -> None:
    tree.put("proc/loadavg", "much\n")
    tree.put("proc/pressure/io", "some avg10=1.0\n")
    tree.put("proc/vmstat", "nr_free_pages 1\n")
    readings = host.quick()
    assert readings["host.load_per_core"].failed
    assert readings["host.io_pressure_some"].failed
    assert readings["host.memory_pressure_some"] == value(1.5)  # each file by itself
    assert host.oom_kills() == UNSUPPORTED


def test_what_can_not_be_read_has_failed(tmp_path: Path) -> None:
    (tmp_path / "meminfo").mkdir()  # any error but "no such file"
    assert "meminfo: Is a directory" in (RealHost(str(tmp_path)).quick()["host.memory_total"].problem or "")


@pytest.mark.parametrize(
    "content, name, number",
    [
        (b"oom_kill 3\n", b"oom_kill ", 3),
        (b"a 1\noom_kill 3", b"oom_kill ", 3),
        (b"a 1\nboom_kill 3\n", b"oom_kill ", None),
        (b"a 1\noom_kill\n", b"oom_kill", None),
        (b"a 1\noom_kill x\nb 2\n", b"oom_kill ", None),
        (b"oom_kill", b"oom_kill ", None),
        (b"", b"oom_kill ", None),
    ],
)
def test_number_after(content: bytes, name: bytes, number: object) -> None:
    assert number_after(content, name) == number


@pytest.mark.parametrize("content", [b"", b"full avg10=1.0 total=1\n", b"some\n", b"some avg10=x total=1\n"])
def test_no_pressure(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"pressure|float"):
        pressure(content)


@pytest.mark.parametrize(
    "number, unsupported",
    [(errno.ENOENT, True), (errno.EOPNOTSUPP, True), (errno.ENODEV, True), (errno.EACCES, False), (errno.EIO, False)],
)
def test_what_a_kernel_does_not_have_is_unsupported(number: int, unsupported: bool) -> None:
    """With psi=0 the files of PSI are there and can't be opened."""
    reading = unreadable("/proc/pressure/cpu", OSError(number, "why"))
    assert reading.unsupported is unsupported


def test_a_kept_file_opens_again_after_an_error(tmp_path: Path) -> None:
    file = KeptFile(str(tmp_path / "f"))
    with pytest.raises(FileNotFoundError):
        file.read()
    (tmp_path / "f").write_text("a")
    assert file.read() == b"a"
    file.close()
    assert file.read() == b"a"


@pytest.mark.parametrize("age_s, expected", [(0, 1.0), (6000, 1.0), (-30, 1.0)])
def test_timesyncd_speaks_for_itself(host: RealHost, tree: HostTree, age_s: float, expected: float) -> None:
    tree.put("run/systemd/timesync/synchronized", "")
    when = time.time() - age_s
    os.utime(tree.root / "run/systemd/timesync/synchronized", (when, when))
    assert host.clock_synchronised() == value(expected)


def test_the_kernel_is_asked_where_timesyncd_is_silent(host: RealHost, tree: HostTree) -> None:
    without = host.clock_synchronised()
    assert without.value in (0.0, 1.0)
    tree.put("run/systemd/timesync/synchronized", "")
    os.utime(tree.root / "run/systemd/timesync/synchronized", (0, 0))  # once, long ago
    assert host.clock_synchronised() == without
    assert timesync.FRESH_S > 2048
