"""Signals that read their own past: recursive filters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa

from penstock.api.custom import TracedFunction
from penstock.api.literals import shown
from penstock.api.signals.graph import NOWHEN, Graph, signal_of
from penstock.api.signals.signal import Signal
from penstock.errors import DurationError, ExpressionTypeError, SignalError, WindowError
from penstock.expr import nodes
from penstock.expr.nodes import Field
from penstock.ir.signals.nodes import (
    VALUE,
    At,
    Expression,
    Feedback,
    Sampled,
    SelfReference,
    at,
    past,
    sources_of,
)
from penstock.ir.signals.scope import composed
from penstock.types.duration import Duration, to_ticks

_OWN = "own"  # placeholder input for the own results, during tracing


class Past(Signal):
    """The past results of a signal under definition; used directly, the previous result.

    `prev[2]` is the result two samples ago, `prev.shift("1s")` the result at that time.
    """

    __slots__ = ()

    def __getitem__(self, back: int | str) -> Signal:
        """Return the result `back` samples ago."""
        if not isinstance(back, int) or isinstance(back, bool) or back < 1:
            raise WindowError(f"prev[{back!r:.40}] is not in the past; prev[1] is the previous result")
        return Signal(*_placeholder(self.graph, str(back), self.values))

    def shift(self, by: Duration) -> Signal:
        """Return the result `by` ago. (The duration is converted to ticks when the filter is applied to its input.)"""
        if isinstance(by, bool) or not isinstance(by, int | str | timedelta):
            raise DurationError(f"the shift of prev is {shown(by)}; give a duration such as '10s', or ticks")
        length = f"{by // timedelta(microseconds=1)}us" if isinstance(by, timedelta) else by
        kind = "ticks" if isinstance(length, int) else "duration"
        return Signal(*_placeholder(self.graph, f"{kind}:{length}", self.values))


def feedback(function: Callable[[Past], Signal], initial: float = 0.0) -> Signal:
    """Define a signal by its own past results: a recursive filter, such as exponential smoothing.

    `function(prev)` is called once and returns the signal. `prev` is the result at the previous sample, `prev[2]`
    the one before that, `prev.shift(d)` the result a duration ago; before the first result, all are `initial`. Samples
    without a defined result are skipped, so the filter continues after a gap. The signal is sampled where its other
    inputs are sampled, and holds until the next sample. Integer signals need an integer `initial`.

    >>> import pyarrow as pa, penstock as pk
    >>> x = pk.from_arrow(pa.table({"t": [0, 1, 2], "v": [8.0, 8.0, 8.0]}), time="t").signal("v")
    >>> pk.feedback(lambda prev: prev * 0.5 + x * 0.5).collect()["value"].to_pylist()
    [4.0, 6.0, 7.0]
    """
    traced = TracedFunction("feedback", function)
    traced.require(1, "the past results")
    if isinstance(initial, bool) or not isinstance(initial, (int, float)) or not _is_64_bit(initial):
        raise ExpressionTypeError(f"initial= is a number of 64 bits, such as 0.0, not {initial!r:.40}")
    dtype = pa.float64() if isinstance(initial, float) else pa.int64()
    own = pa.schema([pa.field(VALUE, dtype)])
    made = traced.trace(Past(*_placeholder(Graph({}, {}, pa.schema([]), NOWHEN), "1", own)))
    if not isinstance(made, Signal):
        raise ExpressionTypeError(f"feedback's function gives a {type(made).__name__}; it must give a signal")
    return _defined(made, initial, dtype)


def _is_64_bit(number: float) -> bool:
    return isinstance(number, float) or -(1 << 63) <= number < 1 << 63


def _placeholder(graph: Graph, which: str, schema: pa.Schema) -> tuple[Graph, str]:
    fields = tuple(Field(field.name, nodes.Column(field.name)) for field in schema)
    return graph.defined(Sampled(f"{_OWN} {which}", (), fields), schema)


def _defined(made: Signal, initial: float, dtype: pa.DataType) -> Signal:
    whole = _whole(made)
    if made.graph.time == NOWHEN:
        raise SignalError("feedback's function reads nothing but its own past; let it read a signal too")
    if made.values.types != [dtype]:
        raise ExpressionTypeError(
            f"feedback gives {made.values.types[0]}, but its past is {dtype}, as initial={initial!r}; "
            "give another initial=, or cast the result"
        )
    others = [access for access in whole.accesses if _which(made.graph, access) is None]
    own = [_own(made.graph, access) for access in whole.accesses if access not in others]
    names = _names(made.graph, whole, others)
    fields = tuple(Field(field.name, nodes.substitute(field.expr, names)) for field in whole.fields)
    if not others and not whole.reductions:
        raise SignalError("feedback's function reads nothing but its own past; let it read a signal too")
    body = Feedback(tuple(others), whole.reductions, fields, tuple(own), initial)
    return signal_of(made.graph, body, made.values)


def _names(graph: Graph, whole: Expression, others: list[At]) -> dict[str, nodes.Expr]:
    """Map the columns of accesses to those of the other accesses, or to past results."""
    found: dict[str, nodes.Expr] = {}
    for i, access in enumerate(whole.accesses):
        if access in others:
            for column in graph.objects[access.source].schema.names:
                found[at(i, column)] = nodes.Column(at(others.index(access), column))
        else:
            place = sum(other not in others for other in whole.accesses[:i])
            found[at(i, VALUE)] = nodes.Column(past(place))
    return found


def _whole(made: Signal) -> Expression:
    """Express the result as one expression over past results and signals that do not depend on them."""
    objects = made.graph.objects
    depends: dict[str, bool] = {}
    for name, obj in objects.items():
        depends[name] = _is_own(obj.body) or any(depends[source] for source in sources_of(obj.body))
    bodies: dict[str, Expression] = {}
    for name, obj in objects.items():
        if depends[name] and not _is_own(obj.body):
            body = obj.body
            if not isinstance(body, Expression) or any(depends[over.source] for over in body.reductions):
                raise SignalError(
                    "feedback may read its past instant by instant and shifted, but not reduce or resample it; "
                    "reduce the signals it reads, or the result of pk.feedback"
                )
            bodies[name] = composed(body, bodies)
    if made.name not in bodies:
        raise SignalError(
            "feedback's function does not read the past results it is given; let it read prev, or leave pk.feedback out"
        )
    return bodies[made.name]


def _is_own(body: object) -> bool:
    return isinstance(body, Sampled) and body.input.startswith(_OWN)


def _which(graph: Graph, access: At) -> str | None:
    """Return the past result that an access reads; None if it reads none."""
    body = graph.objects[access.source].body
    return body.input.removeprefix(f"{_OWN} ") if isinstance(body, Sampled) and _is_own(body) else None


def _own(graph: Graph, access: At) -> SelfReference:
    kind, _, length = (_which(graph, access) or "").rpartition(":")
    if access.shift:
        raise SignalError(
            "feedback reads prev, prev[n] or prev.shift(d); shift prev itself, not what is made of it"
        )
    if not kind:
        return SelfReference(int(length))
    shift = to_ticks(int(length) if kind == "ticks" else length, graph.time, "the shift of prev")
    if shift <= 0:
        raise WindowError(f"prev.shift({length}) is not in the past; give a shift longer than zero")
    return SelfReference(0, shift)
