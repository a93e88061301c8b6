"""The lab does what its users rely on."""

from __future__ import annotations

import json

from tests.lab.nspawn import Container
from tests.lab.waiting import wait_for


def test_commands_run_inside_with_their_output_and_exit_status(booted: Container) -> None:
    done = booted.unit("sh", "-c", "cat /proc/self/cgroup; echo oops >&2; exit 7", check=False)
    assert done.returncode == 7
    assert "\n0::/system.slice/run-" in "\n" + done.stdout
    assert done.stderr == "oops\n"


def test_system_is_up_without_failed_units(booted: Container) -> None:
    assert booted.run("systemctl", "is-system-running", "--wait", check=False).stdout.strip() == "running"


def test_kernel_line_has_the_trusted_fields(booted: Container) -> None:
    booted.kmsg.write("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", device="+pci:0000:3b:00.0",
                      subsystem="pci")  # fmt: skip

    def entry() -> dict[str, str]:
        text = booted.run(
            "journalctl", "-q", "-o", "json", "_TRANSPORT=kernel", "--grep=fallen off", check=False
        ).stdout
        return json.loads(text.splitlines()[-1]) if text else {}

    fields = wait_for(entry, what="the line is in the journal")
    assert (fields["SYSLOG_FACILITY"], fields["SYSLOG_IDENTIFIER"], fields["PRIORITY"]) == ("0", "kernel", "3")
    assert fields["_KERNEL_SUBSYSTEM"] == "pci"


def test_line_of_user_space_gets_another_facility(booted: Container) -> None:
    booted.kmsg.write("forger: NVRM: Xid (PCI:0000:3b:00): 79, forged", facility=1)

    def entry() -> dict[str, str]:
        text = booted.run("journalctl", "-q", "-o", "json", "_TRANSPORT=kernel", "--grep=forged", check=False).stdout
        return json.loads(text.splitlines()[-1]) if text else {}

    assert wait_for(entry)["SYSLOG_FACILITY"] != "0"
