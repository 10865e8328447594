"""Overlapping windows: whatever merges their panes, the answer is the interpreter's, to the last bit.

Floats here are small multiples of 1/4, whose sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pk
from penstock.algorithms import monoids
from penstock.analysis.panes import in_panes
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows
from penstock.operators.pane_aggregate import emission
from penstock.operators.pane_aggregate.kernels.emit_panes import algorithms
from penstock.runtime.engine import AGGREGATORS

SCHEMA = pa.schema(
    {"t": pa.int64(), "k": pa.int64(), "name": pa.string(), "i": pa.int64(), "f": pa.float64()}
)
EVENTS = pk.stream("events", SCHEMA, time="t")
Row = dict[str, Any]

WINDOWS = {
    "2 overlap": (20, 10, 0),
    "3 overlap": (30, 10, 7),
    "5 overlap": (25, 5, 0),
    "10 overlap": (100, 10, 3),
    "1000 overlap": (1000, 1, 0),
    "a slide that does not divide the size": (100, 30, 0),
    "a slide nearly as long as the size": (100, 99, 11),
    "many panes, two to each slide": (50, 7, 2),
    "a slide longer than the size": (30, 100, 0),
}
KEYS: dict[str, list[str]] = {"no key": [], "an integer": ["k"], "a text and an integer": ["name", "k"]}


@cache
def query_of(window: str, key: str = "an integer") -> pk.Stream:
    """Ask for what is subtracted, for what is not, and for what depends on the order of panes."""
    size, every, offset = WINDOWS[window]
    windowed = EVENTS.window(pk.sliding(size, every=every, offset=offset), by=KEYS[key] or None)
    return windowed.agg(
        total=pk.sum("i"), sum=pk.sum("f"), lowest=pk.min("f"), earliest=pk.first("i"), most=pk.max("name")
    )


def table_of(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCHEMA)


def answer(run: Callable[[], pa.Table | list[Row]]) -> list[str] | str:
    """List rows as text, in some order; an overflow is an answer too."""
    try:
        found = run()
    except pk.OverflowError:
        return "overflow"
    return sorted(map(repr, found if isinstance(found, list) else to_rows(found)))


def defined(query: pk.Stream, rows: Sequence[Row]) -> list[str] | str:
    return answer(lambda: interpret(query.compiled().raw, {"events": to_rows(table_of(rows))}))


def collected(query: pk.Stream, rows: Sequence[Row], engine: pk.Engine) -> list[str] | str:
    return answer(lambda: query.collect(events=table_of(rows), engine=engine))


def row(t: int, k: int | None, i: int | None, quarters: int | None) -> Row:
    name = None if k is None else "abc"[k % 3]
    return {"t": t, "k": k, "name": name, "i": i, "f": None if quarters is None else quarters / 4}


# Stretches of neighbouring times with gaps between them, some longer than any window; negative ones too.
TIMES = st.tuples(st.sampled_from([-5_000, -40, 0, 60, 2_500]), st.integers(0, 25)).map(sum)
PLAIN = st.lists(
    st.builds(row, TIMES, st.integers(0, 3), st.integers(-9, 9), st.integers(-9, 9)), max_size=14
)
LARGE = st.builds(
    row, TIMES, st.sampled_from([0, 1]), st.sampled_from([2**62, 2**63 - 1, -(2**63)]), st.just(0)
)
NOTHING = row(30, None, None, None)
# Nulls and large values change how panes are laid out while a run goes on: all at once, to compile little.
ROWS = PLAIN | st.tuples(PLAIN, st.lists(LARGE, max_size=3), PLAIN).map(
    lambda parts: [*parts[0], NOTHING, *parts[1], *parts[2]]
)


@pytest.mark.parametrize("window", WINDOWS)
def test_the_queries_of_this_file_run_in_panes(window: str) -> None:
    program = query_of(window).compiled().program
    assert in_panes(program[program.output].body, program)


@pytest.mark.parametrize(
    ("window", "key"),
    [*((window, "an integer") for window in WINDOWS), *(("10 overlap", key) for key in KEYS)],
)
@settings(max_examples=6, deadline=None)
@given(rows=ROWS)
def test_every_algorithm_gives_what_the_interpreter_defines(window: str, key: str, rows: list[Row]) -> None:
    query = query_of(window, key)
    expected = defined(query, rows)
    for aggregator in (None, *AGGREGATORS):
        assert collected(query, rows, pk.Engine(threads=1, aggregator=aggregator)) == expected, aggregator


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("window", WINDOWS)
@settings(max_examples=3, deadline=None)
@given(rows=ROWS)
def test_threads_with_tasks_of_a_row_each_change_nothing(
    window: str, aggregator: str, rows: list[Row]
) -> None:
    query = query_of(window)
    engine = pk.Engine(threads=2, task_bytes=1, aggregator=aggregator)
    assert collected(query, rows, engine) == defined(query, rows)


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("window", ["3 overlap", "many panes, two to each slide"])
@settings(max_examples=2, deadline=None)
@given(rows=ROWS)
def test_kernels_that_assume_nothing_and_kernels_in_plain_python_change_nothing(
    window: str, aggregator: str, rows: list[Row]
) -> None:
    query, expected = query_of(window), defined(query_of(window), rows)
    general = pk.Engine(threads=1, aggregator=aggregator, adaptive=False)
    plain = pk.Engine(threads=1, aggregator=aggregator, backend="interpret")
    assert collected(query, rows, general) == expected
    assert collected(query, rows, plain) == expected


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("window", WINDOWS)
@settings(max_examples=3, deadline=None)
@given(rows=ROWS, sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_a_run_emits_the_same_however_its_input_is_cut(
    window: str, aggregator: str, rows: list[Row], sizes: list[int]
) -> None:
    """Each push emits what it completes: every one starts its merging anew, in the middle of things."""
    query = query_of(window)
    rows = sorted(rows, key=lambda record: int(record["t"]))
    table = table_of(rows)
    batches, begin = [], 0
    while begin < len(rows):
        size = sizes[len(batches) % len(sizes)]
        batches += table.slice(begin, size).combine_chunks().to_batches()
        begin += size
    engine = pk.Engine(threads=1, aggregator=aggregator)
    found = answer(lambda: pa.Table.from_batches(list(query.run(batches, engine=engine)), query.schema))
    assert found == defined(query, rows)


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_output_that_does_not_fit_one_call_continues_in_the_next(
    aggregator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = query_of("10 overlap")
    rows = [row(t, t % 3, t % 11 - 5, t % 7) for t in range(0, 700, 3)]
    whole = collected(query, rows, pk.Engine(threads=1, aggregator=aggregator))
    monkeypatch.setattr(emission, "MOST_EMITTED_ROWS", 1)
    assert (
        collected(query, rows, pk.Engine(threads=1, aggregator=aggregator)) == whole == defined(query, rows)
    )


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("window", WINDOWS)
def test_windows_divided_among_threads_give_the_same_rows_in_the_same_order(
    window: str, aggregator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding too: where a thread begins must not show in sums of floats that are not exact."""
    size, every, offset = WINDOWS[window]
    windowed = EVENTS.window(pk.sliding(size, every=every, offset=offset), by="k")
    query = windowed.agg(total=pk.sum("f"), spread=pk.var("f"), n=pk.count())
    rows = [{**row(3 * t, t % 3, 0, 0), "f": (t * 7919 % 1000) / 7} for t in range(2_000)]
    single = query.collect(events=table_of(rows), engine=pk.Engine(threads=1, aggregator=aggregator))
    monkeypatch.setattr(emission, "CELLS_PER_THREAD", 1)
    several = query.collect(events=table_of(rows), engine=pk.Engine(threads=3, aggregator=aggregator))
    assert several.equals(single)


