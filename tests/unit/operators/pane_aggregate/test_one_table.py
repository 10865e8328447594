"""One table that all threads fill gives the answer of a table for each, whatever stops them on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.operators.pane_aggregate.parallel_fold import OneTable, partitions
from penstock.operators.pane_aggregate.stage import WindowStage
from penstock.physical.nodes import Sharing
from penstock.runtime.session import Session
from tests.oracle.effort import effort

SCHEMA = {"t": "int64", "k": "int64", "j": "int32", "v": "int64", "x": "float64"}
STREAM = pk.stream("rows", SCHEMA, time="t")
V = pk.col("v")
INTEGERS = {
    "sums": STREAM.window(1_000, by="k").agg(s=pk.sum("v"), n=pk.count()),
    "presence": STREAM.window(1_000, by="k").agg(s=pk.sum("v")),
    "extremes": STREAM.window(1_000, by="k").agg(low=pk.min("v"), high=pk.max("v"), mean=pk.mean("v")),
    "a filter": STREAM.filter((V > 10) & (V % 7 != 0))
    .window(1_000, by="k")
    .agg(s=pk.sum("v"), n=pk.count("v")),
    "conditions": STREAM.window(1_000, by="k").agg(n=pk.count(where=V > 50), s=pk.sum("v", where=V < 50)),
    "two keys": STREAM.window(1_000, by=["j", "k"]).agg(s=pk.sum("v"), high=pk.max("v")),
    "overlapping windows": STREAM.window(900, every=300, by="k").agg(s=pk.sum("v"), n=pk.count()),
}
FLOATS = {
    "float sums": STREAM.window(1_000, by="k").agg(s=pk.sum("x"), v=pk.var("x")),
    "first and last": STREAM.window(1_000, by="k").agg(a=pk.first("v"), b=pk.last("x"), n=pk.count()),
}
QUERIES = {**INTEGERS, **FLOATS}
PLAIN = pk.Engine(threads=1, backend="interpret")


def batch(rows: int, seed: int, keys: int = 40, span: int = 2_500) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    return pa.record_batch(
        {
            "t": np.sort(rng.integers(0, span, rows)) + seed * span,
            "k": rng.integers(0, keys, rows),
            "j": rng.integers(-2, 3, rows, dtype=np.int32),
            "v": rng.integers(-20, 100, rows),
            "x": rng.random(rows) * 1e6,
        }
    )


def stage_of(session: Session) -> WindowStage:
    (stage,) = (stage for stage in session._stages.values() if isinstance(stage, WindowStage))
    return stage


def answer(
    query: Any,
    batches: Sequence[pa.RecordBatch],
    sharing: Sharing | None,
    backend: str = "native",
    threads: int = 3,
) -> tuple[pa.Table, dict[str, int]]:
    """The result and the counts; `sharing` None: of one interpreted thread."""
    engine = PLAIN if sharing is None else pk.Engine(threads=threads, task_bytes=512, backend=backend)
    session = query.compiled().open(engine, bounded=False)
    if sharing is not None:
        stage = stage_of(session)
        stage._shares, stage.workers[0].sharing = True, sharing
    columns = list(query.compiled().columns["rows"])
    made = [out for part in batches for out in session.push("rows", part.select(columns))]
    table = pa.Table.from_batches([*made, *session.finish()], session.schema)
    keys = [name for name in ("window_start", "j", "k") if name in table.column_names]
    assert session.metrics.balanced
    return table.sort_by([(name, "ascending") for name in keys]), session.metrics.counts


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How batches went into one table."""
    seen: list[str] = []
    fold = OneTable.fold

    def recorded(self: OneTable) -> None:
        seen.append(self.sharing)
        fold(self)

    monkeypatch.setattr(OneTable, "fold", recorded)
    return seen


@pytest.mark.parametrize("backend", ["native", "interpret"])
@pytest.mark.parametrize(
    ("name", "sharing"),
    [*((name, "partitioned") for name in QUERIES), *((name, "shared") for name in INTEGERS)],
)
def test_one_table_gives_the_same_bits(name: str, sharing: Sharing, backend: str, folded: list[str]) -> None:
    batches = [batch(150, seed) for seed in range(3)]
    found = answer(QUERIES[name], batches, sharing, backend)
    assert folded == [sharing] * 3
    assert found == answer(QUERIES[name], batches, None)


def replaced(rows: pa.RecordBatch, **columns: Any) -> pa.RecordBatch:
    for name, values in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(values))
    return rows


