"""What one journal entry says: who wrote it, what may be believed of it, and what it means. Pure; nothing raises.

S10: facts of the kernel come from entries whose trusted `_TRANSPORT` is kernel and that have the kernel's facility and
name (what user space writes to /dev/kmsg has another facility); facts of systemd from PID 1; facts of system services
from journald's own `_SYSTEMD_UNIT`. Everything else anybody can have written: it is read with other patterns, into
other kinds, and marked `source_trust: user`, so that it can be told and never acted on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Optional

from gpuwatch.catalog import kernel, oom, patterns
from gpuwatch.catalog.fields import Facts, read_field, short
from gpuwatch.catalog.patterns import MOST_CHARACTERS, Pattern, Table

NOTHING: tuple[Facts, ...] = ()
USER = "user"  # source_trust of what anybody can have written

# Units of container runtimes: their coming and going is an event of its own.
RUNTIMES = {
    "docker.service": "docker",
    "containerd.service": "containerd",
    "podman.service": "podman",
    "crio.service": "crio",
    "kubelet.service": "kubelet",
}
_RUNTIME_STATES = {"unit_started": "started", "unit_stopping": "stopping", "unit_stopped": "stopped"}
_SHUTDOWN_TARGETS = {
    "reboot.target": "reboot",
    "poweroff.target": "poweroff",
    "halt.target": "halt",
    "kexec.target": "kexec",
    "soft-reboot.target": "soft-reboot",
}
_UNIT_LINE = re.compile(r"([A-Za-z0-9:_.@\\-]{1,255}\.[a-z]{4,9}): (.*)", re.DOTALL)
_UNCLEAN = re.compile(r"File (/\S{1,300}) corrupted or uncleanly shut down, renaming and replacing\.")
_RANK = re.compile(r"\[[Rr]ank ?([0-9]{1,6})\]")
_LOCAL_RANK = re.compile(r"\[default([0-9]{1,6})\]:")
MOST_LINES = 200
MOST_BLOCK = 16_384  # characters of a message with several lines


def read(fields: Mapping[str, str]) -> tuple[Facts, ...]:
    """The facts of an entry, in the order of its lines; none for what is no event. Field values are text."""
    message = fields.get("MESSAGE")
    if not message:
        return NOTHING
    transport = fields.get("_TRANSPORT")
    if transport == "kernel":
        return _read_kernel(fields, message)
    if transport == "driver":
        return _one(read_journald(fields, message))
    if transport == "journal" and fields.get("_PID") == "1":
        return _one(read_manager(fields, message))
    unit = fields.get("_SYSTEMD_UNIT", "")
    if unit in _services() and not is_container(fields):
        return _one(_read_service(unit, fields, message))
    return _one(read_workload(fields, message))


def _one(facts: Optional[Facts]) -> tuple[Facts, ...]:
    return NOTHING if facts is None or facts["kind"] is None else (facts,)


def says_kernel(fields: Mapping[str, str]) -> bool:
    """S10: what user space writes to /dev/kmsg has the kernel's transport, but neither its facility nor its name."""
    return (
        fields.get("_TRANSPORT") == "kernel"
        and fields.get("SYSLOG_FACILITY") == "0"
        and fields.get("SYSLOG_IDENTIFIER") == "kernel"
    )


def is_container(fields: Mapping[str, str]) -> bool:
    """True for what a container printed, which its runtime passed on under the runtime's own name."""
    return any(name in fields for name in ("CONTAINER_ID_FULL", "CONTAINER_ID", "CONTAINER_NAME", "CONTAINER_TAG"))


def _read_kernel(fields: Mapping[str, str], message: str) -> tuple[Facts, ...]:
    if says_kernel(fields):
        return kernel.parse_entry(message)
    if fields.get("SYSLOG_IDENTIFIER") == "systemd-journald":  # it logs about itself through /dev/kmsg, as root can
        unclean = _UNCLEAN.match(message[:MOST_CHARACTERS])
        if unclean:
            return ({"kind": "unclean_shutdown", "device": short(unclean[1]), "source_trust": USER},)
    return NOTHING


# Service manager and journald -------------------------------------------------------------------


def read_manager(fields: Mapping[str, str], message: str) -> Optional[Facts]:
    """A line of PID 1: by its MESSAGE_ID, else by its text."""
    line = message[:MOST_CHARACTERS]
    match = _UNIT_LINE.match(line)
    by_id, by_text, bare = _manager()
    known = by_id.get(fields.get("MESSAGE_ID", ""))
    if known is not None:
        facts = _by_id(known, fields, match[2] if match else line)
        unit = fields.get("UNIT") or (match[1] if match else None)
        return facts if facts["kind"] is None else _unit_facts(facts, unit)
    if match is None:
        return bare.read(line)
    unit = fields.get("UNIT", match[1])
    facts_of_text = by_text.read(match[2])
    return None if facts_of_text is None or unit != match[1] else _unit_facts(facts_of_text, unit)


def _by_id(known: tuple[Pattern, ...], fields: Mapping[str, str], rest: str) -> Facts:
    """Facts of the entry's own fields; what they lack comes from the text, in whatever form this systemd writes it."""
    chosen, text = known[0], None
    for pattern in known:
        text = pattern.read(rest) if pattern.expression is not None and rest.startswith(pattern.starts) else None
        if text is not None:
            chosen = pattern
            break
    facts: Facts = {"kind": chosen.kind, **chosen.fixed, **(text or {})}
    for name, source in chosen.fields.items():
        if source in fields:
            facts[name] = read_field(name, fields[source])
        else:
            facts.setdefault(name, None)
    return facts


