"""Binding and running: the same query over data given in every way, with the same answer."""

from __future__ import annotations

import datetime as dt

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import penstock as pk

SCHEMA = {"t": "int64", "k": "string", "v": "int64"}
TABLE = pa.table({"t": [1, 3, 12, 14, 25], "k": ["a", "b", "a", "a", "b"], "v": [1, 2, 3, 4, 5]})
EVENTS = pk.stream("events", SCHEMA, time="t")
SUMS = EVENTS.window(10).agg(total=pk.sum("v"))
EXPECTED = {"window_start": [0, 10, 20], "window_end": [10, 20, 30], "total": [3, 7, 5]}

BOUND = {
    "by name": lambda: SUMS.collect(events=TABLE),
    "by mapping": lambda: SUMS.collect({"events": TABLE}),
    "as sole data": lambda: SUMS.collect(TABLE),
    "as batches": lambda: SUMS.collect(TABLE.to_batches(max_chunksize=2)),
    "as a reader": lambda: SUMS.collect(TABLE.to_reader(max_chunksize=1)),
    "as polars": lambda: SUMS.collect(pl.from_arrow(TABLE)),
    "as pandas": lambda: SUMS.collect(TABLE.to_pandas()),
    "as a stream": lambda: SUMS.collect(events=pk.from_arrow(TABLE, time="t")),
    "as a query": lambda: SUMS.collect(events=pk.from_arrow(TABLE, time="t").filter(pk.col("v") > 0)),
    "at the source": lambda: pk.from_arrow(TABLE, time="t").window(10).agg(total=pk.sum("v")).collect(),
    "in another order": lambda: SUMS.collect(TABLE.select(["v", "k", "t"]).append_column("x", TABLE["v"])),
    "as a dictionary": lambda: SUMS.collect(TABLE.set_column(1, "k", TABLE["k"].dictionary_encode())),
    "narrower": lambda: SUMS.collect(TABLE.set_column(2, "v", TABLE["v"].cast(pa.int8()))),
    "with one thread": lambda: SUMS.collect(TABLE, engine=pk.Engine(threads=1)),
    "unordered": lambda: SUMS.collect(TABLE.take([4, 2, 0, 3, 1])),
}


@pytest.mark.parametrize("way", BOUND)
def test_data_bound_in_any_way_gives_the_same_answer(way):
    assert BOUND[way]().to_pydict() == EXPECTED


def test_a_query_runs_again_over_other_data():
    query = pk.from_arrow(TABLE, time="t", name="events").window(10).agg(total=pk.sum("v"))
    assert query.collect(events=TABLE.slice(0, 2))["total"].to_pylist() == [3]
    assert query.collect().to_pydict() == EXPECTED


def test_the_result_has_the_schema_that_was_promised_even_without_rows():
    query = EVENTS.window(10, by="k").agg(total=pk.sum("v"), m=pk.mean("v"))
    empty = query.collect(TABLE.slice(0, 0))
    assert empty.schema == query.schema
    assert empty.num_rows == 0


MISTAKES = [
    (pk.BindingError, r"no data is bound to the stream 'events'.*collect\(events=table\)", SUMS.collect),
    (pk.BindingError, "did you mean 'events'", lambda: SUMS.collect(event=TABLE)),
    (pk.BindingError, "no stream 'other'", lambda: SUMS.collect({"other": TABLE})),
    (
        pk.BindingError,
        "several streams",
        lambda: EVENTS.union(pk.stream("more", SCHEMA, time="t")).collect(TABLE),
    ),
    (pk.SchemaMismatchError, "no column 'k'", lambda: SUMS.collect(TABLE.select(["t", "v"]))),
    (
        pk.SchemaMismatchError,
        "'v' of the data of stream 'events' is double",
        lambda: SUMS.collect(TABLE.set_column(2, "v", TABLE["v"].cast(pa.float64()))),
    ),
    (pk.SourceError, "not Arrow data", lambda: SUMS.collect(3)),
    (pk.BindingError, "neither Arrow data nor", lambda: SUMS.run(3)),
    (pk.StateError, "cannot read a state from 'nowhere'", lambda: SUMS.run(TABLE, state="nowhere")),
    (pk.StateError, "state= takes a path, bytes or a pk.State, not a int", lambda: SUMS.open(state=3)),
    (pk.BindingError, "push takes", lambda: SUMS.open().push()),
    (pk.BindingError, "no stream 'other'", lambda: SUMS.open().push(other=TABLE)),
    (pk.SchemaMismatchError, "a batch of stream 'events'", lambda: SUMS.open().push(TABLE.select(["t"]))),
    (pk.StateError, "cannot save the state to 'no/where'", lambda: SUMS.open().save("no/where")),
]


