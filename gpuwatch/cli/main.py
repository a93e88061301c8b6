"""`gpuwatch VERB ...`: finds the verb's module, imports that one alone, runs it."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Optional

from gpuwatch import __version__
from gpuwatch.model.errors import ConfigError, GpuwatchError

OK, FAILURE, USAGE, BAD_CONFIG = 0, 1, 2, 78

# verb: (module below gpuwatch.cli, what it does). Each module has add_parser(subparsers) and run(args).
VERBS = {
    "status": ("status", "GPUs, who uses them, incidents, health of gpuwatch itself"),
    "check": ("check", "read-only probe for monitoring (Nagios exit codes 0-3)"),
    "incident": ("incident", "list, show, ack, close: what happened, what was done"),
    "event": ("event", "list: what the sources said happened"),
    "history": ("history", "a GPU's readings then, or over a time; --at, --since, --until"),
    "evidence": ("evidence", "list, show, verify bundles on disk"),
    "snapshot": ("snapshot", "write an evidence bundle now"),
    "explain": ("explain", "what an Xid number or a kernel line means, and what to do next"),
    "gpu": ("gpu", "list, accept, forget: which GPUs belong into this host"),
    "action": ("action", "list, show, veto, revert: what gpuwatch does, did, would have done"),
    "hold": ("hold", "list, release: units that are kept from starting"),
    "disarm": ("disarm", "touch nothing, as in observe mode (until arm, or --for a time)"),
    "arm": ("arm", "take disarm back"),
    "maintenance": ("maintenance", "on, off: touch nothing, tell nobody; --release-gpu: let go of the GPUs"),
    "silence": ("silence", "add, list, expire: tell nobody about a rule or a card for a time"),
    "alert": ("alert", "test a channel, show the queue of messages"),
    "config": ("config", "check, show, schema"),
    "simulate": ("simulate", "a policy against a written story, or against recorded history"),
    "demo": ("demo", "the whole chain on this machine without a GPU, in a minute"),
    "run": ("run", "the daemon in the foreground (--once: one pass)"),
}

_TAIL = """
Without a verb: status. Each verb has --help with an example; most have --json.
Exit codes: 0 ok, 1 failure, 2 usage, 78 bad configuration; `check` as above.
The config is /etc/gpuwatch/gpuwatch.yaml; nothing acts until it says `enforce` and names workloads.
"""


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Exit code of one call. Everything that goes wrong on purpose ends as one clear line on standard error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(_help())
        return OK
    if arguments and arguments[0] in ("-V", "--version"):
        sys.stdout.write(f"gpuwatch {__version__}\n")
        return OK
    if not arguments or arguments[0].startswith("-"):
        arguments.insert(0, "status")
    verb = arguments[0]
    if verb not in VERBS:
        sys.stderr.write(f"gpuwatch: no verb {verb!r}{_nearest(verb)}\nsee: gpuwatch --help\n")
        return USAGE
    module = importlib.import_module(f"gpuwatch.cli.{VERBS[verb][0]}")
    parser = argparse.ArgumentParser(prog="gpuwatch", add_help=False)
    module.add_parser(parser.add_subparsers(dest="verb"))
    try:
        args = parser.parse_args(arguments)
        return int(module.run(args))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return BAD_CONFIG
    except GpuwatchError as error:
        sys.stderr.write(f"gpuwatch: {error}\n")
        return FAILURE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return 130


def _help() -> str:
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {text}" for verb, (_, text) in VERBS.items()]
    return "gpuwatch: flight recorder and circuit breaker of a GPU server\n\n" + "\n".join(lines) + "\n" + _TAIL


def _nearest(verb: str) -> str:
    import difflib

    close = difflib.get_close_matches(verb, VERBS, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


if __name__ == "__main__":
    sys.exit(main())
