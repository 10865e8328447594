"""Choose how a join finds its pairs: eager or lazy, by which algorithm, and whether conditions that bound a column are searched.

right.y - 5 <= left.x and left.x < right.y + 5   →   sorted by y:  y - 5 up to x,  y + 5 from x on

A column plus or minus a number is monotonic in the column, even with rounding: rows in order of the one are
in order of the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.algorithms.keyed_states.row_store import can_grow
from penstock.analysis.panes import reductions_obstacle
from penstock.analysis.predicates import conjuncts
from penstock.expr import nodes as ex
from penstock.expr.nodes import Expr
from penstock.expr.typing import type_of
from penstock.ir import nodes as ir
from penstock.ir import nodes as jn
from penstock.physical.nodes import Assumption, Choice, Mode, Rejected, Rows
from penstock.physical.split_windows import own_column
from penstock.types.windows import (
    LEFT_ROW_KINDS,
    CarriedWindow,
    InWindow,
    Lookup,
    Session,
    TimeWindow,
    Within,
    left_column,
    right_column,
    windows_overlap,
)

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


LAZY_ALGORITHMS = ("npj", "prj", "mway", "mpass")
LISTS, RUNS, SORTED = "lists per key", "sorted runs", "sorted partitions"
REASON_AT_REST = "data at rest comes in one push"
EAGER_ALGORITHMS = ("shj_jm", "shj_jb", "pmj_jm", "pmj_jb")

ALIKE = Assumption(
    "neither side has 16 times the rows of the other",
    "rows of the larger side whose key the smaller lacks are left out first",
)


def is_eager(body: ir.Body) -> bool:
    """Whether a join over unbounded input gives pairs as rows arrive: an eager algorithm, or a target it is best for."""
    match body:
        case jn.Join(pairing=InWindow(left=TimeWindow() as left, right=right)) if body.on and left == right:
            wanted = body.algorithm in EAGER_ALGORITHMS or (
                body.algorithm == "auto" and body.optimise != "throughput"
            )
            return wanted and left.size <= left.every
        case _:
            return False


def join_choices(body: jn.Join, left: ir.Object, right: ir.Object, mode: Mode) -> tuple[Choice, ...]:
    """List the choices of a join: when pairs leave, how they are found, and by which algorithm."""
    match body.pairing:
        case Lookup():
            return (Choice("matching", "lookup", "one side is a table: each row meets it as it arrives"),)
        case Within():
            reason = "right rows within the interval are a range of the key's rows"
            matching = Choice("matching", "interval ranges", reason)
            return matching, held_rows(left.schema, right.schema, body.where, mode)
        case InWindow() as pairing:
            eager = is_eager(body) and mode == "unbounded"
            # Sessions of different keys interleave; the rows of other windows are contiguous in time.
            return (
                *((_held_in_windows(body, pairing, left, right, mode),) if not eager else ()),
                _emission(body, mode),
                *(() if eager else (_matching(body, pairing, left, right),)),
                _algorithm(body),
            )


def _held_in_windows(
    body: jn.Join, pairing: InWindow, left: ir.Object, right: ir.Object, mode: Mode
) -> Choice:
    """Choose how the rows of open windows are held: of overlapping windows, pairs are held with them."""
    if isinstance(pairing.left, Session):  # sessions of different keys interleave
        return held_rows(left.schema, right.schema, None, mode)
    if windows_overlap(pairing) and _overlap_obstacle(body, pairing) is None and mode == "unbounded":
        held = held_rows(left.schema, right.schema, body.where, mode)
        if held.taken == LISTS:
            return replace(held, reason="each pair is found once, and held until its last window is complete")
    obstacle = _no_runs(mode)
    if obstacle is not None:
        return Choice("held", SORTED, "rows are partitioned by key and sorted", (Rejected(RUNS, obstacle),))
    rejected = Rejected(SORTED, "each window that ends would read the rows ahead of the watermark, too")
    return Choice("held", RUNS, "a window's rows leave sorted runs when it is complete", (rejected,))


def _no_runs(mode: Mode) -> str | None:
    """Why rows are sorted when windows are complete; None if they are held in sorted runs."""
    return REASON_AT_REST if mode == "bounded" else None


def _overlap_obstacle(body: jn.Join, pairing: InWindow) -> str | None:
    """Why pairs are found anew in each of several windows; None if they are held."""
    if not isinstance(pairing.left, TimeWindow):
        return "windows on a calendar have no common reach"
    if body.algorithm != "auto":
        return f"{body.algorithm} was requested, which joins one window at a time"
    return None if body.on else "without keys, all rows of a window may be pairs"


def held_rows(left: pa.Schema, right: pa.Schema, where: Expr | None, mode: Mode) -> Choice:
    """Choose how rows are held: in lists per key between pushes, or sorted when results are due."""
    obstacle = _no_lists(left, right, where) if mode == "unbounded" else REASON_AT_REST
    if obstacle is not None:
        return Choice("held", SORTED, "rows are partitioned by key and sorted", (Rejected(LISTS, obstacle),))
    rejected = Rejected(SORTED, "each push would read every row held")
    return Choice("held", LISTS, "a push costs its rows and the results they complete", (rejected,))


def held_states(
    body: jn.RollingJoin, left: ir.Object, ready: ir.Object, right: ir.Object, mode: Mode
) -> Choice:
    """Choose how a rolling join holds right rows: in lists per key with one aggregate each, or sorted."""
    obstacle = _no_lists(left.schema, ready.schema, None) or reductions_obstacle(
        body.reductions, right.schema
    )
    if mode == "bounded":
        obstacle = REASON_AT_REST
    if obstacle is not None:
        return Choice("held", SORTED, "rows are partitioned by key and sorted", (Rejected(LISTS, obstacle),))
    reason = "right rows enter and leave the aggregate of their key in order of time"
    return Choice("held", LISTS, reason, (Rejected(SORTED, "each push would read every row held"),))


def _no_lists(left: pa.Schema, right: pa.Schema, where: Expr | None) -> str | None:
    """Why rows cannot be held in growing columns; None if they can."""
    for schema in (left, right):
        other = next((field.name for field in schema if not can_grow(field.type)), None)
        if other is not None:
            return f"column {other!r} is of type {schema.field(other).type}, which cannot grow in place"
        if where is not None and any(pa.types.is_dictionary(field.type) for field in schema):
            return "the condition may read a dictionary, and rows in lists are decoded"
    return None


def _emission(body: jn.Join, mode: Mode) -> Choice:
    if not is_eager(body):
        return Choice("emission", "lazy", "pairs of a window are found when it is complete")
    if mode == "bounded":
        reason = "bounded input is complete: no pair leaves earlier than its window"
        return Choice("emission", "lazy", reason, (Rejected("eager", reason),))
    return Choice("emission", "eager", "pairs leave as rows arrive, by the requested algorithm or target")


def _matching(body: jn.Join, pairing: InWindow, left: ir.Object, right: ir.Object) -> Choice:
    """How the pairs of small windows are found; large ones are handed to the algorithm."""
    band = None if body.where is None else band_of(body.where, left.schema, right.schema)
    if windows_overlap(pairing):
        reason = "windows overlap: each pair is found once and given for every window that holds both rows"
        return Choice("matching", "sliding ranges", reason)
    if band is not None and not body.on and not isinstance(pairing.left, CarriedWindow):
        return Choice(
            "matching", "band search", "the condition bounds a right column, which is sorted and searched"
        )
    if body.on:
        reason = "pairs of a key are ranges of its sorted rows"
        return Choice("matching", "sorted partitions", reason, (), () if body.how == "full" else (ALIKE,))
    return Choice("matching", "nested loops", "nothing but the window restricts the pairs")


def _algorithm(body: jn.Join) -> Choice:
    if body.how in LEFT_ROW_KINDS and body.algorithm == "auto":
        return Choice("algorithm", "existence", f"a {body.how} join gives left rows: one partner decides")
    if body.algorithm != "auto":
        return Choice("algorithm", body.algorithm, "requested")
    tree = Assumption(
        "the decision tree was trained on windows of this kind", "the tree decides for each window anew"
    )
    return Choice("algorithm", "auto", "chosen for each large window by a decision tree", (), (tree,))
