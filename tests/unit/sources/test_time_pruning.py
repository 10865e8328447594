"""Times of row groups that lie in one pane are not read, and nobody can tell."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.sources import prefetch
from penstock.sources.time_pruning import OneTime
from penstock.types.windows import Steps
from tests.oracle.effort import effort

EVENTS = pk.stream("events", {"t": "int64", "k": "int64", "v": "int64"}, time="t")


def windowed(stream: Any) -> dict[str, Any]:
    """Queries that look at panes alone, then others."""
    return {
        "tumbling": stream.window(pk.tumbling(10), by="k").agg(n=pk.count(), s=pk.sum("v")),
        "sliding": stream.filter(pk.col("v") > 0).window(pk.sliding(10, 4, offset=3)).agg(s=pk.max("v")),
        "gaps": stream.window(pk.sliding(4, 10), by="k").agg(m=pk.median("v")),
        "twice": stream.window(pk.tumbling(5), by="k").agg(s=pk.sum("v")).window(20).agg(n=pk.count()),
        "counts alone": stream.window(pk.tumbling(10)).agg(n=pk.count()),
        "last": stream.window(pk.tumbling(10)).agg(s=pk.last("v")),
        "times themselves": stream.window(pk.tumbling(10)).agg(s=pk.max("t")),
        "a filter of times": stream.filter(pk.col("t") > 3).window(pk.tumbling(10)).agg(s=pk.sum("v")),
        "look-back": stream.rolling(10, by="k").agg(s=pk.sum("v")),
        "union": stream.union(stream).window(pk.tumbling(10)).agg(s=pk.sum("v")),
    }


STEPS = {
    "tumbling": {"events": Steps("t", 10, 0)},
    "sliding": {"events": Steps("t", 2, 3)},
    "gaps": {"events": Steps("t", 2, 0)},
    "twice": {"events": Steps("t", 5, 0)},
    "counts alone": {"events": Steps("t", 10, 0)},
}


@pytest.mark.parametrize("name", windowed(EVENTS))
def test_panes_are_all_that_some_queries_ask_for(name: str) -> None:
    assert windowed(EVENTS)[name].compiled().coarse_times == STEPS.get(name, {})


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Rows in groups of near times; some have none."""
    near = st.tuples(st.integers(-40, 40), st.lists(st.integers(0, 6), max_size=6))
    groups = draw(st.lists(near, max_size=6))
    times: list[int | None] = [start + more for start, several in groups for more in several]
    if times and draw(st.booleans()):
        times[draw(st.integers(0, len(times) - 1))] = None
    numbers = st.lists(st.integers(-3, 3), min_size=len(times), max_size=len(times))
    keys, values = draw(numbers), draw(numbers)
    return pa.table({"t": pa.array(times, pa.int64()), "k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.int64())})  # fmt: skip


@effort(30)
@given(tables(), st.integers(1, 6), st.booleans())
def test_files_give_the_answer_of_a_table(table: pa.Table, group: int, statistics: bool) -> None:
    expected = windowed(pk.from_arrow(table, time="t", name="events", on_bad="drop"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.parquet")
        pq.write_table(table, path, row_group_size=group, write_statistics=statistics)
        for name, query in windowed(pk.scan(path, time="t", name="events", on_bad="drop")).items():
            assert query.collect().sort_by(_order(query)) == expected[name].collect().sort_by(_order(query))


def _order(query: Any) -> list[tuple[str, str]]:
    return [(name, "ascending") for name in query.schema.names]


def test_times_of_one_pane_are_left_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"t": [1, 2, 3, 9, 10, 12, 28, 29], "k": [1] * 8, "v": range(8)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    asked: list[tuple[list[int], list[str]]] = []
    one = prefetch.decode

    def noted(path: str, metadata: Any, numbers: list[int], columns: list[str], *rest: Any) -> Any:
        asked.append((numbers, columns))
        return one(path, metadata, numbers, columns, *rest)

    monkeypatch.setattr("penstock.sources.prefetch.decode", noted)
    scan = pk.scan(tmp_path, time="t", name="events")
    assert scan.window(10, by="k").agg(s=pk.sum("v")).collect()["s"].to_pylist() == [6, 9, 13]
    assert asked == [([0, 1], ["k", "v"]), ([2], ["k", "v"]), ([3], ["k", "v"])]
    asked.clear()
    assert scan.window(3, by="k").agg(s=pk.sum("v")).collect()["s"].to_pylist() == [1, 2, 7, 5, 13]
    assert asked == [([0], ["k", "v"]), ([1, 2], ["t", "k", "v"]), ([3], ["k", "v"])]


@pytest.mark.parametrize(
    ("dtype", "tick"),
    [(pa.uint8(), 255), (pa.uint32(), (1 << 32) - 1), (pa.int32(), -5), (pa.uint64(), 1 << 62)],
)
def test_one_time_may_be_any_of_its_type(dtype: pa.DataType, tick: int) -> None:
    added = OneTime("t", dtype, tick).added(pa.record_batch({"v": [1, 2]}))
    assert added.column("t").to_pylist() == [tick, tick]


def test_batches_of_one_time_share_a_column_as_long_as_each_of_them() -> None:
    time = OneTime("t", pa.timestamp("us"), 7)
    for rows in (3, 5, 2, 0):
        found = time.added(pa.record_batch({"v": list(range(rows))}))
        found.validate(full=True)
        assert found.column("t").cast(pa.int64()).to_pylist() == [7] * rows
