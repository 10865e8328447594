"""Queries of every operator, whose physical plans are in tests/fixtures/physical/plans.txt."""

from __future__ import annotations

import pyarrow as pa

import penstock as pk
from penstock.api.stream import Stream

EVENTS = pk.stream(
    "events",
    {"ts": "timestamp[us]", "k": "int64", "s": "string", "f": "float64", "v": "int64"},
    time="ts",
    lateness="1s",
)
OTHERS = pk.stream("others", {"ts": "timestamp[us]", "k": "int64", "w": "int64"}, time="ts")
REGULAR = pk.stream("regular", {"x": "float64"}, time=pk.every("1ms"))
TABLE = pk.table(pa.table({"k": [1], "name": ["a"]}), name="names")
PRICE = EVENTS.signal("f", by="k")
SECOND = pk.tumbling("1s")


CASES: dict[str, Stream] = {
    "filter and projection": EVENTS.filter(pk.col("v") > 3).select("ts", w=pk.col("v") * 2),
    "what Arrow computes": EVENTS.filter(pk.col("s").str.contains("a+")).select("ts", "k"),
    "what Arrow computes, for survivors": EVENTS.filter(
        (pk.col("v") == 3) & pk.col("s").str.contains("a+")
    ).select("ts", "k"),
    "a window of what Arrow computes": EVENTS.filter((pk.col("v") == 3) & pk.col("s").str.contains("a+"))
    .window("10s", by="k")
    .agg(t=pk.sum("v")),
    "tumbling by key": EVENTS.filter(pk.col("s") == "a").window("10s", by="k").agg(t=pk.sum("v")),
    "sliding by a float": EVENTS.window("10s", every="1s", by="f").agg(m=pk.mean("v"), n=pk.count()),
    "results that Arrow computes": EVENTS.window("1s", by="s").agg(n=pk.col("s").max().str.to_uppercase()),
    "holistic": EVENTS.window("10s", by="k").agg(m=pk.median("v")),
    "sessions": EVENTS.window(pk.session("5s"), by="k").agg(t=pk.sum("v")),
    "rows": EVENTS.window(pk.rows(100, every=10), by="k").agg(t=pk.sum("v")),
    "partial rows": EVENTS.window(pk.rows(100, partial=True)).agg(t=pk.sum("v")),
    "unbounded": EVENTS.window(pk.unbounded(), by="k").agg(m=pk.mode("v")),
    "calendar": EVENTS.window(pk.tumbling("1d", tz="Europe/Paris")).agg(t=pk.sum("v")),
    "attached": EVENTS.window("10s", by="k").with_columns(t=pk.sum("v")),
    "look-back": EVENTS.rolling("10s", by="k").agg(m=pk.mean("f"), x=pk.max("v")),
    "two spans": EVENTS.rolling(["1s", pk.rows(5)], by="k").with_columns(t=pk.sum("v")),
    "window over window": EVENTS.window("1s", by="k").agg(t=pk.sum("v")).window("10s").agg(m=pk.max("t")),
    "regrouped": EVENTS.window("1s", by="k").agg(t=pk.sum("v")).window().agg(m=pk.max("t")),
    "top": EVENTS.window("1s", by="k").agg(t=pk.sum("v")).top_k(3, by="t"),
    "distinct": EVENTS.distinct("k"),
    "last distinct": EVENTS.distinct("k", keep="last"),
    "distinct within": EVENTS.distinct("k", within="5s"),
    "union of computed and plain rows": EVENTS.distinct("k")
    .select("ts", "k")
    .union(OTHERS.select("ts", "k")),
    "window join": EVENTS.join(OTHERS, on="k", window=SECOND),
    "window join by an algorithm": EVENTS.join(OTHERS, on="k", window=SECOND, algorithm="shj_jm"),
    "overlapping window join": EVENTS.join(OTHERS, on="k", window=pk.sliding("2s", "1s")),
    "band join": EVENTS.join(OTHERS, window=SECOND, where=pk.left("v") < pk.right("w")),
    "semi join": EVENTS.join(OTHERS, on="k", window=SECOND, how="semi"),
    "interval join": EVENTS.join(OTHERS, on="k", within=("-5s", "5s"), how="left"),
    "lookup": EVENTS.join(TABLE, on="k"),
    "as-of": EVENTS.join_asof(OTHERS, by="k"),
    "as-of forward": EVENTS.join_asof(OTHERS, by="k", direction="forward", tolerance="1s"),
    "rolling join": EVENTS.join_rolling(OTHERS, by="k", within=("-10s", "0s")).agg(t=pk.sum("w")),
    "regular signal": (REGULAR.signal("x").rolling("20ms").mean() > 0).to_stream("up"),
    "keyed signal": (PRICE.rolling("10s").mean() > PRICE.rolling("50s").mean()).to_stream("up"),
}
