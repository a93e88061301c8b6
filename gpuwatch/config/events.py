"""The kinds of events that a rule can name: those that a source makes and that mean trouble by themselves."""

from __future__ import annotations

from dataclasses import dataclass


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
        EventKind("log_gap", "part of the log is missing", of_gpu=False),
    )
}
