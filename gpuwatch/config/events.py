"""The kinds of events that a rule can name: those that a source makes and that mean trouble by themselves."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.config.kinds import ScalarKind, Schema
from gpuwatch.config.report import did_you_mean, quoted

SITE_PATTERN = "log_match"  # what the site's own patterns make (catalog/user_patterns.py)


@dataclass(frozen=True)
class EventKind:
    """`of_gpu`: it belongs to one card. `of_unit`: to one systemd unit, where its field `unit` names one (a kill for
    want of memory of the whole host is the host's). `fields`: by what a rule may narrow it (of EventMatch)."""

    name: str
    text: str
    of_gpu: bool = False
    of_unit: bool = False
    fields: tuple[str, ...] = ()


EVENT_KINDS = {
    kind.name: kind
    for kind in (
        # GPUs and their driver
        EventKind("xid", "an error report of the NVIDIA driver", of_gpu=True, fields=("codes", "classes", "fatal")),
        EventKind("xid_unparsed", "an error report whose card could not be read from the line"),
        EventKind("sxid", "an error report of an NVSwitch", fields=("codes", "fatal")),
        EventKind("fabric_error", "the fabric manager reports an error of an NVSwitch", fields=("codes", "fatal")),
        EventKind("gpu_lost", "the kernel says that a card fell off the bus", of_gpu=True),
        EventKind("gpu_init_failed", "the driver could not initialise a card", of_gpu=True),
        EventKind("gsp_timeout", "a card's own processor (GSP) does not answer the driver", of_gpu=True),
        EventKind("uvm_fatal", "the driver's unified memory gave up"),
        EventKind("driver_unload", "the driver was taken out of the kernel"),
        EventKind("nvml_error", "a program could not ask the driver"),
        EventKind("gpu_segfault", "a program crashed inside a GPU library"),
        # Memory of the host
        EventKind("oom_kill", "the kernel killed a process for want of memory", of_unit=True),
        EventKind("unit_oom", "systemd saw a unit's process killed for want of memory", of_unit=True),
        EventKind("oomd_kill", "systemd-oomd killed processes of a unit", of_unit=True),
        EventKind("memory_failure", "the host's memory lost data beyond correction"),
        EventKind("edac", "the host's memory reported errors"),
        # Its other hardware
        EventKind("pcie_aer", "PCIe reported an error of a link"),
        EventKind("pcie_link_down", "a PCIe slot lost its link"),
        EventKind("pcie_unreachable", "a PCIe device no longer answers"),
        EventKind("iommu_fault", "a device used a memory address that it may not use"),
        EventKind("mce", "the CPU reported a hardware error", fields=("fatal",)),
        EventKind("ghes", "the firmware reported a hardware error"),
        EventKind("cpu_thermal", "a CPU slows down because of heat"),
        EventKind("thermal_critical", "the host is shutting down because of heat"),
        EventKind("io_error", "a disk answered with an error"),
        EventKind("fs_error", "a file system found an error"),
        EventKind("nfs_stall", "a file server does not answer"),
        # Its kernel
        EventKind("hung_task", "a task hangs in the kernel"),
        EventKind("cpu_lockup", "a CPU made no progress in the kernel"),
        EventKind("rcu_stall", "a CPU held up the kernel for long"),
        EventKind("kernel_oops", "the kernel met a fault of its own"),
        EventKind("kernel_panic", "the kernel stopped"),
        # Units
        EventKind("unit_failed", "a unit failed", of_unit=True),
        EventKind("unit_start_failed", "a unit could not be started", of_unit=True),
        EventKind("unit_start_timeout", "a unit did not start in time", of_unit=True),
        EventKind("unit_start_limit", "a unit was restarted too often and systemd gave up", of_unit=True),
        EventKind("unit_restart", "systemd restarts a unit that ended", of_unit=True),
        EventKind("unit_stop_timeout", "a unit did not stop in time and is being killed", of_unit=True),
        EventKind("unit_stop_failed", "processes of a unit survived even SIGKILL", of_unit=True),
        EventKind("unit_leftover_process", "a process stayed behind when its unit was stopped", of_unit=True),
        EventKind("unit_watchdog", "a unit did not report in time to its watchdog", of_unit=True),
        EventKind("manager_reload", "systemd read its units again, by which containers may lose their GPUs"),
        # Containers
        EventKind("runtime_restart", "a container engine came or went"),
        EventKind("container_die", "a container ended, for whatever reason"),
        EventKind("container_oom", "a container had a process killed for want of memory"),
        EventKind("container_stop_timeout", "a container did not stop in time and is being killed"),
        # Time and the log
        EventKind("time_change", "somebody set the clock"),
        EventKind("time_jump", "the clock jumped against the time since boot"),
        EventKind("reboot", "the host was started anew"),
        EventKind("log_gap", "part of the log is missing"),
        EventKind(SITE_PATTERN, "a line that a pattern of this site fits", fields=("patterns",)),
    )
}


@dataclass(frozen=True)
class EventKindName(ScalarKind):
    """A kind of event."""

    @property
    def words(self) -> str:
        """What is expected."""
        return "a kind of event such as xid"

    def parse(self, text: str) -> str:
        """The name."""
        if text in EVENT_KINDS:
            return text
        known = ", ".join(EVENT_KINDS)
        raise ValueError(f"no event {quoted(text)}{did_you_mean(text, EVENT_KINDS) or '; there is ' + known}")

    def schema(self) -> Schema:
        """The names."""
        return {"enum": list(EVENT_KINDS)}
