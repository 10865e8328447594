"""What files may leave out: rows that no reader of a stream looks at, and no others."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.expr.show import show

EVENTS = pk.stream("events", {"t": "int64", "k": "int64", "v": "int64", "x": "float64"}, time="t")
VIEWS = EVENTS.filter(pk.col("k") == 1)


def asked(query):
    return {name: show(predicate) for name, predicate in query.compiled().predicates.items()}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (VIEWS, "(k == 1) or is_null(t)"),
        (VIEWS.window(10).agg(n=pk.count()), "(k == 1) or is_null(t)"),
        (VIEWS.rolling(10).agg(n=pk.count()), "(k == 1) or is_null(t)"),
        (VIEWS.window(pk.session(5)).agg(n=pk.count()), "(k == 1) or is_null(t)"),
        (EVENTS.window(10, by="k").agg(n=pk.count()).filter(pk.col("k") == 2), "(k == 2) or is_null(t)"),
        (VIEWS.union(EVENTS.filter(pk.col("v") > 3)), "((k == 1) or (v > 3)) or is_null(t)"),
    ],
)
def test_a_filter_that_all_rows_meet_is_asked_of_files(query, expected):
    assert asked(query) == {"events": expected}


@pytest.mark.parametrize(
    "query",
    [
        EVENTS,
        EVENTS.window(10).agg(n=pk.count()),
        EVENTS.window(10).agg(n=pk.count(where=pk.col("k") == 1)),
        VIEWS.union(EVENTS),
        EVENTS.filter(pk.col("k") + pk.col("v") > 3),  # can overflow: every row has to be looked at
        EVENTS.distinct("k").filter(pk.col("v") == 1),
        pk.stream("e", {"k": "int64"}, time=pk.every(1)).filter(pk.col("k") == 1),
    ],
)
def test_where_every_row_may_matter_nothing_is_asked(query):
    assert asked(query) == {}


def test_explain_says_what_files_are_asked_for():
    text = str(VIEWS.window(10).agg(v=pk.sum("v")).explain())
    assert "events: t, k, v; row groups where it may be that (k == 1) or is_null(t)" in text
    assert "events: t; all rows" in str(EVENTS.window(10).agg(n=pk.count()).explain())


TABLE = pa.table(
    {
        "t": pa.array([None if i % 17 == 5 else i for i in range(100)], pa.int64()),
        "k": [i // 25 for i in range(100)],
        "v": [2**62 if i == 60 else i for i in range(100)],
        "x": [float(i) for i in range(100)],
    }
)


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.filter(pk.col("k") == 1).window(10).agg(v=pk.sum("v"), n=pk.count()),
        lambda s: s.filter(pk.col("t") >= 80).rolling(7).agg(m=pk.mean("x")),
        lambda s: s.filter(pk.col("k") == 9),
        lambda s: s.filter(pk.col("k") == 1).union(s.filter(pk.col("t") > 90)),
        lambda s: s.filter(pk.col("k") == 0).window(pk.rows(7)).agg(n=pk.count(), last=pk.last("v")),
        lambda s: s.filter(pk.col("k") == 3).window(pk.unbounded()).agg(v=pk.sum("v")),
    ],
)
def test_answers_and_counts_are_those_of_the_table(tmp_path, build):
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=10)
    scanned, bound = build(pk.scan(tmp_path, time="t")), build(pk.from_arrow(TABLE, time="t"))
    assert scanned.collect().equals(bound.collect())
    counts, expected = scanned.metrics, bound.metrics
    assert counts.read == counts.accepted + counts.late + counts.malformed + counts.filtered
    for name in ("read", "accepted", "malformed", "filtered", "emitted"):
        assert getattr(counts, name) == getattr(expected, name), name


def test_a_row_without_a_time_fails_where_that_is_asked_for(tmp_path):
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=10)
    with pytest.raises(pk.SourceError, match="no time"):
        pk.scan(tmp_path, time="t", on_bad="fail").filter(pk.col("k") == 9).collect()


def test_rows_left_out_move_no_watermark_of_a_run(tmp_path):
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=10)

    def rows(stream):
        query = stream.filter(pk.col("k") == 1).window(10).agg(n=pk.count())
        return [row for batch in query.run() for row in batch.to_pylist()]

    assert rows(pk.scan(tmp_path, time="t")) == rows(pk.from_arrow(TABLE, time="t"))
