"""Windows of rows without keys, in every form of their kernel, against plain Python and against the general way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.effort import effort

MANY = 1_400
PACE = 3
SIZES = st.sampled_from([1, 2, 5, 8, 33, 64, 100, 128, 129, 300, 515])
STEPS = st.sampled_from([1, 2, 3, 4, 7, 16, 64, 100, 600])
TYPES = st.sampled_from(["int32", "int64", "float64", "uint8", "float32"])


def drawn(seed: int, rows: int, dtype: str, nulls: bool, odd: bool) -> pa.Array:
    """Draw numbers; some null, some NaN or infinite or at the limits of their type."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 100, rows).astype(dtype)
    if odd and np.issubdtype(values.dtype, np.floating):
        places = rng.integers(0, rows, 6) if rows else []
        values[places] = rng.choice([np.nan, np.inf, -np.inf, -0.0], 6)[: len(places)]
    return pa.array(values, mask=rng.random(rows) < 0.2 if nulls else None)


def windows_of(
    column: pa.Array, size: int, every: int, partial: bool
) -> Iterator[tuple[int, int, list[Any]]]:
    """The windows as they are defined, one after the other."""
    rows = column.to_pylist()
    for lo in range(0, len(rows), every):
        hi = min(lo + size, len(rows))
        if hi == lo + size or partial:
            yield lo * PACE, (hi - 1) * PACE + 1, [value for value in rows[lo:hi] if value is not None]


def reduced(values: list[Any], rows: int) -> tuple[Any, ...]:
    """What the query below gives for a window: total, least, greatest, mean, values and rows."""
    if not values:
        return None, None, None, None, 0, rows
    numbers = [value for value in values if not math.isnan(value)]
    least = min(numbers) if numbers else math.nan
    greatest = max(values) if len(numbers) == len(values) else math.nan
    infinite = {value for value in values if math.isinf(value)}
    total = math.fsum(values) if len(infinite) < 2 else math.nan
    return total, least, greatest, total / len(values), len(values), rows


def asked(stream: Any, window: Any) -> Any:
    x = pk.col("x")
    return stream.window(window).agg(
        total=x.sum(), least=x.min(), most=x.max(), mean=x.mean(), values=x.count(), rows=pk.count()
    )


def same(found: pa.Table, expected: list[tuple[Any, ...]]) -> None:
    rows = [tuple(row.values()) for row in found.to_pylist()]
    assert len(rows) == len(expected)
    for ours, theirs in zip(rows, expected, strict=True):
        assert [value is None for value in ours] == [value is None for value in theirs]
        known = [value for value in theirs if value is not None]
        assert [value for value in ours if value is not None] == pytest.approx(known, rel=1e-9, nan_ok=True)


def batches(table: pa.Table, seed: int, pieces: int) -> list[pa.RecordBatch]:
    """Cut rows into batches at random."""
    inner = np.sort(np.random.default_rng(seed).integers(0, table.num_rows + 1, pieces - 1)).tolist()
    whole = table.combine_chunks()
    return [
        batch
        for begin, end in pairwise([0, *inner, table.num_rows])
        for batch in whole.slice(begin, end - begin).to_batches()
    ]


