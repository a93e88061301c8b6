"""gpuwatch config: check the configuration, show what is in force, print its JSON Schema."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any, Optional

from gpuwatch.cli import places
from gpuwatch.model.errors import ConfigError

if TYPE_CHECKING:  # yaml and all that is loaded only when the verb is used
    from gpuwatch.cli.config_effective import Effective
    from gpuwatch.config.load import Loaded

SCHEMA = 1
BAD_CONFIGURATION = 78  # EX_CONFIG of sysexits.h
EXAMPLE = """examples:
  gpuwatch config check
  gpuwatch config show --json | jq .settings.rules
  gpuwatch config show --effective
  gpuwatch config schema > gpuwatch.schema.json
"""


def add_parser(subparsers: Any) -> None:
    """The verb and its own verbs."""
    parser = subparsers.add_parser(
        "config",
        help="check or show the configuration",
        description="Check the configuration, show what is in force, or print its JSON Schema.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="config_verb", metavar="VERB", required=True)
    check = verbs.add_parser("check", help="every problem at once; exit 0, or 78 if there is one")
    check.add_argument("--quiet", action="store_true", help="say nothing when all is well; no warnings")
    show = verbs.add_parser("show", help="the settings in force and where each comes from; holds no secrets")
    show.add_argument("--json", action="store_true", help="machine-readable, with a schema version")
    show.add_argument(
        "--effective",
        action="store_true",
        help="also which rules hold for each GPU of this host, and with which limit, as the running daemon sees the"
        " GPUs; exit 1 when it can't be asked",
    )
    places.add_run_dir(show)
    verbs.add_parser("schema", help="the JSON Schema of the files, for editors")
    for verb in (check, show):
        places.add_config(verb)


def run(args: argparse.Namespace) -> int:
    """0, or 78 with every problem on stderr."""
    if args.config_verb == "schema":
        print(schema_text(), end="")
        return 0
    try:
        loaded = _load(args.config)
    except ConfigError as error:
        print_problems(error, "nothing was changed, the running configuration stays")
        return BAD_CONFIGURATION
    if args.config_verb == "show":
        effective = _effective(loaded, args.run_dir) if args.effective else None
        print(show_text(loaded, args.json, effective), end="")
        return 1 if effective is not None and effective.problem else 0
    if not args.quiet:
        _print_warnings(loaded)
        print(_summary(loaded))
    return 0


def _load(path: str) -> Loaded:
    from gpuwatch.alerts.channels.options import channel_types
    from gpuwatch.config.load import load

    return load(path, channel_types(), now_utc_s=time.time())


def _effective(loaded: Loaded, run_dir: str) -> Effective:
    from gpuwatch.cli.config_effective import Effective

    return Effective(loaded.settings.rules, run_dir)


def print_problems(error: ConfigError, consequence: str) -> None:
    """Every problem on a line of its own on stderr, and what follows from them."""
    for problem in error.problems:
        print(problem, file=sys.stderr)
    print(f"{counted(error.problems, 'problem')}; {consequence}", file=sys.stderr)


def counted(things: tuple[object, ...], noun: str) -> str:
    """1 problem, 2 problems."""
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def _print_warnings(loaded: Loaded) -> None:
    for warning in loaded.warnings:
        print(f"{warning.file}:{warning.line}:{warning.column}: warning: {warning.text}", file=sys.stderr)


def _summary(loaded: Loaded) -> str:
    settings = loaded.settings
    rules = sum(rule.enabled for rule in settings.rules)
    names = ", ".join(f"'{workload.name}'" for workload in settings.workloads) or "none"
    channels = ", ".join(f"'{channel.name}'" for channel in settings.channels) or "none"
    own = f", {counted(settings.patterns, 'pattern')} of this site" if settings.patterns else ""
    return (
        f"ok: mode {settings.mode.value}, {rules} rules{own}, workloads: {names}, channels: {channels}"
        f" ({len(loaded.files)} file{'' if len(loaded.files) == 1 else 's'} read)"
    )


def show_text(loaded: Loaded, as_json: bool, effective: Optional[Effective] = None) -> str:
    """What `config show` prints."""
    from gpuwatch.config.show import as_data, as_text

    if not as_json:
        return as_text(loaded) + ("" if effective is None else f"\n{effective.text()}")
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "files": list(loaded.files),
        "settings": as_data(loaded.settings),
        "origins": dict(loaded.origins),
        "warnings": [str(warning) for warning in loaded.warnings],
    }
    if effective is not None:
        document["effective"] = effective.data()
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def schema_text() -> str:
    """What `config schema` prints."""
    from gpuwatch.alerts.channels.options import channel_types
    from gpuwatch.config.root import json_schema

    return json.dumps(json_schema(channel_types()), ensure_ascii=False, indent=2) + "\n"
