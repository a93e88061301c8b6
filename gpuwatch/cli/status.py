"""`gpuwatch status`: one look at the host. Works with the daemon down, and with the driver hung."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

from gpuwatch.cli import orders, places
from gpuwatch.cli.output import GIB, ago, local_time, paint, safe, show_json, size, table
from gpuwatch.model.codec import encode
from gpuwatch.model.errors import StoreError

LATE_S = 10.0  # a live daemon's view is a second old


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "status",
        help="GPUs, who uses them, incidents",
        epilog="example: gpuwatch status --json | jq '.gpus[].readings[\"gpu.temperature\"].value'",
    )
    places.add_run_dir(parser)
    parser.add_argument("--json", action="store_true", help="the view as one JSON object (schema 1)")


def run(args: argparse.Namespace) -> int:
    """Exit 0 when the view is live, 1 when it is only what a daemon left behind."""
    view, why_old = places.fetch_view(args.run_dir)
    if why_old:
        view = _with_stored_orders(view, args.run_dir)
    age_s = max(0.0, time.time() - float(view["utc_s"]))
    if args.json:
        show_json({**view, "live": not why_old, "age_s": round(age_s, 3)})
    else:
        sys.stdout.write(draw(view, age_s, why_old) + "\n")
    return 1 if why_old else 0


def draw(view: Mapping[str, Any], age_s: float, why_old: str) -> str:
    """The screen, at most 80 columns with ordinary names."""
    lines = []
    if view["simulated"]:
        lines.append(paint("SIMULATED host: nothing here is real", "yellow"))
    lines += _orders(view, float(view["utc_s"]) + age_s)
    if why_old:
        lines.append(paint(f"{why_old}; this is from {ago(age_s)} ago. Start it: systemctl start gpuwatch", "yellow"))
    elif age_s > LATE_S:
        lines.append(paint(f"the last cycle ended {ago(age_s)} ago; it should take a second", "yellow"))
    lines.append(_headline(view))
    lines += _driver(view)
    if view["gpus"]:
        lines.append(_gpus(view["gpus"]))
        lines += _processes(view["gpus"], float(view["boottime_s"]))
    lines += [_incident(incident) for incident in view["incidents"]]
    lines.append(_health(view))
    fabric = view.get("fabric_manager")
    if fabric and fabric["problem"]:
        lines.append(paint(safe(fabric["problem"]), "red"))
    return "\n".join(lines)


def _with_stored_orders(view: dict[str, Any], run_dir: str) -> dict[str, Any]:
    """What was ordered since the daemon went is in the store alone; only root may read that."""
    try:
        return {**view, "orders": encode(orders.stored_orders(view["state_dir"], run_dir))}
    except StoreError:
        return view


def _orders(view: Mapping[str, Any], utc_s: float) -> list[str]:
    """Who tied gpuwatch's hands, before anything else."""
    standing = orders.orders_in(view, utc_s)
    lines = []
    for words, order, meaning, end in (
        ("DISARMED", standing.disarmed, "Nothing is touched", "gpuwatch arm"),
        ("MAINTENANCE", standing.maintenance, "Nothing is touched, nobody is told", "gpuwatch maintenance off"),
    ):
        if order is not None:
            until = orders.shown_until(order) or "until taken back"
            why = f": {order.comment}" if order.comment else ""
            lines.append(paint(safe(f"{words} by {order.by} {until}{why}"), "red"))
            lines.append(f"{meaning} meanwhile. End it: {end}")
    if standing.silences:
        lines.append(f"{_count(len(standing.silences), 'silence')}: gpuwatch silence list")
    return lines


def _headline(view: Mapping[str, Any]) -> str:
    driver = view["driver"]
    count = sum(incident["state"] == "open" for incident in view["incidents"])
    words = [view["host"], view["mode"], _count(len(view["workloads"]), "workload")]
    if driver["version"]:
        words.append(f"driver {driver['version']}")
    if driver["sampled_utc_s"] is not None:
        words.append(f"sampled {ago(time.time() - driver['sampled_utc_s'])} ago")
    words.append(paint(_count(count, "incident"), "red" if count else "green"))
    return " \u00b7 ".join(word if "\x1b" in word else safe(word) for word in words)


def _driver(view: Mapping[str, Any]) -> list[str]:
    driver = view["driver"]
    state = driver["state"]
    if state == "ok":
        return []
    if state == "absent":
        return ["No NVIDIA driver is loaded; gpuwatch watches the journal and the host, and loads no driver."]
    if state == "silent":
        pids = ", ".join(map(str, driver["stuck_pids"]))
        stuck = f" (stuck: pid {pids})" if pids else ""
        return [
            paint(f"The GPU driver does not answer{stuck}; GPU actions are suspended.", "red"),
            "Do not repeat nvidia-smi, do not force-kill processes. See: gpuwatch incident list",
        ]
    if state in ("paused", "released"):
        until = "" if driver["resumes_utc_s"] is None else f", next look {local_time(driver['resumes_utc_s'])}"
        words = {"paused": "left alone", "released": "released for a repair; heat is NOT watched"}[state]
        return [paint(safe(f"The GPU driver is {words} ({driver['reason'] or 'by hand'}{until})."), "yellow")]
    return [paint(safe(f"GPU driver: {state.replace('_', ' ')}: {driver['reason']}"), "yellow")]