def hard_batches() -> dict[str, list[pa.RecordBatch]]:
    """Batches that break what the table assumes, in the middle."""
    plain, later = batch(200, 0), batch(200, 2)
    numbers = np.arange(200)
    return {
        "keys beyond the range": [plain, replaced(batch(200, 1), k=numbers * 3), later],
        "keys far apart": [plain, replaced(batch(200, 1), k=numbers * 10**12), later],
        "negative keys": [plain, replaced(batch(200, 1), k=-numbers), later],
        "large values": [plain, replaced(batch(200, 1), v=np.where(numbers % 9, 5, 1 << 50)), later],
        "sums beyond 64 bits on the way": [
            plain,
            replaced(batch(200, 1), k=numbers // 2 % 40, v=np.where(numbers % 2, -(1 << 62), 1 << 62)),
            later,
        ],
        "null keys": [plain, replaced(batch(200, 1), k=pa.array(numbers % 40, mask=numbers % 5 == 0)), later],
        "null values": [plain, replaced(batch(200, 1), v=pa.array(numbers, mask=numbers % 3 == 0)), later],
        "many panes": [
            replaced(plain, t=numbers * 400),
            replaced(batch(200, 1), t=numbers * 900 + 400 * 200),
        ],
        "times out of order": [replaced(plain, t=plain["t"].to_numpy()[::-1].copy()), later],
        "one row": [plain.slice(0, 1), plain.slice(1, 1), plain.slice(2)],
        "one key": [replaced(rows, k=np.full(200, 5)) for rows in (plain, later)],
    }


HARD = hard_batches()


@pytest.mark.parametrize("sharing", ["partitioned", "shared"])
@pytest.mark.parametrize("name", ["a filter", "two keys"])
@pytest.mark.parametrize("rows", HARD)
def test_what_stops_threads_changes_no_answer(rows: str, name: str, sharing: Sharing) -> None:
    query, batches = INTEGERS[name], HARD[rows]
    assert outcome(query, batches, sharing) == outcome(query, batches, None)


def outcome(query: Any, batches: Sequence[pa.RecordBatch], sharing: Sharing | None) -> object:
    """The answer, or that a result does not fit 64 bits."""
    try:
        return answer(query, batches, sharing, threads=2)
    except pk.OverflowError:
        return "overflow"


def test_a_shared_sum_near_64_bits_makes_tables_private() -> None:
    session = INTEGERS["sums"].compiled().open(pk.Engine(threads=2, task_bytes=512), bounded=False)
    stage = stage_of(session)
    stage._shares, stage.workers[0].sharing = True, "shared"
    for extreme_batch in HARD["large values"]:
        session.push("rows", extreme_batch.select(list(INTEGERS["sums"].compiled().columns["rows"])))
    (change,) = (
        adaptation for adaptation in session.metrics.adaptations if adaptation.what == "key table shared"
    )
    assert (change.before, change.after) == ("shared", "private")


@effort(12)
@given(st.data())
def test_any_rows_in_any_split(data: st.DataObject) -> None:
    query = QUERIES[data.draw(st.sampled_from(sorted(QUERIES)))]
    ways = ["partitioned"] if query in FLOATS.values() else ["partitioned", "shared"]
    sizes = data.draw(st.lists(st.integers(1, 120), min_size=1, max_size=4))
    keys = data.draw(st.sampled_from([1, 7, 1_000]))
    batches = [
        batch(rows, seed, keys, data.draw(st.sampled_from([5, 900, 20_000])))
        for seed, rows in enumerate(sizes)
    ]
    way = data.draw(st.sampled_from(ways))
    threads = data.draw(st.integers(2, 4))
    assert answer(query, batches, way, threads=threads) == answer(query, batches, None)


@given(st.integers(1, 9), st.integers(-50, 50), st.integers(2, 100))
def test_every_key_has_one_owner(threads: int, base: int, size: int) -> None:
    from penstock.algorithms.hash_table.keys import DenseKeys

    parts = partitions(DenseKeys((base,), (size,)), 1, [1 / threads] * threads)
    for word in (-(1 << 63), base - 1, base, base + size // 2, base + size - 2, (1 << 63) - 1):
        assert sum(part.own["own_low"] <= word <= part.own["own_high"] for part in parts) == 1


@pytest.mark.parametrize("sharing", ["partitioned", "shared"])
def test_batches_behind_one_with_keys_far_apart_go_into_the_hash_table(sharing: Sharing) -> None:
    near, far, later = batch(400, 0), batch(400, 1), batch(400, 2)
    keys = far["k"].to_numpy().copy()
    keys[200:] = np.arange(200) << 50
    far = far.set_column(1, "k", pa.array(keys))
    query = INTEGERS["sums"]
    expected, counts = answer(query, [near, far, later], None)
    session = query.compiled().open(pk.Engine(threads=3, task_bytes=512), bounded=False)
    stage = stage_of(session)
    stage._shares, stage.workers[0].sharing = True, sharing
    columns = list(query.compiled().columns["rows"])
    made = session.push("rows", *(part.select(columns) for part in (near, far, later)))
    found = pa.Table.from_batches([*made, *session.finish()], session.schema)
    assert found.sort_by([("window_start", "ascending"), ("k", "ascending")]).equals(expected)
    assert {**session.metrics.counts, "batches": 0} == {**counts, "batches": 0}
