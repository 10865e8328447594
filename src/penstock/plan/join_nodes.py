"""The part of the plan's grammar that joins two inputs; `nodes.py` has the rest.

    join    ::= Join(left, right, on, pairing, how, where)    pairs of rows that meet
              | AsofJoin(left, right, on, direction, …)       every left row, with the nearest right one
              | RollingJoin(left, right, on, within, fields)  every left row, with aggregates over right ones
    pairing ::= InWindow(left, right)      both lie in windows that end together
              | Within(lo, hi)             as `types/joins.py` says
              | Lookup(table)

In `where`, the columns of a pair are called left.x and right.y.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.expr.nodes import Expr, Field
from penstock.types.joins import Keys, Lookup, Within

if TYPE_CHECKING:
    from penstock.plan.nodes import Plan, Window


@dataclass(frozen=True, slots=True)
class InWindow:
    """The windows of each side; rows meet in windows with the same end."""

    left: Window
    right: Window


Pairing = InWindow | Within | Lookup


@dataclass(frozen=True, slots=True)
class Table:
    """Rows without time, all there before the first event."""

    name: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Join:
    left: Plan
    right: Plan
    on: Keys
    pairing: Pairing
    how: str
    where: Expr | None
    suffix: str
    algorithm: str = "auto"
    optimise: str = "throughput"


@dataclass(frozen=True, slots=True)
class AsofJoin:
    """`tolerance` is the largest distance in ticks; `exact` lets rows of the same time match."""

    left: Plan
    right: Plan
    on: Keys
    direction: str
    tolerance: int | None
    exact: bool
    suffix: str


@dataclass(frozen=True, slots=True)
class RollingJoin:
    """In `fields`, aggregates are over columns of the right input, all else is of the left."""

    left: Plan
    right: Plan
    on: Keys
    within: Within
    fields: tuple[Field, ...]


Joined = Join | AsofJoin | RollingJoin
