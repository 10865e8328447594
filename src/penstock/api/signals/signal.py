"""The signal: a value that varies over time, one for each key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.api.custom import TracedFunction, symbols
from penstock.api.expr import Expr
from penstock.api.literals import shown
from penstock.api.row_verbs import renamed as renamed_rows
from penstock.api.signals.graph import Graph, expression, guarded, joined, pointwise, signal_of
from penstock.api.signals.operators import Operators, SignalRecord
from penstock.api.signals.windows import Spanned, moved, require_numbers, rolled, shifted, windowed
from penstock.api.stream import Stream
from penstock.errors import DurationError, ExpressionTypeError, SignalError, UnknownColumnError
from penstock.expr import nodes
from penstock.ir.signals.nodes import VALUE, At, Chop, Resample, at
from penstock.plan.nodes import Intervals, Plan
from penstock.types.choices import one_of
from penstock.types.duration import Duration, to_ticks, week_begin

if TYPE_CHECKING:
    from penstock.api.explain import Explanation
    from penstock.api.running import Run
    from penstock.runtime.metrics import Metrics

METHODS = ("linear", "last", "mean")


class Signal(Operators):
    """A value that varies over time, one for each key; arithmetic on signals joins them in time.

    `stream.signal(...)` returns one. It is defined where a sample holds; an operation between signals is
    defined where all of them are. Nothing runs until a method such as `collect` is called.

    >>> import pyarrow as pa, penstock as pk
    >>> trades = pk.from_arrow(pa.table({"t": [0, 2, 5], "price": [3.0, 5.0, 4.0]}), time="t")
    >>> price = trades.signal("price")
    >>> (price > price.shift(1)).collect().to_pydict()
    {'start': [1, 2, 3], 'end': [2, 3, None], 'value': [False, True, False]}
    """

    __slots__ = ("_graph", "_name", "_rows")
    __array_ufunc__ = None  # prevents a NumPy scalar on the left from handling the operator

    def __init__(self, graph: Graph, name: str) -> None:
        self._graph = graph
        self._name = name
        self._rows: Stream | None = None

    # Properties

    @property
    def graph(self) -> Graph:
        """The graph of its temporal objects."""
        return self._graph

    @property
    def name(self) -> str:
        """The name of its object in the graph."""
        return self._name

    @property
    def schema(self) -> pa.Schema:
        """The columns of the intervals that `collect` returns."""
        return self._stream().schema

    @property
    def plan(self) -> Plan:
        """The logical plan of its intervals."""
        return self._stream().plan

    @property
    def metrics(self) -> Metrics | None:
        """The metrics of its last or current run; None before the first."""
        return self._stream().metrics

    @property
    def values(self) -> pa.Schema:
        """The columns of its value."""
        return self.graph.objects[self.name].schema

    @property
    def column(self) -> str:
        """The name of its only value."""
        if len(self.values) > 1:
            raise SignalError(
                f"this signal has several values, {', '.join(map(repr, self.values.names))}; "
                f"choose one, as in signal[{self.values.names[0]!r}], or use .map(lambda {', '.join('abcdef'[: len(self.values)])}: …)"
            )
        only: str = self.values.names[0]
        return only

    def __getitem__(self, name: str) -> Signal:
        """Return one of several values, by name."""
        if name not in self.values.names:
            raise UnknownColumnError(
                f"this signal has no value {name!r}; it has {', '.join(self.values.names)}"
            )
        return expression(self.graph, (At(self.name),), {VALUE: nodes.Column(at(0, name))})

    def __bool__(self) -> bool:
        raise ExpressionTypeError("a signal has no truth value by itself; combine signals with & | ~")

    def __repr__(self) -> str:
        by = f" by {', '.join(map(repr, self.graph.keys.names))}" if len(self.graph.keys) else ""
        return f"<Signal ({', '.join(f'{value.name!r}: {value.type}' for value in self.values)}){by}>"

    # Pointwise

    def map(self, function: Callable[..., object]) -> Signal:
        """Compute another value from its value, by a function that is traced and compiled.

        >>> import pyarrow as pa, penstock as pk
        >>> level = pk.from_arrow(pa.table({"t": [0, 2], "v": [4.0, 9.0]}), time="t").signal("v")
        >>> level.map(lambda v: v.sqrt() + 1).collect()["value"].to_pylist()
        [3.0, 4.0]

        If the signal has several values, the function takes one parameter for each, or one for all:

        >>> both = pk.from_arrow(pa.table({"t": [0], "bid": [4.0], "ask": [5.0]}), time="t").signal(["bid", "ask"])
        >>> both.map(lambda q: q.ask - q.bid).collect()["value"].to_pylist()
        [1.0]
        """
        node, columns = self._traced("map", function)
        return expression(self.graph, (At(self.name),), {VALUE: guarded(node, columns)})

    def where(self, condition: object) -> Signal:
        """Keep the value where a condition is true: a function of the value, or another signal.

        >>> import pyarrow as pa, penstock as pk
        >>> level = pk.from_arrow(pa.table({"t": [0, 2, 5], "v": [4, -9, 3]}), time="t").signal("v")
        >>> level.where(lambda v: v > 0).collect().to_pydict()
        {'start': [0, 5], 'end': [2, None], 'value': [4, 3]}
        """
        if isinstance(condition, Signal):
            return self._where(condition)
        if not callable(condition):
            raise ExpressionTypeError(
                f"where takes a function of the value or a signal, not a {type(condition).__name__}"
            )
        node, _ = self._traced("where", condition)
        kept: dict[str, nodes.Expr] = {
            name: nodes.Case(((node, nodes.Column(at(0, name))),), nodes.Literal(None, pa.null()))
            for name in self.values.names
        }
        return expression(self.graph, (At(self.name),), kept)

    def _where(self, condition: Signal) -> Signal:
        if len(self.values) == 1:
            return pointwise(_kept, (condition, self), strict=False)
        graph, when = joined([condition.graph, self.graph]), Expr(nodes.Column(at(0, condition.column)))
        kept = {name: _kept(when, Expr(nodes.Column(at(1, name)))).node for name in self.values.names}
        return expression(graph, (At(condition.name), At(self.name)), kept)

    def or_else(self, other: object) -> Signal:
        """Fill the gaps where the signal is not defined with another signal, or a constant.

        >>> import pyarrow as pa, penstock as pk
        >>> level = pk.from_arrow(pa.table({"t": [0, 2, 5], "v": [4, None, 3]}), time="t").signal("v")
        >>> level.or_else(level.per(10).mean().map(lambda m: m.cast("int64"))).collect()["value"].to_pylist()
        [4, 3]
        """
        return pointwise(lambda own, instead: own.fill_null(instead), (self, other), strict=False)

    def _traced(self, role: str, function: Callable[..., object]) -> tuple[nodes.Expr, list[nodes.Expr]]:
        """Call a user's function with symbols for the values: one for each, or one for all."""
        traced, names = TracedFunction(role, function), self.values.names
        own = symbols(nodes.Column(at(0, name)) for name in names)
        args: list[object] = [Expr(symbol) for symbol in own]
        if len(names) > 1 and traced.parameters() == 1:
            args = [SignalRecord(dict(zip(names, args, strict=True)))]
        traced.require(len(args), f"one for each value, {', '.join(names)}, or one for all")
        return traced.node(traced.trace(*args), own), [nodes.Column(at(0, name)) for name in names]

    def abs(self) -> Signal:
        """Return the absolute value."""
        return pointwise(abs, (self,))

    def sqrt(self) -> Signal:
        """Return the square root; NaN below zero."""
        return self.map(lambda v: v.sqrt())

    def cast(self, dtype: object) -> Signal:
        """Convert to another type, checking that every value fits."""
        return pointwise(lambda v: v.cast(dtype), (self,))

    # Time

    def shift(self, by: Duration) -> Signal:
        """Shift in time: return the value of `by` ago.

        >>> import pyarrow as pa, penstock as pk
        >>> level = pk.from_arrow(pa.table({"t": [0, 2], "v": [4, 9]}), time="t").signal("v")
        >>> level.shift(10).collect().to_pydict()
        {'start': [10, 12], 'end': [12, None], 'value': [4, 9]}
        """
        ticks = to_ticks(by, self.graph.time, "the shift")
        return shifted(self, ticks)

    def rolling(self, size: object) -> Spanned:
        """Span, at every instant, the samples of the last `size` of time, or the last `pk.rows(n)`.

        >>> import pyarrow as pa, penstock as pk
        >>> level = pk.from_arrow(pa.table({"t": [0, 2], "v": [4, 9]}), time="t").signal("v")
        >>> level.rolling(10).sum().collect().to_pydict()
        {'start': [0, 2, 10], 'end': [2, 10, 12], 'value': [4, 13, 9]}
        """
        return rolled(self, size)

    def window(self, size: Duration, every: Duration | None = None) -> Spanned:
        """Reduce, at every multiple of `every`, the samples of the `size` before it.

        >>> import pyarrow as pa, penstock as pk
        >>> level = pk.from_arrow(pa.table({"t": [0, 2, 13], "v": [4, 9, 1]}), time="t").signal("v")
        >>> level.window(10, every=5).sum().collect().to_pydict()
        {'start': [5, 15], 'end': [15, 25], 'value': [13, 1]}
        """
        return windowed(self, size, size if every is None else every)

    def per(self, size: Duration) -> Spanned:
        """Reduce the samples of each period of time; the result holds over that period.

        >>> import pyarrow as pa, penstock as pk
        >>> level = pk.from_arrow(pa.table({"t": [0, 2, 13], "v": [4, 9, 1]}), time="t").signal("v")
        >>> (level - level.per(10).min()).collect().to_pydict()
        {'start': [0, 2, 10, 13], 'end': [2, 10, 13, 20], 'value': [0, 5, 8, 0]}
        """
        return windowed(self, size, None)

    def resample(self, every: Duration, method: str = "linear", max_gap: Duration | None = None) -> Signal:
        """Sample the signal at every multiple of `every`, between its first and its last sample.

        `method` is "linear" (between the neighbouring samples), "last" (the value that holds) or "mean" (of the samples
        until the next multiple). With `max_gap`, no values are produced between samples further apart.

        >>> import pyarrow as pa, penstock as pk
        >>> level = pk.from_arrow(pa.table({"t": [0, 4, 8], "v": [0.0, 8.0, 4.0]}), time="t").signal("v")
        >>> level.resample(every=5).collect().to_pydict()
        {'start': [0, 5], 'end': [5, 10], 'value': [0.0, 7.0]}
        """
        if not one_of(method, METHODS):
            raise ExpressionTypeError(f"method is {method!r}; it is one of {', '.join(map(repr, METHODS))}")
        ticks = _positive(every, self.graph, "every=")
        gap = None if max_gap is None else _positive(max_gap, self.graph, "max_gap=")
        if method == "mean":
            return self._means(every)
        begin = week_begin(every, self.graph.time)
        source = moved(self if method == "last" else _floating(self), -begin)
        return moved(signal_of(source.graph, Resample(source.name, ticks, method, gap), source.values), begin)

    def _means(self, every: Duration) -> Signal:
        return self.per(every).mean()

    def chop(self, every: Duration) -> Signal:
        """Also sample the signal at every multiple of `every`, so that reductions count held values.

        >>> import pyarrow as pa, penstock as pk
        >>> level = pk.from_arrow(pa.table({"t": [0, 20], "v": [4, 9]}), time="t").signal("v")
        >>> level.chop(5).per(20).count().collect()["value"].to_pylist()
        [4, 1]
        """
        ticks = _positive(every, self.graph, "every=")
        begin = week_begin(every, self.graph.time)
        source = moved(self, -begin)
        return moved(signal_of(source.graph, Chop(source.name, ticks), self.values), begin)

    def integral(self) -> Signal:
        """Integrate from the first sample to each: value times duration, in seconds, or ticks if time has no unit."""
        return rolled(self, None).integral()

    def time_mean(self) -> Signal:
        """Average from the first sample to each, weighting every value by its duration."""
        return rolled(self, None).time_mean()

    # Running

    def to_stream(self, name: str | None = None) -> Stream:
        """Convert the samples to rows: `start, end`, the keys, and the value, under `name` if given.

        Several values keep their names.

        A row lasts until the next sample or until the value changes; `collect` merges adjacent rows of equal value.

        >>> import pyarrow as pa, penstock as pk
        >>> level = pk.from_arrow(pa.table({"t": [0, 2, 13], "v": [4, 9, 1]}), time="t").signal("v")
        >>> level.to_stream("level").window(10).agg(peak=pk.max("level")).collect()["peak"].to_pylist()
        [9, 1]
        """
        if name is not None and not isinstance(name, str):
            raise ExpressionTypeError(f"to_stream takes a name for the value, not {shown(name)}")
        stream = self._made(pieces=True)
        if name is None or len(self.values) > 1 or name == self.column:
            return stream
        return stream.derived(renamed_rows(stream.raw_plan, {self.column: name}))

    def _stream(self) -> Stream:
        """The stream of its intervals, cached, because it holds the metrics of the last run."""
        if self._rows is None:
            self._rows = self._made(pieces=False)
        return self._rows

    def _made(self, *, pieces: bool) -> Stream:
        program, streams = self.graph.program(self.name)
        data: dict[str, Any] = {}
        for stream in streams:
            data |= stream.raw_data
        return Stream(
            Intervals(tuple(stream.raw_plan for stream in streams), replace(program, pieces=pieces)), data
        )

    def collect(self, data: Any = None, **bindings: Any) -> pa.Table:
        """Run over all data, and return the intervals on which the value is constant: `start, end`, keys, `value`."""
        return self._stream().collect(data, **bindings)

    def run(self, batches: Any = None, /, **options: Any) -> Run:
        """Run incrementally: record batches in, intervals out when they end."""
        return self._stream().run(batches, **options)

    def open(self, state: object = None, **options: Any) -> Any:
        """Open the signal for pushing rows, as `Stream.open` does."""
        return self._stream().open(state, **options)

    def head(self, n: int = 5, data: Any = None, /, **bindings: Any) -> pa.Table:
        """Run, and return the first intervals."""
        return self._stream().head(n, data, **bindings)

    def to_polars(self, data: Any = None, /, **bindings: Any) -> Any:
        """Run, and return the intervals as a Polars data frame."""
        return self._stream().to_polars(data, **bindings)

    def to_pandas(self, data: Any = None, /, **bindings: Any) -> Any:
        """Run, and return the intervals as a pandas data frame."""
        return self._stream().to_pandas(data, **bindings)

    def to_spark(self, spark: Any, data: Any = None, /, **options: Any) -> Any:
        """Return the intervals as a Spark DataFrame, as `Stream.to_spark` does."""
        return self._stream().to_spark(spark, data, **options)

    def explain(self, stage: str | None = None) -> Explanation:
        """Show a stage of compilation: plan, ir, passes, physical, loop, llvm or asm; an overview without `stage`."""
        return self._stream().explain(stage)

    def _repr_html_(self) -> str:
        return self._stream()._repr_html_()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Run, and export the intervals as an Arrow stream."""
        return self._stream().__arrow_c_stream__(requested_schema)


def _kept(condition: Expr, value: Expr) -> Expr:
    return Expr(nodes.Case(((condition.node, value.node),), nodes.Literal(None, pa.null())))


def _floating(signal: Signal) -> Signal:
    """Cast to float64 for interpolation."""
    require_numbers(signal, "resample between samples")
    wanted: dict[str, nodes.Expr] = {
        value.name: nodes.Cast(nodes.Column(at(0, value.name)), pa.float64()) for value in signal.values
    }
    if all(pa.types.is_floating(value.type) for value in signal.values):
        return signal
    return expression(signal.graph, (At(signal.name),), wanted)


def _positive(duration: Duration, graph: Graph, what: str) -> int:
    ticks = to_ticks(duration, graph.time, what)
    if ticks <= 0:
        raise DurationError(f"{what} is {duration!r}; it must be longer than zero")
    return ticks


def align(**signals: Signal) -> Signal:
    """Combine several signals into one with several values, computed in one pass; null where one is not defined.

    >>> import pyarrow as pa, penstock as pk
    >>> level = pk.from_arrow(pa.table({"t": [0, 2], "v": [4, 9]}), time="t").signal("v")
    >>> pk.align(now=level, before=level.shift(1)).collect().to_pydict()
    {'start': [0, 1, 2, 3], 'end': [1, 2, 3, None], 'now': [4, 4, 9, 9], 'before': [None, 4, 4, 9]}
    """
    for signal in signals.values():
        if not isinstance(signal, Signal):
            raise ExpressionTypeError(f"align takes signals, not a {type(signal).__name__}")
    if not signals:
        raise ExpressionTypeError(
            "align needs at least one signal, such as pk.align(mean=price.rolling('10s').mean())"
        )
    graph = joined([signal.graph for signal in signals.values()])
    accesses = tuple(dict.fromkeys(At(signal.name) for signal in signals.values()))
    places = {name: accesses.index(At(signal.name)) for name, signal in signals.items()}
    columns = {name: at(places[name], signal.column) for name, signal in signals.items()}
    return expression(graph, accesses, {name: nodes.Column(column) for name, column in columns.items()})
