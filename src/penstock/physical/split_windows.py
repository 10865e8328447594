"""Lower windows and joins: plain columns, then frames or pairs, then fields over their results, under hidden names.

~w @ sessions by k = { #0 = ⊕(sum, p * q) where ok;  vwap: #0 / 2 }
→  rows     { ts; k; arg0: p * q; where0: ok }          one pass of the row kernel
   frames   { window_start; window_end; k; reduced0 }   sorted partitions
   results  { …; vwap: reduced0 / 2 }                   one pass of the row kernel

~j @ each ~a on k = { #0 = ⊕(sum, ~b[t - 10 : t].(p * q));  vwap: #0 / 2 }
→  rows     { ts; k; arg0: p * q }       of ~b: one pass of the row kernel
   frames   { …; reduced0 }              ~a with the reductions over frames of ~b's sorted partitions
   results  { …; vwap: reduced0 / 2 }    one pass of the row kernel
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.algorithms.expressions.host_columns import HostColumns
from penstock.algorithms.sorted_partitions.reducers import FrameReduction
from penstock.analysis.predicates import conjuncts
from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.ir import nodes as ir
from penstock.ir import nodes as jn
from penstock.ir.nodes import pair_scope, result_type
from penstock.loop.numbers import is_text
from penstock.physical import nodes as ph
from penstock.physical.nodes import JoinColumn, Rows
from penstock.types.arrow import has_codes, kind_of
from penstock.types.time import Time
from penstock.types.windows import (
    JOIN_TIME,
    WINDOW_BOUNDS,
    WINDOW_END,
    WINDOW_START,
    CarriedWindow,
    left_column,
    right_column,
)


def hidden_name(taken: Collection[str], hint: str, place: int) -> str:
    """Return a column name that is not taken.

    >>> hidden_name(["arg0"], "arg", 0)
    'arg0_'
    """
    return next(
        candidate for n in range(len(taken) + 1) if (candidate := f"{hint}{place}{'_' * n}") not in taken
    )


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


@dataclass(frozen=True)
class SplitWindow:
    """A windowed object in three steps: `samples` computes the rows `ready`; `reduced` are the columns that frames add."""

    samples: ir.Samples
    ready: ir.Object
    keys: tuple[str, ...]
    reductions: tuple[FrameReduction, ...]
    reduced: tuple[pa.Field, ...]


def split_window(this: ir.Object, source: ir.Object, kept: Sequence[str]) -> SplitWindow:
    """Compute keys, arguments and conditions as columns, in addition to the source columns `kept`."""
    body = this.body
    assert isinstance(body, ir.Reduce | ir.Attach | ir.Lookback | ir.Apply)
    columns = _Columns(source.schema, {name: ex.Column(name) for name in kept})
    keys = tuple(dict.fromkeys(columns.name_of(key.expr, "key") for key in body.keys))
    several = () if isinstance(body, ir.Apply) else body.reductions
    reductions = tuple(_reduction(reduction, columns, source.schema) for reduction in several)
    schema = pa.schema([pa.field(n, type_of(e, source.schema)) for n, e in columns.fields.items()])
    fields = tuple(ex.Field(name, expr) for name, expr in columns.fields.items())
    samples = ir.Samples(source.name, body.where, fields)
    ready = ir.Object(f"{this.name}.rows", samples, schema, source.time.stored)
    taken = [*schema.names, *WINDOW_BOUNDS]
    names = [hidden_name(taken, "reduced", place) for place in range(len(reductions))]
    reduced = tuple(pa.field(n, reduction.type) for n, reduction in zip(names, reductions, strict=True))
    return SplitWindow(samples, ready, keys, reductions, reduced)


def partition_rows(
    name: str, source: ir.Object, kept: Sequence[str], several: Sequence[ir.Reduction]
) -> tuple[ir.Samples, ir.Object, tuple[FrameReduction, ...]]:
    """Compute only the arguments and conditions of reductions as columns, in addition to the columns `kept`."""
    columns = _Columns(source.schema, {column: ex.Column(column) for column in kept})
    reductions = tuple(_reduction(reduction, columns, source.schema) for reduction in several)
    schema = pa.schema([pa.field(n, type_of(e, source.schema)) for n, e in columns.fields.items()])
    fields = tuple(ex.Field(column, expr) for column, expr in columns.fields.items())
    samples = ir.Samples(source.name, None, fields)
    return samples, ir.Object(name, samples, schema, source.time.stored), reductions


def without_time(made: SplitWindow) -> ir.Samples:
    """Compute the input rows of frames, without their time column."""
    fields = tuple(kept for kept in made.samples.fields if kept.name != made.ready.time.column)
    return replace(made.samples, fields=fields)


def frame_reductions(reductions: Sequence[ph.Reduction]) -> tuple[FrameReduction, ...]:
    """Return reductions over columns in the form that reducers of frames take."""
    return tuple(
        FrameReduction(
            reduction.function,
            tuple(map(_column, reduction.args)),
            None if reduction.where is None else _column(reduction.where),
            reduction.options,
            reduction.span,
            reduction.type,
        )
        for reduction in reductions
    )


def columns_of(reductions: Sequence[ph.Reduction]) -> tuple[str, ...]:
    """Return the columns that reductions over columns read."""
    exprs = (
        expr for reduction in reductions for expr in (*reduction.args, reduction.where) if expr is not None
    )
    return tuple(dict.fromkeys(map(_column, exprs)))


def _column(expr: ex.Expr) -> str:
    assert isinstance(expr, ex.Column)
    return expr.name


@dataclass
class _Columns:
    """The columns of the input rows of frames; an expression that is not a source column gets a hidden name."""

    schema: pa.Schema
    fields: dict[str, ex.Expr] = field(default_factory=dict)

    def name_of(self, expr: ex.Expr, hint: str) -> str:
        if isinstance(expr, ex.Column):
            self.fields.setdefault(expr.name, expr)
            return expr.name
        known = next((name for name, column in self.fields.items() if column == expr), None)
        if known is not None:
            return known
        taken = [*self.schema.names, *self.fields, *WINDOW_BOUNDS]
        name = hidden_name(taken, hint, len(self.fields))
        self.fields[name] = expr
        return name


def _reduction(reduction: ir.Reduction, columns: _Columns, schema: pa.Schema) -> FrameReduction:
    args = tuple(columns.name_of(_asked(arg, reduction.where, schema), "arg") for arg in reduction.args)
    where = None if reduction.where is None else columns.name_of(reduction.where, "where")
    dtype = result_type(reduction, schema)
    return FrameReduction(reduction.function, args, where, reduction.options, reduction.span, dtype)


def _asked(arg: ex.Expr, where: ex.Expr | None, schema: pa.Schema) -> ex.Expr:
    """Guard an argument that may fail by the condition, so that it is computed for accepted rows only."""
    dtype = type_of(arg, schema)
    if where is None or is_text(dtype) or not any(_may_fail(node, schema) for node in ex.walk(arg)):
        return arg
    return ex.Case(((where, arg),), ex.Literal(None, dtype))


def _may_fail(node: ex.Expr, schema: pa.Schema) -> bool:
    exact = isinstance(node, ex.Call) and kind_of(type_of(node, schema)) not in ("float", "bool", "string")
    return exact or isinstance(node, ex.Cast)


def fields_over_windows(this: ir.Object, body: ir.Reduce, made: SplitWindow) -> tuple[ir.Object, ir.Samples]:
    """The results of frames as an object, and the fields and `having` over its columns."""
    time = made.ready.time
    bounds = [pa.field(name, _bound_type(name, body, made)) for name in WINDOW_BOUNDS]
    keys = [pa.field(key, made.ready.schema.field(key).type) for key in made.keys]
    schema = pa.schema([*bounds, *keys, *made.reduced])
    plain = ir.Object(f"{this.name}.frames", body, schema, replace(time, column=WINDOW_BOUNDS[1], shift=-1))
    names = [computed.name for computed in made.reduced]
    renamed = {key.name: name for key, name in zip(body.keys, _key_names(body, made), strict=True)}

    def over(expr: ex.Expr) -> ex.Expr:
        return ex.substitute(
            read_from_columns(expr, names), {old: ex.Column(new) for old, new in renamed.items()}
        )

    having = None if body.having is None else over(body.having)
    fields = tuple(ex.Field(computed.name, over(computed.expr)) for computed in body.fields)
    return plain, ir.Samples(plain.name, having, fields)


def _key_names(body: ir.Reduce, made: SplitWindow) -> list[str]:
    by_expr = {field.expr: field.name for field in made.samples.fields}
    return [by_expr[key.expr] for key in body.keys]


def _bound_type(name: str, body: ir.Reduce | ir.Attach, made: SplitWindow) -> pa.DataType:
    carried = isinstance(body.domain, CarriedWindow)
    found: pa.DataType = made.ready.schema.field(name).type if carried else made.ready.time.type
    return found


def fields_over_rows(
    this: ir.Object, body: ir.Attach | ir.Lookback, made: SplitWindow
) -> tuple[ir.Object, ir.Samples]:
    """Rows with their aggregates as an object, and the fields over its columns."""
    adds = isinstance(body, ir.Attach) and not isinstance(body.domain, CarriedWindow)
    bounds = [pa.field(name, made.ready.time.type) for name in WINDOW_BOUNDS] if adds else []
    kept = [column for column in made.ready.schema if column.name not in {field.name for field in bounds}]
    plain = ir.Object(
        f"{this.name}.frames", body, pa.schema([*kept, *bounds, *made.reduced]), made.ready.time
    )
    names = [computed.name for computed in made.reduced]
    fields = tuple(ex.Field(column.name, read_from_columns(column.expr, names)) for column in body.fields)
    return plain, ir.Samples(plain.name, None, fields)


def columns_kept(this: ir.Object, source: ir.Object) -> list[str]:
    """The source columns needed in addition to keys and arguments: the time, and the columns that fields read."""
    body = this.body
    time = [source.time.column] if source.time.column in source.schema.names else []
    match body:
        case ir.Apply():
            return list(source.schema.names)
        case ir.Reduce(domain=CarriedWindow()):
            return [*dict.fromkeys([*time, *WINDOW_BOUNDS])]
        case ir.Attach(fields=fields) | ir.Lookback(fields=fields):
            read = {name for computed in fields for name in ex.columns_of(computed.expr)}
            if isinstance(body, ir.Attach):  # bounds are computed, unless rows carry them
                read = (
                    read | set(WINDOW_BOUNDS)
                    if isinstance(body.domain, CarriedWindow)
                    else read - set(WINDOW_BOUNDS)
                )
            return [name for name in source.schema.names if name in read or name in time]
        case _:
            return time


_ORIGINS = {WINDOW_START: "start", WINDOW_END: "end", JOIN_TIME: "time"}
_SIDES = (left_column(""), right_column(""))


def result_columns(body: jn.Join | jn.Asof) -> tuple[JoinColumn, ...]:
    """List the origin of each column of a join's result."""
    return tuple(_pair_column(field, dict(body.on)) for field in body.fields)


