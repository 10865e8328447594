"""The native batch reader: addresses of columns, and the watermark after a batch, as NumPy finds them."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codegen.batch_reader import BATCH_READER
from penstock.runtime.buffers import FIRST_COLUMN, ColumnLayout, values_view
from penstock.types.time import Time

LEAST, MOST = -(1 << 63), (1 << 63) - 1
TIMES = st.lists(
    st.integers(-50, 50) | st.sampled_from([LEAST, LEAST + 1, MOST - 1, MOST]), min_size=1, max_size=40
)
TIME = Time("t", pa.int64(), None)


def layout_of(batch: pa.RecordBatch, lateness: int = 0) -> ColumnLayout:
    return ColumnLayout.of(batch.schema, TIME, lateness)


@given(TIMES, st.booleans(), st.integers(0, 60), st.integers(-60, 60) | st.just(LEAST))
def test_the_watermark_follows_every_row(times: list[int], ordered: bool, lateness: int, before: int) -> None:
    times = sorted(times) if ordered else times
    mark, behind = before, False
    for time in times:
        mark = max(mark, time - lateness)
        behind |= time < mark
    batch = pa.record_batch({"t": pa.array(times, pa.int64())})
    found = layout_of(batch, lateness).read(batch, before, BATCH_READER)
    assert (found is None) == behind
    if found is not None:
        assert found.watermark == min(mark, MOST - 1)


COLUMNS: dict[str, Any] = {
    "int32": pa.array(range(20), pa.int32()),
    "float": pa.array([n / 3 for n in range(20)]),
    "date": pa.array(range(20), pa.int32()).cast(pa.date32()),
    "no nulls in the slice": pa.array([None] * 5 + [1] * 15, pa.int16()),
    "nulls": pa.array([1] * 10 + [None] * 10, pa.int16()),
    "text": pa.array([f"text {n}" for n in range(20)]),
    "codes": pa.array(["a", "b"] * 10).dictionary_encode(),
    "flags": pa.array([True, False] * 10),
    "decimal": pa.array(range(20)).cast(pa.decimal128(30)),
    "list": pa.array([[n] for n in range(20)]),
    "nothing": pa.nulls(20),
}
READ = {"int32", "float", "date"}


@pytest.mark.parametrize(("begin", "rows"), [(0, 20), (5, 9), (19, 1)])
def test_addresses_are_those_of_the_values(begin: int, rows: int) -> None:
    batch = pa.record_batch({"t": pa.array(range(20)), **COLUMNS}).slice(begin, rows)
    layout = layout_of(batch)
    found = layout.read(batch, LEAST, BATCH_READER)
    assert found is not None
    for place, name in enumerate(batch.schema.names):
        word, column = found.words[FIRST_COLUMN + place], batch.column(name)
        assert (word != 0) or name not in READ
        assert (word == 0) == (column.null_count > 0)
        if word > 1:
            assert word == values_view(column).__array_interface__["data"][0]
            assert column.null_count == 0
            assert layout.places((name,)) == [FIRST_COLUMN + place]
    assert layout.places(("t", "text")) is layout.places(("missing",)) is None


def test_times_that_hold_nulls_or_are_not_there_are_left_to_python() -> None:
    whole = pa.record_batch({"t": pa.array([1, None, 3])})
    assert layout_of(whole).read(whole, LEAST, BATCH_READER) is None
    empty = whole.slice(0, 0)
    assert layout_of(empty).read(empty, LEAST, BATCH_READER) is None
    narrow = pa.record_batch({"t": pa.array([1], pa.int32())})
    assert layout_of(narrow).plan is None
    twice = pa.record_batch([pa.array([1]), pa.array([2])], names=["t", "t"])
    assert layout_of(twice).plan is None


def test_a_batch_lives_as_long_as_without_the_reader() -> None:
    before = pa.total_allocated_bytes()
    batch = pa.record_batch(
        {"t": pa.array(np.arange(100_000)).cast(pa.int64()).take(pa.array(range(100_000)))}
    )
    layout, words = layout_of(batch), array("q", [LEAST, 0, 0])
    assert layout.plan is not None
    for _ in range(10):
        assert BATCH_READER(batch, layout.plan, words)
    assert pa.total_allocated_bytes() > before
    del batch
    assert pa.total_allocated_bytes() == before, "the exported struct is released"
