"""What can be done with results: HAVING, windows over windows, top k, union, distinct, aggregates beside rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as pk

TABLE = pa.table(
    {
        "ts": pa.array([0, 1, 2, 10, 11, 12, 25], pa.timestamp("s")),
        "k": ["a", "b", "a", "a", "b", "c", "b"],
        "v": [1, 2, 4, 8, 16, 32, 64],
    }
)


def stream() -> Any:
    return pk.from_arrow(TABLE, time="ts", name="events")


def ticks(table: pa.Table) -> list[dict[str, Any]]:
    """List rows with window bounds as seconds."""
    for name in ("window_start", "window_end", "ts"):
        if name in table.column_names:
            index = table.column_names.index(name)
            table = table.set_column(index, name, table[name].cast(pa.int64()))
    return table.to_pylist()


def by_key(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(ticks(table), key=lambda row: (row["window_end"], row["window_start"], row["k"]))


def test_results_have_bounds_then_keys_then_aggregates_ordered_by_window() -> None:
    result = stream().window("10s", by="k").agg(s=pk.sum("v"), n=pk.count()).collect()
    assert result.column_names == ["window_start", "window_end", "k", "s", "n"]
    ends = result["window_end"].cast(pa.int64()).to_pylist()
    assert ends == sorted(ends)
    assert by_key(result) == [
        {"window_start": 0, "window_end": 10, "k": "a", "s": 5, "n": 2},
        {"window_start": 0, "window_end": 10, "k": "b", "s": 2, "n": 1},
        {"window_start": 10, "window_end": 20, "k": "a", "s": 8, "n": 1},
        {"window_start": 10, "window_end": 20, "k": "b", "s": 16, "n": 1},
        {"window_start": 10, "window_end": 20, "k": "c", "s": 32, "n": 1},
        {"window_start": 20, "window_end": 30, "k": "b", "s": 64, "n": 1},
    ]


def test_a_filter_after_aggregation_is_having() -> None:
    result = stream().window("10s", by="k").agg(s=pk.sum("v")).filter(pk.col("s") > 10)
    assert [row["s"] for row in by_key(result.collect())] == [16, 32, 64]


def test_a_filter_on_a_key_and_on_window_bounds() -> None:
    import datetime as dt

    base = stream().window("10s", by="k").agg(s=pk.sum("v"))
    assert [row["s"] for row in by_key(base.filter(pk.col("k") == "a").collect())] == [5, 8]
    late = base.filter(pk.col("window_start") >= dt.datetime(1970, 1, 1, 0, 0, 10))
    assert [row["s"] for row in by_key(late.collect())] == [8, 16, 32, 64]


def test_with_columns_and_select_after_aggregation() -> None:
    base = stream().window("10s", by="k").agg(s=pk.sum("v"), n=pk.count())
    assert [row["x"] for row in by_key(base.with_columns(x=pk.col("s") / pk.col("n")).collect())] == [
        2.5, 2.0, 8.0, 16.0, 32.0, 64.0,
    ]  # fmt: skip


def test_windows_over_windows_take_the_last_tick_as_the_time_of_a_result() -> None:
    first = stream().window("10s", by="k").agg(s=pk.sum("v"))
    second = first.window("20s").agg(t=pk.sum("s"), n=pk.count())
    assert ticks(second.collect()) == [
        {"window_start": 0, "window_end": 20, "t": 63, "n": 5},
        {"window_start": 20, "window_end": 40, "t": 64, "n": 1},
    ]


def test_a_second_window_that_slides_over_the_first() -> None:
    first = stream().window("10s").agg(s=pk.sum("v"))  # times 9, 19, 29
    second = first.window("20s", every="10s").agg(t=pk.sum("s"))
    assert [(row["window_start"], row["t"]) for row in ticks(second.collect())] == [
        (-10, 7), (0, 63), (10, 120), (20, 64),
    ]  # fmt: skip


def test_window_without_arguments_regroups_by_the_window_carried() -> None:
    first = stream().window("10s", by="k").agg(s=pk.sum("v"))
    again = first.window().agg(best=pk.max("s"), keys=pk.count())
    assert ticks(again.collect()) == [
        {"window_start": 0, "window_end": 10, "best": 5, "keys": 2},
        {"window_start": 10, "window_end": 20, "best": 32, "keys": 3},
        {"window_start": 20, "window_end": 30, "best": 64, "keys": 1},
    ]


def test_a_share_of_the_window_by_regrouping_beside_the_rows() -> None:
    first = stream().window("10s", by="k").agg(s=pk.sum("v"))
    shares = first.window().with_columns(total=pk.sum("s"))
    assert [(row["k"], row["s"], row["total"]) for row in by_key(shares.collect())] == [
        ("a", 5, 7), ("b", 2, 7), ("a", 8, 56), ("b", 16, 56), ("c", 32, 56), ("b", 64, 64),
    ]  # fmt: skip


def test_top_k_keeps_the_largest_rows_of_each_window() -> None:
    top = stream().window("10s", by="k").agg(s=pk.sum("v")).top_k(2, by="s")
    assert [(row["window_start"], row["k"]) for row in by_key(top.collect())] == [
        (0, "a"), (0, "b"), (10, "b"), (10, "c"), (20, "b"),
    ]  # fmt: skip


def test_top_k_with_ties() -> None:
    table = pa.table({"ts": pa.array([0] * 4, pa.timestamp("s")), "k": list("abcd"), "v": [5, 5, 5, 1]})
    base = pk.from_arrow(table, time="ts").window("10s", by="k").agg(s=pk.sum("v"))
    assert base.top_k(2, by="s").collect().num_rows == 2
    assert base.top_k(2, by="s").collect()["s"].to_pylist() == [5, 5]
    assert sorted(base.top_k(2, by="s", ties="all").collect()["k"].to_pylist()) == ["a", "b", "c"]


def test_with_columns_in_place_of_agg_keeps_every_row_and_column() -> None:
    result = stream().window("10s", by="k").with_columns(s=pk.sum("v"), n=pk.count()).collect()
    rows = sorted(ticks(result), key=lambda row: row["ts"])
    assert set(result.column_names) == {"ts", "k", "v", "window_start", "window_end", "s", "n"}
    assert [(row["ts"], row["v"], row["window_start"], row["s"], row["n"]) for row in rows] == [
        (0, 1, 0, 5, 2), (1, 2, 0, 2, 1), (2, 4, 0, 5, 2), (10, 8, 10, 8, 1), (11, 16, 10, 16, 1), (12, 32, 10, 32, 1),
        (25, 64, 20, 64, 1),
    ]  # fmt: skip


def test_with_columns_over_sliding_windows_gives_each_row_once_per_window() -> None:
    result = stream().window("10s", every="5s").with_columns(n=pk.count()).collect()
    assert result.num_rows == 2 * TABLE.num_rows


def test_a_row_can_be_compared_with_its_window() -> None:
    result = stream().window("10s").with_columns(m=pk.mean("v")).filter(pk.col("v") > pk.col("m")).collect()
    assert sorted(result["v"].to_pylist()) == [4, 32]


def test_union_takes_all_rows_of_both() -> None:
    other = pk.from_arrow(TABLE.slice(0, 2), time="ts", name="others")
    result = stream().union(other).window("10s", by="k").agg(s=pk.sum("v"))
    assert [row["s"] for row in by_key(result.collect())] == [6, 4, 8, 16, 32, 64]


def test_a_stream_may_be_united_with_itself() -> None:
    events = stream()
    result = events.filter(pk.col("k") == "a").union(events.filter(pk.col("k") != "a"))
    assert sorted(result.collect()["v"].to_pylist()) == [1, 2, 4, 8, 16, 32, 64]


def test_distinct_keeps_the_first_row_in_time_order() -> None:
    shuffled = TABLE.take([6, 3, 0, 5, 2, 4, 1])
    result = pk.from_arrow(shuffled, time="ts").distinct("k").collect()
    assert sorted(result["v"].to_pylist()) == [1, 2, 32]


def test_distinct_keeps_the_last_row_if_asked() -> None:
    assert sorted(stream().distinct(["k"], keep="last").collect()["v"].to_pylist()) == [8, 32, 64]


def test_distinct_of_whole_rows() -> None:
    twice = pa.concat_tables([TABLE, TABLE])
    assert pk.from_arrow(twice, time="ts").distinct().collect().num_rows == TABLE.num_rows


def test_distinct_takes_nan_zero_and_null_as_windows_do() -> None:
    nan = float("nan")
    values = pa.array([nan, nan, 0.0, -0.0, None, None])
    table = pa.table({"ts": pa.array(range(6), pa.timestamp("s")), "x": values})
    assert pk.from_arrow(table, time="ts").distinct("x").collect()["ts"].cast(pa.int64()).to_pylist() == [
        0,
        2,
        4,
    ]


def test_windows_over_distinct_rows() -> None:
    result = stream().distinct("k").window("10s").agg(n=pk.count()).collect()
    assert [row["n"] for row in ticks(result)] == [2, 1]


def test_the_same_query_object_may_be_used_twice() -> None:
    query = stream().window("10s", by="k").agg(s=pk.sum("v"))
    assert by_key(query.collect()) == by_key(query.collect())


def test_queries_are_immutable_and_branch() -> None:
    base = stream()
    views = base.filter(pk.col("k") == "a")
    assert base.collect().num_rows == 7
    assert views.collect().num_rows == 3


def test_results_convert_to_polars_and_pandas() -> None:
    query = stream().window("10s").agg(s=pk.sum("v"))
    assert query.to_polars()["s"].to_list() == [7, 56, 64]
    assert query.to_pandas()["s"].tolist() == [7, 56, 64]
    assert pa.table(query)["s"].to_pylist() == [7, 56, 64]


def test_head_and_schema() -> None:
    query = stream().window("10s", by="k").agg(s=pk.sum("v"))
    assert query.head(2).num_rows == 2
    assert query.schema.names == ["window_start", "window_end", "k", "s"]


@pytest.mark.parametrize("stage", ["plan", "ir", "passes", "loop", "llvm", "asm", "spark"])
def test_explain_shows_every_stage(stage: str) -> None:
    query = stream().filter(pk.col("k") == "a").window("10s", by="k").agg(s=pk.sum("v"))
    assert str(query.explain(stage=stage)).strip()


def test_how_a_query_runs_on_spark_can_be_asked_before_it_has_data() -> None:
    query = pk.stream("events", {"t": "int64", "v": "int64"}, time="t").window(10).agg(s=pk.sum("v"))
    assert "strategy: fragments" in str(query.explain("spark"))


def test_explain_says_the_plan_in_words() -> None:
    text = str(stream().window("10s", by="k").agg(s=pk.sum("v")).explain())
    assert "sum" in text and "events" in text
