"""Windows and look-backs of a stream, before and after their aggregates."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import pyarrow as pa

from penstock.api.bind import flat, refuse_twice, window_fields
from penstock.api.expr import Expr
from penstock.api.join_keys import other_keys
from penstock.api.literals import shown
from penstock.api.row_verbs import extended
from penstock.api.windows import AnyWindow, RowsSpec, require_positive, sliding, tumbling
from penstock.errors import (
    ExpressionTypeError,
    SchemaMismatchError,
    UnfinishedError,
    UnsupportedError,
    WindowError,
)
from penstock.expr.nodes import Column, Field
from penstock.expr.typing import column_type
from penstock.plan.nodes import Aggregate, Apply, Attach, Lookback, Plan
from penstock.plan.schema import carries_window, schema_of, scope_of, time_of
from penstock.plan.verify import outer_columns
from penstock.types.arrow import as_schema, kind_of, without_unions
from penstock.types.choices import one_of
from penstock.types.duration import Duration, to_ticks, written
from penstock.types.time import Time
from penstock.types.windows import WINDOW_BOUNDS, CarriedWindow, LookBack, Window

if TYPE_CHECKING:
    from penstock.api.stream import Stream


# --- Windows and look-backs without their aggregates.


class Unfinished:
    """A query step without rows until its aggregates are given; any other attribute raises an error.

    >>> import penstock as pk
    >>> pk.stream("events", {"t": "int64"}, time="t").window(10).collect()
    Traceback (most recent call last):
    ...
    penstock.errors.UnfinishedError: a window has no 'collect': say what to compute, with .agg(...), .with_columns(...), .top_k(...) or .apply(...), and go on from there
    """

    __slots__ = ()
    what: ClassVar[str]
    ways: ClassVar[str] = ".agg(...) or .with_columns(...)"

    if not TYPE_CHECKING:  # type checkers must still report unknown names

        def __getattr__(self, name: str) -> NoReturn:
            raise UnfinishedError(
                f"{self.what} has no {name!r}: say what to compute, with {self.ways}, and go on from there"
            )


# --- A stream divided into windows, and the verbs that compute over them.

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
            f"by= has {len(keys)} keys; {MOST_KEYS} are the most that kernels distinguish; join some into one"
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


# --- `rolling`: aggregates over the rows before each row.

CLOSED = ("right", "left", "both", "none")


class LookingBack(Unfinished):
    """A rolling query without its aggregates: `agg` keeps times and keys, `with_columns` keeps all columns.

    >>> import penstock as pk
    >>> trades = pk.stream("trades", {"t": "int64", "k": "string", "p": "float64"}, time="t")
    >>> trades.rolling([10, 60], by="k").agg(m=pk.mean("p")).schema.names
    ['t', 'k', 'm_10', 'm_60']
    """

    __slots__ = ("_by", "_labels", "_spans", "_stream")
    what = "a look-back"

    def __init__(
        self, stream: Stream, spans: tuple[LookBack, ...], labels: tuple[str, ...] | None, by: tuple[str, ...]
    ) -> None:
        self._stream, self._spans, self._labels, self._by = stream, spans, labels, by

    def agg(self, /, *exprs: object, **named: object) -> Stream:
        """Return each row's time and keys, and these aggregates over its look-back span."""
        plan = self._stream.raw_plan
        fields = self._fields(exprs, named, "agg")
        if not fields[0]:
            raise ExpressionTypeError("agg needs at least one aggregate, such as m=pk.mean('x')")
        groups = (time_of(plan).column, *self._by)
        for field in fields[0]:
            loose = sorted(outer_columns(field.expr) - set(groups))
            if loose:
                raise ExpressionTypeError(
                    f"the column {loose[0]!r} in {field.name!r} has many values in a look-back; "
                    "aggregate it, or use with_columns, which keeps every row's columns"
                )
        refuse_twice([*dict.fromkeys(groups), *_names(fields)], "agg")
        return self._stream.derived(Lookback(plan, self._spans, self._by, fields, rows=False))

    def with_columns(self, /, *exprs: object, **named: object) -> Stream:
        """Keep every row and column, and add these aggregates over its look-back span."""
        plan = self._stream.raw_plan
        fields = self._fields(exprs, named, "with_columns")
        refuse_twice([*schema_of(plan).names, *_names(fields)], "with_columns after rolling")
        return self._stream.derived(Lookback(plan, self._spans, self._by, fields, rows=True))

    def _fields(
        self, exprs: Sequence[object], named: dict[str, object], what: str
    ) -> tuple[tuple[Field, ...], ...]:
        """Return the fields over each span; for a list of spans, names end in the span's label."""
        plan = self._stream.raw_plan
        fields = window_fields(exprs, named, schema_of(plan), time_of(plan), what)
        if self._labels is None:
            return (fields,)
        return tuple(
            tuple(Field(f"{field.name}_{label}", field.expr) for field in fields) for label in self._labels
        )

    def __repr__(self) -> str:
        return f"<LookingBack by {list(self._by)}: call .agg(...) or .with_columns(...)>"


def _names(fields: Sequence[Sequence[Field]]) -> list[str]:
    return [field.name for several in fields for field in several]


def look_back(
    stream: Stream, size: object, by: tuple[str, ...], closed: str, delay: Duration | None
) -> LookingBack:
    """Check the spans of `rolling` against the stream's time."""
    plan = stream.raw_plan
    time = _clock(plan)
    if not one_of(closed, CLOSED):
        raise WindowError(f"closed is {closed!r}; it is one of {', '.join(map(repr, CLOSED))}")
    sizes = list(size) if isinstance(size, (list, tuple)) else [size]
    if not sizes:
        raise WindowError("rolling needs a size, such as '10s' or pk.rows(20), or a list of them")
    late = 0 if delay is None else to_ticks(delay, time, "the delay of rolling")
    if late < 0:
        raise WindowError(f"the delay of rolling is {delay!r}; it cannot be negative")
    spans = tuple(_span(length, closed, late, time) for length in sizes)
    if not isinstance(size, (list, tuple)):
        return LookingBack(stream, spans, None, by)
    labels = tuple(_label(length) for length in sizes)
    refuse_twice(labels, "the sizes of rolling")
    return LookingBack(stream, spans, labels, by)


def _clock(plan: Plan) -> Time:
    time = time_of(plan)
    if time.column not in schema_of(plan).names:
        raise WindowError(
            "these rows have no time any more, it was dropped; keep the time column to look back"
        )
    return time


def _span(size: object, closed: str, delay: int, time: Time) -> LookBack:
    if isinstance(size, RowsSpec):
        if size.every is not None or size.partial:
            raise WindowError("rolling looks back on pk.rows(n); every= and partial= belong to windows")
        if closed not in ("right", "left"):
            raise WindowError(f"closed={closed!r} does not apply to rows; it is 'right' or 'left'")
        return LookBack(rows=size.size, closed=closed, delay=delay)
    require_positive(size, "the size of rolling")
    return LookBack(size=to_ticks(size, time, "the size of rolling"), closed=closed, delay=delay)


def _label(size: Any) -> str:
    """Return a span's suffix in column names: 1h, 20rows."""
    if isinstance(size, RowsSpec):
        return f"{size.size}rows"
    if isinstance(size, str):
        return size.strip().replace(" ", "")
    return written(size) if isinstance(size, timedelta) else str(operator.index(size))
