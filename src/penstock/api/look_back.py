"""`rolling`: aggregates over the rows before each row."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.api.bind import refuse_twice, window_fields
from penstock.api.pending import Unfinished
from penstock.api.windows import RowsSpec, require_positive
from penstock.errors import ExpressionTypeError, WindowError
from penstock.expr.nodes import Field
from penstock.plan.nodes import Lookback, Plan
from penstock.plan.schema import schema_of, time_of
from penstock.plan.verify import outer_columns
from penstock.types.choices import one_of
from penstock.types.duration import Duration, to_ticks, written
from penstock.types.time import Time
from penstock.types.windows import LookBack

if TYPE_CHECKING:
    from penstock.api.stream import Stream

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
