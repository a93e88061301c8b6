"""`gpuwatch demo`: the whole chain in about a minute, without GPU, root or systemd.

Simulated: the driver, the journal, systemd. Real: the cycle, the policy, evidence on disk, the ledger,
the messages, and HTTP to a receiver on loopback that answers like enterprise WeChat.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from typing import Any

from gpuwatch.cli.output import local_time, paint, safe

LONGEST_S = 100.0
STEP_S = 0.5

CONFIG = """\
# The configuration of the demo. On a real host: /etc/gpuwatch/gpuwatch.yaml
mode: enforce
language: {language}
interval: 500ms
workloads:
  - name: training
    units: ["train@*.service"]
grace: {{start: 0s, boot: 0s}}
rules:
  # As they ship, but quicker, so that the demo ends within a minute.
  - name: gpu-hot
    metric: gpu.slowdown_margin
    below: 3
    for: 2s
    clear: {{above: 8, for: 10s}}
    severity: warning
    ladder:
      - do: [throttle]
  - name: gpu-critical
    metric: gpu.shutdown_margin
    below: 2
    for: 5s
    clear: {{above: 8, for: 10s}}
    severity: critical
    ladder:
      - do: [stop]
alerts:
  channels:
    - name: phone
      type: wecom
      key: {{file: {key}}}
      url: {url}
      mention: ["@all"]
"""


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "demo", help="the whole chain without a GPU, in a minute", epilog="example: gpuwatch demo --language zh"
    )
    parser.add_argument("--language", choices=("en", "zh"), default="en")
    parser.add_argument("--dir", help="where to work (default: a new folder below the temporary directory)")


def run(args: argparse.Namespace) -> int:
    """0 when the story went as it should: stopped with evidence, told, resolved."""
    from gpuwatch.simulation.receiver import Receiver

    folder = args.dir or tempfile.mkdtemp(prefix="gpuwatch-demo-")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with Receiver() as receiver:
        return _play(args.language, os.path.abspath(folder), receiver)


def _play(language: str, folder: str, receiver: Any) -> int:
    from gpuwatch.cli.demo_screen import Screen
    from gpuwatch.daemon.app import Options, assemble, load_settings
    from gpuwatch.daemon.simulated import simulated_world
    from gpuwatch.simulation.host import SimulatedHost
    from gpuwatch.simulation.story import CARD, Story
    from gpuwatch.system.clock import SystemClock
    from gpuwatch.system.log import NullLog

    config = _write_files(folder, language, receiver.key, receiver.url)
    state_dir, run_dir = os.path.join(folder, "state"), os.path.join(folder, "run")
    for path in (state_dir, run_dir):
        os.makedirs(path, mode=0o700, exist_ok=True)
    settings = load_settings(config).settings
    host = SimulatedHost(SystemClock())
    host.moment = Story(host).moment
    options = Options(config, state_dir, run_dir)
    assembly = assemble(simulated_world(host, NullLog(), lambda: None), options, settings, settings.interval_s)
    screen = Screen(host.cards.uuid(CARD))
    _say("A simulated host with eight H100. In a moment the fan of GPU 3 fails.")
    _say(f"Config: {config}\n")
    began = time.monotonic()
    try:
        while time.monotonic() - began < LONGEST_S and not screen.over:
            started = time.monotonic()
            for line in screen.lines(assembly.cycle.run(), time.monotonic() - began, receiver.messages):
                _say(line)
            time.sleep(max(0.0, STEP_S - (time.monotonic() - started)))
    finally:
        screen.end()
        assembly.close()
        os.unlink(os.path.join(folder, "wecom.key"))
    return _epilogue(folder, state_dir, receiver, screen.over)


def _write_files(folder: str, language: str, key: str, url: str) -> str:
    key_path, config = os.path.join(folder, "wecom.key"), os.path.join(folder, "gpuwatch.yaml")
    descriptor = os.open(key_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(key)
    descriptor = os.open(config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(CONFIG.format(language=language, key=key_path, url=url))
    return config


def _epilogue(folder: str, state_dir: str, receiver: Any, over: bool) -> int:
    from gpuwatch.evidence.manifest import list_bundles, verify
    from gpuwatch.simulation.phone import phone

    messages = [message for message in receiver.messages if message.kind == "markdown"]
    _say("\nWhat arrived on the phone:\n" + phone(messages))
    bundles = list_bundles(os.path.join(state_dir, "evidence"))
    for bundle in bundles:
        problems = verify(bundle.path)
        _say(f"Evidence: {bundle.path} ({'whole' if not problems else '; '.join(problems)})")
    _say(
        "\nTry next:\n"
        f"  gpuwatch incident show 1 --state-dir {state_dir}\n"
        f"  gpuwatch evidence list --state-dir {state_dir}\n"
        "  gpuwatch explain 79\n"
        "On a real host: install the package, edit /etc/gpuwatch/gpuwatch.yaml, then systemctl reload gpuwatch\n"
        f"All that the demo left is in {folder}"
    )
    if over and bundles and len(messages) >= 3:
        return 0
    _say(paint(f"The story did not end as it should ({local_time(time.time())}).", "red"))
    return 1


def _say(text: str) -> None:
    for line in text.split("\n"):
        sys.stdout.write((line if "\x1b" in line else safe(line)) + "\n")
    sys.stdout.flush()
