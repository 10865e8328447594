"""Running queries: collect, run, open and push, engines of any size, and what the metrics say."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk

SCHEMA = pa.schema([("ts", pa.timestamp("s")), ("k", pa.string()), ("v", pa.int64())])


def batch(
    times: list[int | None], keys: list[str] | None = None, values: list[int] | None = None
) -> pa.RecordBatch:
    n = len(times)
    arrays = [
        pa.array(times, pa.int64()).cast(pa.timestamp("s")),
        pa.array(keys or ["a"] * n, pa.string()),
        pa.array(values or [1] * n, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def sums(batches: Iterable[pa.RecordBatch]) -> list[tuple[int, int, int]]:
    """List (start, end, total) of result batches in their order."""
    rows = []
    for table in batches:
        bounds = [table[name].cast(pa.int64()).to_pylist() for name in ("window_start", "window_end")]
        rows += list(zip(*bounds, table["s"].to_pylist(), strict=True))
    return rows


def query(lateness: str | None = None, **options: Any) -> Any:
    events = pk.stream("events", SCHEMA, time="ts", lateness=lateness)
    return events.window("10s", **options).agg(s=pk.sum("v"))


def test_run_emits_a_window_once_its_end_has_passed_and_the_rest_at_the_end() -> None:
    fed: list[int] = []

    def feed() -> Iterator[pa.RecordBatch]:
        for number, times in enumerate([[0, 5], [9, 10], [11, 25]]):
            fed.append(number)
            yield batch(times)

    run = query().run(feed())
    assert sums([next(run)]) == [(0, 10, 3)]
    assert fed == [0, 1], "the first window left as soon as time 10 was seen"
    assert sums(run) == [(10, 20, 2), (20, 30, 1)]


def test_run_without_final_keeps_what_the_watermark_has_not_passed() -> None:
    assert sums(query().run([batch([0, 5, 12])], final=False)) == [(0, 10, 2)]


def test_run_over_a_table_or_over_bound_data() -> None:
    table = pa.Table.from_batches([batch([0, 12])])
    assert sums(query().run(table)) == [(0, 10, 1), (10, 20, 1)]
    bound = pk.from_arrow(table, time="ts").window("10s").agg(s=pk.sum("v"))
    assert sums(bound.run()) == [(0, 10, 1), (10, 20, 1)]


def test_lateness_waits_for_stragglers() -> None:
    assert sums(query("5s").run([batch([8]), batch([14]), batch([7])])) == [(0, 10, 2), (10, 20, 1)]
    assert sums(query().run([batch([8]), batch([14]), batch([7])])) == [(0, 10, 1), (10, 20, 1)]


def test_a_late_row_is_counted_and_left_out() -> None:
    run = query().run([batch([8]), batch([14]), batch([7])])
    list(run)
    metrics = run.metrics
    assert (metrics.read, metrics.accepted, metrics.late, metrics.malformed, metrics.filtered) == (
        3,
        2,
        1,
        0,
        0,
    )


def test_whether_a_row_is_late_does_not_depend_on_the_batches() -> None:
    times = [8, 14, 7, 15, 31, 12, 29]
    whole = query().run([batch(list(times))])
    apart = query().run([batch([t]) for t in times])
    assert sums(whole) == sums(apart)
    assert whole.metrics.late == apart.metrics.late == 3


def test_a_row_is_late_only_if_all_its_windows_are_gone() -> None:
    sliding = pk.stream("events", SCHEMA, time="ts").window("10s", every="5s").agg(s=pk.sum("v"))
    run = sliding.run([batch([12]), batch([7])])
    # At 12 the windows up to [0, 10) are gone; 7 still counts in [5, 15).
    assert sums(run) == [(5, 15, 2), (10, 20, 1)]
    assert run.metrics.late == 0


def test_push_advance_finish() -> None:
    with query().open() as live:
        assert sums(live.push(batch([0, 5]))) == []
        assert sums(live.advance(dt.datetime(1970, 1, 1, 0, 0, 9))) == []
        assert sums(live.advance(dt.datetime(1970, 1, 1, 0, 0, 10))) == [(0, 10, 2)]
        assert sums(live.push(batch([9, 12]))) == []
        assert live.metrics.late == 1
        assert sums(live.finish()) == [(10, 20, 1)]


def test_advance_never_goes_back() -> None:
    with query().open() as live:
        live.push(batch([25]))
        live.advance(dt.datetime(1970, 1, 1))
        live.push(batch([3]))
        assert live.metrics.late == 1


def test_two_streams_wait_for_each_other() -> None:
    a = pk.stream("a", SCHEMA, time="ts")
    b = pk.stream("b", SCHEMA, time="ts")
    both = a.union(b).window("10s").agg(s=pk.sum("v"))
    with both.open() as live:
        assert sums(live.push(a=batch([0, 25]))) == []
        assert sums(live.push(b=batch([5, 12]))) == [(0, 10, 2)]
        assert sums(live.finish()) == [(10, 20, 1), (20, 30, 1)]


def test_null_times_are_malformed() -> None:
    run = query().run([batch([0, None, 5])])
    assert sums(run) == [(0, 10, 2)]
    assert (run.metrics.read, run.metrics.accepted, run.metrics.malformed) == (3, 2, 1)


def test_filtered_rows_are_counted() -> None:
    events = pk.stream("events", SCHEMA, time="ts").filter(pk.col("k") == "a")
    run = events.window("10s").agg(s=pk.sum("v")).run([batch([0, 1, 2], ["a", "b", "a"])])
    assert sums(run) == [(0, 10, 2)]
    assert (run.metrics.read, run.metrics.accepted, run.metrics.filtered) == (3, 2, 1)
    assert run.metrics.balanced


def test_collect_has_no_late_rows_and_leaves_metrics() -> None:
    table = pa.Table.from_batches([batch([100, None, 0, 50], ["a", "a", "b", "a"])])
    counted = pk.from_arrow(table, time="ts").filter(pk.col("k") == "a").window("10s").agg(s=pk.sum("v"))
    assert counted.collect().num_rows == 2
    metrics = counted.metrics
    assert metrics is not None
    assert (metrics.read, metrics.accepted, metrics.late, metrics.malformed, metrics.filtered) == (
        4,
        2,
        0,
        1,
        1,
    )


def test_collect_can_be_given_a_metrics_object() -> None:
    metrics = pk.Metrics()
    query().collect(pa.Table.from_batches([batch([0, 1])]), metrics=metrics)
    assert metrics.read == 2
    assert metrics.balanced


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_any_number_of_threads_gives_the_same_windows(threads: int) -> None:
    n = 20_000
    table = pa.table(
        {
            "ts": pa.array([(i * 37) % 5_000 for i in range(n)], pa.timestamp("s")),
            "k": [f"key {i % 101}" for i in range(n)],
            "v": list(range(n)),
        }
    )
    keyed = (
        pk.from_arrow(table, time="ts").window("1m", by="k").agg(s=pk.sum("v"), n=pk.count(), b=pk.max("v"))
    )
    small = keyed.collect(engine=pk.Engine(threads=threads, task_bytes=4_096))
    usual = keyed.collect(engine=pk.Engine(threads=1))
    order = [("window_end", "ascending"), ("k", "ascending")]
    assert small.sort_by(order).equals(usual.sort_by(order))


def test_results_of_a_run_have_the_schema_of_the_query_even_when_empty() -> None:
    made = query(by="k")
    for value in made.run([batch([0, 12]), batch([])]):
        assert value.schema.equals(made.schema)
    assert list(made.run([])) == [] or all(table.num_rows == 0 for table in made.run([]))


def test_windows_of_different_keys_close_together() -> None:
    run = query(by="k").run([batch([0, 1, 2], ["a", "b", "c"]), batch([10], ["z"])])
    first = next(run)
    assert sorted(first["k"].to_pylist()) == ["a", "b", "c"]


def test_windows_over_windows_run_incrementally() -> None:
    events = pk.stream("events", SCHEMA, time="ts")
    second = events.window("10s", by="k").agg(s=pk.sum("v")).window("20s").agg(s=pk.sum("s"))
    with second.open() as live:
        assert sums(live.push(batch([0, 11], ["a", "b"]))) == []
        assert sums(live.push(batch([21]))) == [(0, 20, 2)]
        assert sums(live.finish()) == [(20, 40, 1)]


def test_row_queries_stream_through() -> None:
    doubled = pk.stream("events", SCHEMA, time="ts").filter(pk.col("v") > 1).with_columns(w=pk.col("v") * 2)
    with doubled.open() as live:
        made = live.push(batch([0, 1], values=[1, 5]))
        assert [row for table in made for row in table["w"].to_pylist()] == [10]


def test_a_batch_of_another_schema_is_refused() -> None:
    with query().open() as live, pytest.raises(pk.SchemaMismatchError):
        live.push(pa.record_batch({"ts": pa.array([0], pa.timestamp("s"))}))


def test_keys_that_come_and_go_over_many_windows() -> None:
    batches = [batch([10 * i] * 3, [f"k{i}", f"k{i + 1}", "stays"]) for i in range(300)]
    rows = [row for table in query(by="k").run(batches) for row in table.to_pylist()]
    assert len(rows) == 900
    assert {row["s"] for row in rows} == {1}


def test_one_query_may_run_in_many_python_threads_at_once() -> None:
    n = 5_000
    tables = [
        pa.table(
            {
                "ts": pa.array(range(n), pa.timestamp("s")),
                "k": [f"{i % 13}" for i in range(n)],
                "v": [seed] * n,
            }
        )
        for seed in range(8)
    ]
    keyed = pk.stream("events", SCHEMA, time="ts").window("1m", by="k").agg(s=pk.sum("v"))
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(keyed.collect, tables))
    assert [sum(result["s"].to_pylist()) for result in results] == [seed * n for seed in range(8)]
