"""Windows on the wall clock: against pandas and Polars, against a clock walked minute by minute, by hand."""

from __future__ import annotations

import struct
import zoneinfo
from datetime import UTC, datetime, timedelta, timezone
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
from dateutil.relativedelta import relativedelta
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WindowError
from penstock.types.calendar import (
    PROBE,
    _changes,
    calendar_bounds,
    calendar_windows,
    check_calendar,
    time_zone,
    wall_clock,
)
from penstock.types.duration import calendar_step
from penstock.types.time import NANOSECONDS
from penstock.types.windows import Calendar, CalendarStep

# --- Local times stand for the first instant at which the clock shows them or later ones.

WALL_CLOCK_EPOCH = datetime(1970, 1, 1)
ODD_ZONES = ["Africa/Casablanca", "Africa/Freetown", "America/Caracas", "Asia/Gaza", "Asia/Pyongyang"]
WALL_CLOCK_ZONES = [
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "America/Sao_Paulo",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "UTC",
]


def wall_clock_seconds(text: str) -> int:
    """Count the seconds from the epoch to a time, written without a zone or in one."""
    moment = datetime.fromisoformat(text)
    epoch = WALL_CLOCK_EPOCH.replace(tzinfo=UTC) if moment.tzinfo else WALL_CLOCK_EPOCH
    return (moment - epoch) // timedelta(seconds=1)


def instant(zone: str, local: str, unit: str = "s") -> int:
    clock = wall_clock(zone, unit, int(local[:4]) - 1, int(local[:4]) + 1)
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    return int(clock.instants(np.array([wall_clock_seconds(local) * scale]))[0])


@pytest.mark.parametrize(
    ("zone", "local", "expected"),
    [
        ("UTC", "2026-03-29T02:30", "2026-03-29T02:30+00:00"),
        ("Europe/Berlin", "2026-01-01T00:00", "2026-01-01T00:00+01:00"),
        ("Europe/Berlin", "2026-07-01T00:00", "2026-07-01T00:00+02:00"),
        ("Europe/Berlin", "2026-03-29T01:59:59", "2026-03-29T01:59:59+01:00"),
        ("Europe/Berlin", "2026-03-29T02:30", "2026-03-29T03:00+02:00"),  # jumped over
        ("Europe/Berlin", "2026-03-29T03:00", "2026-03-29T03:00+02:00"),
        ("Europe/Berlin", "2026-10-25T02:30", "2026-10-25T02:30+02:00"),  # shown twice
        ("Europe/Berlin", "2026-10-25T02:59:59", "2026-10-25T02:59:59+02:00"),
        ("Europe/Berlin", "2026-10-25T03:00", "2026-10-25T03:00+01:00"),
        ("Asia/Kathmandu", "2026-06-01T00:00", "2026-06-01T00:00+05:45"),
        ("Australia/Lord_Howe", "2026-10-04T02:15", "2026-10-04T02:30+11:00"),  # half an hour forward
        ("Australia/Lord_Howe", "2026-04-05T01:45", "2026-04-05T01:45+11:00"),
        ("Pacific/Apia", "2011-12-30T12:00", "2011-12-31T00:00+14:00"),  # a day left out
        ("America/Sao_Paulo", "2018-11-04T00:00", "2018-11-04T01:00-02:00"),  # no midnight
        ("America/Sao_Paulo", "2018-02-18T00:00", "2018-02-18T00:00-03:00"),  # an hour before midnight, twice
        ("Europe/Dublin", "2026-10-25T01:30", "2026-10-25T01:30+01:00"),  # where winter is the exception
        ("+05:30", "1969-12-31T00:00", "1969-12-31T00:00+05:30"),
        ("-03:00", "2026-03-29T02:30", "2026-03-29T02:30-03:00"),
        ("America/New_York", "2900-07-01T00:00", "2900-07-01T00:00-04:00"),
    ],
)
def test_a_local_time_stands_for_an_instant(zone, local, expected):
    assert instant(zone, local) == wall_clock_seconds(expected)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_finer_clock_shows_the_same_times(unit):
    scale = {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    for local in ("2026-03-29T02:30", "2026-10-25T02:30", "2026-10-25T03:00"):
        assert instant("Europe/Berlin", local, unit) == instant("Europe/Berlin", local) * scale


@pytest.mark.parametrize(
    ("at", "latest"),
    [
        ("2026-10-25T00:59:59Z", "2026-10-25T02:59:59"),
        ("2026-10-25T01:00:00Z", "2026-10-25T02:59:59"),  # put back to 02:00
        ("2026-10-25T01:59:59Z", "2026-10-25T02:59:59"),
        ("2026-10-25T02:00:00Z", "2026-10-25T03:00:00"),
    ],
)
def test_a_clock_that_is_put_back_has_shown_later_times_already(at, latest):
    assert wall_clock("Europe/Berlin", "s", 2026, 2026).shown(wall_clock_seconds(at)) == wall_clock_seconds(
        latest
    )


def test_dates_have_no_zone():
    assert wall_clock("Asia/Tokyo", "d", 2026, 2026).instants(np.array([-1, 0, 1])).tolist() == [-1, 0, 1]


@given(st.sampled_from(WALL_CLOCK_ZONES + ODD_ZONES), st.integers(1, 9998), st.integers(0, 366 * 86_400))
def test_the_clock_shows_what_pythons_shows_unless_it_was_put_back(zone, year, second):
    moment = datetime(year, 1, 3, tzinfo=UTC) + timedelta(seconds=min(second, 361 * 86_400))
    at = wall_clock_seconds(moment.isoformat())
    local = wall_clock_seconds(moment.astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None).isoformat())
    clock = wall_clock(zone, "s", year - 1, year + 1)
    shown = clock.shown(at)
    assert local <= shown
    assert int(clock.instants(np.array([shown]))[0]) <= at < int(clock.instants(np.array([shown + 1]))[0])