@pytest.mark.parametrize(("error", "says", "mistake"), MISTAKES, ids=[says for _, says, _ in MISTAKES])
def test_a_mistake_in_binding_is_refused_before_any_row(error, says, mistake):
    with pytest.raises(error, match=says):
        mistake()


def rows_of(batches):
    return [row for batch in batches for row in batch.to_pylist()]


FED = {
    "a table": lambda: TABLE,
    "a list of batches": lambda: TABLE.to_batches(max_chunksize=2),
    "a generator": lambda: (batch for batch in TABLE.to_batches(max_chunksize=1)),
    "tables": lambda: [TABLE.slice(0, 2), TABLE.slice(2)],
    "data frames": lambda: [TABLE.slice(0, 2).to_pandas(), pl.from_arrow(TABLE.slice(2))],
    "a reader": TABLE.to_reader,
}


@pytest.mark.parametrize("way", FED)
def test_an_incremental_run_gives_what_collect_gives(way):
    assert rows_of(SUMS.run(FED[way]())) == SUMS.collect(TABLE).to_pylist()
    assert rows_of(SUMS.run(events=FED[way]())) == SUMS.collect(TABLE).to_pylist()


def test_windows_come_out_as_the_watermark_passes_them():
    run = SUMS.run(TABLE.to_batches(max_chunksize=2))
    assert next(run)["total"].to_pylist() == [3]
    assert run.metrics.read == 4
    assert rows_of(run) == SUMS.collect(TABLE).to_pylist()[1:]


def test_batches_are_asked_for_one_at_a_time():
    asked = []

    def source():
        for batch in TABLE.to_batches(max_chunksize=1):
            asked.append(batch)
            yield batch

    run = SUMS.run(source())
    assert asked == []
    next(run)
    assert len(asked) == 3


def test_without_a_final_only_closed_windows_come_out():
    assert [row["total"] for row in rows_of(SUMS.run(TABLE, final=False))] == [3, 7]


def test_bound_data_is_run_when_no_batches_are_given():
    query = pk.from_arrow(TABLE, time="t").window(10).agg(total=pk.sum("v"))
    assert rows_of(query.run()) == SUMS.collect(TABLE).to_pylist()


def test_several_streams_are_read_in_turn():
    more = pk.stream("more", SCHEMA, time="t")
    query = EVENTS.union(more).window(10).agg(n=pk.count())
    order = []

    def source(name):
        for batch in TABLE.to_batches(max_chunksize=2):
            order.append(name)
            yield batch

    assert [row["n"] for row in rows_of(query.run(events=source("a"), more=source("b")))] == [4, 4, 2]
    assert order == ["a", "b"] * 3


def test_a_stream_used_twice_is_bound_once():
    query = EVENTS.union(EVENTS).window(10).agg(n=pk.count())
    assert query.collect(TABLE)["n"].to_pylist() == [4, 4, 2]


@pytest.mark.parametrize(
    "bound",
    [
        lambda: SUMS.collect(TABLE, events=TABLE),
        lambda: SUMS.collect({"events": TABLE}, events=TABLE),
        lambda: SUMS.run(TABLE, events=TABLE),
        lambda: SUMS.head(1, TABLE, events=TABLE),
        lambda: SUMS.open().push(TABLE, events=TABLE),
    ],
)
def test_a_stream_is_given_data_once(bound):
    with pytest.raises(pk.BindingError, match="twice"):
        bound()


def test_pushing_by_hand_gives_windows_when_they_close():
    with SUMS.open() as live:
        assert live.push(TABLE.slice(0, 2)) == []
        assert rows_of(live.push(events=TABLE.slice(2, 1)))[0]["total"] == 3
        assert rows_of(live.advance(20))[0]["total"] == 3
        assert rows_of(live.push({"events": TABLE.slice(4)})) == []
        assert rows_of(live.finish())[0]["total"] == 5
        assert (live.metrics.read, live.metrics.late) == (4, 0)


def test_time_can_be_advanced_by_a_datetime():
    query = pk.stream("s", {"ts": "timestamp[s]"}, time="ts").window("10s").agg(n=pk.count())
    with query.open() as live:
        live.push(pa.record_batch({"ts": pa.array([1, 2], pa.timestamp("s"))}))
        assert rows_of(live.advance(dt.datetime(1970, 1, 1, 0, 0, 10)))[0]["n"] == 2
        with pytest.raises(pk.DurationError):
            live.advance(11)


