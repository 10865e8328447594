"""The part of the IR's grammar that joins two objects; `nodes.py` has the rest.

    body    ::= Table(name)                               samples without time, all there from the beginning
              | Join(left, right, on, pairing, how, where, fields)
                                                          pairs of samples that meet, and those without a partner
              | Asof(left, right, on, direction, tolerance, exact, fields)
                                                          each left sample with the nearest right one
              | RollingJoin(left, right, on, within, reductions, fields)
                                                          at every left sample: each reduction over the right
                                                          samples of its key in [t + lo, t + hi]
    pairing ::= InWindow(left, right) | Within(lo, hi) | Lookup(table)   as in `types/pairing.py`

The fields of Join and Asof are columns of a pair: left.x, right.y, join_time and the window's bounds. Keys of
`on` are those of the sample that is there: in left.k, where the left one is missing, stands the right one's.
`where` is over left.x and right.y of two samples. In a RollingJoin, reductions are over columns of the right,
fields over columns of the left. Null keys never meet.

Order: results of windows come by the window's end and start, then in the order of the left samples, then of the
right ones; right samples without a partner follow. Of Within, in the order of the later sample, the left one
being earlier where times are equal, then of the other; samples without a partner stand where it is known that
none will come. Asof and RollingJoin keep the order of the left samples, and Lookup that of the stream's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.expr.nodes import Expr, Field
from penstock.types.pairing import Keys, Pairing, Within

if TYPE_CHECKING:
    from penstock.ir.nodes import Reduction


@dataclass(frozen=True, slots=True)
class Table:
    name: str


@dataclass(frozen=True, slots=True)
class Join:
    left: str
    right: str
    on: Keys
    pairing: Pairing
    how: str
    where: Expr | None
    fields: tuple[Field, ...]
    algorithm: str = "auto"
    optimise: str = "throughput"


@dataclass(frozen=True, slots=True)
class Asof:
    left: str
    right: str
    on: Keys
    direction: str
    tolerance: int | None
    exact: bool
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class RollingJoin:
    left: str
    right: str
    on: Keys
    within: Within
    reductions: tuple[Reduction, ...]
    fields: tuple[Field, ...]


Joined = Join | Asof | RollingJoin
