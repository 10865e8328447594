"""The interpreter's values: keys, rows, and samples with their order and time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import SchemaMismatchError
from penstock.expr.aggregates import reduce
from penstock.expr.evaluate import evaluator
from penstock.expr.nodes import Expr, Field
from penstock.expr.typing import type_of
from penstock.ir.nodes import Reduction
from penstock.types.arrow import from_physical, physical_values
from penstock.types.time import Time

# --- Equality and order of values as keys.

Rank = tuple[Any, ...]


def ordering(value: Any) -> Rank:
    """Map a value to a tuple that sorts and hashes as the value does: null first, NaN last and a single key.

    Strings are kept: Python orders them by code point, which is the order of their UTF-8 bytes.
    """
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, value)


def canonical(value: Any) -> Any:
    """Return the canonical value of a key: 0.0 for -0.0, which compares equal."""
    return 0.0 if isinstance(value, float) and value == 0 else value


# --- Convert between Arrow tables and the interpreter's rows: dicts of physical Python values.
#
# Times, dates and durations are integer ticks of their type's unit, dictionaries are decoded, and null
# is None. Columns of types that expressions do not support (decimal, list, struct, binary) keep Arrow's
# Python values.

Row = dict[str, Any]


def to_rows(table: pa.Table) -> list[Row]:
    """Convert a table to rows, as `{"ts": 1_000_000, "k": "a", "v": None}`."""
    columns = [physical_values(column) for column in table.columns]
    if not columns:
        return [{} for _ in range(table.num_rows)]
    return [dict(zip(table.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def to_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Build a table of the given schema from rows that have at least its columns."""
    columns = [from_physical([row[field.name] for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def as_table(made: Any, schema: pa.Schema, names: Sequence[str]) -> pa.Table:
    """Convert the return value of a user's window function to a table of the declared columns."""
    wanted = pa.schema([schema.field(name) for name in names])
    try:
        table = pa.table(made) if not isinstance(made, pa.RecordBatch) else pa.Table.from_batches([made])
        return table.select(list(names)).cast(wanted)
    except (TypeError, ValueError, KeyError, pa.ArrowException):
        raise SchemaMismatchError(  # Arrow's message would quote a value
            f"the function given to apply must return a table with the columns {_listed(wanted)}; "
            f"it gave {_described(made)}"
        ) from None


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name!r} ({field.type})" for field in schema) or "(none)"


def _described(made: Any) -> str:
    schema = getattr(made, "schema", None)
    columns = (
        f" of {_listed(schema)}, some values of which may not fit" if isinstance(schema, pa.Schema) else ""
    )
    return f"a {type(made).__name__}{columns}"


# --- Samples of the interpreter: their order, their time, and reductions over them.


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
