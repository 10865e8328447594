"""Translate the logical plan to the time-centric IR."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.expr import nodes as ex
from penstock.expr.nodes import split_aggregates
from penstock.ir import nodes as ir
from penstock.ir import nodes as jn
from penstock.ir.nodes import Reduction
from penstock.plan import nodes as pl
from penstock.plan.schema import join_columns, schema_of, side_of, time_of
from penstock.types.time import Time

# --- Translate joins of the logical plan into the time-centric IR.


def join_body(plan: pl.Joined, left: str, right: str) -> ir.Joined:
    """Define a join over the objects of its inputs."""
    match plan:
        case pl.Join():
            return ir.Join(
                left,
                right,
                plan.on,
                plan.pairing,
                plan.how,
                plan.where,
                _fields(plan),
                plan.algorithm,
                plan.optimise,
            )
        case pl.AsofJoin():
            return ir.Asof(left, right, plan.on, plan.direction, plan.tolerance, plan.exact, _fields(plan))
        case pl.RollingJoin():
            return _rolling(plan, left, right)


def _fields(plan: pl.Join | pl.AsofJoin) -> tuple[ex.Field, ...]:
    columns = join_columns(plan, side_of(plan.left), side_of(plan.right))
    return tuple(ex.Field(column.name, ex.Column(column.of_pair)) for column in columns)


def _rolling(plan: pl.RollingJoin, left: str, right: str) -> ir.RollingJoin:
    found: list[ex.Aggregate] = []
    added = [ex.Field(field.name, split_aggregates(field.expr, found)[0]) for field in plan.fields]
    kept = [ex.Field(name, ex.Column(name)) for name in schema_of(plan.left).names]
    reductions = tuple(
        Reduction(aggregate.function, aggregate.args, aggregate.where, aggregate.options)
        for aggregate in found
    )
    return ir.RollingJoin(left, right, plan.on, plan.within, reductions, (*kept, *added))


# --- Translate the logical plan into the time-centric IR: one temporal object per plan node.
#
#     Filter(Source events, kind = 'view')  →  ~in0 = input
#     Aggregate(10 s, by k, total = sum(v))    ~s1  = ~in0 where kind = 'view'
#                                              ~w2  = { …, total: ⊕(sum, ~s1.v) } every 10 s by k
#
# Equal definitions become one object, so a stream read twice is read once. Names come from a counter and
# contain no user text.


def to_ir(plan: pl.Plan) -> ir.Program:
    """Define every node of the plan as a temporal object, inputs before their readers."""
    translation = _Translation()
    translation.define_all(plan)
    return ir.Program(tuple(translation.objects), translation.name_of(plan))


@dataclass(slots=True)
class _Translation:
    """The objects so far, indexed by definition and by plan node."""

    objects: list[ir.Object] = field(default_factory=list)
    by_body: dict[ir.Body, list[ir.Object]] = field(default_factory=dict)
    by_node: dict[int, str] = field(default_factory=dict)

    def name_of(self, plan: pl.Plan) -> str:
        return self.by_node[id(plan)]

    def define_all(self, plan: pl.Plan) -> None:
        """Define a plan and everything below it, without recursion: plans can be thousands of verbs deep."""
        waiting = [self._steps(plan)]
        while waiting:
            below = next(waiting[-1], None)
            if below is None:
                waiting.pop()
            else:
                waiting.append(self._steps(below))

    def _steps(self, plan: pl.Plan) -> Iterator[pl.Plan]:
        """Yield the inputs to define first, then define the plan."""
        for input_ in pl.inputs(plan):
            if id(input_) not in self.by_node:
                yield input_
            if isinstance(plan, pl.Union):
                self._in_order(input_, schema_of(plan))
        self.by_node[id(plan)] = self._translate(plan)

    def _translate(self, plan: pl.Plan) -> str:
        schema = schema_of(plan)
        match plan:
            case pl.Union(inputs=several):
                body: ir.Body = ir.Merge(tuple(self._in_order(reduction, schema) for reduction in several))
            case pl.Intervals(inputs=several, program=program):
                body = ir.Signals(tuple(self.name_of(reduction) for reduction in several), program)
            case pl.Source(name=name, sequence=sequence):
                body = ir.Input(name, sequence)
            case pl.Table(name=name):
                body = jn.Table(name)
            case pl.Join() | pl.AsofJoin() | pl.RollingJoin():
                body = join_body(plan, self.name_of(plan.left), self.name_of(plan.right))
            case _:
                body = _body(plan, self.name_of(plan.input), schema)
        return self._define(body, schema, time_of(plan))

    def _in_order(self, plan: pl.Plan, schema: pa.Schema) -> str:
        """Name a branch of a union, with its columns in the order of the first branch."""
        name = self.name_of(plan)
        own = schema_of(plan)
        if own.names == schema.names:
            return name
        fields = tuple(ex.Field(column_name, ex.Column(column_name)) for column_name in schema.names)
        ordered = pa.schema([own.field(column_name) for column_name in schema.names])
        return self._define(ir.Samples(name, None, fields), ordered, time_of(plan))

    def _define(self, body: ir.Body, schema: pa.Schema, time: Time) -> str:
        """Add an object, or return the existing one with the same definition."""
        alike = self.by_body.setdefault(body, [])
        for this in alike:
            if this.schema.equals(schema) and this.time == time:
                return this.name
        made = ir.Object(f"{_PREFIX[type(body)]}{len(self.objects)}", body, schema, time)
        self.objects.append(made)
        alike.append(made)
        return made.name


_PREFIX: dict[type[ir.Body], str] = {
    ir.Input: "in",
    ir.Samples: "s",
    ir.Reduce: "w",
    ir.Attach: "a",
    ir.Lookback: "b",
    ir.Apply: "f",
    ir.Merge: "m",
    ir.Distinct: "d",
    ir.Top: "k",
    ir.Signals: "i",
    jn.Table: "t",
    jn.Join: "j",
    jn.Asof: "j",
    jn.RollingJoin: "j",
}


def _body(plan: pl.Plan, source: str, schema: pa.Schema) -> ir.Body:
    match plan:
        case pl.Filter(predicate=predicate):
            return ir.Samples(source, predicate, _columns(schema))
        case pl.Project(fields=fields):
            return ir.Samples(source, None, fields)
        case pl.Distinct(subset=subset, keep=keep, within=within):
            return ir.Distinct(source, subset, keep, within)
        case pl.TopK(k=k, by=by, ties=ties):
            return ir.Top(source, k, by, ties)
        case pl.Aggregate() | pl.Attach():
            return _windowed(plan, source, schema)
        case pl.Lookback():
            return _lookback(plan, source, schema)
        case pl.Apply(window=window, by=by, function=function):
            return ir.Apply(source, window, _keys(by), function)
        case _:
            raise AssertionError(f"{type(plan).__name__} has no single input")


def _windowed(plan: pl.Aggregate | pl.Attach, source: str, schema: pa.Schema) -> ir.Body:
    """Collect each reduction once; columns that no field defines pass through under their names."""
    reductions: dict[ir.Reduction, int] = {}
    defined = {column.name: _reduced(column.expr, reductions) for column in plan.fields}
    fields = tuple(ex.Field(name, defined.get(name, ex.Column(name))) for name in schema.names)
    made = ir.Reduce if isinstance(plan, pl.Aggregate) else ir.Attach
    return made(source, plan.window, _keys(plan.by), tuple(reductions), fields)


def _lookback(plan: pl.Lookback, source: str, schema: pa.Schema) -> ir.Body:
    reductions: dict[ir.Reduction, int] = {}
    defined = {
        computed.name: _reduced(computed.expr, reductions, span)
        for span, fields in enumerate(plan.fields)
        for computed in fields
    }
    fields = tuple(ex.Field(name, defined.get(name, ex.Column(name))) for name in schema.names)
    return ir.Lookback(source, plan.spans, _keys(plan.by), tuple(reductions), fields)


def _keys(by: tuple[str, ...]) -> tuple[ex.Field, ...]:
    return tuple(ex.Field(name, ex.Column(name)) for name in by)


def _reduced(expr: ex.Expr, reductions: dict[ir.Reduction, int], span: int = 0) -> ex.Expr:
    """Replace each aggregate by a reference to its reduction; number the reduction if it is new."""

    def rule(node: ex.Expr) -> ex.Expr:
        if not isinstance(node, ex.Aggregate):
            return node
        found = ir.Reduction(node.function, node.args, node.where, node.options, span)
        return ex.Reduced(reductions.setdefault(found, len(reductions)))

    return ex.rewrite(expr, rule)


def _columns(schema: pa.Schema) -> tuple[ex.Field, ...]:
    return tuple(ex.Field(name, ex.Column(name)) for name in schema.names)
