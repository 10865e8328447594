"""`.dt`, `.str` and expressions under Polars' names give what Polars gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import penstock as pk

TIMES = [
    datetime(2026, 1, 1),
    datetime(2026, 3, 29, 12, 30, 15, 123456),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
]
DATES = [date(2026, 3, 1), date(1969, 12, 31), None]
SPANS = [timedelta(hours=25, seconds=5), timedelta(microseconds=-1), None]
TEXTS = ["abc", "Ünï 🙂 x", "", None, " pad ", "a.b.c", "-7"]
NUMBERS = [1.5, -2.0, math.nan, math.inf, -math.inf, None, 0.0]
COLUMNS: dict[str, pa.Array] = {
    "naive": pa.array(TIMES, pa.timestamp("us")),
    "zoned": pa.array(TIMES, pa.timestamp("ms", "Europe/Berlin"), safe=False),
    "span": pa.array(SPANS, pa.duration("us")),
    "day": pa.array(DATES, pa.date32()),
    "text": pa.array(TEXTS),
    "coded": pa.array(TEXTS).dictionary_encode(),
    "number": pa.array(NUMBERS),
}
Columns = Callable[[Any], Any]

OF_TIMES: dict[str, Columns] = {
    **{
        name: lambda c, name=name: getattr(c.dt, name)()
        for name in ("epoch", "timestamp", "is_leap_year", "century", "millennium", "hour", "date", "week")
    },
    **{f"epoch {unit}": lambda c, unit=unit: c.dt.epoch(unit) for unit in ("ns", "us", "ms", "s", "d")},
    **{
        f"truncate {every}": lambda c, every=every: c.dt.truncate(every)
        for every in ("15m", "1h", "6h", "1d", "1w", "1mo", "3mo")
    },
    **{
        f"round {every}": lambda c, every=every: c.dt.round(every)
        for every in ("7s", "15m", "1h", "2h", "1d", "1w")
    },
    "strftime": lambda c: c.dt.strftime("%Y-%m-%d %H:%M:%S"),
    "to_string": lambda c: c.dt.to_string("%j %d.%m.%y"),
    **{
        f"offset_by {by}": lambda c, by=by: c.dt.offset_by(by)
        for by in ("1d", "-1w", "1mo", "-13mo", "24h", "1mo2d", "-1d12h", "-1s")
    },
    **{
        name: lambda c, name=name: getattr(c.dt, name)()
        for name in ("month_start", "month_end", "days_in_month")
    },
    "convert_time_zone": lambda c: c.dt.convert_time_zone("Asia/Tokyo"),
    "replace_time_zone": lambda c: c.dt.replace_time_zone("Asia/Tokyo"),
    "replace_time_zone none": lambda c: c.dt.replace_time_zone(None),
    "cast_time_unit": lambda c: c.dt.cast_time_unit("ms"),
    **{
        f"strftime {text}": lambda c, text=text: c.dt.strftime(text)
        for text in ("%f", "%3f", "%6f", "%.3f", "%.9f", "%s", "%%f%%s %A")
    },
}
OF_SPANS: dict[str, Columns] = {
    f"total_{unit}": lambda c, unit=unit: getattr(c.dt, f"total_{unit}")()
    for unit in ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")
}
OF_SPANS |= {
    "by an integer": lambda c: c / 7,
    "by zero": lambda c: c / 0,
    "by a float": lambda c: c / 0.3,
    "by no float": lambda c: c / 0.0,
    "times": lambda c: 3 * c,
    "times a float": lambda c: c * -1.5,
    "a float times": lambda c: 0.25 * c,
}
OF_DATES: dict[str, Columns] = {
    "later": lambda c: c + timedelta(days=40),
    "a little earlier": lambda c: c - timedelta(microseconds=1),
    "a little later": lambda c: timedelta(hours=23) + c,
    "round to days": lambda c: c.dt.round("3d"),
    "round to weeks": lambda c: c.dt.round("1w"),
    "since a date": lambda c: c - date(2024, 2, 29),
    "since a time": lambda c: c - datetime(2024, 2, 29, 12),
    "until a time": lambda c: datetime(2024, 2, 29, 12) - c,
}
OF_TEXTS: dict[str, Columns] = {
    "contains": lambda c: c.str.contains("b"),
    "contains pattern": lambda c: c.str.contains("^a.c$|x$"),
    "contains literal": lambda c: c.str.contains(".", literal=True),
    "count_matches": lambda c: c.str.count_matches("[a-c]"),
    "count_matches of the beginning": lambda c: c.str.count_matches("^[ab]"),
    "count_matches of nothing": lambda c: c.str.count_matches("x*"),
    "count_matches literal": lambda c: c.str.count_matches(".", literal=True),
    "replace": lambda c: c.str.replace("([a-c])", "<$1>"),
    "replace literal": lambda c: c.str.replace(".", "-", literal=True),
    "replace_all": lambda c: c.str.replace_all("(.)(b)", "${2}$1"),
    "replace_all nothing": lambda c: c.str.replace_all("", "-", literal=True),
    "extract": lambda c: c.str.extract("([a-c])([^a-c])?"),
    "extract all": lambda c: c.str.extract("[a-c]+", 0),
    "find": lambda c: c.str.find("[c-x]"),
    "find literal": lambda c: c.str.find(".", literal=True),
    "contains_any": lambda c: c.str.contains_any(["bc", "x"]),
    "to_titlecase": lambda c: c.str.to_titlecase(),
    "to_date": lambda c: c.str.to_date("%d.%m.%Y", strict=False),
    "to_datetime": lambda c: c.str.to_datetime("%Y-%m-%d", strict=False),
    "strip_chars": lambda c: c.str.strip_chars("ac"),
    "strip_chars_start": lambda c: c.str.strip_chars_start(),
    "strip_chars_end": lambda c: c.str.strip_chars_end(" c"),
    "strip_prefix": lambda c: c.str.strip_prefix("a"),
    "strip_suffix": lambda c: c.str.strip_suffix("c"),
    **{
        f"slice {place}": lambda c, place=place: c.str.slice(*place)
        for place in ((1, 2), (-2,), (1,), (10, 5), (-10, 9), (-4, 2))
    },
    **{f"head {n}": lambda c, n=n: c.str.head(n) for n in (0, 2, -2, 9)},
    **{f"tail {n}": lambda c, n=n: c.str.tail(n) for n in (0, 2, -2, 9)},
    "pad_start": lambda c: c.str.pad_start(5, "*"),
    "pad_end": lambda c: c.str.pad_end(5),
    "zfill": lambda c: c.str.zfill(5),
    "reverse": lambda c: c.str.reverse(),
    "plus": lambda c: c + "!",
    "plus before": lambda c: "!" + c,
}
OF_NUMBERS: dict[str, Columns] = {
    "is_finite": lambda c: c.is_finite(),
    "is_infinite": lambda c: c.is_infinite(),
    "is_not_nan": lambda c: c.is_not_nan(),
    "fill_nan": lambda c: c.fill_nan(0.5),
    "is_between": lambda c: c.is_between(-2, 1, closed="left"),
    "log": lambda c: c.log(2),
    "log 3": lambda c: c.log(3),
    "pow": lambda c: c.pow(3),
}
CASES = [
    (column, name, function)
    for columns, functions in (
        (("naive", "zoned"), OF_TIMES),
        (("span",), OF_SPANS),
        (("day",), OF_DATES),
        (("text", "coded"), OF_TEXTS),
        (("number",), OF_NUMBERS),
    )
    for column in columns
    for name, function in functions.items()
]


def shown(values: list[Any]) -> list[str]:
    """NaN as itself, floats to twelve digits, times as instants."""
    return [f"{value:.12g}" if isinstance(value, float) else repr(value) for value in values]


@pytest.mark.parametrize(
    ("column", "name", "function"), CASES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_it_is_as_in_polars(column: str, name: str, function: Columns) -> None:
    values = COLUMNS[column]
    table = pa.table({"t": pa.array(range(len(values)), pa.int64()), "a": values})
    plain = (
        pl.DataFrame({"a": pl.Series(values.to_pylist(), dtype=pl.String)})
        if column == "coded"
        else pl.from_arrow(table)
    )
    assert isinstance(plain, pl.DataFrame)
    theirs = plain.select(z=function(pl.col("a")))["z"].to_list()
    ours = pk.from_arrow(table, time="t").select(z=function(pk.col("a"))).collect()["z"].to_pylist()
    assert shown(ours) == shown(theirs)


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York", "UTC"])
def test_days_begin_at_midnight_of_the_columns_zone(zone: str) -> None:
    values = pa.array(TIMES, pa.timestamp("us", zone))
    table = pa.table({"t": pa.array(range(len(values)), pa.int64()), "a": values})
    plain = pl.from_arrow(table)
    assert isinstance(plain, pl.DataFrame)
    ours = pk.from_arrow(table, time="t").select(z=pk.col("a").dt.truncate("1d")).collect()["z"]
    theirs = plain.select(z=pl.col("a").dt.truncate("1d").dt.epoch("us"))["z"].to_list()
    assert ours.cast(pa.int64()).to_pylist() == theirs


# Around changes of clocks: put forward, put back, at midnight, by half an hour; and long after 2037, where tables of changes end.
CLOCKS = {
    "Europe/Berlin": (1_711_843_200, 1_729_987_200, 2_982_415_526),
    "America/Havana": (1_710_046_800, 1_730_606_400, 2_314_733_684),
    "Australia/Lord_Howe": (1_712_411_400, 1_728_142_200, 3_039_744_042),
}


@pytest.mark.parametrize("zone", CLOCKS)
@pytest.mark.parametrize("every", ["15m", "1h", "2h", "6h", "1d", "1w", "1mo"])
def test_times_are_truncated_on_a_clock_that_changes(zone: str, every: str) -> None:
    seconds = [around + 1_711 * step for around in CLOCKS[zone] for step in range(-20, 20)]
    values = pa.array(seconds, pa.timestamp("s")).cast(pa.timestamp("ms")).cast(pa.int64())
    table = pa.table({"t": values, "a": values.cast(pa.timestamp("ms", zone))})
    ours = pk.from_arrow(table, time="t").select(z=pk.col("a").dt.truncate(every)).collect()["z"]
    for value, moment in zip(ours.cast(pa.int64()).to_pylist(), table["a"], strict=True):
        try:
            theirs = pl.Series([moment.as_py()]).dt.truncate(every).dt.epoch("ms")[0]
        except pl.exceptions.ComputeError:
            continue  # Polars has no word for a time that the clock jumps over
        assert value == theirs


def around_changes(zone: str) -> pa.Array:
    seconds = [around + 1_711 * step for around in CLOCKS[zone] for step in range(-20, 20)]
    return pa.array(seconds, pa.timestamp("s")).cast(pa.timestamp("ms", zone))


@pytest.mark.parametrize("zone", CLOCKS)
@pytest.mark.parametrize("every", ["15m", "1h", "2h", "6h", "1d", "1w"])
def test_times_are_rounded_on_a_clock_that_changes(zone: str, every: str) -> None:
    values = around_changes(zone)
    table = pa.table({"t": values.cast(pa.int64()), "a": values})
    ours = pk.from_arrow(table, time="t").select(z=pk.col("a").dt.round(every)).collect()["z"]
    theirs = [pl.Series([moment]).dt.round(every).dt.epoch("ms")[0] for moment in values.to_pylist()]
    assert ours.cast(pa.int64()).to_pylist() == theirs


@pytest.mark.parametrize("unit", ["1mo", "3mo"])
def test_months_are_not_rounded_to(unit: str) -> None:
    stream = pk.stream("s", {"t": "timestamp[us]"}, time="t")
    with pytest.raises(pk.DurationError, match="months differ in length"):
        stream.select(z=pk.col("t").dt.round(unit))


def test_integer_times_are_rounded_in_their_unit() -> None:
    table = pa.table({"t": [0, 499, 500, 1499]})
    stream = pk.from_arrow(table, time="t", unit="ms")
    assert stream.select(z=pk.col("t").dt.round("1s")).collect()["z"].to_pylist() == [0, 0, 1000, 1000]


def test_the_offset_of_a_zone_is_written() -> None:
    values = pa.array([0, 1_720_000_000], pa.timestamp("s", "Europe/Berlin"))
    stream = pk.from_arrow(pa.table({"t": [0, 1], "a": values}), time="t")
    assert stream.select(z=pk.col("a").dt.strftime("%z %Z")).collect()["z"].to_pylist() == [
        "+0100 CET",
        "+0200 CEST",
    ]


def test_parts_of_times_at_a_fixed_offset() -> None:
    values = pa.array([0, None], pa.timestamp("s", "-03:30"))
    stream = pk.from_arrow(pa.table({"t": [0, 1], "a": values}), time="t")
    parts = stream.select(h=pk.col("a").dt.hour(), d=pk.col("a").dt.truncate("1d").dt.epoch("s")).collect()
    assert (parts["h"].to_pylist(), parts["d"].to_pylist()) == ([20, None], [-86_400 + 12_600, None])


@pytest.mark.parametrize("every", ["1500ms", "100us"])
def test_a_truncation_finer_than_a_tick_is_refused_in_a_zone_too(every: str) -> None:
    stream = pk.stream("s", {"t": "int64", "a": "timestamp[s, Europe/Berlin]"}, time="t")
    with pytest.raises(pk.DurationError):
        stream.select(z=pk.col("a").dt.truncate(every))


@pytest.mark.parametrize(
    ("pattern", "value", "expected"),
    [
        ("^a", "X", ["Xaa", "Xb-ab", "", None]),
        ("(a)(b)?", "<$2$1>", ["<a><a>a", "<ba>-<ba>", "", None]),
        ("", "-", ["-a-aa", "-a-b-ab", "-", None]),
    ],
)
def test_the_first_two_matches_are_replaced(pattern: str, value: str, expected: list[str | None]) -> None:
    stream = pk.from_arrow(pa.table({"t": range(4), "a": ["aaa", "ab-ab", "", None]}), time="t")
    replaced = stream.select(z=pk.col("a").str.replace(pattern, value, n=2)).collect()["z"]
    assert replaced.to_pylist() == expected
