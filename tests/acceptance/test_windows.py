"""Windows with answers worked out by hand: alignment, offsets, slides, negative and integer times."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import penstock as pk


def events(times: list[int], dtype: pa.DataType | None = None, **columns: object) -> pa.Table:
    ticks = pa.array(times, pa.int64())
    dtype = dtype or pa.timestamp("s")
    time = ticks.cast(pa.int32()).cast(dtype) if dtype == pa.date32() else ticks.cast(dtype)
    return pa.table({"ts": time, **{name: pa.array(values) for name, values in columns.items()}})


def triples(table: pa.Table, *names: str) -> list[tuple[object, ...]]:
    """List (start, end, values…) with bounds in ticks."""
    width = pa.int32() if table.schema.field("window_end").type == pa.date32() else pa.int64()
    bounds = [table[name].cast(width).to_pylist() for name in ("window_start", "window_end")]
    return list(zip(*bounds, *(table[name].to_pylist() for name in names), strict=True))


def test_a_tumbling_window_is_half_open_and_aligned_to_the_epoch() -> None:
    table = events([0, 9, 10, 19, 20], v=[1, 2, 3, 4, 5])
    result = pk.from_arrow(table, time="ts").window(pk.tumbling("10s")).agg(s=pk.sum("v"), n=pk.count())
    assert triples(result.collect(), "s", "n") == [(0, 10, 3, 2), (10, 20, 7, 2), (20, 30, 5, 1)]


def test_only_windows_that_hold_a_row_exist() -> None:
    table = events([0, 1_000_000_000], v=[1, 2])
    result = pk.from_arrow(table, time="ts").window(pk.tumbling("1s")).agg(s=pk.sum("v"))
    assert triples(result.collect(), "s") == [(0, 1, 1), (1_000_000_000, 1_000_000_001, 2)]


def test_negative_times_fall_into_windows_before_the_epoch() -> None:
    table = events([-1, -10, -11, 0], v=[1, 2, 4, 8])
    result = pk.from_arrow(table, time="ts").window("10s").agg(s=pk.sum("v"))
    assert triples(result.collect(), "s") == [(-20, -10, 4), (-10, 0, 3), (0, 10, 8)]


def test_an_offset_moves_the_windows() -> None:
    table = events([0, 2, 3, 12], v=[1, 2, 4, 8])
    result = pk.from_arrow(table, time="ts").window(pk.tumbling("10s", offset="3s")).agg(s=pk.sum("v"))
    assert triples(result.collect(), "s") == [(-7, 3, 3), (3, 13, 12)]


def test_a_slide_that_divides_the_size() -> None:
    table = events([0, 5], v=[1, 2])
    result = pk.from_arrow(table, time="ts").window(pk.sliding("10s", "5s")).agg(s=pk.sum("v"))
    assert triples(result.collect(), "s") == [(-5, 5, 1), (0, 10, 3), (5, 15, 2)]


def test_a_slide_that_does_not_divide_the_size() -> None:
    table = events([0, 6], v=[1, 2])
    result = pk.from_arrow(table, time="ts").window("10s", every="4s").agg(s=pk.sum("v"))
    assert triples(result.collect(), "s") == [(-8, 2, 1), (-4, 6, 1), (0, 10, 3), (4, 14, 2)]


def test_a_slide_longer_than_the_size_leaves_gaps() -> None:
    table = events([0, 2, 3, 9, 10, 12], v=[1, 2, 4, 8, 16, 32])
    result = pk.from_arrow(table, time="ts").window(pk.sliding("3s", "10s")).agg(s=pk.sum("v"))
    assert triples(result.collect(), "s") == [(0, 3, 3), (10, 13, 48)]


def test_rows_in_no_order_and_of_equal_time_give_the_same_windows() -> None:
    ordered = events([0, 5, 5, 5, 11], v=[1, 2, 4, 8, 16])
    shuffled = events([5, 11, 0, 5, 5], v=[4, 16, 1, 8, 2])
    results = [
        triples(pk.from_arrow(t, time="ts").window("10s", every="5s").agg(s=pk.sum("v")).collect(), "s")
        for t in (ordered, shuffled)
    ]
    assert results[0] == results[1] == [(-5, 5, 1), (0, 10, 15), (5, 15, 30), (10, 20, 16)]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_bounds_have_the_type_of_the_time_column(unit: str, zone: str | None) -> None:
    dtype = pa.timestamp(unit, zone)
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    table = events([1_700_000_000 * scale, 1_700_000_059 * scale, 1_700_000_060 * scale], dtype, v=[1, 2, 4])
    result = pk.from_arrow(table, time="ts").window(pk.tumbling("1m")).agg(s=pk.sum("v")).collect()
    assert result.schema.field("window_start").type == dtype
    start = 1_699_999_980 * scale  # minutes are aligned to UTC whatever the zone
    minute = 60 * scale
    assert triples(result, "s") == [(start, start + minute, 1), (start + minute, start + 2 * minute, 6)]


def test_dates_as_time() -> None:
    table = events([-1, 0, 6, 7], pa.date32(), v=[1, 2, 4, 8])
    result = pk.from_arrow(table, time="ts").window(pk.tumbling("7d")).agg(s=pk.sum("v")).collect()
    assert triples(result, "s") == [(-7, 0, 1), (0, 7, 6), (7, 14, 8)]


@pytest.mark.parametrize("dtype", [pa.int64(), pa.int32(), pa.uint32(), pa.int16(), pa.uint64()])
def test_integer_times_with_a_unit(dtype: pa.DataType) -> None:
    table = events([1_000, 1_999, 2_000], dtype, v=[1, 2, 4])
    result = pk.from_arrow(table, time="ts", unit="ms").window(pk.tumbling("1s")).agg(s=pk.sum("v")).collect()
    # Unsigned times are read as int64, because a window may start before zero.
    expected = pa.int64() if pa.types.is_unsigned_integer(dtype) else dtype
    assert result.schema.field("window_end").type == expected
    assert triples(result, "s") == [(1_000, 2_000, 3), (2_000, 3_000, 4)]


def test_integer_times_without_a_unit_take_bare_ticks() -> None:
    table = events([-3, 0, 5, 6], pa.int64(), v=[1, 2, 4, 8])
    result = pk.from_arrow(table, time="ts").window(pk.tumbling(6)).agg(s=pk.sum("v")).collect()
    assert triples(result, "s") == [(-6, 0, 1), (0, 6, 6), (6, 12, 8)]


def test_a_window_may_start_before_the_zero_of_an_unsigned_time() -> None:
    table = events([0, 1], pa.uint32(), v=[1, 2])
    query = pk.from_arrow(table, time="ts", unit="s").window(pk.sliding("4s", "2s")).agg(s=pk.sum("v"))
    assert triples(query.collect(), "s") == [(-2, 2, 3), (0, 4, 3)]


def test_timedeltas_are_durations() -> None:
    table = events([0, 89, 90], v=[1, 2, 4])
    result = pk.from_arrow(table, time="ts").window(pk.tumbling(dt.timedelta(seconds=90))).agg(s=pk.sum("v"))
    assert triples(result.collect(), "s") == [(0, 90, 3), (90, 180, 4)]


def test_compound_durations() -> None:
    table = events([0, 5_399, 5_400], v=[1, 2, 4])
    result = pk.from_arrow(table, time="ts").window(pk.tumbling("1h30m")).agg(s=pk.sum("v"))
    assert triples(result.collect(), "s") == [(0, 5_400, 3), (5_400, 10_800, 4)]


def test_implied_regular_time() -> None:
    table = pa.table({"mv": [1.0, 2.0, 3.0, 4.0, 5.0]})
    ecg = pk.from_arrow(table, time=pk.every("4ms"))
    result = ecg.window(pk.tumbling("8ms")).agg(m=pk.mean("mv"), n=pk.count()).collect()
    assert result["m"].to_pylist() == [1.5, 3.5, 5.0]
    assert result["n"].to_pylist() == [2, 2, 1]


def test_null_times_are_malformed_rows_and_take_no_part() -> None:
    table = pa.table({"ts": pa.array([0, None, 1], pa.timestamp("s")), "v": [1, 2, 4]})
    result = pk.from_arrow(table, time="ts").window("10s").agg(s=pk.sum("v"), n=pk.count())
    assert triples(result.collect(), "s", "n") == [(0, 10, 5, 2)]


def test_no_rows_give_no_windows_but_the_schema() -> None:
    table = events([], v=[]).cast(pa.schema([("ts", pa.timestamp("s")), ("v", pa.int64())]))
    result = pk.from_arrow(table, time="ts").window("10s").agg(s=pk.sum("v"), m=pk.mean("v")).collect()
    assert result.num_rows == 0
    assert result.schema.names == ["window_start", "window_end", "s", "m"]
    assert result.schema.field("m").type == pa.float64()


def test_one_row() -> None:
    table = events([5], v=[7], k=["a"])
    result = (
        pk.from_arrow(table, time="ts")
        .window("10s", by="k")
        .agg(s=pk.sum("v"), m=pk.mean("v"), a=pk.min("v"), b=pk.max("v"), n=pk.count("v"))
    )
    assert result.collect().drop_columns(["window_start", "window_end"]).to_pylist() == [
        {"k": "a", "s": 7, "m": 7.0, "a": 7, "b": 7, "n": 1}
    ]


def test_times_near_the_ends_of_the_range_do_not_wrap() -> None:
    top, bottom = 2**63 - 25, -(2**63) + 25
    table = events([top, bottom], pa.timestamp("ns"), v=[1, 2])
    result = pk.from_arrow(table, time="ts").window(pk.tumbling("10ns")).agg(s=pk.sum("v")).collect()
    assert triples(result, "s") == [
        (bottom // 10 * 10, bottom // 10 * 10 + 10, 2),
        (top // 10 * 10, top // 10 * 10 + 10, 1),
    ]


@pytest.mark.parametrize("moment", [2**63 - 3, -(2**63)])
def test_a_window_whose_bounds_do_not_fit_the_time_type_is_a_typed_error(moment: int) -> None:
    table = events([moment], pa.timestamp("ns"), v=[1])
    with pytest.raises(pk.PenstockError):
        pk.from_arrow(table, time="ts").window(pk.tumbling("10ns")).agg(s=pk.sum("v")).collect()


@pytest.mark.parametrize("moment", [2**31 - 3, -(2**31)])
def test_bounds_that_do_not_fit_a_narrow_time_are_a_typed_error(moment: int) -> None:
    table = events([moment], pa.int32(), v=[1])
    with pytest.raises(pk.PenstockError):
        pk.from_arrow(table, time="ts").window(pk.tumbling(10)).agg(s=pk.sum("v")).collect()


def test_microseconds_of_microseconds() -> None:
    table = events([0, 1, 2, 3], pa.timestamp("us"), v=[1, 2, 4, 8])
    result = pk.from_arrow(table, time="ts").window(pk.sliding("2us", "1us")).agg(s=pk.sum("v")).collect()
    assert triples(result, "s") == [(-1, 1, 1), (0, 2, 3), (1, 3, 6), (2, 4, 12), (3, 5, 8)]


def test_a_long_window_with_a_short_slide_is_right_in_every_position() -> None:
    times = list(range(0, 7_200, 7))
    table = events(times, v=times)
    result = pk.from_arrow(table, time="ts").window(pk.sliding("1h", "1s")).agg(s=pk.sum("v"), n=pk.count())
    rows = triples(result.collect(), "s", "n")
    assert len(rows) == 3_600 + times[-1]
    for start, end, total, count in rows[::97]:
        held = [t for t in times if start <= t < end]
        assert (total, count) == (sum(held), len(held))
