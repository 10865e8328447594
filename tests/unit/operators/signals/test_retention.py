"""What signals keep in `run`: enough for the same answer, and no more than a bound."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pk
from penstock.operators.signals.incremental.samples import SEVERAL
from penstock.operators.signals.incremental.stage import IncrementalSignals
from penstock.operators.signals.stage import SignalStage

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


COMING = pk.stream("events", {"t": "int64", "k": "string", "e": "int64", "v": "float64"}, time="t")
X = COMING.signal("v", by="k", lasting=50)
Y = COMING.signal("v", by="k", interval=("t", "e"), resolve="last")
FORGETTING = {
    "lasting": X,
    "until an end": Y,
    "over a time": X.rolling(30).sum(),
    "in windows": X.window(20, every=10).sum(),
    "per window": X.per(20).mean(),
    "a median": X.rolling(20).median(),
    "computed": (X * 2).where(lambda v: v > 3).shift(5),
    "two": X + Y.shift(3),
    "one or the other": X.or_else(Y),
    "side by side": pk.align(a=X, b=Y),
    "as a stream": X.to_stream().window(10, by="k").agg(n=pk.count()),
    "texts": COMING.signal("k", by="k", lasting=5),
    "ended by a null": COMING.signal("v", by="k"),
    "cut": X.chop(10),
    "cut where an interval ends": Y.chop(10),
    "pieces": X.chop(10).to_stream(),
    "pieces without ends": X.chop(10).to_stream().select("start", "k", "value"),
    "pieces in windows": X.chop(5).to_stream().window(10, by="k").agg(n=pk.count()),
    "cut, over a time": X.chop(7).rolling(30).count(),
    "cut twice": (X.chop(7) + Y.chop(4)).rolling(9).count(),
    "the last on a grid": X.resample(every=10, method="last"),
    "the last on a grid for a while": Y.resample(every=3, method="last", max_gap=7),
    "between samples that are near": X.resample(every=10, max_gap=30),
    "between samples, over a time": Y.resample(every=4, max_gap=9).rolling(30).count(),
    "at samples, over the time before": X.rolling(10).time_mean(),
    "pieces at samples": X.rolling(10).integral().to_stream().select("start", "k", "value"),
    "weighted, per window": X.per(20).time_mean(),
    "weighted, in windows": Y.window(20, every=10).integral(),
}
PER_BATCH = 400


def come_and_gone(turn: int, *, end: bool = False) -> pa.RecordBatch:
    """Rows of keys that never come again; or, at their end, rows without a value."""
    keys = [f"k{turn * PER_BATCH + i}" for i in range(PER_BATCH)]
    times = [turn * 100 + (60 if end else i // 10) for i in range(PER_BATCH)]
    values = pa.nulls(PER_BATCH, pa.float64()) if end else pa.array([1.0 * i for i in range(PER_BATCH)])
    ends = pa.array([time + 7 for time in times])
    return pa.record_batch([pa.array(times), pa.array(keys), ends, values], COMING.schema)


@pytest.mark.parametrize("which", FORGETTING)
def test_keys_that_hold_nothing_are_forgotten(which):
    sizes, held = [], []
    with FORGETTING[which].open() as live:
        kinds = SignalStage | IncrementalSignals
        (stage,) = (stage for stage in live._session._stages.values() if isinstance(stage, kinds))
        for turn in range(24):
            live.push(come_and_gone(turn))
            if which == "ended by a null":
                live.push(come_and_gone(turn, end=True))
            sizes.append(len(live.state().to_bytes()))
            held.append(held_by(stage))
    # Later keys have longer names.
    assert max(sizes[12:]) <= 1.05 * max(sizes[4:12])
    assert max(max(value) for value in held) <= (4 if isinstance(stage, SignalStage) else 6) * PER_BATCH
    if isinstance(stage, IncrementalSignals):  # memory has room for several pushes more, and doubles
        assert max(store.capacity for store in stage.stores) <= 2 * (SEVERAL + 4) * PER_BATCH
    assert max(map(sum, held[12:])) <= 1.05 * max(map(sum, held[4:12]))


def held_by(stage: SignalStage | IncrementalSignals) -> tuple[int, ...]:
    """The numbers of keys and of rows that a stage holds."""
    if isinstance(stage, IncrementalSignals):
        samples = (stage._end(track) - stage._first(track) for track in range(len(stage.stores)))
        return len(stage.table.directory), *samples
    return len(stage.keys), len(stage.emitted), *(len(taker.rows) for taker in stage.takers)


REMEMBERING = {
    "a value of its own": X.or_else(0.0),
    "the last rows": X.rolling(pk.rows(2)).sum(),
    "a filter": pk.feedback(lambda y: y * 0.5 + X),
    "at samples, over the time before, and later": X.rolling(30).time_mean() + Y,
    "at samples, over the time before, by intervals": Y.rolling(8).time_mean(),
    "between any two samples": X.resample(every=10),
}


@pytest.mark.parametrize("which", [*FORGETTING, *REMEMBERING])
@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 999), st.integers(0, 9), st.none() | st.floats(-9, 9)),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 6),
)
@settings(max_examples=10)
def test_a_key_that_comes_again_is_as_if_it_had_been_kept(which, some, size):
    """Times are far apart in places, so that keys are forgotten in between; few are enough for it here."""
    times = sorted(10 * time if time > 30 else time for time, *_ in some)
    rows = [(t, f"k{k % 5}", t + e, v) for t, (_, k, e, v) in zip(times, some, strict=True)]
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), COMING.schema, strict=True)
    ]
    table = pa.Table.from_arrays(columns, schema=COMING.schema)
    query = {**FORGETTING, **REMEMBERING}[which]
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.operators.signals.stage.FEW_PARTITIONS", 0)
        live = query.open()
        for place, part in enumerate(table.to_batches(max_chunksize=size)):
            found += [row for made in live.push(part) for row in made.to_pylist()]
            if place % 3 == 1:
                live = query.open(state=live.state())
        found += [row for made in live.finish() for row in made.to_pylist()]
    assert sorted(found, key=str) == sorted(query.collect(table).to_pylist(), key=str)
