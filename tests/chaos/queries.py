"""The queries and the rows of the chaos campaign, generated from a seed."""

from __future__ import annotations

from functools import cache, reduce
from operator import and_
from random import Random
from typing import Any

import pyarrow as pa

import penstock as pk
from penstock.api.stream import Stream
from penstock.compile import Compiled

SCHEMA = {"t": "int64", "k": "int64", "j": "int32", "s": "string", "v": "int64", "w": "int32", "x": "float64"}
V, W, X, K = pk.col("v"), pk.col("w"), pk.col("x"), pk.col("k")
CONJUNCTS = (V > 3, W != 2, X < 7.5, K % 5 != 1, V.is_not_null(), W + 0 < 9, (V > 50) | (X > 1))
AGGREGATES: dict[str, Any] = {
    "n": pk.count,
    "nv": lambda: pk.count("v"),
    "total": lambda: pk.sum("v"),
    "small": lambda: pk.sum("w", where=V > 5),
    "low": lambda: pk.min("v"),
    "high": lambda: pk.max("w"),
    "mean": lambda: pk.mean("v"),
    "some": lambda: pk.any(V > 60),
    "last": lambda: pk.last("v"),
    "text": lambda: pk.max("s"),
}
KEYS: tuple[list[str], ...] = (["k"], ["j"], ["k", "j"], ["s"], [])
WINDOWS = ((20, None), (30, 10), (25, 10), (7, 14))


@cache
def query_of(seed: int) -> tuple[Stream, Compiled]:
    """The query of a seed, compiled once."""
    random = Random(seed)
    stream = pk.stream("rows", SCHEMA, time="t")
    conjuncts = random.sample(CONJUNCTS, random.randint(0, 4))
    if conjuncts:
        stream = stream.filter(reduce(and_, conjuncts))
    size, every = random.choice(WINDOWS)
    keys = random.choice(KEYS)
    window = stream.window(size, every=every, by=keys) if keys else stream.window(size, every=every)
    names = random.sample(sorted(AGGREGATES), random.randint(1, 4))
    query = window.agg(**{name: AGGREGATES[name]() for name in names})
    return query, query.compiled()


FLOATS: dict[str, Any] = {
    "total": lambda: pk.sum("x"),
    "mean": lambda: pk.mean("x", where=V > 2),
    "spread": lambda: pk.std("x"),
    "corr": lambda: pk.corr("x", "v"),
    "n": lambda: pk.count("v"),
    "whole": lambda: pk.sum("v"),
}


@cache
def float_query_of(seed: int) -> tuple[Stream, Compiled]:
    """A query of a seed whose results depend on how additions of floats are grouped."""
    random = Random(seed)
    stream = pk.stream("rows", SCHEMA, time="t").filter((V < 90) & (W != 2) & (K % 5 != 1))
    size, every = random.choice(WINDOWS)
    keys = KEYS[seed % len(KEYS)]
    window = stream.window(40 * size, every=every, by=keys) if keys else stream.window(40 * size)
    names = ["total", *random.sample(sorted(set(FLOATS) - {"total"}), 2)]
    query = window.agg(**{name: FLOATS[name]() for name in names})
    return query, query.compiled()


def float_batches_of(random: Random) -> list[pa.RecordBatch]:
    """Batches of floats of all magnitudes, with and without nulls: any other grouping changes some bit."""
    found = []
    for number in range(random.randint(2, 5)):
        rows = random.choice([50, 700, 9_000])
        batch = _batch(random, sorted(random.randint(0, 700) + 700 * number for _ in range(rows)))
        floats = [random.uniform(-1, 1) * 10 ** random.randint(0, 12) for _ in range(rows)]
        found.append(batch.set_column(batch.schema.get_field_index("x"), "x", pa.array(floats)))
    return found


def batches_of(random: Random) -> list[pa.RecordBatch]:
    """Batches in order of time whose keys, values and nulls change their nature between batches."""
    found, time = [], random.choice([-40, 0, 1_000])
    for _ in range(random.randint(1, 6)):
        rows = random.choice([0, 1, 3, 12, 30])
        times = sorted(random.randint(time, time + random.choice([0, 15, 60])) for _ in range(rows))
        time = times[-1] if times else time
        found.append(_batch(random, times))
    return found


def _batch(random: Random, times: list[int]) -> pa.RecordBatch:
    rows = len(times)
    keys = random.choice([[5], range(4), range(-3, 40), [0, 1 << 40, -(1 << 60)]])
    values = random.choice([range(100), range(10), [1 << 40, 7, 9], [1 << 61, -(1 << 61)], [50]])
    share = random.choice([0.0, 0.0, 0.3])

    def column(choices: Any) -> list[Any]:
        listed = list(choices)
        return [None if random.random() < share else random.choice(listed) for _ in range(rows)]

    return pa.record_batch(
        {
            "t": pa.array(times, pa.int64()),
            "k": pa.array(column(keys), pa.int64()),
            "j": pa.array(column(range(-1, 3)), pa.int32()),
            "s": pa.array(column(["", "a", "bb", "é"]), pa.string()),
            "v": pa.array(column(values), pa.int64()),
            "w": pa.array(column(range(12)), pa.int32()),
            "x": pa.array(column([0.5, 7.5, 8.0, float("nan"), -1.0]), pa.float64()),
        }
    )
