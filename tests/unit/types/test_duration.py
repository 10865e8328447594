"""Durations are read exactly, and counted in the ticks of a time column or refused."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DurationError, UnsupportedError, WindowError
from penstock.types.duration import calendar_step, nanoseconds, to_ticks
from penstock.types.time import NANOSECONDS, Time
from penstock.types.windows import CalendarStep

S = 10**9
MICROS = Time("ts", pa.timestamp("us"), "us")
DAYS = Time("day", pa.date32(), "d")
TICKS = Time("t", pa.int64(), None)
MILLIS = Time("t", pa.int64(), "ms")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10s", 10 * S),
        ("100ms", S // 10),
        ("1h30m", 5_400 * S),
        ("1h 30m", 5_400 * S),
        (" 7d ", 7 * 86_400 * S),
        ("2w", 14 * 86_400 * S),
        ("1.5s", 3 * S // 2),
        ("3us", 3_000),
        ("3µs", 3_000),
        ("5ns", 5),
        ("-5s", -5 * S),
        ("0s", 0),
        (timedelta(days=1, microseconds=1), 86_400 * S + 1_000),
        (timedelta(seconds=-1), -S),
    ],
)
def test_a_duration_is_read_exactly(text, expected):
    assert nanoseconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", " ", "s", "10", "ten seconds", "10x", "10s!", "1e3s", "--1s", "10S", "1s -2s", "10 s\n;"]
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(DurationError, match="size is"):
        nanoseconds(text, "size")


@pytest.mark.parametrize("given_value", [1.5, None, True, b"10s", [10]])
def test_other_types_are_no_durations(given_value):
    with pytest.raises(DurationError):
        to_ticks(given_value, MICROS, "size")


@pytest.mark.parametrize("read", [nanoseconds, lambda text: to_ticks(text, MICROS, "size")])
def test_months_need_a_time_zone(read):
    with pytest.raises(UnsupportedError, match="months need tz="):
        read("1mo")


@pytest.mark.parametrize(
    ("duration", "unit", "step"),
    [
        ("1mo", "us", CalendarStep(months=1)),
        ("3mo", "d", CalendarStep(months=3)),
        (" 1mo 2mo ", "s", CalendarStep(months=3)),
        ("1d", "s", CalendarStep(ticks=86_400)),
        ("1w", "d", CalendarStep(ticks=7)),
        ("6h", "ms", CalendarStep(ticks=21_600_000)),
        ("1h30m", "s", CalendarStep(ticks=5_400)),
        (timedelta(days=1), "ns", CalendarStep(ticks=86_400 * S)),
    ],
)
def test_a_length_on_the_wall_clock_is_read_in_months_or_in_ticks(duration, unit, step):
    assert calendar_step(duration, unit, "size") == step


@pytest.mark.parametrize(
    ("error", "duration", "unit", "says"),
    [
        (DurationError, "1mo2d", "s", "size is '1mo2d': months and other units"),
        (DurationError, "2d1mo", "s", "months and other units"),
        (DurationError, "1.5mo", "s", "whole number of months"),
        (DurationError, "999999mo", "s", "whole number of months up to"),
        (DurationError, "1q", "s", "no unit 'q'"),
        (DurationError, "a month", "s", "not a duration"),
        (DurationError, 7, "s", "bare number 7.*units"),
        (DurationError, None, "s", "not a duration"),
        (DurationError, "1d", None, "unit="),
        (DurationError, "6h", "d", "whole number of ticks of the time column"),
        (DurationError, "999999999999w", "ns", "64-bit"),
        (WindowError, "0mo", "s", "longer than zero"),
        (WindowError, "-1mo", "s", "longer than zero"),
        (WindowError, "0s", "s", "longer than zero"),
        (WindowError, timedelta(-1), "s", "longer than zero"),
    ],
)
def test_what_is_no_length_on_the_wall_clock_is_refused(error, duration, unit, says):
    with pytest.raises(error, match=says):
        calendar_step(duration, unit, "size")


@pytest.mark.parametrize(
    ("duration", "time", "ticks"),
    [
        ("10s", MICROS, 10_000_000),
        (timedelta(milliseconds=3), MICROS, 3_000),
        ("2w", DAYS, 14),
        ("48h", DAYS, 2),
        (10, TICKS, 10),
        (np.int32(10), TICKS, 10),
        (10, MILLIS, 10),
        ("10s", MILLIS, 10_000),
        ("-5s", MICROS, -5_000_000),
    ],
)
def test_a_duration_is_counted_in_ticks_of_the_column(duration, time, ticks):
    assert to_ticks(duration, time, "size") == ticks


@pytest.mark.parametrize(
    ("duration", "time", "says"),
    [
        (10, MICROS, "bare number 10.*'10us'"),
        (10, DAYS, "bare number 10"),
        ("10s", TICKS, "unit="),
        (timedelta(seconds=1), TICKS, "unit="),
        ("10ns", MICROS, "whole number of ticks"),
        ("12h", DAYS, "whole number of ticks"),
    ],
)
def test_a_duration_that_does_not_fit_the_column_is_refused(duration, time, says):
    with pytest.raises(DurationError, match=says):
        to_ticks(duration, time, "size")


@given(st.integers(1, 10**6), st.sampled_from(sorted(NANOSECONDS)), st.sampled_from(sorted(NANOSECONDS)))
def test_ticks_times_the_tick_is_the_duration(count, written, unit):
    time = Time("t", pa.int64(), unit)
    try:
        ticks = to_ticks(f"{count}{written}", time, "size")
    except DurationError:
        assert count * NANOSECONDS[written] % NANOSECONDS[unit] != 0
    else:
        assert ticks * NANOSECONDS[unit] == count * NANOSECONDS[written]
