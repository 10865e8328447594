"""Fuse temporal objects into their readers, and compute those that are written twice once.

    ~n1[t] = { a = ⊕(mean, ~n0[t - 20 : t].value)  value: a }     →  ~n3[t] = {
    ~n2[t] = { a = ⊕(mean, ~n0[t - 50 : t].value)  value: a }          a = ⊕(mean, ~n0[t - 20 : t].value)
    ~n3[t] = { a = ~n1[t]  b = ~n2[t]  value: a > b }                  b = ⊕(mean, ~n0[t - 50 : t].value)
                                                                       value: a > b }

An expression is substituted into its readers, moved by their shift, if it is read at one instant only or is cheap
enough to compute at each. An expression over a single object at the same instant is also substituted into reductions:
its samples are those of the object at which it is defined. Two reductions of one object through two expressions then
share its samples. Fusion can merge reads at two instants into one, so the pass repeats until nothing changes.

An expression that is defined where all its inputs are null (`or_else(0)`) is not fused: its value begins with the
key's first sample, and would begin later as part of another expression.

    ~n1[t] = { a = ~n0[t]  value: a + 1 }        →  ~n1[t] = { a = ~n0[t]  value: a + 1 }
    ~n2[t] = { a = ~n0[t]  value: a + 1 }           ~n3[t] = { a = ~n1[t]  value: a * a }
    ~n3[t] = { a = ~n1[t]  b = ~n2[t]  value: a * b }

Fusion creates equal objects; duplicate accesses or reductions of an expression become one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa

from penstock.analysis.graph import opaque, with_signals
from penstock.expr import nodes as ex
from penstock.expr.aggregates import AGGREGATES
from penstock.ir import nodes as ir
from penstock.ir.signals.nodes import (
    Body,
    Expression,
    Feedback,
    Last,
    Object,
    Per,
    Program,
    Window,
    WindowReduction,
    at,
    renamed,
    sources_of,
)
from penstock.ir.signals.scope import Schemas, composed, is_lenient

CHEAP = 12  # nodes of an expression that may be computed more than once

# Null exactly where an operand is null.
_STRICT = frozenset({"add", "sub", "mul", "neg", "abs", "eq", "ne", "lt", "le", "gt", "ge", "not"})
# Not null over zero samples: a span of undefined samples only would give a value instead of null.
COUNTS_NONE = frozenset({"count", "count_distinct", "list", "any", "all", "custom"})


def fuse_signals(program: ir.Program) -> ir.Program:
    """Fuse the temporal expressions of every signal."""
    return with_signals(program, fused)


def fused(program: Program) -> Program:
    """Fuse expressions into their readers, from the inputs to the output."""
    uses = _uses(program)
    schemas = {obj.name: obj.schema for obj in program.objects}
    bodies = {obj.name: obj.body for obj in program.objects}
    for obj in program.objects:
        marked = _marks_matter(obj, program, schemas)
        bodies[obj.name] = _reducing(obj.body, bodies, schemas, marked=marked)
    for obj in program.objects:
        bodies[obj.name] = _fused(bodies[obj.name], bodies, uses, schemas)
    objects = tuple(replace(obj, body=bodies[obj.name]) for obj in program.objects)
    made = without_unread(replace(program, objects=objects))
    return made if len(made.objects) == len(program.objects) else fused(made)


def without_unread(program: Program) -> Program:
    """Drop the objects the output does not depend on."""
    wanted = {program.output}
    for obj in reversed(program.objects):
        if obj.name in wanted:
            wanted.update(sources_of(obj.body))
    return replace(program, objects=tuple(obj for obj in program.objects if obj.name in wanted))


def _reducing(body: Body, bodies: dict[str, Body], schemas: Schemas, *, marked: bool) -> Body:
    """Redirect reductions to the sources of their source expressions, before expressions are fused."""
    if not isinstance(body, Expression | Feedback):
        return body
    made = tuple(_over_source(reduction, bodies, schemas, marked=marked) for reduction in body.reductions)
    return replace(body, reductions=made)


def _marks_matter(this: Object, program: Program, schemas: Schemas) -> bool:
    """Return whether a mark, or the beginning, of an object matters at instants where it is not defined.

    For the output it does not, unless it is defined without inputs, or pieces of another value end at the mark.
    """
    body = this.body
    if this.name != program.output or not isinstance(body, Expression) or is_lenient(body, schemas):
        return True
    return program.pieces and len(body.accesses) + len(body.reductions) > 1


def _fused(body: Body, bodies: dict[str, Body], uses: Counter[str], schemas: Schemas) -> Body:
    if not isinstance(body, Expression):
        return body
    inner = {
        access.source: _opaque(found)
        for access in body.accesses
        if isinstance(found := bodies[access.source], Expression)
        and _affordable(found, uses[access.source])
        and not is_lenient(found, schemas)
    }
    return composed(body, inner) if inner else body


def _uses(program: Program) -> Counter[str]:
    """Count the instants at which each object is read; reductions and the output count as one read each."""
    instants: Counter[str] = Counter([program.output])
    for obj in program.objects:
        match obj.body:
            case (
                Expression(accesses=accesses, reductions=reductions)
                | Feedback(accesses=accesses, reductions=reductions)
            ):
                instants.update(access.source for access in accesses)
                instants.update({over.source for over in reductions})
            case body:
                instants.update(sources_of(body))
    return instants


def _affordable(body: Expression, uses: int) -> bool:
    size = sum(count for _, count in ex.occurrences(*(field.expr for field in body.fields)))
    return uses <= 1 or (not body.reductions and size <= CHEAP)


def _opaque(body: Expression) -> Expression:
    return replace(body, fields=tuple(ex.Field(field.name, opaque(field.expr)) for field in body.fields))


# --- fusion into reductions -----------------------------------------------------------------------------


def _over_source(
    over: WindowReduction, bodies: dict[str, Body], schemas: Schemas, *, marked: bool
) -> WindowReduction:
    """Redirect a reduction to its source's source, if the source reads one object at the same instant."""
    body = bodies[over.source]
    if not isinstance(body, Expression) or body.reductions or len(body.accesses) != 1:
        return over
    (access,) = body.accesses
    if access.shift or is_lenient(body, schemas):
        return over
    strict = _is_strict(body, schemas[access.source])
    # `Last` would count undefined samples among its rows.
    if not strict and (over.function in COUNTS_NONE or isinstance(over.span, Last)):
        return over
    # A window with undefined samples only does not begin the object and is not a mark.
    if not strict and marked and isinstance(over.span, Window | Per):
        return over
    known = {field.name: opaque(_named(field.expr)) for field in body.fields}
    args = tuple(ex.substitute(arg, known) for arg in over.args)
    where = None if over.where is None else ex.substitute(over.where, known)
    if not strict and not _skips_nulls(over):
        where = _both(_there(known), where)
    found = replace(over, source=access.source, args=args, where=where)
    return _over_source(found, bodies, schemas, marked=marked)


