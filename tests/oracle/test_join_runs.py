"""Large windows are joined one at a time, in the order of results: as few rows as here are made to count as many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.operators.joins import algorithm_pairs, interval, large_windows, results, sliding, windows
from penstock.operators.joins import build as join_programs
from tests.oracle.effort import effort
from tests.oracle.join_cases import JOIN_KINDS, QUERIES, cases
from tests.oracle.test_joins import expected, shown, streams_of

NAMES = [
    name
    for name in QUERIES
    if name.startswith(JOIN_KINDS) and name.endswith(("tumbling", "with gaps", "unbounded", "residual"))
    if "theta" not in name
]
NAMES += ["of windows"]


@contextmanager
def everything_is_large(
    least: int = 1, most_pairs: int = 1 << 21, side_by_side: int = 1 << 20
) -> Iterator[None]:
    limits = (
        (large_windows, "ROWS_JOINED_BY_PARTITION", least),
        (results, "FEW_PAIRS", 1),
        (windows, "ROWS_A_RUN", 0),
    )
    limits += ((large_windows, "LARGE", side_by_side),)
    with ExitStack() as several:
        for module, name, limit in (
            *limits,
            *(
                (module_type, "MOST_PAIRS", most_pairs)
                for module_type in (algorithm_pairs, results, interval, sliding)
            ),
        ):
            several.enter_context(patch.object(module, name, limit))
        yield


@effort(25)
@given(data=st.data())
def test_large_windows_equal_their_definition(data: st.DataObject) -> None:
    case = data.draw(cases(NAMES))
    query = case.query()
    engine = pk.Engine(threads=data.draw(st.sampled_from([1, 2, 3])))
    parts, side_by_side = (
        data.draw(st.sampled_from([1, 4, 1 << 21])),
        data.draw(st.sampled_from([0, 1 << 20])),
    )
    with everything_is_large(data.draw(st.sampled_from([1, 5])), parts, side_by_side):
        found = query.collect(streams_of(case, query), engine=engine)
    assert shown(case, found) == shown(case, expected(case))


@effort(25)
@given(data=st.data())
def test_large_windows_in_any_interleaving(data: st.DataObject) -> None:
    case = data.draw(cases(NAMES, sorted_times=True))
    query = case.query(lateness=100)
    waiting = {name: table.to_batches(max_chunksize=3) for name, table in streams_of(case, query).items()}
    live, made = query.open(), []
    with everything_is_large():
        while any(waiting.values()):
            name = data.draw(st.sampled_from([name for name, rows in waiting.items() if rows]))
            made += live.push({name: waiting[name].pop(0)})
        made += live.finish()
    assert shown(case, pa.Table.from_batches(made, query.schema)) == shown(case, expected(case))


PARTED = {
    "sliding": [name for name in QUERIES if name.startswith(JOIN_KINDS) and "sliding" in name],
    "different": [name for name in QUERIES if name.startswith(JOIN_KINDS) and "different" in name],
    "any": [name for name in QUERIES if name.startswith(JOIN_KINDS)],
}


@pytest.mark.parametrize("least", [1, 1 << 20])
@pytest.mark.parametrize("names", PARTED)
@effort(12)
@given(data=st.data())
def test_pairs_of_any_join_a_few_at_a_time(names: str, least: int, data: st.DataObject) -> None:
    case = data.draw(cases(PARTED[names]))
    query, most = case.query(), data.draw(st.sampled_from([1, 4]))
    with everything_is_large(1, most), patch.object(join_programs, "ROWS_JOINED_BY_PARTITION", least):
        found = query.collect(streams_of(case, query))
    assert shown(case, found) == shown(case, expected(case))


def typed(rows: int, keys: np.ndarray, seed: int) -> pa.Table:
    """Columns of every width, some with nulls, some that kernels cannot fetch."""
    rng = np.random.default_rng(seed)
    numbers, holes = rng.integers(0, 100, rows), rng.random(rows) < 0.2
    return pa.table(
        {
            "t": np.sort(rng.integers(0, 4000, rows)),
            "k": keys,
            "byte": numbers.astype(np.int8),
            "short": numbers.astype(np.uint16),
            "single": numbers.astype(np.float32),
            "holes": pa.array(numbers, mask=holes),
            "flag": numbers > 50,
            "text": pa.array(numbers).cast(pa.string()),
            "day": pa.array(numbers.astype(np.int32), pa.date32()),
            "exact": pa.array(numbers).cast(pa.decimal128(19, 0)),
        }
    )


@pytest.mark.parametrize("how", JOIN_KINDS)
@pytest.mark.parametrize("spread", [1, 1_000_003, 1 << 40])
def test_large_windows_equal_small_ones_in_every_column(how, spread, monkeypatch) -> None:
    rng = np.random.default_rng(7)
    sides = [typed(4000, rng.integers(0, 900, 4000) * spread, seed) for seed in (1, 2)]
    a, b = (pk.from_arrow(table, time="t", name=name) for table, name in zip(sides, "ab", strict=True))
    query = a.join(b, on="k", window=1500, how=how)
    monkeypatch.setattr(windows, "ROWS_A_RUN", 1 << 40)  # no window is looked at by itself
    wanted = query.collect(engine=pk.Engine(threads=1)).combine_chunks()
    monkeypatch.undo()
    monkeypatch.setattr(large_windows, "ROWS_JOINED_BY_PARTITION", 1000)
    for threads in (1, 2):
        assert query.collect(engine=pk.Engine(threads=threads)).combine_chunks().equals(wanted)


def test_left_columns_pass_as_they_are_where_each_row_meets_one() -> None:
    rows = 5000
    rng = np.random.default_rng(3)
    left = pa.table({"t": np.arange(rows), "k": rng.permutation(rows), "x": np.arange(rows)})
    right = pa.table({"t": np.arange(rows), "k": rng.permutation(rows), "y": np.arange(rows)})
    a, b = pk.from_arrow(left, time="t", name="a"), pk.from_arrow(right, time="t", name="b")
    found = a.join(b, on="k", window=rows).collect()
    assert found["x"].chunk(0).buffers()[1].address == left["x"].chunk(0).buffers()[1].address
    assert found["k"].equals(left["k"])


@pytest.mark.parametrize("how", JOIN_KINDS)
@pytest.mark.parametrize("most", [1000, 1 << 21])
def test_windows_that_are_joined_side_by_side_come_in_order(how, most, monkeypatch) -> None:
    monkeypatch.setattr(algorithm_pairs, "MOST_PAIRS", most)
    rng, rows = np.random.default_rng(9), 60_000
    tables = [
        pa.table(
            {
                "t": np.sort(rng.integers(0, 120, rows)),
                "k": rng.integers(0, 3000, rows),
                name: np.arange(rows),
            }
        )
        for name in "xy"
    ]
    a, b = (pk.from_arrow(table, time="t", name=name) for table, name in zip(tables, "ab", strict=True))
    query = a.join(b, on="k", window=10, how=how)
    run = query.collect(engine=pk.Engine(threads=3))
    assert run.equals(query.collect(engine=pk.Engine(threads=1)))


def test_a_flood_beside_small_windows_comes_in_order() -> None:
    times = np.concatenate([np.arange(0, 3000, 7), np.full(6000, 3100), np.arange(3200, 9000, 5)])
    keys = np.arange(len(times)) % 101
    table = pa.table({"t": times, "k": keys, "x": np.arange(len(times))})
    a = pk.from_arrow(table, time="t", name="a")
    b = pk.from_arrow(table.slice(0, 700).rename_columns(["t", "k", "y"]), time="t", name="b")
    found = a.join(b, on="k", window=200).collect()
    same = (times[:, None] // 200 == times[:700] // 200) & (keys[:, None] == keys[:700])
    want = np.argwhere(same).tolist()
    assert [list(pair) for pair in zip(found["x"].to_pylist(), found["y"].to_pylist(), strict=True)] == want


@pytest.mark.parametrize(
    "query",
    [
        lambda a, b: a.join(b, on="k", window=100, how="left"),
        lambda a, b: a.join(b, on="k", window=100, where=pk.left("t") * pk.right("t") >= 0),
        lambda a, b: a.join(b, window=100, where=pk.left("t") >= pk.right("t")),
    ],
)
def test_pairs_are_made_as_they_are_taken(query, monkeypatch) -> None:
    """An aggregate over a join holds a part of its pairs at a time."""
    made, most = [], 5000
    for module in (algorithm_pairs, results):
        monkeypatch.setattr(module, "MOST_PAIRS", most)
    monkeypatch.setattr(results.JoinShape, "_batch", watched(results.JoinShape._batch, made))
    rows = pa.table({"t": np.arange(100).repeat(30), "k": np.zeros(3000, np.int64)})
    sides = (pk.from_arrow(rows, time="t", name=name) for name in "ab")
    totals = query(*sides).window(100).agg(n=pk.count(), s=pk.sum(pk.col("t") * pk.col("t_right")))
    (row,) = totals.collect().to_pylist()
    assert row["n"] == sum(made) > 100 * most
    assert max(made) <= most + 3000  # a left row's pairs stay together


def watched(batch, made):
    def noting(self, results, *rest):
        made.append(len(results))
        return batch(self, results, *rest)

    return noting
