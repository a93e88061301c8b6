"""The state of the host for a bundle, from a /proc of ours and from the real one."""

from __future__ import annotations

import json
from pathlib import Path

from gpuwatch.system.host_facts import read_host_facts


def test_facts_of_a_host(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal:       65792284 kB\nHugePages_Total:       0\nOdd line\n")
    (tmp_path / "pressure" / "memory").write_text("some avg10=1.50 avg60=0.00 avg300=0.00 total=12\n")
    (tmp_path / "uptime").write_text("5000.10 80000.00\n")
    (tmp_path / "os-release").write_text('NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12"\n')
    (tmp_path / "vmstat").write_text("nr_free_pages 1\noom_kill 3\n")
    facts = read_host_facts(str(tmp_path), str(tmp_path / "os-release"))
    assert facts["meminfo_kb"] == {"MemTotal": 65792284, "HugePages_Total": 0}
    assert facts["pressure"] == {
        "memory": "some avg10=1.50 avg60=0.00 avg300=0.00 total=12",
        "cpu": {"problem": "No such file or directory"},  # a kernel without PSI
        "io": {"problem": "No such file or directory"},
    }
    assert facts["oom_kills"] == 3
    assert (facts["uptime"], facts["os"]) == ("5000.10 80000.00", "Debian GNU/Linux 12")


def test_facts_of_this_host() -> None:
    facts = read_host_facts()
    memory = facts["meminfo_kb"]
    assert isinstance(memory, dict) and memory["MemTotal"] > memory["MemAvailable"] > 0
    assert isinstance(facts["boot_id"], str) and len(facts["boot_id"]) == 36
    assert isinstance(facts["oom_kills"], int)
    assert json.dumps(facts)


def test_a_host_that_tells_nothing(tmp_path: Path) -> None:
    assert read_host_facts(str(tmp_path), str(tmp_path / "none"))["loadavg"] == {"problem": "No such file or directory"}
