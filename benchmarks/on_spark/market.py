"""Joins over time on Spark: trades and quotes of symbols, ten quotes for each trade, written as two lakes in order of time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as pk
from benchmarks.measure import Contender
from benchmarks.on_spark.lake import FILE_ROWS, GROUP_ROWS
from benchmarks.on_spark.questions import POLARS, Question, both, computed, of_frame, plain
from benchmarks.peers import PEER_GROUP
from benchmarks.workloads import START_US
from penstock.spark.baseline import as_of_by_union, within_interval

SYMBOLS = 1_000
QUOTES = 10  # for each trade
STEP_US = 3  # between two quotes; no two rows have one time, so that every engine means the same row
REACH_US = 3_000  # about one quote of a symbol
UNION, OWN_JOIN = "Spark, union and window", "Spark SQL"
TRADES_READ, QUOTES_READ = ("ts", "symbol", "price"), ("ts", "symbol", "bid")
AS_OF = (*TRADES_READ, "bid")


def market_questions() -> list[Question]:
    """The joins, with the target that there is."""
    return [
        Question("as-of join", SYMBOLS, 20.0, as_of, spark_as_of, 48_000_000, through=False, lake=write_market, rival=UNION),
        Question("interval join", SYMBOLS, None, interval, spark_interval, 550_000, 2, through=False, lake=write_market),
    ]  # fmt: skip


def write_market(folder: Path, rows: int, keys: int) -> None:
    """Write so many rows in all."""
    trades = max(rows // (QUOTES + 1), 1)
    _write(folder / "trades", trades, keys, "price", QUOTES * STEP_US, 1)
    _write(folder / "quotes", trades * QUOTES, keys, "bid", STEP_US, 0)


def _write(folder: Path, rows: int, keys: int, value: str, step: int, shift: int) -> None:
    folder.mkdir(parents=True)
    for number, begin in enumerate(range(0, rows, FILE_ROWS)):
        table = _table(np.arange(begin, min(begin + FILE_ROWS, rows)), keys, value, step, shift)
        pq.write_table(table, folder / f"{number:04}.parquet", row_group_size=GROUP_ROWS)


def _table(numbers: np.ndarray, keys: int, value: str, step: int, shift: int) -> pa.Table:
    random = np.random.default_rng([int(numbers[0]), shift])
    times = pa.array(START_US + shift + step * numbers).cast(pa.timestamp("us"))
    names = ("symbol", value, "venue", "flags")
    most = (keys, 1_000_000, 20, 1 << 40)
    columns = {name: random.integers(0, high, len(numbers)) for name, high in zip(names, most, strict=True)}
    return pa.table({"ts": times, **columns})


def sides(path: str) -> tuple[Any, Any]:
    """Both streams, cut down to what is asked for."""
    trades = pk.scan(f"{path}/trades", time="ts", name="trades").select(*TRADES_READ[1:])
    quotes = pk.scan(f"{path}/quotes", time="ts", name="quotes").select(*QUOTES_READ[1:])
    return trades, quotes


def frames(spark: Any, path: str) -> tuple[Any, Any]:
    """The same as DataFrames."""
    trades = spark.read.parquet(f"{path}/trades").select(*TRADES_READ)
    return trades, spark.read.parquet(f"{path}/quotes").select(*QUOTES_READ)


# --- the nearest quote before each trade --------------------------------------------------------------------


def as_of(spark: Any, path: str) -> list[Contender]:
    """Ask Penstock, and Polars."""
    trades, quotes = sides(path)
    query = trades.join_asof(quotes, by="symbol").select("symbol", "price", "bid")
    polars = Contender(POLARS, partial(polars_as_of, path), plain(AS_OF), 2, PEER_GROUP)
    return [*both(query, spark, AS_OF), polars]


def spark_as_of(spark: Any, path: str) -> list[Contender]:
    """Ask Spark in the way of tempo; its own as-of join is quadratic, and cannot take part."""

    def run() -> Any:
        return computed(as_of_by_union(*frames(spark, path), "ts", "symbol", "price", "bid"))

    return [Contender(UNION, run, of_frame(AS_OF), 2, PEER_GROUP)]


def polars_as_of(path: str) -> pa.Table:
    """Ask Polars, which reads the files itself."""
    import polars as pl  # noqa: PLC0415 - a peer may be absent

    trades, quotes = (
        pl.scan_parquet(f"{path}/{side}/*.parquet").select(columns).set_sorted("ts")
        for side, columns in (("trades", TRADES_READ), ("quotes", QUOTES_READ))
    )
    joined = trades.join_asof(quotes, on="ts", by="symbol", check_sortedness=False)
    return joined.select(AS_OF).collect().to_arrow()


# --- quotes shortly before each trade -----------------------------------------------------------------------

PAIRS = ("ts", "symbol", "price", "ts_right", "bid")


def interval(spark: Any, path: str) -> list[Contender]:
    """Ask Penstock."""
    trades, quotes = sides(path)
    query = trades.join(quotes, on="symbol", within=(f"-{REACH_US}us", "0us")).select(*PAIRS, "join_time")
    return both(query, spark, PAIRS)


def spark_interval(spark: Any, path: str) -> list[Contender]:
    """Ask Spark for a join by key with a condition on times."""

    def run() -> Any:
        return computed(within_interval(*frames(spark, path), "ts", "symbol", REACH_US))

    return [Contender(OWN_JOIN, run, of_frame(PAIRS), 2, PEER_GROUP)]