@given(st.sampled_from(WALL_CLOCK_ZONES + ODD_ZONES), st.lists(st.integers(-(10**9), 2 * 10**9), max_size=50))
def test_later_local_times_are_never_earlier_instants(zone, local):
    found = wall_clock(zone, "s", 1930, 2040).instants(np.array(sorted(local), np.int64))
    assert np.all(np.diff(found) >= 0)


def changes_on_file(data: bytes) -> list[tuple[int, int]]:
    """Read the changes of the offset from the second, 64-bit half of a TZif file (RFC 8536)."""
    counts = struct.unpack(">6l", data[20:44])
    at = 44 + counts[3] * 5 + counts[4] * 6 + counts[5] + counts[2] * 8 + counts[1] + counts[0]
    _, _, _, changes, types, _ = struct.unpack(">6l", data[at + 20 : at + 44])
    at += 44
    times = struct.unpack(f">{changes}q", data[at : at + 8 * changes])
    kinds = data[at + 8 * changes : at + 9 * changes]
    offsets = [pair[0] for pair in struct.iter_unpack(">lBB", data[at + 9 * changes :][: 6 * types])]
    held = [offsets[0], *(offsets[kind] for kind in kinds)]
    return [(time, new) for time, (old, new) in zip(times, pairwise(held), strict=True) if old != new]


def zone_file(name: str) -> bytes:
    """Read the file that `ZoneInfo(name)` reads."""
    paths = [Path(root, name) for root in zoneinfo.TZPATH]
    found = next((path for path in paths if path.is_file()), None)
    return found.read_bytes() if found else files("tzdata").joinpath("zoneinfo", name).read_bytes()


@pytest.mark.parametrize("zone", WALL_CLOCK_ZONES + ODD_ZONES)
def test_every_change_of_a_zone_is_found_to_the_second(zone):
    start, end = wall_clock_seconds("1900-01-01T00:00"), wall_clock_seconds("2027-01-01T00:00")
    on_file = changes_on_file(zone_file(zone))
    explicit = max([*(time for time, _ in on_file), start])
    found = [change for year in range(1900, 2027) for change in _changes(zone, year)]
    assert [pair for pair in found if pair[0] <= explicit] == [
        pair for pair in on_file if start < pair[0] <= end
    ]


