"""Lower joins: the origin of result columns, conditions over pairs, and rolling joins in three steps.

~j @ each ~a on k = { #0 = ⊕(sum, ~b[t - 10 : t].(p * q));  vwap: #0 / 2 }
→  rows     { ts; k; arg0: p * q }       of ~b: one pass of the row kernel
   frames   { …; reduced0 }              ~a with the reductions over frames of ~b's sorted partitions
   results  { …; vwap: reduced0 / 2 }    one pass of the row kernel
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.algorithms.sorted_partitions.reducers import FrameReduction
from penstock.analysis.predicates import conjuncts
from penstock.expr import nodes as ex
from penstock.ir import nodes as ir
from penstock.ir import nodes as jn
from penstock.ir.scope import pair_scope
from penstock.physical.hidden_names import hidden_name
from penstock.physical.nodes import JoinColumn, Rows
from penstock.physical.split_results import read_from_columns
from penstock.physical.split_windows import partition_rows
from penstock.types.time import Time
from penstock.types.windows import JOIN_TIME, WINDOW_END, WINDOW_START, left_column, right_column

_ORIGINS = {WINDOW_START: "start", WINDOW_END: "end", JOIN_TIME: "time"}
_SIDES = (left_column(""), right_column(""))


def result_columns(body: jn.Join | jn.Asof) -> tuple[JoinColumn, ...]:
    """List the origin of each column of a join's result."""
    return tuple(_column(field, dict(body.on)) for field in body.fields)


def _column(field: ex.Field, keys: dict[str, str]) -> JoinColumn:
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
