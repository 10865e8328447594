"""Questions over the lake, as Penstock asks them on Spark and in this process, and as Spark, Polars and DuckDB do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import penstock as pk
from penstock.bench.contenders import PENSTOCK_GROUP
from penstock.bench.measure import Contender
from penstock.bench.peers import PEER_GROUP
from penstock.bench.workloads import VIEW
from penstock.spark.own_way import rolling_mean, windowed

SECOND = 1_000_000
ON_SPARK, HERE, SPARK, POLARS, DUCKDB = "Penstock on Spark", "Penstock here", "Spark SQL", "Polars", "DuckDB"

Asked = Callable[[Any, str], list[Contender]]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a lake of `keys` keys, of a part of its rows where Spark is slow."""

    name: str
    keys: int
    contenders: Asked
    part: int = 1


def questions(keys: int) -> list[Question]:
    """List everything that has a target."""
    return [
        Question("tumbling 1 s", keys, partial(tumbling, SECOND, SECOND)),
        Question("sliding 1 s, 10 at a time", keys, partial(tumbling, SECOND, SECOND // 10), part=2),
        Question("sliding 1 s, 100 at a time", 100, partial(tumbling, SECOND, SECOND // 100), part=10),
        Question("rolling mean of 1 s by key", keys, rolling, part=10),
    ]


# --- windows ------------------------------------------------------------------------------------------------


def tumbling(size: int, every: int, spark: Any, path: str) -> list[Contender]:
    """Sum views by campaign in windows; libraries without sliding windows answer tumbling ones only."""
    query = window_query(size, every, path)
    mine = [
        Contender(ON_SPARK, lambda: query.to_spark(spark).toArrow(), window_answer, 2, PENSTOCK_GROUP),
        Contender(HERE, query.collect, window_answer, 2, PENSTOCK_GROUP),
        Contender(SPARK, partial(spark_windows, spark, path, size, every), window_answer, 2, PEER_GROUP),
    ]
    peers = [
        Contender(POLARS, partial(polars_windows, path, size), window_answer, 2, PEER_GROUP),
        Contender(DUCKDB, partial(duckdb_windows, path, size), window_answer, 2, PEER_GROUP),
    ]
    return mine + (peers if size == every else [])


def window_query(size: int, every: int, path: str) -> Any:
    """Write the question for Penstock."""
    events = pk.scan(path, time="ts", name="events")
    windows = events.filter(pk.col("event_type") == VIEW).window(
        f"{size}us", every=f"{every}us", by="campaign_id"
    )
    return windows.agg(total=pk.sum("value"))


def spark_windows(spark: Any, path: str, size: int, every: int) -> pa.Table:
    """Ask Spark in its own words."""
    frame = spark.read.parquet(path).filter(f"event_type = {VIEW}")
    sums = {"total": "sum(value)"}
    made = windowed(frame, "ts", f"{size} microseconds", f"{every} microseconds", "campaign_id", sums)
    return made.toArrow()


def polars_windows(path: str, size: int) -> pa.Table:
    """Ask Polars' streaming engine, which reads the files itself."""
    import polars as pl  # noqa: PLC0415 - a peer may be absent

    window = (pl.col("ts").to_physical() // size).alias("w")
    lazy = pl.scan_parquet(f"{path}/*.parquet").filter(pl.col("event_type") == VIEW)
    summed = lazy.group_by(window, "campaign_id").agg(pl.col("value").sum().alias("total"))
    return numbered(summed.collect(engine="streaming").to_arrow(), size)


def duckdb_windows(path: str, size: int) -> pa.Table:
    """Ask DuckDB, which reads the files itself."""
    import duckdb  # noqa: PLC0415 - a peer may be absent

    with duckdb.connect() as connection:
        connection.execute("set threads to 2")
        found = connection.sql(
            "select epoch_us(ts) // $size as w, campaign_id, sum(value)::bigint as total "
            "from read_parquet($path) where event_type = $view group by all",
            params={"size": size, "path": f"{path}/*.parquet", "view": VIEW},
        )
        return numbered(found.to_arrow_table(), size)


def numbered(table: pa.Table, size: int) -> pa.Table:
    """Turn numbers of windows into their starts."""
    start = pc.multiply(table["w"].cast(pa.int64()), size)
    return pa.table({"window_start": start, "campaign_id": table["campaign_id"], "total": table["total"]})


def window_answer(table: pa.Table) -> pa.Table:
    """Keep what all answer, in plain integers."""
    names = ("window_start", "campaign_id", "total")
    return pa.table({name: integers(table[name]) for name in names})


def integers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """View times as microseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    return column.cast(pa.int64())


# --- look-backs ---------------------------------------------------------------------------------------------


def rolling(spark: Any, path: str) -> list[Contender]:
    """Average the last second of each row's key."""
    query = pk.scan(path, time="ts", name="events").rolling("1s", by="campaign_id").agg(m=pk.mean("value"))

    def ours() -> pa.Table:
        return query.to_spark(spark).toArrow()

    def theirs() -> pa.Table:
        return rolling_mean(spark.read.parquet(path), "ts", SECOND, "campaign_id", "value", "m").toArrow()

    return [
        Contender(ON_SPARK, ours, rolling_answer, 2, PENSTOCK_GROUP),
        Contender(HERE, query.collect, rolling_answer, 2, PENSTOCK_GROUP),
        Contender(SPARK, theirs, rolling_answer, 2, PEER_GROUP),
    ]


def rolling_answer(table: pa.Table) -> pa.Table:
    """Keep the averages by time and key."""
    return pa.table({"ts": integers(table["ts"]), "campaign_id": table["campaign_id"], "m": table["m"]})
