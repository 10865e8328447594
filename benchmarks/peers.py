"""Answer ysb-keyed in Polars, DuckDB and pandas, each in the form found fastest for it.

Each maker takes the Arrow table, converts it to the library's own form outside the timing, and gives
a contender. Windows are computed by integer division of the time, which beat the libraries' own
truncation; turning the window number back into a time is not timed, to the peers' advantage.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.measure import Contender
from benchmarks.reference import WINDOW_US

Maker = Callable[[pa.Table, int, str | int], list[Contender]]

PEER_GROUP = "peer"


def limit_polars_threads(threads: int) -> None:
    """Set Polars' thread count; only has an effect before Polars is first imported."""
    os.environ.setdefault("POLARS_MAX_THREADS", str(threads))


def from_window_number(answer: pa.Table) -> pa.Table:
    """Turn `window, campaign_id, total` into the query's columns."""
    start = pc.multiply(answer.column("window").cast(pa.int64()), WINDOW_US)
    time = pa.timestamp("us")
    return pa.table(
        {
            "window_start": start.cast(time),
            "window_end": pc.add(start, WINDOW_US).cast(time),
            "campaign_id": answer.column("campaign_id").cast(pa.int64()),
            "total": answer.column("total").cast(pa.int64()),
        }
    )


def polars_contenders(table: pa.Table, threads: int, wanted: str | int) -> list[Contender]:
    """Polars' streaming engine and its in-memory engine, over its own DataFrame."""
    import polars as pl  # noqa: PLC0415 - a peer may be absent

    frame = pl.DataFrame(table)
    window = (pl.col("ts").to_physical() // WINDOW_US).alias("window")
    query = (
        frame.lazy()
        .filter(pl.col("event_type") == wanted)
        .group_by(window, "campaign_id")
        .agg(pl.col("value").sum().alias("total"))
    )

    def contender(name: str, engine: Any) -> Contender:
        return Contender(
            name, lambda: query.collect(engine=engine), polars_answer, pl.thread_pool_size(), PEER_GROUP
        )

    return [contender("Polars streaming", "streaming"), contender("Polars in-memory", "in-memory")]


def polars_answer(answer: Any) -> pa.Table:
    """Give a Polars answer as the query's table."""
    return from_window_number(answer.to_arrow())


DUCKDB_QUERY = """
    select epoch_us(ts) // $size as window, campaign_id, sum_no_overflow(value) as total
    from {source} where event_type = $wanted group by all
"""


def duckdb_contenders(table: pa.Table, threads: int, wanted: str | int) -> list[Contender]:
    """DuckDB over the registered Arrow table and over a table of its own."""
    import duckdb  # noqa: PLC0415 - a peer may be absent

    connection = duckdb.connect(config={"threads": threads})
    connection.register("arrow_events", table)
    connection.execute("create table own_events as from arrow_events")
    parameters = {"size": WINDOW_US, "wanted": wanted}

    def contender(name: str, source: str) -> Contender:
        query = DUCKDB_QUERY.format(source=source)
        return Contender(
            name,
            lambda: connection.sql(query, params=parameters).to_arrow_table(),
            from_window_number,
            threads,
            PEER_GROUP,
        )

    return [contender("DuckDB on Arrow", "arrow_events"), contender("DuckDB own table", "own_events")]


def pandas_contenders(table: pa.Table, threads: int, wanted: str | int) -> list[Contender]:
    """Group in pandas, which uses one thread whatever is asked for."""
    frame = table.select(["ts", "campaign_id", "event_type", "value"]).to_pandas()

    def run() -> Any:
        views = frame[frame["event_type"] == wanted]
        window = (views["ts"].astype("int64") // WINDOW_US).rename("window")
        return views.groupby([window, "campaign_id"], sort=False, observed=True)["value"].sum()

    return [Contender("pandas", run, pandas_answer, 1, PEER_GROUP)]


def pandas_answer(answer: Any) -> pa.Table:
    """Give a pandas answer as the query's table."""
    return from_window_number(pa.Table.from_pandas(answer.rename("total").reset_index()))


MAKERS: dict[str, Maker] = {
    "polars": polars_contenders,
    "duckdb": duckdb_contenders,
    "pandas": pandas_contenders,
}


def peer_contenders(table: pa.Table, threads: int, wanted: str | int, names: list[str]) -> list[Contender]:
    """Make the named peers; one that is not installed becomes a contender that says so."""
    made: list[Contender] = []
    for name in names:
        try:
            made += MAKERS[name](table, threads, wanted)
        except ImportError as error:
            made.append(Contender(name, failing(error), threads=threads, group=PEER_GROUP))
    return made


def failing(error: Exception) -> Callable[[], Any]:
    """Make a call that raises `error`."""

    def run() -> Any:
        raise error

    return run
