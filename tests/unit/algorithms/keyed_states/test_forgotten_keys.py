"""Keys that come and go: what a running query remembers follows the open windows, and results stay right."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as pk

KEYS = 9_000
STREAM = pk.stream("s", {"t": "int64", "k": "string", "v": "int64"}, time="t")
QUERIES: dict[str, Any] = {
    "session": STREAM.window(pk.session(5), by="k").agg(s=pk.sum("v")),
    "rows": STREAM.window(pk.rows(2), by="k").agg(s=pk.sum("v")),
    "span": STREAM.rolling(5, by="k").agg(s=pk.sum("v"), hi=pk.max("v")),
}


def batches() -> list[pa.RecordBatch]:
    """Two rows of each key, one soon after the other; a key never comes again."""
    found = []
    for begin in range(0, KEYS, 100):
        keys = [f"k{begin + index // 2}" for index in range(200)]
        times = [10 * begin + index for index in range(200)]
        found.append(pa.record_batch({"t": times, "k": keys, "v": times}))
        found[-1] = found[-1].cast(pa.schema({"t": pa.int64(), "k": pa.string(), "v": pa.int64()}))
    return found


def tables(live: Any) -> list[Any]:
    """The tables of states per key of an open query's stages."""
    stages = live._session._stages.values()
    holders = [holder for stage in stages for holder in getattr(stage, "spans", [stage])]
    return [holder.table for holder in holders if hasattr(holder, "table")]


@pytest.mark.parametrize("name", QUERIES)
def test_keys_without_a_state_are_forgotten(name: str) -> None:
    query = QUERIES[name]
    live, made, most = query.open(), [], 0
    for batch in batches():
        made += live.push(batch)
        (table,) = tables(live)
        most = max(most, len(table.directory))
        assert len(table.directory.interners["k"]) == len(table.directory)
    made += live.finish()
    rows = [row for batch in made for row in batch.to_pylist()]
    whole = query.collect(pa.Table.from_batches(batches())).to_pylist()
    assert sorted(map(repr, rows)) == sorted(map(repr, whole))
    assert most < KEYS // 2
