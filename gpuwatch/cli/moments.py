"""Times on the command line: as options, and as the zone of whoever is looking."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable
from datetime import datetime, timezone, tzinfo
from zoneinfo import ZoneInfo

from gpuwatch.model.timestamps import TimestampError, parse_time
from gpuwatch.system.clock import local_zone


def viewer_zone() -> tzinfo:
    """TZ of the environment where it is set, as for every other program; else the machine's zone."""
    named = os.environ.get("TZ", "").lstrip(":")
    if not named:
        return local_zone()
    try:
        return ZoneInfo(named)
    except (OSError, ValueError):  # no such zone here, or a rule such as CST-8: its offset of today
        return datetime.now().astimezone().tzinfo or timezone.utc


def add_time(parser: argparse.ArgumentParser, option: str, text: str, later: bool = False) -> None:
    """An option whose value becomes UTC seconds. `later` as in parse_time: for the end of a range.
    A range lies in the past, so "7d" is 7 days ago there."""
    # argparse takes "-10m" for an option unless its idea of a negative number is widened.
    parser._negative_number_matcher = re.compile(r"-[0-9]")
    parser.add_argument(option, metavar="TIME", type=_reader(later, option != "--at"), help=text)


def _reader(later: bool, bare_is_ago: bool) -> Callable[[str], float]:
    def read(text: str) -> float:
        if bare_is_ago and re.fullmatch(r"[0-9.]+ ?[smhdw]", text):
            text = f"-{text}"
        try:
            return parse_time(text, time.time(), viewer_zone(), later)
        except TimestampError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def shown(utc_s: float, zone: tzinfo, now_utc_s: float) -> str:
    """13:45:32 CST; with the date where it is not today's."""
    moment = datetime.fromtimestamp(utc_s, zone)
    day = "" if moment.date() == datetime.fromtimestamp(now_utc_s, zone).date() else "%Y-%m-%d "
    return moment.strftime(f"{day}%H:%M:%S %Z")


def iso(utc_s: float, zone: tzinfo = timezone.utc) -> str:
    """2026-11-30T05:45:32.123+00:00: for programs."""
    return datetime.fromtimestamp(utc_s, zone).isoformat(timespec="milliseconds")


class Column:
    """A column of times: short, the zone in the header where one will do for all of them."""

    def __init__(self, moments: list[float], zone: tzinfo, now_utc_s: float) -> None:
        self._zone = zone
        local = [datetime.fromtimestamp(moment, zone) for moment in moments]
        names = {moment.tzname() or "" for moment in local}
        today = datetime.fromtimestamp(now_utc_s, zone).date()
        day = "" if {moment.date() for moment in local} <= {today} else "%m-%d "
        if any(moment.year != today.year for moment in local):
            day = "%Y-%m-%d "
        self._format = f"{day}%H:%M:%S" + ("" if len(names) <= 1 else " %Z")
        self.header = f"TIME ({names.pop()})" if len(names) == 1 else "TIME"

    def cell(self, utc_s: float) -> str:
        """One of them."""
        return datetime.fromtimestamp(utc_s, self._zone).strftime(self._format)
