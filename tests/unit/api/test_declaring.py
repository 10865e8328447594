"""Declaring streams: time columns, implied time, and what is refused at once."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import penstock as pk
from penstock.api.source_options import instant
from penstock.types.time import Time

TABLE = pa.table({"v": [1, 2]})
UNIONS = pa.table(
    {
        "t": [1, 2],
        "u": pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["x", "y"])]),
    }
)
UNION = UNIONS.schema.field("u").type


@pytest.mark.parametrize(
    ("dtype", "unit", "ticks"),
    [
        ("timestamp[s]", None, "s"),
        ("timestamp[ns, UTC]", None, "ns"),
        ("timestamp[ms]", "ms", "ms"),
        ("date", None, "d"),
        ("int64", None, None),
        ("int32", "us", "us"),
        ("int64", "d", "d"),
    ],
)
def test_the_time_column_gives_the_tick(dtype, unit, ticks):
    stream = pk.stream("s", {"t": dtype}, time="t", unit=unit)
    assert stream.plan.time == Time("t", stream.schema.field("t").type, ticks)


def test_unsigned_times_are_read_as_int64_since_windows_may_start_before_zero():
    assert pk.stream("s", {"t": "uint32"}, time="t").schema.field("t").type == pa.int64()


@pytest.mark.parametrize(
    ("every", "time"),
    [
        (pk.every("4ms"), Time("time", pa.timestamp("us"), "us", period=4_000)),
        (pk.every("10ns"), Time("time", pa.timestamp("ns"), "ns", period=10)),
        (pk.every("1s", unit="s"), Time("time", pa.timestamp("s"), "s", period=1)),
        (pk.every(3, start=5), Time("time", pa.int64(), None, period=3, start=5)),
        (pk.every(3, unit="ms"), Time("time", pa.int64(), "ms", period=3)),
        (
            pk.every("1s", start=dt.datetime(1970, 1, 1, 0, 1)),
            Time("time", pa.timestamp("us"), "us", period=10**6, start=60 * 10**6),
        ),
        (
            pk.every("1s", start=dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
            Time("time", pa.timestamp("us", "UTC"), "us", period=10**6),
        ),
        (
            pk.every("1s", start="1970-01-01T00:00:01"),
            Time("time", pa.timestamp("us"), "us", period=10**6, start=10**6),
        ),
        (pk.every(dt.timedelta(days=1)), Time("time", pa.timestamp("us"), "us", period=86_400 * 10**6)),
    ],
)
def test_regular_time_is_implied_by_the_position(every, time):
    stream = pk.from_arrow(TABLE, time=every)
    assert stream.plan.time == time
    assert stream.schema.names == ["time", "v"]


def test_the_unit_of_regular_time_is_said_by_the_stream_too():
    for period in (3, "3ms"):
        stream = pk.from_arrow(TABLE, time=pk.every(period), unit="ms")
        assert stream.plan.time == pk.from_arrow(TABLE, time=pk.every(period, unit="ms")).plan.time
        assert stream.plan.time.unit == "ms"
    assert pk.from_arrow(TABLE, time=pk.every(3, unit="ms"), unit="ms").plan.time.unit == "ms"


MISTAKES = [
    (pk.UnknownColumnError, lambda: pk.stream("s", {"t": "int64"}, time="tt")),
    (pk.UnknownColumnError, lambda: pk.stream("s", {"t": "int64"}, time="t", sequence="n")),
    (pk.ExpressionTypeError, lambda: pk.stream("s", {"t": "string"}, time="t")),
    (pk.ExpressionTypeError, lambda: pk.stream("s", {"t": "float64"}, time="t")),
    (pk.ExpressionTypeError, lambda: pk.stream("s", {"t": "int64"}, time=3)),
    (pk.ExpressionTypeError, lambda: pk.stream("s", {"t": "int64"}, time="t", on_bad="panic")),
    (pk.DurationError, lambda: pk.stream("s", {"t": "int64"}, time="t", unit="h")),
    (pk.DurationError, lambda: pk.stream("s", {"t": "timestamp[us]"}, time="t", unit="ms")),
    (pk.DurationError, lambda: pk.stream("s", {"t": "int64"}, time="t", lateness="5s")),
    (pk.DurationError, lambda: pk.stream("s", {"t": "timestamp[us]"}, time="t", lateness="-5s")),
    (pk.DurationError, lambda: pk.stream("s", {"t": "timestamp[us]"}, time="t", lateness=5)),
    (pk.BindingError, lambda: pk.stream("", {"t": "int64"}, time="t")),
    (pk.BindingError, lambda: pk.stream(3, {"t": "int64"}, time="t")),
    (pk.SchemaMismatchError, lambda: pk.stream("s", {"t": "int65"}, time="t")),
    (pk.SchemaMismatchError, lambda: pk.from_arrow(pa.table({"time": [1]}), time=pk.every("1s"))),
    (pk.SchemaMismatchError, lambda: pk.stream("s", {"t": "int64", "u": UNION}, time="t")),
    (pk.SchemaMismatchError, lambda: pk.stream("s", {"t": "int64", "u": pa.list_(UNION)}, time="t")),
    (pk.SchemaMismatchError, lambda: pk.from_arrow(UNIONS, time="t")),
    (pk.SchemaMismatchError, lambda: pk.table(UNIONS)),
    (pk.SourceError, lambda: pk.from_arrow([1, 2], time="t")),
    (pk.SourceError, lambda: pk.scan("nowhere-at-all/*.parquet", time="t")),
    (pk.WindowError, lambda: pk.every("0s")),
    (pk.WindowError, lambda: pk.every(-1)),
    (pk.DurationError, lambda: pk.every("often")),
    (pk.DurationError, lambda: pk.every("1s", unit="h")),
    (pk.DurationError, lambda: pk.from_arrow(TABLE, time=pk.every("1s", start=5))),
    (pk.DurationError, lambda: pk.from_arrow(TABLE, time=pk.every("1ms", unit="s"))),
    (pk.DurationError, lambda: pk.from_arrow(TABLE, time=pk.every("1ms"), unit="s")),
    (pk.DurationError, lambda: pk.from_arrow(TABLE, time=pk.every(1), unit="h")),
    (pk.DurationError, lambda: pk.from_arrow(TABLE, time=pk.every(1, unit="ms"), unit="s")),
]


@pytest.mark.parametrize(("error", "mistake"), MISTAKES)
def test_a_mistake_in_a_declaration_is_refused_at_once(error, mistake):
    with pytest.raises(error):
        mistake()


def test_columns_that_a_stream_does_not_declare_may_be_unions():
    counted = pk.stream("s", {"t": "int64"}, time="t").window(10).agg(n=pk.count())
    assert counted.collect(UNIONS)["n"].to_pylist() == [2]


MICROS = Time("t", pa.timestamp("us"), "us")
ZONED = Time("t", pa.timestamp("ms", "Europe/Berlin"), "ms")


@pytest.mark.parametrize(
    ("value", "time", "ticks"),
    [
        (dt.datetime(1970, 1, 1, 0, 0, 1), MICROS, 10**6),
        ("1970-01-01T00:00:01", MICROS, 10**6),
        (dt.date(1970, 1, 2), MICROS, 86_400 * 10**6),
        (dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), ZONED, 0),
        (7, Time("t", pa.int64(), None), 7),
        (dt.datetime(1970, 1, 1, 0, 0, 1), Time("t", pa.int64(), "ms"), 1_000),
        (dt.date(1970, 1, 3), Time("t", pa.date32(), "d"), 2),
        (dt.datetime(1970, 1, 3, 12), Time("t", pa.int64(), "d"), 2),
    ],
)
def test_a_point_in_time_is_given_in_ticks(value, time, ticks):
    assert instant(value, time, "the time") == ticks


@pytest.mark.parametrize(
    ("value", "time"),
    [
        (7, MICROS),
        (dt.datetime(1970, 1, 1), ZONED),
        (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), MICROS),
        ("noon", MICROS),
        (1.5, MICROS),
        ("1970-01-01", Time("t", pa.int64(), None)),
    ],
)
def test_a_point_in_time_that_does_not_fit_is_refused(value, time):
    with pytest.raises(pk.DurationError, match="the time"):
        instant(value, time, "the time")
