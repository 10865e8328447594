"""Predicates are joined and parted without changing which rows they keep."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.analysis.predicates import conjunction, conjuncts, is_total, then
from penstock.errors import OverflowError as PenstockOverflow
from penstock.expr.evaluate import evaluate
from penstock.expr.nodes import Case, Cast, Expr, IsIn
from penstock.expr.show import show
from tests.strategies import SCHEMA, real, rows, truth
from tests.unit.passes.cases import FLOAT, INT, K_IS_1, LARGE, RAISES, V_IS_POSITIVE, call, col, lit


def keeps(predicate: Expr | None, row: Any) -> bool:
    return predicate is None or evaluate(predicate, row, SCHEMA) is True


@given(data=st.data(), inputs=rows())
def test_filtering_twice_is_filtering_once(data: Any, inputs: Any) -> None:
    first, second = truth(data.draw, SCHEMA), truth(data.draw, SCHEMA)
    both = then(first, second, total=is_total(second, SCHEMA))
    for row in inputs["events"]:
        try:
            expected = keeps(first, row) and keeps(second, row)
        except PenstockOverflow:
            continue
        assert keeps(both, row) == expected


def test_a_second_predicate_does_not_see_what_the_first_drops() -> None:
    guarded = then(K_IS_1, RAISES, total=False)
    assert not keeps(guarded, {"k": 2, "v": 2**62})
    assert not keeps(guarded, {"k": None, "v": 2**62})
    assert keeps(guarded, {"k": 1, "v": 4})


def test_no_predicate_keeps_everything() -> None:
    assert then(None, None, total=True) is None
    assert then(None, LARGE, total=False) == then(LARGE, None, total=False) == LARGE
    assert conjunction([]) is None


def test_a_conjunction_is_parted_at_every_and_but_at_no_or() -> None:
    either = call("or", K_IS_1, LARGE)
    whole = call("and", call("and", K_IS_1, either), V_IS_POSITIVE)
    assert conjuncts(whole) == (K_IS_1, either, V_IS_POSITIVE)
    assert conjunction(conjuncts(whole)) == whole
    assert conjuncts(None) == ()


# --- Which expressions may be evaluated anywhere, because no row makes them fail.

ZONED = pa.schema([*SCHEMA, pa.field("z", pa.timestamp("s", "Europe/Berlin"))])
V, F, U, S, TS = (col(name) for name in ("v", "f", "u", "s", "ts"))
HALF, ONE = lit(0.5, FLOAT), lit(1)
CONDITION = call("is_null", V)

TOTAL = {
    "a column": V,
    "a comparison": call("lt", V, U),
    "float arithmetic": call("mul", F, V),
    "division": call("div", V, ONE),
    "the remainder of integers": call("mod", V, ONE),
    "membership": IsIn(V, (ONE,)),
    "a widening cast": Cast(Cast(CONDITION, pa.int8()), INT),
    "a cast to float": Cast(U, FLOAT),
    "branches of one type": Case(((CONDITION, V),), ONE),
    "branches that become float": Case(((CONDITION, V),), HALF),
    "coalesced values of one type": call("fill_null", V, ONE),
    "the hour in UTC": call("hour", TS),
}
FAILING = {
    "integer addition": call("add", V, ONE),
    "integer negation": call("neg", V),
    "integer division by minus one": call("floordiv", V, lit(-1)),
    "a narrowing cast": Cast(V, pa.int8()),
    "a cast from float": Cast(F, INT),
    "a cast from text": Cast(S, INT),
    "a cast that loses the sign": Cast(V, pa.uint64()),
    "unsigned to signed of one width": Cast(U, INT),
    "branches that lose their range": Case(((CONDITION, U),), V),
    "a failing part": call("gt", call("abs", V), ONE),
    "a moved time": call("add", TS, lit(1, pa.duration("us"))),
    "an hour in a zone": call("hour", col("z")),
    "a truncated time": call("truncate", TS),
}


@pytest.mark.parametrize("expr", TOTAL.values(), ids=TOTAL)
def test_it_cannot_fail(expr: Expr) -> None:
    assert is_total(expr, ZONED)


@pytest.mark.parametrize("expr", FAILING.values(), ids=FAILING)
def test_it_may_fail(expr: Expr) -> None:
    assert not is_total(expr, ZONED)


@given(data=st.data(), inputs=rows())
def test_what_is_called_total_never_fails(data: Any, inputs: Any) -> None:
    expr = data.draw(st.sampled_from([truth, real]))(data.draw, SCHEMA)
    if is_total(expr, SCHEMA):
        for row in inputs["events"]:
            evaluate(expr, row, SCHEMA)


# --- What files may leave out: rows that no reader of a stream looks at, and no others.

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
