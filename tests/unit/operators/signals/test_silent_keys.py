"""A key without further samples delays only what depends on its next sample."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk

EVENTS = pk.stream("events", {"t": "int64", "k": "int64", "v": "float64"}, time="t")
ROWS = [(0, 1, 1.0), *((t, 2, float(t % 7)) for t in range(1, 200))]
SCHEMA = EVENTS.schema
X = EVENTS.signal("v", by="k")
LASTING = EVENTS.signal("v", by="k", lasting=3)


def counts(stream: pk.Stream) -> pk.Stream:
    return stream.window(10).agg(n=pk.count(), most=pk.max("value"))


LEAVING = {
    "samples": counts(X.to_stream()),
    "samples by key": X.to_stream("p").window(10, by="k").agg(n=pk.count(), most=pk.max("p")),
    "samples without their ends": counts(X.to_stream().select("start", "value")),
    "some of the samples": counts(X.to_stream().filter(pk.col("value") > 2)),
    "a sum over a long time": counts(X.rolling(1000).sum().to_stream()),
    "moved back": counts(X.shift(-5).to_stream()),
    "moved on, and constant before": counts(X.shift(5).or_else(0.0).to_stream()),
    "means of windows": counts(X.per(4).mean().to_stream()),
    "a filter": counts(pk.feedback(lambda y: y * 0.5 + X).to_stream()),
    "a look-back": X.to_stream().rolling(5, by="k").agg(n=pk.count()),
    "another signal in place of none": counts(X.or_else(EVENTS.signal("v", by="k", lasting=3)).to_stream()),
    "ends of samples that last": EVENTS.signal("v", by="k", lasting=3)
    .to_stream()
    .window(10)
    .agg(last=pk.max("end")),
    "chopped while it lasts": counts(LASTING.chop(5).to_stream()),
    "weighted while it lasts": counts(LASTING.per(5).time_mean().to_stream()),
    "on a grid while it lasts": counts(LASTING.resample(every=5, method="last").to_stream()),
    "interpolated between samples that are near": counts(X.resample(every=5, max_gap=9).to_stream()),
}
WAITING = {
    "ends": X.to_stream().window(10).agg(last=pk.max("end")),
    "interpolated": counts(X.resample(every=5).to_stream()),
    "chopped": counts(X.chop(5).to_stream()),
    "weighted": counts(X.per(5).time_mean().to_stream()),
}


def batch(rows: list[tuple[int, int, float]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def run(query: pk.Stream) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """The results while rows come, and those at the end."""
    with query.open() as live:
        early = [row for given in ROWS for made in live.push(batch([given])) for row in made.to_pylist()]
        late = [row for made in live.finish() for row in made.to_pylist()]
    return early, late


def in_order(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=str)


@pytest.mark.parametrize("which", LEAVING)
def test_windows_leave_while_one_key_is_silent(which: str) -> None:
    early, late = run(LEAVING[which])
    wanted = LEAVING[which].collect(batch(ROWS)).to_pylist()
    assert len(early) >= 17
    assert in_order(early + late) == in_order(wanted)


@pytest.mark.parametrize("which", WAITING)
def test_what_depends_on_the_next_sample_waits_for_it_and_explain_says_so(which: str) -> None:
    early, late = run(WAITING[which])
    assert not early
    assert in_order(late) == in_order(WAITING[which].collect(batch(ROWS)).to_pylist())
    assert "a key without further samples delays what follows" in str(WAITING[which].explain())


@pytest.mark.parametrize("which", LEAVING)
def test_explain_names_no_delay_where_rows_leave(which: str) -> None:
    assert "a key without further samples delays" not in str(LEAVING[which].explain())


def test_explain_says_that_rows_leave_when_they_begin() -> None:
    text = str(LEAVING["samples"].explain())
    assert "an interval leaves when it begins, as nothing reads its end" in text
    assert "delays what follows" not in text


def test_a_key_without_samples_of_one_operand_delays_nothing() -> None:
    other = pk.stream("other", {"t": "int64", "k": "int64", "v": "float64"}, time="t").signal("v", by="k")
    query = counts(X.chop(5).or_else(X.resample(every=5)).or_else(other).to_stream())
    with query.open() as live:
        made = []
        for time in range(0, 100, 5):
            live.push(events=batch([(time, 1, 1.0)]))
            made += live.push(other=batch([(time, 2, 1.0)]))
        assert sum(table.num_rows for table in made) >= 8


def test_a_signal_saved_while_its_rows_have_left_gives_none_twice() -> None:
    query = LEAVING["samples"]
    found = []
    live = query.open()
    for given in ROWS:
        found += [row for made in live.push(batch([given])) for row in made.to_pylist()]
        live = query.open(state=live.state().to_bytes())
    found += [row for made in live.finish() for row in made.to_pylist()]
    assert in_order(found) == in_order(query.collect(batch(ROWS)).to_pylist())
