"""Incremental runs: each window once, in order, when the watermark has passed; lateness row by row.

The model below is written from the text of the semantics: it looks at one row at a time, in order of
arrival, so what it says cannot depend on how rows are cut into batches.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as pk
from penstock.codegen.tiers import TieredKernel

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
Row = tuple[int | None, str | None, int]
Emitted = tuple[int, int, str | None, int, int]
START_OF_TIME = -(10**18)
ROWS = 2_000

QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@dataclass(frozen=True)
class Frame:
    size: int
    every: int
    offset: int
    lateness: int

    def starts(self, t: int) -> list[int]:
        """List the starts of the windows that hold `t`."""
        last = (t - self.offset) // self.every * self.every + self.offset
        return [start for start in range(last, t - self.size, -self.every) if start <= t < start + self.size]


@dataclass
class Model:
    """What the semantics say must happen to each row, and what must have been emitted when."""

    frame: Frame
    largest: int = START_OF_TIME
    late: int = 0
    malformed: int = 0
    accepted: int = 0
    forced: int = START_OF_TIME
    open: dict[tuple[int, str | None], list[int]] = field(default_factory=dict)

    @property
    def watermark(self) -> int:
        return max(self.largest - self.frame.lateness, self.forced)

    def take(self, row: Row) -> None:
        t, key, value = row
        if t is None:
            self.malformed += 1
            return
        self.largest = max(self.largest, t)
        starts = self.frame.starts(t)
        alive = [start for start in starts if start + self.frame.size > self.watermark]
        if starts and not alive:
            self.late += 1
            return
        self.accepted += 1
        for start in alive:
            self.open.setdefault((start, key), []).append(value)

    def emit(self, everything: bool = False) -> list[Emitted]:
        """Take out the windows the watermark has passed."""
        size = self.frame.size
        ready = [key for key in self.open if everything or key[0] + size <= self.watermark]
        taken = {key: self.open.pop(key) for key in ready}
        return [(start + size, start, key, sum(vs), len(vs)) for (start, key), vs in taken.items()]


def as_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [[], [], []]
    return pa.RecordBatch.from_arrays(
        [pa.array(list(column), value.type) for column, value in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def windows(batches: Iterable[pa.RecordBatch]) -> list[Emitted]:
    names = ("window_end", "window_start", "k", "s", "n")
    return [
        tuple(row)
        for batch in batches
        for row in zip(*(batch[name].to_pylist() for name in names), strict=True)
    ]  # type: ignore[misc]


def query(frame: Frame) -> Any:
    events = pk.stream("events", SCHEMA, time="t", lateness=frame.lateness)
    spec = pk.sliding(frame.size, frame.every, offset=frame.offset)
    return events.window(spec, by="k").agg(s=pk.sum("v"), n=pk.count())


def sort(rows: Iterable[Emitted]) -> list[Emitted]:
    return sorted(rows, key=lambda row: (row[0], row[1], row[2] is not None, row[2] or ""))


def in_order(rows: Sequence[Emitted]) -> bool:
    return all(a[:2] <= b[:2] for a, b in pairwise(rows))


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    size = draw(st.integers(1, 12))
    every = draw(st.just(size) | st.integers(1, size + 5))
    return Frame(size, every, draw(st.integers(0, every)), draw(st.integers(0, 20)))


@st.composite
def arrivals(draw: st.DrawFn) -> list[Row]:
    """Draw rows whose times move forward with stragglers, leaps and nulls."""
    steps = draw(st.lists(st.integers(-15, 6) | st.integers(0, 6) | st.sampled_from([40, -60]), max_size=40))
    rows: list[Row] = []
    now = draw(st.sampled_from([0, -50, 1_000_000]))
    for step in steps:
        now += max(step, 0)
        t = None if step == 5 and draw(st.booleans()) else now + min(step, 0)
        rows.append((t, draw(st.sampled_from(["a", "b", "", None])), draw(st.integers(-9, 9))))
    return rows


@st.composite
def splits(draw: st.DrawFn, rows: list[Row]) -> list[list[Row]]:
    inner = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=6)))
    return [rows[low:high] for low, high in pairwise([0, *inner, len(rows)])]


def check_metrics(metrics: Any, model: Model, read: int) -> None:
    assert metrics.balanced
    assert metrics.read == read
    assert (metrics.accepted, metrics.late, metrics.malformed) == (
        model.accepted,
        model.late,
        model.malformed,
    )


@QUICK
@given(frame=frames(), rows=arrivals(), data=st.data())
def test_each_push_emits_exactly_what_the_watermark_has_passed(
    frame: Frame, rows: list[Row], data: st.DataObject
) -> None:
    model, read = Model(frame), 0
    with query(frame).open() as live:
        for part in data.draw(splits(rows)):
            for row in part:
                model.take(row)
            read += len(part)
            got = windows(live.push(as_batch(part)))
            assert in_order(got)
            assert sort(got) == sort(model.emit())
            check_metrics(live.metrics, model, read)
        last = windows(live.finish())
        assert in_order(last)
        assert sort(last) == sort(model.emit(everything=True))


@QUICK
@given(frame=frames(), rows=arrivals(), data=st.data())
def test_the_answer_and_the_late_rows_do_not_depend_on_the_batches(
    frame: Frame, rows: list[Row], data: st.DataObject
) -> None:
    one = query(frame).run([as_batch(rows)])
    many = query(frame).run([as_batch(part) for part in data.draw(splits(rows))])
    assert sort(windows(one)) == sort(windows(many))
    assert one.metrics.late == many.metrics.late
    assert one.metrics.accepted == many.metrics.accepted


@QUICK
@given(frame=frames(), rows=arrivals(), data=st.data())
def test_windows_leave_once_and_in_order_over_the_whole_run(
    frame: Frame, rows: list[Row], data: st.DataObject
) -> None:
    got = windows(query(frame).run([as_batch(part) for part in data.draw(splits(rows))]))
    assert in_order(got)
    identities = [row[:3] for row in got]
    assert len(set(identities)) == len(identities)


@QUICK
@given(frame=frames(), rows=arrivals(), data=st.data())
def test_advancing_by_hand_is_like_having_seen_a_later_row(
    frame: Frame, rows: list[Row], data: st.DataObject
) -> None:
    model = Model(frame)
    with query(frame).open() as live:
        for part in data.draw(splits(rows)):
            for row in part:
                model.take(row)
            assert sort(windows(live.push(as_batch(part)))) == sort(model.emit())
            to = data.draw(st.integers(-60, 150))
            model.forced = max(model.forced, to)
            assert sort(windows(live.advance(to))) == sort(model.emit())
        check_metrics(live.metrics, model, len(rows))
        assert sort(windows(live.finish())) == sort(model.emit(everything=True))


@QUICK
@given(frame=frames(), rows=arrivals(), data=st.data())
def test_rows_are_accounted_for_when_a_filter_stands_before_the_window(
    frame: Frame, rows: list[Row], data: st.DataObject
) -> None:
    events = pk.stream("events", SCHEMA, time="t", lateness=frame.lateness).filter(pk.col("v") > 0)
    spec = pk.sliding(frame.size, frame.every, offset=frame.offset)
    filtered = events.window(spec, by="k").agg(s=pk.sum("v"), n=pk.count())
    read = 0
    with filtered.open() as live:
        for part in data.draw(splits(rows)):
            live.push(as_batch(part))
            read += len(part)
            assert live.metrics.balanced
            assert live.metrics.read == read
        live.finish()
        assert live.metrics.balanced
        assert live.metrics.filtered == sum(t is not None and v <= 0 for t, _, v in rows)  # late ones too


@QUICK
@given(frame=frames(), rows=arrivals(), data=st.data())
def test_a_filtered_row_moves_the_watermark_like_any_other(
    frame: Frame, rows: list[Row], data: st.DataObject
) -> None:
    """The watermark is of the source: what a filter rejects has still been seen."""
    model = Model(frame)
    events = pk.stream("events", SCHEMA, time="t", lateness=frame.lateness).filter(pk.col("v") > 0)
    spec = pk.sliding(frame.size, frame.every, offset=frame.offset)
    filtered = events.window(spec, by="k").agg(s=pk.sum("v"), n=pk.count())
    with filtered.open() as live:
        for part in data.draw(splits(rows)):
            for row in part:
                if row[2] > 0:
                    model.take(row)
                elif row[0] is not None:
                    model.largest = max(model.largest, row[0])
            assert sort(windows(live.push(as_batch(part)))) == sort(model.emit())
        assert sort(windows(live.finish())) == sort(model.emit(everything=True))


@QUICK
@given(rows=arrivals())
def test_lateness_enough_for_every_row_gives_the_answer_of_collect(rows: list[Row]) -> None:
    frame = Frame(6, 2, 0, 1_000)
    run = query(frame).run([as_batch([row]) for row in rows])
    table = pa.Table.from_batches([as_batch(rows)])
    assert sort(windows(run)) == sort(windows(query(frame).collect(table).to_batches()))
    assert run.metrics.late == 0


def test_finish_twice_emits_nothing_twice() -> None:
    with query(Frame(10, 10, 0, 0)).open() as live:
        live.push(as_batch([(1, "a", 1)]))
        assert len(windows(live.finish())) == 1
        assert windows(live.finish()) == []


def _memory_after(
    made: Any, key: Callable[[int], object], schema: pa.Schema, steps: tuple[int, int]
) -> list[int]:
    """Push batches of keys that come and go, and read how much memory is held after `steps` of them."""
    held = []
    tracemalloc.start()
    try:
        with made.open() as live:
            for step in range(steps[1] + 1):
                columns = [[step * 10] * ROWS, [key(step * ROWS + i) for i in range(ROWS)], [1] * ROWS]
                arrays = [pa.array(column, value.type) for column, value in zip(columns, schema, strict=True)]
                live.push(pa.RecordBatch.from_arrays(arrays, schema=schema))
                if step in steps:
                    del arrays, columns
                    gc.collect()
                    held.append(tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes())
    finally:
        tracemalloc.stop()
    return held


def _growth(made: pk.Stream, key: Callable[[int], object], schema: pa.Schema) -> int:
    """Tell how much more is held after 120 steps than after 40.

    No kernel may be compiled fully in the background meanwhile: its code would count, and when it comes is up to the clock.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TieredKernel, "_improve", lambda self: None)
        first, last = _memory_after(made, key, schema, (40, 120))
    return last - first


