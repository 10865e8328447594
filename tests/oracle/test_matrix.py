"""Every window with every aggregate: compiled, incremental and threaded answers are the interpreter's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import penstock as pk
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows
from penstock.translate import to_ir
from tests.oracle.effort import effort
from tests.oracle.engines import tiny_tasks
from tests.oracle.matrix_engines import (
    Advance,
    Push,
    assert_answer,
    collected,
    disorder,
    driven,
    expected,
    results,
    streamed,
)
from tests.oracle.matrix_queries import Case, Rolling, Windowed, calendar_cases, cases, nested_cases
from tests.oracle.strategies import batches_of


@effort(100)
@given(case=cases())
def test_a_compiled_query_gives_what_the_interpreter_defines(case: Case) -> None:
    wanted = expected(case)
    if wanted is None:
        with pytest.raises(pk.OverflowError):
            collected(case)
        return
    assert_answer(case, wanted, collected(case), "compiled")


@effort(60)
@given(case=cases(), data=st.data(), slack=st.sampled_from([0, 0, 1, 7, 10**8]))
def test_any_split_into_batches_gives_what_the_interpreter_defines(
    case: Case, data: st.DataObject, slack: int
) -> None:
    """With just enough patience for the rows, windows leave as early as they can."""
    wanted = expected(case)
    assume(wanted is not None)
    found, counted = streamed(case, data.draw(batches_of(case.table)), disorder(case) + slack)
    assert_answer(case, wanted or [], found, "incremental")
    assert counted.late == 0 and counted.balanced


@effort(30)
@given(case=cases(), threads=st.sampled_from([2, 3]))
def test_threads_and_tasks_do_not_change_the_answer(case: Case, threads: int) -> None:
    wanted = expected(case)
    assume(wanted is not None)
    assert_answer(case, wanted or [], collected(case, engine=tiny_tasks(threads)), f"{threads} threads")


@effort(12)
@given(case=cases())
def test_kernels_interpreted_give_the_answer_of_native_code(case: Case) -> None:
    assume(case.table.num_rows <= 12)
    wanted = expected(case)
    assume(wanted is not None)
    assert_answer(
        case, wanted or [], collected(case, engine=pk.Engine(backend="interpret")), "loop interpreter"
    )


@effort(40)
@given(case=nested_cases())
def test_windows_over_windows_give_what_the_interpreter_defines(case: Case) -> None:
    wanted = expected(case)
    assume(wanted is not None)
    assert_answer(case, wanted or [], collected(case), "compiled")


@effort(40)
@given(case=nested_cases(), data=st.data(), slack=st.sampled_from([0, 3]))
def test_windows_over_windows_do_not_depend_on_batches(case: Case, data: st.DataObject, slack: int) -> None:
    wanted = expected(case)
    assume(wanted is not None)
    found, counted = streamed(case, data.draw(batches_of(case.table)), disorder(case) + slack)
    assert_answer(case, wanted or [], found, "incremental")
    assert counted.late == 0 and counted.balanced


@effort(30)
@given(case=calendar_cases(), data=st.data())
def test_windows_on_the_calendar_give_what_the_interpreter_defines(case: Case, data: st.DataObject) -> None:
    wanted = expected(case)
    assume(wanted is not None)
    assert_answer(case, wanted or [], collected(case), "compiled")
    found, counted = streamed(case, data.draw(batches_of(case.table)), disorder(case))
    assert_answer(case, wanted or [], found, "incremental")
    assert counted.late == 0 and counted.balanced


# --- rows that come too late --------------------------------------------------------------------------------


@effort(40)
@given(case=cases() | calendar_cases(), lateness=st.integers(0, 30), data=st.data())
def test_the_same_rows_are_late_whatever_the_batches(case: Case, lateness: int, data: st.DataObject) -> None:
    assume(expected(case) is not None)
    one, counted = streamed(case, case.table.combine_chunks().to_batches(), lateness)
    many, recounted = streamed(case, data.draw(batches_of(case.table)), lateness)
    assert counted == recounted or _counts(counted) == _counts(recounted)
    assert counted.balanced and recounted.balanced
    assert _exact(case, one) == _exact(case, many)


def _counts(metrics: pk.Metrics) -> tuple[int, ...]:
    return metrics.read, metrics.accepted, metrics.late, metrics.filtered, metrics.malformed, metrics.emitted


def _exact(case: Case, table: pa.Table) -> list[str]:
    """List what has to be equal to the bit."""
    loose = {name for name, field in case.scaled.items() if field.scale is not None}
    names = [name for name in table.column_names if name.partition("_")[0] not in loose]
    return sorted(map(repr, results(table.select(names))))


def _waits_for_order(case: Case) -> bool:
    """Tell whether a row counts if and only if the watermark had not passed it when it arrived.

    Rows behind the watermark may join an open session: `test_session_lateness.py` has their rule.
    """
    step = next(step for step in case.steps if isinstance(step, Windowed | Rolling))
    return isinstance(step, Rolling) or type(step.window).__name__ == "RowsSpec"


MOVES = st.lists(st.integers(0, 6).map(Push) | st.integers(-9, 9).map(Advance), max_size=8)


@effort(50)
@given(case=cases().filter(_waits_for_order), lateness=st.integers(0, 12), moves=MOVES)
def test_rows_before_the_watermark_take_no_part_and_all_others_do(
    case: Case, lateness: int, moves: list[Push | Advance]
) -> None:
    found, on_time, counted = driven(case, moves, lateness)
    wanted = expected(case, on_time)
    assert (found is None) == (wanted is None)
    if found is None or wanted is None:
        return
    assert_answer(case, wanted, found, "driven")
    assert counted.balanced
    if not any(not isinstance(step, Windowed | Rolling) for step in case.steps):
        assert counted.accepted == on_time.num_rows


# --- rows of one time, seen from behind a window -------------------------------------------------------------

FIRST: dict[str, Any] = {
    "panes": lambda e: e.window(10, by="s").agg(v=pk.sum("v")),
    "overlapping panes": lambda e: e.window(10, every=5, by="s").agg(v=pk.sum("v")),
    "sessions": lambda e: e.window(pk.session(2), by="s").agg(v=pk.median("v")),
    "windows of rows": lambda e: e.window(pk.rows(2), by="s").agg(v=pk.sum("v")),
    "all rows": lambda e: e.window(pk.unbounded(), by="s").agg(v=pk.sum("v")),
    "results renamed": lambda e: e.window(10, by="s").agg(v=pk.sum("v")).select(s=pk.col("v"), v=pk.col("s")),
    "a function": lambda e: e.window(10, by="s").apply(lambda rows: {"v": [rows.num_rows]}, {"v": "int64"}),
    "rows beside sessions": lambda e: e.window(pk.session(2), by="s").with_columns(n=pk.count()),
    "rows beside all": lambda e: e.window(pk.unbounded(), by="s").with_columns(n=pk.count()),
    "a look-back": lambda e: e.rolling(5, by="s").with_columns(n=pk.count()),
}
SECOND: dict[str, Any] = {
    "windows of rows": lambda w: w.window(pk.rows(2)),
    "first and last": lambda w: w.window(pk.tumbling(7)),
    "the same keys": lambda w: w.window(pk.tumbling(50), by="s"),
}
TIED = st.lists(st.tuples(st.integers(0, 19), st.sampled_from([*"zxya", None])), max_size=24)


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("first", FIRST)
@effort(4)
@given(rows=TIED, data=st.data())
def test_the_order_of_keys_that_share_a_time_is_their_own(
    first: str, second: str, rows: list[Any], data: st.DataObject
) -> None:
    """Not the order in which they came, which would depend on how rows are cut into batches."""
    rows.sort(key=lambda row: row[0])
    times, keys = [row[0] for row in rows], [row[1] for row in rows]
    types = [("t", pa.int64()), ("s", pa.string()), ("v", pa.int64())]
    table = pa.table([times, keys, range(len(rows))], schema=pa.schema(types))
    bounds = ["window_start", "window_end"]

    def query(source: Any) -> Any:
        made = FIRST[first](source)
        again = made.drop(*bounds) if {"t", *bounds} <= set(made.schema.names) else made
        return SECOND[second](again).agg(l=pk.list("v"), f=pk.first("s"), e=pk.last("v"))

    source = pk.from_arrow(table, time="t", name="events")
    wanted = sorted(map(repr, interpret(to_ir(query(source).plan), {"events": to_rows(table)})))
    assert sorted(map(repr, query(source).collect().to_pylist())) == wanted
    live = query(pk.stream("events", table.schema, time="t"))
    found = [row for batch in live.run(iter(data.draw(batches_of(table)))) for row in batch.to_pylist()]
    assert sorted(map(repr, found)) == wanted
