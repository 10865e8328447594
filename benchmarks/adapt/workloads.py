"""The rows of the figures: YSB with five more predicates, many keys, and what changes between phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import penstock as pk
from penstock.api.stream import Stream

TICK = 10  # between two rows
PREDICATES = ("a", "b", "c", "x", "y")
BOUND = 5


@dataclass(frozen=True)
class Phase:
    """Rows that are alike: the share that passes `x` and `y`, the number of keys, and the share of the hottest key."""

    name: str
    x: float = 0.5
    y: float = 0.5
    keys: int = 1_000
    hot: float = 0.0


def predicates_query(rows: int) -> Stream:
    """Sum by key of the rows that pass five comparisons, in windows of half a push."""
    columns = ("t", "k", "v", *PREDICATES)
    stream = pk.stream("rows", dict.fromkeys(columns, "int64"), time="t")
    where = pk.col(PREDICATES[0]) >= BOUND
    for name in PREDICATES[1:]:
        where = where & (pk.col(name) >= BOUND)
    return stream.filter(where).window(rows * TICK // 2, by="k").agg(total=pk.sum("v"), n=pk.count())


def keys_query(rows: int) -> Stream:
    """Sum and count by key, in windows of a push."""
    stream = pk.stream("rows", {"t": "int64", "k": "int64", "v": "int64"}, time="t")
    return stream.window(rows * TICK, by="k").agg(total=pk.sum("v"), n=pk.count())


def columns_of(phase: Phase, names: Sequence[str], rows: int, seed: int) -> dict[str, np.ndarray]:
    """The columns of one push, without times."""
    rng = np.random.default_rng(seed)
    uniform = rng.integers(0, phase.keys, rows)
    made = {"k": np.where(rng.random(rows) < phase.hot, 7, uniform) if phase.hot else uniform}
    made["v"] = rng.integers(0, 100, rows)
    shares = {"x": phase.x, "y": phase.y}
    for name in (name for name in names if name in PREDICATES):
        made[name] = np.where(rng.random(rows) < shares.get(name, 0.5), 2 * BOUND, 0)
    return {name: made[name] for name in names if name != "t"}


def batch_at(columns: dict[str, np.ndarray], names: Sequence[str], number: int) -> pa.RecordBatch:
    """The columns as the push of this number."""
    rows = len(next(iter(columns.values())))
    times = (np.arange(rows) + number * rows) * TICK
    return pa.record_batch({name: times if name == "t" else columns[name] for name in names})
