"""`gpuwatch history`: was the card there at some moment, and what was it like over a time. Needs no daemon."""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from gpuwatch.cli import places
from gpuwatch.cli.history_table import MAIN, Range, all_cards, host, one_card
from gpuwatch.cli.history_words import Viewer, explain, explain_all
from gpuwatch.cli.moments import add_time, iso, viewer_zone
from gpuwatch.cli.output import show_json
from gpuwatch.model.metric import METRICS
from gpuwatch.store.history_query import known_at
from gpuwatch.store.history_read import METRICS_KEPT, HistoryReader, open_history
from gpuwatch.store.history_rows import Gap, Known, KnownGpu, Row

SCHEMA = 1
DEFAULT_S = 600.0  # shown when no range is given
NEAR_S = 3600.0  # a card that was seen within an hour of a moment belongs into the answer about it
OK, UNKNOWN, USAGE = 0, 1, 2


def add_parser(subparsers: Any) -> None:
    """Options."""
    parser = subparsers.add_parser(
        "history",
        help="was the card there ten minutes ago, and what was it like",
        description="Every 5 s for 7 days, then the worst of each minute for 90 days. Exit 1: nobody can say.",
        epilog='examples: gpuwatch history --gpu 3 --at "10 min ago"   gpuwatch history --gpu 3 --since -1h   '
        "gpuwatch history --since -1h --metric gpu.power",
    )
    parser.add_argument("--gpu", metavar="GPU", help="3, GPU-3d9a7c10, or a PCI address; without: all of them")
    add_time(parser, "--at", 'the moment: "10 min ago", 13:45, "yesterday 13:00", 2026-11-30T13:45:32+08:00')
    add_time(parser, "--since", "from then on (default: 10 minutes before --until)")
    add_time(parser, "--until", "until then (default: now)", later=True)
    parser.add_argument(
        "--metric", action="append", type=_metrics, metavar="NAME", help="e.g. gpu.power; may repeat, or a,b"
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="one JSON object (schema 1), every row")
    shape.add_argument("--csv", action="store_true", help="every row, comma separated")
    places.add_state_dir(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 when about a moment that was asked for nobody can say."""
    metrics = [metric for given in args.metric or () for metric in given]
    with open_history(os.path.join(args.state_dir, "history.db")) as reader:
        if args.at is not None:
            if args.since is not None or args.until is not None or args.csv:
                return _usage("--at is one moment; it goes with --gpu, --metric and --json only")
            return _at(reader, args, metrics)
        until = time.time() if args.until is None else args.until
        since = until - DEFAULT_S if args.since is None else args.since
        if since > until:
            return _usage(f"--since {iso(since, viewer_zone())} is later than --until {iso(until, viewer_zone())}")
        return _range(reader, args, since, until, metrics)


def _usage(problem: str) -> int:
    sys.stderr.write(f"gpuwatch history: {problem}\nsee: gpuwatch history --help\n")
    return USAGE


def _metrics(text: str) -> list[str]:
    """A type of argparse."""
    wanted = [word if "." in word else f"gpu.{word}" for word in text.split(",") if word]
    for metric in wanted:
        if metric not in METRICS_KEPT:
            raise argparse.ArgumentTypeError(_no_such(metric))
    return wanted


def _no_such(metric: str) -> str:
    import difflib

    close = difflib.get_close_matches(metric, METRICS_KEPT, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"{metric!r} {'has no history' if metric in METRICS else 'is no metric'}{hint}"


# One moment


def _at(reader: HistoryReader, args: argparse.Namespace, metrics: Sequence[str]) -> int:
    gpus = _asked(reader, args.gpu, args.at)
    answers = [known_at(reader, gpu, args.at) for gpu in gpus]
    if args.json:
        show_json({"schema": SCHEMA, "at": iso(args.at), "gpus": [_known_json(known, metrics) for known in answers]})
    elif not answers:
        sys.stdout.write("no GPU was ever seen on this host\n")
    else:
        viewer = Viewer(time.time(), viewer_zone(), metrics, reader.span())
        alone = len(answers) == 1
        sys.stdout.write((explain(answers[0], viewer) if alone else explain_all(answers, viewer)) + "\n")
    return UNKNOWN if not answers or any(known.there is None for known in answers) else OK


def _asked(reader: HistoryReader, text: Optional[str], utc_s: float) -> list[KnownGpu]:
    """The one that is named, or all that were seen around the moment; all that are known where none was."""
    if text is not None:
        return [reader.gpu(text, utc_s)]
    known = list(reader.gpus())
    near = []
    for gpu in known:
        before, after = reader.last_read(gpu, utc_s), reader.next_read(gpu, utc_s)
        if any(row is not None and abs(row.at.utc_s - utc_s) <= NEAR_S for row in (before, after)):
            near.append(gpu)
    return near or known


def _known_json(known: Known, metrics: Sequence[str]) -> dict[str, Any]:
    return {
        **_gpu_json(known.gpu),
        "there": known.there,
        "why": known.why,
        "age_s": None if known.age_s is None else round(known.age_s, 3),
        "row": _row_json(known.row, metrics),
        "before": _row_json(known.before, metrics),
        "after": _row_json(known.after, metrics),
        "gap": None if known.gap is None else _gap_json(known.gap),
        "clock_set_back": known.twice,
    }


def _gpu_json(gpu: KnownGpu) -> dict[str, Any]:
    return {"uuid": gpu.uuid, "index": gpu.index, "name": gpu.name, "pci": gpu.pci}


def _row_json(row: Optional[Row], metrics: Sequence[str] = ()) -> Optional[dict[str, Any]]:
    if row is None:
        return None
    values = {name: value for name, value in row.values.items() if not metrics or name in metrics}
    return {"time": iso(row.at.utc_s), "boot_id": row.at.boot_id, "state": row.state, "values": values}


def _gap_json(gap: Gap) -> dict[str, Any]:
    until = None if gap.until_utc_s is None else iso(gap.until_utc_s)
    return {"from": iso(gap.from_utc_s), "until": until, "reason": gap.reason, "detail": gap.detail}


# A range


def _range(reader: HistoryReader, args: argparse.Namespace, since: float, until: float, metrics: Sequence[str]) -> int:
    host_only = bool(metrics) and all(metric.startswith("host.") for metric in metrics)
    gpus: list[KnownGpu] = [] if args.gpu is None and host_only else _in_range(reader, args.gpu, until)
    if args.json:
        _range_json(reader, gpus, since, until, metrics)
        return OK
    if args.csv:
        _range_csv(reader, gpus, since, until, metrics or ([] if host_only else MAIN))
        return OK
    gaps, asked = reader.gaps(since, until), Range(since, until, time.time(), viewer_zone())
    if host_only and args.gpu is None:
        drawn = host(reader.rows(None, since, until, metrics), gaps, asked, metrics)
    elif args.gpu is not None:
        drawn = one_card(gpus[0], reader.rows(gpus[0], since, until, metrics or MAIN), gaps, asked, metrics or MAIN)
    elif len(metrics) > 1:
        return _usage("several metrics make a table of one card: say which with --gpu")
    else:
        metric = metrics[0] if metrics else MAIN[0]
        drawn = all_cards({gpu: reader.rows(gpu, since, until, (metric,)) for gpu in gpus}, gaps, asked, metric)
    sys.stdout.write(drawn + "\n")
    return OK


def _in_range(reader: HistoryReader, text: Optional[str], until: float) -> list[KnownGpu]:
    return [reader.gpu(text, until)] if text is not None else list(reader.gpus())


def _range_json(
    reader: HistoryReader, gpus: Sequence[KnownGpu], since: float, until: float, metrics: Sequence[str]
) -> None:
    of_gpus = [
        {**_gpu_json(gpu), "rows": [_row_json(row) for row in reader.rows(gpu, since, until, metrics or None)]}
        for gpu in gpus
    ]
    host = [] if gpus else [_row_json(row) for row in reader.rows(None, since, until, metrics or None)]
    show_json(
        {
            "schema": SCHEMA,
            "since": iso(since),
            "until": iso(until),
            "gpus": of_gpus,
            "host": host,
            "gaps": [_gap_json(gap) for gap in reader.gaps(since, until)],
        }
    )


def _range_csv(
    reader: HistoryReader, gpus: Sequence[KnownGpu], since: float, until: float, metrics: Sequence[str]
) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("time", "utc_s", "gpu", "uuid", "state", *metrics))
    for gpu, row in _every_row(reader, gpus, since, until, metrics):
        name = ("", "") if gpu is None else (gpu.index if row.index is None else row.index, gpu.uuid)
        values = (_plain(row.values, metric) for metric in metrics)
        writer.writerow((iso(row.at.utc_s), f"{row.at.utc_s:.3f}", *name, row.state, *values))


def _every_row(
    reader: HistoryReader, gpus: Sequence[KnownGpu], since: float, until: float, metrics: Sequence[str]
) -> Iterator[tuple[Optional[KnownGpu], Row]]:
    if not gpus:
        for row in reader.rows(None, since, until, metrics):
            yield None, row
    for gpu in gpus:
        for row in reader.rows(gpu, since, until, metrics):
            yield gpu, row


def _plain(values: Mapping[str, Optional[float]], metric: str) -> str:
    value = values.get(metric)
    if value is None:
        return ""
    return str(int(value)) if value == int(value) else repr(value)
