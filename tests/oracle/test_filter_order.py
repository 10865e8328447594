"""Filters in parts: what Arrow computes is computed for survivors, and rows and errors are those of the definition."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.api.stream import Stream
from penstock.compile import compile_plan
from penstock.ir.interpret import interpret
from penstock.physical import nodes as ph
from tests.oracle.effort import effort

A, F, S = pk.col("a"), pk.col("f"), pk.col("s")
NUMBER = S.cast("int64")
SCHEMA = {"ts": "int64", "a": "int64", "f": "float64", "s": "string"}
EVENTS = pk.stream("events", SCHEMA, time="ts")
REGULAR = pk.stream("events", {"a": "int64", "f": "float64", "s": "string"}, time=pk.every(3, start=-9))
TEXTS = ("1", "22", "x7", "", "x", None)

Query = Callable[[Stream], Stream]
ROWS = pk.tumbling(4)

QUERIES: dict[str, Query] = {
    "a regular expression after a comparison": lambda e: e.filter((A == 1) & S.str.contains(r"\d")),
    "and before it": lambda e: e.filter(S.str.contains(r"\d") & (A == 1)),
    "a cast beside a comparison": lambda e: e.filter((A == 1) & (NUMBER > 1)),
    "a cast after a comparison": lambda e: e.filter(A == 1).filter(NUMBER > 1),
    "a cast after a text test": lambda e: e.filter(S.str.contains(r"^\d+$")).filter(NUMBER > 1),
    "a cast after both": lambda e: e.filter((A == 1) & S.str.contains(r"^\d+$")).filter(NUMBER > 1),
    "an overflow beside a text test": lambda e: e.filter((A * A > 0) & (A == 1) & S.str.contains("x")),
    "a text test, then a division that fails": lambda e: e.filter(S.str.contains("x")).filter(A + A > 0),
    "a computed field": lambda e: e.filter(A == 1).with_columns(n=S.str.len_bytes(), c=S.str.to_uppercase()),
    "a field that fails": lambda e: e.filter(A == 1).with_columns(n=NUMBER),
    "a text test and a field": lambda e: e.filter((A == 1) & S.str.contains("x")).select(n=S.str.find("7")),
    "a window": lambda e: e.filter((A == 1) & S.str.contains(r"\d")).window(ROWS).agg(n=pk.count(), t=pk.sum("f")),
    "a key": lambda e: e.with_columns(k=S.str.to_uppercase()).filter(A == 1).window(ROWS, by="k").agg(n=pk.count()),
    "an argument": lambda e: e.filter(F > 0).window(ROWS).agg(t=pk.sum(S.str.len_bytes()), x=pk.sum(NUMBER)),
    "first and last": lambda e: e.filter((A == 1) & S.str.contains("")).window(ROWS).agg(x=pk.first("f"), y=pk.last("s")),
    "a look-back": lambda e: e.filter((A == 1) & S.str.contains("x")).rolling(3).agg(n=pk.count()),
    "rows": lambda e: e.filter((A == 1) & S.str.contains("")).window(pk.rows(2)).agg(n=pk.count(), t=pk.sum("f")),
    "nulls and NaN": lambda e: e.filter((F > 1) & S.str.contains("x")),
    "a list of texts": lambda e: e.filter((A == 1) & S.is_in([str(n) for n in range(30)])),
    "a long or": lambda e: e.filter(reduce(or_, [n == A for n in range(1, 80)])),
    "a long or of texts": lambda e: e.filter(reduce(or_, [str(n) == S for n in range(1, 30)])),
    "a long and": lambda e: e.filter(reduce(and_, [n != A for n in range(1, 80)])),
    "a long or of floats": lambda e: e.filter(reduce(or_, [n / 2 == F for n in range(80)])),
    "its complement": lambda e: e.filter(~reduce(or_, [n / 2 == F for n in range(80)])),
    "a long list of floats": lambda e: e.filter(F.is_in([float("nan"), -0.0, *(n / 2 for n in range(1, 80))])),
    "a case": lambda e: e.filter(pk.when(A == 1).then(NUMBER > 0).otherwise(pk.lit(False))),
    "a disjunction": lambda e: e.filter((A == 1) | S.str.contains("x")),
}  # fmt: skip

VALUES = st.tuples(
    st.sampled_from([None, 0, 1, 1, 1, 2, 79, 2**62]),
    st.sampled_from([None, 0.0, -0.0, 1.0, 2.5, float("nan"), float("inf")]),
    st.sampled_from(TEXTS),
)


def table_of(rows: list[tuple[Any, ...]], times: bool) -> pa.Table:
    fields = {name: pa.type_for_alias(dtype) for name, dtype in SCHEMA.items()}
    numbered = [
        dict(zip(("a", "f", "s"), row, strict=True), ts=place * 3 - 9) for place, row in enumerate(rows)
    ]
    table = pa.Table.from_pylist(numbered, schema=pa.schema(fields))
    return table if times else table.drop_columns("ts")


def answer(run: Callable[[], list[dict[str, Any]]]) -> list[str] | type:
    try:
        return sorted(map(repr, run()))
    except pk.PenstockError as error:
        return type(error)


@effort(60)
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
@pytest.mark.parametrize("source", [EVENTS, REGULAR], ids=["stored times", "implied times"])
@given(rows=st.lists(VALUES, max_size=12), cut=st.integers(0, 12))
def test_a_filter_in_parts_means_the_whole(query: Query, source: Stream, rows: list[Any], cut: int) -> None:
    stream = query(source)
    compiled = compile_plan(stream.plan)
    table = table_of(rows, times=source is EVENTS)
    wanted = answer(lambda: interpret(compiled.raw, {"events": table.to_pylist()}))
    batches = [*table.slice(0, cut).to_batches(), *table.slice(cut).to_batches()]
    assert answer(lambda: stream.collect(events=table).to_pylist()) == wanted
    assert answer(lambda: [row for made in stream.run(batches) for row in made.to_pylist()]) == wanted


SPLIT = {
    "a regular expression after a comparison",
    "and before it",
    "a cast after a comparison",
    "a cast after both",
    "an overflow beside a text test",
    "a computed field",
    "a field that fails",
    "a text test and a field",
    "a window",
    "a key",
    "an argument",
    "first and last",
    "a look-back",
    "rows",
    "nulls and NaN",
    "a list of texts",
    "a case",
}


@pytest.mark.parametrize("name", QUERIES)
def test_the_plan_says_which_filter_comes_first(name: str) -> None:
    plan = compile_plan(QUERIES[name](EVENTS).plan).physical("bounded")
    first = [node for node in plan.nodes if any(choice.what == "filter" for choice in node.choices)]
    assert bool(first) == (name in SPLIT)
    assert all(isinstance(node.op, ph.Rows) and not node.op.host for node in first)


@pytest.mark.parametrize("operands", [500, 3000])
@pytest.mark.parametrize("join", [" or ", " and "])
def test_a_long_chain_is_not_refused_in_sql(operands: int, join: str) -> None:
    test = "a = {}" if join == " or " else "a <> {}"
    table = pa.table({"ts": range(5000), "a": range(5000)})
    sql = f"select ts, a from e where {join.join(test.format(n) for n in range(operands))}"
    found = pk.sql(sql, e=pk.from_arrow(table, time="ts")).collect().num_rows
    assert found == (operands if join == " or " else 5000 - operands)


def test_a_long_chain_over_many_columns_is_not_refused() -> None:
    columns = {f"c{n}": [n, 0, 1] for n in range(500)}
    events = pk.from_arrow(pa.table({"ts": [1, 2, 3], **columns}), time="ts")
    tests = [pk.col(name) == 1 for name in columns]
    assert events.filter(reduce(or_, tests)).select("ts").collect()["ts"].to_pylist() == [1, 3]
    assert events.filter(reduce(and_, tests)).select("ts").collect()["ts"].to_pylist() == [3]