def test_no_zone_changes_twice_between_two_questions():
    gaps = [
        (late - early, zone)
        for zone in zoneinfo.available_timezones()
        for (early, _), (late, _) in pairwise(changes_on_file(zone_file(zone)))
    ]
    assert len(gaps) > 10_000
    assert min(gaps)[0] > PROBE


@pytest.mark.parametrize(
    "name",
    [
        "Europe/Berlinn",
        "Europe",
        "",
        " ",
        "/etc/passwd",
        "../../etc/passwd",
        "+25:00",
        "+02",
        "02:00",
        "a\0b",
        "é",
    ],
)
def test_a_zone_that_does_not_exist_is_refused_with_how_to_write_one(name):
    with pytest.raises(WindowError, match=r"no time zone .*tz=.*'Europe/Berlin'.*'\+02:00'"):
        time_zone(name)


def test_the_nearest_zone_is_suggested():
    with pytest.raises(WindowError, match="did you mean 'Australia/Lord_Howe'"):
        time_zone("Australia/LordHowe")


def test_a_fixed_offset_is_a_zone():
    assert time_zone("-09:30") == timezone(-timedelta(hours=9, minutes=30))


ZONES = [
    "America/New_York",
    "America/Sao_Paulo",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Pacific/Apia",
    "UTC",
]
LENGTHS = ["30m", "1h", "6h", "1d", "3d", "1w", "2w", "1mo", "3mo", "1h30m", "17h"]
EPOCH = datetime(1970, 1, 1)
HOUR, DAY = 3_600, 86_400


def calendar(size, zone, every=None, offset=0, unit="s"):
    steps = [calendar_step(value, unit, "size") for value in (size, every or size)]
    return Calendar(*steps, offset, zone, unit)


def seconds(text: str) -> int:
    """Count the seconds from the epoch to a time, written without a zone or in one."""
    moment = datetime.fromisoformat(text)
    return (moment - (EPOCH.replace(tzinfo=UTC) if moment.tzinfo else EPOCH)) // timedelta(seconds=1)


def shown(windows, zone):
    """Write windows as a clock on the wall does."""
    texts = [[datetime.fromtimestamp(at, ZoneInfo(zone)) for at in window] for window in windows]
    return [tuple(f"{at:%m-%dT%H:%M%z}" for at in window) for window in texts]


