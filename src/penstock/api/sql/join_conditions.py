"""Split the conditions of ON and WHERE into join keys, time bounds and other predicates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from penstock.api.expr import Expr
from penstock.api.functions import col
from penstock.api.sql.expressions import Translator
from penstock.api.sql.scope import ColumnResolver, Relation
from penstock.api.sql.source_span import Text
from penstock.api.sql.window_clauses import interval
from penstock.errors import ExpressionTypeError, PenstockError, SchemaMismatchError
from penstock.expr import nodes as ex
from penstock.expr.nodes import Column, columns_of
from penstock.expr.rules import type_of_both
from penstock.expr.show import show
from penstock.types.arrow import kind_of
from penstock.types.duration import Duration, nanoseconds
from penstock.types.time import Time
from penstock.types.windows import WINDOW_BOUNDS, left_column, right_column

# --- Joins on time: rows within an interval (as in Flink), and the nearest row (ASOF JOIN).

# Whether `first sign second` bounds first - second from below (True) or above, and whether equality is included.
_SIGNS: dict[type[exp.Expression], tuple[bool, bool]] = {
    exp.GTE: (True, True),
    exp.GT: (True, False),
    exp.LTE: (False, True),
    exp.LT: (False, False),
}


@dataclass(frozen=True, slots=True)
class TimeBound:
    """A bound on the right row's time minus the left row's: nanoseconds, or ticks if time has no unit."""

    below: bool
    limit: int
    exact: bool
    node: exp.Expression


@dataclass(frozen=True, slots=True)
class _Moment:
    """The time of a side plus an offset."""

    side: int
    moved: int


@dataclass(frozen=True, slots=True)
class Clocks:
    """Reads conditions that compare the times of both sides."""

    names: ColumnResolver
    left: Relation
    right: Relation
    text: Text

    def bounds(self, condition: exp.Expression) -> list[TimeBound]:
        """Read a comparison of times, or BETWEEN; empty for other conditions."""
        if isinstance(condition, exp.Between):
            low, high = condition.args["low"], condition.args["high"]
            found = [self._bound(condition.this, low, exp.GTE), self._bound(condition.this, high, exp.LTE)]
        else:
            sign = type(condition)
            found = [self._bound(condition.this, condition.expression, sign)] if sign in _SIGNS else []
        return [] if None in found else [bound for bound in found if bound is not None]

    def _bound(
        self, first: exp.Expression, second: exp.Expression, sign: type[exp.Expression]
    ) -> TimeBound | None:
        one, other = self._moment(first), self._moment(second)
        if one is None or other is None or one.side == other.side:
            return None
        below, exact = _SIGNS[sign]
        if one.side == 1:  # right + a >= left + b
            return TimeBound(below, other.moved - one.moved, exact, first)
        return TimeBound(not below, one.moved - other.moved, exact, first)

    def _moment(self, node: exp.Expression) -> _Moment | None:
        """Read `time`, `time + interval` and `time - interval`."""
        match node:
            case exp.Paren():
                return self._moment(node.this)
            case exp.Column():
                return self._time(node)
            case exp.Add() | exp.Sub():
                before, length = self._moment(node.this), self._length(node.expression)
                if before is None or length is None:
                    return None
                return _Moment(before.side, before.moved + (length if isinstance(node, exp.Add) else -length))
            case _:
                return None

    def _time(self, node: exp.Column) -> _Moment | None:
        try:
            column = self.names.column(node)
        except PenstockError:  # the translation of the condition will report it
            return None
        clocks = [self.left.time.column, self.right.time.column]
        return _Moment(clocks.index(column), 0) if column in clocks else None

    def _length(self, node: exp.Expression) -> int | None:
        if isinstance(node, exp.Interval) and self.left.time.unit is not None:
            length = nanoseconds(interval(node, self.text), "the interval")
            return int(length) if length.denominator == 1 else None
        if isinstance(node, exp.Literal) and self.left.time.unit is None and str(node.this).isdigit():
            return int(node.this)
        return None


def within(bounds: Sequence[TimeBound], time: Time) -> tuple[Duration, Duration] | None:
    """Return the interval of the bounds; None unless there is one on each side."""
    lower = [bound.limit for bound in bounds if bound.below]
    upper = [bound.limit for bound in bounds if not bound.below]
    if not lower or not upper:
        return None
    return _duration(max(lower), time), _duration(min(upper), time)


def _duration(limit: int, time: Time) -> Duration:
    return limit if time.unit is None else f"{limit}ns"


@dataclass(frozen=True)
class Joining:
    """A join as written."""

    how: str
    on: list[exp.Expression]
    using: list[exp.Identifier]
    node: exp.Expression
    nearest: bool = False


@dataclass
class Equality:
    """The conditions for two rows to match: equal pairs of values, bounds on times, and further predicates."""

    pairs: list[tuple[Expr, Expr]] = field(default_factory=list)
    rest: list[Expr] = field(default_factory=list)
    bounds: list[TimeBound] = field(default_factory=list)
    strict: list[Expr] = field(default_factory=list)  # bounds that exclude equality

    @property
    def where(self) -> Expr | None:
        whole: Expr | None = None
        for condition in (*self.rest, *self.strict):
            whole = condition if whole is None else whole & condition
        return whole


def split(
    conditions: Sequence[exp.Expression], both: ColumnResolver, left: Relation, right: Relation
) -> tuple[list[exp.Expression], list[exp.Expression]]:
    """Separate the conditions that reference both sides, and nothing else, from the others."""
    sides = {*left.schema.names}, {*right.schema.names}
    taken: list[exp.Expression] = []
    kept: list[exp.Expression] = []
    for condition in conditions:
        names = {_known(column, both) for column in condition.find_all(exp.Column)}
        speaks = all(names & side for side in sides) and names <= sides[0] | sides[1]
        (taken if speaks else kept).append(condition)
    return taken, kept


def _known(column: exp.Column, names: ColumnResolver) -> str:
    try:
        return names.column(column)
    except PenstockError:  # a column of a source that is joined later, or an unknown one
        return ""


def equality_of(
    conditions: Sequence[exp.Expression], both: ColumnResolver, left: Relation, right: Relation, nearest: bool
) -> Equality:
    """Read conditions. Time comparisons become bounds if neither side has a window or is a table, or for ASOF joins."""
    text = both.text
    equality = Equality()
    schema_names = set(left.schema.names), set(right.schema.names)
    translate = Translator(_OverBoth(both.relation, text, right=right.schema))
    clocks = Clocks(both, left, right, text)
    timed = nearest or not (left.in_windows or right.in_windows or left.is_table or right.is_table)
    for condition in conditions:
        bounds = clocks.bounds(condition) if timed else []
        equality.bounds += bounds
        if bounds and all(bound.exact for bound in bounds):
            continue
        sides = (
            [translate(side) for side in (condition.this, condition.expression)]
            if isinstance(condition, exp.EQ)
            else []
        )
        pair = _pair(sides, *schema_names)
        if pair is not None and _is_window(pair, left, right):
            continue
        if pair is not None:
            equality.pairs.append(pair)
        else:
            with text.at(condition):
                (equality.strict if bounds else equality.rest).append(
                    _sided(translate(condition), schema_names[0])
                )
    return equality


@dataclass(frozen=True, slots=True)
class _OverBoth(ColumnResolver):
    """Resolves the columns of both sides."""

    right: pa.Schema = pa.schema([])  # noqa: RUF009 - schemas are immutable

    @property
    def schema(self) -> pa.Schema:
        own = self.relation.schema
        return pa.schema([*own, *(column for column in self.right if column.name not in own.names)])


def _is_window(pair: tuple[Expr, Expr], left: Relation, right: Relation) -> bool:
    """Return whether a pair compares the bounds of the windows in which rows meet anyway."""
    bounds = [Column(name) for name in WINDOW_BOUNDS]
    return left.carries and right.carries and pair[0].node in bounds and pair[0].node == pair[1].node


def _pair(sides: Sequence[Expr], left: set[str], right: set[str]) -> tuple[Expr, Expr] | None:
    if len(sides) != 2:
        return None
    first, second = (columns_of(side.node) for side in sides)
    if first and second and first <= left and second <= right:
        return sides[0], sides[1]
    if first and second and first <= right and second <= left:
        return sides[1], sides[0]
    return None


def _sided(condition: Expr, left: set[str]) -> Expr:
    """Mark each column of a condition as left or right."""

    def rule(node: ex.Expr) -> ex.Expr:
        if not isinstance(node, Column):
            return node
        return Column(left_column(node.name) if node.name in left else right_column(node.name))

    return Expr(ex.rewrite(condition.node, rule))


def check_keys(pairs: Sequence[tuple[Expr, Expr]], left: Relation, right: Relation, text: Text) -> None:
    """Reject keys of incomparable types; errors use the names of the query text."""
    for pair in pairs:
        types = [
            ColumnResolver(side, text).type_of(node) for node, side in zip(pair, (left, right), strict=True)
        ]
        names = [_written(node, side) for node, side in zip(pair, (left, right), strict=True)]
        for name, dtype in zip(names, types, strict=True):
            if dtype is not None and kind_of(dtype) in ("other", "null"):
                raise ExpressionTypeError(
                    f"the key {name} of type {dtype} cannot be compared; derive a key from it"
                )
        if types[0] is not None and types[1] is not None and type_of_both(types[0], types[1]) is None:
            raise SchemaMismatchError(
                f"the keys {names[0]} of type {types[0]} and {names[1]} of type {types[1]} cannot be compared; cast one"
            )


def _written(expr: Expr, relation: Relation) -> str:
    """Print a key with the column names of the query text."""
    names = {column.column: f"{column.source}.{column.name}" for column in relation.columns}
    if isinstance(expr.node, Column):
        return names.get(expr.node.name, expr.node.name)
    shown = show(ex.substitute(expr.node, {old: Column(new) for old, new in names.items()}))
    return shown.replace("`", "")


def named_alike(name: exp.Identifier, left: Relation, right: Relation, text: Text) -> tuple[Expr, Expr]:
    """Return the columns that USING names."""
    column = exp.Column(this=name.copy())
    column.this.meta.update(name.meta)
    return col(ColumnResolver(left, text).column(column)), col(ColumnResolver(right, text).column(column))
