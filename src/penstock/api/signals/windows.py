"""A signal with a span of time around every instant, and the reductions over it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.api.aggregate_methods import Reducible
from penstock.api.bind import bound
from penstock.api.custom import CustomAggregate
from penstock.api.expr import Expr, aggregate
from penstock.api.signals.graph import defined, expression, signal_of
from penstock.api.windowed import Unfinished
from penstock.api.windows import MOST_WINDOWS_PER_ROW, RowsSpec
from penstock.errors import ExpressionTypeError, WindowError
from penstock.expr import nodes
from penstock.expr.nodes import Field
from penstock.ir.signals.nodes import (
    DURATION,
    VALUE,
    At,
    Chop,
    Expression,
    Last,
    Per,
    Rolling,
    SampleAndHold,
    Span,
    Window,
    WindowReduction,
    at,
)
from penstock.ir.signals.scope import NO_END, chopped_schema
from penstock.types.arrow import kind_of
from penstock.types.duration import to_ticks, week_begin
from penstock.types.time import NANOSECONDS

if TYPE_CHECKING:
    from penstock.api.signals.signal import Signal


class Spanned(Unfinished, Reducible["Signal"]):
    """A signal over a span of time: `.mean()`, `.max()`, `.agg(rms)` … reduce its samples there.

    >>> import pyarrow as pa, penstock as pk
    >>> level = pk.from_arrow(pa.table({"t": [0, 2], "v": [4.0, 9.0]}), time="t").signal("v")
    >>> level.per(10).agg(pk.max("value") - pk.min("value")).collect()["value"].to_pylist()
    [5.0]
    """

    __slots__ = ("_origin", "_signal", "_span")
    what = "a span of a signal"
    ways = ".mean(), .max() … or .agg(...)"

    def __init__(self, signal: Signal, span: Span, origin: int = 0) -> None:
        self._signal = moved(signal, -origin)
        self._span = span
        self._origin = (
            origin  # spans lie on a grid from zero: shift the signal by the origin, and the result back
        )

    def agg(self, reduction: object = None, /, **named: object) -> Signal:
        """Reduce by an expression of aggregates over the signal's columns, or by an aggregate of `pk.aggregate`.

        Several named reductions make a signal of several values:

        >>> import pyarrow as pa, penstock as pk
        >>> level = pk.from_arrow(pa.table({"t": [0, 2], "v": [4.0, 9.0]}), time="t").signal("v")
        >>> level.per(10).agg(most=pk.max("value"), n=pk.count()).collect().to_pylist()
        [{'start': 0, 'end': 10, 'most': 9.0, 'n': 2}]
        """
        if reduction is not None and named:
            raise ExpressionTypeError("agg takes one expression of aggregates, or several by name, not both")
        expressions = named or {VALUE: reduction}
        made = _reduced(
            self._signal, self._span, {name: self._node(expr) for name, expr in expressions.items()}
        )
        return moved(made, self._origin)

    def _node(self, reduction: object) -> nodes.Expr:
        if isinstance(reduction, CustomAggregate):
            reduction = reduction(self._signal.column)
        if not isinstance(reduction, Expr) or not nodes.has_aggregate(reduction.node):
            raise ExpressionTypeError(
                "agg takes an expression of aggregates, such as pk.max('value') - pk.min('value'), "
                "or an aggregate that pk.aggregate made"
            )
        return reduction.node

    def _aggregated(self, function: str, *others: object, where: object, **options: object) -> Signal:
        """Reduce the value; reduce each of several values under its name."""
        names = self._signal.values.names
        made = {name: aggregate(function, name, *others, where=where, **options) for name in names}
        return self.agg(**made) if len(made) > 1 else self.agg(*made.values())

    def integral(self) -> Signal:
        """Integrate over the span: value times duration, in seconds, or in ticks if time has no unit.

        >>> import pyarrow as pa, penstock as pk
        >>> power = pk.from_arrow(pa.table({"t": [0, 4, 20], "w": [10.0, 20.0, 0.0]}), time="t").signal("w")
        >>> power.per(10).integral().collect()["value"].to_pylist()
        [160.0, 200.0]
        """
        require_numbers(self._signal, "integral")
        return moved(self._weighted(_Weights(self._signal).integral), self._origin)

    def time_mean(self) -> Signal:
        """Average, weighting every value by its duration.

        >>> import pyarrow as pa, penstock as pk
        >>> power = pk.from_arrow(pa.table({"t": [0, 4, 20], "w": [10.0, 20.0, 0.0]}), time="t").signal("w")
        >>> power.per(10).time_mean().collect()["value"].to_pylist()
        [16.0, 20.0]
        """
        require_numbers(self._signal, "time_mean")
        return moved(self._weighted(_Weights(self._signal).mean), self._origin)

    def _weighted(self, value: Expr) -> Signal:
        """Cut the signal at the span's ends, and reduce the pieces with their durations."""
        match self._span:
            case Last():
                raise WindowError("rows have no duration to weight by; give the span as a length of time")
            case Rolling(size=size):
                return self._looking_back(size, value)
            case Window(size=size, every=every):
                return _reduced(
                    _pieces(self._signal, Chop(self._signal.name, gcd(size, every), None, True)),
                    self._span,
                    {VALUE: value.node},
                )
            case Per(size=size):
                return _reduced(
                    _pieces(self._signal, Chop(self._signal.name, size, None, True)),
                    self._span,
                    {VALUE: value.node},
                )

    def _looking_back(self, size: int, value: Expr) -> Signal:
        """Compute at each sample over the span before it; hold until the next, because it changes at every instant."""
        cuts = At(self._signal.name, -size)
        chopped = _pieces(self._signal, Chop(self._signal.name, None, None if size >= NO_END else cuts, True))
        made = _reduced(chopped, self._span, {VALUE: value.node}, shift=1)  # pieces that begin before t
        return signal_of(made.graph, SampleAndHold(made.name, self._signal.name), made.values)

    def __repr__(self) -> str:
        return f"<{type(self._span).__name__} span of {self._signal!r}: call .mean(), .max(), .agg(...) …>"


