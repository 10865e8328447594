"""Push filters below grouping, where the predicate reads only keys.

    ~w1[t] @ size 10s every 10s by k = {     →  ~w1[t] @ size 10s every 10s by k = {
      #0 = ⊕(sum, ~in0[t - 10s : t].v)           where k == 1
      k; total: #0                               #0 = ⊕(sum, ~in0[t - 10s : t].v)
      having k == 1 and #0 > 3                   k; total: #0
    }                                            having #0 > 3
                                               }

All rows of a group share the key, so the predicate drops whole groups or none. Only predicates that cannot
fail are moved: they are then evaluated on every row. 0.0 and -0.0 are one group, so a predicate on a float
key must not distinguish them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from penstock.analysis.graph import Definitions, definitions, readers, redefine
from penstock.analysis.predicates import conjunction, conjuncts, is_total, then
from penstock.expr.nodes import (
    Call,
    Column,
    Expr,
    Field,
    IsIn,
    Reduced,
    columns_of,
    fold,
    substitute,
    walk,
)
from penstock.expr.typing import column_type
from penstock.ir.nodes import Attach, Distinct, Object, Program, Reduce, Samples
from penstock.types.arrow import kind_of
from penstock.types.windows import WINDOW_BOUNDS, WINDOW_END, WINDOW_START, CarriedWindow, Unbounded

_BLIND = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "is_null", "is_not_null", "is_nan"})


def push_filter(program: Program) -> Program:
    """Push every filter down as far as possible, one step at a time."""
    while (pushed := _step(program)) is not None:
        program = pushed
    return program


def _step(program: Program) -> Program | None:
    for obj in program.objects:
        pushed = _pushed(obj, program)
        if pushed is not None:
            return pushed
    return None


def _pushed(this: Object, program: Program) -> Program | None:
    match this.body:
        case Reduce(having=having) as body if having is not None:
            return _below_having(this, body, having, program)
        case Samples(where=where) as body if where is not None:
            return _below_source(this, body, where, program)
        case _:
            return None


# --- moves ------------------------------------------------------------------------------------------


def _below_having(this: Object, body: Reduce, having: Expr, program: Program) -> Program | None:
    origin = program[body.source]
    moved, kept = _split(having, _keys(body), origin.schema)
    if moved is None:
        return None
    pushed = replace(body, where=then(body.where, moved, total=True), having=kept)
    return redefine(program, this.name, [replace(this, body=pushed)])


def _below_source(this: Object, body: Samples, where: Expr, program: Program) -> Program | None:
    """Move conjuncts of a filter below the window or distinct before it."""
    before = program[body.source]
    if not isinstance(before.body, Reduce | Attach | Distinct) or readers(program)[before.name] > 1:
        return None
    match before.body:
        case Reduce() | Attach():
            below = _below_window(before, before.body, where, program)
        case Distinct():
            below = _below_distinct(before, before.body, where, program)
        case _:
            return None
    if below is None:
        return None
    changed, kept = below
    return redefine(changed, this.name, [replace(this, body=replace(body, where=kept))])


def _below_window(
    before: Object, window: Reduce | Attach, where: Expr, program: Program
) -> tuple[Program, Expr | None] | None:
    origin = program[window.source]
    moved, kept = _split(where, _visible(window), origin.schema)
    if moved is None:
        return None
    pushed = replace(window, where=then(window.where, moved, total=True))
    return redefine(program, before.name, [replace(before, body=pushed)]), kept


def _below_distinct(
    before: Object, distinct: Distinct, where: Expr, program: Program
) -> tuple[Program, Expr | None] | None:
    origin = program[distinct.source]
    moved, kept = _split(where, {name: Column(name) for name in distinct.subset}, origin.schema)
    if moved is None:
        return None
    fields = tuple(Field(name, Column(name)) for name in origin.schema.names)
    name = _fresh(f"{before.name}_below", program)
    below = Object(name, Samples(distinct.source, moved, fields), origin.schema, origin.time)
    pushed = replace(before, body=replace(distinct, source=name))
    return redefine(program, before.name, [below, pushed]), kept


def _fresh(name: str, program: Program) -> str:
    taken = {obj.name for obj in program.objects}
    while name in taken:
        name += "_"
    return name


# --- movable predicates -----------------------------------------------------------------------------


def _keys(body: Reduce | Attach) -> Definitions:
    """Map each name that is constant within a group to its expression over a row."""
    if isinstance(body.domain, Unbounded):
        return {}  # an unbounded window's bounds depend on the rows of all keys
    keys = definitions(body.keys)
    if isinstance(body.domain, CarriedWindow):
        keys |= {name: Column(name) for name in (WINDOW_START, WINDOW_END)}
    return keys


def _visible(body: Reduce | Attach) -> Definitions:
    """Return the same map by the names of the result's columns."""
    keys = _keys(body)
    if isinstance(body, Attach):  # its fields reference source columns, some of which are keys
        keys = {expr.name: expr for expr in keys.values() if isinstance(expr, Column)}
        keys = (
            keys
            if isinstance(body.domain, CarriedWindow)
            else {n: e for n, e in keys.items() if n not in WINDOW_BOUNDS}
        )
    found = {field.name: keys.get(field.expr.name) for field in body.fields if isinstance(field.expr, Column)}
    return {name: expr for name, expr in found.items() if expr is not None}


def _split(predicate: Expr, keys: Definitions, schema: pa.Schema) -> tuple[Expr | None, Expr | None]:
    """Split a predicate into the part that can be evaluated per row, over row columns, and the rest."""
    may_move = _movable(keys, schema)
    parts = conjuncts(predicate)
    moved = [substitute(part, keys) for part in parts if may_move(part)]
    return conjunction(moved), conjunction(part for part in parts if not may_move(part))


def _movable(keys: Definitions, schema: pa.Schema) -> Callable[[Expr], bool]:
    floats = {
        name
        for name, expr in keys.items()
        if not isinstance(expr, Column) or kind_of(column_type(expr.name, schema)) == "float"
    }

    def may_move(part: Expr) -> bool:
        named = columns_of(part)
        known = bool(named) and named <= keys.keys() and not _reads_reduction(part)
        return known and _blind_to_zero(part, floats) and is_total(substitute(part, keys), schema)

    return may_move


def _reads_reduction(expr: Expr) -> bool:
    return any(isinstance(node, Reduced) for node in walk(expr))


def _blind_to_zero(expr: Expr, floats: set[str]) -> bool:
    """Return whether float keys are only compared: comparisons treat 0.0 and -0.0 as equal."""
    return fold(expr, lambda node, below: _is_blind(node, below, floats))


def _is_blind(expr: Expr, below: tuple[bool, ...], floats: set[str]) -> bool:
    match expr:
        case Column(name=name):
            return name not in floats
        case Call(function=function, args=args) if function in _BLIND:
            return all(isinstance(arg, Column) or blind for arg, blind in zip(args, below, strict=True))
        case IsIn(arg=Column()):
            return True
        case _:
            return all(below)
