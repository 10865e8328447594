"""Check joins of the IR."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.expr.nodes import Aggregate, Column, Reduced, columns_of, walk
from penstock.expr.typing import column_type, type_of
from penstock.ir.join_scope import pair_scope, rolling_types
from penstock.ir.joins import Asof, Join, Joined, RollingJoin
from penstock.ir.nodes import Object
from penstock.types.arrow import kind_of
from penstock.types.windows import (
    DIRECTIONS,
    JOIN_ALGORITHMS,
    JOIN_KINDS,
    CarriedWindow,
    Count,
    InWindow,
    Lookup,
    TimeWindow,
)


def complaints(this: Object, body: Joined, sources: Sequence[Object]) -> Iterator[str]:
    """Yield every violation found in a join."""
    left, right = sources
    yield from _keys(body, left.schema, right.schema)
    match body:
        case Join():
            yield from _join(this, body, left, right)
        case Asof():
            yield from _fields(this, body, pair_scope(this.time, left.schema, right.schema))
            yield from _times(left, right)
            if body.direction not in DIRECTIONS:
                yield f"looks {body.direction}"
            if body.tolerance is not None and body.tolerance < 0:
                yield "has a tolerance below zero"
        case RollingJoin():
            yield from _times(left, right)
            yield from _rolling(this, body, left, right)


def _keys(body: Joined, left: pa.Schema, right: pa.Schema) -> Iterator[str]:
    for one, other in body.on:
        if column_type(one, left) != column_type(other, right):
            yield f"has keys of different types, {one!r} and {other!r}"


def _times(left: Object, right: Object) -> Iterator[str]:
    for side in (left, right):
        if side.time.column not in side.schema.names:
            yield f"needs the time of ~{side.name}, which is not there"
    if left.time.type != right.time.type:
        yield "joins objects with different times"


def _join(this: Object, body: Join, left: Object, right: Object) -> Iterator[str]:
    if body.how not in JOIN_KINDS:
        yield f"is a join of kind {body.how!r}"
    if body.algorithm not in JOIN_ALGORITHMS:
        yield f"joins by {body.algorithm!r}"
    if not isinstance(body.pairing, Lookup):
        yield from _times(left, right)
    if isinstance(body.pairing, InWindow):
        yield from _windows(body.pairing)
    if body.where is not None:
        yield from _scalar(columns_of(body.where), body)
        if kind_of(type_of(body.where, pair_scope(this.time, left.schema, right.schema))) not in {
            "bool",
            "null",
        }:
            yield "has a condition that is not boolean"
    yield from _fields(this, body, pair_scope(this.time, left.schema, right.schema))


def _windows(pairing: InWindow) -> Iterator[str]:
    same = pairing.left == pairing.right
    if isinstance(pairing.left, Count) or isinstance(pairing.right, Count):
        yield "counts the rows of two objects together"
    if not same and not (isinstance(pairing.left, TimeWindow) and isinstance(pairing.right, TimeWindow)):
        yield "has different windows that do not lie on grids"
    if isinstance(pairing.left, CarriedWindow) != isinstance(pairing.right, CarriedWindow):
        yield "has a window on one side only"


def _scalar(names: frozenset[str], body: Join) -> Iterator[str]:
    if any(not name.startswith(("left.", "right.")) for name in names):
        yield "has a condition on something else than its samples"
    if body.where is not None and any(isinstance(node, Aggregate | Reduced) for node in walk(body.where)):
        yield "has an aggregate in its condition"


def _fields(this: Object, body: Join | Asof, scope: pa.Schema) -> Iterator[str]:
    if [column.name for column in body.fields] != this.schema.names:
        yield "has other fields than columns"
        return
    for column in body.fields:
        if not isinstance(column.expr, Column):
            yield f"computes {column.name!r}, where only columns of a pair may stand"
        elif type_of(column.expr, scope) != this.schema.field(column.name).type:
            yield f"declares another type for {column.name!r}"


def _rolling(this: Object, body: RollingJoin, left: Object, right: Object) -> Iterator[str]:
    if body.within.lo > body.within.hi:
        yield "covers no time"
    types = rolling_types(body, right)
    if [column.name for column in body.fields] != this.schema.names:
        yield "has other fields than columns"
        return
    for column in body.fields:
        if type_of(column.expr, left.schema, types) != this.schema.field(column.name).type:
            yield f"declares another type for {column.name!r}"