def _pair_column(field: ex.Field, keys: dict[str, str]) -> JoinColumn:
    assert isinstance(field.expr, ex.Column)
    name = field.expr.name
    if name in _ORIGINS:
        return JoinColumn(field.name, _ORIGINS[name])
    side, own = own_column(name)
    if side == 0 and own in keys:
        return JoinColumn(field.name, "key", own, keys[own])
    return JoinColumn(field.name, ("left", "right")[side], own)


def own_column(name: str) -> tuple[int, str]:
    """Return the side that a column of a pair belongs to, and its name there.

    >>> own_column("right.price")
    (1, 'price')
    """
    side = 0 if name.startswith(_SIDES[0]) else 1
    return side, name.removeprefix(_SIDES[side])


# --- conditions -------------------------------------------------------------------------------------


def condition_columns(where: ex.Expr) -> tuple[tuple[str, int, str], ...]:
    """List the columns of a pair that a condition reads: the pair's name, the side, the side's name."""
    return tuple((name, *own_column(name)) for name in sorted(ex.columns_of(where)))


@dataclass(frozen=True)
class Condition:
    """A condition over pairs as a filter over numbered pairs: the pairs' columns, the filter, the number's name."""

    pairs: pa.Schema
    rows: Rows
    number: str

    @property
    def schema(self) -> pa.Schema:
        """The numbers of the pairs that remain."""
        return pa.schema([pa.field(self.number, pa.int64())])


