"""Predicates are joined and parted without changing which rows they keep."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.analysis.predicates import conjunction, conjuncts, then
from penstock.analysis.totality import is_total
from penstock.errors import OverflowError as PenstockOverflow
from penstock.expr.evaluate import evaluate
from penstock.expr.nodes import Expr
from tests.strategies import SCHEMA, rows, truth
from tests.unit.passes.cases import K_IS_1, LARGE, RAISES, V_IS_POSITIVE, call


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