@dataclass(frozen=True)
class _Weights:
    """Sums over the values and durations of pieces."""

    signal: Signal

    @property
    def integral(self) -> Expr:
        unit = self.signal.graph.time.unit
        total = aggregate("sum", self._value * self._duration)
        return total if unit is None else total * (NANOSECONDS[unit] / 1e9)

    @property
    def mean(self) -> Expr:
        lasting = aggregate("sum", self._duration, where=self._value.is_not_null())
        return aggregate("sum", self._value * self._duration) / lasting

    @property
    def _value(self) -> Expr:
        return Expr(nodes.Column(self.signal.column)).cast(pa.float64())

    @property
    def _duration(self) -> Expr:
        return Expr(nodes.Column(DURATION)).cast(pa.float64())


def require_numbers(signal: Signal, what: str) -> None:
    """Reject values that are not numbers; a cast would silently convert numeric text."""
    for value in signal.values:
        if kind_of(value.type) not in ("bool", "int", "uint", "float"):
            raise ExpressionTypeError(
                f"{what} takes numbers, not {value.type}; cast the column before .signal(...) if that is what you mean"
            )


def _pieces(signal: Signal, chop: Chop) -> Signal:
    return signal_of(signal.graph, chop, chopped_schema(chop, signal.values))


def _reduced(signal: Signal, span: Span, expressions: Mapping[str, nodes.Expr], shift: int = 0) -> Signal:
    """Return the signal of aggregate expressions over a span; null where the span holds no sample."""
    graph = signal.graph
    reductions: list[WindowReduction] = []

    def rule(node: nodes.Expr) -> nodes.Expr:
        if not isinstance(node, nodes.Aggregate):
            return node
        over = WindowReduction(signal.name, node.function, node.args, span, node.where, node.options, shift)
        if over not in reductions:
            reductions.append(over)
        return nodes.Reduced(reductions.index(over))

    resolved = {name: bound(node, signal.values, graph.time) for name, node in expressions.items()}
    fields = tuple(Field(name, nodes.rewrite(node, rule)) for name, node in resolved.items())
    schemas = {name: obj.schema for name, obj in graph.objects.items()}
    return defined(graph, Expression((), tuple(reductions), fields), schemas)


def rolled(signal: Signal, size: object) -> Spanned:
    """Return a look-back span; size None covers all earlier time."""
    match size:
        case None:
            return Spanned(signal, Rolling(NO_END))
        case RowsSpec(size=rows, every=every, partial=partial):
            if every is not None or partial:
                raise WindowError("rolling takes pk.rows(n) alone: every sample looks back on the last n")
            return Spanned(signal, Last(rows))
        case _:
            return Spanned(signal, Rolling(_ticks(signal, size, "the size of rolling")))


def windowed(signal: Signal, size: object, every: object | None) -> Spanned:
    """Return spans on a grid; without `every`, each result holds over its own span."""
    ticks = _ticks(signal, size, "the size of the window")
    if every is None:
        return Spanned(signal, Per(ticks), week_begin(size, signal.graph.time))
    step = _ticks(signal, every, "the step of the window (every=)")
    if ticks // step > MOST_WINDOWS_PER_ROW:
        raise WindowError(
            f"a window of {size!r} every {every!r} holds each sample {ticks // step:,} times; use a longer step"
        )
    return Spanned(signal, Window(ticks, step), week_begin(every, signal.graph.time))


def _ticks(signal: Signal, size: object, what: str) -> int:
    ticks = to_ticks(size, signal.graph.time, what)
    if ticks <= 0:
        raise WindowError(f"{what} is {size!r}; it must be longer than zero")
    return ticks


def moved(signal: Signal, ticks: int) -> Signal:
    """Shift a signal in time, unless by zero."""
    return shifted(signal, ticks) if ticks else signal


def shifted(signal: Signal, ticks: int) -> Signal:
    """Shift a signal in time."""
    same: dict[str, nodes.Expr] = {name: nodes.Column(at(0, name)) for name in signal.values.names}
    return expression(signal.graph, (At(signal.name, ticks),), same)