@pytest.mark.parametrize(
    ("size", "zone", "at", "window"),
    [
        ("1d", "Europe/Berlin", "2026-03-29T12:00Z", ("03-29T00:00+0100", "03-30T00:00+0200")),
        ("1d", "Europe/Berlin", "2026-10-25T12:00Z", ("10-25T00:00+0200", "10-26T00:00+0100")),
        ("6h", "Europe/Berlin", "2026-03-29T03:59Z", ("03-29T00:00+0100", "03-29T06:00+0200")),
        ("6h", "Europe/Berlin", "2026-03-29T04:00Z", ("03-29T06:00+0200", "03-29T12:00+0200")),
        ("1h", "Europe/Berlin", "2026-10-25T01:30Z", ("10-25T02:00+0200", "10-25T03:00+0100")),
        ("1h", "Europe/Berlin", "2026-03-29T01:00Z", ("03-29T03:00+0200", "03-29T04:00+0200")),
        ("15m", "Europe/Berlin", "2026-10-25T01:10Z", ("10-25T02:45+0200", "10-25T03:00+0100")),
        ("2w", "Europe/Berlin", "1970-01-01T00:00Z", ("12-29T00:00+0100", "01-12T00:00+0100")),
        ("2w", "Europe/Berlin", "1969-12-28T22:59Z", ("12-15T00:00+0100", "12-29T00:00+0100")),
        ("1w", "Europe/Berlin", "2026-03-29T12:00Z", ("03-23T00:00+0100", "03-30T00:00+0200")),
        ("7d", "Europe/Berlin", "2026-03-29T12:00Z", ("03-23T00:00+0100", "03-30T00:00+0200")),
        ("1mo", "Europe/Berlin", "2026-03-29T12:00Z", ("03-01T00:00+0100", "04-01T00:00+0200")),
        ("3mo", "America/New_York", "2026-03-31T12:00Z", ("01-01T00:00-0500", "04-01T00:00-0400")),
        ("1d", "Asia/Kathmandu", "2026-06-01T18:15Z", ("06-02T00:00+0545", "06-03T00:00+0545")),
        ("1h", "Australia/Lord_Howe", "2026-10-03T15:30Z", ("10-04T02:30+1100", "10-04T03:00+1100")),
        ("1d", "Pacific/Apia", "2011-12-30T09:59Z", ("12-29T00:00-1000", "12-31T00:00+1400")),
        ("1d", "America/Sao_Paulo", "2018-11-04T12:00Z", ("11-04T01:00-0200", "11-05T00:00-0200")),
        ("1d", "America/Sao_Paulo", "2018-02-18T02:30Z", ("02-17T00:00-0200", "02-18T00:00-0300")),
        ("1mo", "Europe/Berlin", "1944-04-15T00:00Z", ("04-01T00:00+0100", "05-01T00:00+0200")),
    ],
)
def test_a_time_is_in_the_window_that_the_wall_calendar_shows(size, zone, at, window):
    tick = seconds(at)
    assert shown(calendar_windows(calendar(size, zone), tick, tick), zone) == [window]


@pytest.mark.parametrize(
    ("size", "every", "offset", "at", "windows"),
    [
        ("1d", "1d", 6 * HOUR, "2026-03-29T03:30Z", [("03-28T06:00+0100", "03-29T06:00+0200")]),
        ("1d", "1d", -18 * HOUR, "2026-03-29T03:30Z", [("03-28T06:00+0100", "03-29T06:00+0200")]),
        ("1mo", "1mo", 30 * DAY, "2026-03-01T12:00Z", [("01-31T00:00+0100", "03-03T00:00+0100")]),
        (
            "2d",
            "1d",
            0,
            "2026-03-29T12:00Z",
            [("03-28T00:00+0100", "03-30T00:00+0200"), ("03-29T00:00+0100", "03-31T00:00+0200")],
        ),
        ("6h", "1d", 0, "2026-03-29T12:00Z", []),  # between two windows
        ("6h", "1d", 0, "2026-03-29T03:59Z", [("03-29T00:00+0100", "03-29T06:00+0200")]),
        ("1d", "1mo", 0, "2026-04-01T12:00Z", [("04-01T00:00+0200", "04-02T00:00+0200")]),
        (
            "2mo",
            "1mo",
            0,
            "2026-03-29T12:00Z",
            [("02-01T00:00+0100", "04-01T00:00+0200"), ("03-01T00:00+0100", "05-01T00:00+0200")],
        ),
    ],
)
def test_windows_may_be_shifted_overlap_and_leave_gaps(size, every, offset, at, windows):
    tick = seconds(at)
    berlin = calendar(size, "Europe/Berlin", every, offset)
    assert shown(calendar_windows(berlin, tick, tick), "Europe/Berlin") == windows


# --- against pandas and Polars ---------------------------------------------------------------------------

