"""The one timestamp parser: what people type, what screens print, what programs write; and the clocks' odd hours."""

from __future__ import annotations

from datetime import datetime, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.timestamps import ACCEPTED, TimestampError, parse_time, parse_time_ns, parse_zoned_ns

SHANGHAI, BERLIN, NEW_YORK = ZoneInfo("Asia/Shanghai"), ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
KATHMANDU, CAIRO = ZoneInfo("Asia/Kathmandu"), ZoneInfo("Africa/Cairo")
NOW = datetime(2026, 11, 30, 13, 45, 32, tzinfo=SHANGHAI).timestamp()


def read(text: str, zone: tzinfo = SHANGHAI, now: float = NOW, later: bool = False) -> str:
    """The moment in UTC, to the second."""
    utc = datetime.fromtimestamp(parse_time(text, now, zone, later), timezone.utc)
    return utc.strftime("%Y-%m-%dT%H:%M:%S")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("now", 0),
        ("-10m", -600),
        ("10 min ago", -600),
        ("10min ago", -600),
        ("  10   MINUTES  ago ", -600),
        ("-1h30m", -5400),
        ("1h 30min ago", -5400),
        ("- 90 s", -90),
        ("1.5 h ago", -5400),
        ("-1d", -86_400),
        ("2 weeks ago", -1_209_600),
        ("-0s", 0),
        ("+5m", 300),
        ("in 5 min", 300),
        ("in 1h 5 s", 3605),
    ],
)
def test_times_from_now(text: str, seconds: float) -> None:
    assert parse_time(text, NOW, SHANGHAI) == NOW + seconds


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-11-30 13:45:32", "2026-11-30T05:45:32"),
        ("2026-11-30T13:45:32", "2026-11-30T05:45:32"),
        ("2026-11-30 13:45", "2026-11-30T05:45:00"),
        ("2026/11/30 13:45", "2026-11-30T05:45:00"),
        ("2026-11-30", "2026-11-29T16:00:00"),
        ("20261130", "2026-11-29T16:00:00"),
        ("2026-11-30 13:45:32 CST", "2026-11-30T05:45:32"),
        ("Mon 2026-11-30 13:45:32 CST", "2026-11-30T05:45:32"),
        ("2026-11-30 05:45:32 UTC", "2026-11-30T05:45:32"),
        ("2026-11-30T13:45:32+08:00", "2026-11-30T05:45:32"),
        ("2026-11-30T13:45:32+0800", "2026-11-30T05:45:32"),
        ("2026-11-30T02:15:32-03:30", "2026-11-30T05:45:32"),
        ("2026-11-30 13:45:32 +08", "2026-11-30T05:45:32"),
        ("2026-11-30T05:45:32Z", "2026-11-30T05:45:32"),
        ("2026-11-30t05:45:32.123456789z", "2026-11-30T05:45:32"),
        ("20261130T054532Z", "2026-11-30T05:45:32"),
        ("Nov 30 13:45:32", "2026-11-30T05:45:32"),
        ("Nov  3 13:45:32", "2026-11-03T05:45:32"),
        ("Dec 24 18:00:00", "2025-12-24T10:00:00"),
        ("Feb 29 00:00:00", "2024-02-28T16:00:00"),
        ("13:45", "2026-11-30T05:45:00"),
        ("9:05:07", "2026-11-30T01:05:07"),
        ("today", "2026-11-29T16:00:00"),
        ("today 13:00", "2026-11-30T05:00:00"),
        ("yesterday", "2026-11-28T16:00:00"),
        ("yesterday at 13:00", "2026-11-29T05:00:00"),
        ("yesterday 13:00:07", "2026-11-29T05:00:07"),
        ("tomorrow 08:00", "2026-12-01T00:00:00"),
        ("@1796017532", "2026-11-30T05:45:32"),
        ("1796017532", "2026-11-30T05:45:32"),
        ("1796017532.25", "2026-11-30T05:45:32"),
        ("1796017532250", "2026-11-30T05:45:32"),
        ("1796017532250000", "2026-11-30T05:45:32"),
        ("1796017532250000001", "2026-11-30T05:45:32"),
        ("@0", "1970-01-01T00:00:00"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00"),
    ],
)
def test_times_on_the_calendar_and_of_programs(text: str, utc: str) -> None:
    assert read(text) == utc


def test_the_calendar_is_that_of_the_zone() -> None:
    midnight_utc = datetime(2026, 11, 30, 20, tzinfo=timezone.utc).timestamp()  # already December in Shanghai
    assert read("today", SHANGHAI, midnight_utc) == "2026-11-30T16:00:00"
    assert read("today", NEW_YORK, midnight_utc) == "2026-11-30T05:00:00"
    assert read("today UTC", SHANGHAI, midnight_utc) == "2026-11-30T00:00:00"
    assert read("2026-11-30 12:00", KATHMANDU) == "2026-11-30T06:15:00"


def test_yesterday_is_the_calendars_even_when_it_had_25_hours() -> None:
    monday = datetime(2026, 10, 26, 12, tzinfo=BERLIN).timestamp()
    assert read("yesterday", BERLIN, monday) == "2026-10-24T22:00:00"
    assert read("today", BERLIN, monday) == "2026-10-25T23:00:00"
    assert read("-1d", BERLIN, monday) == "2026-10-25T11:00:00"


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("2026-11-30T05:45:32.123456789Z", 1_796_017_532_123_456_789),
        ("2026-11-30T13:45:32.1+08:00", 1_796_017_532_100_000_000),
        ("2026-11-30T05:45:32.1234567891239Z", 1_796_017_532_123_456_789),
        ("2026-11-30T05:45:32Z", 1_796_017_532_000_000_000),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000_000_000),
        ("1969-12-31T23:59:59.5Z", -500_000_000),
    ],
)
def test_dockers_nanoseconds_are_exact(text: str, nanoseconds: int) -> None:
    assert parse_zoned_ns(text) == nanoseconds


