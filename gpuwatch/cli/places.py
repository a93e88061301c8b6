"""Where things are: options that every verb shares, and their defaults."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from gpuwatch.model.errors import SourceError
from gpuwatch.system.control_socket import ask

CONFIG = "/etc/gpuwatch/gpuwatch.yaml"
STATE_DIR = "/var/lib/gpuwatch"
RUN_DIR = "/run/gpuwatch"


def add_state_dir(parser: argparse.ArgumentParser) -> None:
    """--state-dir."""
    default = os.environ.get("STATE_DIRECTORY", STATE_DIR).split(":")[0]
    parser.add_argument(
        "--state-dir", default=default, metavar="DIR", help=f"state and evidence (default: {STATE_DIR})"
    )


def add_run_dir(parser: argparse.ArgumentParser) -> None:
    """--run-dir."""
    default = os.environ.get("RUNTIME_DIRECTORY", RUN_DIR).split(":")[0]
    parser.add_argument(
        "--run-dir", default=default, metavar="DIR", help=f"control socket and lock (default: {RUN_DIR})"
    )


def add_config(parser: argparse.ArgumentParser) -> None:
    """--config."""
    parser.add_argument("--config", default=CONFIG, metavar="FILE", help=f"default: {CONFIG}")


def fetch_view(run_dir: str, timeout_s: float = 0.8) -> tuple[dict[str, Any], str]:
    """The daemon's view, and why it is only the copy that it left behind ("" when it is live).

    Raises SourceError when there is neither.
    """
    try:
        answer = ask(os.path.join(run_dir, "control.sock"), {"verb": "status"}, timeout_s)
    except SourceError as error:
        why = str(error)
    else:
        if "view" in answer:
            return answer["view"], ""
        why = str(answer.get("error", "the daemon's answer is not understood"))
    try:
        with open(os.path.join(run_dir, "status.json"), encoding="utf-8") as file:
            return json.load(file), why
    except FileNotFoundError as error:
        raise SourceError(f"{why}, and it has left no status behind; see: systemctl status gpuwatch") from error
    except (OSError, ValueError) as error:
        raise SourceError(f"{why}; {run_dir}/status.json: {error}") from error
