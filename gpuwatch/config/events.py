"""The kinds of events that a rule can name: those that a source makes and that mean trouble by themselves."""

from __future__ import annotations

from dataclasses import dataclass

SITE_PATTERN = "log_match"  # what the site's own patterns make (catalog/user_patterns.py)


@dataclass(frozen=True)
class EventKind:
    """`of_gpu`: it belongs to one card. `fields`: by what a rule may narrow it (of EventMatch)."""

    name: str
    text: str
    of_gpu: bool = True
    fields: tuple[str, ...] = ()


EVENT_KINDS = {
    kind.name: kind
    for kind in (
        EventKind("xid", "an error report of the NVIDIA driver", fields=("codes", "classes", "fatal")),
        EventKind("xid_unparsed", "an error report whose card could not be read from the line", of_gpu=False),
        EventKind("sxid", "an error report of an NVSwitch", of_gpu=False, fields=("codes", "fatal")),
        EventKind("gpu_lost", "the kernel says that a card fell off the bus"),
        EventKind("gpu_init_failed", "the driver could not initialise a card"),
        EventKind("gsp_timeout", "a card's own processor (GSP) does not answer the driver"),
        EventKind("uvm_fatal", "the driver's unified memory gave up", of_gpu=False),
        EventKind("driver_unload", "the driver was taken out of the kernel", of_gpu=False),
        EventKind("oom_kill", "the kernel killed a process for want of memory", of_gpu=False),
        EventKind("unit_oom", "systemd saw a unit's process killed for want of memory", of_gpu=False),
        EventKind("oomd_kill", "systemd-oomd killed processes of a unit", of_gpu=False),
        EventKind("pcie_aer", "PCIe reported an error of a link", of_gpu=False),
        EventKind("mce", "the CPU reported a hardware error", of_gpu=False),
        EventKind("ghes", "the firmware reported a hardware error", of_gpu=False),
        EventKind("cpu_thermal", "a CPU slows down because of heat", of_gpu=False),
        EventKind("hung_task", "a task hangs in the kernel", of_gpu=False),
        EventKind("io_error", "a disk answered with an error", of_gpu=False),
        EventKind("fs_error", "a file system found an error", of_gpu=False),
        EventKind("runtime_restart", "a container engine came or went", of_gpu=False),
        EventKind("time_change", "somebody set the clock", of_gpu=False),
        EventKind("time_jump", "the clock jumped against the time since boot", of_gpu=False),
        EventKind("reboot", "the host was started anew", of_gpu=False),
        EventKind("log_gap", "part of the log is missing", of_gpu=False),
        EventKind(SITE_PATTERN, "a line that a pattern of this site fits", of_gpu=False, fields=("patterns",)),
    )
}