def _skips_nulls(over: WindowReduction) -> bool:
    """Return whether the aggregate skips undefined samples anyway."""
    leaves_out = over.function != "custom" and AGGREGATES[over.function].skips_nulls
    return leaves_out and bool(over.args) and all(isinstance(arg, ex.Column) for arg in over.args)


def _named(expr: ex.Expr) -> ex.Expr:
    """Rename the columns of the only access to plain column names."""

    def rule(node: ex.Expr) -> ex.Expr:
        return ex.Column(node.name.removeprefix(at(0, ""))) if isinstance(node, ex.Column) else node

    return ex.rewrite(expr, rule)


def _is_strict(body: Expression, source: pa.Schema) -> bool:
    """Return whether the single field is defined exactly where the single source column is."""
    if len(body.fields) > 1 or len(source) > 1:
        return False
    nodes = list(ex.walk(body.fields[0].expr))
    return any(isinstance(node, ex.Column) for node in nodes) and all(
        isinstance(node, ex.Column | ex.Cast)
        or (isinstance(node, ex.Literal) and node.value is not None)
        or (isinstance(node, ex.Call) and node.function in _STRICT)
        for node in nodes
    )


def _there(known: dict[str, ex.Expr]) -> ex.Expr:
    """Return the predicate that one of the columns is not null."""
    several: list[ex.Expr] = [ex.Call("is_not_null", (expr,)) for expr in known.values()]
    whole = several[0]
    for reduction in several[1:]:
        whole = ex.Call("or", (whole, reduction))
    return whole


def _both(first: ex.Expr, second: ex.Expr | None) -> ex.Expr:
    return first if second is None else ex.Call("and", (first, second))


def share_signals(program: ir.Program) -> ir.Program:
    """Deduplicate the objects of every signal."""
    return with_signals(program, shared)


def shared(program: Program) -> Program:
    """Redirect readers of an object to an earlier object with an equal definition."""
    instead = {name: name for name in program.inputs}
    known: dict[Body, str] = {}
    objects: list[Object] = []
    for obj in program.objects:
        body = renamed(obj.body, instead)
        if isinstance(body, Expression):
            body = composed(body, {})  # merges equal accesses and reductions
        instead[obj.name] = known.setdefault(body, obj.name)
        if instead[obj.name] == obj.name:
            objects.append(replace(obj, body=body))
    return without_unread(replace(program, objects=tuple(objects), output=instead[program.output]))
