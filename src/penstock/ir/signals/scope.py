"""Questions about signals: columns in scope, reach in time, expressions defined everywhere; and their fusion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expr import nodes as ex
from penstock.expr.evaluate import evaluate
from penstock.expr.nodes import Aggregate, Field
from penstock.expr.typing import type_of
from penstock.ir.signals.nodes import (
    DURATION,
    At,
    Chop,
    Expression,
    Feedback,
    Per,
    Program,
    Resample,
    Rolling,
    SampleAndHold,
    Sampled,
    Window,
    WindowReduction,
    at,
    past,
)

# --- The columns that fields of a temporal object may reference, and their types.

Schemas = Mapping[str, pa.Schema]


def scope(body: Expression | Feedback, schemas: Schemas, own: pa.DataType | None = None) -> pa.Schema:
    """List the columns of all accesses, then the object's own past results, which have type `own`."""
    accessed = [
        pa.field(at(i, field.name), field.type)
        for i, access in enumerate(body.accesses)
        for field in schemas[access.source]
    ]
    pasts = body.own if isinstance(body, Feedback) else ()
    return pa.schema([*accessed, *(pa.field(past(i), own) for i in range(len(pasts)))])


def reduced_types(body: Expression | Feedback, schemas: Schemas) -> tuple[pa.DataType, ...]:
    """Return the types of `Reduced(0)`, `Reduced(1)`, … in the fields."""
    return tuple(reduced_type(reduction, schemas[reduction.source]) for reduction in body.reductions)


def reduced_type(reduction: WindowReduction, schema: pa.Schema) -> pa.DataType:
    """Return the type of a reduction over samples of the schema."""
    return type_of(Aggregate(reduction.function, reduction.args, reduction.where, reduction.options), schema)


def fields_schema(body: Expression | Feedback, schemas: Schemas, own: pa.DataType | None = None) -> pa.Schema:
    """Return the schema of the fields."""
    names, types = scope(body, schemas, own), reduced_types(body, schemas)
    return pa.schema([pa.field(column.name, type_of(column.expr, names, types)) for column in body.fields])


def chopped_schema(body: Chop, source: pa.Schema) -> pa.Schema:
    """Return the source's columns and, if requested, the duration of each piece."""
    return pa.schema([*source, pa.field(DURATION, pa.int64())]) if body.durations else source


# --- Bounds on how far in time a sample affects a program's output.

# A span of this length never expires a sample.
NO_END = 1 << 60
# Ticks added on both sides, for changes exactly at the bound.
MARGIN = 2


def reach(program: Program) -> int:
    """Bound how long after (or before) the last sample the output may still change, in ticks.

    The bound is the sum of all lengths: safe to search, too loose to prune by.
    """
    return MARGIN + sum(_length(obj.body) for obj in program.objects)


def lag(program: Program) -> int:
    """Bound how long before its first sample a key's output begins, in ticks.

    >>> import pyarrow as pa
    >>> from penstock.ir.signals.nodes import At, Object
    >>> from penstock.types.time import Time
    >>> values = pa.schema({"v": pa.float64()})
    >>> x = Object("x", Sampled("0", (), ()), values)
    >>> y = Object("y", Expression((At("x", -7), At("x", 2)), (), ()), values)
    >>> lag(Program((x, y), "y", pa.schema([]), Time("t", pa.int64(), None)))
    7
    """
    lags: dict[str, int] = {}
    for obj in program.objects:
        lags[obj.name] = _lag(obj.body, lags)
    return lags[program.output]


def _lag(body: object, lags: Mapping[str, int]) -> int:
    match body:
        case (
            Expression(accesses=accesses, reductions=reductions)
            | Feedback(accesses=accesses, reductions=reductions)
        ):
            found = [lags[access.source] - access.shift for access in accesses]
            found += [
                lags[reduction.source] - reduction.shift + _ahead(reduction) for reduction in reductions
            ]
            return max([0, *found])  # an object defined without inputs begins with its key
        case Chop(source=source, marks=marks):
            return max(lags[source], 0 if marks is None else lags[marks.source] - marks.shift)
        case SampleAndHold(source=source, clock=clock):
            return max(lags[source], lags[clock])
        case Resample(source=source):
            return lags[source]
        case _:
            return 0


def _ahead(over: WindowReduction) -> int:
    """Return how long before a sample the first span that holds it may begin."""
    return over.span.size - 1 if isinstance(over.span, Per) else 0


def _length(body: object) -> int:
    match body:
        case Sampled(hold=hold):
            return hold.lasting or 0
        case (
            Expression(accesses=accesses, reductions=reductions)
            | Feedback(accesses=accesses, reductions=reductions)
        ):
            own = (
                sum(self_reference.shift for self_reference in body.own) if isinstance(body, Feedback) else 0
            )
            shifts = [*(a.shift for a in accesses), *(r.shift for r in reductions)]
            return own + sum(map(abs, shifts)) + sum(_span(reduction) for reduction in reductions)
        case Resample(every=every, max_gap=gap):
            return every + (gap or 0)
        case Chop(every=every, marks=marks):
            return (every or 0) + (0 if marks is None else _finite(abs(marks.shift)))
        case _:
            return 0


