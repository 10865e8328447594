"""Small signals that show what passes on temporal programs do, and where they must not."""

from __future__ import annotations

import penstock as pk
from penstock.plan import nodes as pl

TRADES = pk.stream("trades", {"ts": "timestamp[us]", "symbol": "string", "price": "float64"}, time="ts")
PRICE = TRADES.signal("price", by="symbol")
CHANGE = PRICE - PRICE.shift("1s")


def _plan(signal: pk.Signal) -> pl.Plan:
    return signal.plan


def _rows(stream: pk.Stream) -> pl.Plan:
    return stream.raw_plan


FUSE_SIGNALS = {
    "the trend is one loop": _plan(PRICE.rolling("20s").mean() > PRICE.rolling("50s").mean()),
    "a window, a join and a filter": _plan(
        (PRICE - PRICE.window("10s", every="1s").mean()).where(lambda v: v > 0)
    ),
    "a map moves into the reduction of its samples": _plan((PRICE * 2.0).rolling("10s").sum()),
    "a condition too, but not under a count": _plan(
        PRICE.where(lambda v: v > 0).rolling("10s").sum()
        / PRICE.where(lambda v: v > 0).rolling("10s").count()
    ),
    "two instants of a cheap map": _plan((PRICE * 2.0) - (PRICE * 2.0).shift("1s")),
    "two instants of a reduction stay": _plan(
        PRICE.rolling("10s").mean() - PRICE.rolling("10s").mean().shift("1s")
    ),
    "what has a value of its own stays": _plan(PRICE.shift("10s").or_else(0.0) + PRICE),
    "samples of a difference are its own": _plan(CHANGE.rolling("14s").sum()),
}
PRUNE_SIGNALS = {
    "ends of intervals that nothing reads": _rows(
        PRICE.to_stream("price").window("10s", by="symbol").agg(most=pk.max("price"))
    ),
    "ends of intervals that are read": _rows(PRICE.to_stream("price").window("10s").agg(last=pk.max("end"))),
}
SHARE_SIGNALS = {
    "fused alike": _plan(CHANGE.rolling("5s").sum() / CHANGE.rolling("9s").sum()),
    "read twice": _plan(PRICE + PRICE),
}
