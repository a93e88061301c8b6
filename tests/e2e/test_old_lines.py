"""Lines that are old when they are read make history or alerts, never actions (S9)."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from tests.conftest import refuse
from tests.fakes.nvml.scenario import pci
from tests.lab.gpu_host import GpuHost
from tests.lab.journal_files import Value, entry, why_no_journal_remote, write_journal
from tests.lab.waiting import wait_for

XID_79 = f"NVRM: Xid (PCI:{pci(3)[4:-2].lower()}): 79, pid=1234, name=python, GPU has fallen off the bus."
OLD_S = 60
CONFIG = """
mode: enforce
workloads:
  - {name: training, units: ["burner@*.service"]}
rules:
  - name: gone
    event: {kind: xid, codes: [79]}
    quiet_for: reboot
    severity: critical
    ladder: [{do: [stop]}]
"""


def test_first_xid_of_this_boot_from_before_the_start_alerts_and_stops_nothing(host: GpuHost) -> None:
    """The only way to an old entry of this boot is to wait until it is old."""
    host.configure(CONFIG)
    host.start()
    host.container.run("systemctl", "stop", "gpuwatch.service")
    host.burn("burner@3.service")
    host.container.kmsg.write(XID_79)
    said = time.monotonic()
    wait_for(lambda: time.monotonic() > said + OLD_S + 1, OLD_S + 5, every_s=1)
    host.start()
    shown = host.incident("gone")
    assert [key.split("/")[1] for key in shown["notifications"]] in ([], ["firing"])  # no channel: nothing to spool
    wait_for(lambda: "old_event" in host.reasons("gone"), 15, "the reason is logged", every_s=0.3)
    assert host.incident("gone")["actions"] == []
    assert host.container.show("burner@3.service", "ActiveState")["ActiveState"] == "active"


def test_the_same_line_fresh_does_stop(host: GpuHost) -> None:
    """What the test above would see if age did not count."""
    host.configure(CONFIG)
    host.start()
    host.burn("burner@3.service")
    wait_for(lambda: any(each["processes"] for each in host.status()["gpus"]), 15, every_s=0.3)
    host.kernel_says(XID_79)
    action = host.action("gone", lambda action: action["state"] == "verified", timeout_s=60)
    assert action["target"] == "burner@3.service"


def test_xid_of_an_older_boot_is_history(host: GpuHost, tmp_path: Path) -> None:
    refuse(why_no_journal_remote())
    host.configure(CONFIG)
    host.start()
    host.container.run("systemctl", "stop", "gpuwatch.service")
    name = f"system@{'0' * 32}-{1:016x}-{1:016x}.journal"
    fields: dict[str, Value] = {
        "_TRANSPORT": "kernel",
        "SYSLOG_FACILITY": 0,
        "SYSLOG_IDENTIFIER": "kernel",
        "PRIORITY": 3,
        "MESSAGE": XID_79,
    }
    write_journal(tmp_path / name, [entry(fields, int(time.time() * 1e6), 90_000_000, "b" * 32)])
    machine = host.container.run("cat", "/etc/machine-id").stdout.strip()
    place = host.container.root / "var/log/journal" / machine / name
    shutil.copyfile(tmp_path / name, place)
    try:
        host.start()
        wait_for(lambda: "event: history" in host.log(), 15, "it is logged as history", every_s=0.3)
        assert host.incidents() == []
    finally:
        place.unlink()
