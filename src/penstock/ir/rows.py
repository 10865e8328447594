"""Convert between Arrow tables and the interpreter's rows: dicts of physical Python values.

Times, dates and durations are integer ticks of their type's unit, dictionaries are decoded, and null
is None. Columns of types that expressions do not support (decimal, list, struct, binary) keep Arrow's
Python values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import SchemaMismatchError
from penstock.types.arrow import from_physical, physical_values

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
