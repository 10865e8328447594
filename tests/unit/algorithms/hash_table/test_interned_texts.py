"""Texts that no state refers to are let go, and no answer changes."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import penstock as pk
from penstock.algorithms.hash_table.keys import Interner
from penstock.operators.pane_aggregate import worker
from penstock.operators.pane_aggregate.stage import WindowStage
from penstock.operators.pane_aggregate.table import PaneTable
from penstock.operators.rows import stage as row_stage
from penstock.operators.rows.stage import RowsStage

MOST = 4_000  # bytes
PUSHES, ROWS = 60, 50

DICTIONARY = pa.dictionary(pa.int32(), pa.string())
QUERIES: dict[str, tuple[str | pa.DataType, Callable[[pk.Stream], pk.Stream]]] = {
    "filtered": (DICTIONARY, lambda s: s.filter((pk.col("u") != "u7") & (pk.col("v") > 2))),
    "filtered in a long window": (
        DICTIONARY,
        lambda s: s.filter(pk.col("u") != "u7").window(1_000_000, by="v").agg(n=pk.count()),
    ),
    "least of windows": ("string", lambda s: s.window(100, every=20).agg(low=pk.min("u"), high=pk.max("u"))),
    "least of one window": ("string", lambda s: s.window(1_000_000).agg(low=pk.min("u"))),
    "least by keys": ("string", lambda s: s.window(75, every=25, by="v").agg(low=pk.min("u"))),
    "by texts": ("string", lambda s: s.window(75, every=25, by="u").agg(n=pk.count())),
    "by texts and numbers": (DICTIONARY, lambda s: s.window(70, every=10, by=["u", "v"]).agg(n=pk.count())),
    "of texts by texts": ("string", lambda s: s.window(60, every=20, by="w").agg(low=pk.max("u"))),
}


def batch(push: int, kind: str | pa.DataType) -> pa.RecordBatch:
    """Texts that come once, but for some that come back."""
    times = list(range(push * ROWS, (push + 1) * ROWS))
    texts = pa.array([None if t % 11 == 0 else f"u{t if t % 5 else t % 25}" for t in times])
    return pa.record_batch(
        {
            "t": pa.array(times, pa.int64()),
            "u": texts if kind == "string" else texts.dictionary_encode(),
            "v": pa.array([t % 4 for t in times], pa.int64()),
            "w": pa.array([f"w{t % 3}" for t in times]),
        }
    )


def held(live: pk.LiveQuery) -> list[Interner]:
    found: list[Interner] = []
    for stage in live._session._stages.values():
        if isinstance(stage, RowsStage):
            found += stage.interners.values()
        if isinstance(stage, WindowStage):
            found += [texts for fold_worker in stage.workers for texts in fold_worker.interners.values()]
    return found


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("which", QUERIES)
def test_texts_of_the_past_are_let_go(which: str, sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, build = QUERIES[which]
    schema = {"t": "int64", "u": kind, "v": "int64", "w": "string"}
    query = build(pk.stream("s", schema, time="t", lateness=0))
    batches = [batch(push, kind) for push in range(PUSHES)]
    wanted = query.collect(s=pa.Table.from_batches(batches))
    for module in (row_stage, worker):
        monkeypatch.setattr(module, "MOST_TEXT", MOST)
    monkeypatch.setattr(PaneTable, "nbytes", 0)
    if sparse:
        monkeypatch.setattr(PaneTable, "too_empty", property(lambda table: not table.sparse))
    found: list[pa.RecordBatch] = []
    with query.open(engine=pk.Engine(threads=1)) as live:
        for given in batches:
            found += live.push(s=given)
            # What is in use, as much again, and what one push may add.
            assert all(texts.nbytes < 6 * MOST for texts in held(live))
        found += live.finish()
    got = pa.Table.from_batches(found, schema=query.schema)
    assert sorted(map(repr, got.to_pylist())) == sorted(map(repr, wanted.to_pylist()))
