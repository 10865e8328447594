"""`join_rolling`: aggregates over the rows of another stream around each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.api.bind import bound, flat, own_name, refuse_twice, window_fields
from penstock.api.coerce_time_units import on_one_clock
from penstock.api.expr import Expr, node_of
from penstock.api.join import common_keys, interval, refuse_tables
from penstock.api.pending import Unfinished
from penstock.errors import ExpressionTypeError
from penstock.expr import nodes as ex
from penstock.expr.nodes import Column, Field, split_aggregates
from penstock.expr.typing import type_of
from penstock.plan.nodes import Plan, RollingJoin
from penstock.plan.schema import schema_of, time_of
from penstock.types.windows import Keys, Within

if TYPE_CHECKING:
    from penstock.api.stream import Stream


class RollingJoined(Unfinished):
    """A rolling join without its aggregates; `agg` completes it.

    >>> import pyarrow as pa, penstock as pk
    >>> trades = pk.from_arrow(pa.table({"t": [10, 20], "k": ["a", "a"]}), time="t", name="trades")
    >>> quotes = pk.from_arrow(pa.table({"t": [4, 9, 11], "k": ["a"] * 3, "p": [1, 2, 6]}), time="t", name="quotes")
    >>> trades.join_rolling(quotes, by="k", within=(-5, 5)).agg(low=pk.min("p"), n=pk.count()).collect().to_pydict()
    {'t': [10, 20], 'k': ['a', 'a'], 'low': [2, None], 'n': [2, 0]}
    """

    __slots__ = ("_first", "_keys", "_make", "_second", "_within")
    what = "a join of rows around others"
    ways = ".agg(...)"

    def __init__(self, first: Plan, second: Plan, keys: Keys, within: Within, make: Any) -> None:
        """`make` builds a stream over the data of both sides from the plan."""
        self._first, self._second, self._keys = first, second, keys
        self._within, self._make = within, make

    def agg(self, /, *exprs: object, **named: object) -> Stream:
        """Keep every left row, and add these aggregates over the right rows in its interval.

        Inside an aggregate, names are columns of the right stream; outside, of the left.
        """
        first, second = self._first, self._second
        fields = self._fields(exprs, named)
        if not fields:
            raise ExpressionTypeError("agg needs at least one aggregate, such as n=pk.count()")
        refuse_twice([*schema_of(first).names, *(field.name for field in fields)], "agg after join_rolling")
        made: Stream = self._make(RollingJoin(first, second, self._keys, self._within, fields))
        return made

    def _fields(self, exprs: Sequence[object], named: dict[str, object]) -> tuple[Field, ...]:
        return rolling_fields(exprs, named, self._first, self._second)

    def __repr__(self) -> str:
        return f"<RollingJoined by {[name for name, _ in self._keys]}: call .agg(...)>"


def rolling_fields(
    exprs: Sequence[object], named: Mapping[str, object], first: Plan, second: Plan
) -> tuple[Field, ...]:
    """Resolve aggregates over the right stream, and the expressions around them over the left."""
    found: list[ex.Aggregate] = []
    given = [_outside(expr, found) for expr in flat(exprs)]
    given_by_name = {name: _outside(Expr(node_of(expr)), found) for name, expr in named.items()}
    over = schema_of(second)
    aggregates = [bound(aggregate, over, time_of(second)) for aggregate in found]
    hidden = [pa.field(_hidden(i), type_of(aggregate, over)) for i, aggregate in enumerate(aggregates)]
    scope = pa.schema([*schema_of(first), *hidden])
    fields = window_fields(given, given_by_name, scope, time_of(first), "agg after join_rolling")
    back = {_hidden(i): aggregate for i, aggregate in enumerate(aggregates)}
    return tuple(Field(column.name, ex.substitute(column.expr, back)) for column in fields)


def _hidden(index: int) -> str:
    return f"aggregate\0{index}"


def _outside(given: object, found: list[ex.Aggregate]) -> object:
    """Replace aggregates by columns, so that the remaining expression reads the left stream only."""
    if not isinstance(given, Expr):
        return given
    outer, _ = split_aggregates(given.node, found)

    def rule(node: ex.Expr) -> ex.Expr:
        return Column(_hidden(node.index)) if isinstance(node, ex.Reduced) else node

    return Expr(ex.rewrite(outer, rule), own_name(given))


def joined_rolling(first: Plan, second: Plan, by: object, within: object, make: Any) -> RollingJoined:
    """Check the arguments of `Stream.join_rolling`."""
    refuse_tables(first, second, "join_rolling")
    first, second, keys = common_keys(first, second, by, by)
    first, second = on_one_clock(first, second)
    return RollingJoined(first, second, keys, interval(within, first), make)
