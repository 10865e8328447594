"""Operations with a literal have the value that `expr/evaluate.py` defines, whatever the literal, and share code."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.algorithms.kernel_factory import BatchArguments
from penstock.codegen.cache import KernelCache
from penstock.codegen.llvm import OptimisationLevel
from penstock.codegen.native import compile_object
from penstock.errors import ExpressionTypeError
from penstock.expr import nodes as ex
from penstock.expr.evaluate import evaluator
from penstock.expr.typing import type_of
from penstock.loop.abi import ERRORS, WORDS
from penstock.loop.interpret import dtype_of
from penstock.operators.rows.kernels import RowsKernelSpec, build_rows
from penstock.types.arrow import from_physical
from penstock.types.time import Time

INT = pa.int64()
COLUMNS = [pa.int8(), pa.int32(), INT, pa.uint8(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_()]
TIMES = [pa.timestamp("us"), pa.timestamp("s"), pa.date32()]
WHOLE = [0, 1, -1, 2, 7, -7, 127, -128, 255, 300, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63)]
REAL = [0.0, -0.0, 0.5, 2.0, -2.5, 0.1, 127.0, 3e9, 2.0**53, 2.0**63, 1e300, float("inf"), float("nan")]
TICKS = [0, 1, -1, 86_400, 1_500_000, -(2**31), 2**62]
COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
COMPUTED = ("add", "sub", "mul", "div", "floordiv", "mod", "quotient", "remainder", "pow")
FAILED = object()
CACHE = KernelCache()


def literals(dtype: pa.DataType) -> list[ex.Literal]:
    if dtype in TIMES:
        units = [pa.timestamp("us"), pa.timestamp("s")] if dtype != pa.date32() else TIMES
        return [
            ex.Literal(value, unit)
            for value, unit in product(TICKS, units)
            if unit != pa.date32() or abs(value) < 2**31
        ]
    whole = [ex.Literal(number, INT) for number in WHOLE]
    return [
        *whole,
        ex.Literal(2**64 - 1, pa.uint64()),
        *(ex.Literal(number, pa.float64()) for number in REAL),
    ]


def values(dtype: pa.DataType) -> list[Any]:
    if dtype in TIMES:
        return [
            None,
            0,
            1,
            -1,
            18_262,
            -86_400,
            2**31 - 1,
            *([] if dtype == pa.date32() else [2**62, -(2**63)]),
        ]
    if pa.types.is_boolean(dtype):
        return [None, False, True]
    if pa.types.is_floating(dtype):
        exact = [None, *(number for number in REAL if number != 1e300), 5.0, -7.0, 1.5]
        return (
            exact
            if dtype == pa.float64()
            else [None if value is None else float(np.float32(value)) for value in exact]
        )
    least, most = np.iinfo(dtype.to_pandas_dtype()).min, np.iinfo(dtype.to_pandas_dtype()).max
    return [None, *sorted({min(max(value, least), most) for value in (*WHOLE, 2**64 - 1)})]


def found(expr: ex.Expr, schema: pa.Schema, rows: list[Any]) -> list[Any]:
    """Run the kernel on one row at a time."""
    spec = RowsKernelSpec(
        schema, Time("t", INT, None), None, (ex.Field("r", expr),), frozenset("a"), frozenset()
    )
    made = build_rows(spec)
    native = CACHE.get(made.kernel, compile_object, OptimisationLevel.QUICK)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(len(rows)), INT), from_physical(rows, schema.field("a").type)], schema=schema
    )
    arguments = BatchArguments(batch, {}).fill(made.bindings)
    (output,) = made.outputs
    results = []
    for row in range(len(rows)):
        head, out = np.zeros(WORDS, np.int64), np.zeros(1, dtype_of(output.type))
        valid = np.ones(1, np.uint8)
        call = {**arguments, "lo": row, "hi": row + 1, "first_row": 0, "head": head, output.values: out}
        native(call if output.valid is None else {**call, output.valid: valid})
        value = bool(out[0]) if output.type.kind == "bool" else out[0].item()
        results.append(FAILED if head[ERRORS] else value if valid[0] else None)
    return results


def defined(expr: ex.Expr, schema: pa.Schema, rows: list[Any]) -> list[Any]:
    define = evaluator(expr, schema)

    def one(value: Any) -> Any:
        try:
            return define({"a": value}, ())
        except pk.OverflowError:
            return FAILED

    return [one(value) for value in rows]


def is_typed(expr: ex.Expr, schema: pa.Schema) -> bool:
    try:
        type_of(expr, schema)
    except (ExpressionTypeError, pk.PenstockError):
        return False
    return True


def alike(one: Any, other: Any) -> bool:
    if one is FAILED or other is FAILED or one is None or other is None:
        return one is other
    return bool(one == other) or (one != one and other != other)


@pytest.mark.parametrize("function", [*COMPARED, *COMPUTED, "least", "fill_null"])
@pytest.mark.parametrize("dtype", [*COLUMNS, *TIMES], ids=str)
def test_what_a_kernel_computes_with_a_literal_is_what_is_defined(function: str, dtype: pa.DataType) -> None:
    schema = pa.schema([("t", INT), ("a", dtype)])
    column, rows = ex.Column("a"), values(dtype)
    for literal in literals(dtype):
        sides = [(column, literal)] if function == "fill_null" else [(column, literal), (literal, column)]
        for args in sides:
            expr = ex.Call(function, args)
            if not is_typed(expr, schema):
                continue
            pairs = zip(rows, found(expr, schema, rows), defined(expr, schema, rows), strict=True)
            wrong = [pair for pair in pairs if not alike(*pair[1:])]
            assert wrong == [], f"{function} of {args}"


def test_code_depends_on_properties_of_literals_alone() -> None:
    """Of every function and type there is code for a few properties, not for each of the literals."""
    schema = pa.schema([("t", INT), ("a", INT)])
    cache = KernelCache()
    for function, number in product(("lt", "add", "sub", "mul"), range(2, 200)):
        field = ex.Field("r", ex.Call(function, (ex.Column("a"), ex.Literal(number, INT))))
        spec = RowsKernelSpec(schema, Time("t", INT, None), None, (field,), frozenset(), frozenset())
        cache.get(build_rows(spec).kernel, compile_object, OptimisationLevel.QUICK)
    assert len(cache) == 4