@pytest.mark.parametrize(
    ("key", "dtype"),
    [
        (lambda n: n * 1_000_003, pa.int64()),
        (lambda n: n, pa.int64()),
        (lambda n: n / 7, pa.float64()),
        (lambda n: f"key number {n}", pa.string()),
    ],
    ids=["scattered integers", "rising integers", "floats", "strings"],
)
def test_keys_that_come_and_go_leave_no_memory_behind(
    key: Callable[[int], object], dtype: pa.DataType
) -> None:
    schema = pa.schema([("t", pa.int64()), ("k", dtype), ("v", pa.int64())])
    made = pk.stream("events", schema, time="t").window(10, by="k").agg(s=pk.sum("v"), n=pk.count())
    per_key = _growth(made, key, schema) / (80 * ROWS)
    assert per_key < 8, f"{per_key:.1f} bytes stay behind for each key whose window has been emitted"


def test_windows_that_come_and_go_leave_no_memory_behind() -> None:
    made = pk.stream("events", SCHEMA, time="t").window(pk.sliding(40, 10), by="k").agg(s=pk.sum("v"))
    assert _growth(made, lambda n: "abcd"[n % 4], SCHEMA) < 80 * 1_000


@pytest.mark.parametrize(
    "queried",
    [
        lambda e: e.window(10, every=5).with_columns(n=pk.count()),
        lambda e: e.window(pk.rows(3, every=2)).with_columns(n=pk.count()),
    ],
    ids=["sliding", "rows"],
)
def test_time_behind_top_k_waits_for_the_rows_that_it_holds(
    queried: Callable[[pk.Stream], pk.Stream],
) -> None:
    table = pa.table({"t": [-8, 1, 3, 8, 12, 13, 16, 30], "v": [1, 2, 3, 4, 5, 6, 7, 8]})
    rows = queried(pk.stream("events", table.schema, time="t"))
    made = rows.top_k(9, by="v").rolling(10).agg(total=pk.sum("v"), n_rows=pk.count())
    run = made.run(table.to_batches(max_chunksize=1))
    assert [row for batch in run for row in batch.to_pylist()] == made.collect(events=table).to_pylist()
