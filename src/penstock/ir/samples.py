"""Samples of the interpreter: their order, their time, and reductions over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.expr.aggregates import reduce
from penstock.expr.evaluate import evaluator
from penstock.expr.nodes import Expr, Field
from penstock.expr.typing import type_of
from penstock.ir.nodes import Reduction
from penstock.ir.order import Rank
from penstock.ir.rows import Row
from penstock.types.time import Time


@dataclass(frozen=True, slots=True)
class Sample:
    """A row and its rank among rows of equal time. The rank begins with the sequence, which is empty for results."""

    row: Row
    rank: Rank


def time_at(row: Mapping[str, Any], time: Time) -> int | None:
    """Return a sample's time in ticks."""
    at: int | None = row[time.column]
    return None if at is None else at + time.shift


def record(
    fields: Iterable[Field], schema: pa.Schema, types: Sequence[pa.DataType] = ()
) -> Callable[..., Row]:
    """Compile the fields of a result to a function of the row and the values of the reductions."""
    values = {field.name: evaluator(field.expr, schema, types) for field in fields}
    return lambda row, reduced=(): {name: value(row, reduced) for name, value in values.items()}


def kept(where: Expr | None, source: Iterable[Sample], schema: pa.Schema) -> list[Sample]:
    """Keep the samples for which the predicate is true, neither false nor null."""
    if where is None:
        return list(source)
    holds = evaluator(where, schema)
    return [sample for sample in source if holds(sample.row, ()) is True]


def reduced_over(
    reductions: Iterable[Reduction], spans: Sequence[list[Sample]], schema: pa.Schema
) -> tuple[Any, ...]:
    """Compute every ⊕(function, args) over the samples for which the reduction's predicate is true."""
    return tuple(
        _reduction(reduction, kept(reduction.where, spans[reduction.span], schema), schema)
        for reduction in reductions
    )


def _reduction(reduction: Reduction, group: list[Sample], schema: pa.Schema) -> Any:
    args = [evaluator(arg, schema) for arg in reduction.args]
    rows = [tuple(arg(sample.row, ()) for arg in args) for sample in group]
    return reduce(
        reduction.function, rows, [type_of(arg, schema) for arg in reduction.args], reduction.options
    )