FREQUENCIES = {"6h": "6h", "1d": "D", "1w": "W-MON", "1mo": "MS", "3mo": "QS-JAN"}
YEARS = [("1965-01-01", "1967-06-01"), ("2009-01-01", "2012-06-01"), ("2017-01-01", "2020-01-01")]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("size", FREQUENCIES)
@pytest.mark.parametrize("years", YEARS, ids=lambda years: years[0])
def test_boundaries_are_those_of_pandas(size, zone, years):
    local = pd.date_range(*years, freq=FREQUENCIES[size])
    if zone == "Pacific/Apia":  # pandas puts the day that was left out, forward, into the day before
        local = local[local.normalize() != "2011-12-30"]
    first_of_two = np.ones(len(local), bool)
    # Given a name, pandas takes pytz's zone: another edition of the rules than that of zoneinfo.
    instants = local.tz_localize(ZoneInfo(zone), ambiguous=first_of_two, nonexistent="shift_forward")
    expected = np.unique(instants.as_unit("s").asi8)
    windows = calendar_windows(calendar(size, zone), int(expected[0]), int(expected[-1]) - 1)
    assert windows == list(zip(expected[:-1].tolist(), expected[1:].tolist(), strict=True))


@pytest.mark.parametrize(
    "zone", ["America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Europe/Berlin", "UTC"]
)
@pytest.mark.parametrize("size", ["6h", "1d", "1w", "1mo", "3mo"])
def test_windows_start_where_polars_truncates_to(size, zone):
    times = np.arange(seconds("2010-01-01T00:00"), seconds("2013-01-01T00:00"), 2_311, dtype=np.int64)
    column = pl.Series(times * 1_000).cast(pl.Datetime("ms")).dt.replace_time_zone("UTC")
    expected = column.dt.convert_time_zone(zone).dt.truncate(size).dt.epoch("s").to_numpy()
    starts, ends = calendar_bounds(calendar(size, zone), int(times[0]), int(times[-1]))
    found = np.searchsorted(starts, times, side="right") - 1
    assert np.array_equal(starts[found], expected)
    assert np.all(times < ends[found])


@given(st.integers(-200_000, 200_000), st.integers(1, 14))
def test_months_from_any_day_are_clipped_as_dateutil_clips_them(day, months):
    starts = range(day - 31 * months, day + 1)
    ends = [(EPOCH + timedelta(days=start) + relativedelta(months=months) - EPOCH).days for start in starts]
    expected = [(start, end) for start, end in zip(starts, ends, strict=True) if day < end]
    assert calendar_windows(calendar(f"{months}mo", "UTC", "1d", unit="d"), day, day) == expected


# --- against a clock walked minute by minute -------------------------------------------------------------


