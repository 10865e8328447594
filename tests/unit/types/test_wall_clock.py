"""Local times stand for the first instant at which the clock shows them or later ones."""

from __future__ import annotations

import struct
import zoneinfo
from datetime import UTC, datetime, timedelta, timezone
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WindowError
from penstock.types.wall_clock import PROBE, _changes, time_zone, wall_clock

EPOCH = datetime(1970, 1, 1)
ODD_ZONES = ["Africa/Casablanca", "Africa/Freetown", "America/Caracas", "Asia/Gaza", "Asia/Pyongyang"]
ZONES = [
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "America/Sao_Paulo",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "UTC",
]


def seconds(text: str) -> int:
    """Count the seconds from the epoch to a time, written without a zone or in one."""
    moment = datetime.fromisoformat(text)
    epoch = EPOCH.replace(tzinfo=UTC) if moment.tzinfo else EPOCH
    return (moment - epoch) // timedelta(seconds=1)


def instant(zone: str, local: str, unit: str = "s") -> int:
    clock = wall_clock(zone, unit, int(local[:4]) - 1, int(local[:4]) + 1)
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    return int(clock.instants(np.array([seconds(local) * scale]))[0])


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
    assert instant(zone, local) == seconds(expected)


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
    assert wall_clock("Europe/Berlin", "s", 2026, 2026).shown(seconds(at)) == seconds(latest)


def test_dates_have_no_zone():
    assert wall_clock("Asia/Tokyo", "d", 2026, 2026).instants(np.array([-1, 0, 1])).tolist() == [-1, 0, 1]


@given(st.sampled_from(ZONES + ODD_ZONES), st.integers(1, 9998), st.integers(0, 366 * 86_400))
def test_the_clock_shows_what_pythons_shows_unless_it_was_put_back(zone, year, second):
    moment = datetime(year, 1, 3, tzinfo=UTC) + timedelta(seconds=min(second, 361 * 86_400))
    at = seconds(moment.isoformat())
    local = seconds(moment.astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None).isoformat())
    clock = wall_clock(zone, "s", year - 1, year + 1)
    shown = clock.shown(at)
    assert local <= shown
    assert int(clock.instants(np.array([shown]))[0]) <= at < int(clock.instants(np.array([shown + 1]))[0])


@given(st.sampled_from(ZONES + ODD_ZONES), st.lists(st.integers(-(10**9), 2 * 10**9), max_size=50))
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
    offsets = [each[0] for each in struct.iter_unpack(">lBB", data[at + 9 * changes :][: 6 * types])]
    held = [offsets[0], *(offsets[kind] for kind in kinds)]
    return [(time, new) for time, (old, new) in zip(times, pairwise(held), strict=True) if old != new]


def zone_file(name: str) -> bytes:
    """Read the file that `ZoneInfo(name)` reads."""
    paths = [Path(root, name) for root in zoneinfo.TZPATH]
    found = next((path for path in paths if path.is_file()), None)
    return found.read_bytes() if found else files("tzdata").joinpath("zoneinfo", name).read_bytes()


@pytest.mark.parametrize("zone", ZONES + ODD_ZONES)
def test_every_change_of_a_zone_is_found_to_the_second(zone):
    start, end = seconds("1900-01-01T00:00"), seconds("2027-01-01T00:00")
    on_file = changes_on_file(zone_file(zone))
    explicit = max([*(time for time, _ in on_file), start])
    found = [each for year in range(1900, 2027) for each in _changes(zone, year)]
    assert [each for each in found if each[0] <= explicit] == [
        each for each in on_file if start < each[0] <= end
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
