"""A query of each kind, and rows to run it over: for tests of what holds for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as pk

SCHEMA = {"t": "int64", "k": "int64", "v": "int64", "name": "string"}
LEFT = pk.stream("left", SCHEMA, time="t", lateness=5)
RIGHT = pk.stream("right", {"t": "int64", "k": "int64", "w": "int64"}, time="t", lateness=5)


def _price() -> Any:
    return LEFT.signal("v", by="k")


QUERIES: dict[str, Callable[[], Any]] = {
    "window": lambda: LEFT.window(10, by="k").agg(total=pk.sum("v"), n=pk.count()),
    "window by text behind a filter": lambda: (
        LEFT.filter(pk.col("v") > 2).window(10, by="name").agg(low=pk.min("v"), first=pk.first("name"))
    ),
    "sliding": lambda: LEFT.window(10, every=3, by="k").agg(total=pk.sum("v"), mean=pk.mean("v")),
    "session": lambda: LEFT.window(pk.session(3), by="k").agg(total=pk.sum("v")),
    "count": lambda: LEFT.window(pk.rows(4), by="k").agg(total=pk.sum("v")),
    "median": lambda: LEFT.window(10, by="k").agg(mid=pk.median("v")),
    "windows over windows": lambda: (
        LEFT.window(5, by="k").agg(total=pk.sum("v")).window(15).agg(high=pk.max("total"))
    ),
    "rolling": lambda: LEFT.rolling(8, by="k").with_columns(total=pk.sum("v")),
    "rolling rows": lambda: LEFT.rolling(pk.rows(3), by="k").agg(total=pk.sum("v")),
    "distinct": lambda: LEFT.distinct("k", within=12),
    "top": lambda: LEFT.window(10, by="k").agg(total=pk.sum("v")).top_k(2, by="total"),
    "filter and union": lambda: LEFT.filter(pk.col("v") > 3).union(LEFT.filter(pk.col("k") == 1)),
    "window join": lambda: LEFT.join(RIGHT, on="k", window=pk.tumbling(10)),
    "outer interval join": lambda: LEFT.join(RIGHT, on="k", within=(-4, 4), how="left"),
    "as-of join": lambda: LEFT.join_asof(RIGHT, by="k", tolerance=9),
    "rolling join": lambda: LEFT.join_rolling(RIGHT, by="k", within=(-9, 0)).agg(total=pk.sum("w")),
    "signal": lambda: (_price() * 2 + _price().shift(3)).to_stream("made"),
    "signal windows": lambda: _price().window(10, every=5).sum().to_stream("made"),
    "signal rolling": lambda: _price().rolling(9).mean().to_stream("made"),
}


@dataclass(frozen=True)
class Feed:
    """Rows of both streams: three pushes, of which the second completes windows and holds late rows."""

    batches: tuple[dict[str, pa.RecordBatch], ...]

    @classmethod
    def made(cls, names: tuple[str, ...]) -> Feed:
        random = np.random.default_rng(5)
        return cls(tuple({name: _batch(random, name, part) for name in names} for part in range(3)))

    def calls(self, live: Any) -> list[Callable[[], list[pa.RecordBatch]]]:
        first, second, third = self.batches
        return [
            lambda: live.push(**first),
            lambda: live.push(**second),
            lambda: live.advance(47),
            lambda: live.push(**third),
            live.finish,
        ]

    def tables(self) -> dict[str, pa.Table]:
        names = self.batches[0]
        return {name: pa.Table.from_batches([batch[name] for batch in self.batches]) for name in names}


def _batch(random: np.random.Generator, name: str, part: int) -> pa.RecordBatch:
    many = 24
    times = 20 * part + np.sort(random.integers(0, 24, many)) - random.integers(0, 8, many)
    columns: dict[str, Any] = {"t": times, "k": random.integers(0, 3, many)}
    if name == "right":
        return pa.record_batch({**columns, "w": random.integers(0, 9, many)})
    texts = pa.array([("ann", "bob", None)[integer] for integer in random.integers(0, 3, many)])
    return pa.record_batch({**columns, "v": random.integers(0, 9, many), "name": texts})


def reported(batches: list[pa.RecordBatch]) -> list[str]:
    return [repr(row) for batch in batches for row in batch.to_pylist()]