def _span(over: WindowReduction) -> int:
    match over.span:
        case Rolling(size=size):
            return _finite(size)
        case Window(size=size, every=every):
            return size + every
        case Per(size=size):
            return size
        case _:
            return 0


def _finite(length: int) -> int:
    return 0 if length >= NO_END else length


# --- Find expressions that are defined even where all their inputs are null, such as `or_else(0)`.


def is_lenient(body: Expression, schemas: Schemas) -> bool:
    """Return whether a field is not null where every input is null.

    >>> import pyarrow as pa
    >>> from penstock.expr.nodes import Call, Column, Field, Literal
    >>> from penstock.ir.signals.nodes import At
    >>> filled = Call("fill_null", (Column("0.v"), Literal(0.0, pa.float64())))
    >>> is_lenient(Expression((At("x"),), (), (Field("v", filled),)), {"x": pa.schema({"v": pa.float64()})})
    True
    """
    names, types = scope(body, schemas), reduced_types(body, schemas)
    nothing = dict.fromkeys(names.names)
    try:
        values = [evaluate(field.expr, nothing, names, (None,) * len(types), types) for field in body.fields]
    except PenstockError:
        return True  # a failing expression computes a value too
    return any(value is not None for value in values)


# --- Substitute one expression into another: the fusion of two temporal expressions (TiLT, section 5.2).


@dataclass(slots=True)
class FusedAccesses:
    """The accesses and reductions of the fused expression, deduplicated."""

    accesses: list[At] = field(default_factory=list)
    reductions: list[WindowReduction] = field(default_factory=list)

    def access(self, wanted: At) -> int:
        if wanted not in self.accesses:
            self.accesses.append(wanted)
        return self.accesses.index(wanted)

    def reduction(self, wanted: WindowReduction) -> int:
        if wanted not in self.reductions:
            self.reductions.append(wanted)
        return self.reductions.index(wanted)

    def moved(self, body: Expression, shift: int) -> dict[str, ex.Expr]:
        """Add the accesses and reductions of an expression, shifted in time; return its fields over them."""
        accesses = [self.access(At(access.source, access.shift + shift)) for access in body.accesses]
        reductions = [
            self.reduction(replace(reduction, shift=reduction.shift + shift)) for reduction in body.reductions
        ]

        def rule(node: ex.Expr) -> ex.Expr:
            match node:
                case ex.Column(name=name):
                    place, _, column = name.partition(".")
                    return ex.Column(at(accesses[int(place)], column))
                case ex.Reduced(index=index):
                    return ex.Reduced(reductions[index])
                case _:
                    return node

        return {computed.name: ex.rewrite(computed.expr, rule) for computed in body.fields}


def composed(outer: Expression, inner: dict[str, Expression]) -> Expression:
    """Replace accesses to the objects in `inner` by their definitions.

    >>> from penstock.expr.nodes import Call, Column
    >>> difference = Expression((At("a"), At("b")), (), (Field("v", Call("sub", (Column("0.v"), Column("1.v")))),))
    >>> moved = Expression((At("a", 5),), (), (Field("v", Column("0.v")),))
    >>> made = composed(difference, {"b": moved})
    >>> made.accesses, made.fields[0].expr == Call("sub", (Column("0.v"), Column("1.v")))
    ((At(source='a', shift=0), At(source='a', shift=5)), True)
    """
    merged = FusedAccesses()
    columns: dict[str, ex.Expr] = {}
    for i, access in enumerate(outer.accesses):
        if access.source in inner:
            made = merged.moved(inner[access.source], access.shift)
            columns |= {at(i, name): expr for name, expr in made.items()}
        else:
            columns |= _renumbered(outer, i, merged.access(access))
    reduced = [merged.reduction(reduction) for reduction in outer.reductions]

    def rule(node: ex.Expr) -> ex.Expr:
        match node:
            case ex.Column(name=name):
                return columns[name]
            case ex.Reduced(index=index):
                return ex.Reduced(reduced[index])
            case _:
                return node

    fields = tuple(Field(column.name, ex.rewrite(column.expr, rule)) for column in outer.fields)
    return Expression(tuple(merged.accesses), tuple(merged.reductions), fields)


def _renumbered(outer: Expression, old: int, new: int) -> dict[str, ex.Expr]:
    prefix = at(old, "")
    used = {name for column in outer.fields for name in ex.columns_of(column.expr) if name.startswith(prefix)}
    return {name: ex.Column(at(new, name.removeprefix(prefix))) for name in used}
