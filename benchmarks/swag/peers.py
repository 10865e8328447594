"""Answer the questions in Polars, DuckDB and pandas, each in the form found fastest for it.

Each maker takes the rows and a thread count, and gives what is timed and how its answer becomes a table.
Libraries are imported inside: a peer may be absent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from benchmarks.swag.questions import Maker

TIME = pa.timestamp("us")

Make = Callable[[Any], Any]

DUCKDB_RANGE = """
    select ts, avg(x) over (order by ts range between to_seconds($seconds) preceding and current row) as m
    from t
"""
DUCKDB_SESSIONS = """
    with marked as (
        select k, ts, v, coalesce(
            ts - lag(ts) over (partition by k order by ts) > to_milliseconds($gap), true
        )::int as fresh
        from t
    ), numbered as (
        select k, ts, v, sum(fresh) over (partition by k order by ts rows unbounded preceding) as session
        from marked
    )
    select min(ts) as window_start, k, sum(v) as m from numbered group by k, session
"""
DUCKDB_COUNTS = """
    with numbered as (
        select k, ts, v, (row_number() over (partition by k order by ts) - 1) // $size as number from t
    )
    select min(ts) as window_start, k, sum(v) as m from numbered group by k, number having count(*) = $size
"""


def polars(make: Make, to_table: Callable[[pa.Table], pa.Table], engine: str = "in-memory") -> Maker:
    """Run an expression of Polars: `make` is given a lazy frame."""

    def maker(table: pa.Table, threads: int) -> tuple[Callable[[], Any], Callable[[Any], pa.Table]]:
        import polars as pl  # noqa: PLC0415 - as above

        query = make(pl.DataFrame(table).lazy())
        return lambda: query.collect(engine=engine), lambda answer: to_table(answer.to_arrow())

    return maker


def duckdb(query: str, to_table: Callable[[pa.Table], pa.Table], **parameters: int) -> Maker:
    """Run SQL of DuckDB over its own table `t`."""

    def maker(table: pa.Table, threads: int) -> tuple[Callable[[], Any], Callable[[Any], pa.Table]]:
        import duckdb as library  # noqa: PLC0415 - as above

        connection = library.connect(config={"threads": threads})
        connection.execute("set enable_progress_bar = false")
        connection.register("arrow_t", table)
        connection.execute("create table t as from arrow_t")
        return lambda: connection.sql(query, params=parameters).to_arrow_table(), to_table

    return maker


def pandas(make: Make) -> Maker:
    """Run pandas over the column `x` indexed by time; the answer is the column `m`."""

    def maker(table: pa.Table, threads: int) -> tuple[Callable[[], Any], Callable[[Any], pa.Table]]:
        import pandas as pd  # noqa: PLC0415 - as above

        index = pd.DatetimeIndex(table.column("ts").to_numpy())
        series = pd.Series(table.column("x").to_numpy(), index=index)
        return lambda: make(series), lambda answer: pa.table({"m": pa.array(answer.to_numpy())})

    return maker


# -- look-backs ---------------------------------------------------------------------------------------------


def polars_rolling(method: str, *arguments: object, **options: object) -> Maker:
    """Apply one of the rolling methods of an expression to `x`."""

    def make(frame: Any) -> Any:
        import polars as pl  # noqa: PLC0415 - as above

        return frame.select(getattr(pl.col("x"), method)(*arguments, **options).alias("m"))

    return polars(make, lambda answer: answer)


def pandas_rolling(method: str, size: str) -> Maker:
    """Apply one of pandas' rolling methods."""
    return pandas(lambda series: getattr(series.rolling(size), method)())


def duckdb_range(seconds: int) -> Maker:
    """Average over a range frame; DuckDB promises no order, so rows are ordered by time afterwards."""
    return duckdb(DUCKDB_RANGE, lambda answer: answer.sort_by("ts").select(["m"]), seconds=seconds)


# -- keyed windows --------------------------------------------------------------------------------------------


def keyed_answer(answer: pa.Table) -> pa.Table:
    """Give `window_start, k, m` the types of Penstock's answer."""
    start = answer.column("window_start").cast(TIME)
    value = answer.column("m")
    exact = value.cast(pa.int64()) if not pa.types.is_floating(value.type) else value
    return pa.table({"window_start": start, "k": answer.column("k"), "m": exact})


def polars_dynamic(period: int, every: int) -> Maker:
    """Average each key over sliding windows of seconds; the offset makes Polars begin as early as a row does."""

    def make(frame: Any) -> Any:
        import polars as pl  # noqa: PLC0415 - as above

        sliding = {"every": f"{every}s", "period": f"{period}s", "offset": f"-{period - every}s"}
        grouped = frame.group_by_dynamic("ts", group_by="k", closed="left", **sliding)
        return grouped.agg(pl.col("x").mean().alias("m")).rename({"ts": "window_start"})

    return polars(make, keyed_answer)


def polars_sessions(gap_ms: int) -> Maker:
    """Sum each key's sessions; rows are in time order already."""

    def make(frame: Any) -> Any:
        import polars as pl  # noqa: PLC0415 - as above

        fresh = (pl.col("ts").diff() > pl.duration(milliseconds=gap_ms)).fill_null(value=True)
        numbered = frame.with_columns(fresh.cum_sum().over("k").alias("session"))
        total = pl.col("ts").min().alias("window_start"), pl.col("v").sum().alias("m")
        return numbered.group_by("k", "session").agg(*total)

    return polars(make, keyed_answer)


def duckdb_sessions(gap_ms: int) -> Maker:
    """Sum each key's sessions by the usual two window functions."""
    return duckdb(DUCKDB_SESSIONS, keyed_answer, gap=gap_ms)


def polars_counts(size: int) -> Maker:
    """Sum each key's full windows of `size` rows; rows are in time order already."""

    def make(frame: Any) -> Any:
        import polars as pl  # noqa: PLC0415 - as above

        number = (pl.int_range(pl.len()).over("k") // size).alias("number")
        total = pl.col("ts").min().alias("window_start"), pl.col("v").sum().alias("m"), pl.len().alias("n")
        return frame.group_by("k", number).agg(*total).filter(pl.col("n") == size)

    return polars(make, keyed_answer)


def duckdb_counts(size: int) -> Maker:
    """Sum each key's full windows of `size` rows."""
    return duckdb(DUCKDB_COUNTS, keyed_answer, size=size)