def walked(clock: Calendar, start: int, minutes: int) -> dict[int, set[int]]:
    """Say, for each minute, in which windows it is: those between whose start and end, on the clock, it is.

    What decides is the latest time the clock has shown; it starts two days early to have seen that.
    """
    zone, found, latest = ZoneInfo(clock.zone), {}, datetime.min
    for minute in range(-2 * 24 * 60, minutes):
        moment = datetime.fromtimestamp(start + minute * 60, UTC)
        latest = max(latest, moment.astimezone(zone).replace(tzinfo=None))
        passed = (latest - EPOCH) // timedelta(seconds=1) - clock.offset
        passed += 3 * DAY if clock.every.ticks % (7 * DAY) == 0 else 0
        oldest = (passed - clock.size.ticks) // clock.every.ticks + 1
        found[start + minute * 60] = set(range(oldest, passed // clock.every.ticks + 1))
    return {minute: windows for minute, windows in found.items() if minute >= start}


CHANGES = {
    "America/New_York": ["2026-03-08T07:00Z", "2026-11-01T06:00Z"],
    "America/Sao_Paulo": ["2018-11-04T03:00Z", "2018-02-18T02:00Z"],
    "America/St_Johns": ["2010-03-14T03:31Z", "2010-11-07T02:31Z"],  # put back from 00:01 to the day before
    "Asia/Kathmandu": ["1985-12-31T18:30Z"],
    "Australia/Lord_Howe": ["2026-10-03T15:30Z", "2026-04-04T15:00Z"],
    "Europe/Berlin": ["2026-03-29T01:00Z", "1945-05-24T00:00Z"],
    "Pacific/Apia": ["2011-12-30T10:00Z"],
    "UTC": ["1969-12-31T23:00Z"],
}


@given(
    st.sampled_from([(zone, at) for zone, several in CHANGES.items() for at in several]),
    st.integers(-600, 600),
    st.sampled_from(["15m", "30m", "1h", "45m", "7h", "1d", "1w"]),
    st.sampled_from(["15m", "1h", "90m", "6h", "1d", "1w"]),
    st.sampled_from([0, 0, 900, -5 * HOUR, 3 * DAY]),
)
def test_windows_hold_the_minutes_that_a_walk_along_the_clock_finds_in_them(
    change, early, size, every, offset
):
    zone, at = change
    start = seconds(at) + early * 60
    clock = calendar(size, zone, every, offset)
    walk = walked(clock, start, 8 * 60)
    members = {}
    for minute, numbers in walk.items():
        for number in numbers:
            members.setdefault(number, []).append(minute)
    windows = calendar_windows(clock, start, max(walk))
    held = {tuple(minute for minute in walk if since <= minute < until) for since, until in windows}
    assert {minutes for minutes in held if minutes} == {tuple(member) for member in members.values()}
    assert len(windows) == len(set(windows))


# --- properties ------------------------------------------------------------------------------------------

times = st.integers(seconds("0001-01-01T00:00"), seconds("9999-12-31T23:59"))
recent = st.integers(seconds("1900-01-01T00:00"), seconds("2100-01-01T00:00"))
tumbling = st.builds(
    calendar, st.sampled_from(LENGTHS), st.sampled_from(ZONES), offset=st.integers(-40 * DAY, 40 * DAY)
)
sliding = st.builds(
    calendar,
    st.sampled_from(["1d", "5d", "2w", "1mo", "2mo"]),
    st.sampled_from(ZONES),
    st.sampled_from(["1d", "1w", "1mo"]),
    st.integers(-40 * DAY, 40 * DAY),
)


@given(tumbling, times)
def test_every_time_is_in_exactly_one_tumbling_window(windows, at):
    [(start, end)] = calendar_windows(windows, at, at)
    assert start <= at < end


@given(tumbling, recent, st.integers(0, 90 * DAY))
def test_tumbling_windows_follow_each_other_without_gap(windows, first, length):
    starts, ends = calendar_bounds(windows, first, first + length)
    assert np.array_equal(ends[:-1], starts[1:])
    assert starts[0] <= first and first + length < ends[-1]


@given(st.one_of(tumbling, sliding), recent, st.integers(0, 400 * DAY), st.floats(0, 1))
def test_windows_do_not_depend_on_the_range_that_is_asked_for(windows, first, length, cut):
    last, middle = first + length, first + int(length * cut)
    parts = calendar_windows(windows, first, middle) + calendar_windows(windows, min(middle + 1, last), last)
    assert calendar_windows(windows, first, last) == sorted(set(parts))


@given(st.one_of(tumbling, sliding), recent, st.integers(0, 400 * DAY))
def test_neither_starts_nor_ends_ever_fall(windows, first, length):
    starts, ends = calendar_bounds(windows, first, first + length)
    assert np.all(starts < ends)
    assert np.all(np.diff(starts) >= 0) and np.all(np.diff(ends) >= 0)


@given(st.one_of(tumbling, sliding), recent, st.sampled_from(["ms", "us", "ns"]))
def test_the_unit_of_time_does_not_move_windows(windows, at, unit):
    scale = NANOSECONDS["s"] // NANOSECONDS[unit]

    def finer(step):
        return CalendarStep(step.months, step.ticks * scale)

    same = Calendar(finer(windows.size), finer(windows.every), windows.offset * scale, windows.zone, unit)
    expected = [(start * scale, end * scale) for start, end in calendar_windows(windows, at, at)]
    assert calendar_windows(same, at * scale, (at + 1) * scale - 1) == expected


@given(times, st.sampled_from(["1h", "6h", "1d"]), st.integers(-23, 23), st.sampled_from(["00", "30", "45"]))
def test_in_a_zone_of_a_fixed_offset_windows_are_a_grid(at, size, hours, minutes):
    zone = f"{hours:+03d}:{minutes}"
    ahead = hours * HOUR + (-1 if hours < 0 else 1) * int(minutes) * 60
    length = calendar_step(size, "s", "size").ticks
    start = (at + ahead) // length * length - ahead
    assert calendar_windows(calendar(size, zone), at, at) == [(start, start + length)]


@given(st.integers(-300_000, 300_000), st.sampled_from(ZONES))
def test_dates_are_in_the_months_and_weeks_that_they_name_whatever_the_zone(day, zone):
    date = EPOCH + timedelta(days=day)
    [(start, _)] = calendar_windows(calendar("1mo", zone, unit="d"), day, day)
    assert EPOCH + timedelta(days=start) == date.replace(day=1)
    [(start, end)] = calendar_windows(calendar("1w", zone, unit="d"), day, day)
    assert (start, end) == (day - date.weekday(), day - date.weekday() + 7)


def test_windows_that_the_clock_jumps_over_together_are_one_window():
    """From one spring forward to that 52 weeks later: both lie on the last Sunday in March."""
    at = seconds("2026-03-29T12:00Z")
    windows = calendar_windows(calendar("364d", "Europe/Berlin", "15m"), at, at)
    jump = (seconds("2026-03-29T01:00Z"), seconds("2027-03-28T01:00Z"))
    assert windows.count(jump) == 1


def test_a_hundred_years_of_days_are_given_at_once():
    starts, ends = calendar_bounds(
        calendar("1d", "Europe/Berlin"), seconds("1950-01-01T00:00"), seconds("2050-01-01T00:00")
    )
    assert starts.dtype == ends.dtype == np.int64
    assert len(starts) == 36_526
    assert sorted(set(((ends - starts) // HOUR).tolist())) == [23, 24, 25]


def test_windows_of_nanoseconds_reach_almost_to_the_end_of_64_bits():
    at = seconds("2262-04-01T12:00") * 10**9
    day = [seconds(f"2262-04-0{date}T00:00+02:00") * 10**9 for date in (1, 2)]
    assert calendar_windows(calendar("1d", "Europe/Berlin", unit="ns"), at, at) == [tuple(day)]


# --- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "windows"),
    [
        ("no time zone 'Mars/Base'", calendar("1d", "Mars/Base")),
        ("size .* longer than zero", Calendar(CalendarStep(), CalendarStep(1), 0, "UTC", "s")),
        ("every=.* longer than zero", Calendar(CalendarStep(1), CalendarStep(ticks=-1), 0, "UTC", "s")),
        ("not in both", Calendar(CalendarStep(1), CalendarStep(1, 1), 0, "UTC", "s")),
        ("whole days", calendar("1mo", "UTC", "6h")),
    ],
)
def test_a_calendar_without_windows_is_refused(says, windows):
    with pytest.raises(WindowError, match=says):
        check_calendar(windows)
    with pytest.raises(WindowError, match=says):
        calendar_windows(windows, 0, 0)


@pytest.mark.parametrize(
    ("says", "windows", "first", "last"),
    [
        ("years 1 to 9999", calendar("1d", "UTC"), seconds("0001-01-01T00:00") - 1, 0),
        ("years 1 to 9999", calendar("1d", "UTC"), 0, seconds("9999-12-31T23:59:59") + 1),
        ("64 bits", calendar("1d", "UTC", unit="ns"), 0, (1 << 63) - 1),
        ("64 bits", calendar("1d", "UTC", unit="ns"), -(1 << 63), 0),
        ("more than 20,000,000", calendar("1s", "UTC"), 0, 10**9),
    ],
)
def test_times_that_no_calendar_reaches_are_refused(says, windows, first, last):
    with pytest.raises(WindowError, match=says):
        calendar_bounds(windows, first, last)
