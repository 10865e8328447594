"""Chunks: every row in one of them, none too large, and only those touched that hold a key that changed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.state.chunks import MOST_CHUNK_BYTES, cut
from penstock.state.state_table import StateTable, key_hashes

KEYS = {
    "texts": st.sampled_from(["", "a", "b", "aa", "ab", "longer", None]),
    "numbers": st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), None]),
}
TYPES = {"texts": pa.large_string(), "numbers": pa.int64()}


@st.composite
def kept(draw: st.DrawFn) -> StateTable:
    """Draw rows with keys, with times, with both or with neither; each row is another."""
    size = draw(st.integers(0, 40))
    keys = draw(st.sampled_from([(), ("texts",), ("numbers",), ("texts", "numbers")]))
    arrays = {name: pa.array([draw(KEYS[name]) for _ in range(size)], TYPES[name]) for name in keys}
    ranks = draw(st.sampled_from([("time", "place"), ("place",)]))
    arrays["time"] = pa.array(
        [draw(st.sampled_from([0, 1, 5, -7, 2**63 - 1])) for _ in range(size)], pa.int64()
    )
    arrays["place"] = pa.array(range(size), pa.int64())
    return StateTable(pa.table(arrays), keys, ranks)


def rows_of(table: pa.Table) -> list[str]:
    return [repr(row) for row in table.to_pylist()]


@given(kept(), st.integers(1, 400))
def test_chunks_hold_each_row_once_in_order_and_are_small(given_rows: StateTable, most: int) -> None:
    chunks = cut(given_rows, most)
    assert sorted(row for chunk in chunks.values() for row in rows_of(chunk)) == sorted(
        rows_of(given_rows.table)
    )
    for chunk in chunks.values():
        assert chunk.nbytes <= most or chunk.num_rows == 1 or most < 100, (
            "a part by number is about that large"
        )
        places = [(row["time"], row["place"]) for row in chunk.to_pylist()]
        assert places == sorted(places, key=lambda pair: pair if "time" in given_rows.ranks else pair[1])


@given(kept(), st.integers(50, 400), st.randoms())
def test_chunks_do_not_depend_on_the_order_in_which_rows_are_given(
    given_rows: StateTable, most: int, random
) -> None:
    order = list(range(given_rows.table.num_rows))
    random.shuffle(order)
    other = StateTable(given_rows.table.take(pa.array(order, pa.int64())), given_rows.keys, given_rows.ranks)
    ours, theirs = cut(given_rows, most), cut(other, most)
    assert ours.keys() == theirs.keys()
    assert all(rows_of(ours[name]) == rows_of(theirs[name]) for name in ours)


def test_rows_of_one_key_and_time_are_cut_by_number() -> None:
    table = pa.table({"time": pa.array([7] * 100, pa.int64()), "place": pa.array(range(100), pa.int64())})
    chunks = cut(StateTable(table, (), ("time", "place")), 400)
    assert [name.split(".")[1] for name in chunks] == ["0", "1", "2", "3"]
    assert [chunk["place"][0].as_py() for chunk in chunks.values()] == [0, 25, 50, 75]


def test_hashes_of_keys_are_those_of_every_other_process() -> None:
    """They decide names of chunks: a store that has the old ones would rewrite everything."""
    texts, numbers = pa.array(["a", None, "", "ab"]), pa.array([1, 2, None, -1], pa.int32())
    assert key_hashes([texts]).tolist() == [0x1B4F65970489E17D, 0x29291D2CF77206D2, 0, 0xFD5A5A9CAD7E1179]
    assert f"{key_hashes([texts, numbers])[0]:x}" == "9628e9df773e59a4"
    assert key_hashes([texts.slice(2)]).tolist() == key_hashes([texts]).tolist()[2:]


# --- in a query ---------------------------------------------------------------------------------------------------

MANY = 60_000


def batch(keys: np.ndarray, time: int) -> pa.RecordBatch:
    texts = pa.array([f"customer {key}" for key in keys])
    return pa.RecordBatch.from_arrays(
        [pa.array(np.full(len(keys), time)), texts, pa.array(keys)], ["t", "k", "v"]
    )


EVENTS = pk.stream("events", {"t": "int64", "k": "string", "v": "int64"}, time="t")
LARGE = {
    "panes": EVENTS.window(1000, by="k").agg(s=pk.sum("v"), m=pk.mean("v")),
    "partitions": EVENTS.window(pk.session(1000), by="k").agg(m=pk.median("v")),
    "distinct": EVENTS.distinct("k"),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_few_keys_that_change_touch_a_few_chunks(name: str) -> None:
    query = LARGE[name]
    live = query.open()
    live.push(batch(np.arange(MANY), 1))
    live.push(batch(np.arange(1), 2))
    before = live.state()
    sizes = [len(data) for data in before.chunks().values()]
    assert len(sizes) > 6 and max(sizes) < 1.1 * MOST_CHUNK_BYTES
    live.push(batch(np.array([MANY, 7, 8]), 3))
    live.push(batch(np.array([7]), 4))
    after = live.state()
    changed = after.changes(before)
    assert not changed.deleted
    touched = [name for name in changed.written if name.endswith(("/marks", "manifest", "metrics"))]
    assert 0 < len(changed.written) - len(touched) <= 4
    assert pk.State.from_chunks(before.chunks() | changed.written) == after
    assert query.open(state=after).state() == after


def test_rows_without_keys_are_kept_in_stretches_of_time() -> None:
    query = EVENTS.window(pk.session(10**9)).agg(m=pk.median("v"))
    live = query.open()
    rows = pa.RecordBatch.from_arrays(
        [pa.array(np.arange(MANY)), pa.array(["x"] * MANY), pa.array(np.arange(MANY))], ["t", "k", "v"]
    )
    live.push(rows)
    before = live.state()
    live.push(batch(np.array([5]), MANY))
    changed = live.state().changes(before)
    assert len([name for name in before.chunks() if "/rows" in name]) > 2
    assert len([name for name in changed.written if "/rows" in name]) == 1
