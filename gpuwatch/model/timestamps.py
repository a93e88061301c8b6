"""One parser for every time that a person types or a program prints. Pure: now and the zone are given.

People:    now, today, yesterday 13:00, 13:45, -10m, "10 min ago", "1h 30min ago", +5m, "in 5 min"
Screens:   2026-11-30 13:45:32 CST, Mon 2026-11-30 13:45:32 CST (systemctl), Nov 30 13:45:32 (journalctl)
Programs:  2026-11-30T05:45:32.123456789Z (Docker), 2026-11-30T13:45:32+0800, 20261130T054532Z (a bundle's
           id), 1796017532 and @1796017532.25 (epoch; 13, 16 or 19 digits are ms, us or ns)

Without a zone a time is local. A local time that the clocks skipped is refused; one that they showed twice
(the hour after daylight saving ends) means the first, or the second with `later=True` or its abbreviation.
"-1d" is 24 hours; "yesterday" is the calendar's.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Optional

from gpuwatch.model.errors import GpuwatchError

ACCEPTED = (
    'accepted: "10 min ago", -10m, now, today, 13:45, "yesterday 13:00", 2026-11-30, "2026-11-30 13:45:32", '
    "2026-11-30T13:45:32+08:00, @1796017532"
)
NS = 1_000_000_000
_LONGEST = 80  # characters; nothing that is a time has more
_EPOCH = datetime(1970, 1, 1)
_FIRST_NS = -62_135_596_800 * NS  # year 1
_END_NS = 253_402_300_800 * NS  # year 10000

_UNITS_S = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
    **dict.fromkeys(("w", "week", "weeks"), 604_800),
}
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_UTC = ("z", "utc", "gmt")
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}

_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) ?([a-z]+) ?")
_SPAN = r"(?P<span>(?:[0-9]{1,12}(?:\.[0-9]{1,9})? ?[a-z]+ ?){1,5})"
_AGO = re.compile(rf"(?:- ?{_SPAN}|(?:{_SPAN.replace('span', 'back')}) ?ago)")
_AHEAD = re.compile(rf"(?:\+ ?{_SPAN}|in {_SPAN.replace('span', 'on')})")
_BARE = re.compile(_SPAN)
_NUMBER = re.compile(r"(@?)([0-9]{1,19})(?:\.([0-9]{1,12}))?")
_DIGITS_NS = {9: NS, 10: NS, 13: 1_000_000, 16: 1000, 19: 1}
_CALENDAR = re.compile(
    r"(?:(?P<weekday>mon|tue|wed|thu|fri|sat|sun)[a-z]*,? )?"
    r"(?:(?P<year>[0-9]{4})(?P<dash>[-/])(?P<month>[0-9]{1,2})(?P=dash)(?P<day>[0-9]{1,2})"
    r"|(?P<basic>[0-9]{8})"
    r"|(?P<word>yesterday|today|tomorrow)"
    r"|(?P<name>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* (?P<name_day>[0-9]{1,2}))?"
    r"(?:(?:^|t| )(?:(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})"
    r"(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,18}))?)?"
    r"|(?P<basic_time>[0-9]{6})))?"
    r" ?(?P<zone>z|[a-z]{2,6}|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)


class TimestampError(GpuwatchError):
    """A text that is no time; says what is accepted."""


def parse_time(text: str, now_utc_s: float, zone: tzinfo, later: bool = False) -> float:
    """Seconds since the epoch. `later`: of two moments with the same local time, the second (for an
    end of a range). Raises TimestampError."""
    return parse_time_ns(text, now_utc_s, zone, later) / NS


def parse_time_ns(text: str, now_utc_s: float, zone: tzinfo, later: bool = False) -> int:
    """As parse_time, in nanoseconds and exact. Raises TimestampError."""
    words = " ".join(text.lower().split()).replace(" at ", " ")
    if not words or len(words) > _LONGEST or not words.isascii():
        raise _refusal(text)
    if words == "now":
        return round(now_utc_s * NS)
    found = _relative(text, words, now_utc_s)
    if found is None:
        found = _number(words)
    if found is None:
        found = _calendar(text, words, now_utc_s, zone, later)
    if not _FIRST_NS <= found < _END_NS:
        raise TimestampError(f"{_shown(text)}: that far away there is no calendar")
    return found


def parse_zoned_ns(text: str) -> int:
    """Nanoseconds since the epoch of a time that carries its zone, as programs write it. Docker's zero
    time (year 1) is a large negative number. Raises TimestampError, also where the zone is missing."""
    if not re.search(r"[0-9][Zz]$|[+-][0-9]{2}:?[0-9]{2}$", text.strip()):
        raise TimestampError(f"{_shown(text)}: no time with a zone, such as 2026-11-30T05:45:32.123456789Z")
    return parse_time_ns(text, 0.0, timezone.utc)


def _relative(text: str, words: str, now_utc_s: float) -> Optional[int]:
    for pattern, sign in ((_AGO, -1), (_AHEAD, 1)):
        match = pattern.fullmatch(words)
        if match is not None:
            span = next(group for group in match.groups() if group is not None)
            return round(now_utc_s * NS) + sign * _span_ns(text, span)
    return None


def _span_ns(text: str, span: str) -> int:
    total = 0
    for amount, unit in _PART.findall(span):
        if unit not in _UNITS_S:
            known = "s, min, h, d, w" + ("; months and years differ in length" if unit[:2] in ("mo", "y", "ye") else "")
            raise TimestampError(f"{_shown(text)}: no unit '{unit}' (there are: {known})")
        whole, _, fraction = amount.partition(".")
        total += (int(whole) * NS + int(fraction.ljust(9, "0") or "0")) * _UNITS_S[unit]
    return total


def _number(words: str) -> Optional[int]:
    """Epoch. Eight digits are a date; other lengths say nothing certain and are refused."""
    match = _NUMBER.fullmatch(words)
    if match is None:
        return None
    marked, digits, fraction = match.groups()
    unit_ns = NS if marked else _DIGITS_NS.get(len(digits))
    if unit_ns is None or (fraction and unit_ns != NS):
        return None
    return int(digits) * unit_ns + int((fraction or "")[:9].ljust(9, "0"))


def _calendar(text: str, words: str, now_utc_s: float, zone: tzinfo, later: bool) -> int:
    match = _CALENDAR.fullmatch(words)
    if match is None:
        raise _without_sign(text, words) if _BARE.fullmatch(words) else _refusal(text)
    given = match.groupdict()
    dated = any(given[name] for name in ("year", "basic", "word", "name"))
    timed = given["hour"] is not None or given["basic_time"] is not None
    if not dated and not timed:
        raise _refusal(text)
    calendar_zone = timezone.utc if given["zone"] in _UTC else zone
    today = datetime.fromtimestamp(now_utc_s, calendar_zone).date()
    try:
        day = _day(given, today)
        local = datetime(day.year, day.month, day.day, *_clock(given))
    except (ValueError, OverflowError) as error:
        raise TimestampError(f"{_shown(text)}: {error}") from error
    if given["weekday"] and _WEEKDAYS[day.weekday()] != given["weekday"]:
        raise TimestampError(f"{_shown(text)}: {day.isoformat()} was a {_WEEKDAYS[day.weekday()].title()}")
    leap = 1 if given["second"] == "60" else 0
    try:
        whole_s = _utc_s(text, local, given["zone"], zone, later, timed) + leap
    except (ValueError, OverflowError) as error:  # the ends of the calendar
        raise TimestampError(f"{_shown(text)}: that far away there is no calendar") from error
    return whole_s * NS + int((given["fraction"] or "")[:9].ljust(9, "0"))


def _day(given: dict[str, Optional[str]], today: date) -> date:
    """Raises ValueError for a day that no month has."""
    if given["year"]:
        return date(int(given["year"]), int(given["month"] or 0), int(given["day"] or 0))
    if given["basic"]:
        return date(int(given["basic"][:4]), int(given["basic"][4:6]), int(given["basic"][6:]))
    if given["name"]:
        return _newest_day(_MONTHS.index(given["name"]) + 1, int(given["name_day"] or 0), today)
    return today + timedelta(days=_DAYS[given["word"] or "today"])


def _newest_day(month: int, day: int, today: date) -> date:
    """The log prints no year: the last time that this day was today, or tomorrow in another zone."""
    for year in range(today.year, today.year - 9, -1):
        try:
            found = date(year, month, day)
        except ValueError:
            continue
        if found <= today + timedelta(days=1):
            return found
    raise ValueError("day is out of range for month")


def _clock(given: dict[str, Optional[str]]) -> tuple[int, int, int]:
    basic = given["basic_time"]
    if basic:
        return int(basic[:2]), int(basic[2:4]), int(basic[4:])
    second = int(given["second"] or 0)
    return int(given["hour"] or 0), int(given["minute"] or 0), 59 if second == 60 else second


def _utc_s(text: str, local: datetime, named: Optional[str], zone: tzinfo, later: bool, timed: bool) -> int:
    if named in _UTC:
        return _since_epoch(local)
    if named and named[0] in "+-":
        digits = named[1:].replace(":", "").ljust(4, "0")
        minutes = int(digits[:2]) * 60 + int(digits[2:])
        if int(digits[2:]) > 59 or minutes > 24 * 60:
            raise TimestampError(f"{_shown(text)}: no zone is {named} from UTC")
        return _since_epoch(local) - (60 if named[0] == "+" else -60) * minutes
    first, second = local.replace(tzinfo=zone), local.replace(tzinfo=zone, fold=1)
    moments = [_in_utc(first), _in_utc(second)]
    if not timed:
        return moments[0]  # where midnight is skipped, this is the moment at which the day began
    if datetime.fromtimestamp(moments[0], zone).replace(tzinfo=None) != local:
        raise TimestampError(
            f"{_shown(text)}: {local:%Y-%m-%d %H:%M:%S} did not exist here, the clocks were put forward over it "
            f"(from {first.tzname()} to {second.tzname()})"
        )
    if named:
        for moment, candidate in zip(moments, (first, second)):
            if named == (candidate.tzname() or "").lower():
                return moment
        raise TimestampError(
            f"{_shown(text)}: zone {named.upper()} is not this machine's ({first.tzname()}); "
            "write UTC or an offset such as +08:00"
        )
    return moments[1 if later else 0]


def _in_utc(local: datetime) -> int:
    offset = local.utcoffset()
    return _since_epoch(local.replace(tzinfo=None)) - (0 if offset is None else round(offset.total_seconds()))


def _since_epoch(naive: datetime) -> int:
    difference = naive - _EPOCH
    return difference.days * 86_400 + difference.seconds


def _without_sign(text: str, words: str) -> TimestampError:
    _span_ns(text, words)
    return TimestampError(f"{_shown(text)}: before now or after? write '{words} ago' or 'in {words}'")


def _refusal(text: str) -> TimestampError:
    return TimestampError(f"{_shown(text)} is no time; {ACCEPTED}")


def _shown(text: str) -> str:
    """Quoted, without control characters, cut."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
