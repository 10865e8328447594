"""A stream divided into windows, and the verbs that compute over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.api.arguments import shown
from penstock.api.bind import flat, refuse_twice, window_fields
from penstock.api.expr import Expr
from penstock.api.pending import Unfinished
from penstock.api.row_verbs import extended
from penstock.api.window_bound_keys import other_keys
from penstock.api.windows import AnyWindow, sliding, tumbling
from penstock.errors import ExpressionTypeError, SchemaMismatchError, UnsupportedError, WindowError
from penstock.expr.nodes import Column, Field
from penstock.expr.typing import column_type
from penstock.plan.nodes import Aggregate, Apply, Attach, Plan
from penstock.plan.schema import carries_window, schema_of, scope_of, time_of
from penstock.plan.verify import outer_columns
from penstock.types.arrow import as_schema, kind_of, without_unions
from penstock.types.duration import Duration
from penstock.types.windows import WINDOW_BOUNDS, CarriedWindow, Window

if TYPE_CHECKING:
    from penstock.api.stream import Stream


MOST_KEYS = 60  # key nulls are bits of one word, and a carried window takes two more


class Windowed(Unfinished):
    """A stream divided into windows and groups: `agg` reduces them, `with_columns` keeps every row.

    >>> import penstock as pk
    >>> events = pk.stream("events", {"t": "int64", "k": "string", "v": "int64"}, time="t")
    >>> events.window(10, by="k").agg(total=pk.sum("v")).schema
    window_start: int64
    window_end: int64
    k: string
    total: int64
    """

    __slots__ = ("_by", "_stream", "_window")
    what = "a window"
    ways = ".agg(...), .with_columns(...), .top_k(...) or .apply(...)"

    def __init__(self, stream: Stream, window: Window, by: tuple[str, ...]) -> None:
        self._stream = stream
        self._window = window
        self._by = by

    def agg(self, /, *exprs: object, **named: object) -> Stream:
        """Reduce each window and key to one row: the window bounds, the keys, and these aggregates."""
        plan = self._stream.raw_plan
        made = Aggregate(plan, self._window, self._by, ())
        fields = window_fields(exprs, named, scope_of(made), time_of(plan), "agg")
        if not fields:
            raise ExpressionTypeError("agg needs at least one aggregate, such as n=pk.count()")
        _require_constant(fields, (*self._by, *WINDOW_BOUNDS))
        refuse_twice([*WINDOW_BOUNDS, *self._by, *(field.name for field in fields)], "agg")
        return self._stream.derived(Aggregate(plan, self._window, self._by, fields))

    def with_columns(self, /, *exprs: object, **named: object) -> Stream:
        """Keep every row, once for each window it is in, and add the window bounds and aggregates."""
        plan = self._stream.raw_plan
        schema = schema_of(plan)
        if not isinstance(self._window, CarriedWindow) and set(WINDOW_BOUNDS) & set(schema.names):
            raise SchemaMismatchError(
                "with_columns adds window_start and window_end, which these rows already have; rename or drop them"
            )
        made = Attach(plan, self._window, self._by, ())
        fields = window_fields(exprs, named, scope_of(made), time_of(plan), "with_columns")
        refuse_twice([*schema_of(made).names, *(field.name for field in fields)], "with_columns after window")
        return self._stream.derived(Attach(plan, self._window, self._by, fields))

    def top_k(self, k: int, by: object, ties: str = "first") -> Stream:
        """Keep the `k` largest rows of each window by a column, with the window bounds.

        >>> import pyarrow as pa, penstock as pk
        >>> events = pk.from_arrow(pa.table({"t": [1, 2, 12], "v": [3, 5, 4]}), time="t")
        >>> events.window(10).top_k(1, by="v").collect().to_pydict()
        {'t': [2, 12], 'v': [5, 4], 'window_start': [0, 10], 'window_end': [10, 20]}
        """
        if self._by:
            raise UnsupportedError(
                "top_k ranks the rows of a window, not those of each key: leave out by=, or rank what .agg(...) gives"
            )
        return self.with_columns().top_k(k, by, ties)

    def apply(self, function: Callable[[pa.Table], Any], schema: object) -> Stream:
        """Call a Python function with each window's rows as a table, and return the rows of its result.

        The result has the window bounds, the keys, and the columns of `schema`, which the function's table
        must have. The function is called once per window and key, in Python: slow compared with compiled aggregates.

        >>> import pyarrow as pa, penstock as pk
        >>> events = pk.from_arrow(pa.table({"t": [1, 2, 12], "v": [3, 5, 4]}), time="t")
        >>> spread = events.window(10).apply(
        ...     lambda rows: {"spread": [max(rows["v"].to_pylist()) - min(rows["v"].to_pylist())]}, {"spread": "int64"}
        ... )
        >>> spread.collect().to_pydict()
        {'window_start': [0, 10], 'window_end': [10, 20], 'spread': [2, 0]}
        """
        if not callable(function):
            raise ExpressionTypeError(f"apply takes a function of a table, not a {type(function).__name__}")
        declared = without_unions(as_schema(schema))
        refuse_twice([*WINDOW_BOUNDS, *self._by, *declared.names], "apply")
        return self._stream.derived(Apply(self._stream.raw_plan, self._window, self._by, function, declared))

    def __repr__(self) -> str:
        return (
            f"<Windowed by {list(self._by)}: call .agg(...), .with_columns(...), .top_k(...) or .apply(...)>"
        )


def _require_constant(fields: Sequence[Field], groups: Sequence[str]) -> None:
    for field in fields:
        loose = sorted(outer_columns(field.expr) - set(groups))
        if loose:
            raise ExpressionTypeError(
                f"the column {loose[0]!r} in {field.name!r} has many values in a window; "
                "aggregate it (pk.sum, pk.max, …) or add it to by="
            )


def windowed(
    stream: Stream,
    window: object,
    every: Duration | None,
    offset: Duration | None,
    tz: str | None,
    by: object,
) -> Windowed:
    """Divide a stream into windows, checking them against its time."""
    plan, keys = keyed(stream.raw_plan, other_keys(by) if window is None else by)
    if len(keys) > MOST_KEYS:
        raise UnsupportedError(
            f"by= has {len(keys)} keys; {MOST_KEYS} are the most that kernels tell apart; join some into one"
        )
    keyed_stream = stream if plan is stream.raw_plan else stream.derived(plan)
    return Windowed(keyed_stream, _window(plan, window, every, offset, tz), keys)


def _window(
    plan: Plan, window: object, every: Duration | None, offset: Duration | None, tz: str | None
) -> Window:
    if window is None:
        return _carried(plan, every, offset, tz)
    spec = _spec(window, every, offset, tz)
    time = time_of(plan)
    if time.column not in schema_of(plan).names:
        raise WindowError(
            "these rows have no time any more, it was dropped; keep the time column to make windows"
        )
    return spec.resolve(time)


def _carried(plan: Plan, *options: object) -> CarriedWindow:
    if any(option is not None for option in options):
        raise WindowError(
            "window() without a size regroups by the window carried; it takes no further options"
        )
    if not carries_window(plan):
        raise WindowError(
            "window() without a size regroups rows by the window they carry, but these carry none; "
            "give a size, such as window('10s')"
        )
    return CarriedWindow()


def window_spec(window: object) -> AnyWindow:
    """Return a window specification; a duration is the size of a tumbling window."""
    return _spec(window, None, None, None)


def _spec(window: object, every: Duration | None, offset: Duration | None, tz: str | None) -> AnyWindow:
    if not isinstance(window, AnyWindow):
        size: Duration = window  # type: ignore[assignment]  # the duration parser checks it
        return tumbling(size, offset, tz) if every is None else sliding(size, every, offset, tz)
    if (every, offset, tz) != (None, None, None):
        raise WindowError(
            "every=, offset= and tz= belong to a window given by its size; put them inside the window"
        )
    return window


def keyed(
    plan: Plan, by: object, what: str = "by=", taken: Sequence[str] = WINDOW_BOUNDS
) -> tuple[Plan, tuple[str, ...]]:
    """Resolve by= to column names, adding a column for each computed key.

    `what` names the argument in errors; `taken` are the names of other result columns.
    """
    given = [] if by is None else flat([by])
    computed = [
        argument for argument in given if isinstance(argument, Expr) and not isinstance(argument.node, Column)
    ]
    extended_plan = extended(plan, computed, {}) if computed else plan
    names = tuple(_key_name(argument, schema_of(extended_plan), what) for argument in given)
    refuse_twice([*taken, *names], what)
    return extended_plan, names


def _key_name(given: object, schema: pa.Schema, what: str) -> str:
    name = given.name if isinstance(given, Expr) else given
    if not isinstance(name, str):
        raise ExpressionTypeError(
            f"{what} takes names of columns, such as {what}'k' or {what}['a', 'b'], not {shown(given)}"
        )
    dtype = column_type(name, schema)
    if kind_of(dtype) in ("other", "null"):
        raise ExpressionTypeError(
            f"{what} cannot group by the column {name!r} of type {dtype}; derive a key from it first"
        )
    return name
