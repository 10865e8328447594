"""Which expressions may be evaluated anywhere, because no row makes them fail."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.analysis.totality import is_total
from penstock.expr.evaluate import evaluate
from penstock.expr.nodes import Case, Cast, Expr, IsIn
from tests.strategies import SCHEMA, real, rows, truth
from tests.unit.passes.cases import FLOAT, INT, call, col, lit

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
