"""Aggregates at the edges of numbers: exact integers, honest floats, nulls, NaN and infinities."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk

TOP, BOTTOM = 2**63 - 1, -(2**63)


def one_window(values: list[Any], dtype: pa.DataType | None = None, **aggregates: Any) -> dict[str, Any]:
    table = pa.table({"ts": pa.array([0] * len(values), pa.timestamp("s")), "v": pa.array(values, dtype)})
    query = pk.from_arrow(table, time="ts").window("10s").agg(**aggregates)
    (row,) = query.collect().drop_columns(["window_start", "window_end"]).to_pylist()
    return row


def test_a_sum_may_leave_64_bits_and_come_back() -> None:
    assert one_window([TOP, 1, -1], s=pk.sum("v")) == {"s": TOP}
    assert one_window([BOTTOM, -1, 1], s=pk.sum("v")) == {"s": BOTTOM}
    assert one_window([TOP] * 9 + [-TOP] * 9 + [5], s=pk.sum("v")) == {"s": 5}


@pytest.mark.parametrize("values", [[TOP, 1], [BOTTOM, -1], [TOP] * 5, [BOTTOM, BOTTOM, TOP]])
def test_a_final_sum_that_does_not_fit_is_an_error(values: list[int]) -> None:
    with pytest.raises(pk.OverflowError):
        one_window(values, s=pk.sum("v"))


def test_an_overflowing_sum_is_no_error_for_the_other_aggregates() -> None:
    row = one_window([TOP, TOP], n=pk.count(), a=pk.min("v"), b=pk.max("v"), m=pk.mean("v"))
    assert row == {"n": 2, "a": TOP, "b": TOP, "m": float(TOP)}


def test_unsigned_sums_use_all_64_bits() -> None:
    assert one_window([2**63, 2**63 - 1], pa.uint64(), s=pk.sum("v")) == {"s": 2**64 - 1}
    with pytest.raises(pk.OverflowError):
        one_window([2**63, 2**63], pa.uint64(), s=pk.sum("v"))


@pytest.mark.parametrize("dtype", [pa.int8(), pa.int16(), pa.int32()], ids=str)
def test_narrow_sums_widen(dtype: pa.DataType) -> None:
    top = 2 ** (dtype.bit_width - 1) - 1
    assert one_window([top] * 100, dtype, s=pk.sum("v"), m=pk.mean("v")) == {"s": 100 * top, "m": float(top)}
    assert one_window([-top - 1] * 100, dtype, s=pk.sum("v"))["s"] == 100 * (-top - 1)


def test_a_sliding_sum_is_exact_in_every_window() -> None:
    values = [TOP, 1, -TOP, TOP, -1, -5]
    table = pa.table({"ts": pa.array(range(6), pa.timestamp("s")), "v": values})
    query = pk.from_arrow(table, time="ts").window("3s", every="1s").agg(s=pk.sum("v"))
    with pytest.raises(pk.OverflowError):  # [TOP, 1] is a window of its own
        query.collect()
    values[1] = -1
    table = pa.table({"ts": pa.array(range(6), pa.timestamp("s")), "v": values})
    query = pk.from_arrow(table, time="ts").window("3s", every="1s").agg(s=pk.sum("v"))
    expected = [sum(values[max(0, i - 2) : i + 1]) for i in range(8)]
    assert query.collect()["s"].to_pylist() == expected


def test_the_mean_of_integers_near_the_limit_does_not_overflow() -> None:
    assert one_window([TOP, TOP, TOP], m=pk.mean("v"))["m"] == float(TOP)
    assert one_window([TOP, BOTTOM], m=pk.mean("v"))["m"] == -0.5


def test_nulls_are_skipped_and_nothing_gives_null() -> None:
    aggregates = {
        "s": pk.sum("v"), "m": pk.mean("v"), "a": pk.min("v"), "b": pk.max("v"), "n": pk.count("v"), "r": pk.count(),
    }  # fmt: skip
    assert one_window([None, 3, None], pa.int32(), **aggregates) == {
        "s": 3,
        "m": 3.0,
        "a": 3,
        "b": 3,
        "n": 1,
        "r": 3,
    }
    assert one_window([None, None], pa.int32(), **aggregates) == {
        "s": None, "m": None, "a": None, "b": None, "n": 0, "r": 2,
    }  # fmt: skip


def test_where_skips_rows_for_one_aggregate_only() -> None:
    row = one_window(
        [1, 2, 3, None],
        s=pk.sum("v", where=pk.col("v") > 1),
        n=pk.count(where=pk.col("v") > 1),
        t=pk.sum("v"),
        x=pk.max("v", where=pk.col("v") > 99),
    )
    assert row == {"s": 5, "n": 2, "t": 6, "x": None}


def test_nan_is_the_largest_number() -> None:
    row = one_window([1.0, math.nan, -2.0], a=pk.min("v"), b=pk.max("v"), s=pk.sum("v"), m=pk.mean("v"))
    assert row["a"] == -2.0
    assert all(math.isnan(row[name]) for name in "bsm")
    assert math.isnan(one_window([math.nan, None], a=pk.min("v"))["a"])


def test_infinities() -> None:
    assert one_window([math.inf, 1.0], s=pk.sum("v"), a=pk.min("v"), b=pk.max("v")) == {
        "s": math.inf, "a": 1.0, "b": math.inf,
    }  # fmt: skip
    assert math.isnan(one_window([math.inf, -math.inf], s=pk.sum("v"))["s"])


def test_nan_and_infinity_leave_a_sliding_window_with_their_row() -> None:
    table = pa.table({"ts": pa.array(range(5), pa.timestamp("s")), "v": [1.0, math.nan, 2.0, math.inf, 3.0]})
    query = pk.from_arrow(table, time="ts").window("2s", every="1s")
    result = query.agg(s=pk.sum("v"), m=pk.mean("v"), b=pk.max("v")).collect()
    shown = ["nan" if math.isnan(x) else x for x in result["s"].to_pylist()]
    assert shown == [1.0, "nan", "nan", math.inf, math.inf, 3.0]
    assert result["b"].to_pylist()[-1] == 3.0


def test_the_error_of_a_long_float_sum_is_within_the_promise() -> None:
    rng = random.Random(7)
    values = [rng.choice([1e16, 1.0, -1e16, 1e-8, 3.3]) * rng.random() for _ in range(20_000)]
    got = one_window(values, s=pk.sum("v"), m=pk.mean("v"))
    exact, magnitude = sum(map(Fraction, values)), math.fsum(map(abs, values))
    assert abs(Fraction(got["s"]) - exact) <= Fraction(1e-12) * Fraction(magnitude)
    assert abs(Fraction(got["m"]) * len(values) - exact) <= Fraction(2e-12) * Fraction(magnitude)


def test_a_sliding_float_sum_does_not_drift() -> None:
    rng = random.Random(11)
    values = [1e15 if i == 100 else rng.random() for i in range(5_000)]
    table = pa.table({"ts": pa.array(range(5_000), pa.timestamp("s")), "v": values})
    result = pk.from_arrow(table, time="ts").window("50s", every="1s").agg(s=pk.sum("v")).collect()
    sums = result["s"].to_pylist()
    for i in range(0, len(sums), 37):
        held = values[max(0, i - 49) : i + 1]
        assert abs(sums[i] - math.fsum(held)) <= 1e-12 * math.fsum(map(abs, held))


def test_min_and_max_keep_the_type_of_every_ordered_type() -> None:
    day, hour = dt.date(2024, 2, 29), dt.timedelta(hours=1)
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert one_window([day, None, dt.date(1969, 1, 1)], a=pk.min("v"), b=pk.max("v")) == {
        "a": dt.date(1969, 1, 1), "b": day,
    }  # fmt: skip
    assert one_window([hour, -hour], s=pk.sum("v"), a=pk.min("v")) == {"s": dt.timedelta(0), "a": -hour}
    assert one_window([moment, None], b=pk.max("v")) == {"b": moment}
    assert one_window([True, False], s=pk.sum("v"), a=pk.min("v"), b=pk.max("v")) == {
        "s": 1,
        "a": False,
        "b": True,
    }
    assert one_window(["b", "", "é", None], a=pk.min("v"), b=pk.max("v")) == {"a": "", "b": "é"}


def test_strings_order_by_their_bytes_not_by_length_or_language() -> None:
    row = one_window(["Z", "a", "é", "aa", "zz", "🎈"], a=pk.min("v"), b=pk.max("v"))
    assert row == {"a": "Z", "b": "🎈"}


def test_expressions_of_aggregates() -> None:
    table = pa.table(
        {
            "ts": pa.array([0, 1, 2], pa.timestamp("s")),
            "p": [10.0, 20.0, 30.0],
            "q": pa.array([1, 2, 1], pa.int32()),
        }
    )
    p, q = pk.col("p"), pk.col("q")
    result = (
        pk.from_arrow(table, time="ts")
        .window("1m")
        .agg(
            vwap=pk.sum(p * q) / pk.sum(q),
            span=pk.max("p") - pk.min("p"),
            share=pk.count(where=q == 1) / pk.count(),
            label=pk.when(pk.count() > 2).then("busy").otherwise("calm"),
            method=p.sum() + 1,
        )
    )
    (row,) = result.collect().drop_columns(["window_start", "window_end"]).to_pylist()
    assert row == {"vwap": 20.0, "span": 20.0, "share": 2 / 3, "label": "busy", "method": 61.0}


def test_many_aggregates_over_many_columns_in_one_pass() -> None:
    n = 100
    columns = {f"c{i}": pa.array([i * j for j in range(n)]) for i in range(12)}
    table = pa.table({"ts": pa.array(range(n), pa.timestamp("s")), **columns})
    made = {
        f"{f}{i}": getattr(pk, f)(f"c{i}") for i in range(12) for f in ("sum", "min", "max", "mean", "count")
    }
    result = pk.from_arrow(table, time="ts").window("50s").agg(**made).collect()
    assert result.num_rows == 2
    for i in range(12):
        assert result[f"sum{i}"].to_pylist() == [i * sum(range(50)), i * sum(range(50, 100))]
        assert result[f"max{i}"].to_pylist() == [i * 49, i * 99]
        assert result[f"mean{i}"].to_pylist() == [i * 24.5, i * 74.5]


AT_THE_END = {
    "a session": (lambda s: s.window(pk.session(10)).agg(n=pk.count()), (1, 9)),
    "a session's rows": (lambda s: s.window(pk.session(10)).with_columns(n=pk.count()), (1, 9)),
    "a join": (lambda s: s.join(s, on="v", window=10), (1, 7)),
    "all rows": (lambda s: s.window(pk.unbounded()).agg(n=pk.count()), (0, 0)),
}


@pytest.mark.parametrize(("verb", "before"), AT_THE_END.values(), ids=AT_THE_END)
def test_windows_that_reach_beyond_the_last_time_are_an_error_in_batches_too(
    verb: Callable[[Any], Any], before: tuple[int, int]
) -> None:
    for ticks in before:
        table = pa.table({"t": [TOP - ticks], "v": [1]})
        query = verb(pk.stream("events", table.schema, time="t"))
        with pytest.raises(pk.OverflowError):
            query.collect(table)
        with pytest.raises(pk.OverflowError):
            list(query.run(iter(table.to_batches())))


def test_a_session_that_ends_with_time_itself_is_given_in_batches_too() -> None:
    table = pa.table({"t": [TOP - 10]})
    query = pk.stream("events", table.schema, time="t").window(pk.session(10)).agg(n=pk.count())
    assert pa.Table.from_batches(query.run(iter(table.to_batches()))) == query.collect(table)
