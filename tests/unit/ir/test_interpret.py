"""What programs mean, by tables small enough to check by eye."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import BindingError
from penstock.errors import OverflowError as PenstockOverflow
from penstock.expr.nodes import Expr
from penstock.ir.interpret import interpret
from penstock.plan import nodes as pl
from penstock.translate import to_ir
from penstock.types.time import Time
from penstock.types.windows import CarriedWindow, TimeWindow, Window
from tests.unit.passes.cases import FLOAT, INT, agg, attach, call, col, lit, select, where, window

CLOCK = Time("t", INT, None)
SCHEMA = pa.schema({"t": INT, "k": pa.string(), "v": INT, "f": FLOAT, "n": INT})
EVENTS = pl.Source("events", SCHEMA, CLOCK)
ORDERED = pl.Source("events", SCHEMA, CLOCK, sequence="n")
V, K = col("v"), col("k")
NAN = math.nan

Rows = list[tuple[Any, ...]]


def row(
    t: int | None, k: str | None = None, v: int | None = None, f: float | None = None, n: int | None = None
) -> Any:
    return {"t": t, "k": k, "v": v, "f": f, "n": n}


def run(plan: pl.Plan, rows: list[Any], **others: list[Any]) -> Rows:
    result = interpret(to_ir(plan), {"events": rows, **others})
    return [tuple(value.values()) for value in result]


def tumbling(size: int, offset: int = 0) -> Window:
    return TimeWindow(size, size, offset)


def count(*by: str, span: Window, plan: pl.Plan = EVENTS, **more: Expr) -> pl.Plan:
    return window(plan, *by, span=span, n=agg("count"), **more)


@pytest.mark.parametrize(
    ("span", "times", "expected"),
    [
        (tumbling(10), [0, 9, 10], [(0, 10, 2), (10, 20, 1)]),
        (tumbling(10), [-1], [(-10, 0, 1)]),
        (tumbling(10, offset=3), [2, 3], [(-7, 3, 1), (3, 13, 1)]),
        (TimeWindow(10, 5), [7], [(0, 10, 1), (5, 15, 1)]),
        (TimeWindow(10, 4), [7], [(0, 10, 1), (4, 14, 1)]),
        (TimeWindow(2, 5), [1, 2, 5], [(0, 2, 1), (5, 7, 1)]),
        (TimeWindow(3, 1), [0], [(-2, 1, 1), (-1, 2, 1), (0, 3, 1)]),
        (tumbling(10), [5, None], [(0, 10, 1)]),
        (tumbling(10), [], []),
    ],
)
def test_windows_are_half_open_aligned_and_hold_a_row(span: Window, times: list[Any], expected: Rows) -> None:
    assert run(count(span=span), [row(t) for t in times]) == expected


def test_windows_come_by_end_whatever_the_order_of_arrival() -> None:
    rows = [row(t) for t in (31, 4, 22, 13)]
    assert [start for start, *_ in run(count(span=tumbling(10)), rows)] == [0, 10, 20, 30]


def test_null_is_a_key_nan_is_one_key_and_the_zeros_are_equal() -> None:
    rows = [row(0, f=value) for value in (NAN, -0.0, None, 0.0, -NAN, 1.0)]
    found = {repr(key): n for _, _, key, n in run(count("f", span=tumbling(10)), rows)}
    assert found == {"None": 1, "0.0": 2, "nan": 2, "1.0": 1}


def test_aggregates_skip_nulls_and_what_their_predicate_does_not_hold_for() -> None:
    plan = window(
        EVENTS,
        span=tumbling(10),
        rows=agg("count"),
        some=agg("count", V),
        total=agg("sum", V),
        large=agg("count", where=call("gt", V, lit(2))),
        none=agg("sum", V, where=call("gt", V, lit(9))),
    )
    assert run(plan, [row(0, v=1), row(1), row(2, v=3)]) == [(0, 10, 3, 2, 4, 1, None)]


def test_a_sum_is_exact_until_the_last_step() -> None:
    largest = 2**63 - 1
    plan = window(EVENTS, span=tumbling(10), total=agg("sum", V))
    assert run(plan, [row(0, v=largest), row(1, v=1), row(2, v=-1)]) == [(0, 10, largest)]
    with pytest.raises(PenstockOverflow):
        run(plan, [row(0, v=largest), row(1, v=1)])


def test_a_filter_keeps_only_what_is_true() -> None:
    rows = [row(0, v=1), row(1, v=None), row(2, v=5)]
    assert [t for t, *_ in run(where(EVENTS, call("gt", V, lit(2))), rows)] == [2]


def test_a_filter_keeps_its_rows_from_what_would_fail() -> None:
    plan = select(where(EVENTS, call("lt", V, lit(9))), "t", x=call("mul", V, V), time="t")
    assert run(plan, [row(0, v=3), row(1, v=2**62)]) == [(0, 9)]


def test_a_window_result_has_the_time_of_its_last_tick() -> None:
    inner = count(span=tumbling(10))
    outer = window(inner, span=tumbling(20), total=agg("sum", col("n")))
    assert run(outer, [row(t) for t in (0, 11, 19, 20)]) == [(0, 20, 3), (20, 40, 1)]


def test_a_carried_window_regroups_results_by_their_window() -> None:
    inner = count("k", span=TimeWindow(10, 5))
    outer = window(inner, span=CarriedWindow(), most=agg("max", col("n")))
    rows = [row(6, "a"), row(7, "b"), row(8, "b")]
    assert run(outer, rows) == [(0, 10, 2), (5, 15, 2)]


def test_attach_repeats_a_row_for_every_window_in_order_of_windows_then_arrival() -> None:
    plan = attach(EVENTS, "k", span=TimeWindow(4, 2), total=agg("sum", V))
    found = [
        (t, start, total)
        for t, _, _, _, _, start, _, total in run(plan, [row(3, "a", 1), row(2, "a", 2), row(2, "b", 4)])
    ]
    assert found == [(3, 0, 3), (2, 0, 3), (2, 0, 4), (3, 2, 3), (2, 2, 3), (2, 2, 4)]


@pytest.mark.parametrize(("keep", "expected"), [("first", [5, 7]), ("last", [6, 8])])
def test_distinct_keeps_one_by_time_then_sequence_then_position(keep: str, expected: list[int]) -> None:
    rows = [row(1, "a", 6, n=2), row(1, "a", 5, n=1), row(0, "b", 7), row(0, "b", 8)]
    kept = run(pl.Distinct(ORDERED, ("k",), keep), rows)
    assert sorted(v for _, _, v, *_ in kept) == expected


def test_distinct_keeps_the_order_of_arrival_and_takes_null_for_a_value() -> None:
    rows = [row(5, None), row(4, "a"), row(3, None), row(2, "b")]
    assert [t for t, *_ in run(pl.Distinct(EVENTS, ("k",), "first"), rows)] == [4, 3, 2]


@pytest.mark.parametrize(
    ("k", "ties", "expected"),
    [
        (1, "first", [NAN]),
        (2, "first", [NAN, 3.0]),
        (2, "all", [NAN, 3.0, 3.0]),
        (4, "first", [NAN, 3.0, 3.0, -0.0]),
        (9, "first", [NAN, 3.0, 3.0, -0.0, None]),
    ],
)
def test_the_largest_have_nan_first_and_nulls_last(k: int, ties: str, expected: list[Any]) -> None:
    rows = [row(0, f=value) for value in (None, 3.0, -0.0, NAN, 3.0)]
    plan = pl.TopK(attach(EVENTS, span=tumbling(10), n_rows=agg("count")), k, "f", ties)
    assert repr([f for _, _, _, f, *_ in run(plan, rows)]) == repr(expected)


def test_of_equal_results_the_smaller_key_is_first_whatever_the_order_of_arrival() -> None:
    plan = pl.TopK(count("k", span=tumbling(10)), 1, "n", "first")
    rows = [row(0, "b"), row(1, "a")]
    assert run(plan, rows) == run(plan, rows[::-1]) == [(0, 10, "a", 1)]


def test_a_union_matches_columns_by_name() -> None:
    swapped = pl.Source("others", pa.schema([SCHEMA.field(i) for i in (2, 0, 1, 3, 4)]), CLOCK)
    plan = window(pl.Union((EVENTS, swapped)), span=tumbling(10), total=agg("sum", V))
    assert run(plan, [row(0, v=1)], others=[row(1, v=2)]) == [(0, 10, 3)]


def test_an_implied_time_counts_rows_also_those_a_filter_drops() -> None:
    clock = Time("at", pa.timestamp("ms"), "ms", period=4, start=100)
    ecg = pl.Source("events", pa.schema({"mv": INT}), clock)
    rows = [{"mv": value} for value in (5, 6, 7)]
    assert run(where(ecg, call("ne", col("mv"), lit(6))), rows) == [(100, 5), (108, 7)]


def test_a_stream_without_rows_bound_to_it_is_named() -> None:
    with pytest.raises(BindingError, match="events"):
        interpret(to_ir(EVENTS), {})
