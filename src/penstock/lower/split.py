"""Spell out one temporal object in simpler ones, where a single kernel cannot do it all."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.ir import nodes as ir
from penstock.lower.host import HostColumns
from penstock.lower.machine import is_text
from penstock.lower.window_program import BOUNDS

# --- results that need what kernels leave to Arrow ---------------------------------------------------------


def _result_scope(body: ir.Reduce, source: ir.Object) -> tuple[pa.Schema, list[pa.DataType]]:
    """The columns results may name, and the types of the reductions."""
    keys = [pa.field(key.name, type_of(key.expr, source.schema)) for key in body.keys]
    bounds = [pa.field(name, source.time.type) for name in BOUNDS]
    return pa.schema([*bounds, *keys]), _reduction_types(body.reductions, source.schema)


def _reduction_types(reductions: tuple[ir.Reduction, ...], schema: pa.Schema) -> list[pa.DataType]:
    return [type_of(ex.Aggregate(r.function, r.args, r.where, r.options), schema) for r in reductions]


def fits_emission(body: ir.Reduce, source: ir.Object) -> bool:
    """Whether the emit kernel can compute every result: no text but keys and plain reductions."""
    scope, types = _result_scope(body, source)
    columns = pa.schema([*scope, *(pa.field(f"\0{i}", dtype) for i, dtype in enumerate(types))])
    exprs: list[ex.Expr] = [
        each.expr for each in body.fields if not isinstance(each.expr, ex.Column | ex.Reduced)
    ]
    exprs += [] if body.having is None else [body.having]
    as_columns = [_read_from_columns(each, [f"\0{i}" for i in range(len(types))]) for each in exprs]
    host = HostColumns(columns)
    for each in as_columns:
        host.value(each)
    texts = (is_text(columns.field(name).type) for each in as_columns for name in ex.columns_of(each))
    return not host.fields and not any(texts)


def split_results(
    this: ir.Object, body: ir.Reduce, source: ir.Object
) -> tuple[ir.Reduce, ir.Object, ir.Samples]:
    """Reduce to bounds, keys and bare reductions (an object of its own); filter and compute over those."""
    scope, types = _result_scope(body, source)
    names = [_hidden(scope.names, "reduced", i) for i in range(len(types))]
    fields = (
        *(ex.Field(name, ex.Column(name)) for name in scope.names),
        *(ex.Field(name, ex.Reduced(i)) for i, name in enumerate(names)),
    )
    schema = pa.schema([*scope, *(pa.field(name, dtype) for name, dtype in zip(names, types, strict=True))])
    plain = ir.Reduce(source.name, body.domain, body.keys, body.reductions, fields, body.where)
    having = None if body.having is None else _read_from_columns(body.having, names)
    after = tuple(ex.Field(each.name, _read_from_columns(each.expr, names)) for each in body.fields)
    time = replace(source.time, column=BOUNDS[1], shift=-1, period=None, start=0)
    made = ir.Object(f"{this.name}.plain", plain, schema, time)
    return plain, made, ir.Samples(made.name, having, after)


def _read_from_columns(expr: ex.Expr, names: list[str]) -> ex.Expr:
    """Replace each reduction by the column that holds it."""

    def rule(node: ex.Expr) -> ex.Expr:
        return ex.Column(names[node.index]) if isinstance(node, ex.Reduced) else node

    return ex.rewrite(expr, rule)


# --- attach: aggregates beside rows, spelled out in simpler objects -------------------------------------


def _hidden(taken: list[str], hint: str, place: int) -> str:
    """A column name that no user's column has."""
    return next(each for n in range(len(taken) + 1) if (each := f"{hint}{place}{'_' * n}") not in taken)


def with_keys(
    this: ir.Object, body: ir.Attach, source: ir.Object
) -> tuple[ir.Samples, ir.Object, tuple[str, ...]]:
    """The source's rows that pass (an object of its own), with a column for each key; the keys' names."""
    fields = [ex.Field(name, ex.Column(name)) for name in source.schema.names]
    keys = []
    for place, key in enumerate(body.keys):
        if isinstance(key.expr, ex.Column):
            keys.append(key.expr.name)
            continue
        keys.append(_hidden(source.schema.names, "key", place))
        fields.append(ex.Field(keys[-1], key.expr))
    schema = pa.schema([pa.field(each.name, type_of(each.expr, source.schema)) for each in fields])
    time = replace(source.time, period=None, start=0)
    samples = ir.Samples(source.name, body.where, tuple(fields))
    return samples, ir.Object(f"{this.name}.rows", samples, schema, time), tuple(dict.fromkeys(keys))


def beside(
    this: ir.Object, body: ir.Attach, ready: ir.Object, keys: tuple[str, ...]
) -> tuple[tuple[ir.Reduce, ir.Object, ir.Object], ir.Object]:
    """The aggregation over those rows, and the rows as they look after the join."""
    bounds = [ex.Field(name, ex.Column(name)) for name in BOUNDS]
    results = [
        ex.Field(_hidden(ready.schema.names, "reduced", i), ex.Reduced(i))
        for i in range(len(body.reductions))
    ]
    fields = (*bounds, *(ex.Field(name, ex.Column(name)) for name in keys), *results)
    types = _reduction_types(body.reductions, ready.schema)
    schema = pa.schema(
        [
            *(pa.field(name, ready.time.type) for name in BOUNDS),
            *(pa.field(name, ready.schema.field(name).type) for name in keys),
            *(pa.field(each.name, dtype) for each, dtype in zip(results, types, strict=True)),
        ]
    )
    reduce = ir.Reduce(
        ready.name,
        body.domain,
        tuple(ex.Field(name, ex.Column(name)) for name in keys),
        body.reductions,
        fields,
    )
    added = [each for each in schema if each.name not in ready.schema.names]
    joined = ir.Object(f"{this.name}.join", reduce, pa.schema([*ready.schema, *added]), ready.time)
    return (reduce, ready, ir.Object(f"{this.name}.window", reduce, schema, ready.time)), joined


def after_join(body: ir.Attach, joined: ir.Object) -> ir.Samples:
    """The fields, with each reduction read from its column: the last ones of the join."""
    names = joined.schema.names[len(joined.schema.names) - len(body.reductions) :]
    fields = tuple(ex.Field(each.name, _read_from_columns(each.expr, names)) for each in body.fields)
    return ir.Samples("", None, fields)
