"""Conditions that bound a right column by values of the left row: matching rows are found by sorting, not by a scan.

right.y - 5 <= left.x and left.x < right.y + 5   →   sorted by y:  y - 5 up to x,  y + 5 from x on

A column plus or minus a number is monotonic in the column, even with rounding: rows in order of the one are
in order of the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.analysis.predicates import conjuncts
from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.physical.nodes import Rows
from penstock.physical.split_joins import own_column
from penstock.types.windows import left_column, right_column

_LOWER, _UPPER = frozenset({"gt", "ge", "eq"}), frozenset({"lt", "le", "eq"})
_FLIPPED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge", "eq": "eq"}


@dataclass(frozen=True)
class BandBound:
    """`right`, monotonic in a right column, does not exceed `left`; each reads columns of one side."""

    right: ex.Expr
    left: ex.Expr


@dataclass(frozen=True)
class Band:
    """The bounds of one right column: it reaches all of `lower` and exceeds none of `upper`."""

    column: str
    lower: tuple[BandBound, ...] = ()
    upper: tuple[BandBound, ...] = ()

    @property
    def sides(self) -> int:
        """The number of bounded sides, 0 to 2."""
        return bool(self.lower) + bool(self.upper)


def band_of(where: ex.Expr, left: pa.Schema, right: pa.Schema) -> Band | None:
    """Find a right column that conjuncts of a condition compare with values of the left row alone."""
    found: dict[str, Band] = {}
    for function, one, other in _comparisons(where):
        column, bound = _growing(one), _bound(one, other, (left, right))
        if column is not None and bound is not None:
            known = found.get(column, Band(column))
            lower = (*known.lower, bound) if function in _LOWER else known.lower
            upper = (*known.upper, bound) if function in _UPPER else known.upper
            found[column] = Band(column, lower, upper)
    return max(found.values(), key=lambda band: band.sides, default=None)


def _comparisons(where: ex.Expr) -> Iterator[tuple[str, ex.Expr, ex.Expr]]:
    """The comparisons that must hold, each in both directions."""
    for part in conjuncts(where):
        match part:
            case ex.Call(function=function, args=(one, other)) if function in _FLIPPED:
                yield function, one, other
                yield _FLIPPED[function], other, one


def _growing(expr: ex.Expr) -> str | None:
    """The right column that an expression equals up to a constant offset."""
    match expr:
        case ex.Column(name=name):
            side, own = own_column(name)
            return own if side == 1 else None
        case ex.Call(function="add" | "sub", args=(one, ex.Literal(value=value))) if _is_finite(value):
            return _growing(one)
        case ex.Call(function="add", args=(ex.Literal(value=value), one)) if _is_finite(value):
            return _growing(one)
    return None


def _is_finite(value: object) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def _bound(one: ex.Expr, other: ex.Expr, sides: tuple[pa.Schema, pa.Schema]) -> BandBound | None:
    """A comparison of right columns with left ones, if their types are comparable."""
    right, left = _over(one, 1), _over(other, 0)
    if right is None or left is None:
        return None
    alike = _alike(type_of(left, sides[0]), type_of(right, sides[1]))
    return BandBound(right, left) if alike else None


def _over(expr: ex.Expr, side: int) -> ex.Expr | None:
    """Rewrite an expression of a pair over the columns of one side; None if it reads none of them or any other."""
    read = [own_column(column) for column in ex.columns_of(expr)]
    if not read or any(where != side for where, _ in read):
        return None
    of_pair = (left_column, right_column)[side]
    return ex.substitute(expr, {of_pair(column): ex.Column(column) for _, column in read})


def _alike(first: pa.DataType, second: pa.DataType) -> bool:
    """Whether values are compared as the same kind of machine number."""
    if first == second and pa.types.is_timestamp(first):
        return True
    whole, broken = pa.types.is_signed_integer, pa.types.is_floating
    return any(kind(first) and kind(second) for kind in (whole, broken)) and pa.float16() not in (
        first,
        second,
    )


def bounds_of(band: Band, side: int, rows: pa.Schema) -> tuple[Rows, pa.Schema]:
    """The bounds of one side as columns of its rows: the lower bounds, then the upper ones."""
    bounds = (*band.lower, *band.upper)
    exprs = [bound.right if side else bound.left for bound in bounds]
    fields = tuple(ex.Field(f"bound{place}", operand) for place, operand in enumerate(exprs))
    return Rows((), fields), pa.schema(
        [pa.field(column.name, type_of(column.expr, rows)) for column in fields]
    )
