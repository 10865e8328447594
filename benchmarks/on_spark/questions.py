"""Questions over the lake, as Penstock asks them on Spark and in this process, and as Spark, Polars and DuckDB do.

Windows are those of ysb-keyed, ten seconds long. On Spark every row of a result is computed and none is kept (`noop`, as
Spark's own benchmarks do), by Penstock and by Spark alike; everybody else gives a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import penstock as pk
from benchmarks.contenders import PENSTOCK_GROUP
from benchmarks.measure import Contender
from benchmarks.on_spark.lake import write_lake
from benchmarks.peers import PEER_GROUP
from benchmarks.workloads import VIEW, YsbKeyed
from penstock.spark.baseline import consume, rising, rolling_mean, sessions, windowed

SECOND = 1_000_000
SIZE = 10 * SECOND
ON_SPARK, HERE, SPARK, POLARS, DUCKDB = "Penstock on Spark", "Penstock here", "Spark SQL", "Polars", "DuckDB"
FEWER = "fewer rows"

Asked = Callable[[Any, str], list[Contender]]
Write = Callable[[Path, int, int], None]
"""Write a lake of so many rows and keys."""


def write_ysb(folder: Path, rows: int, keys: int) -> None:
    """Write ysb-keyed."""
    write_lake(folder, YsbKeyed(rows, keys))


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a lake of `keys` keys, and how many times as fast as Spark we must be.

    `part` of the lake's rows is asked of everybody, and no more than `spark_rows` of Spark, which is slow: its speed in
    rows a second is compared. `ours` asks Penstock and libraries, `theirs` Spark, under the name of `rival`; `lake` writes
    what is asked about. `through` says whether the way through Spark and Polars have a target.
    """

    name: str
    keys: int
    target: float | None
    ours: Asked
    theirs: Asked
    spark_rows: int
    part: int = 1
    through: bool = True
    lake: Write = write_ysb
    rival: str = SPARK


