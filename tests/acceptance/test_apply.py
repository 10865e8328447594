"""A Python function over each window's rows."""

from __future__ import annotations

from traceback import format_exception
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk

EVENTS = pa.table({"t": [12, 1, 2, 2], "k": ["a", "b", "a", "a"], "v": [4, 3, 5, 1]})


def kept(rows: pa.Table) -> dict[str, Any]:
    """Tell what the function was given."""
    return {"vs": [rows["v"].to_pylist()]}


def listed(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_the_function_gets_the_rows_of_a_window_in_order_of_time() -> None:
    result = pk.from_arrow(EVENTS, time="t").window(10).apply(kept, {"vs": pa.list_(pa.int64())})
    assert listed(result.collect()) == [(0, 10, [3, 5, 1]), (10, 20, [4])]


def test_the_function_is_called_once_for_each_window_and_key() -> None:
    result = pk.from_arrow(EVENTS, time="t").window(10, by="k").apply(kept, {"vs": pa.list_(pa.int64())})
    assert sorted(listed(result.collect())) == [
        (0, 10, "a", [5, 1]), (0, 10, "b", [3]), (10, 20, "a", [4]),
    ]  # fmt: skip


def test_the_sequence_orders_the_rows_it_gets() -> None:
    events = pk.from_arrow(EVENTS, time="t", sequence="v")
    result = events.window(pk.session(1), by="k").apply(kept, {"vs": pa.list_(pa.int64())})
    assert sorted(listed(result.collect())) == [
        (1, 2, "b", [3]), (2, 3, "a", [1, 5]), (12, 13, "a", [4]),
    ]  # fmt: skip


def test_the_function_may_give_no_row_or_several() -> None:
    result = (
        pk.from_arrow(EVENTS, time="t")
        .window(10)
        .apply(lambda rows: {"v": [v for v in rows["v"].to_pylist() if v != 4]}, {"v": "int64"})
    )
    assert listed(result.collect()) == [(0, 10, 3), (0, 10, 5), (0, 10, 1)]


def test_the_function_sees_all_columns_of_the_rows_a_filter_lets_through() -> None:
    result = (
        pk.from_arrow(EVENTS, time="t")
        .filter(pk.col("v") > 1)
        .window(pk.rows(2))
        .apply(
            lambda rows: {"seen": [",".join(rows.column_names)], "n": [rows.num_rows]},
            {"seen": "string", "n": "int64"},
        )
    )
    assert listed(result.collect()) == [(1, 3, "t,k,v", 2)]


def test_results_of_the_function_can_be_windowed_again() -> None:
    made = (
        pk.from_arrow(EVENTS, time="t").window(10).apply(lambda rows: {"n": [rows.num_rows]}, {"n": "int64"})
    )
    assert listed(made.window(pk.unbounded()).agg(total=pk.sum("n")).collect()) == [(9, 20, 4)]


def test_a_window_is_handed_over_once_when_it_is_complete() -> None:
    seen: list[int] = []

    def watched(rows: pa.Table) -> dict[str, Any]:
        seen.append(rows.num_rows)
        return {"n": [rows.num_rows]}

    stream = pk.stream("events", EVENTS.schema, time="t", lateness=20)
    list(stream.window(10).apply(watched, {"n": "int64"}).run(iter(EVENTS.to_batches(1))))
    assert seen == [3, 1]


def test_a_function_that_gives_other_columns_is_told_so() -> None:
    query = pk.from_arrow(EVENTS, time="t").window(10).apply(lambda rows: {"x": [1]}, {"n": "int64"})
    with pytest.raises(pk.PenstockError, match="columns"):
        query.collect()


def test_what_a_function_gave_is_not_quoted() -> None:
    secret = pa.table({"n": ["hunter2"]})
    query = pk.from_arrow(EVENTS, time="t").window(10).apply(lambda rows: secret, {"n": "int64"})
    with pytest.raises(pk.SchemaMismatchError, match=r"'n' \(string\)") as caught:
        query.collect()
    assert "hunter2" not in "".join(format_exception(caught.value))
