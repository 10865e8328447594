"""Sessions and count windows that cross the borders of slices: one answer, wherever files are cut."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.errors import EngineError
from penstock.spark import rows as spark_rows
from penstock.spark.planning import planned
from penstock.spark.session_tracking import Chains, key_words
from tests.oracle.effort import effort
from tests.spark.agree import assert_same
from tests.spark.lakes import events
from tests.spark.local import run_locally

KEYS = st.sampled_from(["a", "b", "", None])


@st.composite
def ordered_tables(draw: st.DrawFn) -> pa.Table:
    """Rows in order of time, many of them at one time, with long and short breaks."""
    steps = draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 7, 40]), max_size=40))
    times = np.cumsum([draw(st.integers(-60, 60)), *steps])
    some = draw(st.lists(KEYS, min_size=len(times), max_size=len(times)))
    return pa.table({"t": times, "k": pa.array(some, pa.string()), "v": np.arange(len(times))})


def written(table: pa.Table, folder: str, files: int, group: int) -> None:
    edges = [table.num_rows * part // files for part in range(files + 1)]
    for number in range(files):
        piece = table.slice(edges[number], edges[number + 1] - edges[number])
        pq.write_table(piece, Path(folder, f"{number}.parquet"), row_group_size=group)


def queries(stream: Any) -> Iterator[Any]:
    for window in (pk.session(2), pk.session(10)):
        yield stream.window(window, by="k").agg(n=pk.count(), f=pk.first("v"), l=pk.last("v"))
        yield stream.window(window).agg(n=pk.count(), t=pk.sum("v"))
        yield stream.filter(pk.col("v") % 3 != 1).window(window, by="k").agg(t=pk.sum("v"))
    for window in (pk.rows(3), pk.rows(4, every=3), pk.rows(2, every=5), pk.rows(4, every=1, partial=True)):
        yield stream.window(window).agg(n=pk.count(), f=pk.first("v"), t=pk.sum("v"))
    for closed in ("right", "left"):
        yield stream.rolling(pk.rows(3), closed=closed).agg(n=pk.count(), f=pk.first("v"), s=pk.sum("v"))
    yield stream.rolling([pk.rows(2), pk.rows(6)]).with_columns(s=pk.sum("v"))
    yield stream.join_asof(stream.rename({"v": "w"}), direction="nearest").select("v", "w")


@effort(25)
@given(ordered_tables(), st.integers(1, 3), st.integers(1, 7), st.integers(1, 6))
def test_slices_give_the_one_answer(table: pa.Table, files: int, group: int, tasks: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        written(table, folder, files, group)
        for query in queries(pk.scan(folder, time="t", name="events")):
            assert_same(query.collect(), run_locally(query, "slices", tasks), str(query.plan))


@effort(25)
@given(st.integers(0, 40), st.integers(1, 3), st.integers(1, 7), st.integers(1, 6))
def test_regular_time_is_cut_by_row_number(rows: int, files: int, group: int, tasks: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        written(pa.table({"v": np.arange(rows) % 7}), folder, files, group)
        stream = pk.scan(folder, time=pk.every("4ms"), name="events")
        signal = stream.signal("v")
        for query in (
            stream.window(pk.rows(3)).agg(n=pk.count(), f=pk.first("v"), t=pk.sum("v")),
            stream.window(pk.rows(4, every=3)).agg(f=pk.first("v"), t=pk.sum("v")),
            stream.rolling("12ms").agg(t=pk.sum("v")),
            stream.window("8ms").agg(m=pk.median("v")),
            (signal - signal.shift("4ms")).to_stream("made"),
            (signal.rolling("12ms").mean() - signal).to_stream("made"),
            signal.resample(every="3ms", method="linear").to_stream("made"),
        ):
            assert_same(query.collect(), run_locally(query, "slices", tasks), str(query.plan))


@given(st.data(), st.integers(0, 9), st.booleans())
def test_chains_end_where_sessions_end(data: st.DataObject, gap: int, exact: bool) -> None:
    times = np.sort(data.draw(st.lists(st.integers(-30, 30), min_size=1, max_size=30)))
    low, high, mark = sorted(data.draw(st.lists(st.integers(-30, 31), min_size=3, max_size=3)))
    chains = Chains(gap, low, high, exact)
    chains.add(key_words([], len(times)), times)
    for value in (low, high, mark):
        chains.advance(value)
    seen = times[times < mark]
    starts = seen[np.diff(seen, prepend=-1_000) > gap]
    alive = len(seen) > 0 and seen[-1] + gap >= mark
    ours = alive and starts[-1] < high and (starts[-1] >= low or not exact)
    assert chains.open() == ours


def test_a_task_reads_on_only_until_its_sessions_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = np.arange(0, 10_000, 10) + 1_000 * (np.arange(1_000) // 60)  # sixty rows, then a break
    written(pa.table({"t": times, "v": times}), str(tmp_path), 1, 50)
    query = pk.scan(tmp_path, time="t").window(pk.session(100)).agg(n=pk.count())
    read: list[int] = []
    one = spark_rows.read

    def counted(fragment: Any, *rest: Any, **options: Any) -> Any:
        for batch in one(fragment, *rest, **options):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr("penstock.spark.rows.read", counted)
    monkeypatch.setattr("penstock.spark.slices.JOINED_ROWS", 1)
    result = run_locally(query, "slices", 4)
    assert_same(query.collect(), result, "sessions")
    assert 1_000 < sum(read) <= 1_000 + 3 * 3 * 50


@pytest.mark.parametrize("window", [pk.session(5), pk.rows(3)])
def test_files_out_of_order_are_not_sliced(tmp_path: Path, window: Any) -> None:
    written(pa.table({"t": [5, 6, 7, 8, 1, 2, 3, 4]}), str(tmp_path), 2, 2)
    query = pk.scan(tmp_path, time="t").window(window).agg(n=pk.count())
    with pytest.raises(EngineError, match="not in the required order"):
        planned(query.compiled(), query.data, "slices", 2)


def test_rows_without_a_time_keep_count_windows_in_one_task(tmp_path: Path) -> None:
    written(pa.table({"t": [1, 2, None, 4, 5, 6]}), str(tmp_path), 1, 2)
    query = pk.scan(tmp_path, time="t").window(pk.rows(2)).agg(n=pk.count())
    with pytest.raises(EngineError, match="not in the required order"):
        planned(query.compiled(), query.data, "slices", 3)


def test_spark_stitches_sessions(spark: Any, tmp_path: Path) -> None:
    written(events(), str(tmp_path), 3, 100)
    stream = pk.scan(tmp_path, time="ts", sequence="n")
    query = stream.window(pk.session("400ms"), by="k").agg(n=pk.count(), t=pk.sum("v"))
    frame = query.to_spark(spark, strategy="slices", tasks=4)
    assert_same(query.collect(), frame.toArrow(), "sessions")
    source = spark.read.format("penstock").option("query", query.to_json())
    sliced = source.option("strategy", "slices").option("tasks", 4).load(str(tmp_path))
    assert sliced.rdd.getNumPartitions() == 4
    assert_same(query.collect(), sliced.toArrow(), "through the data source")
