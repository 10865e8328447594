"""Small lakes of files, and queries of every kind over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as pk
from tests.custom_aggregates import RMS

START = 1_700_000_000_000_000


def events(rows: int = 3_000, seed: int = 1) -> pa.Table:
    """Events of twenty keys within 200 seconds, in order of time, times repeating now and then."""
    random = np.random.default_rng(seed)
    times = START + np.sort(random.integers(0, 200_000, rows)) * 1_000
    some = random.random(rows) < 0.05
    return pa.table(
        {
            "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "n": pa.array(np.arange(rows)),
            "k": pa.array(random.integers(0, 20, rows), mask=some),
            "s": pa.array(["a", "b", "é", None]).take(pa.array(random.integers(0, 4, rows))),
            "v": pa.array(random.integers(-500, 500, rows)),
            "x": pa.array(random.normal(size=rows), mask=random.random(rows) < 0.1),
        }
    )


def lake(folder: Path, table: pa.Table, files: int = 4, group: int = 150, shuffled: bool = False) -> str:
    """Write a table as files, in order or not."""
    folder.mkdir(parents=True)
    if shuffled:
        table = table.take(pa.array(np.random.default_rng(7).permutation(table.num_rows)))
    for number in range(files):
        begin, end = (table.num_rows * part // files for part in (number, number + 1))
        pq.write_table(table.slice(begin, end - begin), folder / f"{number:03}.parquet", row_group_size=group)
    return str(folder)


def queries(stream: Any) -> dict[str, Any]:
    """A query of each kind. Where order matters, `n` tells rows of one time apart."""

    def rows_in(table: pa.Table) -> pa.Table:  # defined here, so that Spark carries its code and not its name
        return pa.table({"rows": [table.num_rows], "least": [min(table["n"].to_pylist())]})

    return {
        "rows": stream.filter(pk.col("v") > 0).select("k", double=pk.col("v") * 2),
        "tumbling": stream.filter(pk.col("s") == "a")
        .window("10s", by="k")
        .agg(t=pk.sum("v"), m=pk.mean("x")),
        "sliding": stream.window("10s", every="1s", by="s").agg(t=pk.sum("v"), hi=pk.max("x"), n=pk.count()),
        "uneven": stream.window("7s", every="3s", offset="1s").agg(t=pk.sum("v"), d=pk.std("x")),
        "two keys": stream.window("10s", by=["k", "s"]).agg(f=pk.first("n"), l=pk.last("n")),
        "custom": stream.window("10s", by="k").agg(r=RMS("x")),
        "twice": stream.window("5s", by="k")
        .agg(t=pk.sum("v"))
        .filter(pk.col("t") > 0)
        .window("20s")
        .agg(n=pk.count()),
        "median": stream.window("10s", every="5s", by="k").agg(m=pk.median("x"), u=pk.count_distinct("v")),
        "attached": stream.window("10s", by="k").with_columns(
            share=pk.col("v") / pk.sum("v").cast("float64")
        ),
        "look-back": stream.rolling(["2s", "10s"], by="k").agg(m=pk.mean("x"), c=pk.count()),
        "last rows": stream.rolling(pk.rows(5), by="s").agg(t=pk.sum("v")),
        "sessions": stream.window(pk.session("200ms"), by="k").agg(n=pk.count(), t=pk.sum("v")),
        "lonely sessions": stream.window(pk.session("20ms")).agg(n=pk.count()),
        "counts": stream.window(pk.rows(7, every=3), by="k").agg(t=pk.sum("v")),
        "count of all": stream.window(pk.rows(100)).agg(t=pk.sum("v")),
        "everything": stream.window(pk.unbounded(), by="k").agg(t=pk.sum("v"), n=pk.count()),
        "days": stream.window(pk.tumbling("1d", tz="Europe/Berlin"), by="s").agg(t=pk.sum("v")),
        "top": stream.window("10s", by="k").agg(t=pk.sum("v")).top_k(2, by="t", ties="all"),
        "distinct": stream.distinct("k", within="30s").select("k", "n"),
        "function": stream.window("50s", by="s").apply(rows_in, {"rows": "int64", "least": "int64"}),
        "computed key": stream.with_columns(g=pk.col("v") % 7).rolling("2s", by="g").agg(t=pk.sum("v")),
        "signal": stream.signal("v", by="k").rolling("2s").sum().to_stream(),
        "two signals": (stream.signal("v", by="k") + stream.signal("n", by="k").shift("1s")).to_stream(),
        "union": stream.union(stream.filter(pk.col("v") > 0)).window("10s", by="k").agg(n=pk.count()),
        "look-backs and rows": stream.rolling("2s", by="k")
        .agg(v=pk.sum("v"))
        .union(stream.select("ts", "k", "v").filter(pk.col("v") > 0))
        .window("10s", by="k")
        .agg(n=pk.count(), t=pk.sum("v")),
    }


def join_queries(left: Any, right: Any) -> dict[str, Any]:
    """Joins of two streams, and of a stream with a table."""
    names = pk.table(pa.table({"k": pa.array(range(15)), "name": [f"n{i}" for i in range(15)]}), name="names")
    few = right.filter(pk.col("v") > 300)
    return {
        "in windows": left.join(few, on="k", window=pk.tumbling("2s")).select("k", "v", "v_right", "n", "n_right"),
        "outer": left.filter(pk.col("v") > 200).join(few, on="k", window=pk.tumbling("1s"), how="full"),
        "within": left.join(few, on="k", within=("-300ms", "100ms")).select("k", "n", "n_right"),
        "as of": left.join_asof(few, by="k", tolerance="2s").select("k", "n", "v_right"),
        "as of, ever": left.join_asof(few, by="k").select("k", "n", "v_right"),
        "rolling": left.join_rolling(few, by="k", within=("-2s", "0s")).agg(t=pk.sum("v"), c=pk.count()),
        "table": left.join(names, on="k").select("k", "n", "name"),
        "table, then windows": left.join(names, on="k", how="left").window("10s", by="name").agg(t=pk.sum("v")),
        "joined, then windows": (
            left.join(few, on="k", within=("-300ms", "100ms")).window("10s", by="k").agg(c=pk.count())
        ),
        "by conditions alone": (
            left.filter(pk.col("v") > 400).join(
                few, window=pk.tumbling("1s"), where=pk.left("v") > pk.right("v")
            ).select("n", "n_right")
        ),
        "in a band": left.join(
            few, window=pk.tumbling("2s"), how="left", where=(pk.left("v") >= pk.right("v") - 5) & (pk.left("v") < pk.right("v") + 5)
        ).select("n", "n_right"),
        "semi": left.join(few, on="k", window=pk.tumbling("2s"), how="semi").select("k", "n"),
        "right": left.join(few, on="k", within=("-30ms", "10ms"), how="right").select("k", "n", "n_right"),
        "anti, within": left.join(few, on="k", within=("-300ms", "100ms"), how="anti").select("k", "n"),
        "of two sizes": left.join(few, on="k", window=(pk.tumbling("2s"), pk.sliding("3s", "1s"))).select("k", "n", "n_right"),
        "session of both": left.join(few, on="k", window=pk.session("50ms"), how="full").select("k", "n", "n_right"),
        "next": left.join_asof(few, by="k", tolerance="2s", direction="forward").select("k", "n", "v_right"),
        "three": (
            left.join(few, on="k", window=pk.tumbling("1s")).select("k", "n", other="n_right")
            .join(left.filter(pk.col("v") > 700), on="k", within=("-100ms", "50ms")).select("k", "n", "other", "n_right")
        ),
        "table on the left": names.join(left, on="k", how="right").select("k", "n", "name"),
    }  # fmt: skip


NAMES = tuple(queries(pk.stream("events", events(1).schema, time="ts", sequence="n")))
