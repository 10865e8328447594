"""History and what follows are one stream: each row is read from its side of the time that divides them, none is late."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.api.backfill import in_order
from penstock.runtime.stage import END_OF_TIME
from penstock.sources.dataset import Dataset
from tests.oracle.effort import effort
from tests.spark.agree import assert_same

TIMES = st.lists(st.integers(-40, 60), min_size=1, max_size=6)


def table(times: list[int | None]) -> pa.Table:
    return pa.table({"t": pa.array(times, pa.int64()), "v": pa.array(range(len(times)), pa.int64())})


def asked(events: Any) -> pk.Stream:
    made: pk.Stream = events.window(pk.sliding(20, every=10)).agg(total=pk.sum("v"), n=pk.count())
    return made


def put(folder: Path, tables: list[pa.Table], format: str = "parquet") -> None:
    folder.mkdir()
    for number, batch in enumerate(tables):
        path = folder / f"{number}.{format}"
        if format == "parquet":
            pq.write_table(batch, path, row_group_size=2)
        else:
            path.write_text("t,v\n" + "".join(f"{row['t']},{row['v']}\n" for row in batch.to_pylist()))
        os.utime(path, (number, number))


@effort(12)
@given(
    past=st.lists(TIMES, min_size=1, max_size=4),
    new=st.lists(TIMES, min_size=1, max_size=3),
    at=st.integers(-50, 70),
    format=st.sampled_from(["parquet", "csv"]),
)
def test_each_row_is_read_from_its_side_and_none_is_late(
    past: list[list[int]],
    new: list[list[int]],
    at: int,
    format: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("then")
    put(folder / "past", [table(list(times)) for times in past], format)
    put(folder / "new", [table(list(times)) for times in new])
    live = pk.scan_stream(folder / "new", time="t", lateness=200, stop_after="0s")
    query = asked(pk.scan(folder / "past", time="t").then(live, at=at))
    rows = [
        pa.concat_tables([table(list(times)) for times in side]).filter(chosen)
        for side, chosen in (
            (past, pc.less(pc.field("t"), at)),
            (new, pc.greater_equal(pc.field("t"), at)),
        )
    ]
    want = asked(pk.stream("s", rows[0].schema, time="t")).collect(pa.concat_tables(rows))
    run = query.run()
    assert_same(want, pa.Table.from_batches(list(run), want.schema), "run")
    found = run.metrics
    assert (found.late, found.read) == (0, sum(map(len, past)) + sum(map(len, new)))
    assert found.filtered == found.read - sum(row.num_rows for row in rows)
    assert_same(want, query.collect(), "collect")


def test_windows_of_history_leave_as_soon_as_files_say_that_nothing_older_comes(tmp_path: Path) -> None:
    put(tmp_path / "past", [table([25, 31]), table([12, 19]), table([1, 8])])
    put(tmp_path / "new", [table([44])])
    live = pk.scan_stream(tmp_path / "new", time="t", stop_after="0s", name="events")
    run = pk.scan(tmp_path / "past", time="t").then(live, at=40).window(10).agg(n=pk.count()).run()
    assert [batch["window_end"].to_pylist() for batch in run] == [[10], [20], [30, 40], [50]]
    assert pk.scan(tmp_path / "past", time="t").then(live, at=40).name == "events"


def test_what_follows_may_be_passed_when_the_query_runs_and_never_takes_the_place_of_history(
    tmp_path: Path,
) -> None:
    put(tmp_path / "past", [table([1, 8]), table([44])])
    declared = pk.stream("s", {"t": "int64", "v": "int64"}, time="t", lateness=5)
    query = pk.scan(tmp_path / "past", time="t").then(declared, at=40).window(10).agg(n=pk.count())
    new = table([39, 41, 52])
    ways = [new, iter(new.to_batches()), new.to_batches(), pk.from_arrow(new, time="t")]
    for live in ways:
        run = query.run(s=live)
        assert [n for batch in run for n in batch["n"].to_pylist()] == [2, 1, 1]
        assert (run.metrics.read, run.metrics.filtered) == (6, 2)
    assert query.collect(s=new)["n"].to_pylist() == [2, 1, 1]


def test_files_that_do_not_tell_their_times_stay_in_their_order(tmp_path: Path) -> None:
    put(tmp_path / "past", [table([25]), table([None]), table([1])])
    parts = in_order(Dataset.of(tmp_path / "past", time="t"))
    assert [upto for _, upto in parts] == [None] * 3
    put(tmp_path / "told", [table([25]), table([1]), table([3])])
    reported = in_order(Dataset.of(tmp_path / "told", time="t"))
    names = [[Path(fragment.path).name for fragment in part.fragments] for part, _ in reported]
    assert names == [["1.parquet"], ["2.parquet"], ["0.parquet"]]
    assert [upto for _, upto in reported] == [3, 25, END_OF_TIME]


def test_what_cannot_be_a_history_or_follow_one_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "past", [table([1])])
    past = pk.scan(tmp_path / "past", time="t")
    live = pk.scan_stream(tmp_path / "past", time="t")
    with pytest.raises(pk.BindingError, match="what follows it must be a source, such as"):
        past.then(live.filter(pk.col("v") > 0), at=3)
    declared = pk.stream("s", {"t": "int64", "v": "int64"}, time="t")
    with pytest.raises(pk.BindingError, match="the history has no data"):
        declared.then(live, at=3)
    with pytest.raises(pk.BindingError, match="no data is bound that follows the history"):
        list(asked(past.then(declared, at=3)).run())
    with pytest.raises(pk.UnsupportedError, match="the history never ends"):
        live.then(live, at=3)
    with pytest.raises(pk.SchemaMismatchError, match="the history has no column 'w'"):
        past.then(pk.from_arrow(pa.table({"t": [1], "w": [1]}), time="t"), at=3)
    with pytest.raises(pk.DurationError, match="the time from which on rows are live"):
        past.then(live, at="2026-01-01")
    with pytest.raises(pk.UnsupportedError, match="all of it would count twice"):
        asked(past.then(live, at=3)).run(state=asked(past).open().state())


@effort(12)
@given(
    past=st.lists(TIMES, min_size=1, max_size=3),
    new=st.lists(TIMES, min_size=1, max_size=4),
    at=st.integers(-50, 70),
    stopped=st.integers(0, 4),
)
def test_what_is_pushed_comes_behind_the_history_as_in_a_run(
    past: list[list[int]], new: list[list[int]], at: int, stopped: int
) -> None:
    """A run that is saved between two pushes, and opened again, does not read its history twice."""
    history = pk.from_arrow(pa.concat_tables([table([*times]) for times in past]), time="t")
    declared = pk.stream("s", {"t": "int64", "v": "int64"}, time="t", lateness=200)
    query = asked(history.then(declared, at=at))
    batches = [batch for times in new for batch in table([*times]).to_batches()]
    run = query.run(s=iter(batches))
    want = pa.Table.from_batches(list(run), query.schema)
    made: list[pa.RecordBatch] = []
    live = query.open()
    for number, batch in enumerate(batches):
        if number == stopped:
            made += live.wait()
            live = query.open(state=live.state())
        made += live.push(batch)
    made += live.finish()
    assert_same(want, pa.Table.from_batches(made, query.schema), "pushed")
    assert live.metrics.counts == run.metrics.counts


def test_results_of_a_history_that_nobody_took_are_not_lost_in_a_saved_state() -> None:
    declared = pk.stream("s", {"t": "int64", "v": "int64"}, time="t")
    query = asked(pk.from_arrow(table([1, 25]), time="t").then(declared, at=60))
    with query.open() as live:
        with pytest.raises(pk.StateError, match="have not been taken yet"):
            live.state()
        assert sum(batch.num_rows for batch in live.wait()) == 4
        assert live.watermark == 60
        assert live.state() is not None
        with pytest.raises(pk.SchemaMismatchError, match="what follows the history has no column 'v'"):
            live.push(pa.record_batch({"t": [70]}))
