"""What signals keep in `run`: enough for the same answer, and no more than a bound."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk

EVENTS = pk.stream("events", {"t": "int64", "k": "int64", "v": "float64"}, time="t")
LAST = {
    "the last value of a time": EVENTS.signal("v", by="k").rolling(pk.rows(3)).sum(),
    "the sum of a time": EVENTS.signal("v", by="k", resolve="sum").rolling(pk.rows(3)).sum(),
    "of what is computed": (EVENTS.signal("v", by="k") * 2).rolling(pk.rows(3)).sum(),
    "a while ago": EVENTS.signal("v", by="k").rolling(pk.rows(2)).max().shift(7),
}
rows = st.tuples(st.integers(0, 40), st.integers(0, 1), st.none() | st.integers(0, 4).map(float))


def batch(some):
    columns = zip(*some, strict=True)
    return pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, EVENTS.schema, strict=True)], EVENTS.schema
    )


@pytest.mark.parametrize("which", LAST)
@given(st.lists(rows, min_size=1, max_size=40), st.integers(1, 6))
def test_the_last_samples_are_there_in_whatever_batches_they_come(which, some, size):
    table = pa.Table.from_batches([batch(sorted(some, key=lambda row: row[0]))])
    parts = LAST[which].run(iter(table.to_batches(max_chunksize=size)))
    found = [row for part in parts for row in part.to_pylist()]
    assert sorted(found, key=str) == sorted(LAST[which].collect(table).to_pylist(), key=str)


@pytest.mark.parametrize("which", ["the last value of a time", "the sum of a time", "a while ago"])
def test_of_a_column_only_so_many_are_kept(which):
    sizes = []
    with LAST[which].open() as live:
        for second in range(30):
            live.push(batch([(10 * second + i, i % 2, 1.0 * i) for i in range(10)]))
            sizes.append(len(live.state().to_bytes()))
    assert max(sizes[15:]) <= max(sizes[:15])
