"""Compute host columns: by Arrow's functions where their semantics match, else row by row.

Row-by-row evaluation is the definition itself (`expr/evaluate.py`): slow, and always correct.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.algorithms.expressions.host_columns import Use
from penstock.errors import PenstockError
from penstock.expr import calendar, text
from penstock.expr import nodes as ex
from penstock.expr.arithmetic import bounds
from penstock.expr.evaluate import evaluator
from penstock.expr.typing import type_of
from penstock.loop.machine import is_text
from penstock.types.arrow import from_physical, kind_of, physical_values

_PRINTED_DIGITS = 6

Compute = Callable[[pa.RecordBatch], pa.Array]
Spared = Callable[[pa.RecordBatch, int], bool]


def host_function(
    fields: Mapping[ex.Expr, str], schema: pa.Schema, uses: Sequence[Use]
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return the function that adds host columns to a batch."""
    spared = _spared(uses, schema)
    # In this order: an expression reads the fields of structs that are taken out before it.
    computes = [(name, type_of(expr, schema), compute(expr, schema, spared)) for expr, name in fields.items()]

    def prepare(batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, dtype, run in computes:
            batch = batch.append_column(pa.field(name, dtype), run(batch))
        return batch

    return prepare


def compute(expr: ex.Expr, schema: pa.Schema, spared: Spared) -> Compute:
    """Choose how to compute an expression over a batch."""
    by_arrow, by_row = _by_arrow(expr, schema), _row_by_row(expr, schema, spared)

    def column(batch: pa.RecordBatch) -> pa.Array:
        try:
            return by_row(batch) if by_arrow is None else by_arrow(batch)
        except PenstockError:
            if by_arrow is None:
                raise
            return by_row(batch)  # raises only if the program needs the failing row

    return column


def _spared(uses: Sequence[Use], schema: pa.Schema) -> Spared:
    """Return the function that evaluates all uses of a row: it returns True, or raises the error of a use."""
    names = sorted({name for use in uses for expr in (*use.where, use.value) for name in ex.columns_of(expr)})
    runs = [
        ([evaluator(condition, schema) for condition in use.where], evaluator(use.value, schema))
        for use in uses
    ]

    def spared(batch: pa.RecordBatch, place: int) -> bool:
        row = {name: physical_values(batch.column(name).slice(place, 1))[0] for name in names}
        for where, value in runs:
            if all(condition(row, ()) is True for condition in where):
                value(row, ())
        return True

    return spared


def _row_by_row(expr: ex.Expr, schema: pa.Schema, spared: Spared) -> Compute:
    """Compute a value per row; a failure is null where no use of the program needs the row."""
    dtype = type_of(expr, schema)
    run = evaluator(expr, schema)
    names = sorted(ex.columns_of(expr))

    def slow(batch: pa.RecordBatch) -> pa.Array:
        columns = [physical_values(batch.column(name)) for name in names]
        rows = zip(*columns, strict=True) if names else repeat((), batch.num_rows)
        found = []
        for place, values in enumerate(rows):
            try:
                found.append(run(dict(zip(names, values, strict=True)), ()))
            except PenstockError:
                if not spared(batch, place):
                    raise
                found.append(None)
        return from_physical(found, dtype)

    return slow


def _by_arrow(expr: ex.Expr, schema: pa.Schema) -> Compute | None:
    """Arrow's function for a text operation on a column; None if there is none with the same semantics."""
    match expr:
        case ex.Call(function="field", args=(ex.Column(name=name),), options=options):
            return lambda batch: member(batch.column(name), str(dict(options)["name"]))
        case ex.Call(function="replace", options=options) if not dict(options)["pattern"]:
            return None  # Arrow would search for an empty pattern without end
        case ex.Call(function=function, args=(ex.Column(name=name),), options=options) if function in _CLOCK:
            return lambda batch: _CLOCK[function](batch.column(name), dict(options))
        case ex.Call(function=function, args=(ex.Column(name=name),), options=options) if is_text(
            schema.field(name).type
        ):
            run = _TEXT.get(function)
            settings = dict(options)
            dtype = type_of(expr, schema)
            return None if run is None else lambda batch: run(_plain(batch, name), settings).cast(dtype)
        case ex.Cast(arg=ex.Column(name=name), type=dtype) if is_text(dtype) and _prints(
            schema.field(name).type
        ):
            return lambda batch: batch.column(name).cast(dtype)
        case ex.IsIn(arg=ex.Column(name=name), values=values):
            return _membership(name, values, schema)
        case ex.Call(function="eq" | "ne" | "lt" | "le" | "gt" | "ge" as function, args=args):
            return _comparison(function, args, schema)
        case _:
            return None


def member(struct: pa.StructArray, name: str) -> pa.Array:
    """Take a field out of a struct column; null where the struct is null. Its values are not copied.

    >>> member(pa.array([{"a": 1, "b": 2}, None]), "b").to_pylist()
    [2, None]
    """
    return pc.struct_field(struct, [struct.type.get_field_index(name)])


def _prints(dtype: pa.DataType) -> bool:
    """Whether Arrow prints decimals of a type without an exponent."""
    return kind_of(dtype) == "decimal" and dtype.scale <= _PRINTED_DIGITS


def _plain(batch: pa.RecordBatch, name: str) -> pa.Array:
    array = batch.column(name)
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


_CLOCK: dict[str, Callable[[pa.Array, dict[str, object]], pa.Array]] = {
    "floor_time": calendar.floor_time,
    "offset": calendar.offset,
    "month_start": calendar.month_start,
    "month_end": calendar.month_end,
    "replace_zone": calendar.replace_zone,
}

_TEXT: dict[str, Callable[[pa.Array, dict[str, object]], pa.Array]] = {
    "str_len_chars": lambda array, _: pc.utf8_length(array),
    "str_len_bytes": lambda array, _: pc.binary_length(array),
    "starts_with": lambda array, options: pc.starts_with(array, pattern=options["pattern"]),
    "ends_with": lambda array, options: pc.ends_with(array, pattern=options["pattern"]),
    "contains": lambda array, options: pc.match_substring(array, pattern=options["pattern"]),
    "replace": lambda array, options: pc.replace_substring(
        array,
        pattern=options["pattern"],
        replacement=options["value"],
        max_replacements=options.get("most", -1),
    ),
    "matches": text.matches,
    "count_matches": text.count_matches,
    "replace_matches": text.replace_matches,
    "extract": text.extract,
    "find": text.find,
}

_COMPARE = {
    "eq": pc.equal,
    "ne": pc.not_equal,
    "lt": pc.less,
    "le": pc.less_equal,
    "gt": pc.greater,
    "ge": pc.greater_equal,
}


def _comparison(function: str, args: tuple[ex.Expr, ...], schema: pa.Schema) -> Compute | None:
    """Compare texts: Arrow orders them by bytes, as the definition does."""
    operands = [_operand(arg, schema) for arg in args]
    if any(operand is None for operand in operands) or not any(isinstance(arg, ex.Column) for arg in args):
        return None
    return lambda batch: _COMPARE[function](*(operand(batch) for operand in operands if operand is not None))


def _membership(name: str, values: tuple[ex.Literal, ...], schema: pa.Schema) -> Compute | None:
    """Look a column up in a list of its type, or of whole numbers; others are evaluated row by row."""
    dtype = schema.field(name).type
    plain = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    listed = _listed(values, plain)
    if listed is None:
        return None

    def look_up(batch: pa.RecordBatch) -> pa.Array:
        array = _plain(batch, name)
        if pa.types.is_floating(plain):
            array = pc.add(array, pa.scalar(0.0, plain))  # -0.0 becomes 0.0, which Arrow distinguishes
        return pc.if_else(array.is_valid(), pc.is_in(array, value_set=listed), pa.nulls(1, pa.bool_())[0])

    return look_up


def _listed(values: tuple[ex.Literal, ...], dtype: pa.DataType) -> pa.Array | None:
    """Return the values that a column of the type can hold; None if Arrow does not compare them as the definition does."""
    given: list[Any] = [value.value for value in values]
    if pa.types.is_float16(dtype):
        return None
    if all(value.type == dtype for value in values):
        return from_physical(
            [value + 0.0 for value in given] if pa.types.is_floating(dtype) else given, dtype
        )
    if not pa.types.is_integer(dtype) or not all(pa.types.is_integer(value.type) for value in values):
        return None
    least, most = bounds(dtype)
    return pa.array([value for value in given if least <= value <= most], dtype)


def _operand(arg: ex.Expr, schema: pa.Schema) -> Callable[[pa.RecordBatch], object] | None:
    match arg:
        case ex.Column(name=name) if is_text(schema.field(name).type):
            return lambda batch: _plain(batch, name).cast(pa.large_string())
        case ex.Literal(value=value, type=dtype) if is_text(dtype):
            return lambda batch: pa.scalar(value, pa.large_string())
        case _:
            return None
