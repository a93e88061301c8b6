"""`gpuwatch check`: a read-only probe with the exit codes of a Nagios plug-in. Never acts, never moves the cursor."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Optional

from gpuwatch.cli import places
from gpuwatch.cli.output import ago, safe, show_json
from gpuwatch.model.errors import ConfigError, SourceError
from gpuwatch.system.control_socket import ask

CODES = {"OK": 0, "WARNING": 1, "CRITICAL": 2, "UNKNOWN": 3}
LATE_S = 30.0
STALE_S = 15.0
UNDELIVERED_S = 300.0


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "check",
        help="read-only probe for monitoring",
        epilog="exit codes: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. example: gpuwatch check --slurm",
    )
    parser.add_argument("--slurm", action="store_true", help="always exit 0, for HealthCheckProgram")
    parser.add_argument("--json", action="store_true")
    places.add_run_dir(parser)
    places.add_config(parser)


def run(args: argparse.Namespace) -> int:
    """The daemon's word where there is a daemon, else one look of our own."""
    view: Optional[Mapping[str, Any]] = None
    try:
        view = ask(os.path.join(args.run_dir, "control.sock"), {"verb": "status"}, 2.0).get("view")
        word, text = (
            judge_daemon(view, time.time(), time.clock_gettime(time.CLOCK_BOOTTIME))
            if view
            else ("UNKNOWN", "the daemon's answer is not understood")
        )
    except SourceError as error:
        word, text = _look(args.config, args.run_dir, str(error))
    if args.json:
        show_json({"schema": 1, "state": word, "text": text, "daemon": view is not None})
    else:
        sys.stdout.write(f"GPUWATCH {word} - {safe(text)}{_performance(view)}\n")
    return 0 if args.slurm else CODES[word]


def judge_daemon(view: Mapping[str, Any], now_utc_s: float, boottime_s: float) -> tuple[str, str]:
    """The daemon's view as a state and a sentence."""
    late_s = boottime_s - float(view["boottime_s"])  # of this boot's clock, which nobody sets back
    if late_s > LATE_S:
        return "CRITICAL", f"the daemon's last cycle ended {ago(late_s)} ago"
    open_ones = [incident for incident in view["incidents"] if incident["state"] == "open"]
    gravest = "CRITICAL" if any(incident["severity"] == "critical" for incident in open_ones) else "WARNING"
    if open_ones:
        words = ", ".join(f"#{each['number']} {each['label']} ({', '.join(each['rules'])})" for each in open_ones)
        return gravest, f"{len(open_ones)} open: {words}"
    if view["alerts"]["refused"]:
        return "WARNING", f"messages are refused: {view['alerts']['refused']}"
    for name, failing in view["alerts"]["failing"].items():
        if now_utc_s - failing["since_utc_s"] > UNDELIVERED_S:
            return "WARNING", f"channel {name} can't deliver: {failing['problem']}"
    if view["journal"]["problem"]:
        return "WARNING", view["journal"]["problem"]
    state = view["driver"]["state"]
    if state == "absent":
        return "OK", "no NVIDIA driver is loaded; journal and host are watched"
    if state != "ok":
        return "WARNING", f"GPU driver {state.replace('_', ' ')}"
    sampled = view["driver"]["sampled_utc_s"]
    if sampled is None or abs(float(view["utc_s"]) - float(sampled)) > STALE_S:
        return "WARNING", "the GPUs were not read lately"
    return "OK", f"{len(view['gpus'])} GPUs, no incident, {view['mode']}"


def _look(config: str, run_dir: str, why: str) -> tuple[str, str]:
    from gpuwatch.daemon.app import look

    try:
        return look(config, run_dir, why)
    except ConfigError as error:
        return "UNKNOWN", f"{len(error.problems)} problems in the configuration: {error.problems[0]}"


def _performance(view: Optional[Mapping[str, Any]]) -> str:
    """Nagios performance data: 'label'=value."""
    gpus = [] if view is None else view["gpus"]
    temperatures = [(gpu["index"], gpu["readings"]["gpu.temperature"]["value"]) for gpu in gpus]
    data = " ".join(f"gpu{index}_temperature={value:.0f}" for index, value in temperatures if value is not None)
    return f" | {data}" if data else ""
