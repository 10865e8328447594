"""What users of data frames write without looking it up."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock as pk

EVENTS = pk.from_arrow(
    pa.table({"ts": pa.array([0, 3600, 7200], pa.timestamp("s")), "k": ["a", "b", "a"], "v": [1, 2, 3]}),
    time="ts",
)
BY_KEY = EVENTS.window("1d", by="k").agg(total=pk.sum("v"))


def test_a_list_of_one_look_back_names_its_columns_like_a_list_of_many() -> None:
    assert EVENTS.rolling(["1h"]).agg(m=pk.sum("v")).schema.names == ["ts", "m_1h"]
    assert EVENTS.rolling("1h").agg(m=pk.sum("v")).schema.names == ["ts", "m"]


def test_look_backs_given_as_timedeltas_are_named_as_they_would_be_written() -> None:
    sizes = [timedelta(hours=1), timedelta(days=1, minutes=30)]
    result = EVENTS.rolling(sizes).agg(m=pk.sum("v")).collect()
    assert result.column_names == ["ts", "m_1h", "m_1d30m"]
    assert result["m_1d30m"].to_pylist() == [1, 3, 6]


def test_a_filter_takes_lists_and_values_of_columns() -> None:
    assert EVENTS.filter([pk.col("v") > 1, pk.col("k") == "a"]).collect()["v"].to_pylist() == [3]
    assert EVENTS.filter(k="a").collect()["v"].to_pylist() == [1, 3]


def test_a_string_names_a_column_wherever_columns_are_made() -> None:
    assert EVENTS.select(w="v").collect()["w"].to_pylist() == [1, 2, 3]
    with pytest.raises(pk.UnknownColumnError, match=r"a constant is written pk\.lit\('web'\)"):
        EVENTS.with_columns(source="web")


def test_an_expression_without_a_name_is_called_as_its_first_column() -> None:
    assert EVENTS.with_columns(pk.col("v") + 1).collect()["v"].to_pylist() == [2, 3, 4]
    assert EVENTS.window("1d").agg(pk.sum("v")).schema.names == ["window_start", "window_end", "v"]
    chosen = pk.when(pk.col("v") > 1).then(pk.col("k")).otherwise("none")
    assert EVENTS.select(chosen).collect()["k"].to_pylist() == ["none", "b", "a"]


def test_columns_are_dropped_by_name_or_expression() -> None:
    assert EVENTS.drop(pk.col("k")).schema.names == EVENTS.drop(["k"]).schema.names == ["ts", "v"]


def test_top_k_orders_by_an_expression_that_leaves_no_column_behind() -> None:
    least = BY_KEY.top_k(1, by=-pk.col("total")).collect()
    assert least.drop(["window_start", "window_end"]).to_pydict() == {"k": ["b"], "total": [2]}


def test_numbers_are_clipped_and_null_stays_null() -> None:
    table = pa.table({"t": [0, 1, 2, 3], "v": [-5, None, 5, 50]})
    clipped = (
        pk.from_arrow(table, time="t").select(pk.col("v").clip(0, 9), low=pk.col("v").clip(upper=0)).collect()
    )
    assert clipped["v"].to_pylist() == [0, None, 5, 9]
    assert clipped["low"].to_pylist() == [-5, None, 0, 0]


def test_a_signal_shows_itself_in_a_notebook() -> None:
    assert "value" in EVENTS.signal("v")._repr_html_()


def test_replacing_nothing_ends() -> None:
    assert EVENTS.select(z=pk.col("k").str.replace_all("", "-")).collect()["z"].to_pylist() == [
        "-a-",
        "-b-",
        "-a-",
    ]


def test_tables_alone_are_not_run() -> None:
    table = pk.table(pa.table({"k": ["a"]}))
    for run in (table.collect, table.run, table.open):
        with pytest.raises(pk.UnsupportedError, match="reads tables alone"):
            run()
    with pytest.raises(pk.BindingError, match="no stream"):
        _ = table.name


PASSING = {"list": [[1]], "struct": [{"a": 1}], "bytes": [b"x"]}


@pytest.mark.parametrize("name", PASSING)
def test_values_that_only_pass_are_not_computed_with(name: str) -> None:
    events = pk.from_arrow(pa.table({"t": [0], **PASSING}), time="t")
    value = pk.col(name)
    for use in (
        lambda: events.distinct(name),
        events.distinct,
        lambda: events.select(z=pk.when(pk.col("t") > 0).then(value)),
        lambda: events.select(z=value.fill_null(value)),
        lambda: events.signal(name).or_else(events.signal(name)),
    ):
        with pytest.raises(pk.ExpressionTypeError):
            use()


def test_distinct_needs_a_time_to_tell_the_first_by() -> None:
    with pytest.raises(pk.WindowError, match="no time any more"):
        EVENTS.drop("ts").distinct("k")


def test_a_key_of_a_signal_is_not_called_as_a_bound() -> None:
    with pytest.raises(pk.SchemaMismatchError, match="'start'"):
        EVENTS.rename({"k": "start"}).signal("v", by="start")


def test_a_join_says_that_kernels_come_with_rows() -> None:
    joined = EVENTS.join(EVENTS, on="k", window="1d")
    assert "joins make kernels for the algorithm" in joined.explain("loop")


def test_times_of_pandas_count_in_nanoseconds() -> None:
    ticks = pk.from_arrow(pa.table({"ts": pa.array([0, 5], pa.timestamp("ns"))}), time="ts")
    assert ticks.filter(pk.col("ts") >= pd.Timestamp(5)).collect().num_rows == 1
    assert ticks.filter(pk.col("ts") - pd.Timestamp(0) > pd.Timedelta(4, "ns")).collect().num_rows == 1
    assert ticks.window(pd.Timedelta(5, "ns")).agg(n=pk.count()).collect()["n"].to_pylist() == [1, 1]
    with pytest.raises(pk.ExpressionTypeError, match="NaT"):
        _ = pk.col("ts") > pd.NaT


def test_what_is_no_regular_expression_is_refused_where_it_is_written() -> None:
    with pytest.raises(pk.ExpressionTypeError, match="literal=True"):
        pk.col("k").str.contains("(")


def test_whole_numbers_may_be_those_of_numpy() -> None:
    two = np.int64(2)
    assert EVENTS.window(pk.rows(two)).agg(total=pk.sum("v")).collect()["total"].to_pylist() == [3]
    assert EVENTS.rolling(pk.rows(two)).agg(total=pk.sum("v")).collect()["total"].to_pylist() == [1, 3, 5]
    assert BY_KEY.top_k(np.uint8(1), by="total").collect()["k"].to_pylist() == ["a"]
    assert EVENTS.head(two).num_rows == 2
    assert EVENTS.select(k=pk.col("k").str.pad_end(two, "-")).collect()["k"].to_pylist() == ["a-", "b-", "a-"]
