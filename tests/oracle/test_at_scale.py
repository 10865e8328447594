"""Larger data than Hypothesis draws: variants that change while a query runs, compared with DuckDB.

Each scenario makes the engine change its mind: dense keys that outgrow their range, nulls and large
values that first appear late, many keys, many threads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from tests.oracle import describe as d
from tests.oracle import sql
from tests.oracle.build import build
from tests.oracle.compare import assert_windows_in_order
from tests.oracle.data import plain_table
from tests.oracle.strategies import Dataset

ROWS = 60_000
TICKS = d.TimeSpec(pa.int64(), None, None)
AGGREGATES: d.Fields = (
    ("s", d.Agg("sum", d.Col("v"))),
    ("n", d.Agg("count")),
    ("m", d.Agg("count", d.Col("v"))),
    ("a", d.Agg("min", d.Col("v"))),
    ("b", d.Agg("max", d.Col("v"), d.Op(">", (d.Col("v"), d.Lit(0, pa.int64()))))),
)


def _table(
    seed: int, keys: Callable[[np.random.Generator, int], pa.Array], shuffled: bool = False
) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, 5_000, ROWS)) if not shuffled else rng.integers(0, 5_000, ROWS)
    values = rng.integers(-1_000, 1_000, ROWS)
    return pa.table({"t": times, "k": keys(rng, ROWS), "v": values})


def _small(rng: np.random.Generator, n: int) -> pa.Array:
    return pa.array(rng.integers(0, 20, n))


def _outgrowing(rng: np.random.Generator, n: int) -> pa.Array:
    """Few keys first, then ever wider ranges, negative ones too."""
    width = np.where(np.arange(n) < n // 2, 10, np.where(np.arange(n) < 3 * n // 4, 3_000, 2**40))
    return pa.array((rng.integers(0, 8, n) * width // 8) * np.where(np.arange(n) % 5 == 0, -1, 1))


def _scattered(rng: np.random.Generator, n: int) -> pa.Array:
    return pa.array(rng.integers(0, 300, n) * 1_000_000_007)


def _texts(rng: np.random.Generator, n: int) -> pa.Array:
    return pa.array([f"key {i}" if i % 7 else "" for i in rng.integers(0, 500, n)])


def _dictionary(rng: np.random.Generator, n: int) -> pa.Array:
    return _texts(rng, n).dictionary_encode()


def _hot(rng: np.random.Generator, n: int) -> pa.Array:
    return pa.array(np.where(rng.random(n) < 0.99, 7, rng.integers(0, 1_000, n)))


def _late_nulls(rng: np.random.Generator, n: int) -> pa.Array:
    return pa.array(rng.integers(0, 50, n), mask=(np.arange(n) > n // 2) & (rng.random(n) < 0.1))


def _late_null_texts(rng: np.random.Generator, n: int) -> pa.Array:
    cells = [f"k{i}" for i in rng.integers(0, 40, n)]
    return pa.array([None if i > n // 2 and i % 11 == 0 else cell for i, cell in enumerate(cells)])


def _floats(rng: np.random.Generator, n: int) -> pa.Array:
    return pa.array(rng.choice([0.0, -0.0, np.nan, np.inf, 1.5, -2.25, 1e300], n))


KEYS = {
    "few keys": _small,
    "keys that outgrow a dense table": _outgrowing,
    "scattered keys": _scattered,
    "texts": _texts,
    "dictionaries": _dictionary,
    "one hot key": _hot,
    "nulls that come late": _late_nulls,
    "null texts that come late": _late_null_texts,
    "floats": _floats,
}
FRAMES = {"tumbling": (250, 250), "sliding": (600, 200), "uneven": (500, 300)}


def _query(size: int, every: int, by: tuple[str, ...] = ("k",)) -> d.Query:
    return d.Window(d.Source("events", TICKS), size, every, 0, by, AGGREGATES)


def _rows(table: pa.Table) -> list[str]:
    """List rows as texts, sorted; both zeros are one key."""
    columns = [column.to_pylist() for column in plain_table(table).columns]
    cells = ([cell + 0.0 if isinstance(cell, float) else cell for cell in column] for column in columns)
    return sorted(repr(row) for row in zip(*cells, strict=True))


def _expected(query: d.Query, table: pa.Table) -> list[str]:
    rows = sql.run(query, {"events": table})
    return sorted(repr(tuple(c + 0.0 if isinstance(c, float) else c for c in row.values())) for row in rows)


def _check(query: d.Query, table: pa.Table, engine: pk.Engine) -> None:
    made = build(query, (Dataset("events", table, TICKS, ()),))
    result = made.collect(engine=engine)
    assert_windows_in_order(result)
    assert _rows(result) == _expected(query, table)
    assert made.metrics.balanced
    assert made.metrics.accepted == table.num_rows


@pytest.mark.parametrize("keys", KEYS.values(), ids=list(KEYS))
@pytest.mark.parametrize("shuffled", [False, True], ids=["ordered", "shuffled"])
def test_many_rows_equal_duckdb(keys: Callable[[np.random.Generator, int], pa.Array], shuffled: bool) -> None:
    table = _table(3, keys, shuffled)
    frame = FRAMES["uneven"] if shuffled else FRAMES["sliding"]
    _check(_query(*frame), table, pk.Engine(threads=2, task_bytes=1 << 14))


@pytest.mark.parametrize("keys", [_small, _outgrowing, _late_null_texts], ids=["few", "outgrowing", "texts"])
def test_many_batches_give_the_answer_of_one_table(
    keys: Callable[[np.random.Generator, int], pa.Array],
) -> None:
    table = _table(5, keys)
    query = _query(*FRAMES["tumbling"])
    made = build(query, (Dataset("events", table, TICKS, ()),), bound=False)
    batches = list(made.run(table.to_batches(max_chunksize=1_777)))
    assert _rows(pa.Table.from_batches(batches)) == _expected(query, table)


def test_sums_that_outgrow_64_bits_on_their_way_are_exact() -> None:
    table = _table(7, _small)
    signs = np.where(np.arange(ROWS) % 2 == 0, 1, -1)
    table = table.set_column(2, "v", pa.array(signs * (2**62 + np.arange(ROWS))))
    _check(_query(5_000, 5_000, ()), table.slice(0, ROWS // 2 * 2), pk.Engine(threads=2, task_bytes=1 << 14))


def test_large_values_that_come_late_widen_the_sums_in_time() -> None:
    table = _table(9, _small)
    late = np.where(np.arange(ROWS) < ROWS // 2, np.arange(ROWS) % 100, 2**45)
    table = table.set_column(2, "v", pa.array(late))
    _check(_query(1_000, 250), table, pk.Engine(threads=1))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_three_keys_of_mixed_types(threads: int) -> None:
    rng = np.random.default_rng(11)
    table = (
        _table(11, _texts).append_column("i", _late_nulls(rng, ROWS)).append_column("f", _floats(rng, ROWS))
    )
    table = table.set_column(1, "k", pa.array([f"k{i}" for i in rng.integers(0, 5, ROWS)]))
    _check(_query(2_500, 2_500, ("k", "i", "f")), table, pk.Engine(threads=threads, task_bytes=1 << 15))
