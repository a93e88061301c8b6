"""`gpuwatch simulate`: a policy against written stories, or against the recorded history of this host. Never acts."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

from gpuwatch.cli import places
from gpuwatch.cli.moments import add_time, iso, shown, viewer_zone
from gpuwatch.cli.output import paint, safe, show_json
from gpuwatch.daemon.told import Entry
from gpuwatch.daemon.verdict import moment, told

if TYPE_CHECKING:  # yaml and all that is loaded only when the verb is used
    from gpuwatch.daemon.differences import Difference
    from gpuwatch.daemon.replay import Played
    from gpuwatch.model.settings import Settings

SCHEMA = 1
DEFAULT_S = 86400.0
OK, NOT_AS_EXPECTED, USAGE = 0, 1, 2
EXAMPLE = """examples:
  gpuwatch simulate hot-card.yaml                          a written story: what would gpuwatch make of it?
  gpuwatch simulate hot-card.yaml --policy new.yaml        the same with other rules
  gpuwatch simulate --policy new.yaml --since 7d           what would these rules have done in the last week,
                                                           and what other than the installed ones?
  gpuwatch simulate --schema > story.schema.json           how a story is written, for editors
Exit: 0 as expected, 1 not as expected, 78 a file with mistakes. Nothing is done and nothing is written.
"""


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "simulate",
        help="a policy against a written story, or against recorded history",
        description="What would the rules do? Needs no GPU, no daemon, no network; root only to read history.db.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "stories", nargs="*", metavar="STORY", help="YAML files: a host, what happens, what is expected"
    )
    parser.add_argument("--policy", metavar="FILE", help="the rules to try (default: the story's, or the installed)")
    parser.add_argument("--against", metavar="FILE", help="history: compare with these rules (default: the installed)")
    add_time(parser, "--since", "history: from then on (default: a day before --until)")
    add_time(parser, "--until", "history: until then (default: now)", later=True)
    parser.add_argument("--quiet", action="store_true", help="stories: only the verdicts")
    parser.add_argument("--json", action="store_true", help="machine-readable, with a schema version")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of a story")
    places.add_state_dir(parser)


def run(args: argparse.Namespace) -> int:
    """See EXAMPLE."""
    from gpuwatch.alerts.channels.options import channel_types
    from gpuwatch.config.scenario import ScenarioReader

    if args.schema:
        show_json(ScenarioReader(channel_types()).schema())
        return OK
    if args.stories and (args.since is not None or args.until is not None or args.against is not None):
        return _usage("--since, --until and --against are about history; they don't go with a story")
    return _stories(args) if args.stories else _history(args)


def _usage(problem: str) -> int:
    sys.stderr.write(f"gpuwatch simulate: {problem}\nsee: gpuwatch simulate --help\n")
    return USAGE


def _load(path: str) -> Settings:
    from gpuwatch.alerts.channels.options import channel_types
    from gpuwatch.config.load import load

    return load(path, channel_types()).settings


# Stories


def _stories(args: argparse.Namespace) -> int:
    from gpuwatch.alerts.channels.options import channel_types
    from gpuwatch.config.scenario import ScenarioReader
    from gpuwatch.daemon.stories import play
    from gpuwatch.daemon.verdict import failures
    from gpuwatch.model.errors import ConfigError, Problem

    policy = None if args.policy is None else _load(args.policy)
    reader, read, problems = ScenarioReader(channel_types()), [], []
    for path in args.stories:
        try:
            with open(path, "rb") as file:
                read.append((path, *reader.read(file.read(), path, policy)))
        except OSError as error:
            problems.append(Problem(path, 1, 1, f"can't be read: {error.strerror}"))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(tuple(problems))
    results = []
    for path, scenario, settings in read:
        entries = play(scenario, settings).entries
        results.append((path, scenario.story, entries, failures(scenario, entries)))
    if args.json:
        show_json({"schema": SCHEMA, "stories": [_story_json(*result) for result in results]})
    else:
        sys.stdout.write("\n".join(_story_text(*result, quiet=args.quiet) for result in results))
    return NOT_AS_EXPECTED if any(failed for *_, failed in results) else OK


def _story_text(path: str, story: str, entries: Sequence[Entry], failed: Sequence[str], quiet: bool) -> str:
    lines = [paint(safe(story), "bold")]
    if not quiet:
        lines += [f"  {moment(each.at_s):>9}  {safe(told(each))}" for each in entries] or ["  nothing happens"]
    if failed:
        lines += [paint(f"  NOT as expected: {safe(each)}", "red") for each in failed]
    else:
        lines.append(paint("  as expected", "green"))
    return "\n".join(lines) + "\n"


def _story_json(path: str, story: str, entries: Sequence[Entry], failed: Sequence[str]) -> dict[str, Any]:
    return {
        "file": path,
        "story": story,
        "as_expected": not failed,
        "failures": list(failed),
        "entries": [{"at_s": round(each.at_s, 3), **_entry_json(each)} for each in entries],
    }


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "what": entry.verb,
        "name": entry.name,
        "on": entry.on,
        "rule": entry.rule,
        "reason": entry.reason,
        "level": entry.level,
        "facts": dict(entry.facts),
        "words": told(entry),
    }


# History


def _history(args: argparse.Namespace) -> int:
    from gpuwatch.daemon.differences import differences, tell
    from gpuwatch.daemon.replay import replay
    from gpuwatch.store.history_read import open_history

    until = time.time() if args.until is None else args.until
    since = until - DEFAULT_S if args.since is None else args.since
    if since > until:
        return _usage(f"--since {iso(since, viewer_zone())} is later than --until {iso(until, viewer_zone())}")
    path = args.policy or places.CONFIG
    policies = [_load(path)]
    other = args.against or (places.CONFIG if args.policy and os.path.exists(places.CONFIG) else None)
    if other is not None:
        policies.append(_load(other))
    with open_history(os.path.join(args.state_dir, "history.db")) as reader:
        played = replay(reader, policies, since, until)
    found = None if other is None else differences(tell(played.entries[1]), tell(played.entries[0]))
    entries = tell(played.entries[0])
    if args.json:
        show_json(_history_json(path, other, played, entries, found))
    else:
        sys.stdout.write(_history_text(path, other, played, entries, found))
    return OK


def _history_text(
    path: str, other: Optional[str], played: Played, entries: Sequence[Entry], found: Optional[Sequence[Difference]]
) -> str:
    zone, now = viewer_zone(), time.time()
    span = f"{shown(played.first_utc_s, zone, now)} to {shown(played.last_utc_s, zone, now)}"
    if not played.moments:
        return "nothing was recorded in that time; see: gpuwatch history\n"
    lines = [paint(f"{safe(path)} over {span}, {played.moments} recorded moments", "bold")]
    lines += [f"  {shown(each.at_s, zone, now)}  {safe(told(each))}" for each in entries]
    if not entries:
        lines.append("  no rule would have fired")
    if found is not None:
        lines.append(paint(f"Compared with {safe(str(other))}", "bold"))
        lines += [f"  {each.kind:<8} {shown(each.entry.at_s, zone, now)}  {safe(each.words)}" for each in found]
        if not found:
            lines.append("  no difference in what fires and what would be done")
    lines.append(paint("What history can't tell", "bold"))
    lines += [f"  - {each}" for each in played.caveats]
    return "\n".join(lines) + "\n"


def _history_json(
    path: str, other: Optional[str], played: Played, entries: Sequence[Entry], found: Optional[Sequence[Difference]]
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "policy": path,
        "against": other,
        "since": iso(played.first_utc_s),
        "until": iso(played.last_utc_s),
        "moments": played.moments,
        "entries": [{"at": iso(each.at_s), **_entry_json(each)} for each in entries],
        "differences": None
        if found is None
        else [
            {"kind": each.kind, "at": iso(each.entry.at_s), "by_s": each.by_s, **_entry_json(each.entry)}
            for each in found
        ],
        "caveats": list(played.caveats),
    }
