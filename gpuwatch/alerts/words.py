"""Numbers, times and names as people read them, in the language of the messages. Pure."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from typing import Optional

from gpuwatch.catalog.text import clean
from gpuwatch.catalog.texts import has, text
from gpuwatch.model.event import Scalar
from gpuwatch.model.instant import Instant
from gpuwatch.model.metric import METRICS

MOST_NAME = 64  # characters of a name from outside
MOST_WORDS = 160  # characters of a sentence from outside

# Reasons whose detail says more than our own words: a system's error, names of units.
_SENTENCES = frozenset({"not_loaded", "not_leaf", "has_containers", "takes_along", "run_by_unit"})
_DETAILED = _SENTENCES | {"no_bundle", "stop_failed", "change_failed", "overtaken"}

# What chat services read as "call everybody", in the ways they write it.
_CALL = re.compile(r"@(?=\s*(?:all|everyone|channel|here|所有人|全体成员)(?![A-Za-z0-9_]))", re.IGNORECASE)
_CALL_SOMEBODY = re.compile(r"(?<![A-Za-z0-9_.:-])@")


def foreign(value: object, most: int = MOST_NAME) -> str:
    """Text from outside (unit, process and user names, log lines): one line, no invisible characters, no mention.

    "train@llama.service" stays as it is; "@all" becomes "＠all".
    """
    line = clean(str(value), most)
    line = "".join(mark for mark in line if unicodedata.category(mark) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    return _CALL_SOMEBODY.sub("＠", _CALL.sub("＠", line))


def columns(line: str) -> int:
    """How wide a line is in a fixed-width font: Chinese characters take two columns."""
    wide = sum(unicodedata.east_asian_width(mark) in ("W", "F") for mark in line)
    unseen = sum(unicodedata.combining(mark) != 0 for mark in line)
    return len(line) + wide - unseen


@dataclass(frozen=True)
class Words:
    """Writes for one message: its language, its zone, and the moment it is written."""

    language: str
    zone: tzinfo
    now: Instant

    def say(self, key: str, **parameters: object) -> str:
        """A text of the catalogue."""
        return text(self.language, key, **parameters)

    def quantity(self, metric: str, number: float) -> str:
        """A value with its unit: 92 C, 98 %, 60.9 GiB, 350 W."""
        unit = METRICS[metric].unit if metric in METRICS else ""
        if unit == "C":
            return self.degrees(number)
        if unit == "ratio":
            return f"{_digits(number * 100)}%" if self.language == "zh" else f"{_digits(number * 100)} %"
        if unit == "bytes":
            return f"{number / 1024**3:.1f} GiB"
        if unit == "s":
            return self.duration(number)
        if unit == "0/1":
            return ""
        return f"{_digits(number)} {unit}".strip()

    def degrees(self, number: float) -> str:
        """92 C, or 92℃ in Chinese."""
        return f"{_digits(number)}℃" if self.language == "zh" else f"{_digits(number)} C"

    def temperature(self, reading: float) -> str:
        """A reading in whole degrees; limits keep their decimals (degrees)."""
        return self.degrees(round(reading))

    def range(self, low: float, high: float) -> tuple[str, str]:
        """Two temperatures of which only the second carries the unit: 61-68 C."""
        return f"{round(low)}", self.temperature(high)

    def duration(self, seconds: float) -> str:
        """45 s, 23 min, 1 h 5 min, 2 d 3 h."""
        whole = max(0, round(seconds))
        if whole < 100:
            return self.say("s", n=whole)
        minutes = round(whole / 60)
        if minutes < 60:
            return self.say("min", n=minutes)
        hours, rest = divmod(minutes, 60)
        if hours < 24 or minutes == 1440:  # a limit of 24 h is called so
            return self.say("h_min", n=hours, m=rest) if rest else self.say("h", n=hours)
        days, hours = divmod(hours, 24)
        return self.say("d_h", n=days, m=hours) if hours else self.say("d", n=days)

    def time(self, moment: Instant, later_s: float = 0.0) -> str:
        """13:47:12 CST, local time; with the date when that is not today's."""
        local = self._local(moment.utc_s + later_s)
        clock = local.strftime("%H:%M:%S")
        if local.date() != self._local(self.now.utc_s).date():
            clock = f"{local.strftime('%m-%d')} {clock}"
        return f"{clock} {zone_name(local)}"

    def span(self, start: Instant, end: Instant) -> tuple[str, str]:
        """13:47 and 14:05, without a zone; with seconds when it was short, with dates when not of today."""
        long = end.utc_s - start.utc_s >= 120
        today = self._local(self.now.utc_s).date()
        shown = []
        for moment in (start, end):
            local = self._local(moment.utc_s)
            clock = local.strftime("%H:%M" if long else "%H:%M:%S")
            shown.append(clock if local.date() == today else f"{local.strftime('%m-%d')} {clock}")
        return shown[0], shown[1]

    def zone_text(self, moment: Instant) -> str:
        """The zone of `moment`: CST, or +08:00 where it has no name."""
        return zone_name(self._local(moment.utc_s))

    def elapsed(self, earlier: Instant) -> float:
        """Seconds from `earlier` to now; by UTC when the host was restarted in between."""
        seconds = self.now.since(earlier)
        return max(0.0, self.now.utc_s - earlier.utc_s if seconds is None else seconds)

    def reason(self, code: str, detail: str = "") -> str:
        """A reason code in words; one without words falls back to `detail`, then to itself."""
        key = f"reason.{code}"
        if code and has(key):
            if not detail or code not in _DETAILED:
                return self.say(key)
            said = foreign(detail, MOST_WORDS)
            if self.language == "zh":  # a system's own words help in any language, behind ours
                return f"{self.say(key)}（{said}）"
            return said if code in _SENTENCES else f"{self.say(key)} ({said})"
        if detail:
            return foreign(detail, MOST_WORDS)
        return foreign(code) if code else self.say("reason.unsaid")

    def metric(self, metric: str) -> str:
        """The name of a metric for people; where the catalogue has none, what the table says of it, or its own name."""
        key = f"metric.{metric}"
        if has(key):
            return self.say(key)
        return METRICS[metric].text if metric in METRICS else foreign(metric)

    def watts(self, before: float, value: float) -> dict[str, str]:
        """Two power limits of which only the second carries the unit; as parameters of a text."""
        return {"before": _digits(round(before)), "value": f"{_digits(round(value))} W"}

    def _local(self, utc_s: float) -> datetime:
        return datetime.fromtimestamp(utc_s, timezone.utc).astimezone(self.zone)


def zone_name(local: datetime) -> str:
    """CST, or +08:00 where the zone's name is no name."""
    name = local.tzname() or ""
    if re.fullmatch(r"[A-Za-z]{2,6}", name):
        return name
    offset = local.strftime("%z")
    return f"{offset[:3]}:{offset[3:5]}" if offset else "UTC"


def number_of(value: Scalar) -> Optional[float]:
    """A fact as a number; None for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15:
        return float(value)
    return None


def pasteable(name: str) -> bool:
    """True for a name that may stand in a command: one that had to be cleaned is another's name by now."""
    return bool(name) and foreign(name) == name and not name.startswith("-")


def short_unit(unit: str) -> str:
    """train@llama.service -> train@llama, for a title."""
    name = foreign(unit)
    for suffix in (".service", ".scope"):
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return name


def _digits(number: float) -> str:
    """At most one decimal, and none when it says nothing."""
    return f"{number:.1f}".rstrip("0").rstrip(".") if number % 1 else f"{int(number)}"
