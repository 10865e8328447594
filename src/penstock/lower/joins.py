"""Spell out joins: where the columns of a result come from, conditions over pairs, and rolling joins in three steps.

~j @ each ~a on k = { #0 = ⊕(sum, ~b[t - 10 : t].(p * q));  vwap: #0 / 2 }
→  rows     { ts; k; arg0: p * q }       of ~b: one pass of the row kernel
   frames   { …; reduced0 }              ~a beside what is reduced over frames of ~b's lanes
   results  { …; vwap: reduced0 / 2 }    one pass of the row kernel
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.ir import join_nodes as jn
from penstock.ir import nodes as ir
from penstock.ir.join_scope import pair_scope
from penstock.lower.lanes import LaneReduction, lane_rows
from penstock.lower.names import hidden_name
from penstock.lower.split import read_from_columns
from penstock.passes.predicates import conjuncts
from penstock.types.joins import JOIN_TIME, left_column, right_column

_ORIGINS = {ir.WINDOW_START: "start", ir.WINDOW_END: "end", JOIN_TIME: "time"}
_SIDES = (left_column(""), right_column(""))


@dataclass(frozen=True)
class ResultField:
    """A column of the result and its origin: start, end, time, left, right, or key (which has a partner)."""

    name: str
    origin: str
    source: str = ""
    partner: str = ""


def result_fields(body: jn.Join | jn.Asof) -> list[ResultField]:
    """Tell where each column of a join's result comes from."""
    return [_field(each, dict(body.on)) for each in body.fields]


def _field(field: ex.Field, keys: dict[str, str]) -> ResultField:
    assert isinstance(field.expr, ex.Column)
    name = field.expr.name
    if name in _ORIGINS:
        return ResultField(field.name, _ORIGINS[name])
    side, own = own_column(name)
    if side == 0 and own in keys:
        return ResultField(field.name, "key", own, keys[own])
    return ResultField(field.name, ("left", "right")[side], own)


def own_column(name: str) -> tuple[int, str]:
    """Tell which side a column of a pair belongs to, and its name there.

    >>> own_column("right.price")
    (1, 'price')
    """
    side = 0 if name.startswith(_SIDES[0]) else 1
    return side, name.removeprefix(_SIDES[side])


# --- conditions -------------------------------------------------------------------------------------


def condition_columns(where: ex.Expr) -> tuple[tuple[str, int, str], ...]:
    """List the columns of a pair that a condition reads: the pair's name, the side, the side's name."""
    return tuple((name, *own_column(name)) for name in sorted(ex.columns_of(where)))


def condition_object(
    this: ir.Object, where: ex.Expr, left: ir.Object, right: ir.Object
) -> tuple[ir.Object, ir.Samples, ir.Object, str]:
    """Write a condition as a filter over numbered pairs: their object, the filter, its result, the number's name."""
    scope = pair_scope(this, left, right)
    read = [scope.field(name) for name, _, _ in condition_columns(where)]
    number = hidden_name([each.name for each in read], "pair", 0)
    pairs = ir.Object(
        f"{this.name}.pairs", this.body, pa.schema([*read, pa.field(number, pa.int64())]), this.time
    )
    samples = ir.Samples(pairs.name, where, (ex.Field(number, ex.Column(number)),))
    kept = ir.Object(f"{this.name}.kept", samples, pa.schema([pa.field(number, pa.int64())]), this.time)
    return pairs, samples, kept, number


_LOWER, _UPPER = frozenset({"gt", "ge", "eq"}), frozenset({"lt", "le", "eq"})
_FLIPPED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge", "eq": "eq"}


@dataclass(frozen=True)
class Band:
    """What a condition asks of one right column: values from all of `lower` to all of `upper`, over left columns."""

    column: str
    lower: tuple[ex.Expr, ...]
    upper: tuple[ex.Expr, ...]


def band_of(where: ex.Expr, left: ir.Object, right: ir.Object) -> Band | None:
    """Find a right column that parts of a condition compare with values of the left row alone."""
    found: dict[str, tuple[list[ex.Expr], list[ex.Expr]]] = {}
    for part in conjuncts(where):
        match part:
            case ex.Call(function=function, args=(ex.Column(name=name), other)) if function in _FLIPPED:
                _add(found, function, name, other, (left, right))
        match part:
            case ex.Call(function=function, args=(other, ex.Column(name=name))) if function in _FLIPPED:
                _add(found, _FLIPPED[function], name, other, (left, right))
    best = max(found.items(), key=lambda item: bool(item[1][0]) + bool(item[1][1]), default=None)
    return None if best is None else Band(best[0], tuple(best[1][0]), tuple(best[1][1]))


def _add(
    found: dict[str, tuple[list[ex.Expr], list[ex.Expr]]],
    function: str,
    name: str,
    other: ex.Expr,
    sides: tuple[ir.Object, ir.Object],
) -> None:
    side, own = own_column(name)
    read = [own_column(each) for each in ex.columns_of(other)]
    if side != 1 or not read or any(where != 0 for where, _ in read):
        return
    over = ex.substitute(other, {left_column(each): ex.Column(each) for _, each in read})
    if not _alike(type_of(over, sides[0].schema), sides[1].schema.field(own).type):
        return
    bounds = found.setdefault(own, ([], []))
    for wanted, bound in zip((_LOWER, _UPPER), bounds, strict=True):
        bound += [over] if function in wanted else []


def _alike(first: pa.DataType, second: pa.DataType) -> bool:
    """Whether values are compared as the same kind of machine number."""
    if first == second and pa.types.is_timestamp(first):
        return True
    whole, broken = pa.types.is_signed_integer, pa.types.is_floating
    return any(kind(first) and kind(second) for kind in (whole, broken)) and pa.float16() not in (
        first,
        second,
    )


def bounds_samples(band: Band, left: ir.Object) -> tuple[ir.Samples, ir.Object]:
    """The ends of a band as columns of the left rows."""
    exprs = (*band.lower, *band.upper)
    fields = tuple(ex.Field(f"bound{place}", each) for place, each in enumerate(exprs))
    schema = pa.schema([pa.field(each.name, type_of(each.expr, left.schema)) for each in fields])
    samples = ir.Samples(left.name, None, fields)
    return samples, ir.Object(f"{left.name}.bounds", samples, schema, left.time)


# --- rolling joins ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SpelledRolling:
    """A rolling join in steps: `samples` make `ready` right rows, `plain` has left rows beside reductions."""

    samples: ir.Samples
    ready: ir.Object
    reductions: tuple[LaneReduction, ...]
    plain: ir.Object
    fields: ir.Samples


def spell_rolling(this: ir.Object, body: jn.RollingJoin, left: ir.Object, right: ir.Object) -> SpelledRolling:
    """Make columns of arguments and conditions on the right, and of reductions on the left."""
    kept = dict.fromkeys([right.time.column, *(name for _, name in body.on)])
    samples, ready, reductions = lane_rows(f"{this.name}.rows", right, list(kept), body.reductions)
    names = [hidden_name(left.schema.names, "reduced", place) for place in range(len(reductions))]
    reduced = [pa.field(name, each.type) for name, each in zip(names, reductions, strict=True)]
    plain = ir.Object(f"{this.name}.frames", body, pa.schema([*left.schema, *reduced]), this.time)
    fields = tuple(ex.Field(each.name, read_from_columns(each.expr, names)) for each in body.fields)
    return SpelledRolling(samples, ready, reductions, plain, ir.Samples(plain.name, None, fields))
