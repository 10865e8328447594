"""The joins of the IR's grammar; `nodes.py` has the rest.

    body    ::= Table(name)                               rows without time, complete before the stream begins
              | Join(left, right, on, pairing, how, where, fields)
                                                          matching pairs of samples, and unmatched samples
              | Asof(left, right, on, direction, tolerance, exact, fields)
                                                          each left sample with the nearest right one
              | RollingJoin(left, right, on, within, reductions, fields)
                                                          at every left sample: each reduction over the right
                                                          samples of its key in [t + lo, t + hi]
    pairing ::= InWindow(left, right) | Within(lo, hi) | Lookup(table)   as in `types/windows.py`

The fields of Join and Asof are columns of a pair: left.x, right.y, join_time and the window's bounds. Where the
left sample is missing, the key column left.k holds the right sample's key. `where` is a predicate over left.x and
right.y. In a RollingJoin, reductions read columns of the right side and fields read columns of the left side.
Null keys never match.

Order: InWindow orders results by window end and start, then by left sample, then by right sample; unmatched right
samples follow. Within orders pairs by the later sample (at equal times the left one counts as earlier), then by the
other; an unmatched sample is placed at the time when no match can arrive any more. Asof and RollingJoin keep the
order of the left samples, Lookup that of the stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.expr.nodes import Expr, Field
from penstock.types.windows import Keys, Pairing, Within

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
