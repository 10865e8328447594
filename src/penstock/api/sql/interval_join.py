"""Joins on time: rows within an interval (as in Flink), and the nearest row (ASOF JOIN)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.api.sql.durations import interval
from penstock.api.sql.scope import ColumnResolver
from penstock.api.sql.source_span import Text
from penstock.errors import PenstockError
from penstock.types.duration import Duration, nanoseconds
from penstock.types.time import Time

if TYPE_CHECKING:
    from penstock.api.sql.scope import Relation

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