@effort(40)
@given(
    seed=st.integers(0, 2**32),
    rows=st.one_of(st.integers(0, 40), st.integers(0, MANY)),
    size=SIZES,
    every=STEPS,
    partial=st.booleans(),
    dtype=TYPES,
    nulls=st.booleans(),
    odd=st.booleans(),
    implied=st.booleans(),
    pieces=st.integers(1, 5),
)
def test_windows_of_rows_are_what_plain_python_gives_in_collect_and_in_run(
    seed: int,
    rows: int,
    size: int,
    every: int,
    partial: bool,
    dtype: str,
    nulls: bool,
    odd: bool,
    implied: bool,
    pieces: int,
) -> None:
    column = drawn(seed, rows, dtype, nulls, odd)
    times = pa.array(np.arange(rows) * PACE)
    table = pa.table({"x": column}) if implied else pa.table({"t": times, "x": column})
    query = asked(
        pk.from_arrow(table, time=pk.every(PACE) if implied else "t"),
        pk.rows(size, every=every, partial=partial),
    )
    expected = [
        (start, end, *reduced(values, -(-(end - start) // PACE)))
        for start, end, values in windows_of(column, size, every, partial)
    ]
    same(query.collect(), expected)
    parts = list(query.run(batches(table, seed, pieces)))
    same(pa.Table.from_batches(parts, query.schema), expected)


@pytest.mark.parametrize("every", [1, 3, 64])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_share_many_windows(every: int, threads: int) -> None:
    values = np.random.default_rng(every).integers(-(2**31), 2**31, 300_000).astype(np.int32)
    query = asked(pk.from_arrow(pa.table({"x": values}), time=pk.every(PACE)), pk.rows(500, every=every))
    regular = query.collect(engine=pk.Engine(threads=threads))
    looked_up = query.collect(engine=pk.Engine(threads=1, aggregator="two-stacks"))
    assert regular.drop(["mean"]).equals(looked_up.drop(["mean"]))
    assert np.allclose(regular["mean"], looked_up["mean"], rtol=1e-12)


@pytest.mark.parametrize("implied", [True, False])
def test_a_run_goes_on_from_what_the_general_way_saved_and_the_other_way_round(implied: bool) -> None:
    column = pa.array(np.arange(2_000) % 97)
    times = pa.array(np.arange(2_000) * PACE)
    table = pa.table({"x": column}) if implied else pa.table({"t": times, "x": column})
    query = asked(pk.from_arrow(table, time=pk.every(PACE) if implied else "t"), pk.rows(300, every=7))
    first, second = batches(table, 3, 2)
    engines = pk.Engine(aggregator="two-stacks"), pk.Engine()
    for before, after in (engines, engines[::-1]):
        with query.open(engine=before) as live:
            made = live.push(first)
            state = live.state()
        with query.open(engine=after, state=state) as live:
            made = [*made, *live.push(second), *live.finish()]
        assert pa.Table.from_batches(made).equals(query.collect().combine_chunks())


def test_the_largest_sums_are_told_from_those_that_do_not_fit() -> None:
    limit = 2**63 - 1
    fits = pk.from_arrow(pa.table({"x": [limit, -5, 5, 0]}), time=pk.every(1)).window(pk.rows(3, every=1))
    assert fits.agg(s=pk.sum("x")).collect()["s"].to_pylist() == [limit, 0]
    beyond = pk.from_arrow(pa.table({"x": [limit, 1, 0]}), time=pk.every(1)).window(pk.rows(2, every=1))
    with pytest.raises(pk.OverflowError):
        beyond.agg(s=pk.sum("x")).collect()


def test_two_million_windows_may_overlap() -> None:
    size, more = 1 << 21, 1_000
    data = np.random.default_rng(3).integers(-99, 99, size + more)
    query = pk.from_arrow(pa.table({"x": data}), time=pk.every(1)).window(pk.rows(size, every=1))
    answer = query.agg(s=pk.sum("x"), least=pk.min("x")).collect()
    before = np.concatenate([[0], np.cumsum(data)])
    assert answer["s"].to_pylist() == (before[size:] - before[:-size]).tolist()
    assert answer["least"].to_pylist() == [-99] * (more + 1)


def test_implied_times_beyond_64_bits_are_refused() -> None:
    late = pk.every(1, start=2**63 - 3)
    query = pk.from_arrow(pa.table({"x": [1, 2, 3]}), time=late).window(pk.rows(2, every=1))
    with pytest.raises(pk.OverflowError):
        query.agg(s=pk.sum("x")).collect()


def test_explain_says_how_windows_of_rows_run() -> None:
    stream = pk.from_arrow(pa.table({"k": [1], "x": [1.5]}), time=pk.every(1))
    regular = stream.window(pk.rows(100, every=10)).agg(s=pk.sum("x")).explain()
    assert "count-slide; windows of rows without keys lie at regular places" in str(regular)
    assert "count-slide" not in str(
        stream.window(pk.rows(100, every=10), by="k").agg(s=pk.sum("x")).explain()
    )