def questions(keys: int) -> list[Question]:
    """List everything that has a target."""
    return [
        windows("tumbling 10 s", keys, SIZE, 6.0, 100_000_000),
        windows("sliding 10 s, 10 at a time", keys, SIZE // 10, 40.0, 2_000_000),
        windows("sliding 10 s, 100 at a time", 100, SIZE // 100, 200.0, 500_000),
        # Every row has a result, and results enter the JVM at a few million a second: no target for the way through Spark.
        Question("rolling mean of 1 s by key", keys, 5.0, rolling, spark_rolling, 2_000_000, 10, False),
        Question("trend by key", keys, None, trend, spark_trend, 2_000_000, 10, False),
        Question("sessions of 100 ms by key", keys, None, session, spark_session, 4_000_000, 4, False),
    ]


def windows(name: str, keys: int, every: int, target: float, spark_rows: int) -> Question:
    """Ask for sums of views by campaign in windows."""
    return Question(name, keys, target, partial(summed, every), partial(spark_summed, every), spark_rows)


def of_fewer_rows(contenders: list[Contender], rows: int) -> list[Contender]:
    """Mark contenders as asked about fewer rows than others: their answers are compared with each other."""
    return [replace(contender, rows=rows, question=FEWER) for contender in contenders]


def computed(frame: Any) -> Any:
    """Compute every row of a DataFrame, and give it back for its answer to be looked at."""
    consume(frame)
    return frame


# --- windows ------------------------------------------------------------------------------------------------


def summed(every: int, spark: Any, path: str) -> list[Contender]:
    """Ask Penstock; libraries without sliding windows answer tumbling ones only."""
    query = window_query(SIZE, every, path)
    mine = [
        Contender(ON_SPARK, lambda: computed(query.to_spark(spark)), frame_answer, 2, PENSTOCK_GROUP),
        Contender(HERE, query.collect, window_answer, 2, PENSTOCK_GROUP),
    ]
    peers = [
        Contender(POLARS, partial(polars_windows, path, SIZE), window_answer, 2, PEER_GROUP),
        Contender(DUCKDB, partial(duckdb_windows, path, SIZE), window_answer, 2, PEER_GROUP),
    ]
    return mine + (peers if every == SIZE else [])


def spark_summed(every: int, spark: Any, path: str) -> list[Contender]:
    """Ask Spark in its own words."""

    def run() -> Any:
        frame = spark.read.parquet(path).filter(f"event_type = {VIEW}")
        sums = {"total": "sum(value)"}
        bounds = f"{SIZE} microseconds", f"{every} microseconds"
        return computed(windowed(frame, "ts", *bounds, "campaign_id", sums))

    return [Contender(SPARK, run, frame_answer, 2, PEER_GROUP)]


def window_query(size: int, every: int, path: str) -> Any:
    """Write the question for Penstock."""
    events = pk.scan(path, time="ts", name="events")
    chosen = events.filter(pk.col("event_type") == VIEW)
    return chosen.window(f"{size}us", every=f"{every}us", by="campaign_id").agg(total=pk.sum("value"))


def polars_windows(path: str, size: int) -> pa.Table:
    """Ask Polars' streaming engine, which reads the files itself."""
    import polars as pl  # noqa: PLC0415 - a peer may be absent

    window = (pl.col("ts").to_physical() // size).alias("w")
    lazy = pl.scan_parquet(f"{path}/*.parquet").filter(pl.col("event_type") == VIEW)
    found = lazy.group_by(window, "campaign_id").agg(pl.col("value").sum().alias("total"))
    return numbered(found.collect(engine="streaming").to_arrow(), size)


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


def frame_answer(frame: Any) -> pa.Table:
    """Look at the answer in a DataFrame."""
    return window_answer(frame.toArrow())


def integers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """View times as microseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    return column.cast(pa.int64())


# --- look-backs ---------------------------------------------------------------------------------------------


def rolling(spark: Any, path: str) -> list[Contender]:
    """Average the last second of each row's key."""
    query = pk.scan(path, time="ts", name="events").rolling("1s", by="campaign_id").agg(m=pk.mean("value"))
    return [
        Contender(ON_SPARK, lambda: computed(query.to_spark(spark)), rolling_frame_answer, 2, PENSTOCK_GROUP),
        Contender(HERE, query.collect, rolling_answer, 2, PENSTOCK_GROUP),
    ]


def spark_rolling(spark: Any, path: str) -> list[Contender]:
    """Ask Spark for a range frame."""

    def run() -> Any:
        return computed(rolling_mean(spark.read.parquet(path), "ts", SECOND, "campaign_id", "value", "m"))

    return [Contender(SPARK, run, rolling_frame_answer, 2, PEER_GROUP)]


def rolling_answer(table: pa.Table) -> pa.Table:
    """Keep the averages by time and key."""
    return pa.table({"ts": integers(table["ts"]), "campaign_id": table["campaign_id"], "m": table["m"]})


def rolling_frame_answer(frame: Any) -> pa.Table:
    """Look at the averages in a DataFrame."""
    return rolling_answer(frame.toArrow())


# --- the last rows of a key, and sessions -------------------------------------------------------------------

SHORT, LONG = 20, 50
GAP_US = 100_000


def trend(spark: Any, path: str) -> list[Contender]:
    """Tell at each row whether its key's last rows rise."""
    events = pk.scan(path, time="ts", name="events").select("campaign_id", "value")
    means = events.rolling([pk.rows(SHORT), pk.rows(LONG)], by="campaign_id").agg(m=pk.mean("value"))
    query = means.select("campaign_id", up=pk.col(f"m_{SHORT}rows") > pk.col(f"m_{LONG}rows"))
    return both(query, spark, ("ts", "campaign_id", "up"))


def spark_trend(spark: Any, path: str) -> list[Contender]:
    """Ask Spark for two frames of rows."""

    def run() -> Any:
        return computed(rising(spark.read.parquet(path), "ts", "campaign_id", "value", SHORT, LONG))

    return [Contender(SPARK, run, of_frame(("ts", "campaign_id", "up")), 2, PEER_GROUP)]


def session(spark: Any, path: str) -> list[Contender]:
    """Sum up sessions."""
    events = pk.scan(path, time="ts", name="events")
    query = events.window(pk.session(f"{GAP_US}us"), by="campaign_id").agg(total=pk.sum("value"))
    return both(query, spark, ("window_start", "campaign_id", "total"))


def spark_session(spark: Any, path: str) -> list[Contender]:
    """Ask Spark for its session windows."""

    def run() -> Any:
        sums = {"total": "sum(value)"}
        return computed(
            sessions(spark.read.parquet(path), "ts", f"{GAP_US} microseconds", "campaign_id", sums)
        )

    return [
        Contender(SPARK, run, of_frame(("window_start", "campaign_id", "total")), 2, PEER_GROUP),
    ]


def both(query: Any, spark: Any, columns: tuple[str, ...]) -> list[Contender]:
    """Penstock on Spark and here."""
    there = Contender(ON_SPARK, lambda: computed(query.to_spark(spark)), of_frame(columns), 2, PENSTOCK_GROUP)
    return [there, Contender(HERE, query.collect, plain(columns), 2, PENSTOCK_GROUP)]


def plain(columns: tuple[str, ...]) -> Callable[[pa.Table], pa.Table]:
    """Keep what all answer, in plain integers."""
    return lambda table: pa.table({name: integers(table[name]) for name in columns})


def of_frame(columns: tuple[str, ...]) -> Callable[[Any], pa.Table]:
    """The same of a DataFrame."""
    keep = plain(columns)
    return lambda frame: keep(frame.toArrow())