def _unit_facts(facts: Facts, unit: Optional[str]) -> Facts:
    facts = {**facts, "unit": short(unit) if unit else None}
    kind = facts["kind"]
    if kind == "unit_started" and unit in _SHUTDOWN_TARGETS:
        return {"kind": "shutdown", "result": _SHUTDOWN_TARGETS[unit], "unit": unit}
    if unit in RUNTIMES and kind in _RUNTIME_STATES:
        return {"kind": "runtime_restart", "runtime": RUNTIMES[unit], "state": _RUNTIME_STATES[str(kind)], "unit": unit}
    return facts


def read_journald(fields: Mapping[str, str], message: str) -> Optional[Facts]:
    """A line of journald about itself."""
    by_id, table = _journald()
    line = message[:MOST_CHARACTERS]
    known = by_id.get(fields.get("MESSAGE_ID", ""))
    return table.read(line) if known is None else {"unit": None, **_by_id(known, fields, line)}


# Services and workloads --------------------------------------------------------------------------


def _read_service(unit: str, fields: Mapping[str, str], message: str) -> Optional[Facts]:
    by_id, table = _services()[unit]
    line = message[:MOST_CHARACTERS]
    known = by_id.get(fields.get("MESSAGE_ID", ""))
    facts = table.read(line) if known is None else _by_id(known, fields, line)
    return None if facts is None else {"unit": unit, **facts}


def read_workload(fields: Mapping[str, str], message: str) -> Optional[Facts]:
    """What a program printed: the first line of the message that says something. Never to be acted on."""
    table = _workload()
    text = message if len(message) <= MOST_CHARACTERS else message[:MOST_CHARACTERS]
    facts = table.read(text)
    if "\n" in text:
        lines = message[:MOST_BLOCK].split("\n")[:MOST_LINES]
        facts = next(filter(None, map(table.read, lines)), facts)
    if facts is None or facts["kind"] is None:
        return None
    return {**facts, **author(fields, text)}


def is_workload(fields: Mapping[str, str]) -> bool:
    """True for an entry that anybody can have written."""
    transport = fields.get("_TRANSPORT")
    if transport in ("kernel", "driver") or (transport == "journal" and fields.get("_PID") == "1"):
        return False
    return fields.get("_SYSTEMD_UNIT", "") not in _services() or is_container(fields)


def service_units() -> frozenset[str]:
    """The system services whose own lines are understood; a reader must let them pass."""
    return frozenset(_services())


def stream(fields: Mapping[str, str]) -> tuple[str, ...]:
    """Who printed an entry: lines of one stream belong together."""
    names = ("_BOOT_ID", "_SYSTEMD_UNIT", "_SYSTEMD_USER_UNIT", "CONTAINER_ID_FULL", "CONTAINER_NAME", "_PID")
    return tuple(fields.get(name, "") for name in names)


def author(fields: Mapping[str, str], text: str) -> Facts:
    """Who printed it, by journald's trusted fields; the rank is the program's own word."""
    facts: Facts = {"source_trust": USER}
    container = fields.get("CONTAINER_ID_FULL") or fields.get("CONTAINER_ID")
    if container or is_container(fields):
        facts["container"] = short(container) if container else None
        if "CONTAINER_NAME" in fields:
            facts["container_name"] = short(fields["CONTAINER_NAME"])
    else:  # a container's lines are written by its runtime
        facts["pid"] = read_field("pid", fields.get("_PID", ""))
        facts["unit"] = short(fields["_SYSTEMD_UNIT"]) if "_SYSTEMD_UNIT" in fields else None
        if "_SYSTEMD_USER_UNIT" in fields:
            facts["user_unit"] = short(fields["_SYSTEMD_USER_UNIT"])
        if "_UID" in fields:
            facts["uid"] = read_field("uid", fields["_UID"])
    rank, local = _RANK.search(text), _LOCAL_RANK.search(text)
    if rank:
        facts["rank"] = int(rank[1])
    if local:
        facts["local_rank"] = int(local[1])
    return facts


# Tables ---------------------------------------------------------------------------------------------


def _of(source: str) -> tuple[Pattern, ...]:
    rows = (row for row in patterns.shipped() if row["source"] == source)
    return patterns.build(rows, {"oomd": oom.parse_oomd})


def _ids(found: tuple[Pattern, ...]) -> dict[str, tuple[Pattern, ...]]:
    ids: dict[str, tuple[Pattern, ...]] = {}
    for pattern in found:
        if pattern.message_id:
            ids[pattern.message_id] = (*ids.get(pattern.message_id, ()), pattern)
    return ids


@lru_cache(maxsize=1)
def _manager() -> tuple[dict[str, tuple[Pattern, ...]], Table, Table]:
    found = _of("manager")
    about_units = Table(pattern for pattern in found if not pattern.bare)
    return _ids(found), about_units, Table(pattern for pattern in found if pattern.bare)


@lru_cache(maxsize=1)
def _journald() -> tuple[dict[str, tuple[Pattern, ...]], Table]:
    found = _of("journald")
    return _ids(found), Table(found)


@lru_cache(maxsize=1)
def _services() -> dict[str, tuple[dict[str, tuple[Pattern, ...]], Table]]:
    found = _of("service")
    units = dict.fromkeys(unit for pattern in found for unit in pattern.units)
    own = {unit: tuple(pattern for pattern in found if unit in pattern.units) for unit in units}
    return {unit: (_ids(mine), Table(mine)) for unit, mine in own.items()}


@lru_cache(maxsize=1)
def _workload() -> Table:
    return Table(_of("workload"))
