"""Every scalar function, compiled, has the value `expr/evaluate.py` defines, for every type it takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import inf, nan
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pk
from penstock.algorithms.expressions.host_columns import HostColumns
from penstock.algorithms.expressions.lowering import CALLS
from penstock.algorithms.kernel_factory import BatchArguments
from penstock.codegen.llvm import OptimisationLevel
from penstock.codegen.native import NativeKernel, compile_kernel
from penstock.expr import nodes as ex
from penstock.expr.evaluate import Evaluator, evaluator
from penstock.expr.functions import FUNCTIONS
from penstock.expr.typing import type_of
from penstock.loop.abi import ERRORS, WORDS
from penstock.loop.interpret import dtype_of
from penstock.operators.rows.kernels import RowsKernel, RowsKernelSpec, build_rows
from penstock.types.arrow import from_physical, kind_of
from penstock.types.time import Time

INT, UINT, FLOAT, BOOL = pa.int64(), pa.uint64(), pa.float64(), pa.bool_()
MICRO, SECOND, SPAN, DAY = pa.timestamp("us"), pa.timestamp("s"), pa.duration("ms"), pa.date32()
NUMBERS = [pa.int8(), pa.int32(), INT, pa.uint8(), UINT, pa.float32(), FLOAT, BOOL]
SINGLES = [*NUMBERS, MICRO, SECOND, pa.timestamp("ns", "UTC"), SPAN, DAY, pa.date64()]
PAIRS = [
    (INT, INT),
    (pa.int8(), pa.uint8()),
    (pa.int32(), pa.uint32()),
    (UINT, UINT),
    (INT, UINT),
    (FLOAT, FLOAT),
    (INT, FLOAT),
    (pa.float32(), pa.int32()),
    (BOOL, INT),
    (BOOL, BOOL),
    (MICRO, SECOND),
    (MICRO, SPAN),
    (SPAN, pa.duration("us")),
    (SPAN, SPAN),
    (DAY, MICRO),
]
OPTIONS: dict[str, list[dict[str, int]]] = {
    "round": [{}, {"decimals": 2}, {"decimals": -1}],
    "truncate": [{"every": 7}],
}
A, B = ex.Column("a"), ex.Column("b")
NEARLY = {
    *(
        "sqrt",
        "exp",
        "log",
        "log2",
        "log10",
        "sin",
        "cos",
        "tan",
        "pow",
    ),  # libm may be wrong in the last digit
    "round",  # the definition scales large values there and back, which may cost it the last digit
}


@dataclass(frozen=True)
class Case:
    """An expression over columns `a` and `b` of some types."""

    expr: ex.Expr
    types: tuple[pa.DataType, ...]
    name: str

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("t", INT), *zip("ab", self.types, strict=False)])

    @property
    def family(self) -> str:
        return self.expr.function if isinstance(self.expr, ex.Call) else type(self.expr).__name__

    def is_for_kernels(self) -> bool:
        """Whether the types are right and nothing is left to Arrow."""
        try:
            type_of(self.expr, self.schema)
        except pk.PenstockError:
            return False
        host = HostColumns(self.schema)
        host.value(self.expr)
        return not host.fields


def calls() -> list[Case]:
    found = []
    for name in CALLS:
        function = FUNCTIONS[name]
        operands: Any = [(value,) for value in SINGLES] if function.most == 1 else PAIRS
        for types, options in product(operands, OPTIONS.get(name, [{}])):
            call = ex.Call(name, (A, B)[: len(types)], tuple(options.items()))
            detail = f" {options}" if options else ""
            found.append(Case(call, types, f"{name}({', '.join(map(str, types))}){detail}"))
    return found


def others() -> list[Case]:
    casts = [
        Case(ex.Cast(A, goal), (source,), f"cast {source} to {goal}")
        for source, goal in product(SINGLES, SINGLES)
        if source != goal
    ]
    chosen = ex.Case(((ex.Call("lt", (A, B)), A), (ex.Call("is_null", (A,)), B)), ex.Call("add", (A, B)))
    cases = [Case(chosen, types, f"when over {', '.join(map(str, types))}") for types in PAIRS]
    values = tuple(ex.Literal(value, INT) for value in (0, -1, 100))
    return [*casts, *cases, *(Case(ex.IsIn(A, values), (value,), f"in, of {value}") for value in NUMBERS)]


CASES = [case for case in (*calls(), *others()) if case.is_for_kernels()]


@dataclass(frozen=True)
class Compiled:
    rows: RowsKernel
    native: NativeKernel
    define: Evaluator


@cache
def compiled(case: Case) -> Compiled:
    nullable = frozenset("ab"[: len(case.types)])
    fields = (ex.Field("r", case.expr),)
    rows = build_rows(RowsKernelSpec(case.schema, Time("t", INT, None), None, fields, nullable, frozenset()))
    return Compiled(
        rows, compile_kernel(rows.kernel, effort=OptimisationLevel.QUICK), evaluator(case.expr, case.schema)
    )


FAILED = object()


def found(case: Case, rows: list[tuple[Any, ...]]) -> list[Any]:
    """Run the kernel on one row at a time: which of them is wrong, it does not say."""
    made = compiled(case)
    columns = [
        from_physical(list(item), dtype)
        for item, dtype in zip(zip(*rows, strict=True), case.types, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays([pa.array(range(len(rows)), INT), *columns], schema=case.schema)
    arguments = BatchArguments(batch, {}).fill(made.rows.bindings)
    (output,) = made.rows.outputs
    results = []
    for row in range(len(rows)):
        head, values = np.zeros(WORDS, np.int64), np.zeros(1, dtype_of(output.type))
        valid = np.ones(1, np.uint8)
        call = {**arguments, "lo": row, "hi": row + 1, "first_row": 0, "head": head, output.values: values}
        made.native(call if output.valid is None else {**call, output.valid: valid})
        value = bool(values[0]) if output.type.kind == "bool" else values[0].item()
        results.append(FAILED if head[ERRORS] else value if valid[0] else None)
    return results


def defined(case: Case, row: tuple[Any, ...]) -> Any:
    try:
        return compiled(case).define(dict(zip("ab", row, strict=False)), ())
    except pk.OverflowError:
        return FAILED


def alike(case: Case, one: Any, other: Any) -> bool:
    if one is FAILED or other is FAILED or one is None or other is None:
        return one is other
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    close = isinstance(case.expr, ex.Call) and case.expr.function in NEARLY
    return one == other or (close and math.isclose(one, other, rel_tol=4e-16))


def edges(dtype: pa.DataType) -> list[Any]:
    """Values at which something changes."""
    match kind_of(dtype):
        case "bool":
            return [None, False, True]
        case "float":
            return [None, 0.0, -0.0, 0.5, -0.5, 2.5, -7.0, 1e10, 2.0**63, nan, inf, -inf]
        case "int" | "uint" | "duration":
            top = (1 << (dtype.bit_width - 1)) - 1
            signed = not pa.types.is_unsigned_integer(dtype)
            return [None, 0, 1, 2, 7, 100, *([-1, -2, -7, top, -top - 1] if signed else [2 * top + 1])]
        case _:
            return [None, 0, 1, -1, 59, 86_399, -86_400, 1_000_000, -1_000_001]


def values(dtype: pa.DataType) -> st.SearchStrategy[Any]:
    some = st.sampled_from(edges(dtype))
    match kind_of(dtype):
        case "bool":
            return some
        case "float":
            near = st.floats(-(2.0**40), 2.0**40, width=dtype.bit_width)
            return some | near | st.floats(width=dtype.bit_width)
        case "int" | "uint" | "duration":
            whole = [value for value in edges(dtype) if value is not None]
            return some | st.integers(min(whole), max(whole))
        case _:
            return some | st.integers(-100_000, 100_000)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_edges_have_the_value_the_definition_gives(case: Case) -> None:
    rows = list(product(*map(edges, case.types)))
    for row, value in zip(rows, found(case, rows), strict=True):
        assert alike(case, value, defined(case, row)), (row, value, defined(case, row))


FAMILIES = {case.family: [value for value in CASES if value.family == case.family] for case in CASES}


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_values_have_the_value_the_definition_gives(family: str, data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(FAMILIES[family]))
    rows = data.draw(st.lists(st.tuples(*map(values, case.types)), min_size=8, max_size=8))
    for row, value in zip(rows, found(case, rows), strict=True):
        assert alike(case, value, defined(case, row)), (row, value, defined(case, row))


def test_every_function_that_kernels_have_is_compared() -> None:
    compared = {case.expr.function for case in CASES if isinstance(case.expr, ex.Call)}
    assert compared == set(CALLS)
