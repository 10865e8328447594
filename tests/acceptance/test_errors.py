"""Mistakes get a typed error that says what is wrong, before any row is processed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk

SCHEMA = {"ts": "timestamp[us]", "n": "int64", "s": "string", "f": "float64", "b": "bool"}


def declared() -> Any:
    return pk.stream("events", SCHEMA, time="ts")


def windows() -> Any:
    return declared().window(pk.tumbling("10s"))


PLAN_TIME: list[tuple[str, type[Exception], Callable[[], Any]]] = [
    ("unknown column in filter", pk.UnknownColumnError, lambda: declared().filter(pk.col("nope") > 1)),
    ("unknown column in select", pk.UnknownColumnError, lambda: declared().select("nope")),
    ("unknown column in an aggregate", pk.UnknownColumnError, lambda: windows().agg(x=pk.sum("nope"))),
    (
        "unknown column in where",
        pk.UnknownColumnError,
        lambda: windows().agg(x=pk.count(where=pk.col("z") > 1)),
    ),
    ("unknown key", pk.UnknownColumnError, lambda: declared().window("10s", by="nope").agg(n=pk.count())),
    ("unknown time column", pk.UnknownColumnError, lambda: pk.stream("e", SCHEMA, time="nope")),
    ("unknown subset", pk.UnknownColumnError, lambda: declared().distinct("nope")),
    (
        "unknown column after agg",
        pk.UnknownColumnError,
        lambda: windows().agg(n=pk.count()).filter(pk.col("s") == ""),
    ),
    ("string + int", pk.ExpressionTypeError, lambda: declared().select(x=pk.col("s") + 1)),
    ("string compared with int", pk.ExpressionTypeError, lambda: declared().filter(pk.col("s") > 1)),
    ("filter by a number", pk.ExpressionTypeError, lambda: declared().filter(pk.col("n"))),
    ("sum of strings", pk.ExpressionTypeError, lambda: windows().agg(x=pk.sum("s"))),
    ("mean of strings", pk.ExpressionTypeError, lambda: windows().agg(x=pk.mean("s"))),
    ("not of a number", pk.ExpressionTypeError, lambda: declared().filter(~pk.col("n"))),
    ("sqrt of a string", pk.ExpressionTypeError, lambda: declared().select(x=pk.col("s").sqrt())),
    ("part of a number", pk.ExpressionTypeError, lambda: declared().select(x=pk.col("n").dt.year())),
    ("is_in of another type", pk.ExpressionTypeError, lambda: declared().filter(pk.col("n").is_in(["a"]))),
    (
        "when without a boolean",
        pk.ExpressionTypeError,
        lambda: declared().select(x=pk.when(pk.col("n")).then(1).otherwise(2)),
    ),
    (
        "branches of two types",
        pk.ExpressionTypeError,
        lambda: declared().select(x=pk.when(pk.col("b")).then(1).otherwise("a")),
    ),
    (
        "truth of an expression",
        pk.ExpressionTypeError,
        lambda: declared().filter((pk.col("n") > 1) and pk.col("b")),
    ),
    ("an aggregate outside a window", pk.PenstockError, lambda: declared().filter(pk.sum("n") > 1)),
    ("a bare column in agg", pk.PenstockError, lambda: windows().agg(x=pk.col("n"))),
    ("an aggregate in an aggregate", pk.PenstockError, lambda: windows().agg(x=pk.sum(pk.max("n")))),
    (
        "bad duration",
        pk.DurationError,
        lambda: declared().window(pk.tumbling("ten seconds")).agg(n=pk.count()),
    ),
    ("empty duration", pk.DurationError, lambda: declared().window(pk.tumbling("")).agg(n=pk.count())),
    ("bad unit", pk.DurationError, lambda: declared().window(pk.tumbling("10x")).agg(n=pk.count())),
    (
        "bare integer on a timestamp",
        pk.DurationError,
        lambda: declared().window(pk.tumbling(10)).agg(n=pk.count()),
    ),
    (
        "string on integer time without unit",
        pk.DurationError,
        lambda: pk.stream("e", {"t": "int64"}, time="t").window(pk.tumbling("10s")).agg(n=pk.count()),
    ),
    ("finer than a tick", pk.DurationError, lambda: declared().window(pk.tumbling("10ns")).agg(n=pk.count())),
    ("zero size", pk.WindowError, lambda: declared().window(pk.tumbling("0s")).agg(n=pk.count())),
    ("negative size", pk.WindowError, lambda: declared().window(pk.tumbling("-5s")).agg(n=pk.count())),
    ("zero slide", pk.WindowError, lambda: declared().window(pk.sliding("5s", "0s")).agg(n=pk.count())),
    (
        "window explosion",
        pk.WindowError,
        lambda: declared().window(pk.sliding("30d", "1us")).agg(n=pk.count()),
    ),
    ("a window of nothing to regroup", pk.PenstockError, lambda: declared().window().agg(n=pk.count())),
    ("no aggregates", pk.PenstockError, lambda: windows().agg()),
    (
        "an output named like a key",
        pk.PenstockError,
        lambda: declared().window("1s", by="s").agg(s=pk.count()),
    ),
    ("an output named window_start", pk.PenstockError, lambda: windows().agg(window_start=pk.count())),
    ("time that is no time", pk.PenstockError, lambda: pk.stream("e", SCHEMA, time="s")),
    ("a type that does not exist", pk.PenstockError, lambda: pk.stream("e", {"t": "int65"}, time="t")),
    (
        "cast to a type that does not exist",
        pk.PenstockError,
        lambda: declared().select(x=pk.col("n").cast("int65")),
    ),
    ("top of no rows", pk.PenstockError, lambda: windows().agg(n=pk.count()).top_k(0, by="n")),
    ("top outside windows", pk.PenstockError, lambda: declared().top_k(3, by="n").collect(pa.table({}))),
    ("top by an unknown column", pk.UnknownColumnError, lambda: windows().agg(n=pk.count()).top_k(2, by="x")),
    (
        "union of different columns",
        pk.PenstockError,
        lambda: declared().union(pk.stream("other", {"ts": "timestamp[us]"}, time="ts")),
    ),
    ("months", pk.UnsupportedError, lambda: declared().window(pk.tumbling("1mo")).agg(n=pk.count())),
    ("a window without aggregates", pk.UnfinishedError, lambda: windows().collect()),
    ("a look-back without aggregates", pk.UnfinishedError, lambda: declared().rolling("1s").filter(True)),
    (
        "a join around rows without aggregates",
        pk.UnfinishedError,
        lambda: declared().join_rolling(declared(), by="n", within=("-1s", "0s")).to_polars(),
    ),
    (
        "a span of a signal without aggregates",
        pk.UnfinishedError,
        lambda: declared().signal("n").rolling("1s").collect(),
    ),
    ("integral of strings", pk.ExpressionTypeError, lambda: declared().signal("s").integral()),
    ("time_mean of strings", pk.ExpressionTypeError, lambda: declared().signal("s").per("1s").time_mean()),
    ("between strings", pk.ExpressionTypeError, lambda: declared().signal("s").resample(every="1s")),
    ("partial that is no truth", pk.WindowError, lambda: pk.rows(3, partial="no")),  # type: ignore[arg-type]
    (
        "a suffix with half a character",
        pk.ExpressionTypeError,
        lambda: declared().join_asof(declared(), suffix="\ud800"),
    ),
    (
        "exact matches that are no truth",
        pk.ExpressionTypeError,
        lambda: declared().join_asof(declared(), allow_exact_matches="no"),  # type: ignore[arg-type]
    ),
    ("negative lateness", pk.PenstockError, lambda: pk.stream("e", SCHEMA, time="ts", lateness="-1s")),
    (
        "a sequence without order",
        pk.SchemaMismatchError,
        lambda: pk.stream("e", {"t": "int64", "x": pa.list_(pa.int64())}, time="t", sequence="x"),
    ),
    ("an engine of no threads", pk.PenstockError, lambda: pk.Engine(threads=0)),
    ("an engine that may be adaptive", pk.EngineError, lambda: pk.Engine(adaptive="yes")),  # type: ignore[arg-type]  # wrong on purpose
]


@pytest.mark.parametrize(
    ("error", "mistake"), [case[1:] for case in PLAN_TIME], ids=[c[0] for c in PLAN_TIME]
)
def test_the_mistake_is_found_while_the_query_is_written(
    error: type[Exception], mistake: Callable[[], Any]
) -> None:
    with pytest.raises(error) as caught:
        mistake()
    assert isinstance(caught.value, pk.PenstockError)
    assert len(str(caught.value)) > 20, "an error says what is wrong"


def test_an_unknown_column_is_named_together_with_those_there_are() -> None:
    with pytest.raises(pk.UnknownColumnError, match="vlaue") as caught:
        pk.stream("e", {"ts": "timestamp[s]", "value": "int64"}, time="ts").filter(pk.col("vlaue") > 1)
    assert "value" in str(caught.value).replace("vlaue", "")


def test_collect_without_data_says_which_stream_is_missing() -> None:
    with pytest.raises(pk.BindingError, match="events"):
        windows().agg(n=pk.count()).collect()


def test_data_for_no_stream_is_an_error() -> None:
    table = pa.table({"ts": pa.array([0], pa.timestamp("us"))})
    with pytest.raises(pk.BindingError, match="evnets"):
        pk.stream("events", table.schema, time="ts").window("1s").agg(n=pk.count()).collect(evnets=table)


def test_bound_data_without_a_declared_column_is_a_schema_mismatch() -> None:
    table = pa.table({"ts": pa.array([0], pa.timestamp("us")), "n": [1]})
    with pytest.raises(pk.SchemaMismatchError, match="s"):
        windows().agg(n=pk.count("s")).collect(table)


def test_bound_data_of_another_type_is_a_schema_mismatch() -> None:
    table = pa.table({"ts": pa.array([0], pa.timestamp("us")), "n": ["one"]})
    query = pk.stream("e", {"ts": "timestamp[us]", "n": "int64"}, time="ts").window("1s").agg(n=pk.sum("n"))
    with pytest.raises(pk.SchemaMismatchError, match="n"):
        query.collect(table)


def test_a_file_that_does_not_exist_is_a_source_error(tmp_path: Path) -> None:
    with pytest.raises(pk.SourceError):
        pk.scan(str(tmp_path / "nothing.parquet"), time="ts").collect()


def test_a_glob_that_matches_nothing_is_a_source_error(tmp_path: Path) -> None:
    with pytest.raises(pk.SourceError):
        pk.scan(str(tmp_path / "*.parquet"), time="ts").collect()


def test_a_damaged_file_is_a_source_error(tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    path.write_bytes(b"PAR1 this is no parquet file PAR1")
    with pytest.raises(pk.SourceError, match="damaged"):
        pk.scan(str(path), time="ts").collect()


def test_every_error_is_also_the_builtin_a_python_user_expects() -> None:
    with pytest.raises(KeyError):
        declared().select("nope")
    with pytest.raises(TypeError):
        declared().select(x=pk.col("s") + 1)
    with pytest.raises(ValueError, match="0s"):
        pk.tumbling("0s")


def test_errors_do_not_show_the_values_of_rows() -> None:
    table = pa.table({"ts": pa.array([0], pa.timestamp("s")), "secret": [2**63 - 1]})
    with pytest.raises(pk.OverflowError) as caught:
        pk.from_arrow(table, time="ts").select(x=pk.col("secret") + 1).collect()
    assert str(2**63 - 1) not in str(caught.value)


def test_a_union_of_two_units_of_time_says_where_to_cast() -> None:
    other = pk.stream("other", {**SCHEMA, "ts": "timestamp[ms]"}, time="ts")
    with pytest.raises(
        pk.SchemaMismatchError, match="cast one in its table, or where its stream is declared"
    ):
        declared().union(other)