def condition_of(where: ex.Expr, time: Time, left: pa.Schema, right: pa.Schema) -> Condition:
    """Express a condition as a filter over numbered pairs."""
    scope = pair_scope(time, left, right)
    read = [scope.field(name) for name, _, _ in condition_columns(where)]
    number = hidden_name([column.name for column in read], "pair", 0)
    pairs = pa.schema([*read, pa.field(number, pa.int64())])
    return Condition(pairs, Rows(conjuncts(where), (ex.Field(number, ex.Column(number)),)), number)


# --- rolling joins ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SplitRolling:
    """A rolling join in steps: `samples` computes the right rows `ready`; `plain` has left rows with reductions."""

    samples: ir.Samples
    ready: ir.Object
    reductions: tuple[FrameReduction, ...]
    plain: ir.Object
    fields: ir.Samples


def split_rolling(this: ir.Object, body: jn.RollingJoin, left: ir.Object, right: ir.Object) -> SplitRolling:
    """Compute arguments and conditions as columns of the right side, and reductions as columns of the left."""
    kept = dict.fromkeys([right.time.column, *(name for _, name in body.on)])
    samples, ready, reductions = partition_rows(f"{this.name}.rows", right, list(kept), body.reductions)
    names = [hidden_name(left.schema.names, "reduced", place) for place in range(len(reductions))]
    reduced = [pa.field(name, reduction.type) for name, reduction in zip(names, reductions, strict=True)]
    plain = ir.Object(f"{this.name}.frames", body, pa.schema([*left.schema, *reduced]), this.time)
    fields = tuple(ex.Field(field.name, read_from_columns(field.expr, names)) for field in body.fields)
    return SplitRolling(samples, ready, reductions, plain, ir.Samples(plain.name, None, fields))
