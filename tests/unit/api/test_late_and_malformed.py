"""Late rows go where they are sent, malformed ones into quarantine, and the counts add up after every batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.effort import effort

SCHEMA = {"t": "int64", "k": "string", "v": "int64"}
QUERIES: dict[str, Any] = {
    "tumbling": lambda s: s.window(10, by="k").agg(n=pk.count()),
    "sliding": lambda s: s.window(20, every=10).agg(n=pk.sum("v")),
    "session": lambda s: s.window(pk.session(5), by="k").agg(n=pk.count()),
    "rows": lambda s: s.window(pk.rows(3), by="k").agg(n=pk.sum("v")),
    "median": lambda s: s.window(10).agg(n=pk.median("v")),
    "rolling": lambda s: s.rolling(10, by="k").agg(n=pk.sum("v")),
    "distinct": lambda s: s.distinct("k"),
    "filtered": lambda s: s.filter(pk.col("v") > 3).window(10).agg(n=pk.count()),
    "signal": lambda s: s.signal("v", by="k").to_stream("v").window(10).agg(n=pk.count()),
}


def batch(times: list[int | None], seed: int = 0) -> pa.RecordBatch:
    rows = [{"t": t, "k": "ab"[(at + seed) % 2], "v": (at * 7 + seed) % 10} for at, t in enumerate(times)]
    return pa.RecordBatch.from_pylist(rows, pa.schema({"t": pa.int64(), "k": pa.string(), "v": pa.int64()}))


@pytest.mark.parametrize("name", QUERIES)
@effort(12)
@given(
    cuts=st.lists(st.lists(st.none() | st.integers(-50, 60), max_size=8), max_size=5),
    lateness=st.integers(0, 15),
)
def test_late_rows_are_handed_over_whole_and_add_up_with_the_others(
    name: str, cuts: list[list[int | None]], lateness: int
) -> None:
    late: list[pa.RecordBatch] = []
    query = QUERIES[name](pk.stream("s", SCHEMA, time="t", lateness=lateness, late_to=late.append))
    with query.open() as live:
        for seed, times in enumerate(cuts):
            live.push(batch(times, seed))
            assert live.metrics.balanced
            assert sum(table.num_rows for table in late) == live.metrics.late
        given = [row for seed, times in enumerate(cuts) for row in batch(times, seed).to_pylist()]
        for row in (row for table in late for row in table.to_pylist()):
            given.remove(row)  # every one of them is a row as it was pushed, with all its columns


@pytest.mark.parametrize("how", ["window", "within", "asof", "rolling", "table"])
def test_late_rows_of_both_sides_of_a_join_go_to_their_own_places(how: str) -> None:
    late: dict[str, list[int]] = {"a": [], "b": []}
    a, b = (
        pk.stream(
            name, SCHEMA, time="t", late_to=lambda rows, name=name: late[name].extend(rows["t"].to_pylist())
        )
        for name in late
    )
    names = pk.table(pa.table({"k": ["a"], "full": ["A"]}))
    query = {
        "window": lambda: a.join(b, on="k", window=pk.tumbling(10)),
        "within": lambda: a.join(b, on="k", within=(-5, 5)),
        "asof": lambda: a.join_asof(b, by="k"),
        "rolling": lambda: a.join_rolling(b, by="k", within=(-9, 0)).agg(n=pk.count()),
        "table": lambda: a.join(names, on="k").union(b.join(names, on="k")).window(10).agg(n=pk.count()),
    }[how]()
    with query.open() as live:
        live.push(a=batch([1, 50]), b=batch([3, 60]))
        live.push(a=batch([52, None, 20]), b=batch([8, 61]))
        counted = live.metrics
    assert late == {"a": [20], "b": [8]}
    assert (counted.late, counted.malformed) == (2, 1)


def test_a_row_that_is_late_in_two_branches_is_handed_over_once() -> None:
    late: list[pa.RecordBatch] = []
    source = pk.stream("s", SCHEMA, time="t", late_to=late.append)
    query = source.filter(pk.col("v") >= 0).union(source).window(10).agg(n=pk.count())
    with query.open() as live:
        live.push(batch([1, 50]))
        live.push(batch([2, 51]))
        assert live.metrics.late == 2
    assert [table["t"].to_pylist() for table in late] == [[2]]


def test_a_run_that_goes_on_from_a_state_hands_over_the_right_rows() -> None:
    late: list[pa.RecordBatch] = []
    query = pk.stream("s", SCHEMA, time="t", late_to=late.append).window(10).agg(n=pk.count())
    with query.open() as live:
        live.push(batch([1, 2, 50]))
        state = live.state()
    with query.open(state=state) as live:
        live.push(batch([60, 3, 61]))
    assert [table["t"].to_pylist() for table in late] == [[3]]


def test_folders_take_late_and_malformed_rows(tmp_path: Path) -> None:
    source = pk.stream(
        "my/s",
        SCHEMA,
        time="t",
        late_to=tmp_path / "late",
        on_bad="quarantine",
        quarantine_to=str(tmp_path / "bad"),
    )
    query = source.window(10).agg(n=pk.count())
    run = query.run(iter([batch([1, None, 50]), batch([2, 51, None]), batch([3])]))
    assert [table["n"].to_pylist() for table in run] == [[1], [2]]
    found = run.metrics
    assert (found.read, found.accepted, found.late, found.malformed) == (7, 3, 2, 2)
    files = sorted((tmp_path / "late").iterdir())
    assert [file.name for file in files] == ["my%2Fs-000000.parquet", "my%2Fs-000001.parquet"]
    assert [pq.read_table(file)["t"].to_pylist() for file in files] == [[2], [3]]
    bad = pq.read_table(tmp_path / "bad").to_pylist()
    assert [(row["stream"], row["source"], row["offset"]) for row in bad] == [
        ("my/s", "my/s", 1),
        ("my/s", "my/s", 5),
    ]
    assert bad[0]["row"] == b'{"t": null, "k": "b", "v": 7}'
    assert {row["reason"] for row in bad} == {"it has no time"}


def test_a_query_that_collects_fills_the_quarantine_too(tmp_path: Path) -> None:
    table = pa.Table.from_batches([batch([1, None, 2])])
    events = pk.from_arrow(table, time="t", on_bad="quarantine", quarantine_to=tmp_path / "bad")
    metrics = pk.Metrics()
    query = events.window(10).agg(n=pk.count())
    assert query.collect(metrics=metrics)["n"].to_pylist() == [2]
    assert (metrics.read, metrics.malformed) == (3, 1)
    assert pq.read_table(tmp_path / "bad")["offset"].to_pylist() == [1]


@pytest.mark.parametrize("collected", [True, False])
def test_live_files_are_read_past_what_is_no_row(tmp_path: Path, collected: bool) -> None:
    (tmp_path / "a.csv").write_text("t,v\n1,2\nx,y\n,3\n4,5\n")
    (tmp_path / "b.csv").write_text("t,v\n12,2\n")
    events = pk.scan_stream(
        tmp_path / "**",
        time="t",
        schema={"t": "int64", "v": "int64"},
        format="csv",
        on_bad="quarantine",
        stop_after="0s",
    )
    query = events.window(10).agg(n=pk.sum("v"))
    metrics = pk.Metrics()
    if collected:
        assert query.collect(metrics=metrics)["n"].to_pylist() == [7, 2]
    else:
        run = query.run()
        assert [table["n"].to_pylist() for table in run] == [[7], [2]]
        metrics = run.metrics
    assert (metrics.read, metrics.accepted, metrics.malformed) == (5, 3, 2)
    bad = pq.read_table(tmp_path / "_quarantine").to_pylist()
    assert [(Path(row["source"]).name, row["offset"], row["row"]) for row in bad] == [
        ("a.csv", 1, b"x,y"),
        ("a.csv", 2, b",3"),
    ]


def test_what_is_said_about_edges_is_checked_where_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        pk.ExpressionTypeError, match="on_bad is 'explode'; it is one of 'drop', 'fail', 'quar"
    ):
        pk.stream("s", SCHEMA, time="t", on_bad="explode")
    with pytest.raises(pk.ExpressionTypeError, match="quarantine_to is given, but on_bad is 'drop'"):
        pk.stream("s", SCHEMA, time="t", quarantine_to=tmp_path)
    with pytest.raises(pk.ExpressionTypeError, match="late_to is a int"):
        pk.stream("s", SCHEMA, time="t", late_to=3)  # type: ignore[arg-type]
    with pytest.raises(pk.DurationError, match="idle_after"):
        pk.stream("s", SCHEMA, time="t", idle_after="-1s")
    (tmp_path / "file").write_text("")
    events = pk.stream("s", SCHEMA, time="t", late_to=tmp_path / "file")
    with (
        events.window(10).agg(n=pk.count()).open() as live,
        pytest.raises(pk.SourceError, match="nothing can be written to the folder"),
    ):
        live.push(batch([50, 1]))
