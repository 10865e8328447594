"""Custom aggregates, used like built-in ones: compiled, they give what their plain definition gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

import penstock as pk
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows
from penstock.translate import to_ir
from tests.custom_aggregates import IN_ORDER, MERGEABLE, RMS, SQUARES, tables
from tests.security.hostile import HOSTILE, MARK

TOP = 2**63 - 1
Row = dict[str, Any]


def interpreted(query: pk.Stream, table: pa.Table) -> list[Row]:
    return interpret(to_ir(query.plan), {query.name: to_rows(table)})


def assert_alike(rows: list[Row], expected: list[Row]) -> None:
    """Compare results whatever the order of keys inside a window."""

    def place(row: Row) -> str:
        return repr([row.get(name) for name in ("window_end", "window_start", "t", "k")])

    assert len(rows) == len(expected)
    for row, other in zip(sorted(rows, key=place), sorted(expected, key=place), strict=True):
        assert list(row) == list(other)
        assert [row[name] for name in row] == [
            pytest.approx(value, rel=1e-9, abs=1e-9, nan_ok=True) if isinstance(value, float) else value
            for value in other.values()
        ]


WINDOWS: dict[str, Callable[[pk.Stream], Any]] = {
    "tumbling": lambda s: s.window(10),
    "tumbling by key": lambda s: s.window(10, by="k"),
    "sliding": lambda s: s.window(9, every=3),
    "sliding by key, slide not dividing the size": lambda s: s.window(7, every=3, by="k"),
}


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@settings(max_examples=12)
@given(table=tables())
def test_windows_of_custom_aggregates_are_those_of_the_interpreter(
    window: Callable[[pk.Stream], Any], table: pa.Table
) -> None:
    query = window(pk.from_arrow(table, time="t")).agg(**MERGEABLE)
    assert_alike(to_rows(query.collect()), interpreted(query, table))


@pytest.mark.parametrize("name", MERGEABLE)
def test_each_custom_aggregate_alone_is_that_of_the_interpreter(name: str) -> None:
    """Alone, without the state of another beside it that could hide a wrong one."""
    rows = [
        {
            "t": i % 40,
            "k": None,
            "x": None if i % 7 == 0 else i / 4 - 9,
            "n": i % 11 - 3,
            "m": i % 4,
            "b": i % 3 == 0,
        }
        for i in range(200)
    ]
    table = pa.Table.from_pylist(rows)
    query = pk.from_arrow(table, time="t").window(20).agg(value=MERGEABLE[name])
    assert_alike(to_rows(query.collect()), interpreted(query, table))


@pytest.mark.slow
@settings(max_examples=8)
@given(table=tables())
def test_batches_and_threads_make_no_difference(table: pa.Table) -> None:
    stream = pk.from_arrow(table, time="t", lateness=100)
    query = stream.window(9, every=3, by="k").agg(**MERGEABLE)
    batches = list(query.run(table.to_batches(max_chunksize=3), engine=pk.Engine(threads=2, task_bytes=64)))
    got = pa.Table.from_batches(batches, query.schema)
    assert_alike(to_rows(got), interpreted(query, table))


def test_the_aggregate_stands_beside_every_row() -> None:
    table = pa.table({"t": [0, 1, 12], "v": [3.0, 4.0, 2.0]})
    query = pk.from_arrow(table, time="t").window(10).with_columns(share=pk.col("v") / RMS("v"))
    root = math.sqrt(12.5)
    assert query.collect()["share"].to_pylist() == pytest.approx([3 / root, 4 / root, 1.0])


def test_many_rows_reach_every_lane_of_a_vectorised_loop() -> None:
    values = [i * 0.25 for i in range(20_001)]
    table = pa.table({"t": [0] * len(values), "v": values})
    query = pk.from_arrow(table, time="t").window(10).agg(r=RMS("v"), s=SQUARES("t"))
    expected = math.sqrt(math.fsum(x * x for x in values) / len(values))
    assert query.collect()["r"].to_pylist() == pytest.approx([expected])


@pytest.mark.parametrize("by", [None, "k"])
def test_no_row_that_counts_gives_the_result_of_init(by: str | None) -> None:
    table = pa.table({"t": [0, 1], "k": ["a", "a"], "v": pa.array([None, None], pa.float64())})
    mean = pk.aggregate(init=(1.5, 3), add=lambda s, x: (s[0] + x, s[1]), result=lambda s: s[0] * s[1],
                        merge=lambda a, b: (a[0] + b[0] - 1.5, a[1]))  # fmt: skip
    query = pk.from_arrow(table, time="t").window(10, by=by)
    assert query.agg(m=mean("v")).collect()["m"].to_pylist() == [4.5]


@pytest.mark.parametrize("by", [None, "k"])
def test_an_integer_that_leaves_64_bits_is_an_error_only_if_its_row_counts(by: str | None) -> None:
    table = pa.table({"t": [0, 1, 2], "k": ["a", "b", "a"], "v": [TOP, 3, TOP]})
    window = pk.from_arrow(table, time="t").window(10, by=by)
    with pytest.raises(pk.OverflowError):
        window.agg(s=SQUARES("v")).collect()
    kept = window.agg(s=SQUARES("v", where=pk.col("v") < 9)).collect()
    assert sorted(kept["s"].to_pylist()) == ([9] if by is None else [0, 9])
    filtered = pk.from_arrow(table, time="t").filter(pk.col("v") < 9).window(10).agg(s=SQUARES("v"))
    assert filtered.collect()["s"].to_pylist() == [9]


def test_an_overflow_inside_merge_is_an_error() -> None:
    total = pk.aggregate(init=0, add=lambda s, x: s + x, result=lambda s: s, merge=lambda a, b: a + b)
    table = pa.table({"t": [0, 5], "v": [TOP, 1]})
    with pytest.raises(pk.OverflowError):
        pk.from_arrow(table, time="t").window(10, every=5).agg(s=total("v")).collect()
    apart = pk.from_arrow(table, time="t").window(5).agg(s=total("v"))
    assert apart.collect()["s"].to_pylist() == [TOP, 1]


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@settings(max_examples=12)
@given(table=tables())
def test_aggregates_that_see_the_order_of_rows_are_computed_in_it(
    window: Callable[[pk.Stream], Any], table: pa.Table
) -> None:
    query = window(pk.from_arrow(table, time="t")).agg(**IN_ORDER)
    assert_alike(to_rows(query.collect()), interpreted(query, table))


@settings(max_examples=12)
@given(table=tables())
def test_a_recurrence_is_what_a_loop_over_the_rows_in_order_gives(table: pa.Table) -> None:
    query = pk.from_arrow(table, time="t").window(10, by="k").agg(value=IN_ORDER["recurrence"])
    rows = sorted((row for row in to_rows(table) if row["x"] is not None), key=lambda row: row["t"])
    for window in interpreted(query, table):
        state = 0.0
        for row in rows:
            if row["k"] == window["k"] and window["window_start"] <= row["t"] < window["window_end"]:
                state = state * 0.5 + row["x"]
        assert window["value"] == pytest.approx(state, nan_ok=True)


OTHER_WINDOWS: dict[str, Callable[[pk.Stream], Any]] = {
    "session": lambda s: s.window(pk.session(2), by="k"),
    "count": lambda s: s.window(pk.rows(4, every=2, partial=True)),
    "count by key": lambda s: s.window(pk.rows(3), by="k"),
    "unbounded": lambda s: s.window(pk.unbounded(), by="k"),
    "look-back": lambda s: s.rolling(6, by="k"),
    "look-back of rows": lambda s: s.rolling(pk.rows(4)),
}


@pytest.mark.slow
@pytest.mark.parametrize("window", OTHER_WINDOWS.values(), ids=OTHER_WINDOWS)
@settings(max_examples=8)
@given(table=tables())
def test_every_window_type_takes_custom_aggregates(
    window: Callable[[pk.Stream], Any], table: pa.Table
) -> None:
    query = window(pk.from_arrow(table, time="t")).agg(**MERGEABLE, **IN_ORDER)
    assert_alike(to_rows(query.collect()), interpreted(query, table))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_nothing_of_a_hostile_function_reaches_generated_code(text: str) -> None:
    def add(s: Any, zqx7: Any) -> Any:
        return s + zqx7

    add.__code__ = add.__code__.replace(co_name=text, co_filename=text)
    add.__name__ = add.__qualname__ = add.__doc__ = text
    hostile = pk.aggregate(init=0, add=add, result=lambda s: s, merge=lambda a, b: a + b)
    query = pk.from_arrow(pa.table({"t": [0], text: [1]}), time="t").window(10).agg(**{text: hostile(text)})
    assert query.collect()[text].to_pylist() == [1]
    for stage in ("loop", "llvm"):
        shown = str(query.explain(stage=stage))
        assert shown.strip()
        assert MARK not in shown
