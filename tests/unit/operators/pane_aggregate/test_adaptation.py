"""A running aggregation takes up narrower variants again, and its answers stay what they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.operators.pane_aggregate.adaptation import PaneAdaptation
from penstock.operators.pane_aggregate.stage import WindowStage
from penstock.physical.nodes import FilterOrder
from penstock.physical.profile import Profile
from penstock.runtime.adapt.controller import Policy
from penstock.runtime.session import Session
from penstock.runtime.stage import TimedBatch

STREAM = pk.stream("rows", {"t": "int64", "k": "int64", "f": "int64", "v": "int64"}, time="t")
QUERY = (
    STREAM.filter((pk.col("f") < 5) & (pk.col("v") > 2))
    .window(1_000, by="k")
    .agg(n=pk.count(), s=pk.sum("v"))
)
MEANS = STREAM.window(1_000, by="k").agg(m=pk.mean("v"), n=pk.count("v"), low=pk.min("v"), all=pk.count())
# Each task is profiled at once, and nothing waits for another thread.
EAGER = Policy(patience=0, task=1, every=1, sample=300, wait=1, start=lambda work: work())
ROWS = 600


def batch(number: int, keys: np.ndarray, values: pa.Array | np.ndarray | None = None) -> pa.RecordBatch:
    rng = np.random.default_rng(number)
    times = number * ROWS + np.arange(len(keys))
    values = rng.integers(0, 100, len(keys)) if values is None else values
    return pa.record_batch({"t": times, "k": keys, "f": rng.integers(0, 10, len(keys)), "v": values})


def opened(query: pk.Stream, backend: str = "native", policy: Policy = EAGER) -> Session:
    return query.compiled().open(pk.Engine(threads=1, backend=backend), bounded=False, policy=policy)


def run(session: Session, query: pk.Stream, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    columns = query.compiled().columns["rows"]
    made = [out for value in batches for out in session.push("rows", value.select(list(columns)))]
    made += session.finish()
    order = [("window_start", "ascending"), ("k", "ascending")]
    return pa.Table.from_batches(made, session.schema).sort_by(order)


def changes(session: Session) -> list[tuple[str, str, str]]:
    return [
        (adaptation.what, adaptation.before, adaptation.after) for adaptation in session.metrics.adaptations
    ]


def stage_of(session: Session) -> WindowStage:
    (stage,) = (stage for stage in session._stages.values() if isinstance(stage, WindowStage))
    return stage


def apart_then_together() -> list[pa.RecordBatch]:
    rng = np.random.default_rng(5)
    few, far = [rng.integers(0, 50, ROWS) for _ in range(9)], rng.integers(0, 1 << 60, ROWS)
    return [batch(number, far if number == 1 else keys) for number, keys in enumerate(few)]


@pytest.mark.parametrize("backend", ["native", "interpret"])
def test_a_hash_table_becomes_dense_when_the_far_keys_are_gone(backend: str) -> None:
    batches = apart_then_together()
    session = opened(QUERY, backend)
    result = run(session, QUERY, batches)
    assert ("key table", "dense", "hash") in changes(session)
    assert ("key table", "hash", "dense") in changes(session)
    assert result == run(opened(QUERY, policy=Policy()), QUERY, batches)
    assert session.metrics.balanced


def test_wide_sums_become_narrow_when_the_large_ones_are_gone() -> None:
    huge = np.zeros(ROWS, np.int64)
    huge[:3] = [1 << 62, 1 << 62, -(1 << 62)]  # the final sum fits, one on the way does not
    keys = np.arange(ROWS) // 4 % 50
    batches = [batch(number, keys, huge if number == 1 else None) for number in range(8)]
    query = STREAM.window(1_000, by="k").agg(s=pk.sum("v"))
    session = opened(query)
    result = run(session, query, batches)
    assert ("sums", "64 bits", "128 bits") in changes(session)
    assert ("sums", "128 bits", "64 bits") in changes(session)
    assert result == run(opened(query, policy=Policy()), query, batches)


@pytest.mark.parametrize("query", [QUERY, MEANS], ids=["sums", "means"])
def test_null_flags_go_when_nulls_are_gone_and_come_back(query: pk.Stream) -> None:
    rng = np.random.default_rng(7)

    def values(number: int) -> pa.Array:
        there = pa.array(rng.integers(0, 100, ROWS))
        null = np.arange(ROWS) % 7 == 0
        return pa.array(there.to_numpy(), mask=null) if number in (1, 2, 9) else there

    keys = np.arange(ROWS) % 20
    batches = [batch(number, keys, values(number)) for number in range(12)]
    session = opened(query)
    result = run(session, query, batches)
    flags = [(before, after) for what, before, after in changes(session) if what == "null flags"]
    assert flags[:3] == [("none", "v"), ("v", "none"), ("none", "v")]
    assert result == run(opened(query, policy=Policy()), query, batches)


def test_oscillation_ends() -> None:
    rng = np.random.default_rng(3)
    near, far = rng.integers(0, 50, ROWS), rng.integers(0, 1 << 60, ROWS)
    policy = Policy(patience=0, task=1, every=1, sample=300, wait=2 * ROWS, start=lambda work: work())
    session = opened(QUERY, policy=policy)
    run(session, QUERY, [batch(2 * number, far if number % 4 == 1 else near) for number in range(200)])
    assert 4 <= len(changes(session)) <= 16


def test_pinned_choices_are_left_alone() -> None:
    session = opened(QUERY)
    stage_of(session).adaptation.pinned = frozenset({"key table"})
    run(session, QUERY, apart_then_together())
    assert ("key table", "hash", "dense") not in changes(session)


def test_without_adaptation_nothing_is_recorded() -> None:
    engine = pk.Engine(threads=1, adaptive=False)
    session = QUERY.compiled().open(engine, bounded=False, policy=EAGER)
    result = run(session, QUERY, apart_then_together())
    assert session.metrics.adaptations == []
    assert result == run(opened(QUERY), QUERY, apart_then_together())


# --- the order of the filter ----------------------------------------------------------------------------

CONDITIONS = (pk.col("f") < 5) & (pk.col("v") > 2) & (pk.col("k") != 7) & (pk.col("t") % 3 != 0)
FILTERS = {
    "keyed": STREAM.filter(CONDITIONS).window(1_000, by="k").agg(n=pk.count(), s=pk.sum("v"), m=pk.mean("v")),
    "overlapping": STREAM.filter(CONDITIONS).window(1_000, every=400, by="k").agg(s=pk.sum("v")),
    "without keys": STREAM.filter(CONDITIONS).window(1_000).agg(s=pk.sum("v"), k=pk.max("k")),
}
ORDERS: list[FilterOrder] = [((0, 1, 2, 3),), ((3,), (0,), (2,), (1,)), ((2, 1), (0, 3)), ((1,), (0, 2, 3))]


@pytest.mark.parametrize("backend", ["native", "interpret"])
@pytest.mark.parametrize("name", FILTERS)
def test_any_order_of_conjuncts_keeps_the_same_rows(name: str, backend: str) -> None:
    query, rng = FILTERS[name], np.random.default_rng(8)
    batches = [batch(number, rng.integers(0, 20, ROWS)) for number in range(3)]
    results = []
    for order in (None, *ORDERS):
        session = opened(query, backend, Policy())
        stage_of(session).workers[0].order = order
        results.append(answer(session, query, batches))
        assert session.metrics.balanced
    assert all(result == results[0] for result in results)
    assert results[0][0].num_rows


def answer(
    session: Session, query: pk.Stream, batches: Sequence[pa.RecordBatch]
) -> tuple[pa.Table, dict[str, int]]:
    """The result, in an order of rows that does not depend on the kernel, and the counts."""
    made = session.push("rows", *(part.select(list(query.compiled().columns["rows"])) for part in batches))
    table = pa.Table.from_batches([*made, *session.finish()], session.schema)
    order = [(name, "ascending") for name in table.column_names]
    return table.sort_by(order), session.metrics.counts


def test_the_order_follows_what_the_rows_pass() -> None:
    query = STREAM.filter((pk.col("f") >= 5) & (pk.col("v") >= 5)).window(1_000, by="k").agg(n=pk.count())
    full, empty = np.full(ROWS, 9), np.zeros(ROWS, np.int64)
    keys = np.arange(ROWS) % 20

    def rows(number: int) -> pa.RecordBatch:
        f, v = (full, empty) if number < 8 else (empty, full)
        return batch(number, keys, v).set_column(2, "f", pa.array(f))

    batches = [rows(number) for number in range(16)]
    session = opened(query)
    result = run(session, query, batches)
    orders = [(before, after) for what, before, after in changes(session) if what == "filter order"]
    assert orders == [("all at once", "1, then 0"), ("1, then 0", "0, then 1")]
    assert result == run(opened(query, policy=Policy()), query, batches)


# --- runs of a key --------------------------------------------------------------------------------------

RUN_QUERIES = {
    "integers": STREAM.filter(pk.col("t") % 100 > 10).window(1_000, by="k").agg(n=pk.count(), s=pk.sum("v")),
    "floats": STREAM.window(1_000, by="k").agg(m=pk.mean("v"), var=pk.var("v"), low=pk.min("v")),
    "two keys": STREAM.window(1_000, by=["k", "f"]).agg(hi=pk.max("v"), first=pk.first("v")),
    "a key computed": STREAM.with_columns(j=pk.col("k") % 3)
    .window(1_000, by="j")
    .agg(s=pk.sum("v"), n=pk.count()),
}


@pytest.mark.parametrize("table", ["dense", "hash"])
@pytest.mark.parametrize(
    ("name", "backend"), [("integers", "interpret"), *((name, "native") for name in RUN_QUERIES)]
)
def test_runs_of_a_key_add_up_to_the_same_bits(name: str, backend: str, table: str) -> None:
    query, rng = RUN_QUERIES[name], np.random.default_rng(4)
    huge = rng.integers(0, 100, ROWS)
    huge[40:43] = [1 << 62, 1 << 62, -(1 << 62)]  # a sum leaves 64 bits on the way, and comes back
    values = [None, pa.array(np.arange(ROWS), mask=np.arange(ROWS) % 5 == 0), huge]
    keys = [np.arange(ROWS) // 9 % 7, np.arange(ROWS) // 30 * 1_000, np.arange(ROWS) // 4 % 3]
    batches = [batch(number, keys[number], values[number]) for number in range(3)]
    nulls = pa.array(keys[0], mask=np.arange(ROWS) % 40 < 20)
    batches.append(batch(3, keys[0]).set_column(1, "k", nulls))
    results = []
    for way in ("row by row", "run by run"):
        engine = pk.Engine(threads=1, backend=backend, assume={"addition": way, "key table": table})
        session = query.compiled().open(engine, bounded=False, policy=Policy())
        results.append(answer(session, query, batches))
        assert session.metrics.balanced
    assert results[0] == results[1]
    assert results[0][0].num_rows


def test_additions_follow_the_runs_of_keys() -> None:
    query = STREAM.window(1_000, by="k").agg(n=pk.count(), s=pk.sum("v"))
    sorted_keys, mixed = np.arange(ROWS) // 50 % 20, np.arange(ROWS) % 20
    batches = [batch(number, sorted_keys if number < 8 else mixed) for number in range(16)]
    session = opened(query)
    result = run(session, query, batches)
    found = [(before, after) for what, before, after in changes(session) if what == "addition"]
    assert found == [("row by row", "run by run"), ("run by run", "row by row")]
    assert result == run(opened(query, policy=Policy()), query, batches)


# --- the profile ----------------------------------------------------------------------------------------


def profile_of(rows: pa.RecordBatch, backend: str) -> Profile:
    """Fold a batch with the instrumented kernel of a run that has begun."""
    session = opened(QUERY, backend, Policy())
    columns = list(QUERY.compiled().columns["rows"])
    session.push("rows", batch(0, rows.column("k").to_numpy()[:50]).select(columns))
    stage = stage_of(session)
    adaptation = PaneAdaptation(stage.program, stage.controller, 1)
    return adaptation._profile(stage.workers[0], TimedBatch(rows.select(columns)))


@pytest.mark.parametrize("backend", ["native", "interpret"])
def test_the_instrumented_kernel_counts_what_a_plain_count_finds(backend: str) -> None:
    rng = np.random.default_rng(1)
    keys = np.where(rng.random(900) < 0.6, 321, rng.integers(0, 1_000, 900))
    rows = batch(1, keys)
    times = rows.column("t").to_numpy().copy()
    times[100:105] = times[100:105][::-1]
    rows = rows.set_column(0, "t", pa.array(times))
    found = profile_of(rows, backend)
    f, v = (rows.column(name).to_numpy() for name in ("f", "v"))
    first, second = f < 5, v > 2
    kept = keys[first & second]
    assert found.rows == 900
    assert sorted(conjunct.alone for conjunct in found.conjuncts) == sorted([first.sum(), second.sum()])
    assert found.conjuncts[1].after == len(kept)
    assert sum(found.masks) == 900 and found.masks[3] == len(kept)
    assert found.conjuncts[0].after == found.conjuncts[0].alone
    assert found.keys == ((kept.min(), kept.max()),)
    assert sum(found.histogram) == len(kept)
    assert [word for word, _ in found.hitters] == [321]
    assert found.skew == pytest.approx((kept == 321).mean(), abs=0.05)
    assert found.distinct == pytest.approx(len(set(kept.tolist())), rel=0.25)
    assert found.disorder == 4
    assert found.runs == 1 + np.count_nonzero(np.diff(kept))