def _gpus(gpus: list[Mapping[str, Any]]) -> str:
    rows = []
    for gpu in gpus:
        readings = {name: reading["value"] for name, reading in gpu["readings"].items()}
        rows.append(
            [
                str(gpu["index"]),
                _model(str(gpu["name"])),
                _number(readings["gpu.temperature"], " C"),
                _number(readings["gpu.slowdown_margin"], " C"),
                _pair(readings["gpu.power"], readings["gpu.power_limit"], 1.0, " W", 0),
                _pair(readings["gpu.memory_used"], readings["gpu.memory_total"], GIB, " GiB", 1),
                _number(readings["gpu.utilisation"], "%"),
                _state(gpu),
            ]
        )
    header = ("#", "MODEL", "TEMP", "TO LIMIT", "POWER", "MEMORY", "UTIL", "STATE")
    return table(header, rows, right=(0, 2, 3, 4, 5, 6))


def _model(name: str) -> str:
    """The vendor is no news."""
    return name.replace("NVIDIA ", "").replace("GeForce ", "")[:18]


def _state(gpu: Mapping[str, Any]) -> str:
    words = ["new"] if gpu["new"] else []
    if gpu["lost"]:
        words.append("lost")
    elif gpu["stale"]:
        words.append("stale")
    if gpu.get("throttled_w") is not None:
        words.append(f"throttled to {gpu['throttled_w']:.0f} W")
    if gpu["stopping"]:
        words.append("stopping " + ", ".join(gpu["stopping"]))
    words += [f"incident {number}" for number in gpu["incidents"]]
    return ": ".join(words) or "ok"


def _processes(gpus: list[Mapping[str, Any]], boottime_s: float) -> list[str]:
    """One line a process; one that is on several GPUs has their numbers in front."""
    lines = [
        safe(f"GPU {gpu['index']}  users unknown: {gpu['processes_unknown']}")
        for gpu in gpus
        if gpu["processes_unknown"]
    ]
    places: dict[tuple[str, str, str], list[int]] = {}
    for gpu in gpus:
        for process in gpu["processes"] or ():
            owner = _owner(process)
            belongs = f" (workload {process['workload']})" if process["workload"] else ""
            used = "" if process["used_bytes"] is None else f"  {process['used_bytes'] / GIB:.1f} GiB"
            age_s = max(0.0, boottime_s - process["started_boottime_s"])
            inside = f" ({process['container_pid']} inside)" if process["container_pid"] else ""
            who = f"pid {process['pid']}{inside} {process['name']}  {owner}{belongs}  {process['user']}"
            places.setdefault((who, used, ago(age_s)), []).append(gpu["index"])
    for (who, used, age), indexes in places.items():
        each = " each" if used and len(indexes) > 1 else ""
        lines.append(safe(f"GPU {_ranges(indexes)}  {who}{used}{each}, up {age}"))
    return lines


def _owner(process: Mapping[str, Any]) -> str:
    """Unit, container, job: whichever people know it by; a session is called one."""
    if process["container"]:
        return f"{process['kind']}:{process['container_name'] or process['container'][:12]}"
    if process["job"]:
        return f"slurm job {process['job']}"
    if process["kind"] == "session":
        return f"login session ({process['unit']})" if process["unit"] else "login session"
    return str(process["unit"] or process["user_unit"] or process["kind"])


def _ranges(numbers: list[int]) -> str:
    """0-3,5"""
    parts: list[str] = []
    start = numbers[0]
    for here, after in zip(numbers, [*numbers[1:], -1]):
        if after != here + 1:
            parts.append(str(start) if start == here else f"{start}-{here}")
            start = after
    return ",".join(parts)


def _incident(incident: Mapping[str, Any]) -> str:
    colour = "red" if incident["severity"] == "critical" and incident["state"] == "open" else "yellow"
    rules = ", ".join(incident["rules"]) or "over"
    words = f"Incident {incident['number']}: {incident['label']}, {rules}, {incident['state']}"
    if incident.get("acknowledged"):
        words += f", seen by {incident['acknowledged']['by']}"
    return paint(safe(words), colour) + f"   gpuwatch incident show {incident['number']}"


def _health(view: Mapping[str, Any]) -> str:
    journal, alerts, evidence = view["journal"], view["alerts"], view["evidence"]
    if journal["problem"]:
        read = journal["problem"][:1].upper() + journal["problem"][1:]
    elif journal["read_utc_s"] is None:
        read = "Journal: not read yet"
    else:
        read = f"Journal: read up to {ago(time.time() - journal['read_utc_s'])} ago"
    if not alerts["channels"]:
        told = "Alerts: no channel is set up"
    elif alerts["refused"]:
        told = f"Alerts: REFUSED: {alerts['refused']}"
    else:
        told = f"Alerts: {alerts['queued']} waiting" if alerts["queued"] else "Alerts: all delivered"
        for name, failing in alerts["failing"].items():
            told += f", {name} fails: {failing['problem']}"
    parts = [read, told, f"Evidence: {_count(evidence['bundles'], 'bundle')}, {size(evidence['bytes'])}"]
    if view["store"]["problem"]:
        parts.append(f"STATE NOT ON DISK: {view['store']['problem']}")
    return safe(" \u00b7 ".join(parts))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _number(number: Any, unit: str) -> str:
    return "-" if number is None else f"{number:.0f}{unit}"


def _pair(number: Any, limit: Any, divisor: float, unit: str, digits: int) -> str:
    if number is None:
        return "-"
    whole = "" if limit is None else f"/{limit / divisor:.{digits}f}"
    return f"{number / divisor:.{digits}f}{whole}{unit}"
