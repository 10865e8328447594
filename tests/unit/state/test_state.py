"""The saved form depends on the rows and the query, not on how an engine happens to hold them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pk
from penstock.algorithms.hash_table.keys import DenseKeys, HashKeys
from penstock.operators.pane_aggregate.stage import WindowStage
from tests.restarts import ENGINES

SCHEMA = pa.schema({"t": pa.int64(), "k": pa.string(), "n": pa.int64(), "v": pa.int64(), "x": pa.float64()})
EVENTS = pk.stream("events", SCHEMA, time="t", lateness=4)
EXACT = {
    "s": pk.sum("v"),
    "c": pk.count("v"),
    "m": pk.mean("x"),  # of halves: exact
    "w": pk.sum("n", where=pk.col("v") > 1),
    "least": pk.min("k"),
    "first": pk.first("x"),
    "l": pk.max_by("n", "v"),
}
QUERIES: dict[str, Any] = {
    "by text": EVENTS.window(10, every=5, by="k").agg(**EXACT),
    "by number": EVENTS.window(10, by="n").agg(**EXACT),
    "by both": EVENTS.window(7, every=3, by=["n", "k"]).agg(**EXACT),
    "by nothing": EVENTS.window(10, every=4).agg(**EXACT),
    "twice": EVENTS.window(3, by="k").agg(s=pk.sum("v")).window(9, by="k").agg(s=pk.sum("s")),
    "sessions": EVENTS.window(pk.session(3), by="k").agg(m=pk.median("v")),
    "medians": EVENTS.window(10, every=5, by="k").agg(m=pk.median("v")),
    "medians with gaps": EVENTS.window(pk.sliding(3, every=7)).agg(m=pk.median("v")),
    "a join": EVENTS.join(EVENTS.filter(pk.col("n") > 0), on="k", window=10),
    "a look-back": EVENTS.rolling(5).agg(m=pk.median("v")),
    "distinct": EVENTS.distinct(["k", "n"]),
}
VALUES: dict[str, list[Any]] = {
    "k": ["a", "b", "c", None],
    "n": [0, 3, 10**12, None],
    "v": [1, -2, 2**58, None],
    "x": [0.5, -1.0, 4.0, None],
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Draw rows, no two of one time: the order of equal times in another key's rows is an engine's own affair."""
    size = draw(st.integers(1, 40))
    nulls = draw(st.booleans())
    columns = {
        name: [draw(st.sampled_from([v for v in values if nulls or v is not None])) for _ in range(size)]
        for name, values in VALUES.items()
    }
    times = [row + draw(st.integers(-3, 0)) * 2 for row in range(0, 2 * size, 2)]
    columns["t"] = list(dict.fromkeys(times + list(range(1000, 1000 + size))))[:size]
    return pa.table(columns, schema=SCHEMA)


def state_of(query: Any, batches: list[pa.RecordBatch], engine: pk.Engine) -> dict[str, bytes]:
    """What is saved after batches, all but what counts the batches themselves."""
    live = query.open(engine=engine)
    for batch in batches:
        live.push(batch)
    chunks = live.state().chunks()
    return {name: data for name, data in chunks.items() if name not in ("metrics", "manifest")}


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=6)
@given(rows=tables(), size=st.integers(1, 12), engine=st.sampled_from(sorted(ENGINES)))
def test_any_engine_and_any_split_into_batches_save_the_same_bytes(
    name: str, rows: pa.Table, size: int, engine: str
) -> None:
    query = QUERIES[name]
    whole = state_of(query, rows.to_batches(), pk.Engine(threads=1))
    assert state_of(query, rows.to_batches(max_chunksize=size), ENGINES[engine]) == whole


def stage_of(live: Any) -> WindowStage:
    (stage,) = (stage for stage in live._session._stages.values() if isinstance(stage, WindowStage))
    return stage


def batch(**columns: list[Any]) -> pa.RecordBatch:
    size = len(columns["t"])
    rest = {"k": ["a"] * size, "n": [1] * size, "v": [1] * size, "x": [0.5] * size}
    return pa.RecordBatch.from_pydict(rest | columns, schema=SCHEMA)


def test_a_run_taken_up_speculates_as_the_one_before_did() -> None:
    """Numbers in a small range, no nulls, small sums: what is saved is general, what goes on is not."""
    query = QUERIES["by number"]
    live = query.open()
    live.push(batch(t=[1, 2, 3], n=[5, 6, 9]))
    (held,) = stage_of(query.open(state=live.state())).workers
    assert held.table is not None
    assert isinstance(held.table.keys, DenseKeys)
    assert not held.table.wide
    assert held.nullable == frozenset()


def test_a_run_taken_up_remembers_what_it_must_not_assume() -> None:
    query = QUERIES["by number"]
    live = query.open()
    big = 2**63 - 1
    live.push(batch(t=[1, 2, 3], n=[5, 5, 10**15], v=[big, big, None]))
    (held,) = stage_of(query.open(state=live.state())).workers
    assert held.table is not None
    assert isinstance(held.table.keys, HashKeys)
    assert held.table.wide
    assert held.nullable == {"v"}


def test_pairs_that_fill_little_of_a_grid_are_taken_up_as_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.operators.pane_aggregate.state.LARGE_GRID", 1 << 12)
    monkeypatch.setattr("penstock.operators.pane_aggregate.table.LARGE_GRID", 1 << 12)
    rows = batch(t=[10 * row for row in range(50)], k=[f"key {row}" for row in range(50)])
    patient = pk.stream("events", SCHEMA, time="t", lateness=10_000).window(10, by="k").agg(**EXACT)
    live = patient.open()
    live.push(rows)
    again = patient.open(state=live.state())
    (held,) = stage_of(again).workers
    assert held.sparse
    assert again.state() == live.state()
    assert pa.Table.from_batches(again.finish()) == pa.Table.from_batches(live.finish())
