"""Bounds on how far in time a sample affects a program's output."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.ir.signals.nodes import (
    Chop,
    Expression,
    Feedback,
    Per,
    Program,
    Resample,
    Rolling,
    SampleAndHold,
    Sampled,
    Window,
    WindowReduction,
)

# A span of this length never expires a sample.
NO_END = 1 << 60
# Ticks added on both sides, for changes exactly at the bound.
MARGIN = 2


def reach(program: Program) -> int:
    """Bound how long after (or before) the last sample the output may still change, in ticks.

    The bound is the sum of all lengths: safe to search, too loose to prune by.
    """
    return MARGIN + sum(_length(obj.body) for obj in program.objects)


def lag(program: Program) -> int:
    """Bound how long before its first sample a key's output begins, in ticks.

    >>> import pyarrow as pa
    >>> from penstock.ir.signals.nodes import At, Object
    >>> from penstock.types.time import Time
    >>> values = pa.schema({"v": pa.float64()})
    >>> x = Object("x", Sampled("0", (), ()), values)
    >>> y = Object("y", Expression((At("x", -7), At("x", 2)), (), ()), values)
    >>> lag(Program((x, y), "y", pa.schema([]), Time("t", pa.int64(), None)))
    7
    """
    lags: dict[str, int] = {}
    for obj in program.objects:
        lags[obj.name] = _lag(obj.body, lags)
    return lags[program.output]


def _lag(body: object, lags: Mapping[str, int]) -> int:
    match body:
        case (
            Expression(accesses=accesses, reductions=reductions)
            | Feedback(accesses=accesses, reductions=reductions)
        ):
            found = [lags[access.source] - access.shift for access in accesses]
            found += [
                lags[reduction.source] - reduction.shift + _ahead(reduction) for reduction in reductions
            ]
            return max([0, *found])  # an object defined without inputs begins with its key
        case Chop(source=source, marks=marks):
            return max(lags[source], 0 if marks is None else lags[marks.source] - marks.shift)
        case SampleAndHold(source=source, clock=clock):
            return max(lags[source], lags[clock])
        case Resample(source=source):
            return lags[source]
        case _:
            return 0


def _ahead(over: WindowReduction) -> int:
    """Return how long before a sample the first span that holds it may begin."""
    return over.span.size - 1 if isinstance(over.span, Per) else 0


def _length(body: object) -> int:
    match body:
        case Sampled(hold=hold):
            return hold.lasting or 0
        case (
            Expression(accesses=accesses, reductions=reductions)
            | Feedback(accesses=accesses, reductions=reductions)
        ):
            own = (
                sum(self_reference.shift for self_reference in body.own) if isinstance(body, Feedback) else 0
            )
            shifts = [*(a.shift for a in accesses), *(r.shift for r in reductions)]
            return own + sum(map(abs, shifts)) + sum(_span(reduction) for reduction in reductions)
        case Resample(every=every, max_gap=gap):
            return every + (gap or 0)
        case Chop(every=every, marks=marks):
            return (every or 0) + (0 if marks is None else _finite(abs(marks.shift)))
        case _:
            return 0


def _span(over: WindowReduction) -> int:
    match over.span:
        case Rolling(size=size):
            return _finite(size)
        case Window(size=size, every=every):
            return size + every
        case Per(size=size):
            return size
        case _:
            return 0


def _finite(length: int) -> int:
    return 0 if length >= NO_END else length
