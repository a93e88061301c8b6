"""`gpuwatch alert test|queue`: does a message arrive, and which ones wait."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gpuwatch.cli import places
from gpuwatch.cli.output import ago, local_time, safe, show_json, table
from gpuwatch.model.errors import SourceError
from gpuwatch.model.notification import DeliveryState, SpoolEntry

if TYPE_CHECKING:  # loaded only when a channel is tested
    from gpuwatch.model.settings import Channel, Settings

ANSWER_S = 45.0  # a little more than the sender may need for one message
_UNIT_CREDENTIALS = "/run/credentials/gpuwatch.service"  # where systemd keeps those of the running daemon

EXAMPLE = """examples:
  gpuwatch alert test
  gpuwatch alert test ops --json
  gpuwatch alert queue
"""


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "alert",
        help="test a channel, show the queue of messages",
        description="Send a test message through the channels, or show the messages that wait.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="alert_verb", metavar="VERB", required=True)
    test = verbs.add_parser("test", help="send a test message now; exit 0 only if every channel took it")
    test.add_argument("channel", nargs="?", help="one channel by name; all of them without it")
    places.add_config(test)
    queue = verbs.add_parser("queue", help="messages that wait or were refused (--all: delivered ones too)")
    queue.add_argument("--all", action="store_true", help="delivered ones too")
    places.add_state_dir(queue)
    places.add_run_dir(queue)
    for verb in (test, queue):
        verb.add_argument("--json", action="store_true", help="machine-readable, with a schema version")


def run(args: argparse.Namespace) -> int:
    """Exit code."""
    return _test(args) if args.alert_verb == "test" else _queue(args)


def _test(args: argparse.Namespace) -> int:
    from gpuwatch.alerts.channels.options import channel_types
    from gpuwatch.config.load import load

    settings = load(args.config, channel_types()).settings
    chosen = [channel for channel in settings.channels if args.channel in (None, channel.name)]
    if not chosen:
        names = ", ".join(channel.name for channel in settings.channels)
        wanted = f"no channel {safe(args.channel)!r}; there is {names}" if names else "no channel is configured"
        sys.stderr.write(f"gpuwatch: {args.config}: {wanted} (alerts.channels)\n")
        return 1
    told = send_test(settings, tuple(chosen))
    if args.json:
        show_json({"schema": 1, "channels": [dict(told[channel.name], channel=channel.name) for channel in chosen]})
    else:
        for channel in chosen:
            sys.stdout.write(_sentence(channel, told[channel.name]) + "\n")
    return 0 if all(told[channel.name]["ok"] for channel in chosen) else 1


def send_test(settings: Settings, channels: tuple[Channel, ...]) -> dict[str, Mapping[str, object]]:
    """What became of a test message, by channel name: through the same sender as every other message."""
    from gpuwatch.alerts.courier import SenderCourier
    from gpuwatch.alerts.pipeline import request
    from gpuwatch.alerts.render import render_test
    from gpuwatch.system.clock import SystemClock
    from gpuwatch.system.secrets import read_key

    clock = SystemClock()
    now = clock.now()
    zone = datetime.fromtimestamp(now.utc_s).astimezone().tzinfo
    assert zone is not None
    host = settings.host or os.uname().nodename
    told: dict[str, Mapping[str, object]] = {}
    courier = SenderCourier(clock)
    try:
        for channel in channels:
            try:
                key = read_key(channel.key, credentials(os.environ)).reveal()
            except SourceError as error:
                told[channel.name] = {"ok": False, "retryable": True, "problem": str(error), "answer": ""}
                continue
            message = render_test(host, channel.name, settings.language, now, zone, simulated=False)
            entry = SpoolEntry(channel.name, channel.name, message, now.utc_s)
            courier.send((request(entry, channel, key, settings.language),))
        _await(courier, clock, told, len(channels))
    finally:
        courier.close(2.0)
    for channel in channels:
        nothing = {"ok": False, "retryable": True, "problem": f"no answer within {ANSWER_S:.0f} s", "answer": ""}
        told.setdefault(channel.name, nothing)
    return told


def _await(courier: Any, clock: Any, told: dict[str, Mapping[str, object]], count: int) -> None:
    import select

    deadline_s = clock.monotonic() + ANSWER_S * count
    while len(told) < count and clock.monotonic() < deadline_s:
        for outcome in courier.outcomes():
            told[str(outcome["id"])] = {name: value for name, value in outcome.items() if name != "id"}
        if len(told) < count:
            # Without a descriptor there is no child; what it owed has just been told, or comes next.
            select.select(courier.fds(), (), (), 0.5)


def credentials(environment: Mapping[str, str]) -> Mapping[str, str]:
    """On a shell systemd passes no credentials: those of the running daemon serve, where root may read them."""
    if environment.get("CREDENTIALS_DIRECTORY") or not os.path.isdir(_UNIT_CREDENTIALS):
        return environment
    return {**environment, "CREDENTIALS_DIRECTORY": _UNIT_CREDENTIALS}


def _sentence(channel: Channel, outcome: Mapping[str, object]) -> str:
    answer = safe(outcome.get("answer") or "")
    if outcome["ok"]:
        return f"{channel.name}: delivered; {channel.type} answered: {answer}"
    problem = safe(outcome.get("problem") or "no reason given")
    ending = " (worth another try)" if outcome.get("retryable") else " (fix this first; it is not tried again)"
    said = f"; {channel.type} answered: {answer}" if answer and answer not in problem else ""
    return f"{channel.name}: NOT delivered: {problem}{ending}{said}"


def _queue(args: argparse.Namespace) -> int:
    from gpuwatch.cli.stored import read_store
    from gpuwatch.model.codec import encode
    from gpuwatch.system.clock import SystemClock

    entries = sorted(read_store(args.state_dir, args.run_dir).spool.values(), key=lambda entry: entry.created_utc_s)
    shown = [entry for entry in entries if args.all or entry.state is not DeliveryState.DELIVERED]
    if args.json:
        show_json({"schema": 1, "messages": [encode(entry) for entry in shown]})
        return 0
    if not shown:
        more = "" if args.all or not entries else f" ({len(entries)} delivered: gpuwatch alert queue --all)"
        sys.stdout.write(f"no messages wait{more}\n")
        return 0
    now_utc_s = SystemClock().now().utc_s
    rows = [
        [
            local_time(entry.created_utc_s),
            entry.channel,
            _state(entry, now_utc_s),
            str(entry.attempts),
            entry.message.title,
        ]
        for entry in shown
    ]
    sys.stdout.write(table(("MADE", "CHANNEL", "STATE", "TRIES", "MESSAGE"), rows, right=(3,)) + "\n")
    for entry in shown:
        if entry.problem:
            sys.stdout.write(f"{safe(entry.key)}: {safe(entry.problem)}\n")
    return 0


def _state(entry: SpoolEntry, now_utc_s: float) -> str:
    wait_s = entry.next_try_utc_s - now_utc_s
    if entry.state is DeliveryState.QUEUED and entry.attempts and wait_s > 0:
        return f"again in {ago(wait_s)}"
    return entry.state.value