SUMS: dict[str, tuple[list[int], bool]] = {
    "never beyond 64 bits": ([2**62, -(2**62), 2**62, -(2**62), 5, 6, 7, 8], True),
    "beyond them only while one enters and another leaves": ([2**62, 2**61, 0, 0, 0, 2**62, 1, 2, 3], True),
    "beyond them for a while": ([2**62, 2**62, 2**62, -(2**62), 4, 5, 6, 7, 8], False),
}


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("name", SUMS)
def test_panes_whose_sums_fit_64_bits_make_windows_whose_sums_fit_or_are_errors(
    name: str, aggregator: str
) -> None:
    values, fits = SUMS[name]
    rows = [row(10 * place, 0, value, 0) for place, value in enumerate(values)]
    window, engine = EVENTS.window(pk.sliding(50, every=10)), pk.Engine(threads=1, aggregator=aggregator)
    held = [values[max(end - 5, 0) : end] for end in range(1, len(values) + 5)]
    means = window.agg(m=pk.mean("i")).collect(events=table_of(rows), engine=engine)["m"].to_pylist()
    assert means == [sum(sizes) / len(sizes) for sizes in held]
    sums = collected(window.agg(s=pk.sum("i")), rows, engine)
    assert (sums == "overflow") is not fits
    assert not fits or sums == defined(window.agg(s=pk.sum("i")), rows)


def test_float_sums_do_not_drift_however_much_passes_through_the_window() -> None:
    """A large value that has left leaves nothing behind: it is never subtracted."""
    rows = [{**row(t, 0, 0, 0), "f": 1e17 if t % 50 == 0 else 0.1} for t in range(500)]
    query = EVENTS.window(pk.sliding(10, every=1)).agg(s=pk.sum("f"), n=pk.count())
    for aggregator in (None, *AGGREGATORS):
        found = query.collect(events=table_of(rows), engine=pk.Engine(aggregator=aggregator)).to_pylist()
        quiet = [record for record in found if record["n"] == 10 and record["s"] < 2]
        assert len(quiet) > 300
        assert all(record["s"] == pytest.approx(1.0, rel=1e-15) for record in quiet)


MIXED = [monoids.present(), monoids.count(), monoids.integer_sum(wide=True), monoids.float_sum()]


@pytest.mark.parametrize(
    ("preferred", "expected"),
    [
        ("subtract-on-evict", ["two-stacks", "subtract-on-evict", "subtract-on-evict", "two-stacks"]),
        ("two-stacks", ["two-stacks"] * 4),
        ("recompute", ["recompute"] * 4),
    ],
)
def test_only_what_can_be_taken_out_again_is_subtracted(preferred: str, expected: list[str]) -> None:
    assert list(algorithms(MIXED, preferred)) == expected
