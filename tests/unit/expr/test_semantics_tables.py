"""The tables of docs/semantics.md hold for the plain definition."""

from __future__ import annotations

import pytest

from penstock.api.bind import bound
from penstock.expr.aggregates import AGGREGATES, reduce
from penstock.expr.evaluate import evaluate
from penstock.expr.functions import FUNCTIONS
from penstock.expr.nodes import Aggregate, Call, Expr, Reduced, rewrite, walk
from penstock.expr.typing import type_of
from penstock.types.arrow import tick_unit
from penstock.types.time import Time
from tests.unit.expr.semantics import Example, examples, matrix, same

SCALARS = examples("expression | input | result")
AGGREGATED = [*examples("aggregate | values | result"), *examples("aggregate | rows | result"), *matrix()]


def resolved(example: Example) -> Expr:
    first = next(iter(example.schema))
    return bound(example.expression.node, example.schema, Time(first.name, first.type, tick_unit(first.type)))


@pytest.mark.parametrize("example", SCALARS)
def test_a_scalar_expression_has_the_value_the_document_says(example: Example) -> None:
    row = {name: values[0] for name, (_, values) in example.columns.items()}
    if example.error is not None:
        with pytest.raises(example.error):
            evaluate(resolved(example), row, example.schema)
        return
    expected, dtype = example.value
    assert type_of(resolved(example), example.schema) == dtype
    assert same(evaluate(resolved(example), row, example.schema), expected)


def reduced_by_definition(example: Example) -> object:
    """Reduce each aggregate over the rows where its condition holds, then evaluate around them."""
    names = list(example.columns)
    rows = [
        dict(zip(names, row, strict=True))
        for row in zip(*(values for _, values in example.columns.values()), strict=True)
    ]
    values: list[object] = []
    types = []

    def rule(node: Expr) -> Expr:
        if not isinstance(node, Aggregate):
            return node
        kept = [
            row for row in rows if node.where is None or evaluate(node.where, row, example.schema) is True
        ]
        arguments = [tuple(evaluate(arg, row, example.schema) for arg in node.args) for row in kept]
        values.append(
            reduce(
                node.function, arguments, [type_of(arg, example.schema) for arg in node.args], node.options
            )
        )
        types.append(type_of(node, example.schema))
        return Reduced(len(values) - 1)

    outer = rewrite(resolved(example), rule)
    return evaluate(outer, {}, example.schema, values, types)


@pytest.mark.parametrize("example", AGGREGATED)
def test_an_aggregate_has_the_value_the_document_says(example: Example) -> None:
    if example.error is not None:
        with pytest.raises(example.error):
            reduced_by_definition(example)
        return
    expected, dtype = example.value
    assert dtype in (None, type_of(resolved(example), example.schema))
    assert same(reduced_by_definition(example), expected)


def calls() -> set[str]:
    nodes = [node for case in SCALARS for node in walk(case.values[0].expression.node)]
    return {node.function for node in nodes if isinstance(node, Call)}


def aggregates() -> set[str]:
    nodes = [node for case in AGGREGATED for node in walk(case.values[0].expression.node)]
    return {node.function for node in nodes if isinstance(node, Aggregate)}


def test_the_document_shows_every_function_of_the_catalogues() -> None:
    become = {"iso_year", "floor_time", "offset"}  # what truncate and offset_by become
    assert set(FUNCTIONS) - calls() == become | {"field"}  # of a struct, which the tables cannot write
    assert set(AGGREGATES) - aggregates() <= {"custom"}  # which has no value of its own
