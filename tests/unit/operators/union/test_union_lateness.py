"""Two branches of one stream in a union: one watermark, whatever the batches."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_rows_late_in_one_batch_are_late_in_many(rows: int) -> None:
    table = pa.table({"t": pa.array([30, 1, 2, 40, 3]), "v": pa.array([1, 2, 3, 4, 5])})
    events = pk.stream("events", {"t": "int64", "v": "int64"}, time="t", lateness=5)
    both = events.filter(pk.col("v") > 0).union(events).window(9).agg(n=pk.count())
    run = both.run(table.to_batches(max_chunksize=rows))
    found = [(row["window_start"], row["n"]) for batch in run for row in batch.to_pylist()]
    assert found == [(27, 2), (36, 2)]
    assert (run.metrics.read, run.metrics.accepted, run.metrics.late) == (10, 4, 6)
