"""Split a temporal object into simpler ones, where a single kernel cannot compute it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.algorithms.expressions.host_columns import HostColumns
from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.ir import nodes as ir
from penstock.physical.hidden_names import hidden_name
from penstock.types.arrow import has_codes
from penstock.types.windows import WINDOW_BOUNDS

# --- results that Arrow must compute -----------------------------------------------------------------------


def _result_scope(body: ir.Reduce, source: ir.Object) -> tuple[pa.Schema, list[pa.DataType]]:
    """The columns that results may reference, and the types of the reductions."""
    keys = [pa.field(key.name, type_of(key.expr, source.schema)) for key in body.keys]
    bounds = [pa.field(name, source.time.type) for name in WINDOW_BOUNDS]
    return pa.schema([*bounds, *keys]), _reduction_types(body.reductions, source.schema)


def _reduction_types(reductions: tuple[ir.Reduction, ...], schema: pa.Schema) -> list[pa.DataType]:
    return [type_of(ex.Aggregate(r.function, r.args, r.where, r.options), schema) for r in reductions]


def fits_emission(body: ir.Reduce, source: ir.Object) -> bool:
    """Whether the emit kernel can compute every result: no text except keys and plain reductions."""
    scope, types = _result_scope(body, source)
    columns = pa.schema([*scope, *(pa.field(f"\0{i}", dtype) for i, dtype in enumerate(types))])
    exprs: list[ex.Expr] = [
        column.expr for column in body.fields if not isinstance(column.expr, ex.Column | ex.Reduced)
    ]
    exprs += [] if body.having is None else [body.having]
    as_columns = [read_from_columns(operand, [f"\0{i}" for i in range(len(types))]) for operand in exprs]
    host = HostColumns(columns)
    for column in as_columns:
        host.value(column)
    texts = (has_codes(columns.field(name).type) for column in as_columns for name in ex.columns_of(column))
    return not host.fields and not any(texts)


def split_results(
    this: ir.Object, body: ir.Reduce, source: ir.Object
) -> tuple[ir.Reduce, ir.Object, ir.Samples]:
    """Split into an object with bounds, keys and bare reductions, and a filter and fields over its columns."""
    scope, types = _result_scope(body, source)
    names = [hidden_name(scope.names, "reduced", i) for i in range(len(types))]
    fields = (
        *(ex.Field(name, ex.Column(name)) for name in scope.names),
        *(ex.Field(name, ex.Reduced(i)) for i, name in enumerate(names)),
    )
    schema = pa.schema([*scope, *(pa.field(name, dtype) for name, dtype in zip(names, types, strict=True))])
    plain = ir.Reduce(source.name, body.domain, body.keys, body.reductions, fields, body.where)
    having = None if body.having is None else read_from_columns(body.having, names)
    after = tuple(ex.Field(field.name, read_from_columns(field.expr, names)) for field in body.fields)
    time = replace(source.time, column=WINDOW_BOUNDS[1], shift=-1, period=None, start=0)
    made = ir.Object(f"{this.name}.plain", plain, schema, time)
    return plain, made, ir.Samples(made.name, having, after)


def read_from_columns(expr: ex.Expr, names: list[str]) -> ex.Expr:
    """Replace each reduction by the column that holds it."""

    def rule(node: ex.Expr) -> ex.Expr:
        return ex.Column(names[node.index]) if isinstance(node, ex.Reduced) else node

    return ex.rewrite(expr, rule)
