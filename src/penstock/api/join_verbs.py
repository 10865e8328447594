"""The verbs that join two streams."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.api.bind import bound, flat, own_name, refuse_twice, window_fields
from penstock.api.expr import Expr, node_of
from penstock.api.join import Options, common_keys, interval, joined, joined_asof, refuse_tables
from penstock.api.join_keys import on_one_clock
from penstock.api.windowed import Unfinished
from penstock.errors import ExpressionTypeError
from penstock.expr import nodes as ex
from penstock.expr.nodes import Column, Field, split_aggregates
from penstock.expr.typing import type_of
from penstock.plan.nodes import Plan, RollingJoin
from penstock.plan.schema import schema_of, time_of
from penstock.types.duration import Duration
from penstock.types.windows import Keys, Within

if TYPE_CHECKING:
    from penstock.api.stream import Stream


# --- `join_rolling`: aggregates over the rows of another stream around each row.


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


class JoinVerbs:
    """The join verbs of a stream."""

    __slots__ = ()

    @property
    @abstractmethod
    def raw_plan(self) -> Plan:
        """The plan under construction."""

    @abstractmethod
    def with_other(self, plan: Plan, other: Stream) -> Stream:
        """Return the stream of a plan over the data of two streams."""

    def join(
        self,
        other: Stream,
        on: object = None,
        *,
        left_on: object = None,
        right_on: object = None,
        window: object = None,
        how: str = "inner",
        where: object = None,
        within: object = None,
        algorithm: str = "auto",
        suffix: str = "_right",
        optimise: str | None = None,
    ) -> Stream:
        """Join rows with equal keys that share a window, lie `within=(lo, hi)` of each other, or match a table.

        `how` is inner, left, right, full, semi or anti; `where=` is a further condition on
        `pk.left("x")` and `pk.right("y")`. The result's time is `join_time`, the later of the two times.

        >>> import pyarrow as pa, penstock as pk
        >>> bids = pk.from_arrow(pa.table({"t": [1, 5, 12], "k": ["a", "b", "a"]}), time="t", name="bids")
        >>> asks = pk.from_arrow(pa.table({"t": [3, 14], "k": ["a", "a"]}), time="t", name="asks")
        >>> bids.join(asks, on="k", window=pk.tumbling(10)).collect().to_pylist()[0]
        {'window_start': 0, 'window_end': 10, 'k': 'a', 't': 1, 't_right': 3, 'join_time': 3}
        """
        options = Options(window, within, how, where, algorithm, suffix, optimise)
        second = _joinable(other, "join")
        return self.with_other(joined(self.raw_plan, second.raw_plan, on, left_on, right_on, options), second)

    def join_asof(
        self,
        other: Stream,
        by: object = None,
        tolerance: Duration | None = None,
        direction: str = "backward",
        allow_exact_matches: bool = True,
        suffix: str = "_right",
    ) -> Stream:
        """Join every row with the last row of the other stream up to its time, of the same key.

        `direction="forward"` takes the next row, `"nearest"` the nearer of the two; `tolerance=` limits the
        distance in time. Of several equally near rows, the last in order is taken.

        >>> import pyarrow as pa, penstock as pk
        >>> trades = pk.from_arrow(pa.table({"t": [3, 9]}), time="t", name="trades")
        >>> quotes = pk.from_arrow(pa.table({"t": [1, 2, 9], "p": [5, 6, 7]}), time="t", name="quotes")
        >>> trades.join_asof(quotes).collect().to_pydict()
        {'t': [3, 9], 't_right': [2, 9], 'p': [6, 7]}
        """
        second = _joinable(other, "join_asof")
        plan = joined_asof(
            self.raw_plan, second.raw_plan, by, tolerance, direction, allow_exact_matches, suffix
        )
        return self.with_other(plan, second)

    def join_rolling(self, other: Stream, by: object = None, *, within: object) -> RollingJoined:
        """Aggregate, for every row, the rows of the other stream from `lo` to `hi` around its time; `.agg(...)` follows."""
        second = _joinable(other, "join_rolling")
        return joined_rolling(
            self.raw_plan, second.raw_plan, by, within, lambda plan: self.with_other(plan, second)
        )


def _joinable(other: object, what: str) -> Stream:
    from penstock.api.stream import Stream  # noqa: PLC0415 - import cycle

    if not isinstance(other, Stream):
        raise ExpressionTypeError(
            f"{what} takes a stream, or a table made with pk.table(...), not a {type(other).__name__}"
        )
    return other
