"""Look-backs, as-of joins, sessions and window joins over keys 1 to 1 M, sides 1 : 1 to 1 : 1,000 and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as pk
from benchmarks.workloads import START_US, STEP_US

GAP_ROWS = 20
"""A session ends after so many steps without a row of its key, times the keys."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One question over tables by name: ours, DuckDB's, and Polars' if it has the operation."""

    name: str
    tables: Mapping[str, pa.Table]
    query: Callable[..., Any]
    columns: tuple[str, ...]
    sql: str
    polars: Callable[..., Any] | None = None
    times: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def rows(self) -> int:
        return sum(table.num_rows for table in self.tables.values())


@dataclass(frozen=True, slots=True)
class Point:
    """Rows of the left side, of how many keys, and how many times fewer rows the right side has."""

    rows: int = 1_000_000
    keys: int = 1_000
    side: int = 1

    @property
    def title(self) -> str:
        return f"{self.rows:,} rows, {self.keys:,} keys, sides 1 : {self.side:,}"


def points(most: int) -> Iterator[Point]:
    """Yield the points of a sweep: keys, then sides, then rows."""
    middle = min(most, 1_000_000)
    yield from (Point(middle, keys) for keys in (1, 10, 1_000, 100_000, 1_000_000))
    yield from (Point(middle, side=side) for side in (10, 100, 1_000))
    yield from (Point(rows) for rows in (100_000, 10_000_000) if rows <= most)


def table_of(rows: int, keys: int, step: int, seed: int, value: str) -> pa.Table:
    """Build `ts, k` and one float, `step` microseconds apart."""
    random = np.random.default_rng(seed)
    times = START_US + step * np.arange(rows, dtype=np.int64)
    columns = {"ts": pa.array(times).cast(pa.timestamp("us"))}
    columns["k"] = pa.array(random.integers(0, keys, rows))
    return pa.table({**columns, value: pa.array(random.random(rows))})


def shapes_of(point: Point) -> Iterator[Shape]:
    """Yield the four questions at a point."""
    left = table_of(point.rows, point.keys, STEP_US, 1, "x")
    right = table_of(max(point.rows // point.side, 1), point.keys, STEP_US * point.side, 2, "y")
    yield look_back(left, point)
    yield nearest(left, right)
    yield sessions(left, point)
    yield window_join(left, right, point)


def look_back(left: pa.Table, point: Point) -> Shape:
    """Average the last hundred rows or so of each key, every column kept."""
    size = 100 * STEP_US * min(point.keys, point.rows // 100)

    def polars(a: Any) -> Any:
        import polars as pl  # noqa: PLC0415 - an optional peer

        mean = pl.col("x").rolling_mean_by("ts", window_size=f"{size}us")
        return a.with_columns(m=mean.over("k"))

    return Shape(
        "look-back",
        {"a": left},
        lambda a: a.rolling(f"{size}us", by="k").with_columns(m=pk.mean("x")),
        ("ts", "k", "m"),
        f"""select ts, k, avg(x) over (partition by k order by ts
        range between interval {size - 1} microseconds preceding and current row) as m from a""",  # noqa: S608
        polars,
    )


def nearest(left: pa.Table, right: pa.Table) -> Shape:
    """Give each row the last one of its key on the other side."""
    return Shape(
        "as-of",
        {"a": left, "b": right},
        lambda a, b: a.join_asof(b, by="k"),
        ("ts", "k", "x", "y"),
        "select a.ts, a.k, a.x, b.y from a asof left join b on a.k = b.k and a.ts >= b.ts",
        lambda a, b: a.join_asof(b, on="ts", by="k", check_sortedness=False),
    )


def sessions(left: pa.Table, point: Point) -> Shape:
    """Count the rows of each key between gaps."""
    gap = GAP_ROWS // 10 * STEP_US * point.keys

    def polars(a: Any) -> Any:
        import polars as pl  # noqa: PLC0415 - an optional peer

        begins = (pl.col("ts").diff() > pl.duration(microseconds=gap)).fill_null(True).cum_sum()
        numbered = a.with_columns(s=begins.over("k")).group_by("k", "s").agg(pl.col("ts").min(), n=pl.len())
        return numbered.select(window_start="ts", k="k", n=pl.col("n").cast(pl.Int64))

    return Shape(
        "sessions",
        {"a": left},
        lambda a: a.window(pk.session(f"{gap}us"), by="k").agg(n=pk.count()),
        ("window_start", "k", "n"),
        f"""select min(ts) as window_start, k, count(*) as n from (
          select ts, k, sum(begins) over (partition by k order by ts) as s from (
            select ts, k, coalesce(ts - lag(ts) over (partition by k order by ts) > interval {gap} microseconds,
              true)::int as begins from a)) group by k, s""",  # noqa: S608
        polars,
    )


def window_join(left: pa.Table, right: pa.Table, point: Point) -> Shape:
    """Pair rows of equal keys in windows in which each row meets about one other."""
    size = STEP_US * point.side * point.keys

    def polars(a: Any, b: Any) -> Any:
        import polars as pl  # noqa: PLC0415 - an optional peer

        w = (pl.col("ts").cast(pl.Int64) // size).alias("w")
        return a.with_columns(w).join(b.with_columns(w), on=["k", "w"])

    return Shape(
        "window join",
        {"a": left, "b": right},
        lambda a, b: a.join(b, on="k", window=pk.tumbling(f"{size}us")),
        ("ts", "y", "k", "x"),
        f"""select a.ts, b.y, a.k, a.x from a join b
        on a.k = b.k and epoch_us(a.ts) // {size} = epoch_us(b.ts) // {size}""",  # noqa: S608
        polars,
    )
