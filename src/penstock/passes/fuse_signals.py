"""Make one temporal expression of several, across windows and joins (TiLT, section 5.2).

    ~n1[t] = { a = ⊕(mean, ~n0[t - 20 : t].value)  value: a }     →  ~n3[t] = {
    ~n2[t] = { a = ⊕(mean, ~n0[t - 50 : t].value)  value: a }          a = ⊕(mean, ~n0[t - 20 : t].value)
    ~n3[t] = { a = ~n1[t]  b = ~n2[t]  value: a > b }                  b = ⊕(mean, ~n0[t - 50 : t].value)
                                                                       value: a > b }

An expression is put into those that read it, moved by their shift, where it is read at one instant only or
cheap enough to be computed at each. One over a single object at the same instant is put into reductions too: its
samples are those of the object, where it is defined. So two reductions of one object by way of two expressions share
its samples. What is read at two instants may be read at one when all is fused, so this is done until nothing changes.

It stays on its own if it has a value where nothing it reads has one (`or_else(0)`): such a value begins with the key's
first sample, and would begin later in the company of others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa

from penstock.analysis.graph import with_signals
from penstock.analysis.substitution import opaque
from penstock.expr import nodes as ex
from penstock.expr.aggregates import AGGREGATES
from penstock.ir import nodes as ir
from penstock.ir.signals.compose import composed
from penstock.ir.signals.defined_everywhere import is_lenient
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
    sources_of,
)
from penstock.ir.signals.scope import Schemas

CHEAP = 12  # nodes of an expression that may be computed more than once

# Null exactly where an operand is.
_STRICT = frozenset({"add", "sub", "mul", "neg", "abs", "eq", "ne", "lt", "le", "gt", "ge", "not"})
# Not null over no samples, so that it matters whether there were any to leave out.
COUNTS_NONE = frozenset({"count", "count_distinct", "list", "any", "all", "custom"})


def fuse_signals(program: ir.Program) -> ir.Program:
    """Fuse the temporal expressions of every signal."""
    return with_signals(program, fused)


def fused(program: Program) -> Program:
    """Fuse expressions into their readers, from the inputs on; readers of what was fused see the result."""
    uses = _uses(program)
    schemas = {each.name: each.schema for each in program.objects}
    bodies = {each.name: each.body for each in program.objects}
    for each in program.objects:
        marked = _marks_matter(each, program, schemas)
        bodies[each.name] = _reducing(each.body, bodies, schemas, marked=marked)
    for each in program.objects:
        bodies[each.name] = _fused(bodies[each.name], bodies, uses, schemas)
    objects = tuple(replace(each, body=bodies[each.name]) for each in program.objects)
    made = without_unread(replace(program, objects=objects))
    return made if len(made.objects) == len(program.objects) else fused(made)


def without_unread(program: Program) -> Program:
    """Drop the objects the output does not depend on."""
    wanted = {program.output}
    for each in reversed(program.objects):
        if each.name in wanted:
            wanted.update(sources_of(each.body))
    return replace(program, objects=tuple(each for each in program.objects if each.name in wanted))


def _reducing(body: Body, bodies: dict[str, Body], schemas: Schemas, *, marked: bool) -> Body:
    """Reduce the samples of what sources are made of, before those are put together with what they read."""
    if not isinstance(body, Expression | Feedback):
        return body
    made = tuple(_over_source(each, bodies, schemas, marked=marked) for each in body.reductions)
    return replace(body, reductions=made)


def _marks_matter(this: Object, program: Program, schemas: Schemas) -> bool:
    """Tell whether anybody would see a mark, or the beginning, of an object where it is not defined.

    Nobody does of the output, unless it has a value of its own there, or pieces of another value end at the mark.
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
    """Count at how many instants each object is read; reductions and the output read it for themselves."""
    instants: Counter[str] = Counter([program.output])
    for each in program.objects:
        match each.body:
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
    size = sum(1 for each in body.fields for _ in ex.walk(each.expr))
    return uses <= 1 or (not body.reductions and size <= CHEAP)


def _opaque(body: Expression) -> Expression:
    return replace(body, fields=tuple(ex.Field(each.name, opaque(each.expr)) for each in body.fields))


# --- into reductions ------------------------------------------------------------------------------------


def _over_source(
    over: WindowReduction, bodies: dict[str, Body], schemas: Schemas, *, marked: bool
) -> WindowReduction:
    """Reduce the samples of what the source is made of, if that is one object at the same instant."""
    body = bodies[over.source]
    if not isinstance(body, Expression) or body.reductions or len(body.accesses) != 1:
        return over
    (access,) = body.accesses
    if access.shift or is_lenient(body, schemas):
        return over
    strict = _is_strict(body, schemas[access.source])
    # Of the last so many samples, those that are not there would be some.
    if not strict and (over.function in COUNTS_NONE or isinstance(over.span, Last)):
        return over
    # A window that holds none but those begins nothing, and is no mark.
    if not strict and marked and isinstance(over.span, Window | Per):
        return over
    known = {each.name: opaque(_named(each.expr)) for each in body.fields}
    args = tuple(ex.substitute(arg, known) for arg in over.args)
    where = None if over.where is None else ex.substitute(over.where, known)
    if not strict and not _skips_nulls(over):
        where = _both(_there(known), where)
    found = replace(over, source=access.source, args=args, where=where)
    return _over_source(found, bodies, schemas, marked=marked)


def _skips_nulls(over: WindowReduction) -> bool:
    """Tell whether samples that are not there would be left out anyway."""
    leaves_out = over.function != "custom" and AGGREGATES[over.function].skips_nulls
    return leaves_out and bool(over.args) and all(isinstance(arg, ex.Column) for arg in over.args)


def _named(expr: ex.Expr) -> ex.Expr:
    """Read columns from the only access by their own names."""

    def rule(node: ex.Expr) -> ex.Expr:
        return ex.Column(node.name.removeprefix(at(0, ""))) if isinstance(node, ex.Column) else node

    return ex.rewrite(expr, rule)


def _is_strict(body: Expression, source: pa.Schema) -> bool:
    """Tell whether a single value is there exactly where the single value it is made of is."""
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
    """Where one of the columns is not null."""
    several: list[ex.Expr] = [ex.Call("is_not_null", (expr,)) for expr in known.values()]
    whole = several[0]
    for each in several[1:]:
        whole = ex.Call("or", (whole, each))
    return whole


def _both(first: ex.Expr, second: ex.Expr | None) -> ex.Expr:
    return first if second is None else ex.Call("and", (first, second))