def test_metrics_of_the_last_run_are_kept_and_can_be_taken():
    query = EVENTS.filter(pk.col("v") > 1).window(10).agg(n=pk.count())
    assert query.metrics is None
    counted = pk.Metrics()
    query.collect(TABLE, metrics=counted)
    assert counted == query.metrics
    assert (counted.read, counted.filtered, counted.accepted) == (5, 1, 4)


def test_a_query_is_arrow_data_itself():
    query = pk.from_arrow(TABLE, time="t").window(10).agg(total=pk.sum("v"))
    assert pa.table(query).to_pydict() == EXPECTED
    assert pl.DataFrame(query)["total"].to_list() == [3, 7, 5]
    assert query.to_polars()["total"].to_list() == [3, 7, 5]
    assert isinstance(query.to_pandas(), pd.DataFrame)
    assert query.head(2)["total"].to_pylist() == [3, 7]


def test_implied_time_is_computed_by_position_whatever_the_batches():
    data = pa.table({"mv": [float(i) for i in range(10)]})
    query = pk.from_arrow(data, time=pk.every(3, start=1)).window(10).agg(n=pk.count(), m=pk.max("time"))
    whole = query.collect()
    assert whole["n"].to_pylist() == [3, 4, 3]
    assert whole["m"].to_pylist() == [7, 19, 28]
    assert query.collect(data.to_batches(max_chunksize=3)).equals(whole)


def test_implied_time_survives_a_filter_and_a_projection():
    data = pa.table({"v": list(range(6))})
    stream = pk.from_arrow(data, time=pk.every(10)).filter(pk.col("v") % 2 == 1)
    assert stream.collect().to_pydict() == {"time": [10, 30, 50], "v": [1, 3, 5]}
    counted = stream.select(w=pk.col("v") * 2).window(40).agg(s=pk.sum("w")).collect()
    assert counted["s"].to_pylist() == [8, 10]


def test_columns_a_query_cannot_compute_with_pass_through():
    data = TABLE.append_column("raw", pa.array([[1], [2], None, [], [3]], pa.list_(pa.int8())))
    result = pk.from_arrow(data, time="t").filter(pk.col("v") > 2).collect()
    assert result["raw"].to_pylist() == [None, [], [3]]


def test_a_column_of_nothing_but_nulls_is_null_in_every_expression():
    stream = pk.from_arrow(TABLE.append_column("none", pa.nulls(5)), time="t")
    assert stream.filter(pk.col("none").is_null()).collect().num_rows == 5
    assert stream.filter(pk.col("none") == 1).collect().num_rows == 0
    assert stream.select(x=pk.col("none").fill_null(7)).collect()["x"].to_pylist() == [7] * 5


def test_a_dictionary_of_numbers_is_read_as_numbers():
    data = TABLE.set_column(2, "v", TABLE["v"].dictionary_encode())
    query = pk.from_arrow(data, time="t").window(10, by="v").agg(n=pk.count())
    assert query.schema.field("v").type == pa.int64()
    assert query.collect()["n"].to_pylist() == [1] * 5


def test_a_dropped_time_column_does_not_stop_the_rows():
    assert pk.from_arrow(TABLE, time="t").drop("t").filter(pk.col("v") > 3).collect().to_pydict() == {
        "k": ["a", "b"],
        "v": [4, 5],
    }


def test_a_row_without_a_time_is_counted_or_refused_as_the_source_says():
    data = pa.table({"t": pa.array([1, None, 3], pa.int64()), "v": [1, 2, 3]})
    query = pk.from_arrow(data, time="t").window(10).agg(total=pk.sum("v"))
    assert query.collect()["total"].to_pylist() == [4]
    assert query.metrics.malformed == 1
    strict = pk.from_arrow(data, time="t", on_bad="fail").window(10).agg(total=pk.sum("v"))
    with pytest.raises(pk.SourceError, match="no time"):
        strict.collect()


def test_metrics_of_a_query_are_those_of_the_run_that_began_last():
    query = EVENTS.window(10).agg(n=pk.count())
    run = query.run([TABLE])
    assert query.metrics is run.metrics
    with query.open() as live:
        live.push(TABLE)
        assert query.metrics is live.metrics
        assert query.metrics.read == TABLE.num_rows