@pytest.mark.parametrize("text", ["2026-11-30T05:45:32", "10 min ago", "1796017532", "", "2026-11-30 13:45 CST"])
def test_a_program_that_says_no_zone_is_refused(text: str) -> None:
    with pytest.raises(TimestampError, match="with a zone"):
        parse_zoned_ns(text)


def test_the_hour_that_the_clocks_skip_is_refused_and_says_why() -> None:
    with pytest.raises(TimestampError, match=r"02:30:00 did not exist here.*from CET to CEST"):
        read("2026-03-29 02:30", BERLIN)
    assert read("2026-03-29 01:59:59", BERLIN) == "2026-03-29T00:59:59"
    assert read("2026-03-29 03:00:00", BERLIN) == "2026-03-29T01:00:00"
    assert read("2026-03-29 02:30 UTC", BERLIN) == "2026-03-29T02:30:00"


def test_the_hour_that_comes_twice_is_the_first_or_as_said() -> None:
    assert read("2026-10-25 02:30", BERLIN) == "2026-10-25T00:30:00"
    assert read("2026-10-25 02:30", BERLIN, later=True) == "2026-10-25T01:30:00"
    assert read("2026-10-25 02:30 CEST", BERLIN, later=True) == "2026-10-25T00:30:00"
    assert read("2026-10-25 02:30 CET", BERLIN) == "2026-10-25T01:30:00"
    assert read("2026-10-25 03:00", BERLIN) == "2026-10-25T02:00:00"


def test_a_day_that_has_no_midnight_begins_when_it_begins() -> None:
    assert read("2026-04-24", CAIRO) == "2026-04-23T22:00:00"  # 00:00 to 01:00 were skipped
    with pytest.raises(TimestampError, match="did not exist"):
        read("2026-04-24 00:30", CAIRO)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "accepted:"),
        ("soon", "accepted:"),
        ("30/11/2026", "accepted:"),
        ("13", "accepted:"),
        ("-10", "accepted:"),
        ("12345", "accepted:"),
        ("13:45:32.5.5", "accepted:"),
        ("昨天", "accepted:"),
        ("x" * 500, "accepted:"),
        ("10m", "write '10m ago' or 'in 10m'"),
        ("10 fortnights ago", "no unit 'fortnights' (there are: s, min, h, d, w"),
        ("2 months ago", "months and years differ in length"),
        ("2026-02-30", "day"),
        ("2026-13-01", "month"),
        ("2026-11-30 25:00", "hour"),
        ("2026-11-30 13:61", "minute"),
        ("Tue 2026-11-30 13:45:32", "2026-11-30 was a Mon"),
        ("2026-11-30 13:45 PST", "PST is not this machine's (CST); write UTC or an offset"),
        ("2026-11-30 13:45 +08:99", "no zone is"),
        ("2026-11-30 13:45 +99", "no zone is"),
        ("-999999999999d", "no calendar"),
        ("@9999999999999999999", "no calendar"),
        ("9999-12-31 23:59:59 -23:00", "no calendar"),
        ("Feb 30 10:00:00", "day is out of range"),
    ],
)
def test_a_mistake_says_what_is_accepted(text: str, says: str) -> None:
    with pytest.raises(TimestampError) as raised:
        read(text)
    assert says in str(raised.value)
    assert len(str(raised.value)) < 400


def test_everything_that_is_said_to_be_accepted_is() -> None:
    examples = [part.strip().strip('"') for part in ACCEPTED.removeprefix("accepted: ").split(", ")]
    assert len(examples) >= 9
    for example in examples:
        read(example)


def test_an_error_shows_no_control_characters() -> None:
    with pytest.raises(TimestampError) as raised:
        read("\x1b[2J\nnow")
    assert str(raised.value).isprintable()


@given(st.text(max_size=100) | st.text("0123456789-+:. TZadhmnosuwy@/", max_size=40))
def test_no_text_does_anything_but_parse_or_be_refused(text: str) -> None:
    for zone in (BERLIN, timezone.utc):
        said = ""
        try:
            parse_time_ns(text, NOW, zone)
        except GpuwatchError as error:
            said = str(error)
        assert said.isprintable()


@given(st.integers(0, 4_000_000_000), st.sampled_from([BERLIN, SHANGHAI, NEW_YORK, KATHMANDU]))
def test_what_a_screen_prints_is_read_back(utc_s: int, zone: ZoneInfo) -> None:
    local = datetime.fromtimestamp(utc_s, zone)
    assert parse_time(local.isoformat(), NOW, zone) == utc_s
    if (local.tzname() or "").isalpha():
        assert parse_time(local.strftime("%Y-%m-%d %H:%M:%S %Z"), NOW, zone) == utc_s
    first = parse_time(local.strftime("%Y-%m-%d %H:%M:%S"), NOW, zone)
    assert utc_s in (first, parse_time(local.strftime("%Y-%m-%d %H:%M:%S"), NOW, zone, later=True))
